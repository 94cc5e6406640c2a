"""A report as tables, listings and paragraphs, for the terminal and for Markdown."""

from __future__ import annotations

from grammar_backends.cli.support import Block, Table, Verbatim
from grammar_backends_conformance.reports.outcome import OUTCOMES
from grammar_backends_conformance.reports.report import SuiteReport

__all__ = ["blocks"]


def blocks(report: SuiteReport, limit: int | None = None) -> list[Block]:
    """The whole report: totals, what failed (at most `limit` in full), what did not run."""
    failures = report.failures
    left = len(failures[limit:]) if limit is not None else 0
    return [
        _totals(report),
        *(Verbatim(str(line)) for line in failures[:limit]),
        *([f"{left} more checks fail."] if left else []),
        *(f"{name} could not be judged: {reason}" for name, reason in report.unavailable.items()),
        *report.problems,
        report.summary,
    ]


def _totals(report: SuiteReport) -> Table:
    rows = []
    for name, outcomes in report.outcomes.items():
        counts = report.counts(name)
        rows.append(
            [
                f"{name} {report.backends.get(name, {}).get('version', '')}",
                str(outcomes.total()),
                *(str(outcomes[outcome]) for outcome in OUTCOMES),
                f"{counts.states:,}",
                f"{counts.masks:,}",
                f"{report.seconds(name):.0f}",
            ]
        )
    heads = [f">{name.replace('-', ' ')}" for name in OUTCOMES]
    return Table("Conformance", ["Backend", ">Checks", *heads, ">States", ">Masks", ">Seconds"], rows)
