"""What a grammar can begin with: it does not move before a region begins, so that all is asked once (F13)."""

from __future__ import annotations

import copy
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from grammar_backends.contract import StructuredOutputGrammar, Vocabulary, pack_ids, unpack_ids
from grammar_backends.errors import GrammarError

__all__ = ["Beginnings"]

MAX_ANSWERS = 10_000
"""Answers about contents that are kept (A33)."""

MAX_ROWS = 16
"""Rows that are kept."""


class Beginnings:
    """What a grammar can begin with. Used by one thread at a time, as every grammar (A24).

    Args:
        grammar: in its first state; it is only forked.
        vocabulary: whose rows it fills.
    """

    def __init__(self, grammar: StructuredOutputGrammar, vocabulary: Vocabulary) -> None:
        self._grammar = grammar
        self._vocabulary = vocabulary
        self._refused: dict[tuple[int, ...], bool] = {}
        self._rows: dict[tuple[int, ...], NDArray[np.uint32]] = {}
        self._latest: tuple[tuple[int, ...], StructuredOutputGrammar | None] | None = None
        """A text that grows from step to step is not read anew each time: what was asked for last."""

    def fork(self, grammar: StructuredOutputGrammar) -> Beginnings:
        """The same with all that is known, for a fork of the grammar."""
        other = copy.copy(self)
        other._grammar = grammar
        other._latest = None
        return other

    def refuses(self, content: tuple[int, ...] | None) -> bool:
        """Whether the grammar does not begin with these tokens; it does with none, and never with None."""
        if not content:
            return content is None
        refused = self._refused.get(content)
        if refused is None:
            if len(self._refused) >= MAX_ANSWERS:
                self._refused.clear()
            refused = self._refused[content] = self._grammar.validate_tokens(content) != [*content]
        return refused

    def refused_behind(self, before: tuple[int, ...], ids: Collection[int]) -> list[int]:
        """Those of `ids` with which the grammar does not go on when it began with the tokens `before`."""
        row = self._row(before)
        asked = np.fromiter(ids, dtype=np.int64, count=len(ids))
        refused: list[int] = asked[row[asked >> 5] >> (asked & 31).astype(np.uint32) & 1 == 0].tolist()
        return refused

    def _row(self, before: tuple[int, ...]) -> NDArray[np.uint32]:
        row = self._rows.get(before)
        if row is None:
            if len(self._rows) >= MAX_ROWS:
                self._rows.clear()
            row = self._rows[before] = self._row_behind(before)
        return row

    def _row_behind(self, before: tuple[int, ...]) -> NDArray[np.uint32]:
        row = np.zeros((1, self._vocabulary.words), dtype=np.int32)
        grammar = self._behind(before)
        try:
            if grammar is not None:
                grammar.fill_bitmask(row, 0)
                row |= self._other_spellings(grammar, row[0])
        except GrammarError:
            row.fill(0)
        bits: NDArray[np.uint32] = row[0].view(np.uint32)
        return bits

    def _other_spellings(self, grammar: StructuredOutputGrammar, row: NDArray[np.int32]) -> NDArray[np.int32]:
        """What a row of a single token may leave out, as a row: other spellings of a text that is forced (A12)."""
        allowed = unpack_ids(row)
        first = self._vocabulary.text_tokens[allowed[0]][:1] if len(allowed) == 1 else b""
        same = self._vocabulary.starting_with(first) if first else []
        return pack_ids([id_ for id_ in same if grammar.validate_tokens([id_])], self._vocabulary.width)

    def _behind(self, before: tuple[int, ...]) -> StructuredOutputGrammar | None:
        """The grammar behind these tokens; None when it does not begin with them."""
        done, grammar = self._latest or ((), self._grammar.fork())
        if before[: len(done)] != done:
            done, grammar = (), self._grammar.fork()
        if grammar is not None and not grammar.accept_tokens("", before[len(done) :]):
            grammar = None  # nor with any that begin so
        self._latest = before, grammar
        return grammar
