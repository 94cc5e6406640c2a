"""How fast, beside what the same bytes cost torch, and beside the kernels of others.

Every time is that of one launch among many in a CUDA graph, so that no host is measured. "Hot" works on the same buffer
again and again, which a small one leaves in the L2 cache; "cold" goes through so many that none is there when its turn
comes. The bytes that a mask needs are those of its words, and of every sector of 32 bytes with a masked logit in it.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch

from grammar_backends.kernels.apply import apply_token_bitmask
from grammar_backends.kernels.call import prepare
from grammar_backends.kernels.verify.machine import Machine

__all__ = ["CEILING", "OURS", "Cell", "Plan", "Timed", "cells", "host_cost", "time_cell"]

OURS, CEILING, TRITON = "this kernel", "fill_", "xgrammar, Triton"
MASKS = ("all allowed", "1,500 masked", "half", "200 allowed", "all masked")
SECTOR = 32
CACHE = 400 << 20
"""Bytes of logits that leave nothing of the first in any L2 cache."""

Apply: TypeAlias = Callable[[torch.Tensor, torch.Tensor], Any]


class Plan(NamedTuple):
    """What to time.

    Attributes:
        columns: of the logits.
        rows: how many, in the order of how much they tell.
        seconds: how long all of it may take; what does not fit is left out.
        cache: bytes that make a buffer cold.
    """

    columns: int = 128_256
    rows: tuple[int, ...] = (256, 64, 1, 8, 1024, 4096)
    seconds: float = 180.0
    cache: int = CACHE


class Cell(NamedTuple):
    """One comparison."""

    dtype: torch.dtype
    rows: int
    mask: str
    cold: bool


class Timed(NamedTuple):
    """What came of a comparison.

    Attributes:
        cell: what was compared.
        needed: bytes that the mask needs, at the least.
        filled: bytes that `fill_` writes.
        microseconds: by the name of the contender.
        failures: why a contender has no time, by its name.
    """

    cell: Cell
    needed: int
    filled: int
    microseconds: dict[str, float]
    failures: dict[str, str]

    @property
    def bandwidth(self) -> float:
        """Bytes per second that this kernel reaches, of those that are needed."""
        return self.needed / self.microseconds[OURS] * 1e6

    @property
    def share_of_fill(self) -> float:
        """That bandwidth, over the one of `fill_`."""
        return self.bandwidth / (self.filled / self.microseconds[CEILING] * 1e6)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            **self.cell._asdict(),
            "dtype": str(self.cell.dtype).removeprefix("torch."),
            "needed_bytes": self.needed,
            "filled_bytes": self.filled,
            "microseconds": {name: round(value, 3) for name, value in self.microseconds.items()},
            "bandwidth_gb_s": round(self.bandwidth / 1e9, 1),
            "share_of_fill": round(self.share_of_fill, 3),
            "failures": self.failures,
        }


def cells(plan: Plan) -> Iterator[Cell]:
    """All comparisons, those that tell most first."""
    for rows in plan.rows:
        for dtype in (torch.float32, torch.bfloat16):
            for cold in (False, True):
                for mask in MASKS:
                    yield Cell(dtype, rows, mask, cold)


def time_cell(machine: Machine, plan: Plan, cell: Cell) -> Timed:
    """Time every contender on the same logits and masks."""
    row_bytes = plan.columns * cell.dtype.itemsize
    buffers = max(1, plan.cache // (cell.rows * row_bytes)) if cell.cold else 1
    count = max(buffers, 20)
    shape = min(buffers, 256), cell.rows, plan.columns
    logits = torch.zeros(shape, dtype=cell.dtype, device=machine.device)
    bits = mask_bits(cell.mask, cell.rows, plan.columns, machine.device)
    masks = packed(bits).repeat(shape[0], 1, 1)
    masked = ~bits
    times, failures = {}, {}
    for name, apply in contenders(machine, masked).items():
        try:

            def launches(apply: Apply = apply) -> None:
                for number in range(count):
                    apply(logits[number % shape[0]], masks[number % shape[0]])

            times[name] = machine.microseconds(launches, count)
        except Exception as error:  # another's kernel may fail in any way, and the table says so
            if name in (OURS, CEILING):
                raise
            failures[name] = f"{type(error).__name__}: {str(error)[:200]}"
            machine.synchronize()
    return Timed(cell, needed_bytes(bits, cell.dtype.itemsize), cell.rows * row_bytes, times, failures)


def contenders(machine: Machine, masked: torch.Tensor) -> dict[str, Apply]:
    """Ways to apply a mask, by name; `masked` is the same mask, unpacked, for those that need it so."""
    minus_infinity = float("-inf")
    found: dict[str, Apply] = {
        OURS: lambda logits, bitmask: machine.implementation.run(prepare(logits, bitmask)),
        "small pieces": _through(machine.pieces(small=True)),
        "large pieces": _through(machine.pieces(small=False)),
        CEILING: lambda logits, bitmask: logits.fill_(minus_infinity),
        "masked_fill_, unpacked before": lambda logits, bitmask: logits.masked_fill_(masked, minus_infinity),
    }
    if not machine.is_rehearsal:
        found["torch.compile"] = _compiled()
        for name, module in ((TRITON, "triton"), ("xgrammar, CUDA", "cuda")):
            function = f"apply_token_bitmask_inplace_{module}"
            try:
                found[name] = getattr(importlib.import_module(f"xgrammar.kernels.{function}"), function)
            except Exception:  # it is not installed, or cannot build its kernel here
                continue
    return found


def _through(run: Callable[..., None]) -> Apply:
    return lambda logits, bitmask: run(prepare(logits, bitmask))


def _compiled() -> Apply:
    @torch.compile(dynamic=True)
    def unpack_and_fill(logits: torch.Tensor, bitmask: torch.Tensor) -> None:
        shifts = torch.arange(32, dtype=torch.int32, device=bitmask.device)
        masked = ((bitmask.unsqueeze(-1) >> shifts & 1) == 0).flatten(1)[:, : logits.shape[1]]
        logits.masked_fill_(masked, float("-inf"))

    return unpack_and_fill


def host_cost(machine: Machine, calls: int = 2000) -> dict[str, float]:
    """Microseconds of the host for a call of 8 rows that masks nothing, with and without a mapping of rows."""
    logits = torch.zeros((8, 1024), device=machine.device)
    bitmask = torch.full((8, 32), -1, dtype=torch.int32, device=machine.device)
    call = prepare(logits, bitmask)
    ways: dict[str, Callable[[], object]] = {
        "apply_token_bitmask": lambda: apply_token_bitmask(logits, bitmask),
        "validation alone": lambda: prepare(logits, bitmask),
        "launch alone": lambda: machine.implementation.run(call),
    }
    costs = {}
    for name, way in ways.items():
        way()
        machine.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            way()
        costs[name] = round((time.perf_counter() - begin) / calls * 1e6, 2)
        machine.synchronize()
    return costs


def mask_bits(mask: str, rows: int, columns: int, device: str) -> torch.Tensor:
    """Which ids a mask of a kind allows, bool ``[rows, columns]``."""
    generator = torch.Generator(device).manual_seed(1)
    if mask == "half":
        return torch.rand((rows, columns), generator=generator, device=device) < 0.5
    allowed = torch.full((rows, columns), mask in ("all allowed", "1,500 masked"), device=device)
    some = {"1,500 masked": 1500, "200 allowed": 200}.get(mask, 0)
    if some:
        ids = torch.randint(0, columns, (rows, min(some, columns)), generator=generator, device=device)
        allowed.scatter_(1, ids, mask == "200 allowed")
    return allowed


def packed(bits: torch.Tensor) -> torch.Tensor:
    """The bitmask of allowed ids, int32 ``[rows, columns / 32]``; the columns are a multiple of 32."""
    shifts = torch.arange(32, dtype=torch.int64, device=bits.device)
    words = (bits.view(bits.shape[0], -1, 32).to(torch.int64) << shifts).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def needed_bytes(bits: torch.Tensor, element_size: int) -> int:
    """The bytes of the mask, and of the sectors that hold a masked logit."""
    sectors = (~bits).view(bits.shape[0], -1, SECTOR // element_size).any(-1)
    return bits.numel() // 8 + int(sectors.sum()) * SECTOR
