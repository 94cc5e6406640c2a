"""JSON schemas on every backend: where an engine by itself takes texts that the schema forbids.

A backend may refuse a schema; one that takes it must enforce it.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from typing import Any

import jsonschema
import pytest

from grammar_backends import GrammarOptions, GrammarSpec, load_backend, load_vocabulary
from grammar_backends.errors import UnsupportedFeature

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")


@functools.cache
def backend(name: str) -> Any:
    return load_backend(name, load_vocabulary("byte"))


def takes(name: str, spec: GrammarSpec, *texts: str) -> list[bool] | None:
    """Which texts a backend takes; None when it refuses the spec."""
    try:
        compiled = backend(name).compile_grammar(spec)
    except UnsupportedFeature:
        return None
    vocabulary = load_vocabulary("byte")
    return [
        compiled.new_grammar().accept_tokens("r", [*vocabulary.encode(text), vocabulary.stop_ids[0]]) for text in texts
    ]


def escaped(text: str) -> str:
    return '"' + "".join(f"\\u{ord(character):04x}" for character in text) + '"'


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    "listed", ["a", "ab", "a/b", "é", "日本", 'a"b', "a\\b", "a\nb", "\n", "a\x01", "\x1f", "\x7f", ""]
)
def test_c3_a_listed_name_in_any_spelling_is_no_additional_property(name: str, listed: str) -> None:
    schema = {"type": "object", "properties": {listed: {"type": "integer"}}}
    plain, ascii_only = json.dumps(listed, ensure_ascii=False), json.dumps(listed)
    wrong = {f'{{{key}: "x"}}' for key in (plain, ascii_only, escaped(listed), plain.replace("/", "\\/"))}
    right = [f"{{{plain}: 1}}", '{"other": "x"}', '{"é\\n\\"\\\\": "x"}', "{}"]
    verdicts = takes(name, GrammarSpec.json_schema(schema), *right, *wrong)
    assert verdicts in (None, [True] * len(right) + [False] * len(wrong))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    "pattern",
    [
        *('^[^"]*$', r"^[^\\]+$", r'^[^"\\]*$', r'^[^\d"]*$', r"^[^a\\]*$", r"^[\x00-!#-~]*$", r"^[^\x22]{1,2}$"),
        *(r"^[^/]*$", r"^\D*$", r"^\S*$", "^.*$", "^a[^b]c$", r'^x([^"]|y)$', r"^\[[^\]\\]*\]$"),
    ],
)
def test_c3_a_class_leaves_out_the_characters_that_json_escapes(name: str, pattern: str) -> None:
    spec = GrammarSpec.json_schema({"type": "string", "pattern": pattern})
    alphabet = ["a", "b", '"', "\\", "é", "[", "]", "7"]
    values = ["", *alphabet, *map("".join, itertools.product(alphabet, repeat=2)), "abc", 'a"c', "a\\c", 'x"', "[a]"]
    rule = re.compile(pattern)
    verdicts = takes(name, spec, *(json.dumps(value, ensure_ascii=False) for value in values))
    if verdicts is not None:
        assert [value for value, taken in zip(values, verdicts, strict=True) if taken and not rule.search(value)] == []
        if name == "guidance":
            assert verdicts == [rule.search(value) is not None for value in values]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("pattern", "characters"),
    [
        (r"[\p{Lu}]", "LAÉ"),
        (r"[\p{Lu}\p{Nd}_]", "LAÉ1_"),
        (r"\p{L}", "LAÉaépu"),
        (r"[^\P{L}]", "LAÉaépu"),
        (r"[\pN-]", "1-"),
        (r"[\\p]", "\\p"),
        ("[[a]", "[a"),
        (r"[a[\]]", "[]a"),
        ("[^[a]", "LAÉép1{}]&,-+~_\\u"),
        ("[a&&é]", "a&é"),
        ("[+--]", "+,-"),
        ("[a~~]", "a~"),
    ],
)
def test_c3_a_class_is_a_set_of_characters_and_no_more(name: str, pattern: str, characters: str) -> None:
    alphabet = "LAÉaép1{}[]&,-+~_\\u"
    spec = GrammarSpec.json_schema({"type": "string", "pattern": f"^{pattern}$"})
    verdicts = takes(name, spec, *(json.dumps(value, ensure_ascii=False) for value in alphabet))
    found = None if verdicts is None else {value for value, taken in zip(alphabet, verdicts, strict=True) if taken}
    assert found in (None, {value for value in alphabet if value in characters}), pattern


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("format_", "right", "wrong"),
    [
        (
            "date",
            ["2024-02-29", "2000-02-29", "1999-12-31", "0004-02-29", "2023-04-30"],
            ["2023-02-29", "1900-02-29", "2023-02-30", "2023-04-31", "2023-13-01", "2023-00-10", "23-01-01"],
        ),
        (
            "time",
            ["23:59:60Z", "00:00:00Z", "12:30:59.123+02:00", "23:59:60.5-00:00", "12:00:00z"],
            ["23:58:60Z", "22:59:60Z", "24:00:00Z", "12:60:00Z", "12:00:61Z", "12:00:00", "12:00:00+24:00"],
        ),
        (
            "date-time",
            ["2024-02-29T12:00:00Z", "1998-12-31T23:59:60Z", "2023-06-30t08:30:06.283185z"],
            ["2023-02-29T12:00:00Z", "1998-12-31T23:58:60Z", "2023-06-31T00:00:00Z", "2023-06-30 08:30:06Z"],
        ),
    ],
)
def test_c3_dates_and_times_know_the_calendar(name: str, format_: str, right: list[str], wrong: list[str]) -> None:
    spec = GrammarSpec.json_schema({"type": "string", "format": format_})
    verdicts = takes(name, spec, *map(json.dumps, (*right, *wrong)))
    assert verdicts in (None, [True] * len(right) + [False] * len(wrong))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("form", ["legacy", "format"])
@pytest.mark.parametrize(
    "options",
    [
        GrammarOptions(),
        GrammarOptions(whitespace="compact"),
        GrammarOptions(additional_properties="closed"),
        GrammarOptions(max_whitespace=1),
    ],
    ids=["default", "compact", "closed", "one blank"],
)
def test_b5_the_options_of_a_request_hold_inside_structural_tags(name: str, form: str, options: GrammarOptions) -> None:
    schema = {"x-guidance": {"lenient": True}, "type": "object", "properties": {"a": {"type": "integer"}}}
    tag: dict[str, Any] = {"structures": [{"begin": "<f>", "schema": schema, "end": "</f>"}], "triggers": ["<f>"]}
    if form == "format":
        content = {"type": "json_schema", "json_schema": schema}
        tag = {"format": {"type": "tag", "begin": "<f>", "content": content, "end": "</f>"}}
    contents = ['{"a":1}', '{"a": 1}', '{"a":  1}', '{"a":1,"b":2}', '{"a":"x"}']
    alone = takes(name, GrammarSpec.json_schema(schema, options=options), *contents)
    tagged = takes(
        name, GrammarSpec.structural_tag(tag, options=options), *(f"<f>{content}</f>" for content in contents)
    )
    assert tagged in (None, alone)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("pattern", ["^[]$", "^[^]$", r"^[]\\]?$", "^[[:alpha:]]$", "^[a[:^digit:]]$"])
def test_c3_a_class_that_dialects_read_in_other_ways_is_refused(name: str, pattern: str) -> None:
    assert takes(name, GrammarSpec.json_schema({"type": "string", "pattern": pattern})) is None


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("listed", [["a"], ["ab", "abc", "b"], ["", "é"], ["日本", "a/b", "a-c"]])
def test_c3_what_additional_properties_hold_says_nothing_about_listed_ones(name: str, listed: list[str]) -> None:
    properties = {key: {"type": "integer"} for key in listed}
    schema = {"type": "object", "properties": properties, "additionalProperties": {"type": "string"}}
    keys = [*listed, *(key + "x" for key in listed), *(key[:-1] for key in listed), "z", "aa", 'q"', "\\", "\n"]
    is_valid = jsonschema.Draft202012Validator(schema).is_valid
    values = [{key: value} for key in keys for value in (1, "x")]
    verdicts = takes(
        name, GrammarSpec.json_schema(schema), *(json.dumps(value, ensure_ascii=False) for value in values)
    )
    assert verdicts in (None, [is_valid(value) for value in values])


MERGED = {
    "both": {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}}]},
    "either": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "anyOf": [{"required": ["b"], "properties": {"b": {"type": "string"}}}, {"required": ["c"]}],
    },
    "reference": {
        "$ref": "#/$defs/x",
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "$defs": {"x": {"type": "object", "properties": {"b": {"type": "string"}}}},
    },
    "nested": {"allOf": [{"properties": {"a": {"anyOf": [{"properties": {"b": {"type": "string"}}}]}}}]},
}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("schema", MERGED.values(), ids=list(MERGED))
def test_c3_open_objects_that_are_merged_stay_what_they_are(name: str, schema: dict[str, Any]) -> None:
    schema = {"type": "object", **schema}
    values = [
        {},
        {"a": 1},
        {"a": "x"},
        {"a": 1, "b": "x"},
        {"a": 1, "b": 2},
        {"a": 1, "c": None},
        {"a": 1, "b": "x", "c": None},
        {"a": {"b": 1}},
    ]
    verdicts = takes(name, GrammarSpec.json_schema(schema), *map(json.dumps, values))
    if verdicts is not None:
        is_valid = jsonschema.Draft202012Validator(schema).is_valid
        assert [value for value, taken in zip(values, verdicts, strict=True) if taken and not is_valid(value)] == []


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"exclusiveMinimum": 1, "maximum": 1.5}, "1"),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 0.25}, "0"),
        ({"minimum": -2.5, "exclusiveMaximum": -2}, "-2"),
        ({"allOf": [{"exclusiveMinimum": 1}, {"maximum": 1.5}]}, "1"),
        ({"exclusiveMinimum": 1, "anyOf": [{"maximum": 1.5}, {"minimum": 7}]}, "1"),
        ({"exclusiveMinimum": 1, "$ref": "#/$defs/low", "$defs": {"low": {"maximum": 1.5}}}, "1"),
    ],
)
def test_c3_a_whole_number_is_excluded_however_near_the_other_bound_is(name: str, schema: Any, wrong: str) -> None:
    assert takes(name, GrammarSpec.json_schema({"type": "number", **schema}), wrong) in (None, [False])


@pytest.mark.parametrize("schema", [{"exclusiveMinimum": 0}, {"exclusiveMinimum": 0, "maximum": 1}])
def test_c3_a_whole_number_is_excluded_where_guidance_can(schema: Any) -> None:
    assert takes("guidance", GrammarSpec.json_schema({"type": "number", **schema}), "0", "0.5") == [False, True]


def test_c3_xgrammar_has_six_decimals_beside_a_bound_as_its_costs_say() -> None:
    """Once this fails, `short-decimals` can leave xgrammar's table."""
    spec = GrammarSpec.json_schema({"type": "number", "minimum": 0})
    assert takes("xgrammar", spec, "0.123456", "0.1234567") == [True, False]
    assert takes("guidance", spec, "0.123456", "0.1234567") == [True, True]


