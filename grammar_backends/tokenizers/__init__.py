"""Readers that make a `Vocabulary` from a real tokenizer, and `load_vocabulary`, which finds the right one by name.

Importing this package loads no tokenizer library: each reader imports its own on use.
"""

from __future__ import annotations

from grammar_backends.tokenizers.loading import load_vocabulary

__all__ = ["load_vocabulary"]
