"""Runs checks of one backend with one vocabulary in this process, and turns whatever they raise into outcomes."""

from __future__ import annotations

import functools
import traceback
from typing import Any

from grammar_backends import PluginHost, load_backend
from grammar_backends.contract import BackendSpec
from grammar_backends.kernels.apply import available_implementations
from grammar_backends.plugins import hookimpl
from grammar_backends.workers import one_line, out_of_memory
from grammar_backends_conformance.laws.check import SURVEY, Check
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import LAWS, Counts, Unsupported, Violation
from grammar_backends_conformance.laws.samples import Sample, samples_for
from grammar_backends_conformance.reports.outcome import CheckResult, Evidence
from grammar_backends_conformance.running.environment import describe_vocabulary
from grammar_backends_conformance.suite.plan import PlanError
from grammar_backends_conformance.vocabularies import suite_vocabulary

__all__ = ["Bench"]

TRACE_LIMIT = 4000


class _Registration:
    """A plugin that registers one backend."""

    def __init__(self, spec: BackendSpec) -> None:
        self._spec = spec

    @hookimpl
    def grammar_backends_register_backends(self) -> list[BackendSpec]:
        return [self._spec]


class Bench:
    """One backend with one vocabulary, ready to run checks.

    Args:
        spec: the backend; its factory must be importable here.
        vocabulary: a name of the suite's.
        host: where the backend is registered; None for a host of its own.

    Raises:
        BackendUnavailable: the engine cannot be imported or started.
        VocabularyError: there is no such vocabulary here, or the engine cannot work with it.
    """

    def __init__(self, spec: BackendSpec, vocabulary: str, host: PluginHost | None = None) -> None:
        host = host or PluginHost(autoload=False, plugins={spec.name: _Registration(spec)})
        self._backend = load_backend(spec.name, suite_vocabulary(vocabulary), host=host)
        self._lab = Lab(self._backend, vocabulary)

    @property
    def facts(self) -> dict[str, Any]:
        """The engine's version, the vocabulary and what masks are applied by, as reports say them."""
        backend = self._backend
        return {
            "version": backend.version,
            "vocabulary": describe_vocabulary(backend.vocabulary),
            "applied_by": [implementation.name for implementation in available_implementations()],
        }

    @functools.cached_property
    def samples(self) -> dict[str, Sample]:
        """The sample constraints that the backend can be judged by; the first time, each is compiled."""
        return {sample.name: sample for sample in samples_for(self._lab)}

    def run(self, check: Check) -> CheckResult:
        """Run one check. Anything but exhausted memory becomes an outcome."""
        self._lab.counts = Counts()
        result = CheckResult(check.id, "pass")
        try:
            self._decide(check, result)
        except Violation as violation:
            result.outcome, result.detail, result.evidence = "fail", violation.message, Evidence.of(violation)
        except Unsupported as refusal:
            core = LAWS[check.law].profile == "core"
            result.outcome = "fail" if core else "unsupported"
            result.detail = f"a core law holds for every backend, but: {refusal}" if core else str(refusal)
        except Exception as error:
            if out_of_memory(error):
                raise MemoryError from error
            result.outcome, result.detail = "error", one_line(error)
            result.trace = "".join(traceback.format_exception(error))[-TRACE_LIMIT:]
        result.counts = self._lab.counts
        return result

    def _decide(self, check: Check, result: CheckResult) -> None:
        if check.law == SURVEY:
            result.samples = list(self.samples)
        elif check.subject is None:
            LAWS[check.law].check(self._lab)
        elif check.subject in self.samples:
            LAWS[check.law].check(self._lab, self.samples[check.subject])
        else:
            raise PlanError(f"there is no sample {check.subject!r} for {self._backend.name}")
