"""What one backend would make of one spec, decided from declared and measured data alone, without its engine."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass

from grammar_backends.contract import JSON, BackendSpec, GrammarKind, GrammarSpec
from grammar_backends.contract.backend import unsupported_kind
from grammar_backends.contract.grammar_text import syntax_of
from grammar_backends.contract.regex import translate
from grammar_backends.errors import UnsupportedFeature
from grammar_backends.selection.findings import Finding, Rewrite
from grammar_backends.selection.grammar_support import grammar_findings
from grammar_backends.selection.lenience import without
from grammar_backends.selection.rewrites import MAX_FINDINGS, rewrite
from grammar_backends.selection.schema import put, walk_of
from grammar_backends.selection.support import Judged, SchemaSupport
from grammar_backends.selection.tables import table_of
from grammar_backends.selection.tags import inner_specs

__all__ = ["Plan", "cost_of", "findings_of", "plan_of"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a backend is to compile for a spec.

    Attributes:
        spec: the spec itself, or another one with the same meaning, but for what may be ignored.
        rewrites: how it came about.
        ignored: what is not enforced.
    """

    spec: GrammarSpec
    rewrites: tuple[Rewrite, ...] = ()
    ignored: tuple[Finding, ...] = ()


@functools.lru_cache(maxsize=256)
def findings_of(spec: GrammarSpec, backend: BackendSpec) -> tuple[Finding, ...]:
    """The places where this backend would not enforce the spec; empty when it enforces all of it (C2.5).

    In a schema that has very many, the first of them: enough to know that nothing can be done about it.
    The spec must have passed `validate_spec`. Remembered, since a spec is judged when it is selected and again when
    it is compiled, and many requests share one.
    """
    return tuple(_findings(spec, backend))


def _findings(spec: GrammarSpec, backend: BackendSpec) -> list[Finding]:
    kind_error = unsupported_kind(spec, backend)
    if kind_error is not None:
        return [Finding.of(kind_error)]
    if spec.kind is GrammarKind.JSON_SCHEMA:
        return [finding for _, found in _judged(spec, backend) for finding in found]
    if spec.kind is GrammarKind.REGEX:
        return _regex_findings(spec.text, backend)
    if spec.kind is GrammarKind.GRAMMAR:
        return _grammar_findings(spec, backend)
    if spec.kind is GrammarKind.STRUCTURAL_TAG:
        return _tag_findings(spec, backend)
    return []


@functools.lru_cache(maxsize=16)
def _judged(spec: GrammarSpec, backend: BackendSpec) -> tuple[Judged, ...]:
    """`SchemaSupport.judged`, kept for the rewrites that may follow, and no longer than these and a reader need."""
    support = _schema_support(backend)
    if support is None:
        return ()
    return tuple(itertools.islice(support.judged(walk_of(spec.text), spec.options), MAX_FINDINGS + 1))


@functools.lru_cache(maxsize=256)
def plan_of(spec: GrammarSpec, backend: BackendSpec, ignore: frozenset[str] = frozenset()) -> Plan | None:
    """How this backend can enforce a spec: as it is written, or else rewritten, or else without what may be ignored.

    None when it cannot. Remembered, as `findings_of` is.
    """
    if not findings_of(spec, backend):
        return Plan(spec)
    if unsupported_kind(spec, backend) is not None:
        return None
    if spec.kind is GrammarKind.JSON_SCHEMA:
        return _schema_plan(spec, backend, ignore)
    return _tag_plan(spec, backend, ignore) if spec.kind is GrammarKind.STRUCTURAL_TAG else None


def _schema_plan(spec: GrammarSpec, backend: BackendSpec, ignore: frozenset[str]) -> Plan | None:
    support = _schema_support(backend)
    if support is None:
        return None
    found = rewrite(walk_of(spec.text), support, spec.options, _judged(spec, backend))
    if found is not None:
        return Plan(_with_schema(spec, found[0]), found[1])
    if not ignore:
        return None
    schema, ignored = without(spec.value, support, spec.options, ignore)
    found = rewrite(schema, support, spec.options) if support.findings(schema, spec.options) else (schema, ())
    if found is None:
        return None
    return Plan(_with_schema(spec, found[0]), found[1], ignored)


def _with_schema(spec: GrammarSpec, schema: JSON) -> GrammarSpec:
    return GrammarSpec.json_schema(schema, options=spec.options)


def _tag_plan(spec: GrammarSpec, backend: BackendSpec, ignore: frozenset[str]) -> Plan | None:
    """The plans of the schemas inside a tag, put together."""
    tag = spec.value
    rewrites: list[Rewrite] = []
    ignored: list[Finding] = []
    for pointer, inner in inner_specs(spec):
        plan = plan_of(inner, backend, ignore)
        if plan is None:
            return None
        if plan.spec is not inner:
            put(tag, pointer, plan.spec.value)
        rewrites += [dataclasses.replace(each, pointer=pointer + each.pointer) for each in plan.rewrites]
        ignored += [dataclasses.replace(each, pointer=pointer + (each.pointer or "")) for each in plan.ignored]
    return Plan(GrammarSpec.structural_tag(tag, options=spec.options), tuple(rewrites), tuple(ignored))


@functools.lru_cache(maxsize=256)
def cost_of(spec: GrammarSpec, backend: BackendSpec, timed: bool = False) -> Finding | None:
    """Why another backend that enforces a spec is better than this one, which does too; None when it is not.

    `timed` as in `SchemaSupport.cost`.
    """
    if spec.kind is not GrammarKind.JSON_SCHEMA:
        return None
    support = _schema_support(backend)
    return support.cost(walk_of(spec.text), spec.options, timed) if support and support.costs else None


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


def _schema_support(backend: BackendSpec) -> SchemaSupport | None:
    table = table_of(backend)
    return table.support if table else None
