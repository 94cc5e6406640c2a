"""The engine and its adapter: regular expressions and choices, matched byte by byte.

Replace `Pattern` by your engine; the rest shows what an adapter does with one. A spec becomes an artifact that all
requests share, an artifact makes a matcher for each request, and a matcher answers in tokens what the engine knows
about bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grammar_backends.contract import BitmaskRow, GrammarKind, GrammarSpec, Vocabulary, pack_ids
from grammar_backends.contract.regex import (
    Alternatives,
    CharacterSet,
    Node,
    Repetition,
    Series,
    parse_regex,
    regex_of_texts,
)
from grammar_backends.errors import UnsupportedFeature

__all__ = ["PatternEngine"]

MAX_POSITIONS = 20_000
"""Characters of a pattern with its counts written out. Larger ones are refused: they would take seconds."""

MAX_ROWS = 1_000
"""Rows that an artifact remembers. Whatever a long request can make grow needs a bound."""


class PatternEngine:
    """What the factory in `SPEC` makes: lives as long as the inference engine, and is used from any thread.

    Args:
        vocabulary: the model's tokens.
        options: the caller's; this engine knows none.
    """

    version = "0.1.0"

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self.vocabulary = vocabulary
        self.tree = TokenTree(vocabulary)

    def compile(self, spec: GrammarSpec) -> Artifact:
        """May be slow. `spec` is of a declared kind.

        Raises:
            SpecError: the pattern is wrong. `parse_regex` says so, with line and column.
            UnsupportedFeature: it is fine, but this engine would not enforce all of it.
        """
        regex = regex_of_texts(spec.value) if spec.kind is GrammarKind.CHOICE else parse_regex(spec.text)
        if regex.positions > MAX_POSITIONS:
            raise UnsupportedFeature(f"{spec.kind}: {regex.positions} characters are more than {MAX_POSITIONS}")
        return Artifact(Pattern(regex.root), self.vocabulary, self.tree)


class TokenTree:
    """The vocabulary's tokens by their bytes, so that a beginning which many share is walked once.

    Attributes:
        ids: the tokens that end here.
        children: the longer ones, by their next byte.
    """

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        self.ids: list[int] = []
        self.children: dict[int, TokenTree] = {}
        # text_tokens is empty for control tokens, so that they never match text.
        for id_, token in enumerate(vocabulary.text_tokens if vocabulary else ()):
            node = self
            for byte in token:
                node = node.children.setdefault(byte, TokenTree())
            if token:
                node.ids.append(id_)


class Artifact:
    """A compiled spec. Requests and threads share it, so that nothing of one request may be kept here."""

    def __init__(self, pattern: Pattern, vocabulary: Vocabulary, tree: TokenTree) -> None:
        self.pattern = pattern
        self._vocabulary = vocabulary
        self._tree = tree
        self._rows: dict[State, NDArray[np.int32]] = {}

    def new_matcher(self) -> PatternMatcher:
        """Costs microseconds: all that is slow was done by `compile`."""
        return PatternMatcher(self, [self.pattern.start])

    def follow(self, state: State, token: int) -> State | None:
        """The state after a token; None when it is illegal."""
        data = self._vocabulary.text_tokens[token]
        return self.pattern.walk(state, data) if data else None

    def row(self, state: State) -> NDArray[np.int32]:
        """The tokens that may follow, packed."""
        row = self._rows.get(state)
        if row is None:
            row = pack_ids(self._legal(state), self._vocabulary.width)
            if len(self._rows) >= MAX_ROWS:
                self._rows.clear()
            self._rows[state] = row
        return row

    def _legal(self, state: State) -> Iterator[int]:
        todo = [(self._tree, state)]
        while todo:
            node, reached = todo.pop()
            for byte, child in node.children.items():
                following = self.pattern.step(reached, byte)
                if following:
                    yield from child.ids
                    todo.append((child, following))


class PatternMatcher:
    """The five primitives, for one request.

    The states after each token make rollback and fork trivial: an engine with immutable states needs no more.
    """

    def __init__(self, artifact: Artifact, states: list[State], limit: int | None = None) -> None:
        self._artifact = artifact
        self._states = states
        self._limit = limit

    def consume(self, tokens: Sequence[int]) -> int:
        if self._limit is not None:
            del self._states[: -self._limit - 1]
        for count, token in enumerate(tokens):
            state = self._artifact.follow(self._states[-1], token)
            if state is None:
                return count
            self._states.append(state)
        return len(tokens)

    def rollback(self, num_tokens: int) -> None:
        del self._states[len(self._states) - num_tokens :]  # not [:-num_tokens], which drops everything for 0

    def fill_row(self, row: BitmaskRow) -> None:
        row.array[:] = self._artifact.row(self._states[-1])

    def is_accepting(self) -> bool:
        return self._artifact.pattern.accepts(self._states[-1])

    def fork(self) -> PatternMatcher:
        return PatternMatcher(self._artifact, self._states.copy(), self._limit)

    def limit_rollback(self, num_tokens: int) -> None:
        """Optional: no more than this will be rolled back, so that older states can go."""
        self._limit = num_tokens


# ---------------------------------------------------------------------------------------------------- the engine

State = frozenset[int]
"""Where a text stands: the places of the pattern that it can have reached."""


class Pattern:
    """A nondeterministic automaton over bytes. Its deterministic states are made when a text first gets there.

    Args:
        root: a regular expression as the layer reads it: sets of characters, series, alternatives, repetitions.
    """

    def __init__(self, root: Node) -> None:
        self._edges: list[list[tuple[int, int, int]]] = []  # by place: first byte, last byte, where to
        self._free: list[list[int]] = []  # by place: where to without a byte
        self._known: dict[tuple[State, int], State] = {}
        begin = self._place()
        self._end = self._add(root, begin)
        self.start = self._closed({begin})

    def step(self, state: State, byte: int) -> State:
        """The state after one more byte; empty when no text of the pattern goes on so."""
        found = self._known.get((state, byte))
        if found is None:
            places = {to for at in state for low, high, to in self._edges[at] if low <= byte <= high}
            found = self._known[state, byte] = self._closed(places)
        return found

    def walk(self, state: State, data: bytes) -> State | None:
        """The state after all of the bytes, or None."""
        for byte in data:
            state = self.step(state, byte)
            if not state:
                return None
        return state

    def accepts(self, state: State) -> bool:
        """Whether a text that stands here is complete."""
        return self._end in state

    def _place(self) -> int:
        self._edges.append([])
        self._free.append([])
        return len(self._edges) - 1

    def _closed(self, places: set[int]) -> State:
        todo = list(places)
        while todo:
            new = [to for to in self._free[todo.pop()] if to not in places]
            places.update(new)
            todo.extend(new)
        return frozenset(places)

    def _add(self, node: Node, begin: int) -> int:
        """Adds the places of a node that starts at `begin`; returns the place where it ends."""
        if isinstance(node, Series):
            for item in node.items:
                begin = self._add(item, begin)
            return begin
        end = self._place()
        if isinstance(node, Alternatives):
            for option in node.options:
                self._free[self._add(option, self._after(begin))].append(end)
        elif isinstance(node, Repetition):
            self._add_repetition(node, begin, end)
        elif isinstance(node, CharacterSet):
            for low, high in node.ranges:
                for ranges in utf8_ranges(low, high):
                    self._add_bytes(ranges, begin, end)
        return end

    def _after(self, place: int) -> int:
        following = self._place()
        self._free[place].append(following)
        return following

    def _add_repetition(self, node: Repetition, begin: int, end: int) -> None:
        for _ in range(node.least):
            begin = self._add(node.item, begin)
        self._free[begin].append(end)
        if node.most is None:
            loop = self._after(begin)
            self._free[self._add(node.item, loop)].append(loop)
            self._free[loop].append(end)
            return
        for _ in range(node.most - node.least):
            begin = self._add(node.item, self._after(begin))
            self._free[begin].append(end)

    def _add_bytes(self, ranges: Sequence[tuple[int, int]], begin: int, end: int) -> None:
        for low, high in ranges[:-1]:
            middle = self._place()
            self._edges[begin].append((low, high, middle))
            begin = middle
        low, high = ranges[-1]
        self._edges[begin].append((low, high, end))


def utf8_ranges(low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    """The UTF-8 of a range of characters, as series of byte ranges."""
    for first, last in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF)):
        if low <= last and first <= high:
            yield from _byte_ranges(chr(max(low, first)).encode(), chr(min(high, last)).encode())


def _byte_ranges(low: bytes, high: bytes) -> Iterator[list[tuple[int, int]]]:
    """The byte strings of one length from `low` to `high`: by the first byte, then by what may follow it."""
    first, last = low[0], high[0]
    if len(low) == 1:
        yield [(first, last)]
        return
    if first == last:
        yield from _led_by(first, low[1:], high[1:])
        return
    least, most = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    if low[1:] != least:
        yield from _led_by(first, low[1:], most)
        first += 1
    if high[1:] != most:
        yield from _led_by(last, least, high[1:])
        last -= 1
    if first <= last:
        yield [(first, last), *[(0x80, 0xBF)] * len(least)]


def _led_by(lead: int, low: bytes, high: bytes) -> Iterator[list[tuple[int, int]]]:
    return ([(lead, lead), *rest] for rest in _byte_ranges(low, high))
