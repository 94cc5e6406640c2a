"""Specs: one canonical, hashable form for each meaning, and clear errors for what cannot be one."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

from grammar_backends.contract import GrammarKind, GrammarOptions, GrammarSpec, ToolStyle, parse_json
from grammar_backends.errors import SpecError


class UndescribedModel:
    """Like a pydantic model of something that JSON Schema has no words for."""

    @staticmethod
    def model_json_schema() -> None:
        raise TypeError("cannot generate a JsonSchema")


SCHEMA = {"type": "object", "properties": {"b": {"const": "é"}, "a": {}}}
TAG = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f>"]}
SPECS = [
    GrammarSpec.json_schema(SCHEMA),
    GrammarSpec.json_schema(True),
    GrammarSpec.json_object(),
    GrammarSpec.regex("a+"),
    GrammarSpec.choice(["a+"]),
    GrammarSpec.grammar("a+"),
    GrammarSpec.grammar("a+", "ebnf"),
    GrammarSpec.structural_tag(TAG),
    *[
        GrammarSpec.json_schema(SCHEMA, options=options)
        for options in (
            GrammarOptions(whitespace="compact"),
            GrammarOptions(max_whitespace=1),
            GrammarOptions(max_whitespace=2),
            GrammarOptions(additional_properties="closed"),
            GrammarOptions(json_object_only=False),
        )
    ],
]


def test_b3_different_meanings_have_different_keys() -> None:
    assert len({spec.key for spec in SPECS}) == len(set(SPECS)) == len(SPECS)


def test_b3_equal_meanings_have_equal_keys_and_hashes() -> None:
    forms: list[Any] = [SCHEMA, json.dumps(SCHEMA), json.dumps(SCHEMA, indent=4), json.dumps(SCHEMA).encode()]
    specs = [GrammarSpec.json_schema(form) for form in forms]
    assert len(set(specs)) == len({spec.key for spec in specs}) == 1
    assert GrammarSpec.choice(["a", "b", "a"]) == GrammarSpec.choice(("a", "b"))


def test_b3_the_order_of_properties_and_choices_is_part_of_the_meaning() -> None:
    turned = {"type": "object", "properties": {"a": {}, "b": {"const": "é"}}}
    assert GrammarSpec.json_schema(turned).key != SPECS[0].key
    assert GrammarSpec.choice(["a", "b"]).key != GrammarSpec.choice(["b", "a"]).key


def test_b3_keys_are_the_same_in_every_process() -> None:
    code = "from grammar_backends.contract import GrammarSpec; print(GrammarSpec.regex('a+').key)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == GrammarSpec.regex("a+").key


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_b3_specs_are_frozen_and_travel(spec: GrammarSpec) -> None:
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(AttributeError):
        spec.text = "other"  # type: ignore[misc]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_b3_a_spec_made_of_its_parts_is_the_same(spec: GrammarSpec) -> None:
    assert GrammarSpec(spec.kind, spec.text, spec.syntax, spec.options) == spec


def test_b3_a_spec_made_by_hand_has_the_canonical_text() -> None:
    by_hand = GrammarSpec(GrammarKind.CHOICE, '["a", "a"]', options=None)  # type: ignore[arg-type]
    assert by_hand == GrammarSpec.choice(["a"])


def test_the_content_comes_back_as_data() -> None:
    assert SPECS[0].value == SCHEMA
    assert list(SPECS[0].value["properties"]) == ["b", "a"]
    assert GrammarSpec.choice(["é", "é", ""]).value == ["é", ""]
    assert GrammarSpec.structural_tag(json.dumps(TAG)).value == TAG
    assert GrammarSpec.regex("é\n").value == "é\n"


def test_d2_d7_empty_texts_that_are_valid() -> None:
    assert GrammarSpec.choice([""]).value == [""]
    assert GrammarSpec.regex("").text == ""
    assert GrammarSpec.regex("  ").text == "  "


BAD = {
    "schema text": (lambda: GrammarSpec.json_schema('{"a":\n 1,}'), "2:"),
    "schema blank": (lambda: GrammarSpec.json_schema("  "), "blank"),
    "schema number": (lambda: GrammarSpec.json_schema("1"), "object or a boolean"),
    "schema list": (lambda: GrammarSpec.json_schema([]), "object or a boolean"),
    "schema null": (lambda: GrammarSpec.json_schema(None), "object or a boolean"),
    "schema NaN": (lambda: GrammarSpec.json_schema('{"minimum": NaN}'), "NaN"),
    "schema infinite": (lambda: GrammarSpec.json_schema({"minimum": float("inf")}), "not representable"),
    "schema of objects": (lambda: GrammarSpec.json_schema({"a": object()}), "not representable"),
    "schema surrogate": (lambda: GrammarSpec.json_schema({"const": "\ud800"}), "surrogate"),
    "schema bytes": (lambda: GrammarSpec.json_schema(b"\xff"), "not"),
    "schema deep": (lambda: GrammarSpec.json_schema("[" * 100_000), "deep"),
    "regex none": (lambda: GrammarSpec.regex(None), "text is needed, not null"),  # type: ignore[arg-type]
    "regex NUL": (lambda: GrammarSpec.regex("a\0"), "NUL character at character 1"),
    "regex surrogate": (lambda: GrammarSpec.regex("a\ud800"), "surrogate"),
    "choice none": (lambda: GrammarSpec.choice([]), "empty"),
    "choice text": (lambda: GrammarSpec.choice("ab"), "list of strings"),
    "choice number": (lambda: GrammarSpec.choice(["a", 1]), "not a number at /1"),  # type: ignore[list-item]
    "choice surrogate": (lambda: GrammarSpec.choice(["\udfff"]), "surrogate"),
    "grammar blank": (lambda: GrammarSpec.grammar(" \n"), "blank"),
    "grammar syntax": (lambda: GrammarSpec.grammar("a", "bnf"), "syntax must be one of"),  # type: ignore[arg-type]
    "grammar NUL": (lambda: GrammarSpec.grammar("root ::= \0"), "NUL"),
    "tag neither": (lambda: GrammarSpec.structural_tag({"triggers": []}), "neither form"),
    "tag list": (lambda: GrammarSpec.structural_tag([]), "object is needed"),
    "tag text": (lambda: GrammarSpec.structural_tag("{"), "not JSON"),
    "whitespace": (lambda: GrammarOptions(whitespace="none"), "option whitespace"),  # type: ignore[arg-type]
    "max_whitespace": (lambda: GrammarOptions(max_whitespace=0), "option max_whitespace"),
    "max_whitespace, huge": (lambda: GrammarOptions(max_whitespace=10**30), "from 1 to 1000000"),
    "max_whitespace, truth": (lambda: GrammarOptions(max_whitespace=True), "from 1 to 1000000"),
    "properties": (
        lambda: GrammarOptions(additional_properties=False),  # type: ignore[arg-type]
        "option additional_properties",
    ),
    "json_object_only": (lambda: GrammarOptions(json_object_only=1), "json_object_only"),  # type: ignore[arg-type]
    "options": (lambda: GrammarSpec.regex("a", options={}), "options are GrammarOptions, not {}"),  # type: ignore[arg-type]
    "by hand, data": (
        lambda: GrammarSpec(GrammarKind.JSON_SCHEMA, {"type": "object"}),  # type: ignore[arg-type]
        "Use the constructor of its kind",
    ),
    "by hand, kind": (lambda: GrammarSpec("regex", "a"), "Use the constructor"),  # type: ignore[arg-type]
    "by hand, text": (lambda: GrammarSpec(GrammarKind.JSON_SCHEMA, '{"a":\n 1,}'), "2:"),
    "by hand, choice": (lambda: GrammarSpec(GrammarKind.CHOICE, '"ab"'), "list of strings"),
    "by hand, tag": (lambda: GrammarSpec(GrammarKind.STRUCTURAL_TAG, "{}"), "neither form"),
    "by hand, grammar": (lambda: GrammarSpec(GrammarKind.GRAMMAR, ""), "blank"),
    "by hand, syntax": (lambda: GrammarSpec(GrammarKind.REGEX, "a", "lark"), "only a grammar has a syntax"),
    "by hand, object": (lambda: GrammarSpec(GrammarKind.JSON_OBJECT, "{}"), "nothing to say"),
    "openai type": (lambda: GrammarSpec.from_openai({"type": "xml"}), "unknown type 'xml' at /type"),
    "openai schema": (lambda: GrammarSpec.from_openai({"type": "json_schema"}), "the schema is missing"),
    "openai tools": (lambda: GrammarSpec.from_openai(tools=5), "tools: an array is needed, not a number"),
    "openai calls": (lambda: GrammarSpec.from_openai(tool_choice="required"), "'required' without tools"),
    "openai call": (lambda: GrammarSpec.from_openai(tools=None, tool_choice={"function": {"name": "f"}}), "without"),
    "pydantic": (lambda: GrammarSpec.from_pydantic(object()), "no schema for"),
    "pydantic model": (lambda: GrammarSpec.from_pydantic(UndescribedModel), "no schema for"),
}


@pytest.mark.parametrize("name", BAD)
def test_d1_to_d8_what_cannot_be_a_spec_is_a_spec_error_that_says_why(name: str) -> None:
    make, words = BAD[name]
    with pytest.raises(SpecError) as caught:
        make()
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_openai_formats_become_the_same_specs() -> None:
    assert GrammarSpec.from_openai({"type": "text"}) is None
    assert GrammarSpec.from_openai({"type": "json_object"}) == GrammarSpec.json_object()
    wrapped = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    assert GrammarSpec.from_openai(wrapped) == SPECS[0]
    assert GrammarSpec.from_openai({"type": "structural_tag", **TAG}) == GrammarSpec.structural_tag(TAG)
    options = GrammarOptions(whitespace="compact")
    assert GrammarSpec.from_openai(wrapped, options=options) == GrammarSpec.json_schema(SCHEMA, options=options)


def test_a_pydantic_model_becomes_its_schema() -> None:
    class Model:
        """Has the one method of a pydantic model that is asked for."""

        @staticmethod
        def model_json_schema() -> dict[str, Any]:
            return SCHEMA

    assert GrammarSpec.from_pydantic(Model) == SPECS[0]


def test_specs_say_what_they_are_without_their_content() -> None:
    for spec in SPECS:
        assert str(spec.kind) in str(spec)
        assert spec.key[:12] in str(spec)
        assert "<f>" not in str(spec)


def test_parse_json_passes_data_through() -> None:
    assert parse_json(SCHEMA, "x") is SCHEMA
    assert parse_json("[1]", "x") == [1]


def test_every_kind_is_covered_here() -> None:
    assert {spec.kind for spec in SPECS} == set(GrammarKind)
    for one, other in itertools.combinations(SPECS, 2):
        assert one != other


TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": SCHEMA, "strict": True}},
    {"type": "function", "function": {"name": "now", "parameters": SCHEMA}},
]


def test_d18_tools_become_a_structural_tag() -> None:
    spec = GrammarSpec.from_openai(tools=TOOLS)
    assert spec == GrammarSpec.structural_tag(
        {
            "structures": [
                {"begin": '<tool_call>\n{"name": "add", "arguments": ', "schema": SCHEMA, "end": "}\n</tool_call>"},
                {
                    "begin": '<tool_call>\n{"name": "now", "arguments": ',
                    "schema": {"type": "object"},
                    "end": "}\n</tool_call>",
                },
            ],
            "triggers": ["<tool_call>"],
        }
    )
    assert GrammarSpec.from_openai({"type": "text"}, tools=TOOLS) == spec
    assert (
        GrammarSpec.from_openai({"type": "json_object"}, tools=TOOLS, tool_choice="none") == GrammarSpec.json_object()
    )
    assert GrammarSpec.from_openai(tools=TOOLS, tool_choice="none") is None


def test_d18_a_required_call_comes_first_and_a_named_one_is_all_there_is() -> None:
    style = ToolStyle("[CALL]", "[CALL]{name}:", ";")
    required = GrammarSpec.from_openai(tools=TOOLS, tool_choice="required", tool_style=style)
    assert required is not None
    assert required.value["format"]["at_least_one"] is True
    assert [tag["begin"] for tag in required.value["format"]["tags"]] == ["[CALL]add:", "[CALL]now:"]
    named = GrammarSpec.from_openai(
        tools=TOOLS, tool_choice={"type": "function", "function": {"name": "add"}}, tool_style=style
    )
    assert named is not None
    assert named.value["format"] == {
        "type": "tag",
        "begin": "[CALL]add:",
        "content": {"type": "json_schema", "json_schema": SCHEMA},
        "end": ";",
    }


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"response_format": {"type": "json_object"}, "tools": TOOLS}, "cannot be combined with tools"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "the same name"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "unknown value 'sometimes'"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "sub"}}}, "no tool 'sub'.*Tools: add, now"),
        ({"tools": [{"function": {"name": "a b"}}]}, "a function with a name.* at /0"),
        ({"tools": [{"name": "add"}]}, "a function with a name"),
        ({"response_format": "text"}, "an object is needed"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": ["add"]}}}, "no tool"),
        ({"tools": [{"function": {"name": "a", "strict": True, "parameters": None}}]}, "/0/function/parameters"),
        ({"tools": [{"function": {"name": "a", "strict": "yes"}}]}, "strict must be true or false"),
    ],
)
def test_d18_a_wrong_request_says_what_is_wrong(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        GrammarSpec.from_openai(**request_)


def test_d18_a_style_must_tell_calls_apart() -> None:
    for style in (("", "{name}", ""), ("<a>", "{name}", ""), ("<a>", "<a>", "")):
        with pytest.raises(SpecError, match="tool_style"):
            ToolStyle(*style)


def test_types_that_pydantic_reads_become_their_schema() -> None:
    pytest.importorskip("pydantic")
    from typing_extensions import TypedDict  # the one that pydantic reads before Python 3.12

    @dataclasses.dataclass
    class Point:
        x: int

    class Named(TypedDict):
        name: str

    integer, text = {"title": "X", "type": "integer"}, {"title": "Name", "type": "string"}
    for type_, properties in ((Point, {"x": integer}), (Named, {"name": text})):
        schema = GrammarSpec.from_pydantic(type_).value
        assert schema["properties"] == properties
        assert schema["required"] == list(properties)
    assert GrammarSpec.from_pydantic(list[int]).value == {"items": {"type": "integer"}, "type": "array"}
