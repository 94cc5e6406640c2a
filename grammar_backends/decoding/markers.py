"""Markers in a text at which something begins or ends: sequences of tokens, texts and patterns however tokens cut them.

Sequences of tokens are looked for by the automaton of Knuth, Morris and Pratt in Aho and Corasick's form for several of
them; texts and patterns by one lazy automaton over bytes, of which a fixed text is the simplest case. Where a search
stands is a small immutable value, so that taking it back costs nothing (J1).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import NamedTuple, TypeAlias

from grammar_backends.contract import Vocabulary
from grammar_backends.contract.regex import Node, parse_regex, regex_of_texts
from grammar_backends.decoding.beginnings import Beginnings
from grammar_backends.decoding.text_automaton import FRESH, State, TextAutomaton
from grammar_backends.decoding.token_trie import Stop, TokenTrie
from grammar_backends.errors import SpecError, UnsupportedFeature, VocabularyError, shown

__all__ = ["Marker", "MarkerSearch", "Match", "PatternMarker", "SearchPlace", "TextMarker", "TokenMarker"]

MAX_POSITIONS = 1_000
"""Characters of a pattern once its counts are written out: so many places a text may be in at once."""

MAX_KEPT = 4_000_000
"""Token ids that a search keeps as completions of its states; beyond, they are looked for anew (A33)."""

KEPT_PER_STATE = 1_000
"""What a state counts for without any, among those."""


@dataclass(frozen=True, slots=True)
class TokenMarker:
    """A sequence of tokens.

    Attributes:
        tokens: at least one id; control tokens are tokens like others.
        implicit: the marker is itself content: it opens the gate and is the first thing that the grammar gets (F12).
    """

    tokens: Sequence[int]
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class TextMarker:
    """A text, however the tokens that spell it are cut: it may begin and end in the middle of one (J5).

    Control tokens are no text: none is part of a marker, and a marker does not reach across one (A29).

    Attributes:
        text: at least one character.
        implicit: the marker is itself content. What stands in its last token behind the marker is content in any case.
    """

    text: str
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class PatternMarker:
    """A text that matches a regular expression, found and cut as a `TextMarker` (J5).

    It is found wherever it stands, at the first byte with which some text that matches ends: `[0-9]+` is found at the
    first digit, and a lazy mark changes nothing. Of several texts that end there the longest counts.

    Attributes:
        pattern: in the dialect of regex constraints, without anchors.
        implicit: the text that was found is itself content, as with `TextMarker`.

    Raises:
        SpecError: not in the dialect, with line and column; the empty text matches, or the pattern has more than
            MAX_POSITIONS characters once its counts are written out.
        UnsupportedFeature: of the dialect's own; or an anchor, which cannot mean here what it means there.
    """

    pattern: str
    implicit: bool = False

    def __post_init__(self) -> None:
        regex = parse_regex(self.pattern)
        if regex.matches_empty:
            raise SpecError(
                f"regex: {shown(self.pattern)} matches the empty text, which is everywhere", line=1, column=1
            )
        if regex.positions > MAX_POSITIONS:
            message = f"regex: a marker of {regex.positions} characters with all counts written out"
            raise SpecError(f"{message}, more than {MAX_POSITIONS}", line=1, column=1, keyword="size")
        for part in _ANCHORS.finditer(self.pattern):
            if part["anchor"]:
                before = self.pattern[: part.start()]
                raise UnsupportedFeature(
                    f"regex: {part['anchor']} is not supported in a marker, which is found wherever it stands",
                    line=before.count("\n") + 1,
                    column=len(before) - before.rfind("\n"),
                    keyword="anchor",
                )


_ANCHORS = re.compile(
    r"\\[pP]\{[^}]*\} | \[ (?: \\. | [^\]\\] )* \] | (?P<anchor> \\[AzZ] | [$^] ) | \\.", re.VERBOSE | re.DOTALL
)
"""What of a pattern that is well formed may look like an anchor, and what is one."""

Marker: TypeAlias = "TokenMarker | TextMarker | PatternMarker | Sequence[int] | int | str"
"""A marker, or short for one: ids; or a name, which means the control token of that name, or else that text."""


class Held:
    """The last tokens of a text, as a chain that grows without being copied.

    Attributes:
        size: their bytes.
    """

    __slots__ = ("_before", "_data", "_token", "size")

    def __init__(self, before: Held | None, token: int, data: bytes) -> None:
        self._before = before
        self._token = token
        self._data = data
        self.size: int = len(data) + (before.size if before else 0)

    def last(self, size: int) -> tuple[bytes, list[int]]:
        """The last `size` bytes, which are there: the end of one token that is not whole, and the tokens behind it."""
        tokens: list[int] = []
        held: Held | None = self
        while held is not None and len(held._data) <= size:
            tokens.append(held._token)
            size -= len(held._data)
            held = held._before
        tokens.reverse()
        return (held._data[len(held._data) - size :] if held is not None else b""), tokens

    def cut(self, size: int) -> Held:
        """A chain of just the tokens that the last `size` bytes are of."""
        links = [self]
        while (before := links[-1]._before) is not None and self.size - before.size < size:
            links.append(before)
        held: Held | None = None
        for link in reversed(links):
            held = Held(held, link._token, link._data)
        return held or self


SPARE_HELD = 256
"""Bytes beyond twice those that are needed that a chain may hold, so that it is rarely made anew (A33)."""


class SearchPlace(NamedTuple):
    """Where a search stands.

    Attributes:
        tokens: how much of the markers of tokens the tokens so far end with.
        text: the same of texts and patterns.
        begins: for each group of that state where it began, in bytes from here, below 0; None where nobody asks, and
            nothing if nobody asks for any.
        held: the tokens from the first of these begins on, if there is one.
    """

    tokens: int
    text: State
    begins: tuple[int | None, ...] = ()
    held: Held | None = None


class Match(NamedTuple):
    """A marker that was found.

    Attributes:
        marker: which.
        content: what the grammar gets of it, as tokens; None when no tokens spell that.
    """

    marker: TokenMarker | TextMarker | PatternMarker
    content: tuple[int, ...] | None


class Found(NamedTuple):
    """The end of a marker inside of a token.

    Attributes:
        number: which marker of text.
        begin: where it began, in bytes of the token; below 0 for what had begun before, -1 for the leftmost of that;
            None where nobody asks.
        end: where it ends.
    """

    number: int
    begin: int | None
    end: int


class Completions(NamedTuple):
    """The tokens that complete a marker of text in one state, and of which the grammar then gets something.

    Attributes:
        contents: what the grammar gets, and the tokens that make it so; None for what cannot be spelled.
        continued: for a group of the state the tokens that the grammar gets as they are, behind that group's text;
            for None those that it gets alone.
    """

    contents: dict[tuple[int, ...] | None, list[int]]
    continued: dict[int | None, list[int]]

    @property
    def size(self) -> int:
        return sum(map(len, self.contents.values())) + sum(map(len, self.continued.values()))


class _At(NamedTuple):
    """Where a walk through a token is: a state, and where its groups began, as in `Found`."""

    state: State
    begins: tuple[int | None, ...]


NOTHING_ALIVE: Stop[Found | None] = Stop(None)


class MarkerSearch:
    """Looks for markers in a stream of tokens. Immutable: make one for a model and share it between requests.

    A marker of text is found at its first end; of several that end there the one that begins first, which is the
    longest; of equals a fixed text before a pattern, and then the one that is named first. Where one of tokens
    ends with the same token, that comes first, of several the longest.

    Args:
        vocabulary: whose tokens they are.
        markers: at least one.

    Attributes:
        start: where a search begins.

    Raises:
        ValueError: no markers, an empty one, or an id outside the vocabulary.
        TypeError: an id is no integer, or one text is given for the list of markers.
    """

    def __init__(self, vocabulary: Vocabulary, markers: Iterable[Marker]) -> None:
        if isinstance(markers, str):  # each of its characters would be a marker
            raise TypeError(f"markers are a list, also if there is one: [{markers!r}]")
        self.vocabulary = vocabulary
        self.markers = tuple(as_marker(marker, vocabulary) for marker in markers)
        if not self.markers:
            raise ValueError("a search needs at least one marker")
        self._token_markers = [marker for marker in self.markers if isinstance(marker, TokenMarker)]
        self._by_token = SequenceAutomaton([marker.tokens for marker in self._token_markers])
        texts = [marker for marker in self.markers if isinstance(marker, TextMarker)]
        patterns = [marker for marker in self.markers if isinstance(marker, PatternMarker)]
        self._text_markers: list[TextMarker | PatternMarker] = [*texts, *patterns]
        # Of a fixed text it is known what it is.
        self._traced = {number for number, marker in enumerate(patterns, len(texts)) if marker.implicit}
        self._automaton = TextAutomaton([_root(marker) for marker in self._text_markers], self._traced)
        self.start = SearchPlace(0, self._automaton.start)
        self._completions: dict[State, Completions] = {}
        self._kept = 0
        # Going through a large vocabulary takes a while: now, not in the first request.
        self._trie = TokenTrie(vocabulary.text_tokens, self._candidates())
        self._starting = self._completed_from_start()
        self._completions_of(self.start.text)

    def follow(self, place: SearchPlace, token: int) -> tuple[SearchPlace, Match | None]:
        """Where the search stands after one more token, and the marker that it completes, if any.

        Args:
            place: where it stood; `start` at the beginning.
            token: any id: prompts hold some that stand for images, say.
        """
        tokens = self._by_token.follow(place.tokens, token)
        number = self._by_token.found[tokens]
        if number is not None:
            marker = self._token_markers[number]
            return self.start, Match(marker, tuple(marker.tokens) if marker.implicit else ())
        state, data = self.start.text, b""
        begins: tuple[int | None, ...] = ()
        if self._text_markers and 0 <= token < self.vocabulary.size and (data := self.vocabulary.text_tokens[token]):
            state, begins = place.text, place.begins
        for at, byte in enumerate(data):
            following, sources, found = state.next.get(byte) or self._automaton.edge(state, byte)
            if found is not None:
                return self.start, self._text_match(place, token, self._found(found, begins, at))
            if sources or begins:
                begins = _moved(sources, begins, at)
            state = following
        if not begins:  # mostly nothing has begun, as before
            same = tokens == place.tokens and state is place.text and not place.begins
            return place if same else SearchPlace(tokens, state), None
        begins = tuple(None if begin is None else begin - len(data) for begin in begins)
        needed = -min(begin for begin in begins if begin is not None)
        held = Held(place.held if needed > len(data) else None, token, data)
        if held.size > 2 * needed + SPARE_HELD:
            held = held.cut(needed)
        return SearchPlace(tokens, state, begins, held), None

    def _found(self, found: tuple[int, int], begins: tuple[int | None, ...], at: int) -> Found:
        number, source = found
        begin = None if number not in self._traced else at if source == FRESH else begins[source]
        return Found(number, begin, at + 1)

    def _text_match(self, place: SearchPlace, token: int, found: Found) -> Match:
        marker, begin = self._text_markers[found.number], found.begin
        if begin is None or begin > 0:
            return Match(marker, self._spelled(self._content(token, found)))
        before = self._before(place, begin)
        if before is not None:
            return Match(marker, (*before, token))
        return Match(marker, self._spelled(self._bytes_before(place, begin) + self.vocabulary.text_tokens[token]))

    def _content(self, token: int, found: Found) -> bytes:
        """What the grammar gets, of which nothing but a fixed text stands before this token."""
        marker = self._text_markers[found.number]
        rest = self.vocabulary.text_tokens[token][found.end if found.begin is None else found.begin :]
        return marker.text.encode() + rest if isinstance(marker, TextMarker) and marker.implicit else rest

    def _before(self, place: SearchPlace, begin: int) -> tuple[int, ...] | None:
        """The text from a begin up to here, as tokens; None if no tokens spell it up to the first whole one."""
        rest, tokens = place.held.last(-begin) if place.held else (b"", [])
        spelled = self._spelled(rest)
        return None if spelled is None else (*spelled, *tokens)

    def _bytes_before(self, place: SearchPlace, begin: int) -> bytes:
        rest, tokens = place.held.last(-begin) if place.held else (b"", [])
        return rest + self.vocabulary.decode(tokens)

    def _spelled(self, data: bytes) -> tuple[int, ...] | None:
        try:
            return tuple(self.vocabulary.spell(data))
        except VocabularyError:
            return None

    def refused(self, place: SearchPlace, beginnings: Beginnings) -> frozenset[int]:
        """Every token that would complete a marker here of which a grammar refuses what it would get (F13)."""
        refused: set[int] = set()
        contents, continued = self._completions_of(place.text)
        for content, ids in contents.items():
            if beginnings.refuses(content):
                refused.update(ids)
        for group, ids in continued.items():
            begin = 0 if group is None else place.begins[group]
            refused.update(self._refused_behind(place, begin or 0, ids, beginnings))
        for marker in self._token_markers:  # they come before those of text
            token = marker.tokens[-1]
            match = self.follow(place, token)[1]
            if match is not None and isinstance(match.marker, TokenMarker):
                refused.discard(token)
                if match.content and beginnings.refuses(match.content):
                    refused.add(token)
        return frozenset(refused)

    def _refused_behind(
        self, place: SearchPlace, begin: int, ids: list[int], beginnings: Beginnings
    ) -> Collection[int]:
        before = self._before(place, begin)
        if before is not None:
            return beginnings.refused_behind(before, ids)
        data, texts = self._bytes_before(place, begin), self.vocabulary.text_tokens
        return [id_ for id_ in ids if beginnings.refuses(self._spelled(data + texts[id_]))]

    # -- which tokens complete a marker of text

    def _candidates(self) -> list[int]:
        """The tokens that may: in which a byte stands with which a marker of text may end."""
        last = self._automaton.last_bytes()
        if not last:
            return []
        ending = re.compile(b"[" + b"".join(re.escape(bytes((byte,))) for byte in sorted(last)) + b"]")
        return [id_ for id_, text in enumerate(self.vocabulary.text_tokens) if ending.search(text)]

    def _completions_of(self, state: State) -> Completions:
        known = self._completions.get(state)
        if known is None:
            known = self._complete(state)
            self._kept += known.size + KEPT_PER_STATE
            if self._kept > MAX_KEPT:
                self._completions.clear()
                self._kept = 0
            self._completions[state] = known
        return known

    def _complete(self, state: State) -> Completions:
        ids_at, (places, starting) = self._trie.ids, self._starting
        contents: dict[bytes, list[int]] = {}
        continued: dict[int | None, list[int]] = {}

        def add(found: Found, ids: list[int]) -> None:
            if found.begin is not None and found.begin <= 0:
                continued.setdefault(None if found.begin == 0 else -1 - found.begin, []).extend(ids)
                return
            for id_ in ids:
                contents.setdefault(self._content(id_, found), []).append(id_)

        for found, first, end in self._ends(state):
            if found is not None:
                add(found, ids_at[first:end].tolist())
                continue
            for at in range(bisect_left(places, first), bisect_left(places, end)):
                add(starting[at], [int(ids_at[places[at]])])
        contents.pop(b"", None)
        spelled: dict[tuple[int, ...] | None, list[int]] = {}
        for content, ids in contents.items():
            spelled.setdefault(self._spelled(content), []).extend(ids)
        return Completions(spelled, continued)

    def _completed_from_start(self) -> tuple[list[int], list[Found]]:
        """The places in the trie of the tokens that complete a marker on their own, in order, and where."""
        ends = self._ends(self.start.text)
        found = {place: end for end, first, past in ends for place in range(first, past) if end is not None}
        places = sorted(found)
        return places, [found[place] for place in places]

    def _ends(self, state: State) -> list[tuple[Found | None, int, int]]:
        """Where markers end in tokens that follow a state, with the places of these tokens in the trie.

        None stands for tokens in which nothing of the state is alive any more.
        """
        start = self._automaton.start

        def step(at: _At, byte: int, depth: int) -> _At | Stop[Found | None]:
            following, sources, found = at.state.next.get(byte) or self._automaton.edge(at.state, byte)
            if found is not None:
                return Stop(self._found(found, at.begins, depth))
            if following is start and state is not start:
                return NOTHING_ALIVE
            return _At(following, _moved(sources, at.begins, depth))

        begins = tuple(-1 - group for group in range(len(state.groups)))
        return [(stop.found, first, end) for stop, first, end in self._trie.walk(_At(state, begins), step)]

    def fork(self) -> MarkerSearch:
        """Itself, since it never changes."""
        return self

    def find_last(self, tokens: Sequence[int]) -> tuple[int, SearchPlace]:
        """How many tokens there are up to the end of the last marker (0 for none), and where the search stands then."""
        last = 0 if self._text_markers else self._last_of_tokens(tokens)
        # Without markers of text nothing older than the longest marker matters, and prompts are long.
        first = 0 if self._text_markers else max(last, len(tokens) - max(len(m.tokens) for m in self._token_markers))
        place = self.start
        for count, token in enumerate(tokens[first:], start=first + 1):
            place, match = self.follow(place, token)
            last = last if match is None else count
        return last, place

    def _last_of_tokens(self, tokens: Sequence[int]) -> int:
        ids = {marker.tokens[-1] for marker in self._token_markers}
        ends = [count for count, token in enumerate(tokens, start=1) if token in ids]
        for end in reversed(ends):
            if any(tuple(tokens[max(0, end - len(m.tokens)) : end]) == m.tokens for m in self._token_markers):
                return end
        return 0


def as_marker(marker: Marker, vocabulary: Vocabulary) -> TokenMarker | TextMarker | PatternMarker:
    """The marker that a short form means."""
    if isinstance(marker, str):
        named = vocabulary.tag_names.get(marker)
        marker = TextMarker(marker) if named is None else TokenMarker((named,))
    if isinstance(marker, TextMarker):
        if not marker.text:
            raise ValueError("a marker of text needs a character")
        return marker
    if isinstance(marker, PatternMarker):
        return marker
    if not isinstance(marker, TokenMarker):
        marker = TokenMarker(tuple(marker) if isinstance(marker, Iterable) else (marker,))
    tokens = tuple(map(index, marker.tokens))
    if not tokens:
        raise ValueError("a marker of tokens needs a token")
    for token in tokens:
        if not 0 <= token < vocabulary.size:
            raise ValueError(f"token {token} of a marker is outside 0..{vocabulary.size - 1}")
    return TokenMarker(tokens, marker.implicit)


class SequenceAutomaton:
    """Which of several sequences the symbols so far end with, one symbol at a time.

    Attributes:
        found: for each state the longest sequence that ends there, by its number, or None.
        paths: the symbols that lead to each state.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self._next: list[dict[int, int]] = [{}]
        self.paths: list[tuple[int, ...]] = [()]
        self.found: list[int | None] = [None]
        for number, sequence in enumerate(sequences):
            self._add(tuple(sequence), number)
        self._shorter = [0] * len(self.paths)
        # A state's shorter ones are needed before its own.
        for state in sorted(range(1, len(self.paths)), key=lambda state: len(self.paths[state])):
            self._link(state)

    def _add(self, sequence: tuple[int, ...], number: int) -> None:
        state = 0
        for length, symbol in enumerate(sequence, start=1):
            if symbol not in self._next[state]:
                self._next[state][symbol] = len(self.paths)
                self._next.append({})
                self.paths.append(sequence[:length])
                self.found.append(None)
            state = self._next[state][symbol]
        if self.found[state] is None:
            self.found[state] = number

    def _link(self, state: int) -> None:
        *before, symbol = self.paths[state]
        if before:
            self._shorter[state] = self.follow(self._shorter[self._state_of(before)], symbol)
        if self.found[state] is None:
            self.found[state] = self.found[self._shorter[state]]

    def _state_of(self, path: Sequence[int]) -> int:
        state = 0
        for symbol in path:
            state = self._next[state][symbol]
        return state

    def follow(self, state: int, symbol: int) -> int:
        """The state after one more symbol: the longest beginning of a sequence that the symbols end with."""
        while state and symbol not in self._next[state]:
            state = self._shorter[state]
        return self._next[state].get(symbol, 0)


def _root(marker: TextMarker | PatternMarker) -> Node:
    regex = parse_regex(marker.pattern) if isinstance(marker, PatternMarker) else regex_of_texts([marker.text])
    return regex.root


def _moved(sources: tuple[int, ...], begins: tuple[int | None, ...], at: int) -> tuple[int | None, ...]:
    """Where the groups behind an edge began, when the byte of the edge is the one at `at`."""
    return tuple(at if source == FRESH else None if source < 0 else begins[source] for source in sources)
