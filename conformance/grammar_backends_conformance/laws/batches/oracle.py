"""What the rows of a request must be, found without any roll-back: every row by a fresh grammar that replays the
whole history and the drafts before it (F7, F8, F9, F10, G8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from grammar_backends import DraftTree, RowState, StructuredOutputGrammar
from grammar_backends.errors import DeadEnd

__all__ = ["Answer", "Origin", "Replay"]

Origin = Callable[[], StructuredOutputGrammar]
"""Makes a grammar in its initial state."""

REMEMBERED = 20_000
"""Rows that a `Replay` keeps before it forgets them all."""


@dataclass(frozen=True)
class Answer:
    """What one request's rows must be.

    Attributes:
        rows: the bytes of each row.
        states: of each row.
        num_acceptable: drafts that may be accepted.
    """

    rows: list[bytes]
    states: list[RowState]
    num_acceptable: int


@dataclass(frozen=True)
class Seen:
    """The row after some tokens."""

    row: bytes
    state: RowState


@dataclass
class Replay:
    """The truth about the grammars of one origin.

    Attributes:
        origin: makes them.
        words: int32 words of a row.
        opens_terminated: the builder's policy for rows of terminated grammars.
    """

    origin: Origin
    words: int
    opens_terminated: bool = False
    _seen: dict[tuple[int, ...], Seen | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._row = np.empty((1, self.words), np.int32)

    def after(self, tokens: Sequence[int]) -> Seen | None:
        """The row after `tokens`; None where one of them is illegal or follows a stop token."""
        key = tuple(tokens)
        if key not in self._seen:
            if len(self._seen) > REMEMBERED:
                self._seen.clear()
            self._seen[key] = self._look(key)
        return self._seen[key]

    def _look(self, tokens: tuple[int, ...]) -> Seen | None:
        grammar = self.origin()
        if not grammar.accept_tokens("replay", tokens) or grammar.num_accepted != len(tokens):
            return None  # one is illegal, or some follow a stop token
        row = self._row
        row.fill(0x5A5A5A5A)
        try:
            constrains = grammar.fill_bitmask(row, 0)
        except DeadEnd:
            return Seen(bytes(4 * self.words), RowState.DEAD)
        if grammar.is_terminated():
            return Seen(self._open if self.opens_terminated else row.tobytes(), RowState.TERMINATED)
        return Seen(row.tobytes(), RowState.CONSTRAINED if constrains else RowState.UNCONSTRAINED)

    @property
    def _open(self) -> bytes:
        return b"\xff" * (4 * self.words)

    def chain(self, history: Sequence[int], drafts: Sequence[int], *, bonus_row: bool = True) -> Answer:
        """The answer for a list of drafts.

        Without a bonus row nobody looks at what may follow the last draft, so that it may lead to a dead end.
        """
        paths = [drafts[:length] for length in range(len(drafts) + 1)]
        answer = self._answer(history, paths)
        if bonus_row:
            return answer
        acceptable = answer.num_acceptable + (bool(drafts) and answer.states[-1] == RowState.DEAD != answer.states[0])
        return Answer(answer.rows[:-1], answer.states[:-1], acceptable)

    def tree(self, history: Sequence[int], tree: DraftTree) -> Answer:
        """The answer for a tree of drafts."""
        paths: dict[int, list[int]] = {0: []}
        for node, _ in tree.walk[1:]:
            paths[node] = [*paths[tree.parents[node]], tree.tokens[node]]
        return self._answer(history, [paths[node] for node in range(len(tree.tokens))])

    def _answer(self, history: Sequence[int], paths: Sequence[Sequence[int]]) -> Answer:
        rows, states, acceptable = [], [], 0
        root = self.after(history)
        if root is None:
            raise ValueError(f"{history} is no history of this grammar")
        if root.state == RowState.DEAD:
            return Answer([root.row] * len(paths), [RowState.DEAD] * len(paths), 0)
        for path in paths:
            row, state = self._row_of(history, path)
            acceptable += bool(path) and state not in (RowState.DEAD, RowState.UNREACHABLE)
            rows.append(row)
            states.append(state)
        return Answer(rows, states, acceptable)

    def _row_of(self, history: Sequence[int], path: Sequence[int]) -> tuple[bytes, RowState]:
        if any(token < 0 for token in path):
            return self._open, RowState.UNREACHABLE
        last = Seen(b"", RowState.FAILED)
        for length in range(len(path) + 1):
            seen = self.after([*history, *path[:length]])
            if seen is None or seen.state == RowState.DEAD:
                dead = seen is not None and length == len(path)
                return last.row, RowState.DEAD if dead else RowState.UNREACHABLE
            last = seen
        return last.row, last.state
