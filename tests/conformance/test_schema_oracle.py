"""The schema oracle against the specifications: JSON's letter, exact numbers, formats, the official test suite."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar_backends import GrammarOptions, GrammarSpec
from grammar_backends_conformance.corpora.reading import read_corpus
from grammar_backends_conformance.oracles import Uncovered, json_valid, recogniser_of, schema_valid, text_valid


@pytest.mark.parametrize(
    "text", ["{}", '{"a":[1,-0.5e+3,"\\ud83d\\ude00",null]}', "[ 1\t,\r\n2 ]", '"\u2028"', "-0", "1E9"]
)
def test_json_is_json(text: str) -> None:
    assert json_valid(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " {}",
        "{}\n",
        "[1,]",
        "{'a':1}",
        "NaN",
        "-Infinity",
        "01",
        "+1",
        ".5",
        "1.",
        '"\n"',
        '"\\x41"',
        "{} {}",
        "[\u00a01]",
    ],
)
def test_what_is_not_json_by_the_letter_or_has_blanks_around_it_is_invalid(text: str) -> None:
    assert not json_valid(text)
    assert not schema_valid(True, text)


@pytest.mark.parametrize(
    ("options", "good", "bad"),
    [
        (GrammarOptions(whitespace="compact"), '{"a b":", : "}', '{"a": 1}'),
        (GrammarOptions(max_whitespace=2), '[1,  2,"   "]', "[1,   2]"),
    ],
)
def test_white_space_is_as_the_options_say(options: GrammarOptions, good: str, bad: str) -> None:
    assert json_valid(good, options)
    assert not json_valid(bad, options)


def test_closed_by_option_is_closed_only_where_nothing_is_said() -> None:
    closed = GrammarOptions(additional_properties="closed")
    inner = {"type": "object", "properties": {"a": True}}
    schema = {"type": "object", "properties": {"o": inner, "p": {**inner, "additionalProperties": True}}}
    assert schema_valid(schema, '{"o":{"a":1},"p":{"b":1}}', closed)
    assert not schema_valid(schema, '{"o":{"b":1}}', closed)
    assert not schema_valid(schema, '{"q":1}', closed)
    assert schema_valid(schema, '{"q":1}')


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"multipleOf": 0.1}, "0.3", "0.35"),
        ({"multipleOf": 1e-300}, "1e300", "1.5e-300"),
        ({"type": "integer"}, "1.0", "1.5"),
        ({"maximum": 9007199254740993}, "9007199254740993", "9007199254740994"),
        ({"const": 1}, "1.0", "true"),
        ({"enum": [0.1]}, "0.10", "0.1000000000000000055511151231257827"),
    ],
)
def test_numbers_are_exact(schema: Any, good: str, bad: str) -> None:
    assert schema_valid(schema, good)
    assert not schema_valid(schema, bad)


def test_patterns_search_with_the_dialect_of_the_layer() -> None:
    assert schema_valid({"pattern": "b"}, '"abc"')
    assert not schema_valid({"pattern": "^a$"}, '"a\\n"')
    assert not schema_valid({"pattern": "^\\d$"}, '"\u0663"')
    assert schema_valid({"pattern": "^\\p{Lu}$"}, '"É"')


def test_patterns_of_names_are_read_by_the_same_dialect() -> None:
    words: dict[str, Any] = {"patternProperties": {r"^\w$": {"type": "integer"}}}
    assert not schema_valid(words, '{"a": "b"}')
    assert schema_valid(words, '{"é": "b"}')
    assert not schema_valid({**words, "additionalProperties": False}, '{"é": 1}')
    assert schema_valid({**words, "additionalProperties": False, "properties": {"é": {}}}, '{"é": "b", "a": 1}')
    assert not schema_valid({**words, "additionalProperties": {"type": "null"}}, '{"é": "b"}')


def test_the_draft_that_a_schema_names_is_the_one_that_counts() -> None:
    draft4 = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True}
    assert schema_valid(draft4, "4")
    assert not schema_valid(draft4, "3")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, '{"a":1,"a":2}'),
        ({"$ref": "#/nowhere"}, "1"),
        ({"$ref": "#"}, "1"),
        ({"pattern": "("}, '"a"'),
        ({"anyOf": [{"$ref": "#"}, {"not": {"type": ["null"]}}]}, "1"),
    ],
)
def test_what_has_no_truth_is_not_judged(schema: Any, text: str) -> None:
    with pytest.raises(Uncovered):
        schema_valid(schema, text)
    assert text_valid(GrammarSpec.json_schema(schema), text) is None


# ------------------------------------------------------------------------------------------------ schemas as terms

NAMES = ("a", "b", "c")  # in this order in schemas and in documents, as generation has them


def schemas() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(
        [{"type": "null"}, {"type": "boolean"}, {"const": "x"}, {"enum": [1, 12, "1"]}, {"$ref": "#/$defs/list"}]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(_object_schema, st.tuples(*[st.none() | inner] * 3), st.sets(st.sampled_from(NAMES))),
            st.builds(_array_schema, inner, st.integers(0, 2), st.none() | st.integers(2, 3)),
            st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options}),
        ),
        max_leaves=4,
    )


def _object_schema(inner: tuple[Any, ...], required: set[str]) -> dict[str, Any]:
    properties = {name: schema for name, schema in zip(NAMES, inner, strict=True) if schema is not None}
    listed = [name for name in properties if name in required]
    return {"type": "object", "properties": properties, "required": listed, "additionalProperties": False}


def _array_schema(items: Any, least: int, most: int | None) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, **({} if most is None else {"maxItems": most})}


def documents() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.sampled_from([None, True, "x", "1", 1, 12]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(NAMES), inner).map(lambda value: dict(sorted(value.items()))),
        ),
        max_leaves=5,
    )


LIST = {"list": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/list"}, "maxItems": 2}]}}


@settings(max_examples=400, deadline=None)
@given(schemas(), st.lists(documents(), min_size=1, max_size=8), st.sampled_from([None, 1]), st.booleans())
def test_a_schema_is_recognised_as_jsonschema_judges_it(
    schema: Any, values: list[Any], indent: int | None, compact: bool
) -> None:
    options = GrammarOptions(whitespace="compact") if compact else GrammarOptions()
    whole = {**schema, "$defs": LIST}
    found = recogniser_of(GrammarSpec.json_schema(whole, options=options))
    assert found is not None
    for value in values:
        for text in (json.dumps(value, indent=indent), json.dumps(value, separators=(",", ":"))):
            assert found.accepts(text) == schema_valid(whole, text, options), text


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "string"},
        {"type": "integer"},
        {"const": 1.5},
        {"const": "\n"},
        {"const": []},
        {"enum": [{"a": 1}]},
    ],
)
def test_schemas_with_several_spellings_have_no_recogniser(schema: Any) -> None:
    assert recogniser_of(GrammarSpec.json_schema(schema)) is None


def test_white_space_stands_between_the_tokens_of_a_document_and_nowhere_else() -> None:
    schema = {"type": "object", "properties": {"a": {"const": "x y"}}, "required": ["a"], "additionalProperties": False}
    found = recogniser_of(GrammarSpec.json_schema(schema, options=GrammarOptions(max_whitespace=2)))
    assert found is not None
    for text in ('{"a":"x y"}', '{ \n"a"\t:\r "x y" }'):
        assert found.accepts(text)
    for text in ('{"a":   "x y"}', ' {"a":"x y"}', '{"a":"x y"} ', '{"a":"x  y"}'):
        assert not found.accepts(text)


# ------------------------------------------------------------------------------------------- the official test suite

# Where the official suite and this oracle part ways, and why.
DIFFERENT = {
    "leap seconds and rare forms of addresses": r"format/(date-time|time)#0 .* .*:60|format/email#0 .*joe.bloggs@\[",
    "international names are letters, digits and hyphens here": r"optional/format/(hostname|idn-)|format/iri",
    "formats that are annotations here": r"format/(regex|uri-reference|uri-template|ecmascript-regex)",
    "formats are assertions, where the required tests take them for annotations": r"^(format|vocabulary)#",
    "documents that would have to be fetched": r"^(refRemote|dynamicRef)#|^optional/cross-draft#",
    "the dialect of patterns": r"ecmascript-regex#|unicode property escape|patternProperties#5",
    "a keyword of older drafts": r"dependencies-compatibility#",
    "a port after an address in brackets": r"format/uri#0 .*01\.2\.3\.4",
}
SUITE = Path(__file__).parents[3] / "shared" / "corpora" / "json_schema_test_suite"


@pytest.mark.skipif(not SUITE.is_dir(), reason="the JSON-Schema-Test-Suite is not beside this checkout")
def test_the_official_test_suite_agrees_but_for_known_differences() -> None:
    known = re.compile("|".join(f"(?:{pattern})" for pattern in DIFFERENT.values()), re.IGNORECASE)
    agreed, differing = 0, []
    for case in read_corpus(SUITE).cases:
        for test in case.tests:
            verdict = text_valid(GrammarSpec.json_schema(case.spec), test.text)
            agreed += verdict == test.valid
            name = f"{case.id} {test.text}"
            if verdict != test.valid and not known.search(name):
                differing.append((name, verdict))
    assert not differing
    assert agreed > 1_500
