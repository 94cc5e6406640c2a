"""``gb probe``: what does an engine enforce?

The module itself imports only click and the shared options, since ``gb --help`` loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from grammar_backends.cli.support import Block, ExitCode, Table, Verbatim, emit, exit_with, format_option, note

if TYPE_CHECKING:
    from grammar_backends.contract import BackendSpec
    from grammar_backends_conformance.probing.report import Report
    from grammar_backends_conformance.probing.run import Measured

__all__ = ["probe"]

MAX_JOBS = 8
"""Workers by default at most: each holds an engine."""


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--write", is_flag=True, help="Write what was measured into the plugin's support data.")
@click.option("--check", is_flag=True, help="Exit with 1 when the support data are not what was measured.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one a core, at most 8.")
@format_option
def probe(names: tuple[str, ...], write: bool, check: bool, jobs: int | None, format_: str) -> None:
    """Measure what backends enforce, and derive their support data from it.

    Every probe is a spec with valid and invalid texts, which a worker process gives to the engine without the judgement
    of its data. The data name keywords by type, combinators, formats and checks; what a plugin declares in code is held
    against the engine, and a disagreement is a failure too.

    Exits with 0, or with 1 on a disagreement, 5 when a backend declares no support data, 6 when one could not start.

    Example: gb probe xgrammar guidance --check
    """
    from grammar_backends import default_host  # lazy: numpy and every plugin

    if write and check:
        raise click.UsageError("Give --write or --check, not both.")
    host = default_host()
    backends = [host.backend(name) for name in dict.fromkeys(names)]
    _require_data(backends)
    measured, unavailable = _measure(backends, jobs)
    reports = [_report(spec, measured[spec.name]) for spec in backends if spec.name in measured]
    if write:
        for report in reports:
            report.write()
            note(f"Wrote {report.path}.")
    emit(format_, [report.to_dict() for report in reports], _blocks(reports, check=check))
    for name, reason in unavailable.items():
        note(f"Backend {name} is unavailable: {reason}")
    if unavailable:
        exit_with(ExitCode.BACKEND_UNAVAILABLE)
    failed = any(report.disagreements or (check and report.differs) for report in reports)
    exit_with(ExitCode.FAILURES if failed else ExitCode.OK)


def _require_data(backends: Sequence[BackendSpec]) -> None:
    without = [spec.name for spec in backends if spec.capabilities.support is None]
    if without:
        note(f"No support data are declared by {', '.join(without)}.")
        note('Declare a file of the plugin: Capabilities(support="package:support.json").')
        exit_with(ExitCode.NOTHING_RAN)


def _measure(backends: Sequence[BackendSpec], jobs: int | None) -> tuple[dict[str, Measured], dict[str, str]]:
    from grammar_backends.installation import available_cores
    from grammar_backends_conformance.comparison.outcome import CaseResult
    from grammar_backends_conformance.probing.probes import single_probes  # lazy: jsonschema
    from grammar_backends_conformance.probing.run import measure
    from grammar_backends_conformance.running.interruption import terminate_as_interrupt
    from grammar_backends_conformance.running.progress import Progress

    with Progress(len(backends) * len(single_probes())) as progress, terminate_as_interrupt():

        def advance(name: str, result: CaseResult, more: int) -> None:
            progress.expect(more)
            progress.advance(name, result)

        return measure(backends, jobs=jobs or min(available_cores(), MAX_JOBS), on_result=advance)


def _report(spec: BackendSpec, measured: Measured) -> Report:
    from grammar_backends_conformance.probing.report import Report  # lazy: as above

    return Report.of(spec, measured)


def _blocks(reports: Sequence[Report], *, check: bool) -> list[Block]:
    columns = ["Backend", "Engine", ">Probes", ">Enforced", ">Over-constrains", ">Refuses", ">Wrong", "Data"]
    rows = [[*report.counts, "as measured" if not report.differs else "differ"] for report in reports]
    blocks: list[Block] = [Table("Probes", columns, rows)]
    for report in reports:
        blocks += [f"{report.backend}: {line}" for line in report.disagreements]
        if report.differs and check:
            blocks.append(Verbatim(report.diff))
    return blocks
