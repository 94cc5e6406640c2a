"""Random applications of bitmasks, which every implementation must do as the reference does, bit for bit.

``python -m grammar_backends.kernels.fuzz --count 100000`` runs them on every implementation of this machine. The
logits and the mask lie in larger buffers, at any phase and with any strides, and all of the buffer is compared, so
that nothing beside the logits may change. Rows may be out of range or listed twice, as on a device nobody checks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click
import torch

from grammar_backends.kernels.apply import Implementation, available_implementations
from grammar_backends.kernels.call import Call
from grammar_backends.kernels.mapping import RowMapping
from grammar_backends.kernels.reference import apply_by_reference

__all__ = ["Case", "difference", "differences", "random_case"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
NARROW, WIDE = (1, 700), (20_000, 140_000)
"""How many columns a case has: edges are where the faults are, but some cases are as wide as vocabularies."""
WIDE_EVERY = 400


class Layout(NamedTuple):
    """Where a matrix lies in a flat buffer, in elements."""

    shape: tuple[int, int]
    strides: tuple[int, int]
    offset: int
    size: int

    def view(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer.as_strided(self.shape, self.strides, self.offset)


class Case(NamedTuple):
    """One application, with everything that it needs, in host memory."""

    buffer: torch.Tensor
    logits: Layout
    mask_buffer: torch.Tensor
    bitmask: Layout
    rows: RowMapping
    tail: str
    vocab_size: int | None
    column_offset: int
    d2t: torch.Tensor | None

    def call(self, buffer: torch.Tensor) -> Call:
        """The call on a copy of the buffer, whose device it is made for."""
        logits = self.logits.view(buffer)
        bitmask = self.bitmask.view(self.mask_buffer.to(buffer.device))
        bits = bitmask.shape[1] * 32
        return Call(
            logits,
            bitmask,
            self.rows.to(buffer.device),
            self.rows.jobs(bitmask.shape[0]),
            bits if self.vocab_size is None else min(bits, self.vocab_size),
            self.column_offset,
            None if self.d2t is None else self.d2t.to(buffer.device),
            self.tail == "keep",
        )

    def expected(self) -> torch.Tensor:
        """The buffer as the reference leaves it."""
        buffer = self.buffer.clone()
        apply_by_reference(
            self.logits.view(buffer),
            self.bitmask.view(self.mask_buffer),
            rows=self.rows,
            tail=self.tail,
            vocab_size=self.vocab_size,
            column_offset=self.column_offset,
            d2t=self.d2t,
        )
        return buffer

    def __str__(self) -> str:
        rows = {name: array.tolist() for name, array in self.rows.arrays.items()}
        return (
            f"{self.buffer.dtype} logits {self.logits}, bitmask {self.bitmask}, rows {rows}, step {self.rows.step}, "
            f"positions_per_request {self.rows.positions_per_request}, tail {self.tail!r}, "
            f"vocab_size {self.vocab_size}, column_offset {self.column_offset}, "
            f"d2t {None if self.d2t is None else self.d2t.tolist()}"
        )


def random_case(seed: int, columns: tuple[int, int] = NARROW) -> Case:
    """The case of a seed, with as many columns as lie in a range."""
    dice = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    dtype = dice.choice(DTYPES)
    shape = dice.choice((1, 2, 3, 6)), dice.randint(*columns)
    logits = _random_layout(dice, shape)
    column_offset = dice.choice((0, 0, 0, dice.randrange(100), 32 * dice.randrange(4), 128 * dice.randrange(1, 4)))
    ids = column_offset + shape[1]
    d2t = None
    if dice.random() < 0.2:
        d2t = torch.randint(-40, 200, (max(0, ids + dice.choice((0, 0, -7, 3, -ids))),), generator=generator).to(
            torch.int32
        )
    vocab_size = dice.choice((None, None, ids, ids + dice.randint(-70, 70)))
    vocab_size = None if vocab_size is None else max(0, vocab_size)
    words = max(0, (ids + 31) // 32 + dice.choice((0, 0, 0, -1, 1, 2)))
    mask_rows = shape[0] if dice.random() < 0.5 else dice.randint(1, 7)
    bitmask = _random_layout(dice, (mask_rows, words))
    return Case(
        torch.randint(-(2**31), 2**31, (logits.size,), generator=generator).to(INTEGERS[dtype]).view(dtype),
        logits,
        _random_words(dice, bitmask.size, generator),
        bitmask,
        _random_rows(dice, shape[0], mask_rows),
        dice.choice(("mask", "keep")),
        vocab_size,
        column_offset,
        d2t,
    )


def _random_layout(dice: random.Random, shape: tuple[int, int]) -> Layout:
    rows, columns = shape
    offset, end = dice.randrange(20), dice.randrange(20)
    kind = dice.random()
    if kind < 0.3:
        offset, strides = 0, (columns + -columns % 8, 1)  # every row begins at 16 bytes
    elif kind < 0.7:
        strides = columns + dice.choice((0, 0, 0, 1, 3, 4, 8, 16, 29)), 1
    elif kind < 0.85:
        strides = 1, rows + dice.choice((0, 1))
    else:
        apart = dice.choice((2, 3))
        strides = columns * apart + dice.choice((0, 1)), apart
    last = max(0, rows - 1) * strides[0] + max(0, columns - 1) * strides[1]
    return Layout(shape, strides, offset, offset + last + 1 + end)


def _random_words(dice: random.Random, size: int, generator: torch.Generator) -> torch.Tensor:
    words = torch.randint(-(2**31), 2**31, (size,), generator=generator).to(torch.int32)
    plain, share = dice.choice(((0, 1.0), (-1, 1.0), (0, 0.9), (-1, 0.9), (-1, 0.5), (0, 0.0)))
    return words.where(torch.rand((size,), generator=generator) >= share, plain)


def _random_rows(dice: random.Random, row_count: int, mask_row_count: int) -> RowMapping:
    """Any mapping, with some rows that do not exist and some listed twice."""
    jobs = mask_row_count if dice.random() < 0.5 else dice.randint(0, 8)

    def some(least: int, beyond: int, size: int = jobs) -> torch.Tensor:
        return torch.tensor([dice.randrange(least, beyond) for _ in range(size)], dtype=torch.int32)

    mask_rows = some(-1, mask_row_count + 1) if dice.random() < 0.4 or jobs != mask_row_count else None
    enabled = some(0, 2).to(torch.bool) if dice.random() < 0.3 else None
    kind = dice.randrange(4)
    if kind == 0:
        return RowMapping(mask_rows=mask_rows, enabled=enabled)
    if kind == 1:
        return RowMapping.by_index(some(-2, row_count + 2), mask_rows=mask_rows, enabled=enabled)
    if kind == 2:
        firsts = some(0, row_count + 1, jobs + dice.randrange(2)).sort().values
        if dice.random() < 0.2:
            firsts = firsts.where(some(0, 4, firsts.shape[0]) > 0, -1)
        return RowMapping.by_step(firsts, dice.randrange(3), mask_rows=mask_rows, enabled=enabled)
    requests, positions = dice.randint(0, 4), dice.randint(1, 4)
    firsts = torch.cat((torch.zeros(1, dtype=torch.int32), some(0, positions + 1, requests).cumsum(0)))
    if dice.random() < 0.1:
        firsts = firsts[:0]
    slots = some(-1, requests * positions + 2)
    return RowMapping.by_slot(slots, firsts, positions, mask_rows=mask_rows, enabled=enabled)


def difference(implementation: Implementation, case: Case, expected: torch.Tensor) -> str | None:
    """What is wrong with an implementation's result, or None."""
    buffer = case.buffer.to(implementation.device, copy=True)
    call = case.call(buffer)
    if not call.is_empty:
        implementation.run(call)
    integer = INTEGERS[buffer.dtype]
    wrong = torch.nonzero(buffer.cpu().view(integer) != expected.view(integer)).flatten().tolist()
    return f"{implementation.name} differs at {wrong[:8]} of the buffer: {case}" if wrong else None


def differences(count: int, seed: int, implementations: Sequence[Implementation]) -> Iterator[str]:
    """All that is wrong in so many cases."""
    for number in range(seed, seed + count):
        case = random_case(number, NARROW if number % WIDE_EVERY else WIDE)
        expected = case.expected()
        for implementation in implementations:
            found = difference(implementation, case, expected)
            if found is not None:
                yield f"case {number}: {found}"


@click.command()
@click.option("--count", default=100_000, show_default=True, help="How many cases.")
@click.option("--seed", default=0, show_default=True, help="The number of the first case.")
def main(count: int, seed: int) -> None:
    """Run random cases on every implementation of this machine; exit code 1 when one is not as the reference."""
    implementations = available_implementations()
    click.echo(f"{count} cases on {', '.join(each.name for each in implementations)}", err=True)
    wrong = 0
    for found in differences(count, seed, implementations):
        click.echo(found)
        wrong += 1
    click.echo(f"{wrong} differences", err=True)
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
