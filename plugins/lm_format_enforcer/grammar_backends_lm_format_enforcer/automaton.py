"""A character-level parser as an automaton over bytes, built as far as texts walk it.

Tokens end inside of UTF-8 characters; parsers of characters cannot. A state here is a parser's state with the bytes
of a character that has begun, and such a state exists only when some character that the parser takes starts so. All
characters that a parser does not tell apart are one, which makes the whole of Unicode small.
"""

from __future__ import annotations

import bisect
import sys
import threading
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

__all__ = ["Automaton", "CharacterMachine", "State"]

MAX_STATES = 50_000
"""States that are kept for reuse; beyond, the automaton is built anew from where texts stand (A33)."""


class CharacterMachine(Protocol):
    """A parser of characters. States are immutable and hashable: equal states have the same continuations.

    Attributes:
        named: the characters that it tells apart from others, sorted.
    """

    named: Sequence[str]

    def start(self) -> Hashable:
        """The state before the first character."""
        ...

    def follow(self, state: Any, character: str | None) -> Hashable | None:
        """The state after one of the named characters, or after any other (None); None when no text goes on so."""
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
        self._named = [ord(character) for character in machine.named]
        self._names = frozenset(machine.named)
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

    def _state(self, parsed: Hashable, pending: bytes) -> State:
        found = self._states.get((parsed, pending))
        if found is None:
            if len(self._states) >= MAX_STATES:
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
        character = chr(low)
        parsed = self._machine.follow(state.parsed, character if character in self._names else None)
        return None if parsed is None else self._state(parsed, b"")

    def _takes_any(self, parsed: Hashable, low: int, high: int) -> bool:
        """Whether some character of a range may follow."""
        named = self._named[bisect.bisect_left(self._named, low) : bisect.bisect_right(self._named, high)]
        others = high - low + 1 - len(named)
        if others and self._machine.follow(parsed, None) is not None:
            return True
        return any(self._machine.follow(parsed, chr(code)) is not None for code in named)


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
