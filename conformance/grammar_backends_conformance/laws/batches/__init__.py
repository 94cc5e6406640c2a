"""Batches of masks against brute force: a fresh grammar for every row, replayed from the start."""

from grammar_backends_conformance.laws.batches.oracle import Answer, Origin, Replay
from grammar_backends_conformance.laws.batches.walk import MAX_DRAFTS, Disagreement, Walk

__all__ = ["MAX_DRAFTS", "Answer", "Disagreement", "Origin", "Replay", "Walk"]
