"""The automatic choice: the first backend that enforces all of a spec, and why the others do not (C)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grammar_backends.contract import BackendSpec, GrammarBackend, GrammarKind, GrammarSpec, Vocabulary
from grammar_backends.errors import (
    BackendUnavailable,
    CompileError,
    SpecError,
    UnsupportedFeature,
    VocabularyError,
    shown,
)
from grammar_backends.plugins import BackendRecord, PluginHost
from grammar_backends.selection.cost_model import Cost, predicted
from grammar_backends.selection.findings import Finding, Step, Trace, Verdict, first_finding
from grammar_backends.selection.judgement import Plan, cost_of, findings_of, plan_of
from grammar_backends.selection.lenience import check_ignorable
from grammar_backends.selection.limits import Limits
from grammar_backends.selection.loading import judging, shared_backend, shared_host
from grammar_backends.selection.tables import table_of
from grammar_backends.selection.validation import DEFAULT_LIMITS, validate_spec

__all__ = ["Policy", "Selection", "choose", "explain", "select_backend"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How the automatic choice goes about.

    Attributes:
        order: the backends to try, in this order; None for every loaded one by its priority.
        mode: "strict" enforces all of a spec or refuses it; "lenient" may leave out what `ignore` names, where nobody
            enforces it.
        ignore: keywords of JSON schemas ("uniqueItems"), formats ("format:idn-email"), or JSON pointers to one keyword;
            only with "lenient". What was really ignored stands in the trace.
        limits: how large and how deep a spec may be.
        prefer: "order" takes the first backend in the order; "speed" the one that is predicted to be the quickest at
            the spec, by the cost data of its plugin.

    Raises:
        ValueError: something is to be ignored in strict mode, or cannot be: without `properties` or `items`, say, the
            rest of a schema would mean something else.
    """

    order: tuple[str, ...] | None = None
    mode: Literal["strict", "lenient"] = "strict"
    ignore: tuple[str, ...] = ()
    limits: Limits = DEFAULT_LIMITS
    prefer: Literal["order", "speed"] = "order"

    def __post_init__(self) -> None:
        if self.prefer not in ("order", "speed"):
            raise ValueError(f'prefer must be "order" or "speed", not {shown(self.prefer)}')
        if self.mode not in ("strict", "lenient"):
            raise ValueError(f'mode must be "strict" or "lenient", not {shown(self.mode)}')
        if self.ignore and self.mode == "strict":
            raise ValueError('nothing is ignored in strict mode; give mode="lenient"')
        check_ignorable(self.ignore)

    @classmethod
    def of(cls, policy: Policy | str | None) -> Policy:
        """A policy itself, or the one that a word stands for: "default", or "fast" for ``prefer="speed"``.

        Raises:
            ValueError: another word.
        """
        if policy is None or isinstance(policy, Policy):
            return policy or cls()
        if policy not in POLICIES:
            raise ValueError(f"there is no policy {shown(policy)}; there are: {', '.join(POLICIES)}")
        return cls(prefer=POLICIES[policy])


POLICIES: Mapping[str, Literal["order", "speed"]] = {"default": "order", "fast": "speed"}
"""Policies that go by a word."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A decision.

    Attributes:
        backend: the backend that enforces the spec, ready to compile it.
        trace: how it was found.
    """

    backend: GrammarBackend
    trace: Trace

    @property
    def ignored(self) -> tuple[Finding, ...]:
        """What the backend does not enforce, since the policy allows that; empty in strict mode."""
        return next((step.ignored for step in self.trace.steps if step.verdict == "chosen"), ())


