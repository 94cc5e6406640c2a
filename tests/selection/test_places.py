"""Subschemas that mean something else elsewhere, and what is written in their place (C2.5)."""

from __future__ import annotations

import itertools
from typing import Any

import jsonschema
import pytest

from grammar_backends import GrammarSpec, explain
from grammar_backends.selection.places import is_plain, written_plain
from grammar_backends.selection.schema import walk

DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
CLOSED, FURTHER = {"unevaluatedProperties": False}, {"unevaluatedItems": False}
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
A, B = {"properties": {"a": INTEGER}}, {"properties": {"b": TEXT}}
BOTH = {"properties": {"a": INTEGER, "b": TEXT}}
NODE = {"$dynamicAnchor": "node", "properties": {"a": INTEGER, "b": {"$dynamicRef": "#node"}}}

VALUES: list[Any] = [
    *(
        {name: value for name, value in zip(("a", "b", "x"), values, strict=True) if value != 0}
        for values in itertools.product((0, 1, "s", {"a": "s"}), (0, 1, "s", {"b": {"a": 1}}), (0, 1, "s"))
    ),
    *(list(items) for length in range(4) for items in itertools.product((1, "s", [1]), repeat=length)),
    *(1, "s", None),
]


def plain(schema: Any) -> Any:
    """A schema after every step; None where it cannot be written plainly."""
    for _ in range(8):
        sites = walk(schema)
        if is_plain(sites):
            return schema
        step = written_plain(sites)
        if step is None:
            return None
        schema = step[0]
    raise AssertionError(f"no end: {schema}")


def allowed(schema: Any) -> list[Any]:
    make = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return [value for value in VALUES if make(schema).is_valid(value)]


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, B], **CLOSED},
        {"allOf": [A, {"allOf": [B]}], "properties": {"x": {}}, "unevaluatedProperties": INTEGER},
        {"$ref": "#/$defs/a", **B, **CLOSED, "$defs": {"a": A}},
        {"allOf": [{"patternProperties": {"^a|x": INTEGER}}], **B, **CLOSED},
        {"allOf": [{"additionalProperties": INTEGER}], **B, **CLOSED},
        {"allOf": [{**A, **CLOSED}], **B, "unevaluatedProperties": TEXT},
        {**BOTH, "anyOf": [{"required": ["a"]}, {"required": ["b"]}], **CLOSED},
        {**BOTH, "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, **CLOSED},
        {**BOTH, "not": {"required": ["a"]}, **CLOSED},
        {"properties": {"a": {"allOf": [A], **CLOSED}}, "allOf": [B], **CLOSED},
        {**DRAFT_2019, "allOf": [A, B], **CLOSED},
        {"allOf": [{"prefixItems": [INTEGER, TEXT]}], "unevaluatedItems": False},
        {"allOf": [{"prefixItems": [{}, TEXT]}], "prefixItems": [INTEGER], "unevaluatedItems": TEXT},
        {"allOf": [{"items": {"type": ["integer", "string"]}}], "unevaluatedItems": TEXT},
        {**DRAFT_2019, "items": [INTEGER], "allOf": [{"items": [{}, TEXT]}], "unevaluatedItems": False},
        {**DRAFT_2019, "items": [INTEGER], "allOf": [{"items": [{}, {}], "additionalItems": TEXT}], **FURTHER},
        {
            **DRAFT_2019,
            "type": "array",
            "items": {"anyOf": [INTEGER, {"$recursiveRef": "#"}]},
            "$recursiveAnchor": True,
        },
        NODE,
        {"properties": {"a": {"$dynamicRef": "#node"}}, "$defs": {"é%": NODE}},
        {"$dynamicRef": "#/$defs/a", "$defs": {"a": A}},
        {"$ref": "#here", "$defs": {"b": {"$anchor": "here", **B}}},
        {"$id": "https://example.com/s", "items": {"$ref": "s#here"}, "$defs": {"b": {"$anchor": "here", **INTEGER}}},
    ],
    ids=str,
)
def test_c2_5_a_schema_that_is_written_plainly_means_the_same(schema: Any) -> None:
    assert not is_plain(walk(schema))
    written = plain(schema)
    assert written is not None
    assert allowed(written) == allowed(schema)
    assert 0 < len(allowed(schema)) < len(VALUES)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [A, B], **CLOSED},
        {**A, "dependentSchemas": {"a": B}, **CLOSED},
        {"if": A, "else": B, **CLOSED},
        {"allOf": [{"oneOf": [A, B]}], **CLOSED},
        {"contains": INTEGER, "unevaluatedItems": TEXT},
        {**DRAFT_2019, "contains": INTEGER, "unevaluatedItems": TEXT},
        {"anyOf": [{"prefixItems": [INTEGER]}, {}], "unevaluatedItems": TEXT},
        {"$ref": "#/$defs/a", **CLOSED, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"items": {"$dynamicRef": "#node"}, "$defs": {"a": {"$id": "a", **NODE}, "b": NODE}},
        {"items": {"$dynamicRef": "#nowhere"}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$dynamicRef": "#"}},
    ],
    ids=str,
)
def test_c2_5_where_it_depends_on_the_value_or_the_way_a_schema_stays_as_it_is(schema: Any) -> None:
    assert plain(schema) is None


def test_c2_5_each_step_is_named() -> None:
    schema = {"properties": {"a": {"allOf": [A], **CLOSED}}, "allOf": [B], **CLOSED}
    _, applied = written_plain(walk(schema)) or ({}, [])
    assert [(each.keyword, each.pointer) for each in applied] == [
        ("unevaluatedProperties", ""),
        ("unevaluatedProperties", "/properties/a"),
    ]


@pytest.mark.parametrize("reference", ["http://x/y", "#a", "//["])
def test_c2_5_a_schema_whose_name_is_no_uri_stays_as_it_is(reference: str) -> None:
    named = {"$id": "http://[", "type": "integer", "$dynamicRef": reference}
    for schema in (named, {"type": "integer", "$dynamicRef": reference, "x": {"$id": "http://["}}):
        assert written_plain(walk(schema)) is None
        assert explain(GrammarSpec.json_schema(schema)).chosen is None


def test_c2_5_what_is_unevaluated_inside_of_what_is_unevaluated_is_written_too() -> None:
    inner = {"allOf": [{"prefixItems": [INTEGER]}], **FURTHER}
    schema = {"allOf": [{"prefixItems": [TEXT]}], "unevaluatedItems": inner}
    found = plain(schema)
    assert found is not None
    for value in (["a"], ["a", [1]], ["a", [1, 2]], ["a", ["b"]], [1], ["a", [1], [2]], ["a", [1], [2, 3]]):
        assert jsonschema.Draft202012Validator(found).is_valid(value) == jsonschema.Draft202012Validator(
            schema
        ).is_valid(value), value
