"""The complement of a schema: schemas that together allow just what it does not.

A schema is the conjunction of its keywords, so that its complement is the union of theirs. Each names the type it is
about, since a keyword says nothing about values of other types. Where a keyword has no exact complement (patterns,
formats, multiples, what all further items or properties must be), there is none of the whole: None.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from grammar_backends.contract.spec import JSON, STANDARD_FORMATS, GrammarOptions
from grammar_backends.selection.disjoint import Comparison, members_of, required_of
from grammar_backends.selection.keywords import ASSERTIONS, GROUP_BITS, GROUPS
from grammar_backends.selection.languages import EVERYTHING, but, exactly, language_of, pattern_of, work_on
from grammar_backends.selection.merging import both, dead, names_of
from grammar_backends.selection.schema import (
    ANY,
    ARRAY,
    BOOL,
    FRACTION,
    INT,
    NULL,
    OBJECT,
    STRING,
    SchemaWalk,
    Site,
    kind_of,
)
from grammar_backends.selection.view import View, asserts_nothing

__all__ = ["Alternatives", "Complement", "product", "union"]

Alternatives: TypeAlias = "list[JSON] | None"
"""Schemas of which any may be valid; none at all for "nothing", None for what cannot be said."""

MAX_DEPTH = 12
"""Subschemas and references that are followed into one another."""
MAX_ALTERNATIVES = 64
MAX_TEXT = 2_000
"""Characters of the strings whose complement is written as a pattern."""
MAX_LENGTH = 60
"""Characters of one of them: the pattern is nested as deep."""
MAX_EXACT = 2**53
"""Beyond it engines do not keep numbers exactly."""


class Complement:
    """Complements of the sites of one schema.

    Args:
        sites: the schema.
        comparison: what is known about it, and the bound on work.
        exact: patterns that dialects read in different ways have no complement; otherwise it is what none of them
            matches.
    """

    def __init__(self, sites: SchemaWalk, comparison: Comparison, exact: bool = False) -> None:
        self.sites = sites
        self.comparison = comparison
        self.exact = exact

    def of(self, site: Site, within: int = ANY, beside: Site | None = None, depth: int = 0) -> Alternatives:
        """What a site does not allow, among values of the kinds `within` that `beside` allows."""
        if isinstance(site.schema, bool):
            return [] if site.schema else _guarded({}, within)
        if depth > MAX_DEPTH or not self.comparison.spend(1 + len(site.schema)):
            return None
        view = View(site, self.sites, GrammarOptions(), self.comparison)
        found: list[JSON] = []
        for keyword in site.schema:
            if keyword not in ASSERTIONS or asserts_nothing(view, keyword):
                continue
            kinds = within & view.bits & GROUP_BITS[GROUPS[keyword]] if keyword in GROUPS else within
            rule = _KEYWORDS.get(keyword)
            other = rule(self, _Place(view, within, kinds, beside, depth)) if rule else None
            if other is None or len(found) + len(other) > MAX_ALTERNATIVES:
                return None
            found += other
        return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a keyword stands, and which values matter there.

    Attributes:
        view: the site.
        within: the kinds of value that matter.
        kinds: those of them that the keyword is about.
        beside: only values that are valid here matter.
        depth: how far down it is.
    """

    view: View
    within: int
    kinds: int
    beside: Site | None
    depth: int

    @property
    def site(self) -> Site:
        return self.view.site

    @property
    def schema(self) -> Mapping[str, JSON]:
        return self.view.schema


def union(alternatives: Sequence[JSON]) -> JSON:
    """One schema for alternatives."""
    if not alternatives:
        return False
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": list(alternatives)}


def product(one: Alternatives, other: Alternatives, legacy: bool) -> Alternatives:
    """What is allowed by an alternative of each; None when those are too many."""
    if one is None or other is None or len(one) * len(other) > MAX_ALTERNATIVES:
        return None
    merged = [both(left, right, legacy) for left in one for right in other]
    return [schema for schema in merged if not dead(schema)]


def _guarded(schema: Mapping[str, JSON], kinds: int) -> Alternatives:
    """A schema for values of some kinds only."""
    if kinds in (0, ANY):
        return [dict(schema)] if kinds else []
    names = names_of(kinds)
    if names is None:
        return None
    return [{"type": names[0] if len(names) == 1 else names, **schema}]


Rule = Callable[[Complement, _Place], Alternatives]


def _type(complement: Complement, place: _Place) -> Alternatives:
    return _guarded({}, place.within & ~place.view.bits)


def _members(complement: Complement, place: _Place) -> Alternatives:
    keyword = "enum" if "enum" in place.schema else "const"
    return _excluding(members_of(place.schema, keyword) or [], place.within, complement.sites.legacy_bounds)