def select_backend(
    spec: GrammarSpec, vocabulary: Vocabulary, host: PluginHost | None = None, policy: Policy | str | None = None
) -> Selection:
    """The first backend that enforces all of `spec` and can work with `vocabulary`.

    One that enforces it, but slowly or with fewer texts than it could allow, is deferred: it is chosen when no other
    does. Where no engine enforces a spec as it is written, one may enforce a rewritten form with the same meaning; and
    where that fails too, a lenient policy says what may be left out. A malformed spec stops the search with one precise
    error; only a lack of support makes it go on (C2.2). What the front end let pass and an engine then calls malformed
    is the engine's own limit as long as another backend takes it, and the client's mistake when none does.

    Raises:
        SpecError: malformed or unsatisfiable.
        UnsupportedFeature: no backend enforces all of it; `trace` says why for each.
        VocabularyError: there is no vocabulary (C1.2).
    """
    if not isinstance(vocabulary, Vocabulary):
        raise VocabularyError("a vocabulary is needed: without a tokenizer the constraint would be dropped")
    host, policy = host or shared_host(), Policy.of(policy)
    ignore = frozenset(policy.ignore)
    chosen: list[GrammarBackend] = []

    def attempt(name: str) -> None:
        backend = judging(shared_backend(name, vocabulary, host), ignore, policy.limits)
        backend.check_spec(spec)
        chosen.append(backend)

    trace = choose(spec, attempt, host, policy)
    return Selection(chosen[0], trace)


def choose(
    spec: GrammarSpec,
    attempt: Callable[[str], None],
    host: PluginHost | None = None,
    policy: Policy | str | None = None,
) -> Trace:
    """The decision of `select_backend`, with another way to find out whether a candidate takes the spec.

    `attempt` is given names of backends until it returns. A SpecError refuses one candidate; BackendUnavailable,
    VocabularyError and CompileError skip it; whatever else it raises ends the search.

    Raises:
        SpecError, UnsupportedFeature: as `select_backend`.
    """
    mistakes: list[SpecError] = []

    def outcome(step: Step) -> Step:
        try:
            attempt(step.backend)
        except SpecError as error:
            if not isinstance(error, UnsupportedFeature):
                mistakes.append(error)
            return Step(step.backend, "refused", (Finding.of(error),), cost=step.cost)
        except (BackendUnavailable, VocabularyError, CompileError) as error:
            return Step(step.backend, "skipped", (Finding(str(error)),), cost=step.cost)
        return step

    trace = _decided(spec, host or shared_host(), Policy.of(policy), outcome)
    if trace.chosen is None:
        raise mistakes[0] if mistakes else _refusal(trace)
    return trace


def explain(spec: GrammarSpec, host: PluginHost | None = None, policy: Policy | str | None = None) -> Trace:
    """What `select_backend` would decide, from data alone: no engine is loaded, nothing is compiled.

    Raises:
        SpecError: malformed or unsatisfiable.
    """
    return _decided(spec, host or shared_host(), Policy.of(policy), lambda step: step)


def _decided(spec: GrammarSpec, host: PluginHost, policy: Policy, attempt: Callable[[Step], Step]) -> Trace:
    """The trace after one candidate after another was attempted, until one was chosen.

    Those come first that enforce the spec as it is written, then those that do so slowly, then those that enforce it
    rewritten, then those that allow less than they should, then those that leave out what may be ignored.
    """
    priced = _priced(spec, _candidates(spec, host, policy), policy)
    records, steps = [record for record, _ in priced], list[Step]()
    warnings = _warnings(spec, records)
    for record, cost in priced:
        step = _judge(spec, record, cost)
        if policy.prefer == "speed" and step.verdict == "chosen":  # nobody after it is quicker, so that none is judged
            step = attempt(step)
            if step.verdict == "chosen":
                rest = (Step(other.spec.name, "not tried", cost=price) for other, price in priced[len(steps) + 1 :])
                return Trace(spec, (*steps, step, *rest), warnings)
        steps.append(step)
    for place, plan in _plans(spec, steps, [record.spec for record in records], frozenset(policy.ignore)):
        step = Step(steps[place].backend, "chosen", (), plan.rewrites, plan.ignored, steps[place].cost)
        if _is_chosen(steps, place, attempt(step)):
            break
    return Trace(spec, tuple(steps), warnings)


