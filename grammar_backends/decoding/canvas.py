"""The rows that a builder writes, and what each of them is."""

from __future__ import annotations

from dataclasses import dataclass

from grammar_backends.contract import BitmaskTensor, StructuredOutputGrammar
from grammar_backends.contract.bitmask import Bitmask
from grammar_backends.decoding.layout import RowState
from grammar_backends.errors import DeadEnd, GrammarError

__all__ = ["Canvas"]


@dataclass(frozen=True, slots=True)
class Canvas:
    """The rows that a builder writes, and what each is.

    Attributes:
        tensor: the bitmask as grammars take it.
        view: the same memory as engines take it.
        states: a `RowState` for each row.
        opens_terminated: rows of terminated grammars are all ones instead of stop tokens only (F9).
    """

    tensor: BitmaskTensor
    view: Bitmask
    states: bytearray
    opens_terminated: bool

    def fill(self, grammar: StructuredOutputGrammar, row: int) -> None:
        """Write what may come next. Raises GrammarError (A14, A19)."""
        terminated = grammar.is_terminated()
        if terminated and self.opens_terminated:
            self.view.array[row] = -1
            constrains = True
        else:
            constrains = grammar.fill_bitmask(self.tensor, row)
        if terminated:
            self.states[row] = RowState.TERMINATED
        else:
            self.states[row] = RowState.CONSTRAINED if constrains else RowState.UNCONSTRAINED

    def repeat(self, source: int, row: int, state: RowState = RowState.UNREACHABLE) -> None:
        """Make a row that no verification may reach as strict as the last one that it may (F8)."""
        self.view.array[row] = self.view.array[source]
        self.states[row] = state

    def open(self, first: int, end: int, state: RowState) -> None:
        """Write all ones."""
        self.view.array[first:end] = -1
        self.states[first:end] = bytes([state]) * (end - first)

    def close(self, first: int, end: int, error: GrammarError) -> None:
        """No bit in any row of a request that must be failed (F2)."""
        self.view.array[first:end] = 0
        state = RowState.DEAD if isinstance(error, DeadEnd) else RowState.FAILED
        self.states[first:end] = bytes([state]) * (end - first)
