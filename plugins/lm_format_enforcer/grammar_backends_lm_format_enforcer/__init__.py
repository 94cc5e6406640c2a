"""lm-format-enforcer as a backend. This module only registers it; the engine is imported by the factory in `engine`."""

from __future__ import annotations

from collections.abc import Iterable

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.contract.regex import RegexDialect
from grammar_backends.plugins import hookimpl

__all__ = ["DIALECT", "SPEC", "grammar_backends_register_backends"]

DIALECT = RegexDialect(
    "lm-format-enforcer", escape="{:c}", negate=True, max_positions=1_000, max_depth=100, max_class=5_000
)
"""interegular knows no escape beyond two digits, so that characters stand for themselves, and lists every character
of a class, so that large classes are written by what they leave out."""

SPEC = BackendSpec(
    name="lm-format-enforcer",
    factory="grammar_backends_lm_format_enforcer.engine:FormatEnforcerEngine",
    api_version=API_VERSION,
    capabilities=Capabilities(
        kinds=frozenset({GrammarKind.JSON_SCHEMA, GrammarKind.JSON_OBJECT, GrammarKind.REGEX, GrammarKind.CHOICE}),
        forced_tokens=True,
        forced_bytes=True,
        compact_whitespace=True,
        closed_objects=True,
        regex=DIALECT,
        support="grammar_backends_lm_format_enforcer:support.json",
        options=frozenset(),
    ),
    priority=None,  # slow, and chosen only by name (C2.8)
    distribution="grammar-backends-lm-format-enforcer",
    engine="lm-format-enforcer",
)


@hookimpl
def grammar_backends_register_backends() -> Iterable[BackendSpec]:
    return [SPEC]
