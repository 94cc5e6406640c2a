"""One request's rows: its grammar is rolled forward over the drafts, row by row, and back again (F7, G8).

Every grammar can go this way; `native` is the shorter one that some engines have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grammar_backends.contract import StructuredOutputGrammar
from grammar_backends.decoding.canvas import Canvas
from grammar_backends.decoding.layout import RowState
from grammar_backends.decoding.trees import DraftTree
from grammar_backends.errors import DeadEnd

__all__ = ["roll_over_chain", "roll_over_tree"]


def roll_over_chain(
    grammar: StructuredOutputGrammar, request_id: str, drafts: Sequence[int], canvas: Canvas, first: int, end: int
) -> int:
    """As `roll_over_tree` for a list of drafts: row ``first + i`` holds what may follow the first i of them.

    Rows at `end` and behind are not written: without a bonus row the last draft has none (F4).
    """
    last = len(drafts) + 1
    roll = _Roll(grammar, request_id, canvas, first, end, (-1, *drafts), range(-1, last - 1))
    return roll.run(zip(range(last), range(last), strict=True))


def roll_over_tree(
    grammar: StructuredOutputGrammar, request_id: str, tree: DraftTree, canvas: Canvas, first: int
) -> int:
    """Fill the row ``first + node`` of each node and return how many drafts are acceptable; the grammar is as before.

    ::

        a negative token, and whatever follows it           -> all ones (F10)
        a token that is legal where its parent was reached  -> what may follow it
        one that is not, follows a stop token, or leads to
        a dead end, and whatever follows it                 -> the row of its last reachable ancestor again (F8)

    Raises:
        DeadEnd: no token is legal at the root.
        GrammarError: the engine failed; the rows are in no particular state.
    """
    end = first + len(tree.tokens)
    return _Roll(grammar, request_id, canvas, first, end, tree.tokens, tree.parents).run(tree.walk)


class _Roll:
    """One way of a grammar over a tree of drafts and back."""

    def __init__(
        self,
        grammar: StructuredOutputGrammar,
        request_id: str,
        canvas: Canvas,
        first: int,
        end: int,
        tokens: Sequence[int],
        parents: Sequence[int],
    ) -> None:
        self._grammar = grammar
        self._request_id = request_id
        self._canvas = canvas
        self._first = first
        self._end = end
        self._tokens = tokens
        self._parents = parents
        self._start = grammar.num_accepted
        self._shown = [first] * len(tokens)  # whose row a node's row repeats: its own once it is reached

    def run(self, walk: Iterable[tuple[int, int]]) -> int:
        acceptable = 0
        try:
            for node, depth in walk:
                if node == 0:
                    self._fill(self._first)
                else:
                    acceptable += self._visit(node, depth)
        finally:
            self._return_to(0)
        if self._grammar.error is not None:  # the way back failed
            raise self._grammar.error
        return acceptable

    def _visit(self, node: int, depth: int) -> bool:
        """Write a node's row; whether its token is acceptable."""
        row, token, parent = self._first + node, self._tokens[node], self._parents[node]
        above = self._shown[parent]
        if token < 0 or above == _PADDING:
            self._shown[node] = _PADDING
            if row < self._end:
                self._canvas.open(row, row + 1, RowState.UNREACHABLE)
            return False
        state = RowState.UNREACHABLE
        if above == self._first + parent and self._canvas.states[above] != RowState.TERMINATED:
            self._return_to(depth - 1)
            if self._accepts(token):
                if self._fill(row):
                    self._shown[node] = row
                    return True
                state = RowState.DEAD
        self._shown[node] = above
        if row < self._end:
            self._canvas.repeat(above, row, state)
        return False

    def _return_to(self, depth: int) -> None:
        self._grammar.rollback(self._grammar.num_accepted - self._start - depth)

    def _accepts(self, token: int) -> bool:
        if self._grammar.accept_tokens(self._request_id, [token]):
            return True
        if self._grammar.error is not None:
            raise self._grammar.error
        return False

    def _fill(self, row: int) -> bool:
        """Whether anything may follow; at the root a dead end is raised."""
        if row < self._end:
            try:
                self._canvas.fill(self._grammar, row)
            except DeadEnd:
                if row == self._first:
                    raise
                return False
        return True


_PADDING = -1
