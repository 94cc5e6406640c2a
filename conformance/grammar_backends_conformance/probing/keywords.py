"""Probes about keywords: each with each type that it concerns, alone, beside every other one, and across combinators.

A keyword is probed in `FRAGMENTS`: schemas in the plainest form that it has, so that a table lists it as soon as an
engine enforces that form; what else may go wrong is the business of `grammar_backends_conformance.probing.checks`. The
texts are the same for every keyword of a type, and the oracle judges them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from grammar_backends import GrammarOptions
from grammar_backends_conformance.oracles import schema_valid
from grammar_backends_conformance.probing.probe import Probe, Text, about_schema, written

__all__ = ["COMBINED", "FRAGMENTS", "VALUES", "core_probes", "pair_probes", "sibling_probes"]

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

_OTHERS: Sequence[Any] = (None, True, 7, 7.5, "abc", [], [7], {}, {"b": "s"})
"""One value of each type, which a schema of another type forbids."""

VALUES: Mapping[str, Sequence[Any]] = {
    "string": (
        *(
            "",
            "a",
            "b",
            "ab",
            "abc",
            "abcd",
            "A",
            "a1",
            "é",
            "éé",
            "ééé",
            "😀",
            "😀😀",
            "\n\n\n",
            '"',
            '""',
            "\\\\",
            "a b",
        ),
        *("a@b.co", "ab.cd@ef.org", "2024-02-29", "2023-02-29", "12ab34cd-0000-4000-8000-00aa11bb22cc", "PT5M"),
        *("aaab34cd-0000-4000-8000-00aa11bb22cc", "1@b.co"),
        *(Text('"\\u0061"'), Text('"\\u00e9\\u00E9"'), Text('"\\/"'), Text('"a'), Text('"a\n"')),
        *_OTHERS,
    ),
    "integer": (
        *(-(10**12), -100, -7, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 36, 99, 100, 101, 10**12),
        *(1.5, -0.5, Text("01"), Text("+1"), Text("-"), Text("1."), *_OTHERS),
    ),
    "number": (
        *(-100, -7, -6, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 99, 100, 101, 0.5, -0.5, 1.5, 2.5, 3.5, 5.5, 5.75),
        *(-2.25, 3.01, 5.99, 2.999, 6.001, 1000.5, Text("01"), Text(".5"), Text("1."), Text("1.5."), *_OTHERS),
    ),
    "array": (
        *(list(items) for length in range(4) for items in itertools.product((1, "a"), repeat=length)),
        *([1, 2], [2, 1, 2], [1, 1, 1, 1], ["a", "a", "a", "a"], [None], [[1]], [1.5], [{}], [True, 1], [1, "a", None]),
        *(Text("[1,]"), Text("[1 1]"), Text("[\n1 ,\n2]"), Text("[ ]"), Text("[1"), *_OTHERS),
    ),
    "object": (
        *(
            {name: value for name, value in zip(("a", "b", "x1"), values, strict=True) if value is not None}
            for values in itertools.product((None, 1, "s"), repeat=3)
        ),
        *({"z": 1}, {"z": "s"}, {"a": 1, "z": 1}, {"a": 1, "b": "s", "z": None}, {"x1": 1, "x2": 2}, {"A": 1}, {"": 1}),
        *({"a": None}, {"a": [1]}, {"a": {"a": 1}}, {"ab": 1}, {"a": 1, "b": "s", "x1": 1, "x2": 1}, {"xy": "s"}),
        *(Text('{"a": 1,}'), Text('{"a" 1}'), Text('{ "a" :1 , "b":"s"}'), Text("{ }"), Text('{"a": 1'), *_OTHERS),
    ),
}
"""Per type, the values that every keyword of it is tried on. Names stand in the order in which fragments list them."""

A_AND_B = {"properties": {"a": INTEGER, "b": STRING}}
CLOSED = {"additionalProperties": False}

FRAGMENTS: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "string": {
        "format": [{"format": "uuid"}, {"format": "email"}, {"format": "date"}, {"format": "duration"}],
        "maxLength": [{"maxLength": 2}, {"maxLength": 36}],
        "minLength": [{"minLength": 2}, {"minLength": 4}],
        "pattern": [{"pattern": "^[a-z]+$"}, {"pattern": "^[a-z][0-9a-z@.-]*$"}],
    },
    **{
        name: {
            "exclusiveMaximum": [{"exclusiveMaximum": 6}, {"exclusiveMaximum": 0}],
            "exclusiveMinimum": [{"exclusiveMinimum": 2}, {"exclusiveMinimum": -7}],
            "maximum": [{"maximum": 5}, {"maximum": 100}],
            "minimum": [{"minimum": 3}, {"minimum": -2}],
            "multipleOf": [{"multipleOf": 2}, {"multipleOf": 3}, {"multipleOf": step}],
        }
        for name, step in (("integer", 5), ("number", 0.5))
    },
    "array": {
        "additionalItems": [
            {"$schema": DRAFT_7, "items": [INTEGER], "additionalItems": rest} for rest in (False, STRING)
        ],
        "contains": [{"contains": STRING}],
        "items": [{"items": INTEGER}, {"items": STRING}],
        "maxContains": [{"contains": STRING, "maxContains": 1}],
        "maxItems": [{"items": INTEGER, "maxItems": 2}, {"items": STRING, "maxItems": 1}],
        "minContains": [{"contains": STRING, "minContains": 2}],
        "minItems": [{"items": INTEGER, "minItems": 2}, {"items": STRING, "minItems": 1}],
        "prefixItems": [{"prefixItems": [INTEGER, STRING]}, {"prefixItems": [INTEGER], "items": STRING}],
        "unevaluatedItems": [{"unevaluatedItems": INTEGER}, {"prefixItems": [INTEGER], "unevaluatedItems": STRING}],
        "uniqueItems": [{"items": INTEGER, "uniqueItems": True}],
    },
    "object": {
        "additionalProperties": [{**A_AND_B, **CLOSED}, {"properties": {"b": STRING}, **CLOSED}],
        "dependencies": [{**A_AND_B, "$schema": DRAFT_7, "dependencies": {"a": ["b"]}}],
        "dependentRequired": [{**A_AND_B, "dependentRequired": {"a": ["b"]}}],
        "dependentSchemas": [{**A_AND_B, "dependentSchemas": {"a": {"properties": {"b": {"const": "s"}}, **CLOSED}}}],
        "maxProperties": [{"additionalProperties": INTEGER, "maxProperties": 1}, {"maxProperties": 2}],
        "minProperties": [{"additionalProperties": INTEGER, "minProperties": 2}, {"minProperties": 1}],
        "patternProperties": [{"patternProperties": {"^x[0-9]$": INTEGER}, **CLOSED}],
        "properties": [{**A_AND_B, **CLOSED}, {"properties": {"b": STRING}, **CLOSED}],
        "propertyNames": [{"propertyNames": {"pattern": "^[a-z]$"}}, {"propertyNames": {"enum": ["a", "x1"]}}],
        "required": [{**A_AND_B, **CLOSED, "required": names} for names in (["a"], ["a", "b"], ["b"])],
        "unevaluatedProperties": [{**A_AND_B, "unevaluatedProperties": INTEGER}, {"unevaluatedProperties": INTEGER}],
    },
}
"""Per type and keyword, the plainest schemas that use it."""

COMBINED: Mapping[str, Sequence[Any]] = {
    "$ref": [
        {"$ref": "#/$defs/i", "$defs": {"i": INTEGER}},
        {"type": "array", "items": {"$ref": "#/$defs/s"}, "$defs": {"s": STRING}},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/i"}, "b": {"$ref": "#/$defs/s"}},
            **CLOSED,
            "$defs": {"i": INTEGER, "s": STRING},
        },
        {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": STRING}},
    ],
    "allOf": [{"allOf": [INTEGER]}, {"allOf": [{"type": "object", **A_AND_B, **CLOSED}]}],
    "anyOf": [
        {"anyOf": [INTEGER, STRING]},
        {"anyOf": [{"type": "object", **A_AND_B, **CLOSED}, {"type": "array", "items": INTEGER}]},
        {"anyOf": [{"type": "array", "items": {"anyOf": [INTEGER, {"type": "null"}]}}, {"type": "null"}]},
    ],
    "oneOf": [{"oneOf": [INTEGER, STRING]}, {"oneOf": [{"type": "null"}, {"type": "array", "items": STRING}]}],
    "enum": [{"enum": ["a", "abc", 7, None, True]}, {"enum": ["é", "a b", ""]}, {"enum": [1, 100, -7]}],
    "const": [{"const": "abc"}, {"const": 7}, {"const": None}],
    "not": [{"not": STRING}, {"type": "integer", "not": {"minimum": 3}}, {"not": {"const": 7}}],
    "if": [{"type": "integer", "if": {"minimum": 3}, "then": {"maximum": 5}, "else": {"maximum": 0}}],
    "then": [{"type": "integer", "if": {"minimum": 3}, "then": {"maximum": 5}}],
    "else": [{"type": "integer", "if": {"minimum": 3}, "else": {"maximum": 0}}],
    "$dynamicRef": [{"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", **INTEGER}}}],
    "$recursiveRef": [
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$recursiveAnchor": True,
            "type": "array",
            "items": {"$recursiveRef": "#"},
        },
    ],
    "type": [
        *({"type": name} for name in ("null", "boolean", "integer", "number", "string")),
        *({"type": name} for name in (["string", "null"], ["integer", "boolean"], ["number", "string", "null"])),
        {"type": "array", "items": INTEGER},
        {"type": "object", **A_AND_B, **CLOSED},
    ],
}
"""Per keyword about values of any type, the plainest schemas that use it."""

FEW: Sequence[Any] = (
    *_OTHERS,
    "",
    "a",
    "s",
    "abcd",
    "é",
    "a b",
    "A",
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    -7,
    100,
    1.5,
    2.5,
    False,
    [1],
    [1, 2],
    ["a"],
    [1, "a"],
    [None],
    [[]],
    [[[]]],
    [[1]],
    {"a": 1},
    {"a": "s"},
    {"a": 1, "b": "s"},
    {"a": 1, "b": 2},
    {"z": 1},
    {"a": 1, "z": 1},
)
"""Values of every type."""

COMBINATORS = ("$ref", "allOf", "anyOf", "const", "enum", "oneOf")


def core_probes() -> Iterator[Probe]:
    """Each keyword with each type that it concerns, at the root and inside of an object and an array."""
    for name, keywords in FRAGMENTS.items():
        for keyword, fragments in keywords.items():
            if keyword == "format":
                continue  # by the formats themselves
            schemas = [_typed(name, fragment) for fragment in fragments]
            yield from about_schema(f"types/{name}/{keyword}", schemas, VALUES[name])
            yield from about_schema(
                f"types/{name}/{keyword}/below",
                [_below(_typed(name, fragments[0]))],
                [{"a": value} for value in VALUES[name] if not isinstance(value, Text)],
            )
    for keyword, schemas_of_any in COMBINED.items():
        about = f"combinators/{keyword}" if keyword in COMBINATORS else f"types/any/{keyword}"
        yield from about_schema(about, schemas_of_any, FEW)


def _below(schema: Mapping[str, Any]) -> dict[str, Any]:
    dialect = {key: schema[key] for key in ("$schema",) if key in schema}
    inner = {key: value for key, value in schema.items() if key != "$schema"}
    return {**dialect, "type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": False}


def _typed(name: str, *fragments: Mapping[str, Any]) -> dict[str, Any]:
    typed: dict[str, Any] = {"type": name}
    for fragment in fragments:
        typed |= fragment
    return typed


def pair_probes() -> Iterator[Probe]:
    """Every two keywords of a type beside one another."""
    for name, keywords in FRAGMENTS.items():
        for first, second in itertools.combinations(keywords, 2):
            schemas = [
                _typed(name, one, other)
                for one, other in itertools.product(keywords[first], keywords[second])
                if all(one[key] == other[key] for key in one.keys() & other.keys())
            ]
            yield from about_schema(f"pairs/{name}/{first}/{second}", schemas, VALUES[name])


def sibling_probes() -> Iterator[Probe]:
    """Every keyword beside a combinator whose branch holds another keyword of the same type, or the same one."""
    for name, keywords in FRAGMENTS.items():
        for sibling, keyword in itertools.product(keywords, repeat=2):
            pairs = itertools.product(keywords[sibling], keywords[keyword])
            plain = [(one, other) for one, other in pairs if "$schema" not in {**one, **other}]
            for combinator, holding in _HOLDING.items():
                schemas = [{**_typed(name, one), **holding(_typed(name, other))} for one, other in plain]
                about = f"combinators/{combinator}/{sibling}#{name}-{keyword}"
                yield from itertools.islice(about_schema(about, schemas, VALUES[name]), 4)
        for sibling, fragments in keywords.items():
            yield from _beside_members(name, sibling, fragments[0])
    for combinator, other in itertools.permutations(_HOLDING, 2):
        schemas = [{**_HOLDING[combinator](left), **_HOLDING[other](right)} for left, right in _CROSSED]
        yield from about_schema(f"combinators/{combinator}/{other}#crossed", schemas, FEW)


def _beside_members(name: str, sibling: str, fragment: Mapping[str, Any]) -> Iterator[Probe]:
    """A keyword beside members, some of which it forbids."""
    schema, options = _typed(name, fragment), GrammarOptions()
    members = [value for value in VALUES[name] if not isinstance(value, Text)]
    valid = [value for value in members if schema_valid(schema, written(value, options))]
    if valid and "$schema" not in fragment:
        forbidden = [value for value in members if value not in valid]
        mixed = {**schema, "enum": [*valid[:1], *forbidden[:8]]}
        yield from about_schema(f"combinators/enum/{sibling}#{name}", [mixed], VALUES[name])
        either = {"anyOf": [{**schema, "const": forbidden[0]}, {**schema, "const": valid[-1]}]}
        yield from about_schema(f"combinators/const/{sibling}#{name}", [either], VALUES[name])


_CROSSED = (
    ({"enum": ["a", "abcd", 1]}, {"enum": ["s", "abcd", 1]}),
    ({"type": ["integer", "string"]}, {"type": ["string", "boolean"]}),
    ({"type": "string", "enum": ["a", "abcd"]}, {"type": "string", "enum": ["abcd", "s"]}),
)
"""Schemas of which neither allows all that the other does."""

_HOLDING: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "$ref": lambda schema: {"$ref": "#/$defs/r", "$defs": {"r": schema}},
    "allOf": lambda schema: {"allOf": [schema]},
    "anyOf": lambda schema: {"anyOf": [schema, {"type": "null"}]},
    "oneOf": lambda schema: {"oneOf": [schema, {"type": "null"}]},
}
