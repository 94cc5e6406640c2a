"""The engine's JSON parser with its faults repaired, as a character machine.

`JsonSchemaParser` finds its way through a schema by a stack of parsers. Those that misread JSON are exchanged, as
soon as they are pushed, for ones of ours with the same interface: each class says which faults it repairs. White
space is judged here too, since the engine counts the blanks inside of strings as well.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmformatenforcer import CharacterLevelParser, JsonSchemaParser, UnionParser
from lmformatenforcer.characterlevelparser import ForceStopParser
from lmformatenforcer.consts import BACKSLASH_ESCAPING_CHARACTERS, WHITESPACE_CHARACTERS
from lmformatenforcer.jsonschemaparser import (
    ListParsingState,
    NumberParsingState,
    ObjectParsingStage,
    ObjectParsingState,
    StringParsingState,
)

from grammar_backends_lm_format_enforcer.characters import engine_config, unused

__all__ = ["JsonMachine", "JsonState"]

BACKSLASH = "\\"
STRING_CHARACTERS = "".join(map(chr, range(0x20, 0x80))).replace(BACKSLASH, "")
"""What may stand in a JSON string as it is, up to the end of ASCII, and the quote that ends it."""

DIGITS = "0123456789"
HEX = "0123456789abcdefABCDEF"
ESCAPES: str = BACKSLASH_ESCAPING_CHARACTERS + "u"


@dataclass(frozen=True, slots=True)
class JsonState:
    """Where a JSON text stands.

    Attributes:
        key: equal for parsers with the same continuations.
        parser: one of them.
        quoted: inside of a string.
        escaped: right after the backslash of an escape.
        blanks: white-space characters just read, counted up to the bound.
    """

    key: Hashable
    parser: Any = field(compare=False, repr=False)
    quoted: bool = False
    escaped: bool = False
    blanks: int = 0


class JsonMachine:
    """A `JsonSchemaParser`.

    Args:
        schema: as `grammar_backends_lm_format_enforcer.schema` writes it for the engine.
        named: the characters beyond ASCII that the schema names.
        max_blanks: white-space characters in a row between JSON tokens; None for any number. There is none before
            the first and after the last token.
    """

    def __init__(self, schema: Mapping[str, Any], named: Sequence[str], max_blanks: int | None) -> None:
        told_apart = [*map(chr, range(0x80)), *sorted(named)]
        self.ranges: Sequence[tuple[str, str]] = [(character, character) for character in told_apart]
        self._other = unused(named)
        self._max_blanks = max_blanks
        config = engine_config("".join((STRING_CHARACTERS, *named, self._other)))
        parser = _repaired(JsonSchemaParser(dict(schema), config))
        self._start = JsonState(_key(parser), parser)

    def start(self) -> JsonState:
        return self._start

    def follow(self, state: JsonState, character: str | None) -> JsonState | None:
        character = self._other if character is None else character
        is_blank = not state.quoted and character in WHITESPACE_CHARACTERS
        if is_blank and not self._may_be_blank(state):
            return None
        if character not in state.parser.get_allowed_characters():
            return None
        parser = _repaired(state.parser.add_character(character))
        blanks = min(state.blanks + 1, self._max_blanks or 0) if is_blank else 0
        quoted = state.quoted != (character == '"' and not state.escaped)
        escaped = state.quoted and character == BACKSLASH and not state.escaped
        return JsonState(_key(parser), parser, quoted, escaped, blanks)

    def can_end(self, state: JsonState) -> bool:
        return bool(state.parser.can_end())

    def _may_be_blank(self, state: JsonState) -> bool:
        if self._max_blanks is not None and state.blanks >= self._max_blanks:
            return False
        return state != self._start and not state.parser.can_end()


def _repaired(parser: CharacterLevelParser) -> CharacterLevelParser:
    """The parser with ours in place of the engine's, and without what only grows and decides nothing."""
    options = {_key(option): option for option in _options(parser)}
    return next(iter(options.values())) if len(options) == 1 else UnionParser(list(options.values()))


def _options(parser: CharacterLevelParser) -> Iterator[CharacterLevelParser]:
    """Every way in which the text so far can be read, each as a stack of its own.

    The engine lets the branches of `anyOf` share a stack until one of them is known to be right. Two arrays then
    both push what they expect.
    """
    if isinstance(parser, UnionParser):
        for option in parser.parsers:
            yield from _options(option)
        return
    *below, top = parser.object_stack or [ForceStopParser()]
    for option in _leaves(top):
        alternative = copy.copy(parser)
        alternative.object_stack = [*below, option]
        alternative.num_consecutive_whitespaces = 0
        if alternative.last_non_whitespace_character != "[":
            alternative.last_non_whitespace_character = ""  # a list asks only whether it was opened just now
        yield alternative


