"""Whether one JSON value is valid under one site of a schema, where that is certain.

This is no validator: it knows no formats, reads patterns only as far as `grammar_backends.selection.patterns` does,
and says "not known" rather than guess or work for long. It lets rewrites leave out the members of an `enum` that other
keywords forbid.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from grammar_backends.contract.spec import JSON, STANDARD_FORMATS
from grammar_backends.selection.disjoint import Comparison, key_of, members_of, required_of
from grammar_backends.selection.keywords import ASSERTIONS
from grammar_backends.selection.patterns import searched
from grammar_backends.selection.schema import FRACTION, INT, Site, in_range, kind_of

__all__ = ["Evaluation"]

MAX_DEPTH = 24
"""Subschemas and references that are followed into one another."""


class Evaluation:
    """Judges values under the sites of one schema; all of it shares one bound on work."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._listed: dict[tuple[Site, str], frozenset[Hashable]] = {}

    def admits(self, site: Site, value: JSON, depth: int = 0) -> bool | None:
        """True or False when it is certain that a value is valid or is not, None when it is not known."""
        schema = site.schema
        if isinstance(schema, bool):
            return schema
        if depth > MAX_DEPTH or not self._comparison.spend(1 + len(schema)):
            return None
        return _all(
            _RULES[keyword](self, site, value, depth) if keyword in _RULES else None
            for keyword in schema
            if keyword in ASSERTIONS
        )

    def _below(self, site: Site | None, value: JSON, depth: int) -> bool | None:
        return None if site is None else self.admits(site, value, depth + 1)

    def lists(self, site: Site, keyword: str, value: JSON) -> bool:
        """Whether `enum` or `const` lists a value."""
        if (site, keyword) not in self._listed:
            self._listed[site, keyword] = frozenset(map(key_of, members_of(site.schema, keyword) or ()))
        return key_of(value) in self._listed[site, keyword]

    def child(self, site: Site, keyword: str, name: str | None, value: JSON, depth: int) -> bool | None:
        """`admits` of a subschema; None without it."""
        return self._below(site.children.get((keyword, name)), value, depth)

    def branches(self, site: Site, keyword: str, value: JSON, depth: int) -> Iterator[bool | None]:
        """`admits` of each subschema in a list."""
        return (self._below(branch, value, depth) for branch in site.group(keyword))


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    certain = True
    for verdict in verdicts:
        if verdict is False:
            return False
        certain = certain and verdict is not None
    return True if certain else None


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    return _negated(_all(map(_negated, verdicts)))


def _negated(verdict: bool | None) -> bool | None:
    return None if verdict is None else not verdict


Rule = Callable[[Evaluation, Site, JSON, int], "bool | None"]


