"""When two schemas exclude one another, and which kinds of value a schema may admit.

All answers are one-sided: "disjoint" and "excludes" are certain, the opposite is merely not known.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

from grammar_backends.contract.spec import JSON
from grammar_backends.selection.keywords import View, declared
from grammar_backends.selection.patterns import cannot_match
from grammar_backends.selection.schema import (
    ANY,
    FORMAT_LENGTHS,
    INT,
    OBJECT,
    STRING,
    Site,
    in_range,
    kind_of,
    number_bounds,
)

__all__ = ["disjoint", "excludes", "exclusive", "is_implied", "members_of", "required_of", "texts_of"]


def is_implied(view: View, sibling: str, keyword: str) -> bool:
    """True for a `type` that the combinator beside it implies already."""
    if sibling != "type":
        return False
    if keyword in ("enum", "const"):
        return True  # judged by the members, see _enum_type_conflict
    return not possible(view.site, without_type=True) & ~view.bits


def possible(site: Site, depth: int = 8, *, without_type: bool = False) -> int:
    """The kinds of value that a site may admit: never too few."""
    schema = site.schema
    if isinstance(schema, bool):
        return ANY if schema else 0
    bits = ANY if without_type else declared(schema)
    if not depth:
        return bits
    for keyword in ("enum", "const"):
        members = members_of(schema, keyword)
        if members is not None:
            bits &= functools.reduce(lambda union, member: union | kind_of(member), members, 0)
    if site.target is not None:
        bits &= possible(site.target, depth - 1)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            branches = site.group(keyword)
            bits &= functools.reduce(lambda union, branch: union | possible(branch, depth - 1), branches, 0)
    for branch in site.group("allOf"):
        bits &= possible(branch, depth - 1)
    return bits


def members_of(schema: Mapping[str, JSON], keyword: str) -> list[JSON] | None:
    if keyword not in schema:
        return None
    members = schema[keyword] if keyword == "enum" else [schema[keyword]]
    return members if isinstance(members, list) else None


def texts_of(schema: Mapping[str, JSON]) -> list[JSON] | None:
    """The members of `const` or else `enum`; None without either."""
    members = members_of(schema, "const")
    return members if members is not None else members_of(schema, "enum")


def disjoint(left: Site, right: Site, depth: int = 6) -> bool:
    """True when it is certain that no value is valid under both sites."""
    if not possible(left) & possible(right):
        return True
    if not depth or isinstance(left.schema, bool) or isinstance(right.schema, bool):
        return False
    for one, other in ((left, right), (right, left)):
        if one.target is not None and disjoint(one.target, other, depth - 1):
            return True
        if any(disjoint(branch, other, depth - 1) for branch in one.group("allOf")):
            return True
        for keyword in ("anyOf", "oneOf"):
            branches = one.group(keyword)
            if branches and all(disjoint(branch, other, depth - 1) for branch in branches):
                return True
        members = texts_of(one.schema)
        if members is not None and all(excludes(other.schema, member) for member in members):
            return True
    return all(
        _disjoint_kinds(left, right, bit, depth)
        for bit in (1, 2, 4, 8, 16, 32, 64)
        if possible(left) & possible(right) & bit
    )


def excludes(schema: Mapping[str, JSON], value: JSON) -> bool:
    """True when it is certain that a value is not valid under a schema, from the keywords beside one another alone."""
    if not kind_of(value) & declared(schema) or not in_range(schema, value):
        return True
    members = texts_of(schema)
    if members is not None and not any(equal_values(value, member) for member in members):
        return True
    if isinstance(value, dict):
        required = schema.get("required")
        return isinstance(required, list) and any(isinstance(name, str) and name not in value for name in required)
    if isinstance(value, str) and isinstance(schema.get("pattern"), str):
        return cannot_match(schema["pattern"], value)
    return False


def equal_values(left: JSON, right: JSON) -> bool:
    """Equality of JSON values: 1 equals 1.0 but not true."""
    return kind_of(left) == kind_of(right) and bool(left == right)


def _disjoint_kinds(left: Site, right: Site, bit: int, depth: int) -> bool:
    if bit & (INT | 8):
        return _disjoint_numbers(left.schema, right.schema)
    if bit & STRING:
        return _disjoint_strings(left.schema, right.schema)
    return bool(bit & OBJECT) and _disjoint_objects(left, right, depth)


def _disjoint_numbers(left: Mapping[str, JSON], right: Mapping[str, JSON]) -> bool:
    for one, other in ((left, right), (right, left)):
        _, _, high, high_open = number_bounds(one)
        low, low_open, _, _ = number_bounds(other)
        if high < low or (high == low and (high_open or low_open)):
            return True
    return False


def _disjoint_strings(left: Mapping[str, JSON], right: Mapping[str, JSON]) -> bool:
    for one, other in ((left, right), (right, left)):
        if length_of(one, "maxLength", 1) < length_of(other, "minLength", 0):
            return True
    return False


def length_of(schema: Mapping[str, JSON], keyword: str, end: int) -> float:
    value = schema.get(keyword)
    bound: float = value if isinstance(value, (int, float)) else (0, math.inf)[end]
    known = schema.get("format")
    by_format = FORMAT_LENGTHS.get(known, (0, None))[end] if isinstance(known, str) else None
    if by_format is None:
        return bound
    return max(bound, by_format) if end == 0 else min(bound, by_format)


def _disjoint_objects(left: Site, right: Site, depth: int) -> bool:
    needed = {name for site in (left, right) for name in required_of(site.schema)}
    for name in needed:
        one, other = left.children.get(("properties", name)), right.children.get(("properties", name))
        if one is not None and other is not None and disjoint(one, other, depth - 1):
            return True
    return any(
        forbids(one, name) for one, other in ((left, right), (right, left)) for name in required_of(other.schema)
    )


def required_of(schema: Mapping[str, JSON]) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def forbids(site: Site, name: str) -> bool:
    schema = site.schema
    own = site.children.get(("properties", name))
    if own is not None:
        return own.schema is False
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


MAX_BRANCHES = 64
"""Branches of one `oneOf` that are compared pair by pair."""


def exclusive(branches: Sequence[Site]) -> tuple[Site, Site] | None:
    """The first two branches that may both match; None when it is certain that no two can."""
    if len(branches) > MAX_BRANCHES:
        return branches[0], branches[1]
    return next((pair for pair in itertools.combinations(branches, 2) if not disjoint(*pair)), None)
