"""Runs the suite: plans, isolates, collects, and compares with what was expected.

The plan of a backend with a vocabulary is known only when its survey is done, so that checks join the pool while it
runs. Nothing a backend does ends the run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grammar_backends import PluginHost
from grammar_backends.contract import BackendSpec
from grammar_backends.installation import installed_version
from grammar_backends.kernels.apply import available_implementations
from grammar_backends.workers import Limits, one_line
from grammar_backends_conformance.laws.check import SURVEY, Check
from grammar_backends_conformance.reports.outcome import FAILING, CheckResult
from grammar_backends_conformance.reports.report import Line, SuiteReport
from grammar_backends_conformance.running.environment import describe_environment
from grammar_backends_conformance.running.pool import Lane, Pool
from grammar_backends_conformance.suite import TIME_LIMIT, worker
from grammar_backends_conformance.suite import expectations as expected
from grammar_backends_conformance.suite.bench import Bench
from grammar_backends_conformance.suite.plan import Plan

__all__ = ["Settings", "checks_after", "open_pool", "run_backends", "run_suite"]


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes:
        plan: which checks.
        jobs: worker processes at a time.
        time_limit: seconds for one check.
    """

    plan: Plan = field(default_factory=Plan)
    jobs: int = 1
    time_limit: float = TIME_LIMIT

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        plan = {"profile": self.plan.profile, "vocabularies": [*self.plan.vocabularies], "only": [*self.plan.only]}
        return {**plan, "jobs": self.jobs, "time_limit_s": self.time_limit}


OnResult = Callable[[str, CheckResult, int], None]
"""Told of every result: the backend's name, the result, and how many checks it brought with it."""


def run_suite(
    spec: BackendSpec,
    *,
    host: PluginHost | None = None,
    profile: str = "core",
    vocabularies: Sequence[str] | None = None,
    only: str | Sequence[str] | None = None,
    jobs: int = 1,
    isolate: bool = True,
    time_limit: float = TIME_LIMIT,
    expectations: Path | None = None,
) -> SuiteReport:
    """Judge one backend.

    Args:
        spec: the backend, as its plugin registers it.
        host: where it is registered, for ``isolate=False``; None for a host that holds it alone.
        profile: "core", a capability such as "json_schema", or "full".
        vocabularies: names of the suite's vocabularies; None for those that the profile names.
        only: a glob over check ids, or several.
        jobs: worker processes at a time.
        isolate: run checks in worker processes, which import the backend's factory by its name. Without, they run
            in this process, for a factory that exists only here: a crash or a hang is then this process's own.
        time_limit: seconds for one check; needs isolation.
        expectations: a file of known deviations; None for the plugin's own, if it ships one.

    Returns:
        The report: ``report.ok`` is the verdict, ``print(report)`` shows every failing check.

    Raises:
        PlanError: there is no such profile or vocabulary.
        ExpectationsError: the expectations cannot be read.
    """
    globs = (only,) if isinstance(only, str) else tuple(only or ())
    settings = Settings(Plan(profile, tuple(vocabularies or ()), globs), jobs, time_limit)
    entries = {spec.name: expected.of_backend(spec, expectations)}
    return run_backends([spec], settings, isolate=isolate, host=host, entries=entries)


def run_backends(
    specs: Sequence[BackendSpec],
    settings: Settings,
    *,
    isolate: bool = True,
    host: PluginHost | None = None,
    entries: Mapping[str, Sequence[expected.Expectation]] | None = None,
    on_result: OnResult = lambda _backend, _result, _more: None,
) -> SuiteReport:
    """Judge several backends in one run.

    Args:
        specs, isolate, host: as `run_suite` takes them.
        settings: how to run.
        entries: by backend, what is expected to fail.
        on_result: told of every result.
    """
    run = Run(specs, settings, on_result)
    try:
        if isolate:
            run.in_workers()
        else:
            run.in_this_process(host)
    except KeyboardInterrupt:
        run.complete = False
    return run.report(entries or {})


