"""When two schemas exclude one another, and which kinds of value a schema may admit.

All answers are one-sided: "disjoint" and "excludes" are certain, the opposite is merely not known. So is the bound on
work: what a hostile schema would make too dear to find out stays unknown.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from grammar_backends.contract.formats import FORMAT_SHAPES
from grammar_backends.contract.spec import JSON
from grammar_backends.selection.languages import have_none, work_on
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
        self._answers: dict[Hashable, bool] = {}
        self._kinds: dict[tuple[Site, int], int] = {}
        self._pairs: dict[tuple[Site, Site, int, _Context], bool] = {}
        self._texts: dict[Site, _Members | None] = {}
        self._present: dict[tuple[Site, int], list[str]] = {}
        self._parts: dict[tuple[Site, int], tuple[Site, ...]] = {}

    def spend(self, steps: int) -> bool:
        """Charge steps to the bound on work; False once it is reached, so that the answer is to be "not known"."""
        self._work -= steps
        return self._work >= 0

    def is_certain(self, question: Hashable, steps: int, answer: Callable[[], bool]) -> bool:
        """Whether the answer to a question is yes. It is worked out once, if the bound on work allows those steps."""
        known = self._answers.get(question)
        if known is None:
            known = self._answers[question] = self.spend(steps) and answer()
        return known

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
        mine, others = self.conjuncts(left), self.conjuncts(right)
        if not depth or not (mine or others):
            return False
        if self._no_value((*mine, *others)):
            return True
        context = _narrowed(context, (*mine, *others))
        for parts, other in ((mine, right), (others, left)):
            for keyword in ("anyOf", "oneOf"):
                for branches in (part.group(keyword) for part in parts):
                    if branches and all(self.disjoint(branch, other, depth - 1, context) for branch in branches):
                        return True
        schemas = [part.schema for part in (*mine, *others)]
        if common & (INT | FRACTION) and not _disjoint_numbers(schemas):
            return False
        if common & STRING and not self._disjoint_strings(schemas):
            return False
        if common & ~(INT | FRACTION | STRING | OBJECT):
            return False
        return not common & OBJECT or self._disjoint_objects(mine, others, depth, context[1])

    def conjuncts(self, site: Site, depth: int = 8) -> tuple[Site, ...]:
        """The sites that a value must be valid under wherever it is valid here, by `$ref` and `allOf`; no booleans."""
        if isinstance(site.schema, bool) or not depth:
            return ()
        known = self._parts.get((site, depth))
        if known is None:
            below = [*site.group("allOf"), *([site.target] if site.target is not None else [])]
            parts = [part for each in below for part in self.conjuncts(each, depth - 1)]
            known = self._parts[site, depth] = tuple(dict.fromkeys((site, *parts)))
            self.spend(len(known))
        return known

    def _no_value(self, sites: Sequence[Site]) -> bool:
        """True when some of the sites list their values, and each that they share is excluded by some site."""
        listed = [members for site in sites if (members := self._members(site)) is not None]
        if not listed:
            return False
        shared = listed[0].keys() & listed[-1].keys()
        for members in listed[1:-1]:
            shared &= members.keys()
        return self.spend(len(shared) * len(sites)) and all(
            any(_excludes_beside(site.schema, listed[0][key]) for site in sites) for key in shared
        )

    def _members(self, site: Site) -> _Members | None:
        if site not in self._texts:
            listed = texts_of(site.schema)
            self._texts[site] = None if listed is None else {key_of(member): member for member in listed}
        return self._texts[site]

    def _disjoint_objects(
        self, mine: Sequence[Site], others: Sequence[Site], depth: int, present: Sequence[str]
    ) -> bool:
        parts = (*mine, *others)
        if not self.spend(len(present) * len(parts)):
            return False
        if min(_number_of(part.schema, "maxProperties", math.inf) for part in parts) < len(present):
            return True
        values = [([*_governing(mine, name)], [*_governing(others, name)]) for name in present]
        # What tells objects apart is mostly a constant, so that it is looked for first.
        return any(self._no_property([*one, *other]) for one, other in values) or any(
            self.disjoint(left, right, depth - 1) for one, other in values for left in one for right in other
        )

    def _disjoint_strings(self, schemas: Sequence[Mapping[str, JSON]]) -> bool:
        longest = min(_length_of(schema, "maxLength", 1) for schema in schemas)
        if longest < max(_length_of(schema, "minLength", 0) for schema in schemas):
            return True
        patterns = list(dict.fromkeys(pattern for schema in schemas for pattern in _shapes_of(schema)))
        question = (have_none, *patterns)
        return len(patterns) > 1 and self.is_certain(question, work_on(*patterns), lambda: have_none(patterns))

    def _no_property(self, sites: Sequence[Site]) -> bool:
        if not all(map(self.possible, sites)):
            return True
        return self._no_value([part for site in sites for part in self.conjuncts(site)])


def _narrowed(context: _Context, parts: Sequence[Site]) -> _Context:
    """A context with what the parts of a schema say."""
    kinds, present = context
    kinds = functools.reduce(lambda left, part: left & part.bits, parts, kinds)
    return kinds, tuple(dict.fromkeys((*present, *(name for part in parts for name in required_of(part.schema)))))


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
    return isinstance(value, str) and any(cannot_match(pattern, value) for pattern in _shapes_of(schema))


def key_of(value: JSON) -> Hashable:
    """The same for equal JSON values and for no others: 1 equals 1.0, but not true."""
    if isinstance(value, dict):
        return kind_of(value), frozenset((name, key_of(below)) for name, below in value.items())
    if isinstance(value, list):
        return kind_of(value), tuple(map(key_of, value))
    return kind_of(value), value


def _disjoint_numbers(schemas: Sequence[Mapping[str, JSON]]) -> bool:
    bounds = [number_bounds(schema) for schema in schemas]
    low, low_open = max((low, low_open) for low, low_open, _, _ in bounds)
    high, high_closed = min((high, not high_open) for _, _, high, high_open in bounds)
    return high < low or (high == low and (low_open or not high_closed))


def _shapes_of(schema: Mapping[str, JSON]) -> Iterator[str]:
    """Patterns that every string matches which is valid under a schema."""
    if isinstance(schema.get("pattern"), str):
        yield schema["pattern"]
    known = schema.get("format")
    if isinstance(known, str) and known in FORMAT_SHAPES:
        yield FORMAT_SHAPES[known]


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


def _governing(parts: Sequence[Site], name: str) -> Iterator[Site]:
    """What the parts of a schema say about a property: some of it, if there are patterns."""
    for part in parts:
        own = part.children.get(("properties", name))
        if own is None and "patternProperties" not in part.schema:
            own = part.children.get(("additionalProperties", None))
        if own is not None:
            yield own
