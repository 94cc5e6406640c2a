"""The schema oracle against the specifications: JSON's letter, exact numbers, formats, the official test suite."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import GrammarOptions, GrammarSpec
from grammar_backends_conformance.comparison.corpus import read_corpus
from grammar_backends_conformance.oracles import Uncovered, json_valid, schema_valid, text_valid


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


def test_the_draft_that_a_schema_names_is_the_one_that_counts() -> None:
    draft4 = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True}
    assert schema_valid(draft4, "4")
    assert not schema_valid(draft4, "3")


@pytest.mark.parametrize(
    ("schema", "text"),
    [({}, '{"a":1,"a":2}'), ({"$ref": "#/nowhere"}, "1"), ({"$ref": "#"}, "1"), ({"pattern": "("}, '"a"')],
)
def test_what_has_no_truth_is_not_judged(schema: Any, text: str) -> None:
    with pytest.raises(Uncovered):
        schema_valid(schema, text)
    assert text_valid(GrammarSpec.json_schema(schema), text) is None


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
