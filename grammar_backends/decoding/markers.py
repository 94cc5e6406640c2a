"""Markers in a text at which something begins or ends: sequences of tokens, and texts however tokens spell them.

All markers of a gate are looked for at once, by the automaton of Knuth, Morris and Pratt in Aho and Corasick's form for
several patterns. Where a search stands is a small immutable value, so that taking it back costs nothing (J1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import NamedTuple, TypeAlias

from grammar_backends.contract import Vocabulary
from grammar_backends.errors import VocabularyError

__all__ = ["Marker", "MarkerSearch", "Match", "SearchPlace", "TextMarker", "TokenMarker"]


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


Marker: TypeAlias = "TokenMarker | TextMarker | Sequence[int] | int | str"
"""A marker, or short for one: ids; or a name, which means the control token of that name, or else that text."""


class SearchPlace(NamedTuple):
    """Where a search stands: how much of a marker the tokens so far end with, in tokens and in text."""

    tokens: int = 0
    text: int = 0


class Match(NamedTuple):
    """A marker that was found.

    Attributes:
        marker: which.
        content: what the grammar gets of it, as tokens; None when no tokens spell that.
    """

    marker: TokenMarker | TextMarker
    content: tuple[int, ...] | None


class MarkerSearch:
    """Looks for markers in a stream of tokens. Immutable: make one for a model and share it between requests.

    Where several markers end with one token, one of tokens comes before one of text, and a longer one before a shorter.

    Args:
        vocabulary: whose tokens they are.
        markers: at least one.

    Raises:
        ValueError: no markers, an empty one, or an id outside the vocabulary.
        TypeError: an id is no integer, or one text is given for the list of markers.
    """

    start = SearchPlace()

    def __init__(self, vocabulary: Vocabulary, markers: Iterable[Marker]) -> None:
        if isinstance(markers, str):  # each of its characters would be a marker
            raise TypeError(f"markers are a list, also if there is one: [{markers!r}]")
        self.vocabulary = vocabulary
        self.markers = tuple(as_marker(marker, vocabulary) for marker in markers)
        if not self.markers:
            raise ValueError("a search needs at least one marker")
        self._token_markers = [marker for marker in self.markers if isinstance(marker, TokenMarker)]
        self._text_markers = [marker for marker in self.markers if isinstance(marker, TextMarker)]
        self._by_token = PatternAutomaton([marker.tokens for marker in self._token_markers])
        self._by_byte = PatternAutomaton([marker.text.encode() for marker in self._text_markers])
        self._last_tokens = {marker.tokens[-1] for marker in self._token_markers if marker.implicit}
        # Looking through a large vocabulary takes a while: now, not in the first request.
        texts = [marker.text.encode() for marker in self._text_markers]
        self._holding = [id_ for id_, t in enumerate(vocabulary.text_tokens) if any(text in t for text in texts)]
        self._endings = [self._text_endings(path) for path in self._by_byte.paths] if texts else []

    def follow(self, place: SearchPlace, token: int) -> tuple[SearchPlace, Match | None]:
        """Where the search stands after one more token, and the marker that it completes, if any.

        Args:
            place: where it stood; `start` at the beginning.
            token: any id: prompts hold some that stand for images, say.
        """
        tokens = self._by_token.follow(place.tokens, token)
        found = self._by_token.found[tokens]
        if found is not None:
            marker = self._token_markers[found]
            return self.start, Match(marker, tuple(marker.tokens) if marker.implicit else ())
        text = place.text
        if self._text_markers:
            data = self.vocabulary.text_tokens[token] if 0 <= token < self.vocabulary.size else b""
            text, end, found = self._by_byte.run(text if data else 0, data)
            if found is not None:
                return self.start, self._text_match(self._text_markers[found], data[end:])
        return SearchPlace(tokens, text), None

    def _text_match(self, marker: TextMarker, rest: bytes) -> Match:
        content = marker.text.encode() + rest if marker.implicit else rest
        try:
            return Match(marker, tuple(self.vocabulary.spell(content)))
        except VocabularyError:
            return Match(marker, None)

    def completions(self, place: SearchPlace) -> Iterator[tuple[int, Match]]:
        """Every token that would complete a marker here of which the grammar gets something, with that marker."""
        candidates = [*self._last_tokens]
        if self._text_markers:
            candidates += self._endings[place.text]
        for token in candidates:
            match = self.follow(place, token)[1]
            if match is not None and match.content != ():
                yield token, match

    def _text_endings(self, path: tuple[int, ...]) -> list[int]:
        """Tokens with which a text marker may end when the text ends with these bytes."""
        before = bytes(path)
        texts = [marker.text.encode() for marker in self._text_markers]
        begun = {text[cut:] for text in texts for cut in range(1, len(text)) if before.endswith(text[:cut])}
        return sorted({*self._holding}.union(*map(self.vocabulary.starting_with, begun)))

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


def as_marker(marker: Marker, vocabulary: Vocabulary) -> TokenMarker | TextMarker:
    """The marker that a short form means."""
    if isinstance(marker, str):
        named = vocabulary.tag_names.get(marker)
        marker = TextMarker(marker) if named is None else TokenMarker((named,))
    if isinstance(marker, TextMarker):
        if not marker.text:
            raise ValueError("a marker of text needs a character")
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


class PatternAutomaton:
    """Which of several patterns a sequence of symbols ends with, one symbol at a time.

    Attributes:
        found: for each state the longest pattern that ends there, by its number, or None.
        paths: the symbols that lead to each state.
    """

    def __init__(self, patterns: Sequence[Sequence[int]]) -> None:
        self._next: list[dict[int, int]] = [{}]
        self.paths: list[tuple[int, ...]] = [()]
        self.found: list[int | None] = [None]
        for number, pattern in enumerate(patterns):
            self._add(tuple(pattern), number)
        self._shorter = [0] * len(self.paths)
        # A state's shorter ones are needed before its own.
        for state in sorted(range(1, len(self.paths)), key=lambda state: len(self.paths[state])):
            self._link(state)

    def _add(self, pattern: tuple[int, ...], number: int) -> None:
        state = 0
        for length, symbol in enumerate(pattern, start=1):
            if symbol not in self._next[state]:
                self._next[state][symbol] = len(self.paths)
                self._next.append({})
                self.paths.append(pattern[:length])
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
        """The state after one more symbol: the longest beginning of a pattern that the symbols end with."""
        while state and symbol not in self._next[state]:
            state = self._shorter[state]
        return self._next[state].get(symbol, 0)

    def run(self, state: int, symbols: bytes) -> tuple[int, int, int | None]:
        """The state after symbols up to the first end of a pattern, how many those were, and that pattern."""
        for count, symbol in enumerate(symbols, start=1):
            state = self.follow(state, symbol)
            if self.found[state] is not None:
                return state, count, self.found[state]
        return state, len(symbols), None
