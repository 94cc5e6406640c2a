"""A failure seen as a grammar, for engines whose requests always hold one and ask it for a flag (E18)."""

from __future__ import annotations

from collections.abc import Sequence

from grammar_backends.contract import BitmaskTensor
from grammar_backends.errors import GrammarBackendsError, GrammarError

__all__ = ["AbortedGrammar"]


class AbortedGrammar:
    """A `StructuredOutputGrammar` in the error state, from which nothing leads: it never looks like success (A19).

    Args:
        reason: why there is no grammar; the cause of its `error`.

    Attributes:
        error: what `fill_bitmask` raises.
    """

    __slots__ = ("error",)

    num_accepted = 0
    max_rollback = None

    def __init__(self, reason: GrammarBackendsError) -> None:
        self.error = GrammarError(f"there is no grammar: {reason}")
        self.error.__cause__ = reason

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        """False (A19)."""
        return False

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """[] (A19)."""
        return []

    def rollback(self, num_tokens: int) -> None:
        """There is nothing to roll back: raises ValueError for anything but 0 (A5, A17)."""
        if num_tokens:
            raise ValueError(f"cannot roll back {num_tokens} of 0 accepted tokens")

    def fill_bitmask(self, bitmask: BitmaskTensor, row: int) -> bool:
        """Raises `error`; the row is left alone (A19)."""
        raise self.error

    def is_terminated(self) -> bool:
        """False (A19)."""
        return False

    def is_accepting(self) -> bool:
        """False."""
        return False

    def reset(self) -> None:
        """Changes nothing: there is no initial state to return to."""

    def fork(self) -> AbortedGrammar:
        """Itself, since it has no state."""
        return self

    def forced_tokens(self) -> list[int]:
        """[]: nothing can come next."""
        return []

    def forced_bytes(self) -> bytes:
        """b"": nothing can come next."""
        return b""
