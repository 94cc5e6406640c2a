"""``gb explain``: which backend the automatic choice takes for a spec, and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from grammar_backends.cli.exits import ExitCode, exit_with
from grammar_backends.cli.options import (
    SpecInput,
    backend_option,
    ignore_option,
    policy_of,
    policy_option,
    spec_options,
)
from grammar_backends.cli.output import Table, emit, format_option

if TYPE_CHECKING:
    from grammar_backends.selection import Step, Trace

__all__ = ["explain", "trace_blocks"]


@click.command()
@spec_options
@backend_option("Explain this backend only.")
@ignore_option
@policy_option
@format_option
def explain(spec_input: SpecInput, backend: str, ignore: str, policy: str, format_: str) -> None:
    """Show which backend would be chosen for a spec, and why.

    Nothing is compiled. Exits with 1 when no backend would enforce all of the spec.

    Example: gb explain --json-schema '{"type": "integer", "multipleOf": 3}'
    """
    from grammar_backends import default_host  # lazy: numpy and every plugin
    from grammar_backends import explain as decide

    order = None if backend == "auto" else (backend,)
    asked = policy_of(ignore, order, policy)
    trace = decide(spec_input.read(), host=default_host(), policy=asked)
    emit(format_, trace.to_dict(), trace_blocks(trace))
    exit_with(ExitCode.OK if trace.chosen else ExitCode.FAILURES)


MOST_ROWS = 6
"""Findings of one backend in the table; the JSON form has all."""


def trace_blocks(trace: Trace) -> list[Table | str]:
    """A decision for people: the answer, every candidate with its findings, and how the first one could be had."""
    answer = f"chosen: {trace.chosen}" if trace.chosen else "no backend enforces all of it"
    if not trace.steps:
        return [f"{trace.spec}: {answer}", "There is no backend to try."]
    rows = [row for step in trace.steps for row in _rows(step)]
    blocks: list[Table | str] = [f"{trace.spec}: {answer}"]
    blocks.append(Table("", ["Backend", "Verdict", "Where", "Keyword", "Reason"], rows))
    return [*blocks, *_changes(trace)]


def _rows(step: Step) -> list[list[str]]:
    rows = [[finding.where, finding.keyword or "", finding.reason] for finding in step.findings[:MOST_ROWS]]
    if len(step.findings) > MOST_ROWS:
        rows.append(["", "", f"and {len(step.findings) - MOST_ROWS} more"])
    rows += [[r.pointer or "the root", r.keyword, f"rewritten: {r.what}"] for r in step.rewrites]
    rows += [[f.where, f.keyword or "", f"ignored: {f.reason}"] for f in step.ignored]
    if step.cost:
        rows.append(["", "", f"predicted: {step.cost}"])
    # The name once, so that findings read as a group.
    return [
        [*((step.backend, step.verdict) if index == 0 else ("", "")), *row]
        for index, row in enumerate(rows or [["", "", ""]])
    ]


def _changes(trace: Trace) -> list[Table | str]:
    """What to change so that the first candidate takes the spec as it is written."""
    step = trace.wanted
    rows = [list(change) for change in trace.changes]
    if step is None or not rows:
        return []
    why = "which enforces it, but with a cost" if step.verdict == "deferred" else "which does not enforce it as it is"
    if len(rows) > MOST_ROWS:
        rows = [*rows[:MOST_ROWS], ["", f"and {len(rows) - MOST_ROWS} more"]]
    return [f"For {step.backend}, the first choice, {why}:", Table("", ["Where", "Change"], rows)]