@pytest.mark.parametrize(
    "names", [{"propertyNames": {"minLength": 1}}, {"patternProperties": {"^.+$": {}}, "additionalProperties": False}]
)
def test_c3_xgrammar_has_no_names_with_escapes_as_its_costs_say(names: Any) -> None:
    """Once this fails, `plain-names` can leave xgrammar's table."""
    spec = GrammarSpec.json_schema({"type": "object", **names})
    assert takes("xgrammar", spec, '{"a": 1}', '{"\\"": 1}', '{"\\n": 1}') == [True, False, False]
    assert takes("guidance", spec, '{"a": 1}', '{"\\"": 1}', '{"\\n": 1}') == [True, True, "minLength" in str(names)]


@pytest.mark.parametrize(
    "annotation",
    [{"title": "t"}, {"nullable": True}, {"x-order": 1}, {"deprecated": True}, {"x-ui": {"type": "string"}}],
    ids=lambda annotation: next(iter(annotation)),
)
@pytest.mark.parametrize(
    "reference", [{"$ref": "#/$defs/node"}, {"allOf": [{"$ref": "#/$defs/node"}]}], ids=["ref", "allOf"]
)
def test_c3_an_annotation_beside_a_reference_that_leads_back_changes_nothing(reference: Any, annotation: Any) -> None:
    node = {"type": "object", "properties": {"next": {**reference, **annotation}}, "additionalProperties": False}
    spec = GrammarSpec.json_schema({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert takes("guidance", spec, '{"next": {"next": {}}}', '{"next": {"next": 1}}', '{"x": {}}') == [
        True,
        False,
        False,
    ]


def test_c3_a_reference_may_lead_into_what_is_no_keyword() -> None:
    schema = {"$ref": "#/components/schemas/A", "components": {"schemas": {"A": {"enum": ["x"], "x-y": {"B": {}}}}}}
    assert takes("guidance", GrammarSpec.json_schema(schema), '"x"', '"y"') == [True, False]
    for name, written in (("x/y", "x~1y"), ("x~y", "x~0y"), ("x y", "x%20y"), ("é", "é")):
        escaped = {"$ref": f"#/{written}", name: {"enum": ["x"]}}
        assert takes("guidance", GrammarSpec.json_schema(escaped), '"x"', '"y"') == [True, False]


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (
            {"items": [INTEGER, {}], "allOf": [{"items": [True, TEXT]}], "additionalItems": False, "$schema": DRAFT_7},
            ["[1]", '[1, "a"]'],
            ["[1, 2]", '[1, "a", "b"]', '["a"]'],
        ),
        (
            {
                "type": "object",
                "properties": {"a": INTEGER},
                "patternProperties": {"^x": INTEGER},
                "anyOf": [{"properties": {"b": TEXT}}, {"maxProperties": 1}],
                "additionalProperties": TEXT,
            },
            ['{"x": 1}', '{"a": 1, "b": "s", "c": "s"}'],
            ['{"x": "s"}', '{"a": "s"}', '{"c": 1}'],
        ),
        (
            {
                "$ref": "#/$defs/d",
                "properties": {"a": {"minimum": 2}},
                "additionalProperties": INTEGER,
                "$defs": {"d": {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}}},
            },
            ['{"a": 2, "b": 1}', '{"c": 1}'],
            ['{"a": 1}', '{"c": "s"}', '{"b": "s"}'],
        ),
    ],
    ids=["items", "properties", "reference"],
)
def test_c3_the_order_of_keywords_means_nothing(name: str, schema: Any, right: list[str], wrong: list[str]) -> None:
    for order in itertools.permutations(schema):
        verdicts = takes(name, GrammarSpec.json_schema({keyword: schema[keyword] for keyword in order}), *right, *wrong)
        assert verdicts in (None, [True] * len(right) + [False] * len(wrong)), order


