"""Structural tags: their shape, and the schemas, patterns and grammars inside them (B10, D8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from grammar_backends.contract import JSON, GrammarKind, GrammarSpec
from grammar_backends.errors import SpecError, shown
from grammar_backends.selection.tag_formats import MAX_NESTING, check_format, check_members

__all__ = ["check_tag", "inner_specs"]

INNER: Mapping[str, tuple[str, GrammarKind]] = {
    "json_schema": ("json_schema", GrammarKind.JSON_SCHEMA),
    "qwen_xml_parameter": ("json_schema", GrammarKind.JSON_SCHEMA),
    "regex": ("pattern", GrammarKind.REGEX),
    "grammar": ("grammar", GrammarKind.GRAMMAR),
}
"""The formats that hold a spec of another kind: the member it is in, and its kind."""


def check_tag(tag: JSON) -> None:
    """Raise `SpecError` unless a tag has the shape of one of the two forms."""
    if "format" in tag:
        check_members(tag, ("format", "type"), "")
        check_format(tag["format"], "/format")
        return
    check_members(tag, ("structures", "triggers", "type"), "")
    triggers = _list(tag, "triggers")
    for index, trigger in enumerate(triggers):
        if not isinstance(trigger, str) or not trigger:
            raise SpecError("structural_tag: a trigger is a non-empty string", pointer=f"/triggers/{index}")
    for index, structure in enumerate(_list(tag, "structures")):
        _check_structure(structure, triggers, f"/structures/{index}")


def _list(tag: Mapping[str, Any], key: str) -> list[Any]:
    value = tag[key]
    if not isinstance(value, list) or not value:
        raise SpecError(f"structural_tag: {key} must be a non-empty array", pointer=f"/{key}", keyword=key)
    return value


def _check_structure(structure: JSON, triggers: list[str], pointer: str) -> None:
    if not isinstance(structure, dict):
        raise SpecError("structural_tag: a structure is an object", pointer=pointer)
    check_members(structure, ("begin", "schema", "end"), pointer)
    for key in ("begin", "end"):
        if not isinstance(structure.get(key), str):
            raise SpecError(f"structural_tag: {key} must be a string", pointer=f"{pointer}/{key}", keyword=key)
    begin = structure["begin"]
    if not any(begin.startswith(trigger) for trigger in triggers):
        raise SpecError(
            f"structural_tag: begin {shown(begin)} starts with none of the triggers {shown(triggers)}",
            pointer=f"{pointer}/begin",
            keyword="begin",
        )


def inner_specs(spec: GrammarSpec) -> Iterator[tuple[str, GrammarSpec]]:
    """The schemas, patterns and grammars inside a tag, each with the pointer at which it stands.

    Raises:
        SpecError: one of them cannot even be a spec, or the tag is nested too deep.
    """
    tag = spec.value
    if "format" not in tag:
        for index, structure in enumerate(tag["structures"]):
            if structure.get("schema") is not None:
                pointer = f"/structures/{index}/schema"
                yield pointer, _inner(GrammarKind.JSON_SCHEMA, structure["schema"], {}, spec, pointer)
        return
    pending: list[tuple[str, Any, int]] = [("/format", tag["format"], 1)]
    while pending:
        pointer, value, depth = pending.pop()
        if depth > MAX_NESTING:
            raise SpecError(f"structural_tag: nested more than {MAX_NESTING} deep", pointer=pointer)
        if isinstance(value, list):
            below: Iterable[tuple[Any, Any]] = enumerate(value)
        else:
            member, kind = INNER.get(str(value.get("type")), ("", None))
            if kind is not None and member in value:
                at = f"{pointer}/{member}"
                yield at, _inner(kind, value[member], value, spec, at)
            below = ((key, item) for key, item in value.items() if key != member)
        pending += [(f"{pointer}/{key}", item, depth + 1) for key, item in below if isinstance(item, (dict, list))]


def _inner(
    kind: GrammarKind, content: JSON, holder: Mapping[str, Any], outer: GrammarSpec, pointer: str
) -> GrammarSpec:
    try:
        if kind is GrammarKind.JSON_SCHEMA:
            return GrammarSpec.json_schema(content, options=outer.options)
        if kind is GrammarKind.REGEX:
            return GrammarSpec.regex(content)
        return GrammarSpec.grammar(content, holder.get("syntax", "ebnf"))
    except SpecError as error:
        error.pointer = pointer + (error.pointer or "")
        raise