def _plans(
    spec: GrammarSpec, steps: Sequence[Step], backends: Sequence[BackendSpec], ignore: frozenset[str]
) -> Iterator[tuple[int, Plan]]:
    """What may be tried, the best first, by the place of the backend; `steps` may change meanwhile."""
    deferred = _places(steps, "deferred")
    narrow = [place for place in deferred if cost_of(spec, backends[place], timed=True)]
    for place in [*_places(steps, "chosen"), *(place for place in deferred if place not in narrow)]:
        yield place, Plan(spec)
    refused = [(place, backends[place]) for place in _places(steps, "refused")]
    yield from _by_cost(spec, frozenset(), refused)
    for place in narrow:
        yield place, Plan(spec)
    if ignore:
        yield from _by_cost(spec, ignore, refused)


def _warnings(spec: GrammarSpec, records: Sequence[BackendRecord]) -> tuple[str, ...]:
    """What is to be said of candidates whose tables were measured on another version of their engine."""
    if spec.kind not in (GrammarKind.JSON_SCHEMA, GrammarKind.STRUCTURAL_TAG):
        return ()
    tables = [table_of(record.spec) for record in records if record.state == "loaded"]
    return tuple(table.warning for table in tables if table is not None and table.warning)


def _by_cost(
    spec: GrammarSpec, ignore: frozenset[str], candidates: Sequence[tuple[int, BackendSpec]]
) -> Iterator[tuple[int, Plan]]:
    """The plans that change the spec, made one by one as they are asked for; those that are slow to compile last."""
    slow: list[tuple[int, Plan]] = []
    for place, backend in candidates:
        plan = plan_of(spec, backend, ignore)
        if plan is None or plan.spec is spec:
            continue
        if cost_of(plan.spec, backend):
            slow.append((place, plan))
        else:
            yield place, plan
    yield from slow


def _is_chosen(steps: list[Step], place: int, step: Step) -> bool:
    """Put the outcome of an attempt in its place, and see whether it ends the search."""
    steps[place] = step
    if step.verdict != "chosen":
        return False
    for other in _places(steps, "chosen"):
        if other != place:
            steps[other] = dataclasses.replace(steps[other], verdict="not tried")
    return True


def _places(steps: Sequence[Step], verdict: Verdict) -> list[int]:
    return [place for place, step in enumerate(steps) if step.verdict == verdict]


def _candidates(spec: GrammarSpec, host: PluginHost, policy: Policy) -> list[BackendRecord]:
    validate_spec(spec, policy.limits)
    if policy.order is not None:
        names = list(policy.order)
        for name in names:
            host.backend(name)  # an unknown name is the caller's mistake
    else:
        names = [record.spec.name for record in host.backends if record.spec.priority is not None]
    records = {record.spec.name: record for record in reversed(host.backends)}
    return [records[name] for name in host.order_chain(spec, list(dict.fromkeys(names)))]


def _priced(
    spec: GrammarSpec, records: Sequence[BackendRecord], policy: Policy
) -> list[tuple[BackendRecord, Cost | None]]:
    """The candidates in their order; by speed the quickest by prediction come first, each with its prediction."""
    if policy.prefer == "order":
        return [(record, None) for record in records]
    priced = [(record, predicted(spec, record.spec.capabilities.costs)) for record in records]
    return sorted(priced, key=lambda pair: pair[1].total_ms if pair[1] else math.inf)


def _judge(spec: GrammarSpec, record: BackendRecord, cost: Cost | None) -> Step:
    """What becomes of a candidate that is asked to take a spec as it is written; "chosen" is one that would do.

    One with a prediction stands in its place for that, so that it is never deferred for being slow.
    """
    name = record.spec.name
    if record.state != "loaded":
        return Step(name, "skipped", (Finding(f"{record.state}: {record.reason}"),), cost=cost)
    findings = findings_of(spec, record.spec)
    if findings:
        return Step(name, "refused", findings, cost=cost)
    worse = cost_of(spec, record.spec, timed=cost is not None)
    return Step(name, "deferred", (worse,), cost=cost) if worse else Step(name, "chosen", cost=cost)


def _refusal(trace: Trace) -> UnsupportedFeature:
    reasons = [f"{step.backend}: {step.findings[0]}" for step in trace.steps if step.findings]
    first = first_finding(trace.steps) or Finding("there is no backend to try")
    message = f"no backend enforces the whole {trace.spec.kind} ({'; '.join(reasons) or first.reason})"
    return first.refusal(message, trace=trace)
