"""The automatic choice: the first backend that enforces all of a spec, and why the others do not (C)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grammar_backends.contract import GrammarBackend, GrammarSpec, Vocabulary
from grammar_backends.errors import BackendUnavailable, CompileError, SpecError, UnsupportedFeature, VocabularyError
from grammar_backends.plugins import BackendRecord, PluginHost
from grammar_backends.selection.findings import Finding, Step, Trace, first_finding
from grammar_backends.selection.judgement import cost_of, findings_of
from grammar_backends.selection.loading import shared_backend, shared_host
from grammar_backends.selection.validation import validate_spec

__all__ = ["Policy", "Selection", "explain", "select_backend"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How the automatic choice goes about.

    Attributes:
        order: the backends to try, in this order; None for every loaded one by its priority.
    """

    order: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """A decision.

    Attributes:
        backend: the backend that enforces the spec, ready to compile it.
        trace: how it was found.
    """

    backend: GrammarBackend
    trace: Trace


def select_backend(
    spec: GrammarSpec, vocabulary: Vocabulary, host: PluginHost | None = None, policy: Policy | None = None
) -> Selection:
    """The first backend that enforces all of `spec` and can work with `vocabulary`.

    One that enforces it, but is measured to be slow at it, is deferred: it is chosen when no other does. A malformed
    spec stops the search with one precise error; only a lack of support makes it go on (C2.2). What the front end let
    pass and an engine then calls malformed is the engine's own limit as long as another backend takes it, and the
    client's mistake when none does.

    Raises:
        SpecError: malformed or unsatisfiable.
        UnsupportedFeature: no backend enforces all of it; `trace` says why for each.
    """
    host = host or shared_host()
    chosen: list[GrammarBackend] = []
    mistakes: list[SpecError] = []

    def attempt(candidate: Step) -> Step:
        try:
            backend = shared_backend(candidate.backend, vocabulary, None, host)
            backend.check_spec(spec)
        except SpecError as error:
            if not isinstance(error, UnsupportedFeature):
                mistakes.append(error)
            return Step(candidate.backend, "refused", (Finding.of(error),))
        except (BackendUnavailable, VocabularyError, CompileError) as error:
            return Step(candidate.backend, "skipped", (Finding(str(error)),))
        chosen.append(backend)
        return Step(candidate.backend, "chosen")

    trace = _decided(spec, _judged(spec, host, policy), attempt)
    if not chosen:
        raise mistakes[0] if mistakes else _refusal(trace)
    return Selection(chosen[0], trace)


def explain(spec: GrammarSpec, host: PluginHost | None = None, policy: Policy | None = None) -> Trace:
    """What `select_backend` would decide, from data alone: no engine is loaded, nothing is compiled.

    Raises:
        SpecError: malformed or unsatisfiable.
    """
    return _decided(spec, _judged(spec, host or shared_host(), policy), lambda step: Step(step.backend, "chosen"))


def _judged(spec: GrammarSpec, host: PluginHost, policy: Policy | None) -> list[Step]:
    """A step for each candidate; "chosen" and "deferred" are those that would do."""
    validate_spec(spec)
    if policy is not None and policy.order is not None:
        names = list(policy.order)
        for name in names:
            host.backend(name)  # an unknown name is the caller's mistake
    else:
        names = [record.spec.name for record in host.backends if record.spec.priority is not None]
    records = {record.spec.name: record for record in reversed(host.backends)}
    return [_judge(spec, records[name]) for name in host.order_chain(spec, list(dict.fromkeys(names)))]


def _judge(spec: GrammarSpec, record: BackendRecord) -> Step:
    name = record.spec.name
    if record.state != "loaded":
        return Step(name, "skipped", (Finding(f"{record.state}: {record.reason}"),))
    findings = findings_of(spec, record.spec)
    if findings:
        return Step(name, "refused", findings)
    cost = cost_of(spec, record.spec)
    return Step(name, "deferred", (cost,)) if cost else Step(name, "chosen")


def _decided(spec: GrammarSpec, candidates: Sequence[Step], attempt: Callable[[Step], Step]) -> Trace:
    """The trace after candidates that would do were attempted, those without a cost first, until one was chosen."""
    steps = list(candidates)
    done = False
    for wanted in ("chosen", "deferred"):
        for place, candidate in enumerate(candidates):
            if candidate.verdict != wanted:
                continue
            if not done:
                steps[place] = attempt(candidate)
                done = steps[place].verdict == "chosen"
            elif wanted == "chosen":
                steps[place] = Step(candidate.backend, "not tried")
    return Trace(spec, tuple(steps))


def _refusal(trace: Trace) -> UnsupportedFeature:
    reasons = [f"{step.backend}: {step.findings[0]}" for step in trace.steps if step.findings]
    first = first_finding(trace.steps) or Finding("no backend is installed")
    message = f"no backend enforces the whole {trace.spec.kind} ({'; '.join(reasons) or first.reason})"
    return first.refusal(message, trace=trace)
