"""The shapes of the formats of structural tags: which members each type has, and what may stand in them (D8).

xgrammar takes an object without `type` for whatever its members suggest, and passes over members that it does not
know. Here each format names its type, so that what is inside of it is judged, and a misspelled member is a mistake.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from grammar_backends.contract.spec import JSON, json_type
from grammar_backends.errors import SpecError, shown
from grammar_backends.selection.schema import escape

__all__ = ["FORMATS", "MAX_NESTING", "check_format", "check_members"]

MAX_NESTING = 80
"""Objects and arrays inside one another: 64 for a schema and 16 around it (D9)."""


@dataclass(frozen=True, slots=True)
class Member:
    """What a member of a format may hold.

    Attributes:
        words: that in words.
        fits: whether a value is one; the formats inside it are judged by themselves.
        formats: those formats, each with where it stands in the value, and the type it has unless it says so.
    """

    words: str
    fits: Callable[[JSON], bool]
    formats: Callable[[JSON], Iterable[tuple[str, JSON, str | None]]] = lambda value: ()


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _is_filled(value: JSON) -> bool:
    return isinstance(value, str) and value != ""


def _is_token(value: JSON) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _is_count(value: JSON) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _list_of(fits: Callable[[JSON], bool], *, some: bool = False) -> Callable[[JSON], bool]:
    return lambda value: isinstance(value, list) and (bool(value) or not some) and all(map(fits, value))


def _is_object(value: JSON) -> bool:
    return isinstance(value, dict)


def _is_end(value: JSON) -> bool:
    return isinstance(value, (str, dict)) or _list_of(_is_text, some=True)(value)


def _rules(is_trigger: Callable[[JSON], bool]) -> Callable[[JSON], bool]:
    def is_rule(value: JSON) -> bool:
        return isinstance(value, list) and len(value) == 2 and is_trigger(value[0]) and isinstance(value[1], dict)

    return _list_of(is_rule, some=True)


def _rules_of(value: JSON) -> Iterator[tuple[str, JSON, str | None]]:
    return ((f"/{index}/1", rule[1], None) for index, rule in enumerate(value))


def _each(implied: str | None) -> Callable[[JSON], Iterator[tuple[str, JSON, str | None]]]:
    return lambda value: ((f"/{index}", item, implied) for index, item in enumerate(value))


def _one(value: JSON) -> Iterator[tuple[str, JSON, str | None]]:
    if isinstance(value, dict):
        yield "", value, None


TEXT = Member("a string", _is_text)
FILLED_TEXTS = Member("a list of strings that are not empty", _list_of(_is_filled))
TRIGGERS = Member("a list of strings, at least one and none of them empty", _list_of(_is_filled, some=True))
TOKEN = Member("a token's text or id", _is_token)
TOKENS = Member("a list of tokens' texts or ids", _list_of(_is_token))
TRIGGER_TOKENS = Member("a list of tokens' texts or ids, at least one", _list_of(_is_token, some=True))
FLAG = Member("true or false", lambda value: isinstance(value, bool))
COUNT = Member("a whole number, 0 or more", _is_count)
BOUND = Member("a whole number, 0 or more, or -1 for no bound", lambda value: _is_count(value) or value == -1)
LIMIT = Member("a whole number, 0 or more, or null", lambda value: value is None or _is_count(value))
SCHEMA = Member("a schema: an object or a boolean", lambda value: isinstance(value, (dict, bool)))
SYNTAX = Member('"ebnf" or "lark"', lambda value: value in ("ebnf", "lark"))
FORMAT = Member("a format: an object with a type", _is_object, _one)
BEGIN = Member("a string, or a token's format", lambda value: isinstance(value, (str, dict)), _one)
END = Member("a string, a list of strings, or a token's format", _is_end, _one)
ELEMENTS = Member("a list of formats, at least one", _list_of(_is_object, some=True), _each(None))
TAGS = Member("a list of tags, at least one", _list_of(_is_object, some=True), _each("tag"))
RULES = Member("a list of rules, at least one, each [text, format]", _rules(_is_text), _rules_of)
TOKEN_RULES = Member("a list of rules, at least one, each [token, format]", _rules(_is_token), _rules_of)


@dataclass(frozen=True, slots=True)
class Shape:
    """The members of one type of format: those that it must have, and those that it may have."""

    needed: Mapping[str, Member]
    optional: Mapping[str, Member]


_TIMES = {"at_least_one": FLAG, "stop_after_first": FLAG}

FORMATS: Mapping[str, Shape] = {
    "any_text": Shape({}, {"excludes": FILLED_TEXTS, "max_tokens": LIMIT, "max_chars": LIMIT}),
    "any_tokens": Shape({}, {"exclude_tokens": TOKENS, "max_tokens": LIMIT}),
    "const_string": Shape({"value": TEXT}, {}),
    "dispatch": Shape({"rules": RULES}, {"loop": FLAG, "excludes": FILLED_TEXTS}),
    "exclude_token": Shape({}, {"exclude_tokens": TOKENS}),
    "grammar": Shape({"grammar": TEXT}, {"syntax": SYNTAX}),
    "json_schema": Shape(
        {"json_schema": SCHEMA},
        {"style": TEXT, "any_order": FLAG, "max_whitespace_cnt": LIMIT, "excludes": FILLED_TEXTS},
    ),
    "optional": Shape({"content": FORMAT}, {}),
    "or": Shape({"elements": ELEMENTS}, {}),
    "plus": Shape({"content": FORMAT}, {}),
    "qwen_xml_parameter": Shape({"json_schema": SCHEMA}, {}),
    "regex": Shape({"pattern": TEXT}, {}),
    "repeat": Shape({"min": COUNT, "max": BOUND, "content": FORMAT}, {}),
    "sequence": Shape({"elements": ELEMENTS}, {}),
    "star": Shape({"content": FORMAT}, {}),
    "tag": Shape({"begin": BEGIN, "content": FORMAT, "end": END}, {}),
    "tags_with_separator": Shape({"tags": TAGS, "separator": TEXT}, _TIMES),
    "token": Shape({"token": TOKEN}, {}),
    "token_dispatch": Shape({"rules": TOKEN_RULES}, {"loop": FLAG, "exclude_tokens": TOKENS}),
    "token_triggered_tags": Shape(
        {"trigger_tokens": TRIGGER_TOKENS, "tags": TAGS}, {"exclude_tokens": TOKENS, **_TIMES}
    ),
    "triggered_tags": Shape({"triggers": TRIGGERS, "tags": TAGS}, {"excludes": FILLED_TEXTS, **_TIMES}),
}
"""Every type of format."""


def check_format(value: JSON, pointer: str) -> None:
    """Raise unless a format, and every format inside it, has the members of its type and no others.

    Raises:
        SpecError: with the JSON pointer and the member at fault.
    """
    pending: list[tuple[str, JSON, str | None, int]] = [(pointer, value, None, 1)]
    while pending:
        at, node, implied, depth = pending.pop()
        if depth > MAX_NESTING:
            raise SpecError(f"structural_tag: formats are nested more than {MAX_NESTING} deep", pointer=at)
        shape = _shape_of(node, implied, at)
        for name, member in _members_of(node, shape, at):
            below = member.formats(node[name])
            pending += [(f"{at}/{name}{place}", inner, type_, depth + 1) for place, inner, type_ in below]


def check_members(node: Mapping[str, JSON], known: Iterable[str], at: str) -> None:
    """Raise for a member that has no meaning: what it was meant to say would be left out."""
    for name in node:
        if name not in known:
            _fail(f"{at}/{escape(name)}", name, f"there is no member {shown(name)} here", _nearest(name, known))


def _shape_of(node: JSON, implied: str | None, at: str) -> Shape:
    if not isinstance(node, dict):
        raise SpecError(f"structural_tag: a format is an object, not {json_type(node)}", pointer=at, keyword="format")
    name = node.get("type", implied)
    if isinstance(name, str) and name in FORMATS:
        return FORMATS[name]
    if name is None:
        hint = f"Types: {', '.join(FORMATS)}"
        raise SpecError("structural_tag: a format without a type", pointer=at, keyword="type", hint=hint)
    return _fail(f"{at}/type", "type", f"there is no type {shown(name)}", _nearest(name, FORMATS))


def _members_of(node: Mapping[str, JSON], shape: Shape, at: str) -> Iterator[tuple[str, Member]]:
    """The members that a node has, each found to be what it should."""
    for name in shape.needed:
        if name not in node:
            _fail(at, name, f"the format lacks {name}")
    known = {**shape.needed, **shape.optional}
    check_members(node, ("type", *known), at)
    for name, value in node.items():
        if name == "type":
            continue
        if not known[name].fits(value):
            _fail(f"{at}/{name}", name, f"{name} must be {known[name].words}, not {shown(value)}")
        yield name, known[name]
    _check_relations(node, at)


def _check_relations(node: Mapping[str, JSON], at: str) -> None:
    """What the members of one format must be to each other."""
    if node.get("type") == "repeat" and -1 < node["max"] < node["min"]:
        _fail(f"{at}/max", "max", "max is smaller than min")
    if node.get("type") == "triggered_tags":
        for index, tag in enumerate(node["tags"]):
            begin = tag.get("begin")
            if isinstance(begin, str) and not any(begin.startswith(trigger) for trigger in node["triggers"]):
                reason = f"begin {shown(begin)} starts with none of the triggers {shown(node['triggers'])}"
                _fail(f"{at}/tags/{index}/begin", "begin", reason)


def _fail(pointer: str, keyword: str, wrong: str, hint: str | None = None) -> NoReturn:
    raise SpecError(f"structural_tag: {wrong}", pointer=pointer, keyword=keyword, hint=hint)


def _nearest(name: object, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(str(name)[:50], list(known), n=1)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(known)}"
