"""What a faulty engine declares: the rule that it breaks, and what the suite needs to see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from broken_engines.right import Part
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind

__all__ = ["EVERYTHING", "FAULTS", "FORCING", "SCHEMAS", "TEXT", "Fault", "breaks", "spec_of"]

TEXT = Capabilities(frozenset({GrammarKind.REGEX, GrammarKind.CHOICE}))
"""Enough for most faults, and quickly judged."""

EVERYTHING = Capabilities(
    frozenset({GrammarKind.REGEX, GrammarKind.CHOICE, GrammarKind.GRAMMAR, GrammarKind.JSON_SCHEMA}),
    frozenset({"ebnf", "gbnf"}),
    forced_tokens=True,
    forced_bytes=True,
    compact_whitespace=True,
    closed_objects=True,
)
"""All that the engine can do."""

FORCING = Capabilities(TEXT.kinds, forced_tokens=True, forced_bytes=True)
SCHEMAS = Capabilities(frozenset({GrammarKind.JSON_SCHEMA}), compact_whitespace=True, closed_objects=True)


@dataclass(frozen=True)
class Fault:
    """An engine that breaks a rule.

    Attributes:
        rule: the rule.
        part: what is wrong.
        vocabulary: the vocabulary with which it shows.
        profile: the profile that judges it.
        capabilities: what it declares.
    """

    rule: str
    part: type[Part]
    vocabulary: str = "byte"
    profile: str = "core"
    capabilities: Capabilities = TEXT

    @property
    def spec(self) -> BackendSpec:
        """The backend."""
        return spec_of(self.part, self.capabilities)


def spec_of(part: type[Part], capabilities: Capabilities) -> BackendSpec:
    """The engine with this part, as a plugin would register it."""
    return BackendSpec("broken", f"{part.__module__}:{part.__name__}.engine", API_VERSION, capabilities)


FAULTS: list[Fault] = []
"""All faulty engines; filled by importing `broken_engines.faults`."""

P = TypeVar("P", bound=type[Part])


def breaks(rule: str, **details: Any) -> Callable[[P], P]:
    """Add an engine with this part to `FAULTS`."""

    def add(part: P) -> P:
        FAULTS.append(Fault(rule, part, **details))
        return part

    return add
