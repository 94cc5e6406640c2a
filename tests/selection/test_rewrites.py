"""Rewrites of schemas: each means just what the schema meant, by the judgement of `jsonschema` and of the engines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from grammar_backends import GrammarOptions, GrammarSpec, PluginHost, Vocabulary, load_backend, load_vocabulary
from grammar_backends.contract import CompiledGrammar
from grammar_backends.contract.formats import FORMAT_PATTERNS
from grammar_backends.errors import SpecError, UnsupportedFeature
from grammar_backends.plugins import default_host
from grammar_backends.selection import Policy, explain, select_backend
from grammar_backends.selection.disjoint import Comparison
from grammar_backends.selection.evaluation import Evaluation
from grammar_backends.selection.merging import conjoin
from grammar_backends.selection.rewrites import RULES, Round, Rule, rewrite
from grammar_backends.selection.schema import check_schema, walk
from grammar_backends.selection.support import SchemaSupport
from grammar_backends.selection.view import View

ROOT = Path(__file__).resolve().parents[2]
OPEN = GrammarOptions()
MAX_CALLS = 1_500_000
"""Calls of functions that rewriting one schema for every engine may cost: about a second."""
ENGINES = ("xgrammar", "guidance", "outlines")
TABLES = {
    engine: SchemaSupport.from_mapping(
        json.loads((ROOT / "plugins" / engine / f"grammar_backends_{engine}" / "support.json").read_text("utf-8"))
    )
    for engine in ENGINES
}
NOTHING = SchemaSupport.from_mapping(
    {
        "engine": "nothing",
        "measured": "0",
        "versions": "",
        "formats": [],
        "unknown_formats": True,
        "noops": ["*"],
        "types": dict.fromkeys(("any", "string", "integer", "number", "array", "object"), ()),
        "combinators": {},
        "checks": {},
    }
)
"""An engine that enforces nothing, so that every rule is asked."""
INTEGER: dict[str, Any] = {"type": "integer"}
OTHERS = ["null", "boolean", "number", "string", "array"]


def accepts(compiled: CompiledGrammar, document: Any) -> bool:
    grammar = compiled.new_grammar()
    tokens = compiled.backend.vocabulary.encode(json.dumps(document, ensure_ascii=False))
    return grammar.accept_tokens("test", tokens) and grammar.is_accepting()


def written(schema: Any, name: str) -> Any:
    """What one rule writes for the root of a schema."""
    sites = walk(schema)
    rule = next(rule for rule in RULES if rule.name == name)
    return rule.write(Round(sites, OPEN, NOTHING.judged(sites, OPEN)), View(sites.root, sites, OPEN, Comparison()))


# -- one rule at a time --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "schema", "expected"),
    [
        ("members", {"allOf": [{"enum": [1, {"a": 1}, "b"]}, {"not": {"type": "object"}}]}, {"enum": [1, "b"]}),
        ("members", {"const": "ab", "pattern": "^a"}, {"enum": ["ab"]}),
        ("members", {"enum": [[1, 2], [2, 1]], "prefixItems": [{"minimum": 2}]}, {"enum": [[2, 1]]}),
        ("root", True, {}),
        ("drop", {"type": "string", "minItems": 2, "minLength": 1}, {"type": "string", "minLength": 1}),
        ("drop", {"uniqueItems": True, "maxItems": 1}, {"maxItems": 1}),
        ("drop", {"contains": INTEGER, "minContains": 0}, {}),
        ("whole-numbers", {"type": "string", "minLength": 1.0}, {"type": "string", "minLength": 1}),
        (
            "whole-numbers",
            {"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3.5},
            {**INTEGER, "minimum": 1, "maximum": 3},
        ),
        (
            "numeric-bounds",
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            {**INTEGER, "exclusiveMinimum": 1},
        ),
        ("not", {"not": {"type": "object"}}, {"type": OTHERS}),
        ("not", {"not": {"not": {"pattern": "a"}}}, {"pattern": "a"}),
        ("not", {"type": "object", "not": {"required": ["a"]}}, {"type": "object", "properties": {"a": False}}),
        ("not", {"type": "integer", "not": {"type": "integer", "minimum": 2}}, {**INTEGER, "exclusiveMaximum": 2}),
        ("not", {"type": "array", "not": {"minItems": 2}}, {"type": "array", "maxItems": 1}),
        ("not", {"enum": [True, False], "not": {"const": True}}, {"enum": [True, False], "allOf": [{"enum": [False]}]}),
        (
            "not",
            {"type": "object", "not": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}},
            {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"a": {"type": ["null", "boolean", "number", "array", "object"]}},
                        "required": ["a"],
                    },
                    {"type": "object", "properties": {"b": False}},
                ]
            },
        ),
        (
            "not",
            {"type": "object", "not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}},
            {"type": "object", "properties": {"a": False, "b": False}},
        ),
        (
            "not",
            {"type": "integer", "not": {"enum": [1, 2]}},
            {"anyOf": [{**INTEGER, "exclusiveMaximum": 1}, {**INTEGER, "exclusiveMinimum": 2}]},
        ),
        (
            "not",
            {"type": "string", "not": {"const": "a"}},
            {"type": "string", "pattern": r"^(?:|[^a][\s\S]*|a(?:[\s\S]+))$"},
        ),
        ("not", {"not": {"pattern": "^a"}}, {"type": "string", "pattern": r"^(?:[^a][\s\S]*)?$"}),
        ("not", {"type": "string", "not": {"pattern": r"^[\s\S]*$"}}, False),
        (
            "format",
            {"type": "string", "format": "json-pointer"},
            {"type": "string", "pattern": "^(?:/(?:[^/~]|~[01])*)*$"},
        ),
        (
            "format",
            {"title": "t", "format": "json-pointer", "pattern": r"\w"},
            {"allOf": [{"title": "t", "pattern": r"\w"}, {"pattern": "^(?:/(?:[^/~]|~[01])*)*$"}]},
        ),
        ("strings", {"type": "string", "pattern": "^(?=a)[a-z]+$"}, {"type": "string", "pattern": "^a[a-z]*$"}),
        (
            "strings",
            {
                "type": "string",
                "title": "t",
                "allOf": [{"not": {"enum": ["", "b"]}}, {"maxLength": 1}],
                "pattern": "^[a-c]*",
            },
            {"title": "t", "type": "string", "pattern": "^[^b]$"},
        ),
        (
            "strings",
            {"type": "string", "$ref": "#/$defs/d", "pattern": "b$", "$defs": {"d": {"pattern": "^a"}}},
            {"$defs": {"d": {"pattern": "^a"}}, "type": "string", "pattern": "^a[^b]*b(?:b|[^b][^b]*b)*$"},
        ),
        ("strings", {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]}, False),
        ("look-ahead", {"pattern": "^(?!a)"}, {"pattern": r"^(?:[^a][\s\S]*)?$"}),
        (
            "look-ahead",
            {"patternProperties": {"^(?!a)": INTEGER, "^a": {}}},
            {"patternProperties": {r"^(?:[^a][\s\S]*)?$": INTEGER, "^a": {}}},
        ),
        (
            "patterns",
            {"type": "object", "patternProperties": {"^a": INTEGER, "^ab$": {"minimum": 3}}},
            {
                "type": "object",
                "patternProperties": {r"^(?:a|a(?:[^b]|b[\s\S])[\s\S]*)$": INTEGER, "^ab$": {**INTEGER, "minimum": 3}},
            },
        ),
        (
            "property-names",
            {"patternProperties": {"^x": INTEGER, "y": {}}, "propertyNames": {"pattern": "^x?y$", "maxLength": 2}},
            {
                "patternProperties": {"^xy$": INTEGER, "^(?:y|xy)$": {}},
                "additionalProperties": False,
            },
        ),
        (
            "property-names",
            {
                "properties": {"a": INTEGER, "no": INTEGER},
                "patternProperties": {"^x": INTEGER},
                "propertyNames": {"not": {"const": "no"}, "maxLength": 1},
                "additionalProperties": {"type": "string"},
            },
            {
                "properties": {"a": INTEGER, "no": False},
                "patternProperties": {"^x$": INTEGER, "^[^ax]?$": {"type": "string"}},
                "additionalProperties": False,
            },
        ),
        (
            "dependencies",
            {"type": "object", "dependentRequired": {"a": ["b"]}},
            {"anyOf": [{"type": "object", "properties": {"a": False}}, {"type": "object", "required": ["b", "a"]}]},
        ),
        (
            "dependencies",
            {"properties": {"b": {}}, "dependentSchemas": {"a": {"properties": {"b": INTEGER}}}},
            {"anyOf": [{"properties": {"b": {}, "a": False}}, {"properties": {"b": INTEGER}, "required": ["a"]}]},
        ),
        (
            "if",
            {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}},
            {"anyOf": [{"type": "object", "required": ["a", "b"]}, {"type": "object", "properties": {"a": False}}]},
        ),
        ("one-of", {"oneOf": [{"type": "string"}, INTEGER]}, {"anyOf": [{"type": "string"}, INTEGER]}),
        (
            "one-of",
            {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {
                "anyOf": [
                    {"type": "object", "required": ["a"], "properties": {"b": False}},
                    {"type": "object", "required": ["b"], "properties": {"a": False}},
                ]
            },
        ),
        (
            "one-of",
            {"oneOf": [{"type": "array", "items": INTEGER}, {"type": "array", "items": {"type": "string"}}]},
            {
                "anyOf": [
                    {"type": "array", "items": INTEGER, "minItems": 1},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                ]
            },
        ),
        (
            "one-of",
            {"oneOf": [{"required": ["a"]}, {"properties": {"a": False}}]},
            {"oneOf": [{"required": ["a"]}, {"properties": {"a": False}}], "type": ["object"]},
        ),
        ("one-of", {"type": "string", "oneOf": [{"minimum": 1}, {"maximum": 1}, {"minLength": 1}]}, False),
        (
            "one-of",
            {"type": ["integer", "string"], "oneOf": [{"$ref": "#/$defs/d"}, {"minimum": 1}], "$defs": {"d": True}},
            {"type": ["integer"], "oneOf": [{"$ref": "#/$defs/d"}, {"minimum": 1}], "$defs": {"d": True}},
        ),
        ("contains", {"contains": True, "minContains": 2}, {"minItems": 2}),
        ("contains", {"contains": {"type": "object"}, "minContains": 0, "maxContains": 0}, {"items": {"type": OTHERS}}),
        ("drop", {"required": ["a", "b", "a"], "minProperties": 2}, {"required": ["a", "b", "a"]}),
        ("drop", {"type": ["object", "null"], "not": {"enum": [1, "a"]}}, {"type": ["object", "null"]}),
        (
            "property-names",
            {
                "propertyNames": {"pattern": "^[ab]$"},
                "properties": {"a": INTEGER, "c": {}},
                "additionalProperties": INTEGER,
            },
            {
                "properties": {"a": INTEGER, "c": False},
                "additionalProperties": False,
                "patternProperties": {"^b$": INTEGER},
            },
        ),
        (
            "property-names",
            {"propertyNames": {"format": "uuid"}},
            {"patternProperties": {FORMAT_PATTERNS["uuid"]: {}}, "additionalProperties": False},
        ),
        (
            "property-names",
            {"propertyNames": {"pattern": "^a"}},
            {"patternProperties": {"^a": {}}, "additionalProperties": False},
        ),
        (
            "property-names",
            {"propertyNames": {"$ref": "#/$defs/d"}, "$defs": {"d": {"type": "string", "pattern": "^a"}}},
            {
                "$defs": {"d": {"type": "string", "pattern": "^a"}},
                "patternProperties": {"^a": {}},
                "additionalProperties": False,
            },
        ),
        (
            "property-names",
            {"propertyNames": {"enum": ["a"]}},
            {"properties": {"a": {}}, "additionalProperties": False},
        ),
        (
            "unevaluated",
            {"properties": {"a": {}}, "unevaluatedProperties": False},
            {"properties": {"a": {}}, "additionalProperties": False},
        ),
        (
            "merge",
            {"allOf": [{"type": "object", "properties": {"a": {}}}, {"required": ["a"], "properties": {"b": INTEGER}}]},
            {"type": "object", "properties": {"a": {}, "b": INTEGER}, "required": ["a"]},
        ),
        (
            "merge",
            {"$ref": "#/$defs/d", "minimum": 1, "$defs": {"d": INTEGER}},
            {"$defs": {"d": INTEGER}, "minimum": 1, **INTEGER},
        ),
        (
            "merge",
            {"minLength": 1, "anyOf": [{"type": "string"}, INTEGER]},
            {"anyOf": [{"minLength": 1, "type": "string"}, {"minLength": 1, **INTEGER}]},
        ),
        (
            "types",
            {"minLength": 2},
            {"anyOf": [{"type": "string", "minLength": 2}, {"type": ["null", "boolean", "number", "array", "object"]}]},
        ),
        (
            "required",
            {"type": "object", "required": ["a"]},
            {"type": "object", "required": ["a"], "properties": {"a": {}}},
        ),
    ],
)
def test_c2_5_a_rule_writes_what_it_should(rule: str, schema: Any, expected: Any) -> None:
    assert json.dumps(written(schema, rule)) == json.dumps(expected)


@pytest.mark.parametrize(
    "excluded",
    [
        {"pattern": r"\ba"},
        {"pattern": "a{200}"},
        {"format": "date"},
        {"multipleOf": 2},
        {"type": "integer"},
        {"uniqueItems": True},
        {"items": INTEGER},
        {"additionalProperties": INTEGER},
        {"patternProperties": {"a": INTEGER}},
        {"const": 0.5},
        {"const": [1]},
        {"const": {"a": 1}},
        {"contains": INTEGER, "minContains": 2},
        {"enum": [2**53]},
        {"properties": {"a": {"$ref": "#"}}},
        {"oneOf": [{"minimum": 1}, {"maximum": 2}]},
        {"const": "é"},
        {"properties": {"a": INTEGER}, "additionalProperties": False},
    ],
    ids=json.dumps,
)
def test_c2_5_what_has_no_exact_complement_is_left(excluded: Any) -> None:
    assert written({"not": excluded}, "not") is None


def test_c2_5_numbers_that_are_no_counts_cost_no_work() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "string",
        "description": "9999 9999 9999",
        "oneOf": [{"minLength": 2}, {"maxLength": 4}],
    }
    assert rewrite(schema, TABLES["guidance"], OPEN) is not None


def test_c2_5_a_constant_of_null_says_something() -> None:
    schema = {"type": ["integer", "null"], "const": None, "minLength": 1}
    assert written(schema, "drop") == {"type": ["integer", "null"], "const": None}
    beside = {"anyOf": [{"type": "null"}, INTEGER], "const": None}
    assert "const" in {finding.keyword for finding in TABLES["xgrammar"].findings(beside, OPEN)}
    found = rewrite({"if": {"maxLength": 0}, "then": True, "else": {"const": None}}, TABLES["xgrammar"], OPEN)
    for value in (None, 3, "", "a"):
        is_valid = value is None or isinstance(value, int) or not value
        assert found is None or Draft202012Validator(found[0]).is_valid(value) == is_valid


def test_c2_5_an_annotation_is_kept_and_the_order_of_properties_too() -> None:
    schema = {
        "title": "t",
        "type": "object",
        "properties": {"z": {}, "a": {"type": "string"}, "m": INTEGER},
        "dependentRequired": {"a": ["q"]},
        "$defs": {"d": {}},
    }
    found = rewrite(schema, TABLES["guidance"], OPEN)
    assert found is not None
    assert (found[0]["title"], found[0]["$defs"]) == ("t", {"d": {}})
    assert [list(branch["properties"]) for branch in found[0]["anyOf"]] == [["z", "a", "m"], ["z", "a", "m"]]


def test_c2_5_references_into_what_is_rewritten_lead_to_the_same_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"a": INTEGER, "b": {"$ref": "#/properties/a"}},
        "dependentRequired": {"a": ["b"]},
    }
    found = rewrite(schema, TABLES["guidance"], OPEN)
    assert found is not None
    assert found[0]["properties"] == schema["properties"]
    walk(found[0])


@pytest.mark.parametrize(
    "schema",
    [
        {
            "not": {"required": ["a"]},
            "$defs": {"d": {"$id": "x", "type": "object"}},
            "properties": {"a": {"$ref": "x"}},
        },
        {
            "not": {"properties": {"a": {"$ref": "#/not/properties/b"}, "b": {"type": "string"}}},
            "items": {"$ref": "#/not"},
        },
        {"anyOf": [{"properties": {"a": {}}}, {}], "unevaluatedProperties": False, "not": {"required": ["b"]}},
        {"type": "array", "items": {"type": "string", "pattern": "(?<!a)b"}, "not": {"minItems": 3}},
    ],
    ids=["resource", "reference", "unevaluated", "look-behind"],
)
def test_c2_5_where_a_rewrite_would_not_be_safe_or_not_help_there_is_none(schema: Any) -> None:
    assert rewrite(schema, TABLES["guidance"], OPEN) is None


def test_c2_5_many_branches_side_by_side_are_rewritten_at_once() -> None:
    branches = [{**INTEGER, "oneOf": [{"minimum": bound}, {"maximum": bound}]} for bound in range(10)]
    for engine in ("xgrammar", "guidance"):
        found = rewrite({"anyOf": branches}, TABLES[engine], OPEN)
        assert found is not None
        assert [step.pointer for step in found[1]] == [f"/anyOf/{index}" for index in range(10)]


def test_c2_5_closed_objects_are_not_rewritten() -> None:
    schema = {"type": "object", "dependentRequired": {"a": ["b"]}}
    assert rewrite(schema, TABLES["guidance"], GrammarOptions(additional_properties="closed")) is None


def test_c2_5_siblings_of_ref_are_nothing_in_the_older_drafts() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"d": {"type": "object"}},
        "not": {"$ref": "#/definitions/d", "type": "array"},
    }
    found = rewrite(schema, TABLES["guidance"], OPEN)
    assert found is not None
    assert found[0]["type"] == OTHERS


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"additionalProperties": INTEGER}, {"patternProperties": {"^a": {}}}),
        ({"patternProperties": {"(?!x)": {}}, "additionalProperties": False}, {"properties": {"a": {}}}),
        ({"items": INTEGER}, {"prefixItems": [{}]}),
        ({"const": 1}, {"const": 2}),
        ({"pattern": r"\w"}, {"pattern": "b"}),
        ({"pattern": "^a"}, {"pattern": "^b"}),
        ({"unevaluatedProperties": False}, {"properties": {"a": {}}}),
        ({"unevaluatedProperties": False}, {"unevaluatedProperties": False}),
    ],
    ids=str,
)
def test_c2_5_schemas_that_see_one_another_are_not_merged(one: Any, other: Any) -> None:
    assert conjoin(one, other, legacy=False) is None


def test_c2_5_a_property_that_one_side_knows_as_additional_keeps_what_it_said() -> None:
    closed = {"properties": {"a": {}}, "additionalProperties": False}
    assert conjoin(closed, {"properties": {"b": INTEGER}}, legacy=False)["properties"] == {"a": {}, "b": False}
    typed = {"additionalProperties": {"minimum": 1}}
    assert conjoin(typed, {"properties": {"b": INTEGER}}, legacy=False)["properties"] == {
        "b": {"minimum": 1, **INTEGER}
    }


# -- random schemas and documents ----------------------------------------------------------------------------

NAMES = ("a", "b", "c")
SHUT = {"additionalProperties": False}
PATTERNS = ("^a", "b$", "^ab$", "a+", "^[a-c]$", "^.$", "^(a|b)$", "^(?!b)", "^(?=.*b)[ab]+$", "a(?!b)", "^(?!a$)|^$")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

scalars = st.sampled_from([None, True, False, 0, 1, 2, -1, 0.5, 1.0, "", "a", "b", "ab", "aab"])
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(NAMES)
needed = st.lists(names, max_size=2, unique=True)
counts = st.sampled_from([0, 1, 2, 2.0])
bounds = st.sampled_from([0, 1, 2, 0.5, 1.0, -1])
plain = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
    "enum": st.lists(documents, min_size=1, max_size=3),
    "const": documents,
    "required": needed,
    "pattern": st.sampled_from(PATTERNS),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "uniqueItems": st.just(True),
    "$ref": st.sampled_from(["#/$defs/d", "#/$defs/e"]),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), bounds),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), counts),
    **dict.fromkeys(("minContains", "maxContains"), counts),
    "dependentRequired": st.dictionaries(names, needed, min_size=1, max_size=2),
}


def _holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(names, inner, min_size=1, max_size=2)
    single = ("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames")
    holders = {
        **dict.fromkeys((*single, "unevaluatedProperties", "unevaluatedItems"), inner),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), some),
        **dict.fromkeys(("properties", "dependentSchemas"), by_name),
        "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), inner, min_size=1, max_size=2),
    }
    return _some_of({**plain, **holders})


def _some_of(keywords: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    chosen = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True)
    return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys}))


leaves = st.booleans() | _some_of({key: value for key, value in plain.items() if key != "$ref"})
schemas = st.builds(
    lambda schema, d, e: {**schema, "$defs": {"d": d, "e": e}},
    _holding(st.recursive(leaves, _holding, max_leaves=5)),
    leaves,
    leaves,
)


def _agree(validator: Any, schema: Any, other: Any, values: list[Any]) -> None:
    for value in values:
        assert validator(schema).is_valid(value) == validator(other).is_valid(value), (other, value)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schema=schemas, values=st.lists(documents, min_size=12, max_size=12))
def test_c2_5_rewrites_mean_the_same_on_random_schemas(schema: Any, values: list[Any]) -> None:
    try:
        check_schema(schema)
    except SpecError:
        assume(False)
    for table in TABLES.values():
        found = rewrite(schema, table, OPEN)
        if found is not None:
            assert table.findings(found[0], OPEN) == []
            _agree(Draft202012Validator, schema, found[0], values)


closed_objects = st.builds(
    lambda properties, required: {
        "type": "object",
        "properties": properties,
        **SHUT,
        "required": [name for name in required if name in properties],
    },
    st.dictionaries(names, st.sampled_from([True, False, INTEGER, {"type": "string"}, {"enum": [1, "a"]}]), max_size=3),
    needed,
)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    branches=st.lists(closed_objects | leaves, min_size=2, max_size=4),
    values=st.lists(st.dictionaries(names, scalars, max_size=3), min_size=20, max_size=20),
)
def test_c2_5_one_of_closed_objects_means_the_same(branches: list[Any], values: list[Any]) -> None:
    schema = {"oneOf": branches}
    found = rewrite(schema, TABLES["guidance"], OPEN)
    if found is not None:
        _agree(Draft202012Validator, schema, found[0], values)


@pytest.mark.parametrize(
    ("branches", "right", "wrong"),
    [
        ([("ps",), ("sh",)], [{"ps": 1}, {"sh": 1}], [{}, {"ps": 1, "sh": 1}]),
        ([("a", "b"), ("b", "c")], [{"a": 1}, {"a": 1, "b": 1}, {"c": 1}], [{}, {"b": 1}]),
    ],
)
def test_c2_5_one_of_closed_objects_has_no_value_of_names_that_two_of_them_list(
    branches: list[tuple[str, ...]], right: list[Any], wrong: list[Any], host: PluginHost, vocabulary: Vocabulary
) -> None:
    objects = [{"type": "object", "properties": dict.fromkeys(listed, INTEGER), **SHUT} for listed in branches]
    spec = GrammarSpec.json_schema({"oneOf": objects})
    compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    assert [value for value in right if not accepts(compiled, value)] == []
    assert [value for value in wrong if accepts(compiled, value)] == []


MANY = [f"a_name_that_is_rather_long_{number}" for number in range(20)]
"""Names of which no pattern is written."""
NONE_OF_MANY = f"^(?!(?:{'|'.join(MANY)}|ab)$)[a-c_].*$"


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {NONE_OF_MANY: INTEGER}, **SHUT},
        {"patternProperties": {NONE_OF_MANY: INTEGER}, "properties": {"ab": False, "b": {"minimum": 2}}, **SHUT},
        {"propertyNames": {"pattern": NONE_OF_MANY}},
        {"propertyNames": {"pattern": NONE_OF_MANY}, "additionalProperties": INTEGER},
        {"propertyNames": {"type": "string", "not": {"enum": [*MANY, "ab", 5]}}, "properties": {"ab": INTEGER}},
        {"propertyNames": {"pattern": "^a", "not": {"enum": MANY}}, "properties": {MANY[0]: {}}},
    ],
    ids=str,
)
def test_c2_5_many_names_that_are_forbidden_are_listed(schema: Any, host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema({"type": "object", **schema})
    compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    validator = Draft202012Validator(spec.value)
    values = [{name: value} for name in [*MANY, "ab", "abc", "a", "b", "x", f"{MANY[0]}0"] for value in (2, "x")]
    assert [accepts(compiled, value) for value in values] == [validator.is_valid(value) for value in values]


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {NONE_OF_MANY: INTEGER}},
        {"patternProperties": {NONE_OF_MANY: INTEGER}, "properties": {"ab": {}}, **SHUT},
        {"patternProperties": {NONE_OF_MANY: INTEGER, "x": INTEGER}, **SHUT},
    ],
    ids=str,
)
def test_c2_5_but_not_where_something_else_allows_them(schema: Any) -> None:
    assert written(schema, "look-ahead") is None


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.name not in ("format", "root")], ids=lambda rule: rule.name
)
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_c2_5_every_rule_means_the_same_on_random_schemas(rule: Rule, data: st.DataObject) -> None:
    schema = data.draw(schemas)
    trigger = min(rule.keywords & plain.keys() | rule.keywords) if rule.keywords else ""
    if trigger and trigger not in schema:
        schema |= data.draw(_holding(leaves).filter(lambda drawn: rule.keywords & drawn.keys()))
    try:
        sites = walk(schema)
        check_schema(sites)
    except SpecError:
        assume(False)
    assume(not rule.keywords or rule.keywords & schema.keys())
    found = rule.write(Round(sites, OPEN, NOTHING.judged(sites, OPEN)), View(sites.root, sites, OPEN, Comparison()))
    if found is not None and "unevaluated" not in json.dumps({key: schema[key] for key in schema if key != "$defs"}):
        _agree(Draft202012Validator, schema, found, data.draw(st.lists(documents, min_size=12, max_size=12)))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    base=_some_of({key: plain[key] for key in ("type", "required", "minProperties", "maxProperties")}),
    needs=st.dictionaries(names, needed | leaves, min_size=1, max_size=2),
    values=st.lists(documents, min_size=12, max_size=12),
)
def test_c2_5_dependencies_of_the_older_drafts_mean_the_same(base: Any, needs: Any, values: list[Any]) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **base, "dependencies": needs}
    for value in (base, *needs.values()):
        assume(not isinstance(value, dict) or not {"minContains", "maxContains", "dependentRequired"} & value.keys())
    found = written(schema, "dependencies")
    if found is not None:
        _agree(Draft7Validator, schema, found, values)


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schema=schemas, value=documents)
def test_c2_5_an_evaluation_that_is_certain_is_right(schema: Any, value: Any) -> None:
    sites = walk(schema)
    verdict = Evaluation(Comparison()).admits(sites.root, value)
    assert verdict is None or verdict == Draft202012Validator(schema).is_valid(value)


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(one=leaves | _holding(leaves), other=leaves | _holding(leaves), value=documents)
def test_c2_5_two_schemas_as_one_allow_what_both_allow(one: Any, other: Any, value: Any) -> None:
    assume("$ref" not in json.dumps([one, other]))
    merged = conjoin(one, other, legacy=False)
    if merged is not None:
        both = Draft202012Validator(one).is_valid(value) and Draft202012Validator(other).is_valid(value)
        assert Draft202012Validator(merged).is_valid(value) == both


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schema=schemas, values=st.lists(documents, min_size=8, max_size=8))
def test_c3_an_engine_accepts_nothing_that_a_rewritten_schema_forbids(schema: Any, values: list[Any]) -> None:
    host, vocabulary = _shared()
    spec = GrammarSpec.json_schema(schema)
    try:
        trace = explain(spec, host=host)
        assume(any(step.rewrites for step in trace.steps))
        compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    except SpecError:
        assume(False)
    for value in values:
        if not Draft202012Validator(schema).is_valid(value):
            assert not accepts(compiled, value), value


def _optional(schema: Any) -> dict[str, Any]:
    """The schema where it may be left out, so that it need not have a value."""
    return {"anyOf": [schema, INTEGER]}


NARROWED = [
    # Below not, if, oneOf and contains, a pattern that matches less lets more pass.
    (_optional({"type": "string", "not": {"type": "string", "pattern": r"^(?!b)\w{12}\S$"}}), "a" * 12 + "\x85"),
    (
        _optional({"type": "string", "if": {"type": "string", "pattern": "^(?!b)a{2}.$"}, "then": {"maxLength": 1}}),
        "aa\r",
    ),
    (_optional({"oneOf": [{"type": "string", "pattern": r"^(?!b)\S$"}, {"const": "\x1c"}]}), "\x1c"),
    (
        {
            "type": "array",
            "items": {"type": "string"},
            "contains": {"not": {"pattern": r"\s"}},
            "minContains": 0,
            "maxContains": 0,
        },
        ["–"],
    ),
    # And so does one of names that something else allows.
    (
        {"type": "object", "properties": {"\r": {}}, "patternProperties": {"^(?!a).$": {"type": "string"}}, **SHUT},
        {"\r": 5},
    ),
    (
        {"type": "object", "patternProperties": {r"^(?!a)\S$": {"type": "string"}, "^\x85$": INTEGER}, **SHUT},
        {"\x85": 5},
    ),
    (
        {
            "type": "object",
            "propertyNames": {"pattern": "^.$"},
            "properties": {"\r": True},
            "patternProperties": {"^\r$": {"type": "string"}},
            **SHUT,
        },
        {"\r": 5},
    ),
    # More characters at least than at most are none.
    ({"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 1, "pattern": "^(?!a)"}}, ["c"]),
    ({"type": "object", "propertyNames": {"minLength": 3, "maxLength": 1}}, {"b": 5}),
    ({"type": "object", "propertyNames": {"minLength": 3, "maxLength": 1, "pattern": "^b"}}, {"b": 5}),
    (
        {
            "type": "string",
            "maxLength": 2,
            "if": {"maxLength": 3},
            "then": {"pattern": "^x$"},
            "else": {"pattern": "^(?!b)a"},
        },
        "a1",
    ),
]


@pytest.mark.parametrize(("schema", "value"), NARROWED, ids=str)
def test_c3_what_is_written_allows_nothing_more_where_dialects_differ(schema: Any, value: Any) -> None:
    host, vocabulary = _shared()
    spec = GrammarSpec.json_schema(schema)
    try:
        compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    except SpecError:
        return  # refused, which is right too
    assert not accepts(compiled, value)


_KEPT: list[tuple[PluginHost, Vocabulary]] = []


def _shared() -> tuple[PluginHost, Vocabulary]:
    if not _KEPT:
        _KEPT.append((default_host(), load_vocabulary("byte")))
    return _KEPT[0]


# -- the choice ----------------------------------------------------------------------------------------------

DEPENDENT = {
    "type": "object",
    "properties": {"card": {"type": "integer"}, "address": {"type": "string"}},
    "additionalProperties": False,
    "dependentRequired": {"card": ["address"]},
}
UNIQUE = {"type": "array", "items": INTEGER, "uniqueItems": True}


def test_c2_5_a_rewrite_is_named_in_the_trace_and_the_engine_enforces_it(
    host: PluginHost, vocabulary: Vocabulary
) -> None:
    spec = GrammarSpec.json_schema(DEPENDENT)
    selection = select_backend(spec, vocabulary, host=host)
    step = next(step for step in selection.trace.steps if step.verdict == "chosen")
    assert [(rewrite.keyword, rewrite.pointer) for rewrite in step.rewrites] == [("dependentRequired", "")]
    assert "rewritten: dependentRequired at the root" in str(selection.trace)
    compiled = selection.backend.compile_grammar(spec)
    assert compiled.spec is spec
    for document, valid in (
        ({"card": 1, "address": "x"}, True),
        ({"address": "x"}, True),
        ({}, True),
        ({"card": 1}, False),
    ):
        assert accepts(compiled, document) is valid


LARGE, SMALL = {"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "object", "patternProperties": {"a": LARGE}}, {"patternProperties": {"b": SMALL}}]},
        {"type": "object", "patternProperties": {"a": LARGE}, "allOf": [{"patternProperties": {"b": SMALL}}]},
        {
            "type": "object",
            "patternProperties": {"a": LARGE},
            "$ref": "#/$defs/b",
            "$defs": {"b": {"patternProperties": {"b": SMALL}}},
        },
    ],
    ids=["branches", "beside", "reference"],
)
def test_c2_5_patterns_of_names_that_meet_in_a_merger_are_rewritten_apart(
    schema: Any, host: PluginHost, vocabulary: Vocabulary
) -> None:
    compiled = select_backend(GrammarSpec.json_schema(schema), vocabulary, host=host).backend.compile_grammar(
        GrammarSpec.json_schema(schema)
    )
    for name, bounds in (("a", (3, 9)), ("b", (1, 5)), ("ab", (3, 5)), ("c", (1, 9))):
        for number in (1, 4, 9):
            assert accepts(compiled, {name: number}) is (bounds[0] <= number <= bounds[1]), (name, number)


NODE = {"$ref": "#/$defs/n"}
LEADING_BACK = {
    "beside": {"c": {**NODE, "required": ["d"]}},
    "branch": {"c": {"allOf": [NODE], "required": ["d"]}},
    "branches": {"c": {"allOf": [NODE, {"properties": {"d": LARGE}}]}},
    "alternative": {"c": {"anyOf": [NODE, {"type": "null"}], "type": ["object", "null"]}},
    "two": {"c": {**NODE, "required": ["d"]}, "e": {**NODE, "required": ["c"]}},
    "names": {"a/b %": {**NODE, "required": ["d"]}},
    "list": {"c": {"type": "array", "items": {**NODE, "required": ["d"]}, "maxItems": 1}},
}


@pytest.mark.parametrize("properties", LEADING_BACK.values(), ids=list(LEADING_BACK))
def test_c2_5_what_leads_back_to_itself_is_merged_by_unfolding_it_once(
    properties: Any, host: PluginHost, vocabulary: Vocabulary
) -> None:
    node = {"type": "object", "properties": {**properties, "d": INTEGER}, "additionalProperties": False}
    schema = {**NODE, "$defs": {"n": node}}
    spec = GrammarSpec.json_schema(schema)
    compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    values: list[Any] = [{}, {"d": 3}, {"d": 1}, None, 3]
    for _ in range(2):
        inner = [below for value in values for below in (value, [value])]
        values += [{name: below, **last} for name in properties for below in inner for last in ({}, {"d": 3})]
    verdicts = {True: 0, False: 0}
    for value in values:
        valid = Draft202012Validator(schema).is_valid(value)
        verdicts[valid] += 1
        assert accepts(compiled, value) is valid, value
    assert min(verdicts.values()) > 3


def test_c2_5_explain_and_the_choice_agree_on_rewrites(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema(DEPENDENT)
    assert explain(spec, host=host).to_dict() == select_backend(spec, vocabulary, host=host).trace.to_dict()


def test_c2_5_what_an_engine_enforces_as_it_is_written_is_not_rewritten(host: PluginHost) -> None:
    # xgrammar would enforce it rewritten, and comes first; guidance enforces it as it is written.
    schema = {"type": "array", "minItems": 1, "anyOf": [{"items": INTEGER}, {"maxItems": 1}]}
    assert rewrite(schema, TABLES["xgrammar"], OPEN) is not None
    trace = explain(GrammarSpec.json_schema(schema), host=host)
    assert trace.chosen == "guidance"
    assert not any(step.rewrites for step in trace.steps)


def test_c2_1_a_rewritten_schema_that_is_slow_to_compile_is_left_to_another_backend(host: PluginHost) -> None:
    numbers, texts = ({"type": "array", "items": {"type": name}} for name in ("number", "string"))
    schema = {"type": "object", "properties": {"a": {"oneOf": [numbers, texts]}}}
    assert rewrite(schema, TABLES["xgrammar"], OPEN) is not None
    assert explain(GrammarSpec.json_schema(schema), host=host).chosen == "guidance"
    only = Policy(order=("xgrammar",))
    assert explain(GrammarSpec.json_schema(schema), host=host, policy=only).chosen == "xgrammar"


def test_c2_5_a_backend_named_explicitly_rewrites_too(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema({"type": "object", "not": {"required": ["a"]}})
    compiled = load_backend("guidance", vocabulary, host=host).compile_grammar(spec)
    assert accepts(compiled, {"b": 1})
    assert not accepts(compiled, {"a": 1})


def test_c2_5_a_schema_inside_a_tag_is_rewritten_at_its_place(host: PluginHost, vocabulary: Vocabulary) -> None:
    tag = {"structures": [{"begin": "<f>", "schema": DEPENDENT, "end": "</f>"}], "triggers": ["<f"]}
    spec = GrammarSpec.structural_tag(tag)
    selection = select_backend(spec, vocabulary, host=host)
    step = next(step for step in selection.trace.steps if step.verdict == "chosen")
    assert [rewrite.pointer for rewrite in step.rewrites] == ["/structures/0/schema"]
    compiled = selection.backend.compile_grammar(spec)
    grammar = compiled.new_grammar()
    assert not grammar.accept_tokens("test", vocabulary.encode('<f>{"card": 1}'))


# -- lenient -------------------------------------------------------------------------------------------------

LENIENT = Policy(mode="lenient", ignore=("uniqueItems",))


def test_c2_5_strict_is_the_default_and_ignores_nothing(host: PluginHost, vocabulary: Vocabulary) -> None:
    with pytest.raises(UnsupportedFeature):
        select_backend(GrammarSpec.json_schema(UNIQUE), vocabulary, host=host)
    with pytest.raises(ValueError, match="strict"):
        Policy(ignore=("uniqueItems",))


def test_c2_5_lenient_ignores_what_is_named_and_reports_it(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema(UNIQUE)
    selection = select_backend(spec, vocabulary, host=host, policy=LENIENT)
    assert [(finding.keyword, finding.pointer) for finding in selection.ignored] == [("uniqueItems", "/uniqueItems")]
    assert "ignored: uniqueItems" in str(selection.trace)
    assert explain(spec, host=host, policy=LENIENT).to_dict() == selection.trace.to_dict()
    compiled = selection.backend.compile_grammar(spec)
    assert compiled.spec is spec
    assert accepts(compiled, [1, 1])
    assert not accepts(compiled, ["a"])


def test_c2_5_lenient_changes_nothing_where_all_is_enforced(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema(DEPENDENT)
    selection = select_backend(spec, vocabulary, host=host, policy=LENIENT)
    assert selection.ignored == ()
    assert selection.trace.to_dict() == explain(spec, host=host).to_dict()


@pytest.mark.parametrize(
    ("ignore", "schema"),
    [
        ("/properties/a/format", {"properties": {"a": {"format": "idn-email"}}}),
        ("format:idn-email", {"properties": {"a": {"format": "idn-email"}}}),
        ("if", {"if": {"pattern": "a"}, "then": {"maxLength": 3}}),
    ],
)
def test_c2_5_lenient_takes_pointers_formats_and_what_goes_with_a_keyword(
    ignore: str, schema: Any, host: PluginHost
) -> None:
    trace = explain(GrammarSpec.json_schema(schema), host=host, policy=Policy(mode="lenient", ignore=(ignore,)))
    assert trace.chosen is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "array", "uniqueItems": True}},
        {"oneOf": [{"type": "array", "uniqueItems": True}, {"type": "array", "pattern": "(?=a)", "minItems": 2}]},
        {"$defs": {"u": UNIQUE}, "properties": {"a": {"$ref": "#/$defs/u"}, "b": {"not": {"$ref": "#/$defs/u"}}}},
        {"prefixItems": [True], "uniqueItems": True, "anyOf": [{"prefixItems": [True]}], "unevaluatedItems": False},
        {"type": "array", "uniqueItems": True, "items": {"type": "string", "format": "idn-email"}},
    ],
    ids=["not", "oneOf", "reference", "unevaluated", "something else"],
)
def test_c2_5_lenient_ignores_nothing_where_the_rest_would_then_forbid_more(schema: Any, host: PluginHost) -> None:
    assert explain(GrammarSpec.json_schema(schema), host=host, policy=LENIENT).chosen is None


def test_c2_5_lenient_leaves_out_nothing_that_a_reference_leads_into(host: PluginHost) -> None:
    excluded = {"format": "idn-email", "$defs": {"x": INTEGER}}
    listed = {"a": {"type": "string", "not": excluded}, "b": {"$ref": "#/properties/a/not/$defs/x"}}
    spec = GrammarSpec.json_schema({"type": "object", "properties": listed})
    trace = explain(spec, host=host, policy=Policy(mode="lenient", ignore=("not",)))
    assert trace.chosen is None
    assert {finding.pointer for step in trace.steps for finding in step.findings} >= {"/properties/a/not"}


@pytest.mark.parametrize("name", ["properties", "items", "$ref", "uniqeItems", "/a/b"])
def test_c2_5_what_cannot_be_ignored_is_refused_when_the_policy_is_made(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be ignored"):
        Policy(mode="lenient", ignore=(name,))


# -- work ----------------------------------------------------------------------------------------------------

OVERLAPPING = [{"properties": {f"p{i}": {"minimum": j} for i in range(8)}, "required": [f"q{j}"]} for j in range(30)]


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": OVERLAPPING},
        {"not": {"allOf": [{"anyOf": OVERLAPPING[:12]}, {"anyOf": OVERLAPPING[12:24]}]}},
        {"type": "object", "dependentRequired": {f"a{i}": [f"b{i}"] for i in range(200)}},
        {"properties": {f"p{i}": {"type": "object", "not": {"required": ["a"]}} for i in range(3_000)}},
        {"not": {"enum": ["x" * 50 + str(i) for i in range(3_000)]}},
        {"allOf": [{"enum": list(range(3_000))}, {"not": {"enum": list(range(3_000))}}]},
    ],
    ids=["oneOf", "De Morgan", "dependencies", "many", "enum", "members"],
)
def test_d10_hostile_schemas_are_given_up_on_soon(schema: Any) -> None:
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for table in TABLES.values():
            rewrite(schema, table, OPEN)
    finally:
        sys.setprofile(None)
    assert calls < MAX_CALLS
