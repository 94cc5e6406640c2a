"""What a proof leaves behind: ``evidence.json`` with all of it, and ``evidence.md``, the part for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grammar_backends.kernels.verify.checks import Verdict
from grammar_backends.kernels.verify.timing import CEILING, OURS, TRITON, Timed

__all__ = ["Evidence"]

FORMAT = 1
WANTED_SHARE = 0.85
"""Of the bandwidth of `fill_`, for 256 rows of float32 nearly all masked."""

REHEARSAL = "**Rehearsal on a CPU, through a stand-in for the driver. Nothing here says anything about a GPU.**"


class Evidence(NamedTuple):
    """All that a run found.

    Attributes:
        is_rehearsal: whether it ran on the host, and says nothing about a GPU.
        machine: device, driver, versions.
        verdicts: of the checks.
        host_cost: microseconds of the host by way of calling.
        times: of the comparisons.
        left_out: how many comparisons there was no time for.
    """

    is_rehearsal: bool
    machine: dict[str, Any]
    verdicts: Sequence[Verdict]
    host_cost: dict[str, float]
    times: Sequence[Timed]
    left_out: int

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(verdict.outcome != "fail" for verdict in self.verdicts)

    @property
    def goals(self) -> dict[str, bool | None]:
        """What speed was promised, and whether it is reached; None where it was not measured, as in a rehearsal."""
        if self.is_rehearsal:
            return {}
        share = [
            timed.share_of_fill
            for timed in self.times
            if timed.cell.rows == 256 and timed.cell.mask == "200 allowed" and timed.cell.dtype.itemsize == 4
        ]
        triton = [timed for timed in self.times if TRITON in timed.microseconds]
        slower = [timed for timed in triton if timed.microseconds[OURS] >= timed.microseconds[TRITON]]
        return {
            f"at least {WANTED_SHARE:.0%} of the bandwidth of fill_, 256 rows of float32 with 200 ids allowed": (
                min(share) >= WANTED_SHARE if share else None
            ),
            "faster than xgrammar's Triton kernel in every cell": not slower if triton else None,
        }

    def write(self, folder: Path) -> None:
        """Write both files into a folder, which is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "evidence.json").write_text(json.dumps(self.to_dict(), indent=1) + "\n")
        (folder / "evidence.md").write_text(self.markdown())

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "format": FORMAT,
            "rehearsal": self.is_rehearsal,
            "ok": self.ok,
            "machine": self.machine,
            "checks": [verdict._asdict() for verdict in self.verdicts],
            "host_cost_us": {} if self.is_rehearsal else self.host_cost,
            "goals": self.goals,
            "times": [] if self.is_rehearsal else [timed.to_dict() for timed in self.times],
            "left_out": self.left_out,
        }

    def markdown(self) -> str:
        """The evidence as Markdown."""
        parts = ["# The mask kernel, verified" if not self.is_rehearsal else f"# A rehearsal\n\n{REHEARSAL}"]
        parts.append(_table(["", ""], [[name, _words(value)] for name, value in self.machine.items()]))
        parts.append(_table(["check", "outcome", "", "s"], [[*map(str, verdict)] for verdict in self.verdicts]))
        if self.goals:
            said = {True: "reached", False: "not reached", None: "not measured"}
            parts.append(_table(["goal", ""], [[goal, said[reached]] for goal, reached in self.goals.items()]))
        if self.is_rehearsal:
            parts.append(f"{len(self.times)} comparisons ran; their times mean nothing and are not kept.")
        else:
            costs = [[name, f"{microseconds:.1f}"] for name, microseconds in self.host_cost.items()]
            parts += [_table(["host cost of a call", "µs"], costs), self._times()]
        if self.left_out:
            parts.append(f"{self.left_out} comparisons were left out, for lack of time.")
        return "\n\n".join(parts) + "\n"

    def _times(self) -> str:
        names = list(dict.fromkeys(name for timed in self.times for name in timed.microseconds))
        head = ["logits", "rows", "mask", "cache", *(f"{name}, µs" for name in names), "GB/s", f"of {CEILING}"]
        rows = []
        for timed in self.times:
            cell = timed.cell
            measured = [f"{timed.microseconds[name]:.2f}" if name in timed.microseconds else "" for name in names]
            rows.append(
                [
                    str(cell.dtype).removeprefix("torch."),
                    str(cell.rows),
                    cell.mask,
                    "cold" if cell.cold else "hot",
                    *measured,
                    f"{timed.bandwidth / 1e9:,.0f}",
                    f"{timed.share_of_fill:.0%}",
                ]
            )
        return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _words(value: object) -> str:
    return ", ".join(f"{name} {version}" for name, version in value.items()) if isinstance(value, dict) else str(value)
