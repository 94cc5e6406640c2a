"""For engines that know characters: their states as an automaton over bytes, with everything that makes a plugin of it.

Tokens end inside of UTF-8 characters; an engine of characters cannot. A state here is an engine's state with the bytes
of a character that has begun, and such a state exists only when some character that may follow starts so. The automaton
is built as far as texts walk it. A plugin writes a `CharacterMachine`, of three methods, and its `Engine.compile`
returns an `AutomatonArtifact`: matchers, rows, rollback and forks follow from that.
"""

from __future__ import annotations

import bisect
import itertools
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from grammar_backends.contract.bitmask import BitmaskRow, pack_ids
from grammar_backends.contract.vocabulary import Vocabulary

__all__ = ["Automaton", "AutomatonArtifact", "AutomatonMatcher", "CharacterMachine", "State", "TokenTree"]

MAX_STATES = 50_000
"""States that are kept for reuse; beyond, the automaton is built anew from where texts stand (A33)."""

SPARE_STATES = 64
"""States beyond twice the rollback limit that pile up before old ones are dropped, so that dropping is rare (A33)."""

MAX_FORCED = 10_000
"""Bytes that one answer to what is forced may have."""

ROW_CACHE_BYTES = 16 << 20
"""Memory for computed rows that one artifact may keep."""


class CharacterMachine(Protocol):
    """What an engine says about characters. It is asked by one thread at a time.

    States are hashable and never change. States that compare equal must have the same continuations: the better equal
    ones are recognised, the fewer rows are computed.

    Attributes:
        ranges: the characters that it tells apart, as (first, last) of those that it treats alike: sorted, without
            overlaps. All others are one to it.
    """

    ranges: Sequence[tuple[str, str]]

    def start(self) -> Hashable:
        """The state before the first character."""
        ...

    def follow(self, state: Any, character: str | None) -> Hashable | None:
        """The state after a character of the range that starts with this one, or after one of none of them (None).

        None when no text of the language goes on so: a state from which no text can be finished must not be returned.
        """
        ...

    def can_end(self, state: Any) -> bool:
        """Whether the text so far is complete."""
        ...


class State:
    """Where a text stands.

    Attributes:
        parsed: the parser's state.
        pending: bytes of the character that has begun.
        accepting: whether the text is complete.
        next: what is known of the following states, by byte.
    """

    __slots__ = ("accepting", "next", "parsed", "pending")

    def __init__(self, parsed: Hashable, pending: bytes, accepting: bool) -> None:
        self.parsed = parsed
        self.pending = pending
        self.accepting = accepting
        self.next: dict[int, State | None] = {}


class Automaton:
    """The bytes of a character machine's texts. Thread-safe: a parser is only ever asked under the lock.

    Attributes:
        start: the state of the empty text.
        lock: held while the automaton grows.
    """

    def __init__(self, machine: CharacterMachine) -> None:
        self.lock = threading.RLock()
        self._machine = machine
        self._lows = [ord(low) for low, _ in machine.ranges]
        self._highs = [ord(high) for _, high in machine.ranges]
        self._states: dict[tuple[Hashable, bytes], State] = {}
        self.start = self._state(machine.start(), b"")

    def step(self, state: State, byte: int) -> State | None:
        """The state after one more byte; None when no text of the language goes on so."""
        try:
            return state.next[byte]
        except KeyError:
            with self.lock:
                following = state.next[byte] = self._follow(state, byte)
            return following

    def walk(self, state: State, data: bytes) -> State | None:
        """The state after `data`; None when no text of the language goes on so."""
        current: State | None = state
        for byte in data:
            if current is None:
                return None
            current = self.step(current, byte)
        return current

    def forced(self, state: State) -> bytes:
        """The bytes that every longer text of the language has next; none where a text may end."""
        forced = bytearray()
        while not state.accepting and len(forced) < MAX_FORCED:
            ways = ((byte, following) for byte in range(256) if (following := self.step(state, byte)) is not None)
            only = [*itertools.islice(ways, 2)]
            if len(only) != 1:
                break
            forced.append(only[0][0])
            state = only[0][1]
        return bytes(forced)

    def _state(self, parsed: Hashable, pending: bytes) -> State:
        found = self._states.get((parsed, pending))
        if found is None:
            if len(self._states) >= MAX_STATES:
                for state in (self.start, *self._states.values()):
                    state.next.clear()  # or each would hold all that were ever reached from it
                self._states.clear()
            found = State(parsed, pending, not pending and self._machine.can_end(parsed))
            self._states[parsed, pending] = found
        return found

    def _follow(self, state: State, byte: int) -> State | None:
        data = state.pending + bytes((byte,))
        span = code_points(data)
        if span is None:
            return None
        low, high, is_whole = span
        if not is_whole:
            return self._state(state.parsed, data) if self._takes_any(state.parsed, low, high) else None
        parsed = self._machine.follow(state.parsed, self._representative(low))
        return None if parsed is None else self._state(parsed, b"")

    def _takes_any(self, parsed: Hashable, low: int, high: int) -> bool:
        """Whether some character of a range may follow."""
        inside = range(bisect.bisect_left(self._highs, low), bisect.bisect_right(self._lows, high))
        told_apart = sum(min(high, self._highs[at]) - max(low, self._lows[at]) + 1 for at in inside)
        if told_apart <= high - low and self._machine.follow(parsed, None) is not None:
            return True
        return any(self._machine.follow(parsed, chr(self._lows[at])) is not None for at in inside)

    def _representative(self, code: int) -> str | None:
        """By which character the machine knows this one."""
        at = bisect.bisect_right(self._lows, code) - 1
        return chr(self._lows[at]) if at >= 0 and code <= self._highs[at] else None


