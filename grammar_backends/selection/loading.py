"""Backends by name, with the judgement of their support data in front of the engine."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from grammar_backends.contract import BackendSpec, GrammarBackend, GrammarSpec, Vocabulary
from grammar_backends.errors import BackendUnavailable
from grammar_backends.plugins import PluginHost, default_host
from grammar_backends.selection.judgement import findings_of
from grammar_backends.selection.validation import validate_spec

__all__ = ["load_backend", "shared_backend", "shared_host"]


def load_backend(
    name: str, vocabulary: Vocabulary, options: Mapping[str, Any] | None = None, host: PluginHost | None = None
) -> GrammarBackend:
    """A backend by name, with its engine ready to compile; takes up to a second for a large vocabulary.

    Args:
        name: a registered backend; `select_backend` chooses one automatically.
        vocabulary: whose rows it fills.
        options: the backend's own options.
        host: where to look it up; None for every installed plugin.

    Raises:
        BackendUnavailable: unknown, blocked, failed or incompatible, or its engine cannot start.
        VocabularyError: the engine cannot work with this vocabulary.
    """
    if name == "auto":
        raise BackendUnavailable("auto is no backend", hint="Call select_backend(spec, vocabulary)")
    host = host or shared_host()
    spec = host.backend(name)
    engine = host.create_engine(name, vocabulary, options)
    return GrammarBackend(spec, engine, vocabulary, functools.partial(_require_support, spec))


def _require_support(backend: BackendSpec, spec: GrammarSpec) -> None:
    validate_spec(spec)
    findings = findings_of(spec, backend)
    if findings:
        message = f"{backend.name} would not enforce the whole {spec.kind}: {findings[0].reason}"
        raise findings[0].refusal(message, backend=backend.name)


shared_host = functools.cache(default_host)
"""The host used where the caller passes none: one for the process, so that repeated calls share engines."""

shared_backend = functools.lru_cache(maxsize=16)(load_backend)
"""`load_backend`, keeping the latest few, for callers that select again and again."""
