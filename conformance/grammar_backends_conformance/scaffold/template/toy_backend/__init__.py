"""toy as a backend of grammar-backends. This module only registers it: plain data, and no engine is imported."""

from __future__ import annotations

from collections.abc import Iterable

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.plugins import hookimpl

__all__ = ["SPEC", "grammar_backends_register_backends"]

SPEC = BackendSpec(
    name="toy",
    factory="toy_backend.engine:PatternEngine",
    api_version=API_VERSION,
    capabilities=Capabilities(kinds=frozenset({GrammarKind.REGEX, GrammarKind.CHOICE})),
    priority=None,  # chosen by name only; a number puts it into the automatic chain, lower first
    distribution="toy-backend",
)


@hookimpl
def grammar_backends_register_backends() -> Iterable[BackendSpec]:
    return [SPEC]
