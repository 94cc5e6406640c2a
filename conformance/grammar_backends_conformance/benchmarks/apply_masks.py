"""How long it takes to apply masks to logits on a CPU, beside xgrammar's kernel and beside filling the same memory.

All ways are timed in turns on the same logits, and the 5th percentile of each counts, so that whatever else the machine
does weighs on all alike; figures are read as ratios. Every way is checked to leave the same logits. Run it with
``python -m``; ``--plot`` draws how the time grows with rows and with the share that is masked.
"""

from __future__ import annotations

import ctypes
import functools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np
import torch

from grammar_backends import apply_token_bitmask
from grammar_backends.contract import pack_ids
from grammar_backends.kernels.apply import missing_implementations
from grammar_backends.kernels.call import prepare
from grammar_backends.kernels.portable import apply_by_numpy, apply_by_torch
from grammar_backends_conformance.benchmarks.line_chart import Panel, draw
from grammar_backends_conformance.running.environment import describe_environment

COLUMNS = 128_256
ROWS = (1, 8, 64, 256)
DTYPES = (torch.float32, torch.bfloat16)
TYPICAL = 200
"""Ids that a mask for JSON allows on average."""

MOST_ROUNDS, LEAST_ROUNDS = 300, 9
TABLE_SECONDS, PLOT_SECONDS = 0.5, 0.1
"""How long each way is run for a figure, if it need not be run longer to get the rounds."""

Ways: TypeAlias = Mapping[str, Callable[[], object]]
"""By name, what is to be timed."""


def allowing(rows: int, ids: int) -> torch.Tensor:
    """Masks that each allow so many ids, at random."""
    generator = np.random.default_rng(rows)
    masks = [pack_ids(generator.choice(COLUMNS, ids, replace=False), COLUMNS) for _ in range(rows)]
    return torch.from_numpy(np.stack(masks))


