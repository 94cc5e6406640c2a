"""Applying bitmasks to logits."""

from grammar_backends.kernels.apply import apply_token_bitmask

__all__ = ["apply_token_bitmask"]
