"""Probes about the named checks of `grammar_backends.selection.checks`, and the settings that they decide between.

`LADDERS` says which settings a check can have, from least to most strict. A check is switched on, with the first
setting that refuses every probe about it which the engine does not enforce; see `derivation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from grammar_backends_conformance.corpora.reading import Case, CaseText
from grammar_backends_conformance.probing.keywords import CLOSED, DRAFT_7, FEW, FRAGMENTS, VALUES
from grammar_backends_conformance.probing.probe import Probe, Text, about_schema

__all__ = ["CHOICES", "LADDERS", "Choice", "check_probes"]

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """A setting that is a set of keywords, each decided by probes of its own.

    Attributes:
        setting: its name.
        keywords: those that are probed.
        allowing: True when a check names what is allowed, so that an absent setting means all of them; False when it
            names what is not.
        by_itself: whether a keyword may be allowed there that is enforced nowhere else.
    """

    setting: str
    keywords: tuple[str, ...]
    allowing: bool
    by_itself: bool = False


LADDERS: Mapping[str, Mapping[str, Sequence[Settings]]] = {
    "allof-branches": {"": [{"most": 2}, {"most": 1}]},
    "boolean-bounds": {"": [{}]},
    "closed": {"": [{}]},
    "closed-shapes": {"": [{}]},
    "counted-properties": {"": [{}]},
    "depth": {"": [{"most": most} for most in range(60, 1, -1)]},
    "enum-containers": {"": [{}]},
    "enum-integers": {
        "": [{"below": 2**64}, {"below": 2**63}, {"below": 2**53 + 1}, {"below": 2**53}, {"below": 2**31}]
    },
    "enum-numbers": {"": [{}], "digits": [{"digits": 15}, {}]},
    "enum-type-conflict": {"": [{}]},
    "unevaluated": {
        "": [{}],
        "false-items": [{"not": {"unevaluatedItems": [False]}}],
        "false-properties": [{"not": {"unevaluatedProperties": [False]}}],
    },
    "false-schema": {},
    "bounds": {
        "whole": [{"whole": True}],
        "below": [{"below": 2**64}, {"bits": 64}, {"below": 2**63 - 1}, {"below": 2**53}, {"below": 2**31}],
        "exclusive": [{"exclusive_below": below} for below in (2**33, 2**20)],
        "digits": [{"digits": most} for most in (16, 15, 12)],
        "numbers": [{"numbers_below": below} for below in (2**64, 2**63, 2**53 + 1, 2**53, 2**31)],
    },
    "crossed-counts": {"": [{}]},
    "large-counts": {
        unit: [{unit: below} for below in (2**64, 2**63, 2**32, 2**31)] for unit in ("items", "length", "properties")
    },
    "list-items": {"": [{}]},
    "number-bounds": {"": [{}]},
    "oneof-disjoint": {"": [{}]},
    "open-names": {"": [{"printable": True}, {}]},
    "pattern": {
        "reading": [{"no_looks": True}, {"dialect": True}],
        "options": [{"options_apart": True}],
        "anchored": [{"anchored": True}],
        "outer-anchors": [{"outer_anchors": True}],
        "plain": [{"plain": "keys"}, {"plain": True}],
    },
    "pattern-properties": {
        "reading": [{"no_looks": True}, {"dialect": True}],
        "options": [{"options_apart": True}],
        "anchored": [{"anchored": True}],
        "outer-anchors": [{"outer_anchors": True}],
        "plain": [{"plain": "keys"}, {"plain": True}],
        "closed": [{"closed": True}],
        "apart": [{"apart": True}],
        "overlap": [{}],
    },
    "merged-patterns": {"": [{}]},  # of those that may stand in one schema
    "prefix-items": {"": [{}]},
    "property-names": {
        "": [{}],
        "reading": [{"no_looks": True}, {"dialect": True}],
        "options": [{"options_apart": True}],
        "anchored": [{"anchored": True}],
        "outer-anchors": [{"outer_anchors": True}],
        "plain": [{"plain": "keys"}, {"plain": True}],
    },
    "refs": {
        "": [{}],
        "pointers-only": [{"pointers_only": True}],
        "recursion": [{"recursion": False}],
    },
    "merged-recursion": {"": [{}]},
    "required-needs-properties": {"": [{}]},
    "root-boolean": {"": [{}]},
    "steps": {
        "": [{"whole": True}],
        "short-fractions": [{"short_fractions": True}, {"whole": True}],
        "alone": [{"alone": True}],
        "decimals": [{"decimals": most} for most in (12, 8, 3)],
        "large": [{"most": most} for most in (10**8, 10**5, 2**10, 10**2)],
    },
    "typeless-constraints": {"": [{}]},
    "whole-counts": {"": [{}]},
}
"""Per check and kind of fault, the settings that may be needed, from least to most strict."""

ALWAYS: Mapping[str, str] = {"property-names": "propertyNames", "refs": "$ref"}
"""Checks that every engine needs which has this keyword: they also say how it is read."""

CHOICES: Mapping[str, Sequence[Choice]] = {
    "false-schema": [
        Choice(
            "allowed",
            (
                "additionalProperties",
                "anyOf",
                "items",
                "oneOf",
                "patternProperties",
                "prefixItems",
                "properties",
                "unevaluatedItems",
                "unevaluatedProperties",
            ),
            allowing=True,
        )
    ],
    "property-names": [
        Choice("allowed", ("const", "enum", "maxLength", "minLength", "pattern"), allowing=True, by_itself=True),
        Choice(
            "not_beside",
            ("maxProperties", "minProperties", "patternProperties", "properties", "required", "unevaluatedProperties"),
            allowing=False,
        ),
    ],
    "typeless-constraints": [
        Choice(
            "naming",
            (
                "additionalProperties",
                "items",
                "patternProperties",
                "prefixItems",
                "properties",
                "required",
                "unevaluatedItems",
                "unevaluatedProperties",
            ),
            allowing=False,
        )
    ],
}

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
A = {"properties": {"a": INTEGER}}
A_AND_B = {"properties": {"a": INTEGER, "b": STRING}}
NAMES: Sequence[Any] = (
    *({"a": 1}, {"a": "s"}, {}, {"b": 1}, {"b": "s"}, {"a": 1, "b": 1}, {"a": 1, "b": "s"}, {"a": 1, "z": "s"}),
    *({"ab": 1}, {"ab": "s"}, {"x1": 1}, {"x1": "s"}, {"x1": 1, "x2": 2}, {"a": 1, "x1": 1}, {"a1": 1}, {"abc": 1}),
    *({"é": 1}, {"A": 1}, {"": 1}, {"a b": 1}, 1, None, "a", []),
)


COUNTED: Sequence[tuple[str, str, Sequence[Any]]] = (
    ("array", "Items", ([], [1])),
    ("string", "Length", ("", "a")),
    ("object", "Properties", ({}, {"a": 1})),
)
"""Kinds of values that have a count, how its keywords end, and values with a small one."""


def _objects(*fragments: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "object", **fragment} for fragment in fragments]


def _strings(*patterns: str) -> list[dict[str, Any]]:
    return [{"type": "string", "pattern": pattern} for pattern in patterns]


def _patterned(*patterns: str) -> list[dict[str, Any]]:
    return _objects(*({"patternProperties": {pattern: INTEGER}, **CLOSED} for pattern in patterns))


def _named(*patterns: str) -> list[dict[str, Any]]:
    return _objects(*({"propertyNames": {"pattern": pattern}, "additionalProperties": INTEGER} for pattern in patterns))


_READING = ("^(?=a)[a-z]+$", "^[a-z]+(?<!b)$", "^(a)\\1$", "^a\\b.*$", "^(?!ab)[a-z]*$")
"""What no regular language can say, or only at a price."""
_FLAGS = ("^(?i:ab)$", "^\\p{Lu}$", "^\\cJ$")
_OPTIONAL = ("^(a[b-z]*)?$", "^(?:ba+)?b$", "^a(ba*)?(b[a-z]{1,3})?$", "^((b|z)*a)?b*$")
_OPTIONS = ("^(?:a|a{1,2})$", "^b(?:a|a{1,2})$", "^(?:[ab]{1,2}|[ab])$", "^(?:a{0,2}|b|a)$", "^(a{1,2}|a)(b{1,2}|b)$")
_UNANCHORED = ("ab", "^ab", "ab$", "[0-9]", "^ab|z$")
_INNER = ("^a$|^ab$", "(^a|^b)1$", "^(a$|ab$)")
_KEYS = ("^.*$", "^[^a]+$", "^.b$", "^[^0-9]*$", "^\\D+$")
_PLAIN = ('^"$', "^[\\\\a]$", '^["a]+$', "^\\n$", "^[\\x00-\\x7f]+$", "^\\s$", '^a"b$')
TEXTS: Sequence[Any] = (
    *VALUES["string"],
    "a",
    "ab",
    "zab",
    "abz",
    "aba",
    "bab",
    "aa",
    "aaa",
    "baaa",
    "aabbb",
    "zz",
    "0",
    "a0b",
    "aa",
    "aab",
    "b1",
    "a1",
    "AB",
    "aB",
    "cb",
    "\n",
    "\t",
    "\\",
    "\\a",
    "a\\",
    'a"b',
    '"a"',
    " ",
    "a\nb",
    "é0",
)


# Python's own dollar also stands before a last newline; whatever goes by it would disagree about such names.
_AS_NAMES = (*NAMES, *({text: 1} for text in TEXTS if type(text) is str and not text.endswith("\n")))


def _integers(*around: int) -> list[Any]:
    return [number + step for number in around for step in (-2, -1, 0, 1, 2)]


def _nested(levels: int, kind: str) -> tuple[Any, Any]:
    """A schema that many levels deep, and a value of it."""
    schema: Any = INTEGER
    value: Any = 1
    for _ in range(levels):
        if kind == "object":
            schema, value = {"type": "object", "properties": {"a": schema}, "required": ["a"], **CLOSED}, {"a": value}
        else:
            schema, value = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1}, [value]
    return schema, value


def _wrong(value: Any) -> Any:
    """The same value with another one in its middle."""
    if isinstance(value, dict):
        return {"a": _wrong(value["a"])}
    return [_wrong(value[0])] if isinstance(value, list) else "s"


def _stepped(text: str, step: int) -> str:
    """A number that is so many units in its last place away."""
    number = Decimal(text)
    return format(number + step * Decimal(1).scaleb(int(number.as_tuple().exponent)), "f")


def check_probes() -> Iterator[Probe]:
    """Every probe about a check, under ``checks/CHECK/FAULT`` or ``checks/CHECK/SETTING/KEYWORD``."""
    yield from _combining()
    yield from _members()
    yield from _numbers()
    yield from _precision()
    yield from _patterns()
    yield from _object_checks()
    yield from _array_checks()
    yield from _shapes()
    yield from _references()


def _combining() -> Iterator[Probe]:
    branches = [
        {"allOf": [INTEGER, {"type": "integer", "minimum": 3}]},
        {"allOf": [{"type": "string", "minLength": 2}, {"type": "string", "maxLength": 2}]},
        {"allOf": [{"type": "object", **A_AND_B}, {"type": "object", **A_AND_B, "required": ["b"]}]},
        {"allOf": [{"type": "array", "items": INTEGER}, {"type": "array", "minItems": 2}]},
        {"allOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}, INTEGER]},
    ]
    yield from about_schema("checks/allof-branches", branches, FEW)
    overlapping = [
        {"oneOf": [INTEGER, {"type": "number"}]},
        {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]},
        {"oneOf": [{"type": "string", "minLength": 2}, {"type": "string", "maxLength": 3}]},
        {"oneOf": [{"type": "object", **A}, {"type": "object", "properties": {"b": STRING}}]},
        {"oneOf": [{"type": "object", **A_AND_B, "required": [name], **CLOSED} for name in "ab"]},
        {"oneOf": [{"enum": ["a", "s"]}, {"enum": ["s", "é"]}]},
        {"oneOf": [{"type": "array", "items": INTEGER}, {"type": "array", "items": STRING}]},
    ]
    yield from about_schema("checks/oneof-disjoint", overlapping, (*FEW, {"b": "s"}, {"a": 1, "b": "s"}))


def _members() -> Iterator[Probe]:
    containers = [
        {"enum": [{"a": 1, "b": [1, 2]}, 7]},
        {"const": [1, 2]},
        {"const": {"a": "s"}},
        {"enum": [[1], ["a"]]},
    ]
    spaced = ('{"a":1,"b":[1,2]}', '{ "a" : 1, "b": [ 1, 2 ] }', "[ 1 , 2 ]", "[1,2]", '{"a":\n"s"}', "[ 1 ]", '["a" ]')
    values = (*FEW, {"a": 1, "b": [1, 2]}, [1, 2], *map(Text, spaced))
    yield from about_schema("checks/enum-containers", containers, values)
    conflicts = [
        {"type": "string", "enum": ["a", 1, None]},
        {"type": "integer", "enum": ["a", 1, 2]},
        {"type": "string", "enum": ["a", "abcd"], "minLength": 2},
        {"type": "integer", "enum": [1, 100], "maximum": 5},
        {"type": "string", "enum": ["a", "A"], "pattern": "^[a-z]+$"},
        {"enum": ["a", "s", 1], "const": "s"},
        {"type": ["string", "null"], "enum": ["a", 1, None]},
    ]
    yield from about_schema("checks/enum-type-conflict", conflicts, FEW)
    typed = [
        {"type": "string", "enum": ["a", "é", ""]},
        {"type": "integer", "enum": [1, 100]},
        {"type": "integer", "const": 7},
        {"type": ["string", "null"], "enum": ["a", None]},
        {"type": "string", "const": "abcd"},
    ]
    yield from about_schema("combined/type", typed, FEW)
    edges = (2**31, 2**53, 2**63, 2**64)
    numbers = _integers(*edges, *(-edge for edge in edges))
    for edge in edges:
        for number in (edge - 1, edge, edge + 1, -edge, -edge - 1):
            schemas = [{"enum": [number, "a"]}, {"const": number}]
            yield from about_schema(f"checks/enum-integers#{number}", schemas, (*numbers, "a", 1))
    fractions = [{"enum": [1.5, 0.25, -2.5]}, {"const": 0.1}, {"enum": [1e-7, 2.5e10, "a"]}]
    yield from about_schema("checks/enum-numbers", fractions, (*FEW, 1.5, 0.25, -2.5, 0.1, 0.25e3, 2.5, 1.51))


def _numbers() -> Iterator[Probe]:
    around = _integers(2**31, 2**53, 2**63, 2**64, -(2**31), -(2**53), -(2**63), -(2**64), 0, 10**15, -(10**15))
    for edge in (2**31, 2**53, 2**63, 2**64):
        for bound in (edge - 2, edge - 1, edge, edge + 1):
            limits = [
                {"maximum": bound},
                {"minimum": bound},
                {"exclusiveMinimum": bound, "maximum": bound + 2},
                {"minimum": -bound},
                {"exclusiveMaximum": -bound},
            ]
            for kind, fault in (("integer", "below"), ("number", "numbers")):
                schemas = [{"type": kind, **limit} for limit in limits]
                yield from about_schema(f"checks/bounds/{fault}#{bound}", schemas, around)
    whole = [{"type": "integer", keyword: bound} for keyword in ("minimum", "maximum") for bound in (2.5, -0.5, 2.0)]
    whole += [
        {"type": "integer", keyword: bound}
        for keyword in ("exclusiveMinimum", "exclusiveMaximum")
        for bound in (2.5, 2.0)
    ]
    yield from about_schema("checks/bounds/whole", whole, VALUES["integer"])
    narrow = [
        {"type": "number", "exclusiveMinimum": 1, "maximum": 1.5},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.25},
        {"type": "number", "minimum": -2.5, "exclusiveMaximum": -2},
        {"allOf": [{"type": "number", "exclusiveMinimum": 1}, {"maximum": 1.5}]},
    ]
    yield from about_schema("checks/number-bounds", narrow, (*VALUES["number"], 0, 0.125, 1, 1.25, -2, -2.25))
    draft_4 = "http://json-schema.org/draft-04/schema#"
    booleans = [
        {"$schema": draft_4, "type": "integer", "minimum": 3, "exclusiveMinimum": True},
        {"$schema": draft_4, "type": "number", "maximum": 5, "exclusiveMaximum": True},
    ]
    yield from about_schema("checks/boolean-bounds", booleans, VALUES["number"])
    yield from about_schema(
        "checks/steps",
        [{"type": kind, "multipleOf": step} for kind in ("integer", "number") for step in (0.5, 0.1, 2.5, 0.01, 1.5)],
        (*VALUES["number"], 0.1, 0.3, 0.7, 2.01, 0.25, 1.23, 7.5),
    )
    steps = (0.25, 0.75, 0.15, 0.002, 0.12, 1.25)
    yield from about_schema(
        "checks/steps/short-fractions",
        [{"type": "number", "multipleOf": step} for step in steps],
        [*VALUES["number"], *(number * step for step in steps for number in (1, 2, 4, 10, 100)), 0.13, 0.001],
    )
    bounds = (
        {"minimum": 3},
        {"maximum": 6},
        {"exclusiveMinimum": 2},
        {"exclusiveMaximum": 8},
        {"minimum": -7, "maximum": 8},
    )
    beside = [{"type": kind, "multipleOf": 2, **bound} for kind in ("integer", "number") for bound in bounds]
    yield from about_schema("checks/steps/alone", beside, VALUES["number"])
    for step in (10**2, 2**10, 2**10 + 1, 10**4, 10**6, 10**8, 10**9, 2**32 - 1, 2**32, 10**30, 99999999.5):
        schemas = [{"type": kind, "multipleOf": step} for kind in ("integer", "number")]
        values = [0, step, 7 * step, -2 * step, step + 1, 7 * step - 1, 1, "a"]
        yield from about_schema(f"checks/steps/large#{step}", schemas, values)
    tiny = [{"type": "integer", "multipleOf": step} for step in (3e-3, 3e-5, 3e-8, 7e-8, 3e-9, 7e-9, 3e-12, 3e-15)]
    yield from about_schema("checks/steps/decimals", tiny, (0, 1, 2, 3, 7, 9, 80, 5990, 5991, 299999, 300000))
    # A prime, so that an engine that has a state for each remainder has them all.
    yield from about_schema("checks/steps/large#prime", [{"type": "integer", "multipleOf": 99_999_989}], (0, 1))
    for count in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64, 10**30):
        for kind, unit, few in COUNTED:
            counted = [
                {"type": [kind, "integer"], **more, f"{end}{unit}": count}
                for end in ("min", "max")
                for more in ({}, {"items": INTEGER})
            ]
            yield from about_schema(f"checks/large-counts/{unit.lower()}#{count}", counted, (*few, 1, None))
    counts = [
        {"type": "string", "minLength": 2.0},
        {"type": "string", "maxLength": 2.0},
        {"type": "array", "items": INTEGER, "minItems": 2.0},
        {"type": "array", "items": INTEGER, "maxItems": 2.0},
        {"type": "object", "minProperties": 1.0},
        {"type": "object", "maxProperties": 1.0},
    ]
    yield from about_schema("checks/whole-counts", counts, (*FEW, *VALUES["array"], {"a": 1, "b": 2}))


def _precision() -> Iterator[Probe]:
    """Bounds and members beyond the digits that doubles have, and those of integers in the notation of doubles."""
    for fraction in (2.5, 4294967296.25, 9735783651.3, 35929671436.784, 184044763914.321, -8683667662.29):
        values = [Text(_stepped(str(fraction), step)) for step in (-2, -1, 0, 1, 2)]
        excluding: list[Any] = [{"type": "number", keyword: fraction} for keyword in BOUNDS[2:]]
        yield from about_schema(f"checks/bounds/exclusive#{fraction}", excluding, (*values, 7, "a"))
    for number in (10**18, -(10**18)):  # written as 1e18, a number of which doubles do not have the next one
        large = [{"type": "integer", keyword: float(number)} for keyword in BOUNDS]
        yield from about_schema(f"checks/bounds/digits#{number}", large, _integers(number))
    # By one in the last place, some readers of JSON make another number of one with 16 digits.
    for precise in (9624366306.418835, 9080325600.347837, 9992335412.853025, 89667980838.08775, 907499572.973506, 0.25):
        text = str(precise)
        texts = (text, *(_stepped(text, step) for step in (-2, -1, 1, 2)))
        bounded: list[Any] = [{"type": "number", keyword: precise} for keyword in BOUNDS]
        yield from about_schema(f"checks/bounds/digits#{precise}", bounded, (*map(Text, texts), 7, "a"))
        listed: list[Any] = [{"const": precise}, {"enum": [[precise], "a"]}]
        spelled = (*texts, *(f"[{each}]" for each in texts))
        yield from about_schema(f"checks/enum-numbers/digits#{precise}", listed, (*map(Text, spelled), 7, "a"))


def _patterns() -> Iterator[Probe]:
    for about, make, values in (
        ("checks/pattern", _strings, TEXTS),
        ("checks/pattern-properties", _patterned, _AS_NAMES),
        ("checks/property-names", _named, _AS_NAMES),
    ):
        yield from about_schema(f"{about}/reading", make(*_READING, *_FLAGS, *_OPTIONAL), values)
        yield from about_schema(f"{about}/options", make(*_OPTIONS), values)
        yield from about_schema(f"{about}/anchored", make(*_UNANCHORED), values)
        yield from about_schema(f"{about}/outer-anchors", make(*_INNER), values)
        yield from about_schema(f"{about}/plain", make(*_PLAIN), values)
        # What is lost of a pattern that merely leaves room for them are names that hardly anybody has.
        usual = [value for value in values if not isinstance(value, dict) or "\\" not in json.dumps(value)]
        yield from about_schema(f"{about}/plain#wide", make(*_KEYS), usual)
    closed = _objects(
        {"patternProperties": {"^x[0-9]$": INTEGER}},
        {"patternProperties": {"^x[0-9]$": INTEGER}, "additionalProperties": STRING},
    )
    yield from about_schema("checks/pattern-properties/closed", closed, NAMES)
    apart = _objects(
        {**A, "patternProperties": {"^[a-z]+$": STRING}, **CLOSED},
        {**A_AND_B, "patternProperties": {"^b$": {"minLength": 2}}, **CLOSED},
    )
    yield from about_schema("checks/pattern-properties/apart", apart, NAMES)
    large = {"type": "integer", "minimum": 3}
    overlap = _objects({"patternProperties": {"^[a-z]+$": INTEGER, "^a.*$": large}, **CLOSED})
    overlap += _objects({"patternProperties": {"^[a-m]+$": INTEGER, "^[n-z]+$": STRING}, **CLOSED})
    values = (*NAMES, {"ab": 3}, {"ab": 2}, {"b": 0})
    yield from about_schema("checks/pattern-properties/overlap", overlap, values)
    letters, starts, others = _objects(
        {"patternProperties": {"^[a-z]+$": INTEGER}},
        {"patternProperties": {"^a": large}},
        {"patternProperties": {"^0": large}},
    )
    merged = [
        {"allOf": [letters, starts]},
        {"allOf": [letters, others]},
        {**letters, "allOf": [starts]},
        {**letters, "$ref": "#/$defs/starts", "$defs": {"starts": starts}},
        {**letters, "anyOf": [starts, others]},
        {**letters, "oneOf": [starts, STRING]},
        {"anyOf": [letters, starts]},
    ]
    yield from about_schema("checks/merged-patterns", merged, values)


def _object_checks() -> Iterator[Probe]:
    yield from about_schema(
        "checks/required-needs-properties",
        _objects(
            {"required": ["a"]},
            {"required": ["z"], **A},
            {"additionalProperties": INTEGER, "required": ["a"]},
        ),
        NAMES,
    )
    # Closed, such an object has no value at all, which is seen before an engine is asked; in an array it may be absent.
    closed = _objects({"required": ["z"], **A, **CLOSED}, {"required": ["a", "z"], **A, **CLOSED})
    lists = [{"type": "array", "items": schema} for schema in closed]
    yield from about_schema("checks/required-needs-properties#absent", lists, [[], *([value] for value in NAMES)])
    counted: list[dict[str, Any]] = [
        {**A_AND_B, **CLOSED, "minProperties": 1},
        {**A_AND_B, "maxProperties": 1},
        {**A_AND_B, "minProperties": 2},
        {**A_AND_B, **CLOSED, "maxProperties": 1},
        {**A_AND_B, "required": ["a"], "minProperties": 2},
        {**A_AND_B, **CLOSED, "minProperties": 1, "maxProperties": 1},
        {**A_AND_B, "minProperties": 1},
    ]
    yield from about_schema("checks/counted-properties", _objects(*counted), NAMES)
    plain = ('"', "\\", "é", "日本", "a/b", "'")
    spelled = (
        '{"\\u0061": "s"}',
        '{"\\u0022": "s"}',
        '{"\\"": 1}',
        '{"\\"": "s"}',
        '{"\\\\": "s"}',
        '{"é": "s"}',
        '{"日本": "s"}',
        '{"\\u00e9": "s"}',
        '{"é": 1}',
        '{"a/b": "s"}',
        '{"a\\/b": "s"}',
        '{"日本": 1}',
    )
    open_names = [*map(Text, spelled), *({name: value} for name in plain for value in (1, "s")), {"z": "s"}, {}]
    named = _objects(*({"properties": {name: INTEGER}} for name in plain))
    yield from about_schema("checks/open-names", named, open_names)
    controls = ("\n", "a\tb", "\x01")
    named = _objects(*({"properties": {name: INTEGER}} for name in controls))
    controlled = ('{"\\u000a": "s"}', '{"a\\u0009b": "s"}', '{"\\u0001": "s"}')
    texts = [*({name: value} for name in controls for value in (1, "s")), *map(Text, controlled)]
    yield from about_schema("checks/open-names#control", named, texts)
    for keyword, names in {
        "pattern": {"pattern": "^[a-z]+$"},
        "minLength": {"minLength": 2},
        "maxLength": {"maxLength": 1},
        "const": {"const": "a"},
        "enum": {"enum": ["a", "x1"]},
    }.items():
        naming = _objects({"propertyNames": names}, {"propertyNames": names, "additionalProperties": INTEGER})
        yield from about_schema(f"checks/property-names/allowed/{keyword}", naming, NAMES)
    lower = {"propertyNames": {"pattern": "^[a-z]$"}}
    others: Mapping[str, Mapping[str, Any]] = {
        "properties": A_AND_B,
        "required": {"required": ["a"]},
        "patternProperties": {"patternProperties": {"^x[0-9]$": INTEGER}},
        "unevaluatedProperties": {"unevaluatedProperties": False, **A_AND_B},
        "minProperties": {"minProperties": 2},
        "maxProperties": {"maxProperties": 1},
    }
    for keyword, beside in others.items():
        yield from about_schema(f"checks/property-names/not_beside/{keyword}", _objects({**lower, **beside}), NAMES)
    odd = _objects(
        {"propertyNames": {"minLength": 2, "maxLength": 2}},
        {"propertyNames": False},
        {"propertyNames": {"type": ["string", "null"], "maxLength": 1}},
        {"propertyNames": {"enum": ["a", 1]}},
        {**lower, **CLOSED},
    )
    yield from about_schema("checks/property-names", odd, NAMES)
    around: list[dict[str, Any]] = [
        {"allOf": [A], "unevaluatedProperties": False},
        {"anyOf": [A, {"properties": {"b": STRING}}], "unevaluatedProperties": False},
        {"$ref": "#/$defs/a", "$defs": {"a": A}, "unevaluatedProperties": False},
    ]
    yield from about_schema("checks/unevaluated", _objects(*around), NAMES)
    closing: list[dict[str, Any]] = [{**A_AND_B, "unevaluatedProperties": False}, {"unevaluatedProperties": False}]
    yield from about_schema("checks/unevaluated/false-properties", _objects(*closing), NAMES)


_NO_COUNTS = ((1, 0), (2, 0), (2, 1), (3, 1))
_COUNTED: Sequence[tuple[str, dict[str, Any], Sequence[Any]]] = (
    ("Items", {"type": "array", "items": INTEGER}, [[1] * count for count in range(4)]),
    ("Length", {"type": "string"}, ["a" * count for count in range(4)]),
    ("Properties", {"type": "object"}, [dict.fromkeys("abc"[:count], 1) for count in range(4)]),
)
"""What is counted: a schema, and values with 0 to 3."""


def _array_checks() -> Iterator[Probe]:
    listed = [{"$schema": DRAFT_7, "type": "array", "items": [INTEGER, STRING]}]
    yield from about_schema("checks/list-items", listed, VALUES["array"])
    prefixed: list[dict[str, Any]] = [
        {"prefixItems": [INTEGER, True]},
        {"prefixItems": [INTEGER, STRING], "maxItems": 1},
        {"prefixItems": [True], "items": INTEGER},
    ]
    yield from about_schema("checks/prefix-items", [{"type": "array", **each} for each in prefixed], VALUES["array"])
    # Such a schema has no value, so that it has to be one of something that may be absent.
    for unit, schema, values in _COUNTED:
        counts = [{**schema, f"min{unit}": least, f"max{unit}": most} for least, most in _NO_COUNTS]
        lists = [{"type": "array", "items": each} for each in counts]
        yield from about_schema(f"checks/crossed-counts#{unit}", lists, [[], *([value] for value in values), [None]])
    around: list[dict[str, Any]] = [
        {"allOf": [{"prefixItems": [INTEGER]}], "unevaluatedItems": False},
        {"contains": STRING, "unevaluatedItems": INTEGER},
    ]
    yield from about_schema("checks/unevaluated#array", [{"type": "array", **each} for each in around], VALUES["array"])
    closing: list[dict[str, Any]] = [{"prefixItems": [INTEGER], "unevaluatedItems": False}, {"unevaluatedItems": False}]
    yield from about_schema(
        "checks/unevaluated/false-items", [{"type": "array", **each} for each in closing], VALUES["array"]
    )


def _shapes() -> Iterator[Probe]:
    anything = [
        {},
        {"type": "array"},
        {"type": "object"},
        {"type": "object", **A},
        {"type": "object", "additionalProperties": INTEGER},
        {"type": "array", "minItems": 1},
        {"type": "object", "properties": {}, **CLOSED},
        {"type": ["array", "null"]},
        {"description": "any"},
    ]
    yield from about_schema("checks/closed-shapes", anything, (*FEW, *NAMES, Text("[1"), Text("{"), Text("nul")))
    yield from about_schema("checks/root-boolean", [True], (*FEW, Text("[1"), Text("tru")))
    typeless = [
        *(
            dict(keywords[keyword][0])
            for name, keywords in FRAGMENTS.items()
            for keyword in keywords
            if keyword != "format"
        ),
        {"format": "email"},
        {"format": "date"},
        {"format": "uuid"},
    ]
    yield from about_schema(
        "checks/typeless-constraints", typeless, (*FEW, *VALUES["object"][:27], "2024-02-29", "a@b.co")
    )
    naming = {
        "additionalProperties": True,
        "items": True,
        "patternProperties": {},
        "prefixItems": [],
        "properties": {},
        "required": [],
        "unevaluatedItems": True,
        "unevaluatedProperties": True,
    }
    for keyword, nothing in naming.items():
        yield from about_schema(
            f"checks/typeless-constraints/naming/{keyword}", [{keyword: nothing}], (*FEW, Text("[1"))
        )
    for keyword, schema in _FALSE.items():
        yield from about_schema(f"checks/false-schema/allowed/{keyword}", [schema], (*FEW, *NAMES))
    option = {"additional_properties": "closed"}
    closed = [
        {"type": "array", "minItems": 1},
        {"type": "array", "maxItems": 1},
        {"type": "array", "prefixItems": [INTEGER]},
        {"type": "object"},
        {"type": "object", "minProperties": 1},
        {"type": "object", "maxProperties": 1},
        {"type": "object", **A},
        {"type": "object", "properties": {}},
        {"type": "object", **A, "required": ["a"]},
        {"type": "object", "additionalProperties": True, **A},
        {"type": "array", "items": INTEGER, "minItems": 1},
    ]
    yield from about_schema("checks/closed", closed, (*FEW, *NAMES), **option)
    for levels in (*range(2, 9), 10, 12, 16, 20, 24, 28, *range(30, 35), 40, 48, 56, 60):
        for kind in ("object", "array"):
            schema, value = _nested(levels, kind)
            yield from about_schema(f"checks/depth#{levels}{kind}", [schema], [value, _wrong(value), 1])


_FALSE: Mapping[str, Any] = {
    "additionalProperties": {"type": "object", **A, **CLOSED},
    "anyOf": {"anyOf": [INTEGER, False]},
    "items": {"type": "array", "items": False},
    "oneOf": {"oneOf": [INTEGER, False]},
    "patternProperties": {"type": "object", "patternProperties": {"^x[0-9]$": False}, **A, **CLOSED},
    "prefixItems": {"type": "array", "prefixItems": [INTEGER, False]},
    "properties": {"type": "object", "properties": {"a": False, "b": STRING}, **CLOSED},
    "unevaluatedItems": {"type": "array", "prefixItems": [INTEGER], "unevaluatedItems": False},
    "unevaluatedProperties": {"type": "object", **A, "unevaluatedProperties": False},
}


def _references() -> Iterator[Probe]:
    remote = [
        {"$ref": "https://example.com/other.json"},
        {"type": "object", "properties": {"a": {"$ref": "other.json#/$defs/a"}}, **CLOSED},
    ]
    for number, schema in enumerate(remote):
        # Nobody can follow them, so that no answer is right.
        tests = (CaseText(True, "1"), CaseText(False, "1"))
        yield Probe("checks/refs", Case(f"checks/refs#{number}", "json_schema", schema, tests))
    others = [
        {"$ref": "#i", "$defs": {"x": {"$anchor": "i", **INTEGER}}},
        {"$id": "https://example.com/s", "$ref": "https://example.com/s#/$defs/i", "$defs": {"i": INTEGER}},
        {"$id": "https://example.com/s", "$ref": "t", "$defs": {"t": {"$id": "t", **INTEGER}}},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/n"}},
            **CLOSED,
            "$defs": {"n": {"$id": "n", "$ref": "#/$defs/i", "$defs": {"i": INTEGER}}, "i": STRING},
        },
        {"$schema": DRAFT_7, "$ref": "#i", "definitions": {"x": {"$id": "#i", **INTEGER}}},
    ]
    yield from about_schema("checks/refs/pointers-only", others, FEW)
    # What these drafts ignore beside a reference must not come to count.
    beside = ({"minimum": 3}, {"enum": ["x"]}, {"properties": {"a": STRING}}, {"type": "object", "required": ["b"]})
    ignored = [
        {"$schema": DRAFT_7, "$ref": "#/definitions/i", **each, "definitions": {"i": INTEGER}} for each in beside
    ]
    ignored += [
        {"$schema": DRAFT_7, "$ref": "#/definitions/o", **each, "definitions": {"o": {"type": "object", **A, **CLOSED}}}
        for each in beside
    ]
    yield from about_schema("checks/refs#ignored", ignored, FEW)
    recursive = [
        {"type": "array", "items": {"$ref": "#"}},
        {
            "$ref": "#/$defs/t",
            "$defs": {"t": {"type": "object", "properties": {"a": {"$ref": "#/$defs/t"}, "b": STRING}, **CLOSED}},
        },
        {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#"}}]},
    ]
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    chain: Any = {"b": "s"}
    for _ in range(40):
        chain = {"a": chain}
    yield from about_schema("checks/refs/recursion", recursive, (*FEW, deep, chain, _wrong_end(chain), [[1], [[2]]]))
    node = {"$ref": "#/$defs/n"}
    merged = [
        {**node, **root, "$defs": {"n": {"type": "object", "properties": {"a": below, "b": STRING}}}}
        for root, below in (
            ({}, {**node, "required": ["b"]}),
            ({}, {**node, "type": "object"}),
            ({}, {"allOf": [node], "required": ["b"]}),
            ({}, {"allOf": [node, {"type": "object", "required": ["b"]}]}),
            ({}, {"anyOf": [node, NULL], "type": ["object", "null"]}),
            ({}, {"anyOf": [node, NULL]}),
            ({}, {"allOf": [node]}),
            ({"required": ["b"]}, node),
        )
    ]
    nodes = [{}, {"b": "s"}, {"a": {}}, {"a": {"b": "s"}}, {"a": {"b": 1}}, {"a": None}, {"a": 1}, {"a": {}, "b": "s"}]
    yield from about_schema("checks/merged-recursion", merged, nodes)


def _wrong_end(value: Any) -> Any:
    return {"a": _wrong_end(value["a"])} if "a" in value else {"b": 1}