def _below(keyword: str, opposite: str, step: int) -> Rule:
    """A count: fewer than the least, or more than the most."""

    def rule(complement: Complement, place: _Place) -> Alternatives:
        count = int(place.schema[keyword]) + step
        return _guarded({opposite: count}, place.kinds) if count >= 0 else []

    return rule


def _bound(keyword: str, opposite: str) -> Rule:
    """A bound of numbers: what is beyond it."""
    exclusive = f"exclusive{keyword.capitalize()}"

    def rule(complement: Complement, place: _Place) -> Alternatives:
        legacy = complement.sites.legacy_bounds
        if isinstance(place.schema.get(exclusive), bool) and not legacy:
            return None
        open_ = not (legacy and place.schema.get(exclusive) is True)
        return _guarded(_limit(opposite, place.schema[keyword], open_, legacy), place.kinds)

    return rule


def _exclusive_bound(keyword: str, opposite: str) -> Rule:
    def rule(complement: Complement, place: _Place) -> Alternatives:
        limit = place.schema[keyword]
        if complement.sites.legacy_bounds:
            return [] if isinstance(limit, bool) else None  # a boolean is judged with the bound that it changes
        return None if isinstance(limit, bool) else _guarded({opposite: limit}, place.kinds)

    return rule


def _limit(keyword: str, limit: float, open_: bool, legacy: bool) -> dict[str, JSON]:
    """A bound as its draft writes it."""
    exclusive = f"exclusive{keyword.capitalize()}"
    if legacy:
        return {keyword: limit, exclusive: True} if open_ else {keyword: limit}
    return {exclusive if open_ else keyword: limit}


def _required(complement: Complement, place: _Place) -> Alternatives:
    found: list[JSON] = []
    for name in dict.fromkeys(required_of(place.schema)):
        found += _guarded({"properties": {name: False}}, place.kinds) or []
    return found


def _properties(complement: Complement, place: _Place) -> Alternatives:
    found: list[JSON] = []
    beside = _plain(place.beside)
    for name in place.schema["properties"]:
        child = place.site.children["properties", name]
        near = None if beside is None else beside.children.get(("properties", name))
        if near is None and beside is not None and _is_closed(beside.schema):
            continue  # there is no such property
        within = ANY if near is None else complement.comparison.possible(near)
        other = complement.of(child, within, near, place.depth + 1)
        if other is None:
            return None
        if other:
            found += _guarded({"properties": {name: union(other)}, "required": [name]}, place.kinds) or []
    return found


def _additional(complement: Complement, place: _Place) -> Alternatives:
    if not _is_closed(place.schema):
        return None
    listed = list(place.schema.get("properties", ()))
    beside = _plain(place.beside)
    if beside is not None and _is_closed(beside.schema):
        others = [name for name in beside.schema.get("properties", ()) if name not in listed]
        return [schema for name in others for schema in _guarded({"required": [name]}, place.kinds) or []]
    if not listed:
        return _guarded({"minProperties": 1}, place.kinds)
    if set(listed) <= set(required_of(place.schema)):
        # Without one of the required properties another alternative holds.
        return _guarded({"minProperties": len(listed) + 1}, place.kinds)
    return None


def _plain(site: Site | None) -> Site | None:
    """The site, if what stands in it holds for its values: in old drafts what stands beside `$ref` does not."""
    return None if site is None or isinstance(site.schema, bool) or "$ref" in site.schema else site


def _is_closed(schema: Mapping[str, JSON]) -> bool:
    """True when the properties that a schema lists are all that there are."""
    return schema.get("additionalProperties") is False and not schema.get("patternProperties")


def _names(complement: Complement, place: _Place) -> Alternatives:
    return _guarded({"minProperties": 1}, place.kinds) if place.schema["propertyNames"] is False else None


def _items(complement: Complement, place: _Place) -> Alternatives:
    """What only says that there is nothing further, or what cannot hold for any item that `beside` allows."""
    if isinstance(place.schema["items"], list):
        return _listed(complement, place)
    first = len(place.site.group("prefixItems"))
    if place.schema["items"] is False:
        return _guarded({"minItems": first + 1}, place.kinds)
    other = place.beside.children.get(("items", None)) if place.beside is not None else None
    mine = place.site.children["items", None]
    if other is None or first or place.beside is None or place.beside.group("prefixItems"):
        return None
    if not complement.comparison.disjoint(mine, other):
        return None
    return _guarded({"minItems": 1}, place.kinds)


def _rest(complement: Complement, place: _Place) -> Alternatives:
    if place.schema["additionalItems"] is not False:
        return None
    return _guarded({"minItems": len(place.site.group("items")) + 1}, place.kinds)


