"""A recogniser of context-free languages over bytes: the truth that masks and texts are compared with.

A grammar is a tree of terms (bytes, sequences, alternatives, repetitions, named rules). The recogniser reads it
byte by byte and knows after each whether some text of the language still starts that way, and whether the bytes so
far are such a text. It is written to be checked by eye, not to be fast, and shares no code with any engine, nor
with what this project uses to write patterns and grammars anew for engines.

How it works: left-corner recognition. The grammar becomes productions; what no text can come from is dropped, so
that every item that is left can be finished. An item is a production with a dot (what is before the dot has been
read) and a goal: the item that waits for this production, or for something that begins with it. Left recursion
needs no special treatment, since a goal is never made anew for what begins at the same byte; and equal futures are
mostly equal sets of items, so that a regular language has few states.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "EMPTY",
    "NOTHING",
    "Alternatives",
    "ByteSet",
    "Grammar",
    "Recogniser",
    "Repetition",
    "Rule",
    "Series",
    "State",
    "Term",
    "characters",
    "complement",
    "literal",
]


# ---------------------------------------------------------------------------------------------------------- terms


@dataclass(frozen=True)
class ByteSet:
    """One byte out of a set; an empty set matches nothing."""

    members: frozenset[int]


@dataclass(frozen=True)
class Series:
    """The items one after the other; no items match the empty text."""

    items: tuple[Term, ...]


@dataclass(frozen=True)
class Alternatives:
    """Any one of the options; no options match nothing."""

    options: tuple[Term, ...]


@dataclass(frozen=True)
class Repetition:
    """`item` from `least` to `most` times; None is without bound."""

    item: Term
    least: int = 0
    most: int | None = None


@dataclass(frozen=True)
class Rule:
    """Whatever the rule of that name is."""

    name: str


Term: TypeAlias = "ByteSet | Series | Alternatives | Repetition | Rule"
EMPTY = Series(())
"""The empty text."""
NOTHING = Alternatives(())
"""No text at all."""


@dataclass(frozen=True)
class Grammar:
    """A language: what the whole text must be, and the rules it refers to."""

    start: Term
    rules: Mapping[str, Term] = field(default_factory=dict)


def literal(text: str | bytes) -> Term:
    """Exactly this text, as UTF-8."""
    data = text.encode() if isinstance(text, str) else text
    return Series(tuple(ByteSet(frozenset((byte,))) for byte in data))


_ENCODED_ALIKE = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))
"""Code points by the length of their encoding; surrogates have none."""


def characters(ranges: Iterable[tuple[int, int]]) -> Term:
    """One character out of inclusive ranges of code points, as UTF-8. Surrogates are left out."""
    options: list[Term] = []
    for low, high in ranges:
        for first, last in _ENCODED_ALIKE:
            if low <= last and first <= high:
                options.extend(_between(chr(max(low, first)).encode(), chr(min(high, last)).encode()))
    return options[0] if len(options) == 1 else Alternatives(tuple(options))


def complement(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The code points in none of the ranges, as ranges."""
    out: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted(ranges):
        if start < low:
            out.append((start, low - 1))
        start = max(start, high + 1)
    return [*out, (start, sys.maxunicode)] if start <= sys.maxunicode else out


def _between(low: bytes, high: bytes) -> Iterator[Term]:
    """The encodings of one length from `low` to `high`, as few series of byte sets."""
    if len(low) == 1:
        yield _byte_range(low[0], high[0])
        return
    rest = len(low) - 1
    lowest, highest = b"\x80" * rest, b"\xbf" * rest
    first, last = low[0], high[0]
    if first == last:
        yield from (Series((_byte_range(first, first), tail)) for tail in _between(low[1:], high[1:]))
        return
    if low[1:] != lowest:
        yield from _between(low, low[:1] + highest)
        first += 1
    if high[1:] != highest:
        yield from _between(high[:1] + lowest, high)
        last -= 1
    if first <= last:
        yield Series((_byte_range(first, last), *[_byte_range(0x80, 0xBF)] * rest))


def _byte_range(low: int, high: int) -> ByteSet:
    return ByteSet(frozenset(range(low, high + 1)))


# ---------------------------------------------------------------------------------------------------- productions

_Symbol: TypeAlias = "int | frozenset[int]"
"""What a production is made of: the number of a nonterminal, or the bytes of a terminal."""


@dataclass(frozen=True, eq=False)
class _Production:
    left: int
    right: tuple[_Symbol, ...]


