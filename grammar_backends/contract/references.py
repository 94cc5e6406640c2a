"""Schemas written anew for engines that read them in another way: references of old drafts, and patterns."""

from __future__ import annotations

import re
from collections.abc import Callable

from grammar_backends.contract.spec import JSON

__all__ = ["DATA_KEYWORDS", "lone_references", "with_patterns"]

_OLD_DRAFT = re.compile(r"draft-0?[3-7]\b")
DATA_KEYWORDS = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose value is data, in which no keyword is one."""

_BY_NAME = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
_BESIDE_REFERENCES = frozenset({"$defs", "$id", "$ref", "$schema", "definitions"})


def lone_references(schema: JSON) -> JSON:
    """A schema without what stands beside `$ref`, where its draft ignores that: before 2019-09.

    For engines that read it all the same. Definitions stay, since references lead there.
    """
    is_old = isinstance(schema, dict) and _OLD_DRAFT.search(str(schema.get("$schema")))
    return _alone(schema, are_names=False) if is_old else schema


def _alone(schema: JSON, are_names: bool) -> JSON:
    if isinstance(schema, list):
        return [_alone(item, are_names=False) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if are_names:
        return {name: _alone(below, are_names=False) for name, below in schema.items()}
    is_alone = isinstance(schema.get("$ref"), str)
    return {
        key: value if key in DATA_KEYWORDS else _alone(value, are_names=key in _BY_NAME)
        for key, value in schema.items()
        if not is_alone or key in _BESIDE_REFERENCES
    }


def with_patterns(schema: JSON, write: Callable[[str], str]) -> JSON:
    """A schema with each of its patterns, of strings and of names of properties, as `write` returns it."""
    return _with_patterns(schema, write, are_names=False)


def _with_patterns(schema: JSON, write: Callable[[str], str], are_names: bool) -> JSON:
    if isinstance(schema, list):
        return [_with_patterns(item, write, are_names=False) for item in schema]
    if not isinstance(schema, dict):
        return schema
    written: dict[str, JSON] = {}
    for key, value in schema.items():
        if not are_names and key == "pattern" and isinstance(value, str):
            written[key] = write(value)
        elif not are_names and key in DATA_KEYWORDS:
            written[key] = value
        else:
            below = _with_patterns(value, write, are_names=not are_names and key in _BY_NAME)
            is_by_pattern = not are_names and key == "patternProperties" and isinstance(below, dict)
            written[key] = {write(name): each for name, each in below.items()} if is_by_pattern else below
    return written