def _listed(complement: Complement, place: _Place) -> Alternatives:
    keyword = "items" if isinstance(place.schema.get("items"), list) else "prefixItems"
    found: list[JSON] = []
    for index, child in enumerate(place.site.group(keyword)):
        other = complement.of(child, depth=place.depth + 1)
        if other is None:
            return None
        if other:
            items = [*({} for _ in range(index)), union(other)]
            found += _guarded({keyword: items, "minItems": index + 1}, place.kinds) or []
    return found


def _contains(complement: Complement, place: _Place) -> Alternatives:
    if place.schema.get("minContains", 1) != 1 or "maxContains" in place.schema:
        return None
    other = complement.of(place.site.children["contains", None], depth=place.depth + 1)
    return None if other is None else _guarded({"items": union(other)}, place.kinds)


def _dependent(keyword: str) -> Rule:
    """The property is there, and what it asks for is not."""

    def rule(complement: Complement, place: _Place) -> Alternatives:
        found: list[JSON] = []
        for name, needed in place.schema[keyword].items():
            child = place.site.children.get((keyword, name))
            other: Alternatives
            if child is not None:
                other = complement.of(child, place.kinds, None, place.depth + 1)
            else:
                other = [{"properties": {below: False}} for below in ([needed] if isinstance(needed, str) else needed)]
            present = product(_guarded({"required": [name]}, place.kinds), other, complement.sites.legacy_refs)
            if present is None:
                return None
            found += present
        return found

    return rule


def _not(complement: Complement, place: _Place) -> Alternatives:
    return product(_guarded({}, place.within), [place.schema["not"]], complement.sites.legacy_refs)


def _all_of(complement: Complement, place: _Place) -> Alternatives:
    found: list[JSON] = []
    for branch in place.site.group("allOf"):
        other = complement.of(branch, place.within, place.beside, place.depth + 1)
        if other is None:
            return None
        found += other
    return found


def _any_of(complement: Complement, place: _Place) -> Alternatives:
    return _none_of(complement, place, place.site.group("anyOf"))


def _one_of(complement: Complement, place: _Place) -> Alternatives:
    """None of the branches; only where two cannot match at once."""
    if complement.comparison.exclusive(place.site) is not None:
        return None
    return _none_of(complement, place, place.site.group("oneOf"))


def _none_of(complement: Complement, place: _Place, branches: Sequence[Site]) -> Alternatives:
    found = _guarded({}, place.within)
    for branch in branches:
        other = complement.of(branch, place.within, place.beside, place.depth + 1)
        found = product(found, other, complement.sites.legacy_refs)
    return found


def _if(complement: Complement, place: _Place) -> Alternatives:
    legacy = complement.sites.legacy_refs
    condition = place.site.children["if", None]
    found: list[JSON] = []
    for branch in ("then", "else"):
        child = place.site.children.get((branch, None))
        if child is None:
            continue
        holds = (
            [condition.schema] if branch == "then" else complement.of(condition, place.within, None, place.depth + 1)
        )
        other = product(holds, complement.of(child, place.within, None, place.depth + 1), legacy)
        if other is None:
            return None
        found += other
    return found


def _ref(complement: Complement, place: _Place) -> Alternatives:
    target = place.site.target
    if target is None or place.site in complement.sites.recursive:
        return None
    return complement.of(target, place.within, place.beside, place.depth + 1)


def _pattern(complement: Complement, place: _Place) -> Alternatives:
    """What it does not match, in any dialect."""
    if not complement.comparison.spend(work_on(place.schema["pattern"])):
        return None
    language = exactly(place.schema["pattern"]) if complement.exact else language_of(place.schema["pattern"], wide=True)
    other = but(EVERYTHING, [language]) if language is not None else None
    if other is None or other.is_empty:
        return None if other is None else []
    pattern = pattern_of(other)
    return None if pattern is None else _guarded({"pattern": pattern}, place.kinds)


def _judged_elsewhere(complement: Complement, place: _Place) -> Alternatives:
    return []


def _format(complement: Complement, place: _Place) -> Alternatives:
    return None if place.schema["format"] in STANDARD_FORMATS else []


