"""The first end of some text in a stream of bytes, for fixed texts and regular expressions alike, as a lazy automaton.

A state holds, from the leftmost begin on, what every begin that is still alive may go on with. A byte leads to another
state and says from which begin of the former each begin of the new one comes, so that whoever walks can tell where
the text that ends somewhere began. States are made as far as texts lead to them; their number is bounded.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from grammar_backends.contract.automata import code_points
from grammar_backends.contract.regex import Alternatives, CharacterSet, Node, Ranges, Repetition, Series

__all__ = ["FRESH", "UNTRACED", "Edge", "State", "TextAutomaton"]

MAX_SIZE = 300_000
"""Edges, and positions in states, that are kept; beyond, all are made anew from where texts stand (A33)."""

FRESH = -1
"""The source of a begin that no former state has: the byte of the edge."""

UNTRACED = -2
"""The source of a begin that nobody asks for."""

Groups = tuple[tuple[int, ...], ...]
"""For each begin, the leftmost first, the positions that it may go on from; no position twice."""


class Started(NamedTuple):
    """A character that has begun, where all that it can become are one to the automaton.

    Attributes:
        missing: bytes that it lacks; any continuation will do.
        kind: which kind of character it is then.
    """

    missing: int
    kind: int


class State:
    """What a text so far may go on with.

    Attributes:
        groups: see `Groups`. With a character that has begun, one that begins with it is the last of them.
        started: that character, or its bytes; None between characters.
        next: what is known of the bytes behind it.
        whole: the same of whole characters of a kind.
    """

    __slots__ = ("groups", "next", "started", "whole")

    def __init__(self, groups: Groups, started: Started | bytes | None) -> None:
        self.groups = groups
        self.started = started
        self.next: dict[int, Edge] = {}
        self.whole: dict[int, Edge] = {}


class Edge(NamedTuple):
    """What a byte does.

    Attributes:
        state: the state behind it; the start where a text was found.
        sources: for each group of that state the group of the former state with the same begin, FRESH or UNTRACED;
            nothing if all are untraced.
        found: the text that ends with this byte, by its number and the source of its begin; or None.
    """

    state: State
    sources: tuple[int, ...]
    found: tuple[int, int] | None


class TextAutomaton:
    """Finds the first end of any of some texts. Thread-safe.

    Of several that end with one byte, the one that begins first is found, and of these the one that is named first.

    Attributes:
        start: the state in which no text has begun.

    Args:
        roots: what is looked for, in the order of preference; none matches the empty text.
        traced: the numbers of those whose begin is asked for.
    """

    def __init__(self, roots: Sequence[Node], traced: Collection[int]) -> None:
        self._kinds = CharacterKinds()
        self._program = Program(roots, self._kinds)
        self._kinds.finish()
        self._traced = frozenset(traced)
        self._lock = threading.Lock()
        self._size = 0
        self._states: dict[tuple[Groups, Started | bytes | None], State] = {}
        self._by_kind: dict[tuple[Groups, int], tuple[Groups, tuple[int, ...], tuple[int, int] | None]] = {}
        self.start = self._state((), None)

    def last_bytes(self) -> set[int]:
        """The bytes with which a text may end."""
        return {byte for ranges in self._program.last_sets() for low, high in ranges for byte in _last_bytes(low, high)}

    def edge(self, state: State, byte: int) -> Edge:
        """What a byte does in a state; look at `State.next` first."""
        with self._lock:
            if self._size > MAX_SIZE:
                self._forget()
            self._size += 1
            if state.started is not None or byte >= 0x80:
                edge = self._traced_only(self._follow(state, byte))
            else:  # most bytes are of few kinds
                kind = self._kinds.of(byte)
                edge = state.whole.get(kind) or self._traced_only(self._follow(state, byte))
                state.whole[kind] = edge
            state.next[byte] = edge
        return edge

    def _traced_only(self, edge: Edge) -> Edge:
        owners = self._program.owners
        traced = [any(owners[position] in self._traced for position in group) for group in edge.state.groups]
        sources = (source if asked else UNTRACED for source, asked in zip(edge.sources, traced, strict=True))
        return edge._replace(sources=tuple(sources) if any(traced) else ())

    def _state(self, groups: Groups, started: Started | bytes | None) -> State:
        state = self._states.get((groups, started))
        if state is None:
            state = self._states[groups, started] = State(groups, started)
            self._size += sum(map(len, groups))
        return state

    def _forget(self) -> None:
        # Edges hold states, so that these have to go as well.
        for state in self._states.values():
            state.next, state.whole = {}, {}
        self._by_kind.clear()
        self._states = {((), None): self.start}
        self._size = 0

    def _follow(self, state: State, byte: int) -> Edge:
        started = state.started
        if started is None:
            groups = (*state.groups, self._program.first)
            if byte < 0x80:
                edge = self._character(groups, self._kinds.of(byte))
                return _fresh_last(edge, len(state.groups))
            sources = (*range(len(state.groups)), FRESH)
            return self._begin(groups, sources, bytes((byte,))) or Edge(self.start, (), None)
        if isinstance(started, bytes):
            further = self._begin(state.groups, tuple(range(len(state.groups))), started + bytes((byte,)))
        else:
            further = self._continue(state.groups, started) if byte & 0xC0 == 0x80 else None
        return further or self._follow(self.start, byte)  # what had begun is no character, and ends every text

    def _continue(self, groups: Groups, started: Started) -> Edge:
        if started.missing == 1:
            return self._character(groups, started.kind)
        state = self._state(groups, started._replace(missing=started.missing - 1))
        return Edge(state, tuple(range(len(groups))), None)

    def _begin(self, groups: Groups, sources: tuple[int, ...], data: bytes) -> Edge | None:
        """The edge to a character of which these are the bytes so far; None when there is none."""
        span = code_points(data)
        if span is None:
            return None
        low, high, is_whole = span
        if is_whole:
            return self._character(groups, self._kinds.of(low))
        kinds = self._kinds.between(low, high)
        if not any(self._leads_on(groups, kind) for kind in kinds):
            return Edge(self.start, (), None)  # whatever the character is
        missing = 2 + (data[0] >= 0xE0) + (data[0] >= 0xF0) - len(data)
        started: Started | bytes = data
        if len(kinds) == 1 and high - low + 1 == 64**missing:
            started = Started(missing, kinds.pop())
        return Edge(self._state(groups, started), sources, None)

    def _leads_on(self, groups: Groups, kind: int) -> bool:
        following, _, found = self._step(groups, kind)
        return bool(following) or found is not None

    def _character(self, groups: Groups, kind: int) -> Edge:
        following, sources, found = self._step(groups, kind)
        return Edge(self.start if found else self._state(following, None), () if found else sources, found)

    def _step(self, groups: Groups, kind: int) -> tuple[Groups, tuple[int, ...], tuple[int, int] | None]:
        """The groups behind a character of this kind, from which each comes, and what was found."""
        key = groups, kind
        known = self._by_kind.get(key)
        if known is None:
            known = self._by_kind[key] = self._stepped(groups, kind)
        return known

    def _stepped(self, groups: Groups, kind: int) -> tuple[Groups, tuple[int, ...], tuple[int, int] | None]:
        seen: set[int] = set()
        following: list[tuple[int, ...]] = []
        sources: list[int] = []
        for source, group in enumerate(groups):
            reached, ended = self._program.step(group, kind)
            if ended is not None:  # the leftmost of all that end here
                return (), (), (ended, source)
            new = tuple(sorted(reached - seen))
            if new:
                following.append(new)
                sources.append(source)
                seen.update(new)
        return tuple(following), tuple(sources), None


def _last_bytes(low: int, high: int) -> set[int]:
    """The last bytes of the characters of a range."""
    plain = set(range(low, min(high, 0x7F) + 1))
    beyond = range(max(low, 0x80), high + 1)[:64]  # after which they come again
    return plain | {0x80 | code & 0x3F for code in beyond}


def _fresh_last(edge: Edge, last: int) -> Edge:
    """The same edge, where the last group began with this very character."""
    sources = tuple(FRESH if source == last else source for source in edge.sources)
    found = edge.found and (edge.found[0], FRESH if edge.found[1] == last else edge.found[1])
    return Edge(edge.state, sources, found)


class CharacterKinds:
    """Characters that no set tells apart are of one kind: a number."""

    def __init__(self) -> None:
        self._sets: dict[Ranges, int] = {}
        self._lows: list[int] = []
        self._kind_at: list[int] = []
        self._members: list[frozenset[int]] = []

    def add(self, ranges: Ranges) -> int:
        """The number of a set."""
        return self._sets.setdefault(ranges, len(self._sets))

    def all_sets(self) -> list[Ranges]:
        """The sets, by their numbers."""
        return [*self._sets]

    def finish(self) -> None:
        """All sets are known."""
        self._lows = sorted({0, *(edge for ranges in self._sets for low, high in ranges for edge in (low, high + 1))})
        sets: list[list[int]] = [[] for _ in self._lows]
        for ranges, number in self._sets.items():
            for low, high in ranges:
                for at in range(bisect.bisect_left(self._lows, low), bisect.bisect_right(self._lows, high)):
                    sets[at].append(number)
        kinds: dict[tuple[int, ...], int] = {}
        self._kind_at = [kinds.setdefault(tuple(sorted(members)), len(kinds)) for members in sets]
        self._members = [frozenset(members) for members in kinds]

    def of(self, code: int) -> int:
        return self._kind_at[bisect.bisect_right(self._lows, code) - 1]

    def between(self, low: int, high: int) -> set[int]:
        first, last = bisect.bisect_right(self._lows, low) - 1, bisect.bisect_right(self._lows, high)
        return {*self._kind_at[first:last]}

    def sets_of(self, kind: int) -> frozenset[int]:
        """The sets that characters of a kind are in."""
        return self._members[kind]


class Program:
    """All that is looked for as one graph, in Thompson's way: a character leads from node to node, or nothing does.

    Attributes:
        first: positions from which a text begins. A position is a node that a character leads on from.
        owners: for each node the number of the root that it belongs to.
    """

    def __init__(self, roots: Sequence[Node], kinds: CharacterKinds) -> None:
        self._kinds = kinds
        self.owners: list[int] = []
        self._characters: list[tuple[tuple[int, int], ...]] = []
        """For each node (number of a set, node behind it)."""
        self._silent: list[list[int]] = []
        """For each node those that are reached from it without a character."""
        self._ends: dict[int, int] = {}
        self._closures: dict[int, tuple[frozenset[int], int | None]] = {}
        starts = [self._add(root, number) for number, root in enumerate(roots)]
        self.first = tuple(sorted(position for start in starts for position in self._closure(start)[0]))

    def _new(self, owner: int) -> int:
        self.owners.append(owner)
        self._characters.append(())
        self._silent.append([])
        return len(self.owners) - 1

    def _add(self, root: Node, number: int) -> int:
        start, end = self._new(number), self._new(number)
        self._ends[end] = number
        todo: list[tuple[Node, int, int]] = [(root, start, end)]
        while todo:  # patterns nest deeper than Python's stack
            node, enter, leave = todo.pop()
            todo.extend(self._parts(node, enter, leave, number))
        return start

    def _parts(self, node: Node, enter: int, leave: int, number: int) -> Iterator[tuple[Node, int, int]]:
        """The parts of a node, each with the two nodes of the graph between which it stands."""
        if isinstance(node, CharacterSet):
            self._characters[enter] = (*self._characters[enter], (self._kinds.add(node.ranges), leave))
        elif isinstance(node, Alternatives):
            yield from ((option, enter, leave) for option in node.options)
        elif isinstance(node, Series):
            for item in node.items:
                behind = self._new(number)
                yield item, enter, behind
                enter = behind
            self._silent[enter].append(leave)
        else:
            yield from self._repeated(node, enter, leave, number)

    def _repeated(self, node: Repetition, enter: int, leave: int, number: int) -> Iterator[tuple[Node, int, int]]:
        times = node.least if node.most is None else node.most
        for time in range(times):
            if time >= node.least:
                self._silent[enter].append(leave)
            behind = self._new(number)
            yield node.item, enter, behind
            enter = behind
        if node.most is None:
            loop = self._new(number)
            self._silent[enter].append(loop)
            yield node.item, loop, loop
            enter = loop
        self._silent[enter].append(leave)

    def step(self, group: Iterable[int], kind: int) -> tuple[set[int], int | None]:
        """The positions behind a character of this kind, and the first root that ends with it, if any."""
        sets = self._kinds.sets_of(kind)
        reached: set[int] = set()
        ended: int | None = None
        for position in group:
            for number, behind in self._characters[position]:
                if number in sets:
                    positions, end = self._closure(behind)
                    reached |= positions
                    ended = end if ended is None or (end is not None and end < ended) else ended
        return reached, ended

    def last_sets(self) -> list[Ranges]:
        """The sets of the characters with which a text may end."""
        ends = {
            number for edges in self._characters for number, behind in edges if self._closure(behind)[1] is not None
        }
        return [ranges for number, ranges in enumerate(self._kinds.all_sets()) if number in ends]

    def _closure(self, node: int) -> tuple[frozenset[int], int | None]:
        """The positions that are reached from a node without a character, and the first root that ends there."""
        known = self._closures.get(node)
        if known is None:
            seen, todo = {node}, [node]
            while todo:
                for following in self._silent[todo.pop()]:
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
            ends = [self._ends[each] for each in seen if each in self._ends]
            known = frozenset(each for each in seen if self._characters[each]), min(ends, default=None)
            self._closures[node] = known
        return known