def _leaves(parser: CharacterLevelParser) -> Iterator[CharacterLevelParser]:
    if isinstance(parser, UnionParser):
        for option in parser.parsers:
            yield from _leaves(option)
        return
    repair = _REPAIRS.get(type(parser))
    if repair is None:
        yield parser
    else:
        ours: CharacterLevelParser = object.__new__(repair)
        ours.__dict__.update(parser.__dict__)
        yield ours


def _key(parser: CharacterLevelParser) -> Hashable:
    """What decides how a repaired parser goes on."""
    if isinstance(parser, JsonSchemaParser):
        stack = tuple(map(_key, parser.object_stack))
        return "json", stack, parser.last_parsed_string, parser.last_non_whitespace_character
    if isinstance(parser, UnionParser):
        return "union", tuple(map(_key, parser.parsers))
    if isinstance(parser, ForceStopParser):
        return "stop", parser.allow_whitespace
    key: Hashable = parser.cache_key()
    return key


class _Number(NumberParsingState):  # type: ignore[misc]  # the engine ships no types
    """Repairs: `1.e5` was a number; fractions and exponents were integers.

    The places in a number, and what leads from one to the next.
    """

    place = "start"

    STEPS: Mapping[str, Sequence[tuple[str, str]]] = {
        "start": (("-", "sign"), ("0", "zero"), ("123456789", "whole")),
        "sign": (("0", "zero"), ("123456789", "whole")),
        "zero": ((".", "point"), ("eE", "exponent")),
        "whole": ((DIGITS, "whole"), (".", "point"), ("eE", "exponent")),
        "point": ((DIGITS, "fraction"),),
        "fraction": ((DIGITS, "fraction"), ("eE", "exponent")),
        "exponent": (("+-", "exponent sign"), (DIGITS, "power")),
        "exponent sign": ((DIGITS, "power"),),
        "power": ((DIGITS, "power"),),
        "end": (),
    }

    def _steps(self) -> Sequence[tuple[str, str]]:
        steps = self.STEPS[self.place]
        return steps if self.allow_floating_point else [step for step in steps if step[1] not in ("point", "exponent")]

    def add_character(self, new_character: str) -> CharacterLevelParser:
        if new_character in WHITESPACE_CHARACTERS:
            return self if self.place == "start" else self._at("end")
        return self._at(next(place for characters, place in self._steps() if new_character in characters))

    def _at(self, place: str) -> CharacterLevelParser:
        clone: _Number = copy.copy(self)
        clone.place = place
        return clone

    def get_allowed_characters(self) -> str:
        blank = WHITESPACE_CHARACTERS if self.place == "start" or self.can_end() else ""
        return "".join(characters for characters, _ in self._steps()) + blank

    def can_end(self) -> bool:
        return self.place in ("zero", "whole", "fraction", "power", "end")

    def cache_key(self) -> Hashable:
        return "number", self.allow_floating_point, self.place


