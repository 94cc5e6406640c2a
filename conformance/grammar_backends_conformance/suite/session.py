"""Checks on demand, one after another, for a runner that is not ours: pytest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grammar_backends.contract import BackendSpec
from grammar_backends_conformance.laws.check import SURVEY, Check
from grammar_backends_conformance.reports.outcome import CheckResult
from grammar_backends_conformance.reports.report import Line
from grammar_backends_conformance.suite import expectations as expected
from grammar_backends_conformance.suite.plan import Plan
from grammar_backends_conformance.suite.run import checks_after, open_pool

__all__ = ["Session"]

WARM = 4
"""Workers that are kept at a time: each holds a vocabulary and an engine."""


class Session:
    """Backends, with warm workers that answer one check at a time.

    Args:
        specs: the backends.
        plan: which checks.
        time_limit: seconds for one check.
        expectations: a file of known deviations; None for those that the plugins ship.

    Raises:
        ExpectationsError: the expectations cannot be read.
    """

    def __init__(self, specs: Sequence[BackendSpec], plan: Plan, time_limit: float, expectations: Path | None) -> None:
        self._entries = {spec.name: expected.of_backend(spec, expectations) for spec in specs}
        self._plan = plan
        self._surveys: dict[tuple[str, str], CheckResult] = {}
        self._pool = open_pool(specs, plan, WARM, time_limit)

    def checks(self) -> list[tuple[str, Check]]:
        """Every check with its backend's name; the surveys are done for it.

        Raises:
            ExpectationsError: an entry is about no check that there is.
        """
        found: list[tuple[str, Check]] = []
        for name in self._entries:
            checks = [check for survey in self._plan.surveys for check in self._surveyed(name, survey)]
            strays = expected.strays(self._entries[name], checks, name, self._version(name), whole=not self._plan.only)
            if strays:
                raise expected.ExpectationsError("; ".join(strays))
            found += [(name, check) for check in checks]
        return found

    def _surveyed(self, name: str, survey: Check) -> list[Check]:
        result = self._pool.ask(_lane(name, survey), survey)
        self._surveys[name, survey.vocabulary] = result
        return [survey, *checks_after(result, self._plan, survey.vocabulary)]

    def judge(self, name: str, check: Check) -> tuple[Line, str | None]:
        """Run a check of a backend; what became of it, and what is wrong with an expectation about it."""
        known = self._surveys.get((name, check.vocabulary)) if check.law == SURVEY else None
        result = known or self._pool.ask(_lane(name, check), check)
        return expected.mark(self._entries[name], Line.of(name, check, result), self._version(name))

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _version(self, name: str) -> str:
        """The engine's, as soon as it has started with one vocabulary."""
        versions = [facts["version"] for lane, facts in self._pool.ready.items() if lane.partition("@")[0] == name]
        return versions[0] if versions else ""


def _lane(name: str, check: Check) -> str:
    return f"{name}@{check.vocabulary}"