MASKS: dict[str, Callable[[int], torch.Tensor]] = {
    f"{TYPICAL} allowed": functools.partial(allowing, ids=TYPICAL),
    "all allowed": functools.partial(allowing, ids=COLUMNS),
    "half allowed": functools.partial(allowing, ids=COLUMNS // 2),
    "none allowed": functools.partial(allowing, ids=0),
}

DENSE = (f"{TYPICAL} allowed", "none allowed")

PLOT_ROWS = (1, 4, 16, 64)
SHARES = (0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0)
"""Masked shares of the plot, for 8 rows."""


@dataclass(frozen=True)
class Cell:
    """One size of the benchmark.

    Attributes:
        rows, dtype, mask: what was applied to what.
        threads: how many torch was allowed, and so every way.
        times: by name, the time of each way in µs.
    """

    rows: int
    dtype: str
    mask: str
    threads: int
    times: dict[str, float]

    def ratio(self, other: str) -> float:
        """How many times as long another way takes as this project's."""
        return self.times[other] / self.times["grammar_backends"]

    @property
    def over_filling(self) -> float:
        """This project's time over that of the fastest way to fill the same memory."""
        return self.times["grammar_backends"] / min(self.times["fill_"], self.times["memset"])


def usual_times(ways: Ways, seconds: float) -> dict[str, float]:
    """The 5th percentile of each way's times in µs, over rounds in which they take turns, in another order each time.

    Whoever comes first in a round finds the masks out of the cache. A slow way takes part in fewer rounds. Where there
    is one thread, its own time counts, which does not run while others have the processor.
    """
    clock = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    samples: dict[str, list[int]] = {name: [] for name in ways}
    dice = random.Random(len(ways))
    for _ in range(MOST_ROUNDS):
        unfinished = [
            name for name, times in samples.items() if len(times) < LEAST_ROUNDS or sum(times) < seconds * 1e9
        ]
        if not unfinished:
            break
        for name in dice.sample(unfinished, len(unfinished)):
            before = clock()
            ways[name]()
            samples[name].append(clock() - before)
    return {name: sorted(times)[len(times) // 20] / 1000 for name, times in samples.items()}


def ways_to_apply(logits: torch.Tensor, bitmask: torch.Tensor) -> dict[str, Callable[[], object]]:
    """This project's ways and xgrammar's, if it is installed, checked to leave the same logits."""
    call = prepare(logits, bitmask)
    ways: dict[str, Callable[[], object]] = {
        "grammar_backends": lambda: apply_token_bitmask(logits, bitmask),
        "numpy": lambda: apply_by_numpy(call),
        "torch": lambda: apply_by_torch(call),
    }
    try:
        from xgrammar import apply_token_bitmask_inplace
    except ImportError:
        pass
    else:
        ways["xgrammar"] = lambda: apply_token_bitmask_inplace(logits, bitmask)
    results = []
    for way in ways.values():
        logits.zero_()
        way()
        results.append(logits.clone())
    if not all(torch.equal(results[0], result) for result in results):
        raise RuntimeError("the ways to apply a mask do not leave the same logits")
    return ways


def ways_to_fill(logits: torch.Tensor) -> dict[str, Callable[[], object]]:
    """How the whole memory is filled that a mask allowing nothing fills."""
    address, size = logits.data_ptr(), logits.numel() * logits.element_size()
    return {"fill_": lambda: logits.fill_(float("-inf")), "memset": lambda: ctypes.memset(address, 255, size)}


def cells(threads: int) -> Iterator[Cell]:
    """Every size, measured; numpy and torch are left out, which no target is about."""
    torch.set_num_threads(threads)
    for dtype in DTYPES:
        for rows in ROWS:
            logits = torch.zeros((rows, COLUMNS), dtype=dtype)
            for mask, make in MASKS.items():
                ways = ways_to_apply(logits, make(rows))
                compared = {name: way for name, way in ways.items() if name not in ("numpy", "torch")}
                times = usual_times({**compared, **ways_to_fill(logits)}, TABLE_SECONDS)
                yield Cell(rows, str(dtype).removeprefix("torch."), mask, threads, times)


def missed_targets(cell: Cell) -> Iterator[str]:
    """What a cell fails to be, of what this project promises."""
    if "xgrammar" in cell.times:
        least = 10 if cell.mask == f"{TYPICAL} allowed" else 1
        if cell.ratio("xgrammar") < least:
            yield f"{cell.ratio('xgrammar'):.2f} times as fast as xgrammar, not {least}"
    if cell.mask in DENSE and cell.over_filling > 2:
        yield f"{cell.over_filling:.2f} times as long as filling, not 2"


def chart() -> str:
    """The plot: float32 on one thread, over rows for a typical mask and over masked shares for 8 rows."""
    torch.set_num_threads(1)

    def times(rows: int, ids: int) -> dict[str, float]:
        logits = torch.zeros((rows, COLUMNS))
        return usual_times({**ways_to_apply(logits, allowing(rows, ids)), **ways_to_fill(logits)}, PLOT_SECONDS)

    by_rows = [times(rows, TYPICAL) for rows in PLOT_ROWS]
    by_share = [times(8, round(COLUMNS * (1 - share))) for share in SHARES]
    unit = "µs, one thread, float32, 128,256 columns"
    return draw(
        [
            Panel(f"{TYPICAL} ids allowed", "rows", unit, [str(rows) for rows in PLOT_ROWS], _lines(by_rows)),
            Panel("8 rows", "masked, %", unit, [f"{share * 100:g}" for share in SHARES], _lines(by_share)),
        ]
    )


def _lines(places: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [place[name] for place in places] for name in places[0]}


def describe(cell: Cell) -> str:
    """A cell as a row of a Markdown table."""
    xgrammar = f"{cell.ratio('xgrammar'):.1f}" if "xgrammar" in cell.times else ""
    filling = f"{cell.over_filling:.2f}" if cell.mask in DENSE else ""
    missed = "; ".join(missed_targets(cell)) or "yes"
    mine = f"{cell.times['grammar_backends']:.1f}"
    return f"| {cell.dtype} | {cell.rows} | {cell.mask} | {cell.threads} | {mine} | {xgrammar} | {filling} | {missed} |"


@click.command()
@click.option("--threads", multiple=True, type=int, help="As torch is set to; default: 1, and as it is.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here, as JSON.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the SVG of the documents instead.")
def main(threads: tuple[int, ...], out: Path | None, plot: Path | None) -> None:
    """Measure applying masks on the CPU; exit code 1 when a target is missed."""
    for name, reason in missing_implementations().items():
        click.echo(f"{name}: {reason}", err=True)
    if plot is not None:
        plot.write_text(chart(), "utf-8")
        return
    click.echo("| logits | rows | mask | threads | µs | xgrammar / ours | ours / filling | targets hold |")
    click.echo("|---|---|---|---|---|---|---|---|")
    found = []
    for count in threads or sorted({1, torch.get_num_threads()}):
        for cell in cells(count):
            click.echo(describe(cell))
            found.append(cell)
    if out is not None:
        data = {"environment": describe_environment([], ["apply_masks"]), "cells": [asdict(cell) for cell in found]}
        out.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    raise SystemExit(any(list(missed_targets(cell)) for cell in found))


if __name__ == "__main__":
    main()
