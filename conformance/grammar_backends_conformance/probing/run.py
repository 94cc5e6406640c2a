"""Asks engines: every probe in a worker that can be killed, combinations only of what is enforced by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grammar_backends.contract import BackendSpec
from grammar_backends.contract.backend import unsupported_kind
from grammar_backends.errors import SpecError
from grammar_backends.workers import Limits
from grammar_backends_conformance.comparison.outcome import CaseResult
from grammar_backends_conformance.corpora.reading import Case, case_spec
from grammar_backends_conformance.probing.derivation import askable
from grammar_backends_conformance.probing.probe import Probe, Verdict, verdict_of
from grammar_backends_conformance.probing.probes import combinations, single_probes
from grammar_backends_conformance.running.pool import Lane, Pool

__all__ = ["Measured", "measure"]

WORKER = "grammar_backends_conformance.probing.worker"
TIME_LIMIT = 20.0
"""Seconds for one probe. With a vocabulary of single bytes an engine takes milliseconds."""

OnResult = Callable[[str, CaseResult, int], None]
"""Told of every result: the backend's name, the result, and how many probes it brought with it."""


@dataclass
class Measured:
    """What one engine answered.

    Attributes:
        version: the engine's.
        verdicts: by the id of a probe's case.
        results: likewise, in full.
    """

    version: str = ""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    results: dict[str, CaseResult] = field(default_factory=dict)


def measure(
    backends: Sequence[BackendSpec], *, jobs: int, on_result: OnResult = lambda _name, _result, _more: None
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Ask engines everything.

    Args:
        backends: whom.
        jobs: worker processes at a time.
        on_result: told of every result.

    Returns:
        What each answered, and why others could not start.
    """
    run = _Run(backends, jobs, on_result)
    return run.all()


class _Run:
    def __init__(self, backends: Sequence[BackendSpec], jobs: int, on_result: OnResult) -> None:
        self._backends = {spec.name: spec for spec in backends}
        self._probes = {probe.case.id: probe for probe in (*single_probes(), *combinations())}
        self._measured = {name: Measured() for name in self._backends}
        self._waiting = {name: self._first(spec) for name, spec in self._backends.items()}
        self._on_result = on_result
        lanes = [Lane(name, (WORKER, name), tuple(cases.values())) for name, cases in self._waiting.items()]
        self._pool: Pool[Case, CaseResult] = Pool(
            lanes,
            jobs=jobs,
            limits=Limits(seconds=TIME_LIMIT),
            read=CaseResult.from_dict,
            trouble=CaseResult,
            on_result=self._record,
        )

    def all(self) -> tuple[dict[str, Measured], dict[str, str]]:
        with self._pool as pool:
            pool.run()
        for name, facts in self._pool.ready.items():
            self._measured[name].version = facts["version"]
        unavailable = self._pool.unavailable
        return {name: found for name, found in self._measured.items() if name not in unavailable}, unavailable

    @staticmethod
    def _first(spec: BackendSpec) -> dict[str, Case]:
        return {probe.case.id: probe.case for probe in single_probes() if _is_offered(probe, spec)}

    def _record(self, name: str, result: CaseResult) -> None:
        measured = self._measured[name]
        measured.results[result.id] = result
        measured.verdicts[result.id] = verdict_of(self._probes[result.id], result)
        waiting = self._waiting[name]
        waiting.pop(result.id, None)
        more: list[Case] = []
        if not waiting:
            singles = not any(probe.case.id in measured.verdicts for probe in combinations())
            more = [probe.case for probe in askable(measured.verdicts)] if singles else []
            self._pool.add(name, more)
        self._on_result(name, result, len(more))


def _is_offered(probe: Probe, backend: BackendSpec) -> bool:
    """Whether an engine is to be asked: not about options that its plugin does not declare."""
    if probe.case.kind != "json_schema":
        return True
    try:
        return unsupported_kind(case_spec(probe.case), backend) is None
    except SpecError:
        return False
