"""Backends by name, with the judgement of their support data in front of the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from grammar_backends.contract import BackendSpec, GrammarBackend, GrammarSpec, Vocabulary
from grammar_backends.errors import BackendUnavailable
from grammar_backends.plugins import PluginHost, default_host
from grammar_backends.selection.judgement import findings_of, plan_of
from grammar_backends.selection.limits import Limits
from grammar_backends.selection.validation import DEFAULT_LIMITS, validate_spec

__all__ = ["judging", "load_backend", "shared_backend", "shared_host"]


def load_backend(
    name: str,
    vocabulary: Vocabulary,
    options: Mapping[str, Any] | None = None,
    host: PluginHost | None = None,
    ignore: Iterable[str] = (),
    limits: Limits | None = None,
) -> GrammarBackend:
    """A backend by name, with its engine ready to compile; takes up to a second for a large vocabulary.

    Args:
        name: a registered backend; `select_backend` chooses one automatically.
        vocabulary: whose rows it fills.
        options: the backend's own options.
        host: where to look it up; None for every installed plugin.
        ignore: what it may leave unenforced in JSON schemas; see `Policy`.
        limits: how large and how deep a spec may be.

    Raises:
        BackendUnavailable: unknown, blocked, failed or incompatible, or its engine cannot start.
        VocabularyError: the engine cannot work with this vocabulary.
    """
    if name == "auto":
        raise BackendUnavailable("auto is no backend", hint="Call select_backend(spec, vocabulary)")
    host = host or shared_host()
    spec = host.backend(name)
    engine = host.create_engine(name, vocabulary, options)
    judge = _judge(spec, frozenset(ignore), limits or DEFAULT_LIMITS)
    return GrammarBackend(spec, engine, vocabulary, judge, dict(options or {}))


def _judge(backend: BackendSpec, ignore: frozenset[str], limits: Limits) -> Callable[[GrammarSpec], GrammarSpec]:
    return functools.partial(_require_support, backend, ignore, limits)


def _require_support(backend: BackendSpec, ignore: frozenset[str], limits: Limits, spec: GrammarSpec) -> GrammarSpec:
    """The spec that the engine is to compile: the one asked for, or one that means the same to it."""
    validate_spec(spec, limits)
    plan = plan_of(spec, backend, ignore)
    if plan is not None:
        return plan.spec
    finding = findings_of(spec, backend)[0]
    raise finding.refusal(
        f"{backend.name} would not enforce the whole {spec.kind}: {finding.reason}", backend=backend.name
    )


shared_host = functools.cache(default_host)
"""The host used where the caller passes none: one for the process, so that repeated calls share engines."""


@functools.lru_cache(maxsize=16)
def shared_backend(name: str, vocabulary: Vocabulary, host: PluginHost) -> GrammarBackend:
    """`load_backend`, keeping the latest few, for callers that select again and again."""
    return load_backend(name, vocabulary, None, host)


def judging(backend: GrammarBackend, ignore: frozenset[str], limits: Limits) -> GrammarBackend:
    """The same backend, which may leave something unenforced, and takes specs within some limits."""
    if not ignore and limits == DEFAULT_LIMITS:
        return backend
    judge = _judge(backend.spec, ignore, limits)
    return GrammarBackend(backend.spec, backend.engine, backend.vocabulary, judge, backend.options)
