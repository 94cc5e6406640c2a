"""When two schemas exclude one another, and which kinds of value a schema may admit.

All answers are one-sided: "disjoint" and "excludes" are certain, the opposite is merely not known. So is the bound on
work: what a hostile schema would make too dear to find out stays unknown.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Mapping
from typing import TypeAlias

from grammar_backends.contract.spec import JSON
from grammar_backends.selection.patterns import cannot_match
from grammar_backends.selection.schema import (
    ANY,
    FORMAT_LENGTHS,
    FRACTION,
    INT,
    OBJECT,
    STRING,
    Site,
    declared,
    in_range,
    kind_of,
    number_bounds,
)

__all__ = ["Comparison", "excludes", "key_of", "members_of", "required_of", "texts_of"]

MAX_BRANCHES = 64
"""Branches of one `oneOf` that are compared pair by pair."""
MAX_WORK = 300_000
"""Steps of one comparison, of some microseconds each: a member or a required name looked at. A pair of sites, or a
pattern tried on a name, is ten."""

_KINDS = tuple(1 << bit for bit in range(7))
_Members: TypeAlias = "dict[Hashable, JSON]"
_Context: TypeAlias = "tuple[int, tuple[str, ...]]"
"""Kinds of value, and properties that objects have."""
_NO_CONTEXT: _Context = (ANY, ())


class Comparison:
    """What is known about pairs of sites of one schema: each pair is worked out once, and all of them within bounds.

    One is made for each schema, so that one with many `oneOf` makes no more work than another.
    """

    def __init__(self, work: int = MAX_WORK) -> None:
        self._work = work
        self._kinds: dict[tuple[Site, int], int] = {}
        self._pairs: dict[tuple[Site, Site, int, _Context], bool] = {}
        self._texts: dict[Site, _Members | None] = {}
        self._present: dict[tuple[Site, int], list[str]] = {}

    def spend(self, steps: int) -> bool:
        """Charge steps to the bound on work; False once it is reached, so that the answer is to be "not known"."""
        self._work -= steps
        return self._work >= 0

    def exclusive(self, site: Site) -> tuple[Site, Site] | None:
        """The first two branches of `oneOf` that may both match what its siblings allow; None when none can."""
        branches = site.group("oneOf")
        if len(branches) > MAX_BRANCHES:
            return branches[0], branches[1]
        pairs = itertools.combinations(branches, 2)
        return next((pair for pair in pairs if not self.disjoint_within(site, *pair)), None)

    def disjoint_within(self, site: Site, left: Site, right: Site) -> bool:
        """True when it is certain that no value is valid under two sites and the keywords of a third."""
        if self.disjoint(left, right):
            return True
        context = (self.possible(site), tuple(self.present(site)))
        return context != _NO_CONTEXT and self.disjoint(left, right, context=context)

    def present(self, site: Site, depth: int = 8) -> list[str]:
        """Properties that every object has which is valid under a site: some of them, without its `oneOf`."""
        if isinstance(site.schema, bool) or not depth:
            return []
        known = self._present.get((site, depth))
        if known is None:
            found = required_of(site.schema)
            for part in (site.target, *site.group("allOf")):
                found += self.present(part, depth - 1) if part is not None else []
            if branches := [self.present(branch, depth - 1) for branch in site.group("anyOf")]:
                shared = set(branches[0]).intersection(*branches[1:])
                found += [name for name in branches[0] if name in shared]
            known = self._present[site, depth] = list(dict.fromkeys(found))
            self.spend(len(found))
        return known

    def possible(self, site: Site, depth: int = 8) -> int:
        """The kinds of value that a site may admit: never too few."""
        schema = site.schema
        if isinstance(schema, bool):
            return ANY if schema else 0
        if not depth:
            return site.bits
        known = self._kinds.get((site, depth))
        if known is None:
            known = self._kinds[site, depth] = site.bits & self.possible_without_type(site, depth)
        return known

    def possible_without_type(self, site: Site, depth: int = 8) -> int:
        """`possible` of an object schema, were there no `type` in it."""
        bits = ANY
        for keyword in ("enum", "const"):
            members = members_of(site.schema, keyword)
            if members is not None:
                bits &= functools.reduce(lambda union, member: union | kind_of(member), members, 0)
        if site.target is not None:
            bits &= self.possible(site.target, depth - 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in site.schema:
                branches = site.group(keyword)
                bits &= functools.reduce(lambda union, branch: union | self.possible(branch, depth - 1), branches, 0)
        for branch in site.group("allOf"):
            bits &= self.possible(branch, depth - 1)
        return bits

    def disjoint(self, left: Site, right: Site, depth: int = 6, context: _Context = _NO_CONTEXT) -> bool:
        """True when it is certain that no value is valid under both sites.

        `context` narrows the values: to kinds, and to objects that have certain properties.
        """
        known = self._pairs.get((left, right, depth, context))
        if known is None:
            common = self.possible(left) & self.possible(right) & context[0]
            known = not common or (self.spend(10) and self._disjoint(left, right, common, depth, context))
            self._pairs[left, right, depth, context] = known
        return known

    def _disjoint(self, left: Site, right: Site, common: int, depth: int, context: _Context) -> bool:
        if not depth or isinstance(left.schema, bool) or isinstance(right.schema, bool):
            return False
        for one, other in ((left, right), (right, left)):
            context = _narrowed(context, one)
            if one.target is not None and self.disjoint(one.target, other, depth - 1, context):
                return True
            if any(self.disjoint(branch, other, depth - 1, context) for branch in one.group("allOf")):
                return True
            for keyword in ("anyOf", "oneOf"):
                branches = one.group(keyword)
                if branches and all(self.disjoint(branch, other, depth - 1, context) for branch in branches):
                    return True
            if self._excludes_members(one, other):
                return True
        return all(self._disjoint_kinds(left, right, kind, depth, context) for kind in _KINDS if common & kind)

    def _excludes_members(self, one: Site, other: Site) -> bool:
        """True when `one` lists its values, and `other` excludes each of them."""
        members, others = self._members(one), self._members(other)
        if members is None:
            return False
        shared = members.keys() if others is None else members.keys() & others.keys()
        return self.spend(len(shared)) and all(_excludes_beside(other.schema, members[key]) for key in shared)

    def _members(self, site: Site) -> _Members | None:
        if site not in self._texts:
            listed = texts_of(site.schema)
            self._texts[site] = None if listed is None else {key_of(member): member for member in listed}
        return self._texts[site]

    def _disjoint_kinds(self, left: Site, right: Site, kind: int, depth: int, context: _Context) -> bool:
        if kind & (INT | FRACTION):
            return _disjoint_numbers(left.schema, right.schema)
        if kind & STRING:
            return _disjoint_strings(left.schema, right.schema)
        return bool(kind & OBJECT) and self._disjoint_objects(left, right, depth, context[1])

    def _disjoint_objects(self, left: Site, right: Site, depth: int, present: tuple[str, ...]) -> bool:
        needed = dict.fromkeys((*required_of(left.schema), *required_of(right.schema), *present))
        if not self.spend(len(needed)):
            return False
        pairs: list[tuple[Site, Site]] = []
        if any(_number_of(site.schema, "maxProperties", math.inf) < len(needed) for site in (left, right)):
            return True
        for name in needed:
            one, other = _governing(left, name), _governing(right, name)
            if one is not None and other is not None:
                pairs.append((one, other))
        # What tells objects apart is mostly a constant, so these come first.
        pairs.sort(key=lambda pair: not (_lists_values(pair[0]) and _lists_values(pair[1])))
        return any(self.disjoint(one, other, depth - 1) for one, other in pairs) or any(
            _forbids(site, name) for site in (left, right) for name in needed
        )


def _narrowed(context: _Context, site: Site) -> _Context:
    """A context with what a site says beside the schemas that it is made of."""
    kinds, present = context
    return kinds & site.bits, tuple(dict.fromkeys((*present, *required_of(site.schema))))


def members_of(schema: Mapping[str, JSON], keyword: str) -> list[JSON] | None:
    """The values that `enum` or `const` lists; None without it."""
    if keyword not in schema:
        return None
    members = schema[keyword] if keyword == "enum" else [schema[keyword]]
    return members if isinstance(members, list) else None


def texts_of(schema: Mapping[str, JSON]) -> list[JSON] | None:
    """The members of `const` or else `enum`; None without either."""
    members = members_of(schema, "const")
    return members if members is not None else members_of(schema, "enum")


def required_of(schema: Mapping[str, JSON]) -> list[str]:
    """The names in `required`."""
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def excludes(schema: Mapping[str, JSON], value: JSON) -> bool:
    """True when it is certain that a value is not valid under a schema, from the keywords beside one another alone."""
    members = texts_of(schema)
    if members is not None and not any(key_of(value) == key_of(member) for member in members):
        return True
    return _excludes_beside(schema, value)


def _excludes_beside(schema: Mapping[str, JSON], value: JSON) -> bool:
    """`excludes`, apart from the values that the schema may list."""
    if not kind_of(value) & declared(schema) or not in_range(schema, value):
        return True
    if isinstance(value, dict):
        return any(name not in value for name in required_of(schema))
    if isinstance(value, str) and isinstance(schema.get("pattern"), str):
        return cannot_match(schema["pattern"], value)
    return False


def key_of(value: JSON) -> Hashable:
    """The same for equal JSON values and for no others: 1 equals 1.0, but not true."""
    if isinstance(value, dict):
        return kind_of(value), frozenset((name, key_of(below)) for name, below in value.items())
    if isinstance(value, list):
        return kind_of(value), tuple(map(key_of, value))
    return kind_of(value), value


def _lists_values(site: Site) -> bool:
    return isinstance(site.schema, dict) and ("const" in site.schema or "enum" in site.schema)


def _disjoint_numbers(left: Mapping[str, JSON], right: Mapping[str, JSON]) -> bool:
    for one, other in ((left, right), (right, left)):
        _, _, high, high_open = number_bounds(one)
        low, low_open, _, _ = number_bounds(other)
        if high < low or (high == low and (high_open or low_open)):
            return True
    return False


def _disjoint_strings(left: Mapping[str, JSON], right: Mapping[str, JSON]) -> bool:
    for one, other in ((left, right), (right, left)):
        if _length_of(one, "maxLength", 1) < _length_of(other, "minLength", 0):
            return True
    return False


def _length_of(schema: Mapping[str, JSON], keyword: str, end: int) -> float:
    bound = _number_of(schema, keyword, (0, math.inf)[end])
    known = schema.get("format")
    by_format = FORMAT_LENGTHS.get(known, (0, None))[end] if isinstance(known, str) else None
    if by_format is None:
        return bound
    return max(bound, by_format) if end == 0 else min(bound, by_format)


def _number_of(schema: Mapping[str, JSON], keyword: str, default: float) -> float:
    value = schema.get(keyword)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def _governing(site: Site, name: str) -> Site | None:
    """What a site says about a property: a part of it, if there are patterns."""
    own = site.children.get(("properties", name))
    if own is not None or "patternProperties" in site.schema:
        return own
    return site.children.get(("additionalProperties", None))


def _forbids(site: Site, name: str) -> bool:
    found = _governing(site, name)
    return found is not None and found.schema is False
