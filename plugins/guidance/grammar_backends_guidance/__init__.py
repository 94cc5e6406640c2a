"""llguidance as a backend. This module only registers it; the engine is imported by the factory in `engine`."""

from __future__ import annotations

from collections.abc import Iterable

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind, GrammarSupport
from grammar_backends.contract.regex import RegexDialect
from grammar_backends.plugins import hookimpl

__all__ = ["DIALECT", "GRAMMARS", "SPEC", "grammar_backends_register_backends"]

DIALECT = RegexDialect("guidance", max_depth=250)

GRAMMARS = GrammarSupport(
    lazy_terminals=False,
    lark_attributes=frozenset({"lazy", "max_tokens", "stop", "stop_capture", "suffix"}),
    lark_directives=frozenset({"%json", "%regex", "%llguidance"}),
)
"""Measured on 1.9.1: its terminals are matched by a lexer that takes the longest match, as is usual for Lark. A lazy
repetition inside of one changes nothing about that; the attribute `lazy` of a rule does."""

SAFE = frozenset({GrammarKind.JSON_SCHEMA, GrammarKind.JSON_OBJECT, GrammarKind.REGEX, GrammarKind.CHOICE})
"""Measured on 1.9.1: of these it compiles whatever it takes within seconds, without the interpreter's lock, and refuses
the rest. What grammars and tags can cost it was not measured."""

LIMITS = frozenset(
    {
        "initial_lexer_fuel",
        "max_grammar_size",
        "max_items_in_row",
        "max_lexer_states",
        "step_lexer_fuel",
        "step_max_items",
    }
)
"""llguidance's own bounds on what a grammar may cost it (B14)."""

SPEC = BackendSpec(
    name="guidance",
    factory="grammar_backends_guidance.engine:GuidanceEngine",
    api_version=API_VERSION,
    capabilities=Capabilities(
        kinds=frozenset(GrammarKind),
        syntaxes=frozenset({"ebnf", "gbnf", "lark"}),
        structural_tags=frozenset({"legacy"}),
        forced_tokens=True,
        forced_bytes=True,
        compact_whitespace=True,
        regex=DIALECT,
        grammar=GRAMMARS,
        support="grammar_backends_guidance:support.json",
        costs="grammar_backends_guidance:costs.json",
        safe_in_threads=SAFE,
        options=LIMITS,
    ),
    priority=20,
    distribution="grammar-backends-guidance",
    engine="llguidance",
)


@hookimpl
def grammar_backends_register_backends() -> Iterable[BackendSpec]:
    return [SPEC]