def code_points(data: bytes) -> tuple[int, int, bool] | None:
    """The first and the last character whose UTF-8 starts with `data`, and whether that is all of it; None for none."""
    lead = data[0]
    if lead < 0x80:
        return (lead, lead, True) if len(data) == 1 else None
    length = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
    if not length or any(byte & 0xC0 != 0x80 for byte in data[1:]):
        return None
    low = lead & (0x7F >> length)
    for byte in data[1:]:
        low = low << 6 | byte & 0x3F
    missing = 6 * (length - len(data))
    low, high = low << missing, (low + 1 << missing) - 1
    low = max(low, {2: 0x80, 3: 0x800, 4: 0x10000}[length])
    high = min(high, sys.maxunicode, 0xD7FF if low <= 0xD7FF else sys.maxunicode)  # only ED is cut by the surrogates
    if low > high or 0xD800 <= low <= 0xDFFF:
        return None
    return low, high, not missing


class TokenTree:
    """The text tokens of a vocabulary by their bytes, so that a beginning which many share is walked once. Immutable.

    Attributes:
        ids: the tokens that end here.
        children: the longer ones, by their next byte.
    """

    __slots__ = ("children", "ids")

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        self.ids: list[int] = []
        self.children: dict[int, TokenTree] = {}
        for id_, token in enumerate(vocabulary.text_tokens if vocabulary else ()):
            if token:
                self._add(id_, token)

    def _add(self, id_: int, token: bytes) -> None:
        node = self
        for byte in token:
            child = node.children.get(byte)
            if child is None:
                child = node.children[byte] = TokenTree()
            node = child
        node.ids.append(id_)


class AutomatonArtifact:
    """`Artifact` of a character machine: its automaton, and the most recently computed rows, stop bits included.

    Args:
        machine: what was compiled.
        vocabulary: whose rows are filled.
        tokens: the tree of that vocabulary; an engine makes it once.
    """

    __slots__ = ("_capacity", "_rows", "_tokens", "_vocabulary", "automaton")

    def __init__(self, machine: CharacterMachine, vocabulary: Vocabulary, tokens: TokenTree) -> None:
        self.automaton = Automaton(machine)
        self._vocabulary = vocabulary
        self._tokens = tokens
        self._capacity = max(1, ROW_CACHE_BYTES // (4 * vocabulary.words))
        self._rows: OrderedDict[State, NDArray[np.int32]] = OrderedDict()

    def new_matcher(self) -> AutomatonMatcher:
        return AutomatonMatcher(self, [self.automaton.start])

    def follow(self, state: State, token: int) -> State | None:
        """The state after a token; None when it is illegal."""
        data = self._vocabulary.text_tokens[token]
        return self.automaton.walk(state, data) if data else None

    def row(self, state: State) -> NDArray[np.int32]:
        """Which tokens may follow in `state`, int32 ``[words]``."""
        row = self._rows.get(state)
        if row is None:
            with self.automaton.lock:
                legal = [*self._legal(state), *(self._vocabulary.stop_ids if state.accepting else ())]
                row = self._rows[state] = pack_ids(legal, self._vocabulary.width)
                if len(self._rows) > self._capacity:
                    self._rows.popitem(last=False)
        return row

    def _legal(self, state: State) -> Iterator[int]:
        step = self.automaton.step
        todo = [(self._tokens, state)]
        while todo:
            node, reached = todo.pop()
            for byte, child in node.children.items():
                following = step(reached, byte)
                if following is not None:
                    yield from child.ids
                    todo.append((child, following))


class AutomatonMatcher:
    """`Matcher` as a list of visited states, the current one last."""

    __slots__ = ("_artifact", "_limit", "_states")

    fills_stop_tokens = True

    def __init__(self, artifact: AutomatonArtifact, states: list[State], limit: int | None = None) -> None:
        self._artifact = artifact
        self._states = states
        self._limit = limit

    def limit_rollback(self, num_tokens: int) -> None:
        self._limit = num_tokens

    def consume(self, tokens: Sequence[int]) -> int:
        states = self._states
        if self._limit is not None and len(states) > 2 * self._limit + SPARE_STATES:
            del states[: -self._limit - 1]
        for count, token in enumerate(tokens):
            state = self._artifact.follow(states[-1], token)
            if state is None:
                return count
            states.append(state)
        return len(tokens)

    def rollback(self, num_tokens: int) -> None:
        del self._states[len(self._states) - num_tokens :]

    def fill_row(self, row: BitmaskRow) -> None:
        row.array[:] = self._artifact.row(self._states[-1])

    def is_accepting(self) -> bool:
        return self._states[-1].accepting

    def forced_bytes(self) -> bytes:
        return self._artifact.automaton.forced(self._states[-1])

    def fork(self) -> AutomatonMatcher:
        return AutomatonMatcher(self._artifact, self._states.copy(), self._limit)