@pytest.mark.parametrize(
    "draft",
    [
        "http://json-schema.org/schema#",
        "http://json-schema.org/draft-04/schema",
        "https://json-schema.org/draft-06/schema#",
        "https://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "https://example.com/dialect",
        "",
    ],
)
def test_c3_a_draft_may_be_named_in_any_way(draft: str) -> None:
    schema = {"$schema": draft, "type": "object", "properties": {"a": INTEGER}, "required": ["a"]}
    spec = GrammarSpec.json_schema(schema)
    assert takes("guidance", spec, '{"a": 1}', "{}", '{"a": "s"}') == [True, False, False]
    # What stands beside a reference counts from 2019-09 on.
    beside = {"$schema": draft, "$ref": "#/$defs/n", "minimum": 3, "$defs": {"n": INTEGER}}
    is_old = "draft-0" in draft
    assert takes("guidance", GrammarSpec.json_schema(beside), "5", "1") == [True, is_old]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("keyword", ["$id", "id"])
@pytest.mark.parametrize(
    "id_",
    ["https://example.com/a.json", "a.json", "my schema", "#root", "https://example.com/a#b", "urn:a:b", "", "%zz"],
)
def test_c3_the_name_of_a_schema_changes_nothing(name: str, keyword: str, id_: str) -> None:
    number = {keyword: "#/properties/a", "type": "integer"}
    schema = {
        keyword: id_,
        "type": "object",
        "properties": {"a": number},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert takes(name, GrammarSpec.json_schema(schema), '{"a": 1}', "{}", '{"a": "s"}') in (None, [True, False, False])
    assert takes("guidance", GrammarSpec.json_schema(schema), '{"a": 1}') == [True]


def test_c3_references_by_name_and_by_anchor_lead_where_they_should() -> None:
    schema = {
        "$id": "https://example.com/root",
        "type": "array",
        "prefixItems": [{"$ref": "#n"}, {"$ref": "https://example.com/root#/$defs/n"}, {"$ref": "root#n"}],
        "$defs": {"n": {"$anchor": "n", "type": "integer"}},
    }
    assert takes("guidance", GrammarSpec.json_schema(schema), "[1, 2, 3]", '["s"]', '[1, 2, "s"]') == [
        True,
        False,
        False,
    ]


LARGE: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    *(({"type": "integer", "multipleOf": step}, [0, step, -3 * step], [1, step + 1]) for step in (1024, 1025, 86_400)),
    *(({"type": "integer", "multipleOf": step}, [], [1, step + 1]) for step in (99_999_989, 2**31, 2**32 + 1, 10**30)),
    *(({"type": "integer", "multipleOf": step}, [], [80, 5990, 299_999]) for step in (3e-13, 7e-9, 7e-10, 3e-320)),
    *(({"type": "number", "multipleOf": step}, [], [1, 2.5]) for step in (2**31, 12_345_678.9, 1e300)),
    ({"type": "number", "maximum": 9624366306.418835}, [], [9624366306.418837]),
    ({"type": "number", "minimum": 9080325600.347837}, [], [9080325600.347836, 0]),
    ({"type": "number", "exclusiveMaximum": 89667980838.08775}, [], [89667980838.08775]),
    ({"type": "integer", "exclusiveMinimum": -1e18}, [], [-(10**18), -(10**18) - 1]),
    *(({"enum": [number, 7]}, [7, number], [number + 1e-6]) for number in (9992335412.853025, 0.25)),
    ({"const": {"a": [907499572.9735069]}}, [], [{"a": [907499572.9735068]}, {"a": [907499572.973507]}]),
    *(({"type": "string", "minLength": count}, [], ["", "a"]) for count in (2**31, 2**32 + 1, 10**30)),
    *(({"type": "string", "maxLength": count}, ["", "a"], [1]) for count in (2**31, 2**32 + 1, 10**30)),
    *(({"type": "array", "items": INTEGER, "minItems": count}, [], [[], [1]]) for count in (2**31, 2**32, 10**30)),
    *(({"type": "array", "items": INTEGER, "maxItems": count}, [[], [1]], [1]) for count in (2**31, 2**32, 10**30)),
    *(({"type": "object", "minProperties": count}, [], [{}, {"a": 1}]) for count in (2**31, 2**32, 2**32 + 1, 10**30)),
    *(({"type": "object", "maxProperties": count}, [{}, {"a": 1}], [1]) for count in (2**31, 2**32, 10**30)),
]
"""Schemas with numbers that are no usual ones, and values that they allow and forbid."""


@pytest.mark.parametrize(("schema", "right", "wrong"), LARGE, ids=str)
def test_c3_large_and_tiny_numbers_are_enforced_or_refused(schema: Any, right: list[Any], wrong: list[Any]) -> None:
    spec = GrammarSpec.json_schema(schema)
    verdicts = [takes(name, spec, *map(json.dumps, (*right, *wrong))) for name in BACKENDS]
    enforced = [True] * len(right) + [False] * len(wrong)
    assert [verdict for verdict in verdicts if verdict not in (None, enforced)] == []
    assert enforced in verdicts or not right  # somebody enforces what can be met
