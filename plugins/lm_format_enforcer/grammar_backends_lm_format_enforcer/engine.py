"""The adapter: the engine's character-level parsers become automata over bytes, and matchers walk those.

The engine's own `TokenEnforcer` is not used: it keeps a state for every prefix it ever saw, takes an unknown prefix
for the start, and answers an exception inside of it with "only the end may follow" (A19, A33, A34).
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import interegular

from grammar_backends.contract import GrammarKind, GrammarOptions, GrammarSpec, Vocabulary
from grammar_backends.contract.automata import AutomatonArtifact, CharacterMachine, TokenTree
from grammar_backends.contract.regex import translate
from grammar_backends.errors import UnsupportedFeature
from grammar_backends_lm_format_enforcer import DIALECT
from grammar_backends_lm_format_enforcer.characters import ChoiceMachine, RegexMachine
from grammar_backends_lm_format_enforcer.json_parser import JsonMachine
from grammar_backends_lm_format_enforcer.schema import engine_schema

__all__ = ["FormatEnforcerEngine"]


class FormatEnforcerEngine:
    """`Engine` over lm-format-enforcer.

    Args:
        vocabulary: any.
        options: none are known.
    """

    version = importlib.metadata.version("lm-format-enforcer")

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self._vocabulary = vocabulary
        self._tokens = TokenTree(vocabulary)

    def compile(self, spec: GrammarSpec) -> AutomatonArtifact:
        try:
            return AutomatonArtifact(_machine(spec), self._vocabulary, self._tokens)
        except (interegular.Unsupported, interegular.InvalidSyntax, RecursionError) as error:
            raise UnsupportedFeature(f"{spec.kind}: interegular cannot read it", engine_text=repr(error)) from error

    def check(self, spec: GrammarSpec) -> None:
        """`SpecChecker.check`: what can be told without the engine."""
        if spec.kind is GrammarKind.REGEX:
            translate(spec.text, DIALECT)
        elif spec.kind is GrammarKind.JSON_SCHEMA:
            engine_schema(spec.value, spec.options)


def _machine(spec: GrammarSpec) -> CharacterMachine:
    if spec.kind is GrammarKind.REGEX:
        return RegexMachine(translate(spec.text, DIALECT))
    if spec.kind is GrammarKind.CHOICE:
        return ChoiceMachine(spec.value)
    schema = spec.value if spec.kind is GrammarKind.JSON_SCHEMA else _object_schema(spec.options)
    named = sorted({character for character in spec.text if character > "\x7f"})
    return JsonMachine(engine_schema(schema, spec.options), named, _max_blanks(spec.options))


def _object_schema(options: GrammarOptions) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": True} if options.json_object_only else {}


def _max_blanks(options: GrammarOptions) -> int | None:
    return 0 if options.whitespace == "compact" else options.max_whitespace