class _String(StringParsingState):  # type: ignore[misc]  # the engine ships no types
    """Repairs: a space at the start of a string was dropped, so that it did not count and no such text of an `enum`
    could be spelled; a pair of escaped surrogates counted as two characters; an escape read under two branches of
    `anyOf` asked for a second one.

    Attributes:
        length: characters so far, as far as a bound asks for them.
        escape: the escape being read.
        half: the first of two surrogates has been read.
    """

    length = 0
    escape = ""
    half = False

    def add_character(self, new_character: str) -> CharacterLevelParser:
        if self.require_closing_quote and (not self.seen_opening_quote or self.seen_closing_quote):
            opened: CharacterLevelParser = super().add_character(new_character)
            return opened
        if not self.require_closing_quote and not self.parsed_string and new_character in WHITESPACE_CHARACTERS:
            return self
        clone: _String = copy.copy(self)
        if self.allowed_strings:
            clone._spell(new_character)
        else:
            clone._read(new_character)
        return clone

    def _clone(self) -> StringParsingState:
        return copy.copy(self)

    def _spell(self, character: str) -> None:
        if character == '"' and self.require_closing_quote and self.parsed_string in self.allowed_strings:
            self.seen_closing_quote = True
        else:
            self.parsed_string += character

    def _read(self, character: str) -> None:
        if self.escape:
            self._read_escape(self.escape + character)
        elif character == BACKSLASH:
            self.escape = BACKSLASH
        elif character == '"':
            self.seen_closing_quote = True
        else:
            self._count(is_half=False)

    def _read_escape(self, escape: str) -> None:
        is_code = escape[1] == "u"
        if is_code and len(escape) < 6:
            self.escape = escape
            return
        self.escape = ""
        code = int(escape[2:], 16) if is_code else 0
        if self.half and 0xDC00 <= code <= 0xDFFF:
            self.half = False  # the second half of a character that has been counted
        else:
            self._count(is_half=0xD800 <= code <= 0xDBFF)

    def _count(self, *, is_half: bool) -> None:
        bound = self.min_length if self.max_length is None else self.max_length
        if bound is not None:
            self.length = min(self.length + 1, bound)
            self.half = is_half

    def get_allowed_characters(self) -> str:
        is_open = self.require_closing_quote and self.seen_opening_quote and not self.seen_closing_quote
        if not is_open or self.allowed_strings:
            outside: str = super().get_allowed_characters()
            return outside
        is_full = self.max_length is not None and self.length >= self.max_length
        if self.escape:
            return self._escapes(only_second_half=is_full)
        if is_full:
            return '"' + (BACKSLASH if self.half else "")
        is_short = self.min_length is not None and self.length < self.min_length
        alphabet: str = self.root.config.alphabet
        return (alphabet.replace('"', "") if is_short else alphabet) + BACKSLASH

    def _escapes(self, *, only_second_half: bool) -> str:
        read = len(self.escape)
        if only_second_half:
            return ("u", "dD", "cdefCDEF", HEX, HEX)[read - 1]
        return ESCAPES if read == 1 else HEX

    def cache_key(self) -> Hashable:
        return (
            *("string", frozenset(self.allowed_strings or ()), self.require_closing_quote, self.seen_opening_quote),
            *(self.seen_closing_quote, self.parsed_string, self.min_length, self.max_length),
            *(self.length, self.escape, self.half),
        )


class _List(ListParsingState):  # type: ignore[misc]  # the engine ships no types
    """Repairs: items that end of themselves (true, null, lists) counted twice.

    Attributes:
        commas: items that have been followed by another, as far as a bound asks for them.
    """

    commas = 0

    def add_character(self, new_character: str) -> CharacterLevelParser:
        new: _List = super().add_character(new_character)
        new.parsed_string = ""
        if new_character == ",":
            new.commas = min(self.commas + 1, max(self.min_items or 0, self.max_items or 0))
        return new

    def _clone(self) -> ListParsingState:
        return copy.copy(self)

    def get_allowed_control_characters(self) -> str:
        items = self.commas + (self.root.context.active_parser.last_non_whitespace_character != "[")
        more = items > 0 and (self.max_items is None or items < self.max_items)
        enough = items >= (self.min_items or 0)
        return ("," if more else "") + ("]" if enough else "")

    def cache_key(self) -> Hashable:
        return (
            *("list", id(self.list_member_type), self.min_items, self.max_items),
            *(self.commas, self.seen_list_opener, self.seen_list_closer),
        )


class _Object(ObjectParsingState):  # type: ignore[misc]  # the engine ships no types
    """Repairs: the object could end after a comma."""

    def clone(self) -> ObjectParsingState:
        clone: _Object = copy.copy(self)
        clone.existing_keys = self.existing_keys[:]
        return clone

    def add_character(self, new_character: str) -> CharacterLevelParser:
        new: _Object = super().add_character(new_character)
        if new.is_dictionary:
            new.existing_keys = new.existing_keys[:1]  # free names are not compared
        return new

    def get_allowed_characters(self) -> str:
        allowed: str = super().get_allowed_characters()
        after_comma = self.current_stage is ObjectParsingStage.PARSING_KEY_OR_END and self.existing_keys
        return allowed.replace("}", "") if after_comma else allowed

    def cache_key(self) -> Hashable:
        return "object", id(self.schema_object), self.current_stage, frozenset(self.existing_keys), self.current_key


_REPAIRS: Mapping[type, type[CharacterLevelParser]] = {
    ListParsingState: _List,
    NumberParsingState: _Number,
    ObjectParsingState: _Object,
    StringParsingState: _String,
}
