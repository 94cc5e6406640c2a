"""Rows that engines fill by their own calls: those of many requests at once, and those of drafts.

The rows, states and counts are those that `forward` would give. Whatever looks like a failure is left to it, so that
errors are found and blamed in one place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from grammar_backends.contract import BatchFiller, Matcher, Vocabulary, pack_ids
from grammar_backends.decoding.batch import empty_rows, fill_together
from grammar_backends.decoding.canvas import Canvas
from grammar_backends.decoding.layout import RowState
from grammar_backends.decoding.trees import DraftTree

__all__ = ["NativeRows"]

LONG_WAY = -1
"""In the place of a number of acceptable drafts: the request must be rolled forward and back by itself."""


class NativeRows:
    """Fills rows on a canvas by the calls of engines.

    Args:
        canvas: where.
        vocabulary: of all grammars; those that come here have its stop tokens.
        bonus_row: whether there is a row behind the last draft; without it drafts go the long way.
    """

    def __init__(self, canvas: Canvas, vocabulary: Vocabulary, bonus_row: bool) -> None:
        self._canvas = canvas
        self._array = canvas.view.array
        self._bonus_row = bonus_row
        self._size = vocabulary.size
        self._stops = vocabulary.stop_set
        self._usual_ids = vocabulary.usual_ids
        self._stop_row = pack_ids(vocabulary.stop_ids, vocabulary.width)
        if canvas.opens_terminated:
            self._stop_row.fill(-1)

    def fill(
        self,
        filler: BatchFiller,
        matchers: Sequence[Matcher],
        firsts: Sequence[int],
        drafts: Sequence[Sequence[int] | DraftTree] | None,
    ) -> list[int] | None:
        """For each matcher the rows from its first on.

        Args:
            filler: the engine of all matchers.
            matchers: one for each request.
            firsts: the first row of each.
            drafts: of each; None when there are none at all.

        Returns:
            How many drafts of each are acceptable, or `LONG_WAY`. None: there were none, and all went well.
        """
        if drafts is None:
            acceptable = self._fill_rows(filler, matchers, firsts)
            return acceptable if LONG_WAY in acceptable else None
        chain_way = self._fill_chains if self._bonus_row and hasattr(filler, "fill_drafts") else None
        if chain_way is not None and all(map(len, drafts)) and DraftTree not in set(map(type, drafts)):
            return self._attempt(chain_way, filler, matchers, firsts, drafts)
        plain: list[int] = []
        chains: list[int] = []
        trees: list[int] = []
        for place, each in enumerate(drafts):
            if isinstance(each, DraftTree):
                trees.append(place)
            else:
                (chains if len(each) else plain).append(place)
        acceptable = [LONG_WAY] * len(matchers)
        ways: list[tuple[list[int], Callable[..., list[int]] | None]] = [
            (plain, self._fill_rows),
            (chains, chain_way),
            (trees, self._fill_trees if hasattr(filler, "fill_tree") else None),
        ]
        for places, way in ways:
            if places and way is not None:
                columns = ([column[place] for place in places] for column in (firsts, drafts))
                done = self._attempt(way, filler, [matchers[place] for place in places], *columns)
                for place, num in zip(places, done, strict=True):
                    acceptable[place] = num
        return acceptable

    def _attempt(
        self, way: Callable[..., list[int]], filler: BatchFiller, matchers: Sequence[Matcher], *columns: Any
    ) -> list[int]:
        try:
            return way(filler, matchers, *columns)
        except Exception:  # whose fault it was shows when they are filled one by one
            return [LONG_WAY] * len(matchers)

    def _fill_rows(
        self, filler: BatchFiller, matchers: Sequence[Matcher], firsts: Sequence[int], _: Any = None
    ) -> list[int]:
        again = fill_together(filler, matchers, self._canvas.view, firsts, self._usual_ids)
        states = self._canvas.states
        if firsts[-1] - firsts[0] == len(firsts) - 1:
            states[firsts[0] : firsts[-1] + 1] = _CONSTRAINED * len(firsts)
        else:
            for first in firsts:
                states[first] = RowState.CONSTRAINED
        acceptable = [0] * len(firsts)
        for place in again:
            acceptable[place] = LONG_WAY
        return acceptable

    def _fill_chains(
        self, filler: Any, matchers: Sequence[Matcher], firsts: Sequence[int], drafts: Sequence[Sequence[int]]
    ) -> list[int]:
        texts = self._texts_before(drafts)
        legal: list[int] = list(filler.fill_drafts(matchers, self._canvas.view, firsts, texts))
        lasts = [first + max(num, 0) for first, num in zip(firsts, legal, strict=True)]
        # Where a draft was legal, its row allowed something; only the last row may be empty.
        for place in empty_rows(filler, self._canvas.view, lasts, self._usual_ids):
            legal[place] = LONG_WAY
        states = self._canvas.states
        for place, (first, num, tokens) in enumerate(zip(firsts, legal, drafts, strict=True)):
            if num != LONG_WAY:
                states[first : first + num + 1] = _CONSTRAINED * (num + 1)
                if num < len(tokens):
                    legal[place] = self._finish_chain(first, num, len(texts[place]), tokens)
        return legal

    def _texts_before(self, drafts: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """Each list of drafts before the first that is a stop token or none at all."""
        tokens = set().union(*drafts)
        if not all(issubclass(kind, (int, np.integer)) for kind in set(map(type, tokens))):
            raise TypeError("a tensor's entries equal no stop token; the long way takes them, and says what is none")
        if self._stops.isdisjoint(tokens) and min(tokens) >= 0 and max(tokens) < self._size:
            return drafts
        return [list(itertools.takewhile(self._is_text, each)) for each in drafts]

    def _is_text(self, token: int) -> bool:
        return 0 <= token < self._size and token not in self._stops

    def _finish_chain(self, first: int, legal: int, num_texts: int, drafts: Sequence[int]) -> int:
        """Write the rows behind the legal texts among the drafts. Returns what is acceptable."""
        if legal == num_texts and drafts[legal] in self._stops and self._allows(first + legal, drafts[legal]):
            legal += 1
            self._array[first + legal] = self._stop_row
            self._canvas.states[first + legal] = RowState.TERMINATED
        for row in range(first + legal + 1, first + len(drafts) + 1):
            if drafts[row - first - 1] < 0:
                self._canvas.open(row, first + len(drafts) + 1, RowState.UNREACHABLE)
                break
            self._canvas.repeat(first + legal, row)
        return legal

    def _allows(self, row: int, token: int) -> bool:
        return bool(self._array[row, token >> 5] >> (token & 31) & 1)

    def _fill_trees(
        self, filler: Any, matchers: Sequence[Matcher], firsts: Sequence[int], trees: Sequence[DraftTree]
    ) -> list[int]:
        return [self._fill_tree(filler, *each) for each in zip(matchers, firsts, trees, strict=True)]

    def _fill_tree(self, filler: Any, matcher: Matcher, first: int, tree: DraftTree) -> int:
        tokens = [token if self._is_text(token) else 0 for token in tree.tokens]
        filler.fill_tree(matcher, self._canvas.view, first, tokens, *tree.links(self._is_text))
        if not self._array[first].any():
            return LONG_WAY
        states = self._canvas.states
        states[first] = RowState.CONSTRAINED
        shown = [first] * len(tokens)  # the row that a node's row shows: its own once it is reached
        padding = set(tree.padding())
        acceptable = 0
        for node, _ in tree.walk[1:]:
            row, parent = first + node, tree.parents[node]
            if node in padding:
                self._canvas.open(row, row + 1, RowState.UNREACHABLE)
                continue
            above = shown[parent]
            state = self._reach(above, row, tree.tokens[node]) if above == first + parent else RowState.UNREACHABLE
            if state in (RowState.UNREACHABLE, RowState.DEAD):
                self._canvas.repeat(above, row, state)
                shown[node] = above
            else:
                states[row] = state
                shown[node] = row
                acceptable += 1
        return acceptable

    def _reach(self, above: int, row: int, token: int) -> RowState:
        """What the row of a node is whose parent was reached."""
        if self._canvas.states[above] == RowState.TERMINATED or not 0 <= token < self._size:
            return RowState.UNREACHABLE
        if not self._allows(above, token):
            return RowState.UNREACHABLE
        if token in self._stops:
            self._array[row] = self._stop_row
            return RowState.TERMINATED
        return RowState.CONSTRAINED if self._array[row].any() else RowState.DEAD


_CONSTRAINED = bytes([RowState.CONSTRAINED])