class Run:
    """One run on its way.

    Attributes:
        complete: whether it came to its end.
    """

    def __init__(self, specs: Sequence[BackendSpec], settings: Settings, on_result: OnResult) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._settings = settings
        self._plan = settings.plan
        self._on_result = on_result
        self._planned: dict[tuple[str, str], list[Check]] = {}
        self._results: dict[tuple[str, str], dict[str, CheckResult]] = {}
        self._facts: dict[tuple[str, str], dict[str, Any]] = {}
        self._unstarted: dict[tuple[str, str], str] = {}
        self.complete = True
        for spec in specs:
            for survey in self._plan.surveys:
                key = spec.name, survey.vocabulary
                self._planned[key], self._results[key] = [survey], {}

    def in_workers(self) -> None:
        """Run every check in a worker process."""
        available_implementations()  # what one of them must build first is then built once, and outside of any limit
        lanes = {f"{name}@{vocabulary}": (name, vocabulary) for name, vocabulary in self._planned}

        def record(lane: str, result: CheckResult) -> None:
            pool.add(lane, self._record(lanes[lane], result))

        pool = open_pool(self._specs.values(), self._plan, self._settings.jobs, self._settings.time_limit, record)
        try:
            with pool:
                pool.run()
        finally:
            self._facts = {lanes[name]: facts for name, facts in pool.ready.items()}
            self._unstarted = {lanes[name]: reason for name, reason in pool.unavailable.items()}

    def in_this_process(self, host: PluginHost | None) -> None:
        """Run every check here, one after another."""
        for (name, vocabulary), planned in self._planned.items():
            try:
                bench = Bench(self._specs[name], vocabulary, host)
            except Exception as error:
                self._unstarted[name, vocabulary] = one_line(error)
                continue
            self._facts[name, vocabulary] = bench.facts
            queue = list(planned)
            for check in queue:  # the survey's result adds to it
                queue += self._record((name, vocabulary), bench.run(check))

    def _record(self, key: tuple[str, str], result: CheckResult) -> list[Check]:
        """Keep a result; the checks that it brings with it."""
        more = checks_after(result, self._plan, key[1])
        self._planned[key] += more
        self._results[key][result.id] = result
        self._on_result(key[0], result, len(more))
        return more

    def report(self, entries: Mapping[str, Sequence[expected.Expectation]]) -> SuiteReport:
        """What there is so far."""
        backends = {name: self._describe(name) for name in self._specs}
        unavailable = {name: reason for name in self._specs if (reason := self._unavailable(name))}
        lines: list[Line] = []
        problems: list[str] = []
        for name in self._specs:
            if name in unavailable:
                continue
            whole = self.complete and not self._plan.only
            found, wrong = expected.apply(
                entries.get(name, ()), [*self._lines(name)], name, backends[name]["version"], whole=whole
            )
            lines += found
            problems += wrong
        environment = describe_environment(self._specs.values(), [Path(sys.argv[0]).name, *sys.argv[1:]])
        judged = {name: facts for name, facts in backends.items() if name not in unavailable}
        return SuiteReport(self._settings.to_dict(), environment, judged, unavailable, lines, problems, self.complete)

    def _lines(self, name: str) -> Iterator[Line]:
        """A backend's checks in the order of the plan: workers finish in any order, reports should not differ."""
        for key, planned in self._planned.items():
            if key[0] != name:
                continue
            if key in self._unstarted:
                yield Line.of(name, planned[0], CheckResult(planned[0].id, "error", self._unstarted[key]))
            for check in planned:
                result = self._results[key].get(check.id)
                # The survey is there for the others' sake: it shows up when it was asked for, or when it fails.
                if result is not None and (self._plan.wants(check.id) or result.outcome in FAILING):
                    yield Line.of(name, check, result)

    def _unavailable(self, name: str) -> str:
        """Why a backend could not start with any vocabulary; "" when it did with one."""
        reasons = [self._unstarted.get(key, "") for key in self._planned if key[0] == name]
        return reasons[0] if reasons and all(reasons) else ""

    def _describe(self, name: str) -> dict[str, Any]:
        facts = {vocabulary: facts for (backend, vocabulary), facts in self._facts.items() if backend == name}
        spec = self._specs[name]
        return {
            "version": next((fact["version"] for fact in facts.values()), ""),
            "distribution": spec.distribution,
            "distribution_version": installed_version(spec.distribution) or "",
            "vocabularies": {vocabulary: fact["vocabulary"] for vocabulary, fact in facts.items()},
            "applied_by": sorted({name for fact in facts.values() for name in fact["applied_by"]}),
        }


def open_pool(
    specs: Iterable[BackendSpec],
    plan: Plan,
    jobs: int,
    time_limit: float,
    on_result: Callable[[str, CheckResult], None] = lambda _lane, _result: None,
) -> Pool[Check, CheckResult]:
    """A pool with a lane for each backend and vocabulary, ``NAME@VOCABULARY``, whose first task is the survey."""
    lanes = [
        Lane(f"{spec.name}@{survey.vocabulary}", worker.command(spec, survey.vocabulary), (survey,))
        for spec in specs
        for survey in plan.surveys
    ]
    limits = Limits(seconds=time_limit)
    return Pool(lanes, jobs=jobs, limits=limits, read=CheckResult.from_dict, trouble=CheckResult, on_result=on_result)


def checks_after(result: CheckResult, plan: Plan, vocabulary: str) -> list[Check]:
    """The checks that a result brings with it: all others of its vocabulary, when it is a survey's."""
    if result.id != Check(SURVEY, vocabulary).id:
        return []
    return plan.checks(vocabulary, result.samples)
