"""Independent truth: what a spec means, without asking any engine.

`recogniser_of` gives a byte-level recogniser of our own for regular expressions, choices and grammars; texts are
also judged by Python's `re` and by `jsonschema`. What an oracle does not cover it says so, instead of guessing.
"""

from __future__ import annotations

from grammar_backends import GrammarKind, GrammarSpec
from grammar_backends_conformance.oracles.documents import schema_grammar
from grammar_backends_conformance.oracles.grammars import ebnf_grammar, lark_grammar
from grammar_backends_conformance.oracles.patterns import Uncovered, regex_fullmatch, regex_term
from grammar_backends_conformance.oracles.reference import Alternatives, Grammar, Recogniser, State, literal
from grammar_backends_conformance.oracles.schemas import json_valid, schema_valid
from grammar_backends_conformance.oracles.tokens import allowed_ids

__all__ = [
    "Recogniser",
    "State",
    "Uncovered",
    "allowed_ids",
    "json_valid",
    "recogniser_of",
    "regex_fullmatch",
    "schema_valid",
    "text_valid",
]


def recogniser_of(spec: GrammarSpec) -> Recogniser | None:
    """A recogniser of exactly the texts that a spec allows; None where this oracle does not know them.

    Regular expressions, choices, EBNF and GBNF; Lark too, where the lexer makes no difference (see `grammars`); JSON
    schemas of what has one spelling (see `documents`).
    """
    try:
        return Recogniser(_language(spec))
    except (ValueError, RecursionError):  # uncovered, a missing rule, nested too deep
        return None


def text_valid(spec: GrammarSpec, text: str) -> bool | None:
    """Whether a spec allows a text; None where no oracle knows."""
    try:
        if spec.kind is GrammarKind.JSON_SCHEMA:
            return schema_valid(spec.value, text, spec.options)
        if spec.kind is GrammarKind.JSON_OBJECT:
            return json_valid(text, spec.options) and (text.startswith("{") or not spec.options.json_object_only)
        if spec.kind is GrammarKind.REGEX:
            return regex_fullmatch(spec.text, text)
    except Uncovered:
        return None
    recogniser = recogniser_of(spec)
    return None if recogniser is None else recogniser.accepts(text)


def _language(spec: GrammarSpec) -> Grammar:
    if spec.kind is GrammarKind.REGEX:
        return Grammar(regex_term(spec.text))
    if spec.kind is GrammarKind.CHOICE:
        return Grammar(Alternatives(tuple(literal(text) for text in spec.value)))
    if spec.kind is GrammarKind.JSON_SCHEMA:
        return schema_grammar(spec.value, spec.options)
    if spec.kind is GrammarKind.GRAMMAR:
        is_ebnf = spec.syntax in ("ebnf", "gbnf") or (spec.syntax == "auto" and "::=" in spec.text)
        return ebnf_grammar(spec.text) if is_ebnf else lark_grammar(spec.text)
    raise Uncovered(str(spec.kind))