class _Writer:
    """Writes terms as productions."""

    def __init__(self, grammar: Grammar) -> None:
        self.productions: list[_Production] = []
        self._rules = grammar.rules
        self._numbers: dict[Term, int] = {}
        self._used = 0
        self.start = self._new()
        self._add(self.start, [self._symbol(grammar.start)])

    def _new(self, *rights: Sequence[_Symbol]) -> int:
        number = self._used
        self._used += 1
        self._add(number, *rights)
        return number

    def _add(self, left: int, *rights: Sequence[_Symbol]) -> None:
        self.productions.extend(_Production(left, tuple(right)) for right in rights)

    def _symbol(self, term: Term) -> _Symbol:
        if isinstance(term, ByteSet):
            return term.members
        if term not in self._numbers:
            self._numbers[term] = self._new()  # known before what it is made of: rules may refer to themselves
            self._write(self._numbers[term], term)
        return self._numbers[term]

    def _write(self, left: int, term: Term) -> None:
        if isinstance(term, Rule):
            if term.name not in self._rules:
                raise ValueError(f"the grammar has no rule {term.name!r}")
            term = self._rules[term.name]
        options = term.options if isinstance(term, Alternatives) else (term,)
        self._add(left, *(self._right(option) for option in options))

    def _right(self, term: Term) -> list[_Symbol]:
        """A term as the right side of a production; series inside series are one."""
        if isinstance(term, Series):
            return [symbol for item in term.items for symbol in self._right(item)]
        if isinstance(term, Repetition):
            item = self._symbol(term.item)
            return [item] * term.least + self._rest(item, term)
        return [self._symbol(term)]

    def _rest(self, item: _Symbol, term: Repetition) -> list[_Symbol]:
        """What follows the items that must be there: as a nonterminal that begins with itself, if there is no bound."""
        if term.most is None:
            star = self._new(())
            self._add(star, [star, item])
            return [star]
        rest: list[_Symbol] = []
        for _ in range(term.most - term.least):
            rest = [self._new((), [item, *rest])]
        return rest


def _productive(productions: Iterable[_Production]) -> list[_Production]:
    """The productions from which some text comes."""
    able: set[int] = set()
    kept: set[_Production] = set()
    growing = True
    while growing:
        more = {
            production
            for production in productions
            if all(symbol in able if isinstance(symbol, int) else symbol for symbol in production.right)
        }
        growing = len(more) > len(kept)
        kept = more
        able = {production.left for production in kept}
    return [production for production in productions if production in kept]


def _nullable(productions: Iterable[_Production]) -> set[_Symbol]:
    """The nonterminals from which the empty text comes."""
    found: set[_Symbol] = set()
    growing = True
    while growing:
        more = {production.left for production in productions if found.issuperset(production.right)}
        growing = not more <= found
        found |= more
    return found


# ---------------------------------------------------------------------------------------------------- recognition


@dataclass(frozen=True, eq=False)
class _Item:
    """A production whose symbols before the dot were read, for the sake of a goal. Interned: identity is equality."""

    production: _Production
    dot: int
    goal: _Item | None

    @property
    def next(self) -> _Symbol | None:
        right = self.production.right
        return right[self.dot] if self.dot < len(right) else None


class State:
    """What was read so far, as far as it matters for what may follow. Immutable, hashable.

    Equal states have equal futures; states with equal futures may differ.

    Attributes:
        accepting: the bytes so far are a text of the language.
    """

    __slots__ = ("_recogniser", "_steps", "_waiting", "accepting")

    def __init__(self, recogniser: Recogniser, waiting: frozenset[_Item], accepting: bool) -> None:
        self._recogniser = recogniser
        self._waiting = waiting
        self._steps: dict[int, State | None] = {}
        self.accepting = accepting

    def step(self, byte: int) -> State | None:
        """The state after one more byte; None exactly when no text of the language starts like that."""
        if byte not in self._steps:
            self._steps[byte] = self._recogniser._step(self._waiting, byte)
        return self._steps[byte]

    def walk(self, data: bytes) -> State | None:
        """The state after some more bytes; None as for `step`."""
        state: State | None = self
        for byte in data:
            if state is None:
                return None
            state = state.step(byte)
        return state


