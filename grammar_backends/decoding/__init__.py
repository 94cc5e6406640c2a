"""Grammars during decoding."""

from grammar_backends.decoding.batch import FillOutcome, fill_bitmasks

__all__ = ["FillOutcome", "fill_bitmasks"]
