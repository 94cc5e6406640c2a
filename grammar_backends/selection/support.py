"""What an engine enforces of JSON Schema, as data, and the reading of a schema against it (C2.5, C3).

A support table is an allow-list: what it does not name the engine would ignore or refuse, so that a schema that uses
it gets a finding with the place. What no list can say (two keywords that break one another, branches that must
exclude each other) are named checks, written once here and switched on by name in the data.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from grammar_backends.contract.spec import JSON, STANDARD_FORMATS, GrammarOptions
from grammar_backends.errors import PluginError, shown
from grammar_backends.selection.checks import CHECKS, COSTS, TIMES, Check, Settings
from grammar_backends.selection.disjoint import Comparison
from grammar_backends.selection.findings import Finding
from grammar_backends.selection.keywords import ASSERTIONS, COMBINATORS, GROUP_BITS, GROUPS
from grammar_backends.selection.schema import SchemaWalk, walk
from grammar_backends.selection.view import View, asserts_nothing

__all__ = ["Judged", "SchemaSupport"]

MAX_READINGS = 4_096
"""Sets of keywords that one table remembers."""

_BOOLEAN = "true or false"
"""Stands for the keywords of a schema without any."""

Judged: TypeAlias = "tuple[View, tuple[Finding, ...]]"

_Reading: TypeAlias = "tuple[tuple[Check | None, str, Settings], ...]"
"""The checks of a site, each with its settings, and the keywords that are judged by themselves, in their order."""


@dataclass(frozen=True, slots=True)
class SchemaSupport:
    """What one engine enforces, in the versions it was measured for.

    Attributes:
        engine: its name, for messages.
        measured: the version that was measured.
        versions: the versions the table is used for, as a PEP 440 specifier.
        types: per JSON type, the keywords that are enforced for values of it; "any" for the keywords of every type.
        combinators: the combinators that are enforced, each with the assertions that may stand beside it; "*" is all.
        formats: the formats that are enforced.
        unknown_formats: a format outside the specification is taken for the annotation that it is.
        noops: the keywords that are harmless where they assert nothing (`minLength: 0`); "*" is all. An engine refuses
            the others even there, or is misled.
        checks: the named checks that apply, each with its settings.
        costs: the named costs that apply, each with its settings.
    """

    engine: str
    measured: str
    versions: str
    types: Mapping[str, frozenset[str]]
    combinators: Mapping[str, frozenset[str]]
    formats: frozenset[str]
    unknown_formats: bool
    noops: frozenset[str]
    checks: Mapping[str, Mapping[str, JSON]]
    costs: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    _triggered: Mapping[str, Sequence[str]] = field(repr=False, compare=False, default_factory=dict)
    _readings: dict[tuple[str, ...], _Reading] = field(init=False, repr=False, compare=False, default_factory=dict)

    @classmethod
    def from_mapping(cls, data: Mapping[str, JSON]) -> SchemaSupport:
        """Read a support table, as `json.load` returns it.

        Raises:
            PluginError: something is missing, or an unknown check is named.
        """
        try:
            checks = {name: dict(settings) for name, settings in data["checks"].items()}
            costs = {name: dict(settings) for name, settings in data.get("costs", {}).items()}
            unknown = sorted({*checks} - set(CHECKS) | {*costs} - set(COSTS))
            if unknown:
                raise PluginError(f"support data of {data['engine']}: unknown checks or costs {', '.join(unknown)}")
            triggered: dict[str, list[str]] = {}
            for name in checks:
                for keyword in CHECKS[name].keywords or (_BOOLEAN,):
                    triggered.setdefault(keyword, []).append(name)
            return cls(
                engine=data["engine"],
                measured=data["measured"],
                versions=data["versions"],
                types={name: frozenset(keywords) for name, keywords in data["types"].items()},
                combinators={name: frozenset(siblings) for name, siblings in data["combinators"].items()},
                formats=frozenset(data["formats"]),
                unknown_formats=data["unknown_formats"],
                noops=frozenset(data["noops"]),
                checks=checks,
                costs=costs,
                _triggered=triggered,
            )
        except (KeyError, AttributeError, TypeError) as error:
            raise PluginError(f"support data is malformed: {error!r}") from error

    def findings(self, schema: JSON | SchemaWalk, options: GrammarOptions) -> list[Finding]:
        """Each place where this engine would not enforce the schema exactly; empty when it enforces all of it.

        Exactly means: no invalid document is accepted, and no valid one is lost but by the documented policies
        (order of properties, white space, one spelling of a number in `enum` and `const`).

        Raises:
            SpecError: not a schema at some position, or too deep or large.
        """
        return [finding for _, found in self.judged(schema, options) for finding in found]

    def judged(self, schema: JSON | SchemaWalk, options: GrammarOptions) -> Iterator[Judged]:
        """The sites with findings, each with these, outer ones first; raises as `findings` does."""
        names_apart = "property-names" in self.checks  # which then judges the names' schema too
        for view in _views(schema, options):
            reading = self._reading(view.keywords)
            if reading and not (names_apart and view.site.keyword == "propertyNames"):
                found = tuple(self._found(view, reading))
                if found:
                    yield view, found

    def cost(self, schema: JSON | SchemaWalk, options: GrammarOptions, timed: bool = False) -> Finding | None:
        """Why another engine is better, though this one enforces the schema (B14).

        None when none is: this one is quick at it and takes every valid text, for all that was measured.

        Args:
            schema: what is to be enforced.
            options: how it is to be read.
            timed: whether the time is known, so that it does not count here.

        Raises:
            SpecError: as `findings`.
        """
        names = [name for name in self.costs if not (timed and name in TIMES)]
        if not names:
            return None
        views = _views(schema, options)
        return next((found for name in names if (found := COSTS[name](views, self.costs[name]))), None)

    def _found(self, view: View, reading: _Reading) -> Iterator[Finding]:
        for check, keyword, settings in reading:
            if check is not None:
                yield from check(view, settings)
            elif not (self._is_harmless(keyword) and asserts_nothing(view, keyword)):
                yield from self._keyword(view, keyword)

    def _reading(self, keywords: tuple[str, ...]) -> _Reading:
        """What is to be looked at where these keywords stand, in their order.

        Remembered, since schemas have few different sets of keywords, and most need next to nothing.
        """
        known = self._readings.get(keywords)
        if known is None:
            if len(self._readings) >= MAX_READINGS:
                self._readings.clear()
            known = self._readings[keywords] = tuple(self._looked_at(keywords))
        return known

    def _looked_at(self, keywords: tuple[str, ...]) -> Iterator[tuple[Check | None, str, Settings]]:
        ran: set[str] = set()
        for keyword in ("", *keywords) if keywords else ("", _BOOLEAN):
            for name in self._triggered.get(keyword, ()):
                if name not in ran:
                    ran.add(name)
                    settings = CHECKS[name].settings_for(self.checks[name], keywords)
                    if settings is not None:
                        yield CHECKS[name].run, keyword, settings
            if keyword in ASSERTIONS and not self._always_enforces(keyword, keywords):
                yield None, keyword, {}

    def _always_enforces(self, keyword: str, beside: Sequence[str]) -> bool:
        """True for a keyword that has no finding by itself beside these, whatever they say."""
        group = GROUPS.get(keyword)
        if group is not None:
            names = _TYPE_NAMES[GROUP_BITS[group]]
            listed = all(keyword in self.types.get(name, ()) for name in names)
            return keyword != "format" and listed and self._is_harmless(keyword)
        if keyword in COMBINATORS:
            allowed = self.combinators.get(keyword)
            return allowed is not None and ("*" in allowed or ASSERTIONS.intersection(beside) - {keyword} <= allowed)
        return keyword in self.types["any"]

    def _is_harmless(self, keyword: str) -> bool:
        return keyword in self.noops or "*" in self.noops

    def _keyword(self, view: View, keyword: str) -> Iterator[Finding]:
        group = GROUPS.get(keyword)
        if group is not None:
            concerned = view.bits & GROUP_BITS[group]
            if not concerned and not self._is_harmless(keyword):
                yield view.finding(keyword, f"{keyword} is refused even where it says nothing", "Remove it")
            names = [name for name in _TYPE_NAMES[concerned] if keyword not in self.types.get(name, ())]
            if names and not (keyword == "format" and concerned):
                reason = f"{keyword} is not enforced for type {' and '.join(names)}"
                yield view.finding(keyword, reason, _IN_A_PATTERN if keyword.endswith("Length") else None)
            elif keyword == "format" and concerned:
                yield from self._format(view)
        elif keyword in COMBINATORS:
            yield from self._combinator(view, keyword)
        elif keyword not in self.types["any"]:
            yield view.finding(keyword, f"{keyword} is not enforced")

    def _format(self, view: View) -> Iterator[Finding]:
        name = view.schema["format"]
        if name in self.formats or (self.unknown_formats and name not in STANDARD_FORMATS):
            return
        yield view.finding("format", f"the format {shown(name)} is not enforced", _IN_A_PATTERN)

    def _combinator(self, view: View, keyword: str) -> Iterator[Finding]:
        allowed = self.combinators.get(keyword)
        if allowed is None:
            yield view.finding(keyword, f"{keyword} is not enforced")
            return
        if "*" in allowed:
            return
        for sibling in view.schema:
            if sibling == keyword or sibling in allowed or sibling not in ASSERTIONS:
                continue
            if asserts_nothing(view, sibling) or _is_implied(view, sibling, keyword):
                continue
            yield view.finding(
                sibling,
                f"{sibling} is not enforced beside {keyword}",
                f"Move it into the {'definition' if keyword == '$ref' else 'branches'}",
            )


_IN_A_PATTERN = "Use a pattern instead"

_TYPE_NAMES: Mapping[int, Sequence[str]] = {
    bits: [
        name
        for name, bit in (("string", 16), ("integer", 4), ("number", 8), ("array", 32), ("object", 64))
        if bits & bit
    ]
    for bits in range(128)
}
"""The types whose keyword lists apply, by kinds of value: a `number` is judged by both lists."""


def _views(schema: JSON | SchemaWalk, options: GrammarOptions) -> Sequence[View]:
    return _views_of(schema if isinstance(schema, SchemaWalk) else walk(schema), options)


@functools.lru_cache(maxsize=4)
def _views_of(sites: SchemaWalk, options: GrammarOptions) -> Sequence[View]:
    """Kept for the few schemas at hand, since every engine's table is read against the same views."""
    comparison = Comparison()
    return tuple(View(site, sites, options, comparison) for site in sites)


def _is_implied(view: View, sibling: str, keyword: str) -> bool:
    """True for a `type` that the combinator beside it implies already."""
    if sibling != "type":
        return False
    if keyword in ("enum", "const"):
        return True  # judged by the members: the check "enum-type-conflict"
    return not view.comparison.possible_without_type(view.site) & ~view.bits
