"""xgrammar as a backend. This module only registers it; the engine is imported by the factory in `engine`."""

from __future__ import annotations

from collections.abc import Iterable

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind, GrammarSupport
from grammar_backends.contract.regex import RegexDialect
from grammar_backends.plugins import hookimpl

__all__ = ["DIALECT", "GRAMMARS", "SPEC", "grammar_backends_register_backends"]

DIALECT = RegexDialect("xgrammar")

GRAMMARS = GrammarSupport(
    ebnf_extensions=frozenset({"*"}),
    lazy_terminals=False,
    foreign_terminals=False,
    lark_directives=frozenset({"%regex"}),
)
"""Measured on 0.2.9: it drops laziness, reads unknown escapes as letters and nested classes as characters, ignores
anchors in the middle, relaxes `max_tokens`, and ignores schema keywords of `%json` as it does those of a schema."""

SPEC = BackendSpec(
    name="xgrammar",
    factory="grammar_backends_xgrammar.engine:XGrammarEngine",
    api_version=API_VERSION,
    capabilities=Capabilities(
        kinds=frozenset(GrammarKind),
        syntaxes=frozenset({"ebnf", "gbnf", "lark"}),
        structural_tags=frozenset({"legacy", "format"}),
        forced_tokens=True,
        forced_bytes=True,
        compact_whitespace=True,
        closed_objects=True,
        regex=DIALECT,
        grammar=GRAMMARS,
        support="grammar_backends_xgrammar:support.json",
        costs="grammar_backends_xgrammar:costs.json",
        options=frozenset({"compile_threads"}),
    ),
    priority=10,
    distribution="grammar-backends-xgrammar",
    engine="xgrammar",
)


@hookimpl
def grammar_backends_register_backends() -> Iterable[BackendSpec]:
    return [SPEC]
