"""Two schemas as one: exact, or not at all.

`conjoin` writes what both demand into one plain schema, without `allOf`. Where keywords see their siblings (what is an
additional property, what is unevaluated), they are only merged when the outcome means the same. Properties keep the
order in which they are written, those of the first schema before those that only the second one has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from grammar_backends.contract.spec import JSON
from grammar_backends.selection.disjoint import key_of, required_of
from grammar_backends.selection.keywords import ASSERTIONS
from grammar_backends.selection.languages import common, exactly, pattern_of
from grammar_backends.selection.patterns import searched
from grammar_backends.selection.schema import FRACTION, INT, TYPE_BITS, declared

__all__ = ["annotating", "asserting", "bare", "both", "conjoin", "dead", "names_of", "rests_on", "size_of"]

Schema = Mapping[str, JSON]

MAX_MERGED = 200
"""Characters of two patterns that are merged into one."""

_GROUPS: Sequence[frozenset[str]] = (
    frozenset(("properties", "patternProperties", "additionalProperties")),
    frozenset(("items", "prefixItems", "additionalItems")),
    frozenset(("contains", "minContains", "maxContains")),
    frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    frozenset(("if", "then", "else")),
)
"""Keywords that are read together: they stay together."""
_GROUP_OF: Mapping[str, frozenset[str]] = {
    **{keyword: frozenset((keyword,)) for keyword in ASSERTIONS},
    **{keyword: group for group in _GROUPS for keyword in group},
}
_SEES_SIBLINGS = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_EVALUATES = frozenset(
    ("properties", "patternProperties", "additionalProperties", "items", "prefixItems", "additionalItems", "contains")
) | {"$ref", "allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"}
_NAMES = ("null", "boolean", "integer", "number", "string", "array", "object")


def names_of(bits: int) -> list[str] | None:
    """The types that together are these kinds of value; None for numbers that are no integers, which have no name."""
    if bits & FRACTION and not bits & INT:
        return None
    held = [name for name in _NAMES if TYPE_BITS[name] & bits == TYPE_BITS[name]]
    return [name for name in held if name != "integer" or not bits & FRACTION]


def dead(schema: JSON) -> bool:
    """True for a schema that says by itself that it has no value."""
    return schema is False or (isinstance(schema, dict) and not declared(schema))


def size_of(schema: JSON) -> int:
    """How many values a schema is made of."""
    count, pending = 0, [schema]
    while pending:
        value = pending.pop()
        count += 1
        if isinstance(value, (dict, list)):
            pending += value.values() if isinstance(value, dict) else value
    return count


def rests_on(schema: Schema) -> list[str]:
    """The assertions in a schema."""
    return [keyword for keyword in schema if keyword in ASSERTIONS]


def asserting(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    """A schema with its assertions only."""
    return {keyword: value for keyword, value in schema.items() if keyword in ASSERTIONS}


def annotating(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    """A schema with what asserts nothing only."""
    return {keyword: value for keyword, value in schema.items() if keyword not in ASSERTIONS}


def bare(schema: JSON) -> JSON:
    """`asserting` of an object; a boolean is itself."""
    return asserting(schema) if isinstance(schema, dict) else schema


def conjoin(one: JSON, other: JSON, legacy: bool) -> JSON:
    """One schema that allows what both allow; None when the two cannot be merged exactly.

    Args:
        one: its annotations are kept, and its properties come first.
        other: the second schema.
        legacy: siblings of `$ref` are ignored (drafts before 2019-09).
    """
    if one is False or other is False:
        return False
    if one is True or other is True:
        return other if one is True else one
    ours, theirs = set(rests_on(one)), set(rests_on(other))
    if not theirs or not ours:
        return one if not theirs else {**one, **{keyword: other[keyword] for keyword in other if keyword in ASSERTIONS}}
    if legacy and "$ref" in ours | theirs:
        return None
    if any(theirs & {*_EVALUATES, keyword} for keyword in _SEES_SIBLINGS & ours):
        return None
    if _SEES_SIBLINGS & theirs and ours & _EVALUATES:
        return None
    return _merged(one, other, legacy)


def _merged(one: Schema, other: Schema, legacy: bool) -> JSON:
    merged = dict(one)
    for keyword in rests_on(other):
        group = _GROUP_OF[keyword]
        if group.isdisjoint(one):
            merged[keyword] = other[keyword]
        elif keyword in _MERGERS:
            value = _MERGERS[keyword](one, other)
            if value is None:
                return None
            merged[keyword] = value
        elif "properties" in group:
            found = _objects(one, other, legacy)
            if found is None:
                return None
            merged.update(found)
        elif not _same(group, one, other):
            return None
    if "type" in merged and not merged["type"]:
        return False
    return merged


def _same(group: frozenset[str], one: Schema, other: Schema) -> bool:
    return all(
        (keyword in one) == (keyword in other)
        and (keyword not in one or key_of(one[keyword]) == key_of(other[keyword]))
        for keyword in group
    )


def _types(one: Schema, other: Schema) -> JSON:
    names = names_of(declared(one) & declared(other)) or []
    return names[0] if len(names) == 1 else names


def _names(one: Schema, other: Schema) -> JSON:
    return list(dict.fromkeys((*required_of(one), *required_of(other))))


def _branches(one: Schema, other: Schema) -> JSON:
    return [*one["allOf"], *other["allOf"]]


def _patterns(one: Schema, other: Schema) -> JSON:
    """A pattern for what both match, where it is the same in every dialect."""
    return one["pattern"] if one["pattern"] == other["pattern"] else _merged_pattern(one["pattern"], other["pattern"])


@functools.lru_cache(maxsize=256)
def _merged_pattern(one: str, other: str) -> str | None:
    if len(one) + len(other) > MAX_MERGED:
        return None
    mine, yours = exactly(one), exactly(other)
    shared = None if mine is None or yours is None else common([mine, yours])
    return None if shared is None or shared.is_empty else pattern_of(shared)


def _bound(keyword: str, choose: Callable[[JSON, JSON], JSON], group: frozenset[str]) -> Callable[..., JSON]:
    def merge(one: Schema, other: Schema) -> JSON:
        if any(isinstance(schema.get(name), bool) for schema in (one, other) for name in group):
            return None  # draft 4: a boolean goes with the bound beside it
        return choose(one[keyword], other[keyword]) if keyword in one else other[keyword]

    return merge


_MERGERS: Mapping[str, Callable[[Schema, Schema], JSON]] = {
    "allOf": _branches,
    "pattern": _patterns,
    "required": _names,
    "type": _types,
    **{f"min{unit}": _bound(f"min{unit}", max, frozenset()) for unit in ("Items", "Length", "Properties")},
    **{f"max{unit}": _bound(f"max{unit}", min, frozenset()) for unit in ("Items", "Length", "Properties")},
    **{keyword: _bound(keyword, max, _GROUPS[3]) for keyword in ("minimum", "exclusiveMinimum")},
    **{keyword: _bound(keyword, min, _GROUPS[3]) for keyword in ("maximum", "exclusiveMaximum")},
}


# -- objects -------------------------------------------------------------------------------------------------


def _objects(one: Schema, other: Schema, legacy: bool) -> dict[str, JSON] | None:
    """`properties`, `patternProperties` and `additionalProperties` of both; None when they cannot be merged."""
    if not (_patterns_agree(one, other) and _patterns_agree(other, one)):
        return None
    names = dict.fromkeys((*one.get("properties", ()), *other.get("properties", ())))
    properties: dict[str, JSON] = {}
    for name in names:
        mine, yours = _governs(one, name), _governs(other, name)
        if mine is None or yours is None:
            return None
        properties[name] = both(mine, yours, legacy)
    patterns = dict(one.get("patternProperties", {}))
    for pattern, schema in other.get("patternProperties", {}).items():
        patterns[pattern] = both(patterns[pattern], schema, legacy) if pattern in patterns else schema
    found: dict[str, JSON] = {"properties": properties} if properties else {}
    if patterns:
        found["patternProperties"] = patterns
    if "additionalProperties" in one or "additionalProperties" in other:
        rests = (one.get("additionalProperties", True), other.get("additionalProperties", True))
        found["additionalProperties"] = both(*rests, legacy)
    return found


def _patterns_agree(one: Schema, other: Schema) -> bool:
    """False when a name that `one` knows by a pattern is an additional one of `other`."""
    patterns = one.get("patternProperties")
    return not patterns or _is_open(other) or list(patterns) == list(other.get("patternProperties", ()))


def _is_open(schema: Schema) -> bool:
    return schema.get("additionalProperties", True) in (True, {})


def _governs(schema: Schema, name: str) -> JSON:
    """What a schema says about one property once it is listed, apart from patterns, which go on to apply.

    None when that is not known.
    """
    listed = schema.get("properties", {})
    if name in listed:
        return listed[name]
    found = [searched(pattern, name) for pattern in schema.get("patternProperties", ())]
    if True in found or _is_open(schema):
        return True
    return None if None in found else schema["additionalProperties"]


def both(one: JSON, other: JSON, legacy: bool) -> JSON:
    """`conjoin`, or `allOf` where the two cannot be merged."""
    merged = conjoin(one, other, legacy)
    return {"allOf": [one, other]} if merged is None else merged
