"""Front-end validation: judges a spec alone, before any backend is thought of (D)."""

from __future__ import annotations

import contextlib
import functools

from grammar_backends.contract import GrammarKind, GrammarSpec
from grammar_backends.contract.grammar_text import check_grammar, syntax_of
from grammar_backends.contract.regex import check_regex
from grammar_backends.errors import SpecError, UnsupportedFeature
from grammar_backends.selection.drafts import check_drafts
from grammar_backends.selection.limits import Limits, check_size, check_structure
from grammar_backends.selection.schema import check_schema, walk_of
from grammar_backends.selection.tags import check_tag, inner_specs

__all__ = ["validate_spec"]

DEFAULT_LIMITS = Limits()


@functools.lru_cache(maxsize=256)
def validate_spec(spec: GrammarSpec, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise unless a spec is well formed and something can satisfy it. Pure, thread-safe, and needs no engine (D19).

    Its work is bounded whatever the spec: every reader counts its steps. Specs that passed are remembered: many
    requests share one.

    Args:
        spec: what to judge.
        limits: how large and how deep it may be (D9, D10).

    Raises:
        SpecError: what is wrong and where.
    """
    check_size(spec, limits)
    if spec.kind is GrammarKind.JSON_SCHEMA:
        check_schema(walk_of(spec.text))
        check_drafts(walk_of(spec.text))
    elif spec.kind is GrammarKind.REGEX:
        with contextlib.suppress(UnsupportedFeature):  # a backend may support what the layer's dialect does not
            check_regex(spec.text)
    elif spec.kind is GrammarKind.GRAMMAR:
        check_grammar(spec.text, syntax_of(spec))
    elif spec.kind is GrammarKind.STRUCTURAL_TAG:
        _validate_tag(spec, limits)
    check_structure(spec, limits)


def _validate_tag(spec: GrammarSpec, limits: Limits) -> None:
    check_tag(spec.value)
    for pointer, inner in inner_specs(spec):
        try:
            validate_spec(inner, limits)
        except SpecError as error:
            error.pointer = pointer + (error.pointer or "")
            raise