_KEYWORDS: Mapping[str, Rule] = {
    "$ref": _ref,
    "additionalItems": _rest,
    "additionalProperties": _additional,
    "allOf": _all_of,
    "anyOf": _any_of,
    "const": _members,
    "contains": _contains,
    "dependencies": _dependent("dependencies"),
    "dependentRequired": _dependent("dependentRequired"),
    "dependentSchemas": _dependent("dependentSchemas"),
    "else": _judged_elsewhere,
    "enum": _members,
    "exclusiveMaximum": _exclusive_bound("exclusiveMaximum", "minimum"),
    "exclusiveMinimum": _exclusive_bound("exclusiveMinimum", "maximum"),
    "format": _format,
    "if": _if,
    "items": _items,
    "maxItems": _below("maxItems", "minItems", 1),
    "maxLength": _below("maxLength", "minLength", 1),
    "maxProperties": _below("maxProperties", "minProperties", 1),
    "maximum": _bound("maximum", "minimum"),
    "minContains": _judged_elsewhere,
    "minItems": _below("minItems", "maxItems", -1),
    "minLength": _below("minLength", "maxLength", -1),
    "minProperties": _below("minProperties", "maxProperties", -1),
    "minimum": _bound("minimum", "maximum"),
    "not": _not,
    "oneOf": _one_of,
    "pattern": _pattern,
    "prefixItems": _listed,
    "properties": _properties,
    "propertyNames": _names,
    "required": _required,
    "then": _judged_elsewhere,
    "type": _type,
}
"""The keywords that have a complement, as far as they have one."""


# -- what is not one of some values --------------------------------------------------------------------------


def _excluding(members: Sequence[JSON], within: int, legacy: bool) -> Alternatives:
    rest = within
    found: list[JSON] = []
    for kinds, write in _WRITERS:
        named = [member for member in members if kind_of(member) & kinds]
        if not named:
            continue
        rest &= ~kinds
        other = write(named, within & kinds, legacy) if within & kinds else []
        if other is None:
            return None
        found += other
    others = _guarded({}, rest)
    return None if others is None else [*others, *found]


def _no_booleans(members: Sequence[JSON], kinds: int, legacy: bool) -> Alternatives:
    left = [value for value in (True, False) if value not in members]
    return [{"enum": left}] if left else []


def _no_numbers(members: Sequence[JSON], kinds: int, legacy: bool) -> Alternatives:
    """The gaps between the numbers, and what is beyond them."""
    if any(not isinstance(member, int) or abs(member) >= MAX_EXACT for member in members):
        return None
    limits = sorted(set(members))
    found = _guarded(_limit("maximum", limits[0], True, legacy), kinds) or []
    for low, high in itertools.pairwise(limits):
        if kinds != INT or high - low > 1:
            gap = {**_limit("minimum", low, True, legacy), **_limit("maximum", high, True, legacy)}
            found += _guarded(gap, kinds) or []
    return [*found, *(_guarded(_limit("minimum", limits[-1], True, legacy), kinds) or [])]


def _no_strings(members: Sequence[JSON], kinds: int, legacy: bool) -> Alternatives:
    texts = sorted({str(member) for member in members})
    plain = all(text.isascii() and text.isprintable() and len(text) <= MAX_LENGTH for text in texts)
    if not plain or sum(map(len, texts)) > MAX_TEXT:
        return None
    if texts == [""]:
        return [{"type": "string", "minLength": 1}]
    return [{"type": "string", "pattern": f"^(?:{_other_texts(texts)})$"}]


def _other_texts(texts: Sequence[str]) -> str:
    """A pattern for every text but these: it leaves the tree of their characters somewhere, or ends on its way."""
    heads: dict[str, list[str]] = {}
    for text in texts:
        if text:
            heads.setdefault(text[0], []).append(text[1:])
    options = [] if "" in texts else [""]
    if not heads:
        return r"[\s\S]+"
    options.append(f"[^{''.join(map(_in_class, heads))}]" + r"[\s\S]*")
    options += [f"{_escaped(head)}(?:{_other_texts(rest)})" for head, rest in heads.items()]
    return "|".join(options)


def _in_class(character: str) -> str:
    return f"\\{character}" if character in r"\]^-[" else character


def _escaped(character: str) -> str:
    return f"\\{character}" if character in r"\.^$|?*+()[]{}/" else character


def _no_empty(keyword: str, name: str) -> Callable[[Sequence[JSON], int, bool], Alternatives]:
    def write(members: Sequence[JSON], kinds: int, legacy: bool) -> Alternatives:
        return None if any(members) else [{"type": name, keyword: 1}]

    return write


_WRITERS: Sequence[tuple[int, Callable[[Sequence[JSON], int, bool], Alternatives]]] = (
    (NULL, lambda members, kinds, legacy: []),
    (BOOL, _no_booleans),
    (INT | FRACTION, _no_numbers),
    (STRING, _no_strings),
    (ARRAY, _no_empty("minItems", "array")),
    (OBJECT, _no_empty("minProperties", "object")),
)
"""By kinds of value, what all others of that kind are; `members` is not empty."""
