"""``gb explain``: which backend the automatic choice takes for a spec, and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from grammar_backends.cli.exits import ExitCode, exit_with
from grammar_backends.cli.options import SpecInput, backend_option, ignore_option, policy_of, spec_options
from grammar_backends.cli.output import Table, emit, format_option

if TYPE_CHECKING:
    from grammar_backends.selection import Step, Trace

__all__ = ["explain", "trace_blocks"]


@click.command()
@spec_options
@backend_option("Explain this backend only.")
@ignore_option
@format_option
def explain(spec_input: SpecInput, backend: str, ignore: str, format_: str) -> None:
    """Show which backend would be chosen for a spec, and why.

    Nothing is compiled. Exits with 1 when no backend would enforce all of the spec.

    Example: gb explain --json-schema '{"type": "integer", "multipleOf": 3}'
    """
    from grammar_backends import default_host  # lazy: numpy and every plugin
    from grammar_backends import explain as decide

    policy = policy_of(ignore, None if backend == "auto" else (backend,))
    spec = spec_input.read()
    trace = decide(spec, host=default_host(), policy=policy)
    emit(format_, trace.to_dict(), trace_blocks(trace))
    exit_with(ExitCode.OK if trace.chosen else ExitCode.FAILURES)


def trace_blocks(trace: Trace) -> list[Table | str]:
    """A decision for people: the answer first, then every candidate with its findings."""
    answer = f"chosen: {trace.chosen}" if trace.chosen else "no backend enforces all of it"
    rows = [row for step in trace.steps for row in _rows(step)]
    table = Table("", ["Backend", "Verdict", "Where", "Keyword", "Reason", "Hint"], rows)
    return [f"{trace.spec}: {answer}", table] if rows else [f"{trace.spec}: {answer}", "No backend is installed."]


def _rows(step: Step) -> list[list[str]]:
    rows = [[f.where, f.keyword or "", f.reason, f.hint or ""] for f in step.findings]
    rows += [[r.pointer or "the root", r.keyword, f"rewritten: {r.what}", ""] for r in step.rewrites]
    rows += [[f.where, f.keyword or "", f"ignored: {f.reason}", ""] for f in step.ignored]
    if not rows:
        return [[step.backend, step.verdict, "", "", "", ""]]
    # The name once, so that findings read as a group.
    return [[*((step.backend, step.verdict) if index == 0 else ("", "")), *row] for index, row in enumerate(rows)]
