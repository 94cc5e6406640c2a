"""What one backend would make of one spec, decided from declared and measured data alone, without its engine."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json

from grammar_backends.contract import BackendSpec, GrammarKind, GrammarSpec
from grammar_backends.contract.backend import unsupported_kind
from grammar_backends.contract.grammar_text import syntax_of
from grammar_backends.contract.regex import translate
from grammar_backends.errors import PluginError, UnsupportedFeature
from grammar_backends.selection.findings import Finding
from grammar_backends.selection.grammar_support import grammar_findings
from grammar_backends.selection.schema import walk_of
from grammar_backends.selection.support import SchemaSupport
from grammar_backends.selection.tags import inner_specs

__all__ = ["cost_of", "findings_of"]


@functools.lru_cache(maxsize=256)
def findings_of(spec: GrammarSpec, backend: BackendSpec) -> tuple[Finding, ...]:
    """Each place where this backend would not enforce the spec; empty when it enforces all of it (C2.5).

    The spec must have passed `validate_spec`. Remembered, since a spec is judged when it is selected and again when
    it is compiled, and many requests share one.
    """
    return tuple(_findings(spec, backend))


def _findings(spec: GrammarSpec, backend: BackendSpec) -> list[Finding]:
    kind_error = unsupported_kind(spec, backend)
    if kind_error is not None:
        return [Finding.of(kind_error)]
    if spec.kind is GrammarKind.JSON_SCHEMA:
        support = _schema_support(backend.capabilities.support)
        return support.findings(walk_of(spec.text), spec.options) if support else []
    if spec.kind is GrammarKind.REGEX:
        return _regex_findings(spec.text, backend)
    if spec.kind is GrammarKind.GRAMMAR:
        return _grammar_findings(spec, backend)
    if spec.kind is GrammarKind.STRUCTURAL_TAG:
        return _tag_findings(spec, backend)
    return []


@functools.lru_cache(maxsize=256)
def cost_of(spec: GrammarSpec, backend: BackendSpec) -> Finding | None:
    """Why another backend that enforces a spec is better than this one, which does too; None when it is not."""
    if spec.kind is not GrammarKind.JSON_SCHEMA:
        return None
    support = _schema_support(backend.capabilities.support)
    return support.cost(walk_of(spec.text), spec.options) if support else None


def _regex_findings(pattern: str, backend: BackendSpec) -> list[Finding]:
    dialect = backend.capabilities.regex
    if dialect is None:
        return []
    try:
        translate(pattern, dialect)
    except UnsupportedFeature as error:
        return [Finding.of(error)]
    return []


def _grammar_findings(spec: GrammarSpec, backend: BackendSpec) -> list[Finding]:
    syntax = syntax_of(spec)
    if syntax not in backend.capabilities.syntaxes:
        return [Finding(f"{backend.name} does not read {syntax} grammars", keyword=syntax)]
    support = backend.capabilities.grammar
    return grammar_findings(spec.text, syntax, support) if support else []


def _tag_findings(spec: GrammarSpec, backend: BackendSpec) -> list[Finding]:
    found = []
    for pointer, inner in inner_specs(spec):
        for finding in findings_of(inner, backend):
            found.append(dataclasses.replace(finding, pointer=pointer + (finding.pointer or "")))
    return found


@functools.cache
def _schema_support(resource: str | None) -> SchemaSupport | None:
    if resource is None:
        return None
    package, _, name = resource.partition(":")
    try:
        data = json.loads(importlib.resources.files(package).joinpath(name).read_text("utf-8"))
    except (OSError, ValueError, ModuleNotFoundError) as error:
        raise PluginError(f"support data {resource} cannot be read: {error}") from error
    return SchemaSupport.from_mapping(data)
