"""How large and how deep a spec may be, as configuration of whoever runs the front end (D9, D10)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from grammar_backends.contract import GrammarKind, GrammarSpec
from grammar_backends.contract.grammar_text import MAX_LENGTH as MAX_GRAMMAR_LENGTH
from grammar_backends.contract.grammar_text import MAX_RULES, checked_grammar, syntax_of
from grammar_backends.contract.regex import MAX_LENGTH as MAX_PATTERN_LENGTH
from grammar_backends.errors import SpecError
from grammar_backends.selection.schema import MAX_DEPTH, MAX_SITES, walk_of

__all__ = ["Limits", "check_size", "check_structure"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one front end. All may be lowered; those with a ceiling cannot be raised above it.

    Attributes:
        spec_characters: of a whole spec.
        choices: in a list of choices: 20,000 take an engine some seconds (B14).
        enum_members: in one `enum` of a schema.
        properties: of one object of a schema.
        schema_depth: subschemas in subschemas. The default is the ceiling: at twice as many levels llguidance refuses
            and xgrammar takes half a second, at 600 more than 20 s. What outlines carries, 3 levels, is in its
            support data.
        subschemas: in one schema, with what references reach. The default is the ceiling.
        pattern_characters: of a regular expression. The default is the ceiling.
        grammar_characters, grammar_rules: of a grammar. The defaults are the ceilings: engines overflow their stacks.

    Raises:
        ValueError: a bound that is no positive integer, or above its ceiling.
    """

    spec_characters: int = 4 << 20
    choices: int = 50_000
    enum_members: int = 50_000
    properties: int = 10_000
    schema_depth: int = MAX_DEPTH
    subschemas: int = MAX_SITES
    pattern_characters: int = MAX_PATTERN_LENGTH
    grammar_characters: int = MAX_GRAMMAR_LENGTH
    grammar_rules: int = MAX_RULES

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"limit {field.name} must be a positive integer, not {value!r}")
            if value > _CEILINGS.get(field.name, value):
                raise ValueError(f"limit {field.name} is at most {_CEILINGS[field.name]}, not {value}")


_CEILINGS: Mapping[str, int] = {
    "schema_depth": MAX_DEPTH,
    "subschemas": MAX_SITES,
    "pattern_characters": MAX_PATTERN_LENGTH,
    "grammar_characters": MAX_GRAMMAR_LENGTH,
    "grammar_rules": MAX_RULES,
}
"""What the readers of this layer, or the engines, cannot go beyond."""

_TEXTS: Mapping[GrammarKind, str] = {
    GrammarKind.REGEX: "pattern_characters",
    GrammarKind.GRAMMAR: "grammar_characters",
}


def check_size(spec: GrammarSpec, limits: Limits) -> None:
    """Refuse a spec for its length, before anything reads it.

    Raises:
        SpecError: what is too much, and the limit.
    """
    _check(spec, "characters", len(spec.text), limits.spec_characters)
    if spec.kind in _TEXTS:
        _check(spec, "characters", len(spec.text), getattr(limits, _TEXTS[spec.kind]))


def check_structure(spec: GrammarSpec, limits: Limits) -> None:
    """Refuse a well-formed spec for what is in it.

    Raises:
        SpecError: what is too much and where, and the limit.
    """
    if spec.kind is GrammarKind.CHOICE:
        _check(spec, "choices", len(spec.value), limits.choices)
    elif spec.kind is GrammarKind.GRAMMAR:
        rules = checked_grammar(spec.text, syntax_of(spec)).rules
        _check(spec, "rules", len(rules), limits.grammar_rules)
    elif spec.kind is GrammarKind.JSON_SCHEMA:
        _check_schema(spec, limits)


def _check_schema(spec: GrammarSpec, limits: Limits) -> None:
    sites = walk_of(spec.text)
    _check(spec, "subschemas", len(sites), limits.subschemas, "")
    for site in sites:
        if site.depth > limits.schema_depth:
            message = f"json_schema: nested too deep (more than {limits.schema_depth} levels)"
            raise SpecError(message, pointer=site.pointer)
        if isinstance(site.schema, dict):
            for keyword, limit in (("enum", limits.enum_members), ("properties", limits.properties)):
                if keyword in site.schema:
                    place = f"{site.pointer}/{keyword}"
                    what = "members of enum" if keyword == "enum" else keyword
                    _check(spec, what, len(site.schema[keyword]), limit, place)


def _check(spec: GrammarSpec, what: str, count: int, limit: int, pointer: str | None = None) -> None:
    if count > limit:
        raise SpecError(f"{spec.kind}: {count} {what}, the limit is {limit}", pointer=pointer)
