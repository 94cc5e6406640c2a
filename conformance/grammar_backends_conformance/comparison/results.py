"""What a run leaves behind: one JSON document, and how two of them are compared.

The schema is versioned; a reader refuses versions it does not know rather than misread them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grammar_backends_conformance.comparison.outcome import CaseResult
from grammar_backends_conformance.comparison.statistics import percentiles, summarise
from grammar_backends_conformance.corpora.reading import Case

__all__ = ["SCHEMA_VERSION", "Regression", "ResultsError", "RunResults", "compare_with_baseline"]

SCHEMA_VERSION = 1


class ResultsError(ValueError):
    """A results file cannot be used; the message says why."""


@dataclass(frozen=True)
class RunResults:
    """Everything about one run.

    Attributes:
        complete: False after an interruption.
        environment: see `environment.describe_environment`, with the run's own settings.
        corpus: name, number of cases, problems.
        backends: by name: version, number of workers' facts.
        unavailable: by name: why a backend did not run.
        cases: by id: kind, source and digest of the content.
        results: by backend, by case id.
    """

    complete: bool
    environment: dict[str, Any]
    corpus: dict[str, Any]
    backends: dict[str, dict[str, Any]]
    unavailable: dict[str, str]
    cases: dict[str, dict[str, Any]]
    results: dict[str, dict[str, CaseResult]]

    def to_dict(self, *, raw: bool = True) -> dict[str, Any]:
        """JSON-able; without `raw`, the arrays of times become their percentiles."""
        shape = _with_raw if raw else _without_raw
        return {
            "schema_version": SCHEMA_VERSION,
            "complete": self.complete,
            "environment": self.environment,
            "corpus": self.corpus,
            "backends": self.backends,
            "unavailable": self.unavailable,
            "summary": summarise(self.results).to_dict(),
            "cases": self.cases,
            "results": {
                backend: {id_: shape(result) for id_, result in by_id.items()}
                for backend, by_id in self.results.items()
            },
        }

    @classmethod
    def read(cls, path: Path) -> RunResults:
        """A results file.

        Raises:
            ResultsError: it cannot be read, or is not one.
        """
        try:
            data = json.loads(path.read_bytes())
        except OSError as error:
            raise ResultsError(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise ResultsError(f"{path} is not JSON: {error}") from None
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ResultsError(f"{path} has schema version {version!r}, this reads {SCHEMA_VERSION}")
        try:
            return cls._from_dict(data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ResultsError(f"{path} is not a results file: {type(error).__name__}: {error}") from None

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> RunResults:
        results = {
            backend: {id_: CaseResult.from_dict({"id": id_, **result}) for id_, result in by_id.items()}
            for backend, by_id in data["results"].items()
        }
        plain = ("complete", "environment", "corpus", "backends", "unavailable", "cases")
        return cls(**{name: data[name] for name in plain}, results=results)


def describe_case(case: Case) -> dict[str, Any]:
    """What a results file says of a case."""
    return {"kind": case.kind, "source": case.source, "tests": len(case.tests), "digest": case.digest}


def _with_raw(result: CaseResult) -> dict[str, Any]:
    data = result.to_dict()
    del data["id"]  # it is the key already
    return data


def _without_raw(result: CaseResult) -> dict[str, Any]:
    data = _with_raw(result)
    for name in ("fills_us", "accepts_us"):
        if data.pop(name, None):
            data[name.replace("_us", "_us_percentiles")] = percentiles(getattr(result, name))
    return data


@dataclass(frozen=True)
class Regression:
    """A case that a backend passed and no longer does."""

    backend: str
    case: str
    now: str
    detail: str


@dataclass(frozen=True)
class Comparison:
    """What a run means beside an older one.

    Attributes:
        regressions: cases that passed and no longer do.
        fixed: how many cases pass that did not.
        compared: how many (backend, case) pairs both runs have, with the same content.
    """

    regressions: list[Regression]
    fixed: int
    compared: int


def compare_with_baseline(now: RunResults, old: RunResults) -> Comparison:
    """Compares outcomes where both runs have the same backend and the same case."""
    regressions, fixed, compared = [], 0, 0
    for backend, by_id in now.results.items():
        before = old.results.get(backend, {})
        for id_, result in by_id.items():
            if id_ not in before or _digest(old.cases, id_) != _digest(now.cases, id_):
                continue
            compared += 1
            passed, passes = before[id_].outcome == "pass", result.outcome == "pass"
            fixed += passes and not passed
            if passed and not passes:
                detail = result.detail or (result.failures[0].what if result.failures else "")
                regressions.append(Regression(backend, id_, result.outcome, detail))
    return Comparison(regressions, fixed, compared)


def _digest(cases: Mapping[str, Mapping[str, Any]], id_: str) -> Any:
    return cases.get(id_, {}).get("digest")
