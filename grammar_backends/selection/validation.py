"""Front-end validation: judges a spec alone, before any backend is thought of (D)."""

from __future__ import annotations

import contextlib
import functools

from grammar_backends.contract import GrammarKind, GrammarSpec
from grammar_backends.contract.grammar_text import check_grammar, syntax_of
from grammar_backends.contract.regex import check_regex
from grammar_backends.errors import SpecError, UnsupportedFeature
from grammar_backends.selection.schema import check_schema, walk_of
from grammar_backends.selection.tags import check_tag, inner_specs

__all__ = ["validate_spec"]

MAX_SPEC_LENGTH = 4 << 20
"""Characters of a spec (D10)."""
MAX_CHOICES = 50_000
"""Choices in a list: 20,000 take an engine some seconds (B14)."""


@functools.lru_cache(maxsize=256)
def validate_spec(spec: GrammarSpec) -> None:
    """Raise unless a spec is well formed and something can satisfy it. Pure, thread-safe, and needs no engine (D19).

    Specs that passed are remembered: many requests share one.

    Raises:
        SpecError: what is wrong and where.
    """
    if len(spec.text) > MAX_SPEC_LENGTH:
        raise SpecError(f"{spec.kind}: {len(spec.text)} characters, the limit is {MAX_SPEC_LENGTH}")
    if spec.kind is GrammarKind.JSON_SCHEMA:
        check_schema(walk_of(spec.text))
    elif spec.kind is GrammarKind.REGEX:
        with contextlib.suppress(UnsupportedFeature):  # a backend may support what the layer's dialect does not
            check_regex(spec.text)
    elif spec.kind is GrammarKind.GRAMMAR:
        check_grammar(spec.text, syntax_of(spec))
    elif spec.kind is GrammarKind.CHOICE:
        count = len(spec.value)
        if count > MAX_CHOICES:
            raise SpecError(f"choice: {count} choices, the limit is {MAX_CHOICES}")
    elif spec.kind is GrammarKind.STRUCTURAL_TAG:
        _validate_tag(spec)


def _validate_tag(spec: GrammarSpec) -> None:
    check_tag(spec.value)
    for pointer, inner in inner_specs(spec):
        try:
            validate_spec(inner)
        except SpecError as error:
            error.pointer = pointer + (error.pointer or "")
            raise
