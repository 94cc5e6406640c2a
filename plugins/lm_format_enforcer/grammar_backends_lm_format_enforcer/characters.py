"""The engine's parsers of regular expressions and fixed texts as character machines."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from interegular.fsm import anything_else
from lmformatenforcer import CharacterLevelParser, CharacterLevelParserConfig, RegexParser, StringParser, UnionParser

__all__ = ["ChoiceMachine", "ParserState", "RegexMachine"]


@dataclass(frozen=True, slots=True)
class ParserState:
    """A parser that is known by what it will accept: parsers themselves compare by identity.

    Attributes:
        key: equal for parsers with the same continuations.
        parser: one of them.
    """

    key: Hashable
    parser: Any = field(compare=False, repr=False)


class RegexMachine:
    """`RegexParser` over the whole of Unicode, where the engine itself offers 94 characters for "any other".

    Args:
        pattern: in the engine's dialect.
    """

    def __init__(self, pattern: str) -> None:
        self._parser = RegexParser(pattern, engine_config(""))
        alphabet = self._parser.context.pattern.alphabet
        named = sorted(symbol for symbol in alphabet if symbol is not anything_else)
        self.ranges: Sequence[tuple[str, str]] = [(character, character) for character in named]
        self._other = unused(named)

    def start(self) -> int:
        state: int = self._parser.current_state
        return state

    def follow(self, state: int, character: str | None) -> int | None:
        following = self._at(state).add_character(self._other if character is None else character).current_state
        return None if following == RegexParser.INVALID_STATE else following

    def can_end(self, state: int) -> bool:
        return bool(self._at(state).can_end())

    def _at(self, state: int) -> RegexParser:
        return RegexParser(self._parser.context, self._parser.config, state)


class ChoiceMachine:
    """A `UnionParser` of the texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.ranges: Sequence[tuple[str, str]] = [(character, character) for character in sorted(set().union(*texts))]
        self._start = _choice_state(UnionParser([StringParser(text) for text in texts]))

    def start(self) -> ParserState:
        return self._start

    def follow(self, state: ParserState, character: str | None) -> ParserState | None:
        if character is None or character not in state.parser.get_allowed_characters():
            return None
        return _choice_state(state.parser.add_character(character))

    def can_end(self, state: ParserState) -> bool:
        return bool(state.parser.can_end())


def _choice_state(parser: CharacterLevelParser) -> ParserState:
    options = parser.parsers if isinstance(parser, UnionParser) else [parser]
    return ParserState(tuple(option.target_str for option in options), parser)


def unused(characters: Sequence[str]) -> str:
    """A character for private use that is not among these: it stands for all that are not."""
    return next(character for character in map(chr, range(0xE000, 0xF900)) if character not in characters)


def engine_config(alphabet: str) -> CharacterLevelParserConfig:
    """The engine without its own bounds: each of them loses valid texts, or lets a variable in the environment rule."""
    return CharacterLevelParserConfig(
        alphabet=alphabet, max_consecutive_whitespaces=1 << 60, force_json_field_order=False, max_json_array_length=0
    )
