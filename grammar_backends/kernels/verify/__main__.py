"""The command: checks, times, evidence; see the package."""

from __future__ import annotations

import time
from pathlib import Path

import click
import torch

from grammar_backends.kernels.verify.checks import Limits, Verdict, run_checks
from grammar_backends.kernels.verify.evidence import Evidence
from grammar_backends.kernels.verify.machine import Gpu, Host, Machine
from grammar_backends.kernels.verify.timing import Plan, Timed, cells, host_cost, time_cell

FAILURES, NOTHING_RAN = 1, 5

REHEARSAL_LIMITS = Limits(cases=300, seconds=30, conformance_seconds=0)
REHEARSAL_PLAN = Plan(columns=4096, rows=(2,), seconds=30, cache=1 << 18)


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where evidence goes.")
@click.option("--rehearse", is_flag=True, help="Run on the CPU, through a stand-in for the driver; proves nothing.")
@click.option("--seconds", default=460.0, show_default=True, help="How long the whole run may take.")
def main(out: Path, rehearse: bool, seconds: float) -> None:
    """Verify the CUDA mask kernel on this machine's GPU and write the evidence.

    \b
    Exit codes: 0 all checks passed, 1 one failed, 5 there is no CUDA device and so nothing ran.
    """
    end = time.monotonic() + seconds
    if rehearse:
        machine: Machine = Host()
        limits, plan = REHEARSAL_LIMITS, REHEARSAL_PLAN
        click.echo("A rehearsal on the CPU: nothing of it says anything about a GPU.", err=True)
    elif torch.version.cuda is not None and torch.cuda.is_available():
        machine, limits, plan = Gpu(), Limits(), Plan()
    else:
        click.echo("There is no CUDA device here: nothing was verified, and nothing is written.", err=True)
        raise SystemExit(NOTHING_RAN)
    verdicts: list[Verdict] = []
    for verdict in run_checks(machine, limits):
        click.echo(f"{verdict.outcome}  {verdict.name}: {verdict.detail} ({verdict.seconds} s)", err=True)
        verdicts.append(verdict)
    costs = host_cost(machine)
    times, left_out = _times(machine, plan, min(end, time.monotonic() + plan.seconds))
    evidence = Evidence(machine.is_rehearsal, machine.describe(), verdicts, costs, times, left_out)
    evidence.write(out)
    click.echo(out / "evidence.md")
    raise SystemExit(0 if evidence.ok else FAILURES)


def _times(machine: Machine, plan: Plan, end: float) -> tuple[list[Timed], int]:
    """Every comparison that there is time for, and how many there is none for."""
    planned = list(cells(plan))
    times: list[Timed] = []
    for cell in planned:
        if time.monotonic() > end:
            break
        times.append(time_cell(machine, plan, cell))
    return times, len(planned) - len(times)


if __name__ == "__main__":
    main()
