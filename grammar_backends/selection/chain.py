"""The automatic choice: the first backend that enforces all of a spec, and why the others do not (C)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grammar_backends.contract import GrammarBackend, GrammarSpec, Vocabulary
from grammar_backends.errors import BackendUnavailable, CompileError, SpecError, UnsupportedFeature, VocabularyError
from grammar_backends.plugins import PluginHost
from grammar_backends.selection.findings import Finding, Step, Trace, first_finding
from grammar_backends.selection.judgement import findings_of
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

    A malformed spec stops the search with one precise error; only a lack of support makes it go on (C2.2). What the
    front end let pass and an engine then calls malformed is the engine's own limit as long as another backend takes
    it, and the client's mistake when none does.

    Raises:
        SpecError: malformed or unsatisfiable.
        UnsupportedFeature: no backend enforces all of it; `trace` says why for each.
    """
    host = host or shared_host()
    steps: list[Step] = []
    chosen: GrammarBackend | None = None
    refusal: SpecError | None = None
    for judged in _judged(spec, host, policy):
        step = judged
        if chosen is not None:
            step = Step(judged.backend, "not tried")
        elif judged.verdict == "chosen":
            try:
                backend = shared_backend(judged.backend, vocabulary, None, host)
                backend.check_spec(spec)
                chosen = backend
            except SpecError as error:
                step = Step(judged.backend, "refused", (Finding.of(error),))
                if not isinstance(error, UnsupportedFeature):
                    refusal = refusal or error
            except (BackendUnavailable, VocabularyError, CompileError) as error:
                step = Step(judged.backend, "skipped", (Finding(str(error)),))
        steps.append(step)
    trace = Trace(spec, tuple(steps))
    if chosen is None:
        raise refusal or _refusal(trace)
    return Selection(chosen, trace)


def explain(spec: GrammarSpec, host: PluginHost | None = None, policy: Policy | None = None) -> Trace:
    """What `select_backend` would decide, from data alone: no engine is loaded, nothing is compiled.

    Candidates after the chosen one are judged too, so that a person sees what each would say.

    Raises:
        SpecError: malformed or unsatisfiable.
    """
    steps: list[Step] = []
    decided = False
    for step in _judged(spec, host or shared_host(), policy):
        steps.append(Step(step.backend, "not tried", step.findings) if decided else step)
        decided = decided or step.verdict == "chosen"
    return Trace(spec, tuple(steps))


def _judged(spec: GrammarSpec, host: PluginHost, policy: Policy | None) -> Iterator[Step]:
    """A step for each candidate, as if no earlier one had been chosen."""
    validate_spec(spec)
    records = {record.spec.name: record for record in reversed(host.backends)}
    if policy is not None and policy.order is not None:
        names = list(policy.order)
        for name in names:
            host.backend(name)  # an unknown name is the caller's mistake
    else:
        names = [record.spec.name for record in host.backends if record.spec.priority is not None]
    for name in host.order_chain(spec, list(dict.fromkeys(names))):
        record = records[name]
        if record.state != "loaded":
            yield Step(name, "skipped", (Finding(f"{record.state}: {record.reason}"),))
        else:
            findings = findings_of(spec, record.spec)
            yield Step(name, "refused" if findings else "chosen", tuple(findings))


def _refusal(trace: Trace) -> UnsupportedFeature:
    reasons = [f"{step.backend}: {step.findings[0]}" for step in trace.steps if step.findings]
    first = first_finding(trace.steps) or Finding("no backend is installed")
    return UnsupportedFeature(
        f"no backend enforces the whole {trace.spec.kind} ({'; '.join(reasons) or first.reason})",
        pointer=first.pointer,
        line=first.line,
        column=first.column,
        keyword=first.keyword,
        hint=first.hint,
        trace=trace,
    )
