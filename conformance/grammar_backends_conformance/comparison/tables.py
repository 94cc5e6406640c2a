"""A run as tables and paragraphs, for the terminal and for Markdown: correctness first, then times, then details."""

from __future__ import annotations

from collections.abc import Mapping

from grammar_backends.cli.support import Table
from grammar_backends_conformance.comparison.outcome import OUTCOMES
from grammar_backends_conformance.comparison.results import Comparison, RunResults
from grammar_backends_conformance.comparison.statistics import FIGURES, METRICS, Metric, Summary, summarise

__all__ = ["comparison_blocks", "figure", "run_blocks", "times_caption"]

_STYLES = {"1.0×": "green"}


def run_blocks(run: RunResults) -> list[Table | str]:
    """Everything a person needs to pick a backend."""
    summary = summarise(run.results)
    blocks: list[Table | str] = [_correctness(run, summary)]
    blocks += [f"{name} did not run: {reason}" for name, reason in run.unavailable.items()]
    if summary.common:
        blocks += [_times(metric, run, summary) for metric in METRICS]
    elif run.results:
        blocks.append("No case passes on every backend, so there are no times to compare.")
    blocks += [
        f"{backend} wrongly accepts {len(ids)}: {', '.join(ids)}"
        for backend, ids in summary.wrong_accepts.items()
        if ids
    ]
    return blocks


def comparison_blocks(comparison: Comparison) -> list[Table | str]:
    """What changed since the baseline."""
    changed = (
        f"Against the baseline: {len(comparison.regressions)} regressions, {comparison.fixed} newly passing, "
        f"{comparison.compared} results compared"
    )
    rows = [[r.backend, r.case, r.now, r.detail] for r in comparison.regressions]
    return [changed, Table("Regressions", ["Backend", "Case", "Now", "Detail"], rows)] if rows else [changed]


def times_caption(run: RunResults, summary: Summary) -> str:
    """On which cases times are compared."""
    which = "every backend passes" if len(run.results) - len(summary.left_out) > 1 else "pass"
    without = f" (without {', '.join(summary.left_out)}: nothing passes)" if summary.left_out else ""
    return f"on the {len(summary.common)} of {len(run.cases)} cases that {which}{without}"


def figure(value: float) -> str:
    """A time with the digits that mean something."""
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _correctness(run: RunResults, summary: Summary) -> Table:
    rows = []
    for backend, counts in summary.outcomes.items():
        version = run.backends.get(backend, {}).get("version", "")
        rows.append([f"{backend} {version}", str(sum(counts.values())), *(str(counts[name]) for name in OUTCOMES)])
    # Spaces, so that the headings can wrap: the table fits into 80 columns.
    heads = [f">{name.replace('-', ' ')}" for name in OUTCOMES]
    return Table("Correctness", ["Backend", ">Cases", *heads], rows)


def _times(metric: Metric, run: RunResults, summary: Summary) -> Table:
    several = len(run.results) > 1
    ratios = summary.ratios[metric.key]
    rows = [
        [backend, *_cells(times, ratios[backend] if several else None)]
        for backend, times in summary.times[metric.key].items()
    ]
    heads = [head for name in FIGURES for head in ([f">{name}", ">to best"] if several else [f">{name}"])]
    return Table(f"{metric.title}, {metric.unit}, {times_caption(run, summary)}", ["Backend", *heads], rows, _STYLES)


def _cells(times: Mapping[str, float], ratios: Mapping[str, float] | None) -> list[str]:
    cells = []
    for name in FIGURES:
        cells.append(figure(times[name]) if name in times else "-")
        if ratios is not None:
            cells.append(f"{ratios[name]:.1f}×" if name in ratios else "")
    return cells
