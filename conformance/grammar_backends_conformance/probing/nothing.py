"""Probes about keywords where they assert nothing: an engine takes them for that, refuses them, or is misled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grammar_backends_conformance.probing.keywords import CLOSED, DRAFT_7, FEW, FRAGMENTS
from grammar_backends_conformance.probing.probe import Probe, about_schema

__all__ = ["nothing_probes"]

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
LIST = {"type": "array", "items": INTEGER}
OBJECT = {"type": "object", "properties": {"a": INTEGER, "b": STRING}, **CLOSED}
OPEN = {"type": "object", "additionalProperties": INTEGER}
OLD_LIST = {"$schema": DRAFT_7, **LIST}

EMPTY: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "additionalItems": [{**OLD_LIST, "additionalItems": True}, {**OLD_LIST, "additionalItems": False}],
    "allOf": [{**INTEGER, "allOf": []}],
    "contains": [{**LIST, "contains": INTEGER, "minContains": 0}],
    "dependencies": [
        {"$schema": DRAFT_7, **OBJECT, "dependencies": {}},
        {"$schema": DRAFT_7, **OBJECT, "dependencies": {"a": []}},
    ],
    "dependentRequired": [{**OBJECT, "dependentRequired": {}}, {**OBJECT, "dependentRequired": {"a": []}}],
    "dependentSchemas": [{**OBJECT, "dependentSchemas": {}}],
    "else": [{**INTEGER, "else": {"minimum": 3}}],
    "format": [{**STRING, "format": "my-own"}],
    "if": [{**INTEGER, "if": {"minimum": 3}}],
    "items": [{**INTEGER, "items": True}],
    "minItems": [{**LIST, "minItems": 0}],
    "minLength": [{**STRING, "minLength": 0}],
    "minProperties": [{**OPEN, "minProperties": 0}, {**OBJECT, "minProperties": 0}],
    "not": [{**INTEGER, "not": False}],
    "patternProperties": [{**OBJECT, "patternProperties": {}}],
    "prefixItems": [{**LIST, "prefixItems": []}],
    "propertyNames": [{**OPEN, "propertyNames": True}, {**OBJECT, "propertyNames": True}],
    "required": [{**OBJECT, "required": []}],
    "then": [{**INTEGER, "then": {"minimum": 3}}],
    "unevaluatedItems": [{**LIST, "unevaluatedItems": True}, {**LIST, "unevaluatedItems": False}],
    "unevaluatedProperties": [{**OBJECT, "unevaluatedProperties": True}, {**OPEN, "unevaluatedProperties": False}],
    "uniqueItems": [{**LIST, "uniqueItems": False}],
}
"""Per keyword, schemas in which it could be left out, whatever the types."""

COMBINED: Mapping[str, Mapping[str, Any]] = {
    "$ref": {"$ref": "#/$defs/text", "$defs": {"text": STRING}},
    "allOf": {"allOf": [STRING]},
    "anyOf": {"anyOf": [STRING, INTEGER]},
    "const": {"const": "a"},
    "enum": {"enum": ["a", 7]},
    "oneOf": {"oneOf": [STRING, INTEGER]},
}
SILENT: Mapping[str, Any] = {
    "additionalProperties": True,
    "items": True,
    "minItems": 0,
    "minLength": 0,
    "minProperties": 0,
    "patternProperties": {},
    "properties": {},
    "propertyNames": True,
    "required": [],
    "uniqueItems": False,
}
"""Keywords in a form that asserts nothing, whatever stands beside them."""


def nothing_probes() -> Iterator[Probe]:
    """Each keyword beside a type that it does not concern, and in the forms that say nothing."""
    foreign: dict[str, list[Mapping[str, Any]]] = {}
    for name, keywords in FRAGMENTS.items():
        for keyword, fragments in keywords.items():
            others = (STRING, INTEGER, {"type": ["boolean", "null"]})
            foreign[keyword] = [{**fragments[0], **other} for other in others if name != other["type"]]
    for keyword in sorted({*foreign, *EMPTY}):
        yield from about_schema(f"noops/{keyword}", [*_apart(keyword, foreign), *EMPTY.get(keyword, ())], FEW)
    for combinator, schema in COMBINED.items():
        for keyword, value in SILENT.items():
            yield from about_schema(f"pairs/any/{combinator}/{keyword}", [{**schema, keyword: value}], (*FEW, {}, []))


def _apart(keyword: str, foreign: Mapping[str, list[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    numeric = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    return [each for each in foreign.get(keyword, ()) if keyword not in numeric or each["type"] != "integer"]
