"""What stands beside a reference in the drafts that ignore it."""

from __future__ import annotations

from typing import Any

import pytest

from grammar_backends import GrammarSpec, load_backend, load_vocabulary
from grammar_backends.contract.references import lone_references

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
REFERENCE = {"$ref": "#/definitions/a"}
BESIDE = {**REFERENCE, "minimum": 5, "title": "t", "properties": {}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (BESIDE, REFERENCE),
        ({"items": [BESIDE, BESIDE]}, {"items": [REFERENCE, REFERENCE]}),
        ({"properties": {"a": BESIDE, "enum": BESIDE}}, {"properties": {"a": REFERENCE, "enum": REFERENCE}}),
        ({"definitions": {"$ref": BESIDE}}, {"definitions": {"$ref": REFERENCE}}),
        ({"dependencies": {"a": BESIDE, "b": ["c"]}}, {"dependencies": {"a": REFERENCE, "b": ["c"]}}),
        ({"properties": {"$ref": {"minimum": 5}, "b": {}}}, {"properties": {"$ref": {"minimum": 5}, "b": {}}}),
        ({"enum": [BESIDE], "default": BESIDE}, {"enum": [BESIDE], "default": BESIDE}),
        ({**BESIDE, "definitions": {"a": BESIDE}}, {**REFERENCE, "definitions": {"a": REFERENCE}}),
    ],
)
def test_c2_siblings_of_references_go_where_the_draft_ignores_them(schema: Any, expected: Any) -> None:
    assert lone_references({"$schema": DRAFT_7, **schema}) == {"$schema": DRAFT_7, **expected}
    for named in ({}, {"$schema": "https://json-schema.org/draft/2020-12/schema"}):
        assert lone_references({**named, **schema}) == {**named, **schema}
    assert lone_references(True) is True


@pytest.mark.parametrize("name", ["xgrammar", "guidance", "outlines", "lm-format-enforcer"])
def test_c2_what_a_draft_ignores_beside_a_reference_counts_on_no_engine(name: str) -> None:
    vocabulary = load_vocabulary("byte")
    closed = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    beside = {"$ref": "#/definitions/o", "type": "object", "properties": {"a": {"type": "string"}}}
    schema = {"$schema": DRAFT_7, "type": "array", "items": beside, "definitions": {"o": closed}}
    compiled = load_backend(name, vocabulary).compile_grammar(GrammarSpec.json_schema(schema))
    for text, legal in (('[{"a":1}]', True), ('[{"a":"s"}]', False), ("[{}]", False), ("[]", True)):
        ids = vocabulary.encode(text)
        assert (compiled.new_grammar().validate_tokens(ids) == ids) == legal, text
