"""Figures from raw results: counts of outcomes, and times on the cases that every compared backend passes.

Correctness comes first and there is no blended score: how fast a backend is wrong says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grammar_backends_conformance.comparison.outcome import OUTCOMES, CaseResult

__all__ = ["FIGURES", "METRICS", "Metric", "Summary", "percentiles", "summarise"]

FIGURES = ("mean", "p50", "p90", "p99", "max")


@dataclass(frozen=True)
class Metric:
    """One kind of time.

    Attributes:
        key: its name in `Summary.times`.
        title: what people read.
        unit: of its values.
    """

    key: str
    title: str
    unit: str


METRICS = (
    Metric("first_mask", "Time to first mask", "ms"),
    Metric("fill", "Time between masks", "µs"),
    Metric("accept", "Time to accept a token", "µs"),
)


@dataclass(frozen=True)
class Summary:
    """A run in figures.

    Attributes:
        outcomes: by backend: how many cases have each outcome.
        common: ids of the cases that every backend passes with a time taken: where times are compared. Backends that
            pass no case at all are left out.
        left_out: those backends.
        times: by metric, by backend: the mean and percentiles over the common cases, and "count", how many values.
        ratios: by metric, by backend: each of these over the best backend's.
        wrong_accepts: by backend: ids of the cases it accepts wrongly.
    """

    outcomes: dict[str, dict[str, int]]
    common: list[str]
    left_out: list[str]
    times: dict[str, dict[str, dict[str, float]]]
    ratios: dict[str, dict[str, dict[str, float]]]
    wrong_accepts: dict[str, list[str]]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return dict(self.__dict__)


def summarise(results: Mapping[str, Mapping[str, CaseResult]]) -> Summary:
    """The figures of a run."""
    common = _common(results)
    times = {metric.key: {b: percentiles(_values(metric, r, common)) for b, r in results.items()} for metric in METRICS}
    return Summary(
        outcomes={backend: _count(by_id.values()) for backend, by_id in results.items()},
        common=common,
        left_out=[backend for backend, by_id in results.items() if not any(map(_is_timed, by_id.values()))],
        times=times,
        ratios={key: _ratios(by_backend) for key, by_backend in times.items()},
        wrong_accepts={
            b: [r.id for r in by_id.values() if r.outcome == "wrong-accept"] for b, by_id in results.items()
        },
    )


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """mean, p50, p90, p99, max and count; only the count when there is nothing.

    A percentile is the smallest value with at least that share of all values at or below it: always a value that was
    measured.
    """
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    ranks = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    found = {name: ordered[max(0, -(-len(ordered) * rank // 100) - 1)] for name, rank in ranks.items()}
    return {"mean": sum(ordered) / len(ordered), **found, "count": len(ordered)}


def _count(results: Iterable[CaseResult]) -> dict[str, int]:
    counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    for result in results:
        counts[result.outcome] += 1
    return counts


def _common(results: Mapping[str, Mapping[str, CaseResult]]) -> list[str]:
    timed = [[r.id for r in by_id.values() if _is_timed(r)] for by_id in results.values()]
    # A backend that passes nothing has no times; it must not hide those of the others.
    passed = [ids for ids in timed if ids]
    shared = set(passed[0]).intersection(*passed) if passed else set()
    return [id_ for id_ in passed[0] if id_ in shared] if passed else []


def _is_timed(result: CaseResult) -> bool:
    return result.outcome == "pass" and result.first_mask_ms is not None


def _values(metric: Metric, by_id: Mapping[str, CaseResult], ids: Iterable[str]) -> list[float]:
    chosen = [by_id[id_] for id_ in ids if id_ in by_id and _is_timed(by_id[id_])]
    if metric.key == "first_mask":
        return [result.first_mask_ms for result in chosen if result.first_mask_ms is not None]
    lists = [result.fills_us if metric.key == "fill" else result.accepts_us for result in chosen]
    return [value for values in lists for value in values]


def _ratios(by_backend: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    best = {name: min((t[name] for t in by_backend.values() if name in t), default=0.0) for name in FIGURES}
    return {
        backend: {name: round(times[name] / best[name], 2) for name in FIGURES if name in times and best[name]}
        for backend, times in by_backend.items()
    }