class Recogniser:
    """Decides which byte strings are texts of a grammar's language, and which are the beginning of one.

    It remembers every state that was ever reached; make a new one to forget them.

    Attributes:
        is_empty: the language has no text.

    Raises:
        ValueError: the grammar refers to a rule that it does not have.
    """

    def __init__(self, grammar: Grammar) -> None:
        writer = _Writer(grammar)
        productions = _productive(writer.productions)
        self._nullable = _nullable(productions)
        self._by_left: dict[int, list[_Production]] = {}
        self._begun_by: dict[_Symbol, list[tuple[_Production, int]]] = {}
        for production in productions:
            self._by_left.setdefault(production.left, []).append(production)
            for index, symbol in self._beginnings(production):
                self._begun_by.setdefault(symbol, []).append((production, index + 1))
        self._corners: dict[int, frozenset[int]] = {}
        self._first: dict[int, list[tuple[frozenset[int], _Production, int]]] = {}
        self._items: dict[tuple[_Production, int, _Item | None], _Item] = {}
        self._states: dict[tuple[frozenset[_Item], bool], State] = {}
        self._start = self._by_left.get(writer.start, [])
        self.is_empty = not self._start

    def start(self) -> State:
        """The state before the first byte. Of an empty language, a state without any continuation."""
        return self._state(self._item(production, 0, None) for production in self._start)

    def accepts(self, text: str | bytes) -> bool:
        """Whether this is a text of the language."""
        end = self.start().walk(text.encode() if isinstance(text, str) else text)
        return end is not None and end.accepting

    def _beginnings(self, production: _Production) -> Iterator[tuple[int, _Symbol]]:
        """The symbols that a text of the production may begin with: up to the first that cannot be empty."""
        for index, symbol in enumerate(production.right):
            yield index, symbol
            if symbol not in self._nullable:
                return

    def _corners_of(self, symbol: int) -> frozenset[int]:
        """The nonterminal itself and all that a text of it may begin with."""
        if symbol not in self._corners:
            found, todo = {symbol}, [symbol]
            while todo:
                for production in self._by_left.get(todo.pop(), ()):
                    new = {s for _, s in self._beginnings(production) if isinstance(s, int)} - found
                    found |= new
                    todo.extend(new)
            self._corners[symbol] = frozenset(found)
        return self._corners[symbol]

    def _first_of(self, symbol: int) -> list[tuple[frozenset[int], _Production, int]]:
        """The terminals that a text of the nonterminal may begin with, and where they stand: (bytes, production, dot
        after them)."""
        if symbol not in self._first:
            self._first[symbol] = [
                (terminal, production, index + 1)
                for corner in self._corners_of(symbol)
                for production in self._by_left.get(corner, ())
                for index, terminal in self._beginnings(production)
                if not isinstance(terminal, int)
            ]
        return self._first[symbol]

    def _item(self, production: _Production, dot: int, goal: _Item | None) -> _Item:
        return self._items.setdefault((production, dot, goal), _Item(production, dot, goal))

    def _advanced(self, item: _Item) -> _Item:
        return self._item(item.production, item.dot + 1, item.goal)

    def _step(self, waiting: Iterable[_Item], byte: int) -> State | None:
        moved: list[_Item] = []
        for item in waiting:
            symbol = item.next
            if isinstance(symbol, int):
                begun = [(production, dot) for bytes_, production, dot in self._first_of(symbol) if byte in bytes_]
                moved.extend(self._item(production, dot, _goal(item)) for production, dot in begun)
            elif symbol is not None and byte in symbol:
                moved.append(self._advanced(item))
        return self._state(moved) if moved else None

    def _state(self, items: Iterable[_Item]) -> State:
        """The state of these items and of all that follows from them without another byte."""
        seen: set[_Item] = set()
        todo = list(items)
        while todo:
            item = todo.pop()
            if item in seen:
                continue
            seen.add(item)
            if item.next is None:
                todo.extend(self._completed(item))
            elif item.next in self._nullable:
                todo.append(self._advanced(item))
        waiting = frozenset(item for item in seen if item.next is not None)
        accepting = any(item.next is None and item.goal is None for item in seen)
        return self._states.setdefault((waiting, accepting), State(self, waiting, accepting))

    def _completed(self, item: _Item) -> Iterator[_Item]:
        """What a finished production brings forward: its goal, or what begins with it and serves the same goal."""
        goal, left = item.goal, item.production.left
        if goal is None or not isinstance(goal.next, int):
            return
        if left == goal.next:
            yield self._advanced(goal)
        corners = self._corners_of(goal.next)
        for production, dot in self._begun_by.get(left, ()):
            if production.left in corners:
                yield self._item(production, dot, goal)


def _goal(item: _Item) -> _Item:
    """The goal of what an item waits for: the item, or its own goal where finishing both is the same.

    That is so for an item that lacks only another of its own kind, as in ``list: item list``; without this, right
    recursion would have a new state for each round.
    """
    goal, production = item.goal, item.production
    same = goal is not None and item.next == production.left == goal.next
    return goal if goal is not None and same and item.dot == len(production.right) - 1 else item
