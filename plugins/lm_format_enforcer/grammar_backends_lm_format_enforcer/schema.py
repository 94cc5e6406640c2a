"""Schemas as the engine can follow them: written anew in the few shapes that its parser reads as JSON Schema does.

References are put in place, types are one each, and the texts of names and members are spelled as JSON spells them.
What the support table lets pass but the parser would not enforce is refused here, with its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grammar_backends.contract import JSON, GrammarOptions
from grammar_backends.errors import SpecError, UnsupportedFeature, shown

__all__ = ["ANY", "engine_schema"]

TYPES = ("string", "number", "boolean", "null", "object", "array")
ANY: JSON = {"anyOf": [{"type": name} for name in TYPES]}
"""Any JSON value, as the engine says it."""

MAX_DEPTH = 32
MAX_SCHEMAS = 5_000
"""Subschemas once the references are in place: the bound on references that lead to references."""


class Literal(float):
    """A number to the engine, which spells the numbers of an `enum` as Python does: this one is spelled as given.

    Attributes:
        text: how it is spelled.
    """

    text = ""

    def __str__(self) -> str:
        return self.text


def engine_schema(schema: JSON, options: GrammarOptions) -> dict[str, Any]:
    """The schema for `JsonSchemaParser`.

    Raises:
        UnsupportedFeature: the engine would not enforce it as it stands.
        SpecError: bounds that no value meets.
    """
    return _Writer(schema, options).write(schema, "", ())


class _Writer:
    def __init__(self, root: JSON, options: GrammarOptions) -> None:
        self.root = root
        self.closed = options.additional_properties == "closed"
        self.count = 0

    def write(self, schema: JSON, pointer: str, references: Sequence[str]) -> dict[str, Any]:
        self.count += 1
        if self.count > MAX_SCHEMAS or pointer.count("/") > 2 * MAX_DEPTH:
            raise UnsupportedFeature("json_schema: too large or nested too deep", pointer=pointer)
        if schema is False:
            raise UnsupportedFeature("json_schema: the schema `false` is not enforced", pointer=pointer)
        if schema is True:
            return dict(ANY)
        if "$ref" in schema:
            return self._reference(schema["$ref"], pointer, references)
        if "anyOf" in schema:
            branches = enumerate(schema["anyOf"])
            return {"anyOf": [self.write(item, f"{pointer}/anyOf/{at}", references) for at, item in branches]}
        if "const" in schema or "enum" in schema:
            return _members(schema["enum"] if "enum" in schema else [schema["const"]], pointer)
        types = schema.get("type", list(TYPES))
        parts = [
            self._typed(name, schema, pointer, references) for name in ([types] if isinstance(types, str) else types)
        ]
        return parts[0] if len(parts) == 1 else {"anyOf": parts}

    def _reference(self, reference: str, pointer: str, references: Sequence[str]) -> dict[str, Any]:
        if reference in references:
            raise UnsupportedFeature("json_schema: recursion is not enforced", pointer=pointer, keyword="$ref")
        target = self.root
        try:
            for part in reference.removeprefix("#").split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                target = target[int(key) if isinstance(target, list) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            raise UnsupportedFeature(
                f"json_schema: {shown(reference)} is not resolved", pointer=pointer, keyword="$ref"
            ) from None
        return self.write(target, pointer, (*references, reference))

    def _typed(self, name: str, schema: Mapping[str, JSON], pointer: str, references: Sequence[str]) -> dict[str, Any]:
        if name == "object":
            return self._object(schema, pointer, references)
        if name == "array":
            return self._array(schema, pointer, references)
        if name not in (*TYPES, "integer"):
            raise SpecError(f"json_schema: there is no type {shown(name)}", pointer=pointer, keyword="type")
        written: dict[str, Any] = {"type": name}
        if name == "string":
            written.update(_bounds(schema, "minLength", "maxLength", pointer))
        return written

    def _array(self, schema: Mapping[str, JSON], pointer: str, references: Sequence[str]) -> dict[str, Any]:
        written = {"type": "array", **_bounds(schema, "minItems", "maxItems", pointer)}
        if written.get("maxItems") == 0:
            raise UnsupportedFeature("json_schema: maxItems 0 is not enforced", pointer=pointer, keyword="maxItems")
        if "items" in schema:
            written["items"] = self.write(schema["items"], f"{pointer}/items", references)
        return written

    def _object(self, schema: Mapping[str, JSON], pointer: str, references: Sequence[str]) -> dict[str, Any]:
        names = schema.get("properties", {})
        others = schema.get("additionalProperties", not self.closed)
        if names and others is not False:
            raise UnsupportedFeature(
                "json_schema: properties of an open object are not enforced",
                pointer=pointer,
                keyword="additionalProperties",
                hint='Add "additionalProperties": false',
            )
        if any(name not in names for name in schema.get("required", ())):
            raise UnsupportedFeature(
                "json_schema: a required property must be listed in properties", pointer=pointer, keyword="required"
            )
        written: dict[str, Any] = {"type": "object"}
        if others is False:
            written["properties"] = {
                _spelled(name): self.write(item, f"{pointer}/properties/{_escaped(name)}", references)
                for name, item in names.items()
            }
            written["required"] = [_spelled(name) for name in schema.get("required", ())]
        elif others is not True:
            written["additionalProperties"] = self.write(others, f"{pointer}/additionalProperties", references)
        return written


def _members(members: Sequence[JSON], pointer: str) -> dict[str, Any]:
    """An `enum`: the engine reads lists of texts, and lists of numbers."""
    if not members:
        raise SpecError("json_schema: no JSON text satisfies it", pointer=pointer, keyword="enum")
    texts = [_spelled(member) for member in members if isinstance(member, str)]
    others = [_literal(member) for member in members if not isinstance(member, str)]
    parts = [{"enum": part} for part in (texts, others) if part]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _literal(member: JSON) -> Literal:
    literal = Literal()
    literal.text = json.dumps(member, ensure_ascii=False, separators=(",", ":"))
    return literal


def _bounds(schema: Mapping[str, JSON], least: str, most: str, pointer: str) -> dict[str, int]:
    found = {name: int(schema[name]) for name in (least, most) if name in schema}
    if most in found and found.get(least, 0) > found[most]:
        raise SpecError(f"json_schema: {least} is above {most}", pointer=pointer, keyword=least)
    return found


def _spelled(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
