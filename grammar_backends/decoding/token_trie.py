"""Tokens as a trie in arrays, so that an automaton walks those of a large vocabulary in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stop", "TokenTrie"]

_State = TypeVar("_State", bound=Hashable)
_Said = TypeVar("_Said")


class Stop(Generic[_Said]):
    """Where a walk ends.

    Attributes:
        found: what was found there.
    """

    __slots__ = ("found",)

    def __init__(self, found: _Said) -> None:
        self.found = found


class Level:
    """The nodes of one depth, in the order of their bytes.

    Attributes:
        byte: the last byte of each, int64 ``[nodes]``.
        first, end: the places of the tokens that begin with its bytes, int64 ``[nodes]``: ``first <= place < end``.
        children: int64 ``[nodes + 1]``; those of node n are the nodes ``children[n] .. children[n + 1] - 1`` of the
            next level.
    """

    __slots__ = ("byte", "children", "end", "first")

    def __init__(self, byte: NDArray[np.int64], first: NDArray[np.int64], end: NDArray[np.int64]) -> None:
        self.byte = byte
        self.first = first
        self.end = end
        self.children = np.zeros(len(first) + 1, dtype=np.int64)


class TokenTrie:
    """Tokens, sorted by their bytes. Immutable.

    Args:
        texts: the bytes of each id.
        ids: the tokens to take, each of some bytes.

    Attributes:
        ids: those ids in order, int64 ``[tokens]``; where one stands is its place.
    """

    def __init__(self, texts: Sequence[bytes], ids: Iterable[int]) -> None:
        ids = sorted(ids, key=texts.__getitem__)
        tokens = [texts[id_] for id_ in ids]
        self.ids = np.array(ids, dtype=np.int64)
        data = np.frombuffer(b"".join(tokens), dtype=np.uint8)
        lengths = np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens))
        offsets = np.cumsum(lengths) - lengths
        shared = _shared_with_former(data, lengths, offsets)
        self._levels: list[Level] = []
        for depth in range(1, int(lengths.max(initial=0)) + 1):
            breaks = np.append(np.flatnonzero(shared < depth), len(tokens))
            first = breaks[:-1][lengths[breaks[:-1]] >= depth]
            end = breaks[np.searchsorted(breaks, first, side="right")]
            self._levels.append(Level(data[offsets[first] + depth - 1].astype(np.int64), first, end))
        for level, longer in zip(self._levels, self._levels[1:], strict=False):
            level.children[:-1] = np.searchsorted(longer.first, level.first)
            level.children[-1] = len(longer.first)

    def walk(
        self, start: _State, step: Callable[[_State, int, int], _State | Stop[_Said]]
    ) -> list[tuple[Stop[_Said], int, int]]:
        """Walk from the root, each beginning once.

        Args:
            start: the state at the root.
            step: (state, byte, bytes before it) to the state behind, or to a stop, beyond which nothing is walked.
                Asked once for each state and byte of a depth.

        Returns:
            (stop, first, end), in no order: of the tokens at these places the walk stopped in the same way.
        """
        stopped: list[tuple[Stop[_Said], int, int]] = []
        states: list[_State] = [start]
        nodes = np.arange(len(self._levels[0].first) if self._levels else 0)
        at = np.zeros(len(nodes), dtype=np.int64)  # of the parent of each node, among the states
        for depth, level in enumerate(self._levels):
            pairs = at << 8 | level.byte[nodes]
            states, reached, stops = _stepped(states, pairs, depth, step)
            numbers = reached[pairs]
            for node in np.flatnonzero(numbers < 0).tolist():
                place = nodes[node]
                stopped.append((stops[-1 - numbers[node]], int(level.first[place]), int(level.end[place])))
            alive = numbers >= 0
            nodes, at = nodes[alive], numbers[alive]
            if not len(nodes):
                break
            first = level.children[nodes]
            counts = level.children[nodes + 1] - first
            at = np.repeat(at, counts)
            nodes = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(at))
        return stopped


def _shared_with_former(
    data: NDArray[np.uint8], lengths: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many bytes each token has in common with the one before it, int64 ``[tokens]``."""
    shared = np.zeros(len(lengths), dtype=np.int64)
    equal = np.arange(1, len(lengths))
    depth = 0
    while len(equal):
        equal = equal[(lengths[equal] > depth) & (lengths[equal - 1] > depth)]
        equal = equal[data[offsets[equal] + depth] == data[offsets[equal - 1] + depth]]
        depth += 1
        shared[equal] = depth
    return shared


def _stepped(
    states: Sequence[_State],
    pairs: NDArray[np.int64],
    depth: int,
    step: Callable[[_State, int, int], _State | Stop[_Said]],
) -> tuple[list[_State], NDArray[np.int64], list[Stop[_Said]]]:
    """The states behind pairs of a state and a byte, for each pair the number of its own, and the stops.

    The numbers of stops go from -1 downwards; of what is no pair here there is no telling.
    """
    numbers: dict[_State, int] = {}
    stops: list[Stop[_Said]] = []
    reached = np.zeros(len(states) << 8, dtype=np.int64)
    reached[pairs] = 1
    for pair in np.flatnonzero(reached).tolist():
        state = step(states[pair >> 8], pair & 0xFF, depth)
        if isinstance(state, Stop):
            stops.append(state)
            reached[pair] = -len(stops)
        else:
            reached[pair] = numbers.setdefault(state, len(numbers))
    return [*numbers], reached, stops