def _type(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    bits = site.bits
    if isinstance(value, float) and bits & (INT | FRACTION) == INT:
        return False if kind_of(value) == FRACTION else None  # 1.0 is an integer since draft 6
    return bool(kind_of(value) & bits)


def _enum(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return evaluation.lists(site, "enum", value)


def _const(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return evaluation.lists(site, "const", value)


def _range(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return in_range(site.schema, value)


def _multiple(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    step = site.schema["multipleOf"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    return value % step == 0 if isinstance(value, int) and isinstance(step, int) else None


def _pattern(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return searched(site.schema["pattern"], value) if isinstance(value, str) else True


def _format(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return True if not isinstance(value, str) or site.schema["format"] not in STANDARD_FORMATS else None


def _counts(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    schema = site.schema
    unit = "Items" if isinstance(value, list) else "Properties" if isinstance(value, dict) else None
    if unit is None:
        return True
    least, most = schema.get(f"min{unit}", 0), schema.get(f"max{unit}", len(value))
    return bool(least <= len(value) <= most)


def _items(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    if not isinstance(value, list):
        return True
    listed = site.group("items") if isinstance(site.schema.get("items"), list) else site.group("prefixItems")
    rest_keyword = "additionalItems" if isinstance(site.schema.get("items"), list) else "items"
    rest = site.children.get((rest_keyword, None))
    verdicts = [evaluation.admits(judge, item, depth + 1) for judge, item in zip(listed, value, strict=False)]
    if rest is not None:
        verdicts += [evaluation.admits(rest, item, depth + 1) for item in value[len(listed) :]]
    return _all(verdicts)


def _unique(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    if not isinstance(value, list) or not site.schema["uniqueItems"]:
        return True
    return len({key_of(item) for item in value}) == len(value)


def _contains(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    if not isinstance(value, list):
        return True
    verdicts = [evaluation.child(site, "contains", None, item, depth) for item in value]
    if None in verdicts:
        return None
    least, most = site.schema.get("minContains", 1), site.schema.get("maxContains", len(value))
    return bool(least <= sum(map(bool, verdicts)) <= most)


def _required(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return not isinstance(value, dict) or all(name in value for name in required_of(site.schema))


def _properties(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    if not isinstance(value, dict):
        return True
    return _all(_property(evaluation, site, name, item, depth) for name, item in value.items())


def _property(evaluation: Evaluation, site: Site, name: str, item: JSON, depth: int) -> bool | None:
    patterns = [str(pattern) for keyword, pattern in site.children if keyword == "patternProperties"]
    matches = {pattern: searched(pattern, name) for pattern in patterns}
    listed = ("properties", name) in site.children
    verdicts = [evaluation.child(site, "properties", name, item, depth)] if listed else []
    verdicts += [
        evaluation.child(site, "patternProperties", pattern, item, depth) if matched else None
        for pattern, matched in matches.items()
        if matched is not False
    ]
    if not listed and not any(matches.values()) and ("additionalProperties", None) in site.children:
        additional = evaluation.child(site, "additionalProperties", None, item, depth)
        verdicts.append(additional if additional or None not in matches.values() else None)
    return _all(verdicts)


def _property_names(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    if not isinstance(value, dict):
        return True
    return _all(evaluation.child(site, "propertyNames", None, name, depth) for name in value)


def _dependent(keyword: str) -> Rule:
    def rule(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
        if not isinstance(value, dict):
            return True
        return _all(
            evaluation.child(site, keyword, name, value, depth)
            if (keyword, name) in site.children
            else all(needed in value for needed in ([below] if isinstance(below, str) else below))
            for name, below in site.schema[keyword].items()
            if name in value
        )

    return rule


def _all_of(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return _all(evaluation.branches(site, "allOf", value, depth))


def _any_of(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return _any(evaluation.branches(site, "anyOf", value, depth))


def _one_of(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    verdicts = list(evaluation.branches(site, "oneOf", value, depth))
    if verdicts.count(True) > 1:
        return False
    return None if None in verdicts else verdicts.count(True) == 1


def _not(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return _negated(evaluation.child(site, "not", None, value, depth))


def _if(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    condition = evaluation.child(site, "if", None, value, depth)
    if condition is None:
        return None
    branch = "then" if condition else "else"
    return True if (branch, None) not in site.children else evaluation.child(site, branch, None, value, depth)


def _nothing(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return True  # judged together with the keyword that it belongs to


def _ref(evaluation: Evaluation, site: Site, value: JSON, depth: int) -> bool | None:
    return None if site.target is None else evaluation.admits(site.target, value, depth + 1)


_RULES: Mapping[str, Rule] = {
    "$ref": _ref,
    "additionalItems": _nothing,
    "additionalProperties": _properties,
    "allOf": _all_of,
    "anyOf": _any_of,
    "const": _const,
    "contains": _contains,
    "dependencies": _dependent("dependencies"),
    "dependentRequired": _dependent("dependentRequired"),
    "dependentSchemas": _dependent("dependentSchemas"),
    "else": _nothing,
    "enum": _enum,
    "exclusiveMaximum": _range,
    "exclusiveMinimum": _range,
    "format": _format,
    "if": _if,
    "items": _items,
    "maxContains": _nothing,
    "maxItems": _counts,
    "maxLength": _range,
    "maxProperties": _counts,
    "maximum": _range,
    "minContains": _nothing,
    "minItems": _counts,
    "minLength": _range,
    "minProperties": _counts,
    "minimum": _range,
    "multipleOf": _multiple,
    "not": _not,
    "oneOf": _one_of,
    "pattern": _pattern,
    "patternProperties": _properties,
    "prefixItems": _items,
    "properties": _properties,
    "propertyNames": _property_names,
    "required": _required,
    "then": _nothing,
    "type": _type,
    "uniqueItems": _unique,
}
