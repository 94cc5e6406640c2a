"""outlines-core as a backend. This module only registers it; the engine is imported by the factory in `engine`."""

from __future__ import annotations

from collections.abc import Iterable

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.contract.regex import RegexDialect
from grammar_backends.plugins import hookimpl

__all__ = ["DIALECT", "SPEC", "grammar_backends_register_backends"]

DIALECT = RegexDialect("outlines", end=r"\z", max_positions=1_000, max_depth=250)
"""Without the anchor outlines-core stops at the first match: it loses "12" after "1", and "1.5" after "1"."""

SPEC = BackendSpec(
    name="outlines",
    factory="grammar_backends_outlines.engine:OutlinesEngine",
    api_version=API_VERSION,
    capabilities=Capabilities(
        kinds=frozenset({GrammarKind.JSON_SCHEMA, GrammarKind.REGEX, GrammarKind.CHOICE}),
        forced_tokens=True,
        forced_bytes=True,
        compact_whitespace=True,
        closed_objects=True,
        regex=DIALECT,
        support="grammar_backends_outlines:support.json",
        costs="grammar_backends_outlines:costs.json",
        options=frozenset(),
    ),
    priority=30,
    distribution="grammar-backends-outlines",
    engine="outlines-core",
)


@hookimpl
def grammar_backends_register_backends() -> Iterable[BackendSpec]:
    return [SPEC]
