"""apply_token_bitmask against a plain loop, on every shape, stride and type of logits it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from grammar_backends.contract import pack_ids
from grammar_backends.errors import BitmaskError
from grammar_backends.kernels import apply_token_bitmask
from grammar_backends.kernels.apply import available_implementations
from grammar_backends.kernels.call import prepare

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
WIDTHS = ((100, 100), (97, 128), (129, 100), (64, 64), (31, 33), (200, 32), (5, 500), (1, 1))
"""Columns of the logits, ids that the mask covers."""


def random_logits(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn((rows, columns), generator=torch.Generator().manual_seed(rows * columns)).to(dtype)


def random_bitmask(rows: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + width)
    bits = torch.randint(0, 2, (rows, width), generator=generator)
    rows_of_ids = [torch.nonzero(row).flatten().tolist() for row in bits]
    return torch.stack([torch.from_numpy(pack_ids(ids, width)) for ids in rows_of_ids])


def by_hand(logits: torch.Tensor, bitmask: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    expected = logits.clone()
    for mask_row, logits_row in enumerate(rows):
        words = [word & 0xFFFFFFFF for word in bitmask[mask_row].tolist()]
        for token in range(logits.shape[1]):
            if token // 32 >= len(words) or not words[token // 32] >> (token % 32) & 1:
                expected[logits_row, token] = float("-inf")
    return expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("columns", "width"), WIDTHS)
def test_h5_h6_h7_masked_and_uncovered_columns_become_minus_infinity(
    dtype: torch.dtype, columns: int, width: int
) -> None:
    logits, bitmask = random_logits(3, columns, dtype), random_bitmask(3, width)
    expected = by_hand(logits, bitmask, range(3))
    apply_token_bitmask(logits, bitmask)
    assert torch.equal(logits, expected)


@pytest.mark.parametrize(("columns", "width"), WIDTHS)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_h8_only_listed_rows_change(columns: int, width: int, as_tensor: bool) -> None:
    logits, bitmask = random_logits(6, columns), random_bitmask(3, width)
    rows = [4, 0, 3]
    before = logits.clone()
    expected = by_hand(logits, bitmask, rows)
    apply_token_bitmask(logits, bitmask, indices=torch.tensor(rows, dtype=torch.int32) if as_tensor else rows)
    assert torch.equal(logits, expected)
    assert torch.equal(logits[[1, 2, 5]], before[[1, 2, 5]])


def test_h8_rows_that_are_not_listed_keep_every_bit_of_nan_and_infinity() -> None:
    logits = torch.full((3, 40), float("nan"))
    logits[2] = float("inf")
    apply_token_bitmask(logits, torch.zeros((1, 2), dtype=torch.int32), indices=[1])
    assert torch.isnan(logits[0]).all()
    assert (logits[1] == float("-inf")).all()
    assert (logits[2] == float("inf")).all()


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 40])
def test_h5_any_number_of_rows(rows: int) -> None:
    logits, bitmask = random_logits(rows, 70), random_bitmask(max(rows, 1), 70)[:rows]
    other = random_logits(rows + 2, 70)
    expected, expected_other = by_hand(logits, bitmask, range(rows)), by_hand(other, bitmask, range(1, rows + 1))
    apply_token_bitmask(logits, bitmask)
    apply_token_bitmask(other, bitmask, indices=range(1, rows + 1))
    assert torch.equal(logits, expected)
    assert torch.equal(other, expected_other)


def test_h5_strided_logits_and_masks_and_nothing_around_them() -> None:
    bitmask = random_bitmask(8, 70)
    views = {
        "columns apart": (torch.randn(4, 140)[:, ::2], bitmask[:4]),
        "rows apart": (torch.randn(8, 70)[::2], bitmask[::2]),
        "transposed": (torch.randn(70, 4).t(), bitmask[:4]),
        "a window": (torch.randn(6, 100)[1:5, 10:80], bitmask[2:6]),
        "mask columns apart": (torch.randn(4, 35), random_bitmask(4, 128)[:, ::2]),
    }
    for name, (logits, mask) in views.items():
        base = logits._base if logits._base is not None else logits
        untouched = base.clone()
        expected = by_hand(logits, mask, range(4))
        apply_token_bitmask(logits, mask)
        assert torch.equal(logits, expected), name
        logits.zero_()
        changed = base.ne(untouched)
        assert int(changed.sum()) <= logits.numel(), name


def test_h5_one_row_without_a_batch_dimension() -> None:
    logits, bitmask = random_logits(1, 50), random_bitmask(1, 50)
    expected = by_hand(logits, bitmask, [0])
    flat = logits[0].clone()
    apply_token_bitmask(flat, bitmask[0])
    assert torch.equal(flat, expected[0])


def test_h5_the_mask_is_not_changed() -> None:
    bitmask = random_bitmask(3, 70)
    before = bitmask.clone()
    apply_token_bitmask(random_logits(3, 70), bitmask)
    assert torch.equal(bitmask, before)


def test_f2_a_mask_of_ones_changes_no_covered_column() -> None:
    logits = random_logits(2, 64)
    before = logits.clone()
    apply_token_bitmask(logits, torch.full((2, 2), -1, dtype=torch.int32))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("inference", [False, True])
def test_h6_logits_may_come_from_inference_mode_and_from_training(inference: bool) -> None:
    for implementation in available_implementations():
        with torch.inference_mode(inference):
            logits = random_logits(3, 70).to(implementation.device)
        logits.requires_grad_(not inference)
        implementation.run(prepare(logits, torch.zeros((3, 3), dtype=torch.int32, device=implementation.device)))
        assert torch.isneginf(logits.detach()).all(), implementation.name


def test_h7_misuse_raises_and_leaves_the_logits_alone() -> None:
    logits, bitmask = random_logits(3, 70), random_bitmask(3, 70)
    wrong: list[tuple[Any, Any, Sequence[int] | torch.Tensor | None]] = [
        (logits, bitmask[:2], None),
        (logits, bitmask, [0, 1]),
        (logits, bitmask, [0, 1, 1]),
        (logits, bitmask, [0, 1, 3]),
        (logits, bitmask, [0, -2, 2]),
        (logits, bitmask, torch.tensor([0, 1, 7])),
        (logits, bitmask.long(), None),
        (logits.double(), bitmask, None),
        (logits.int(), bitmask, None),
        (logits[None], bitmask, None),
        (logits, bitmask[None], None),
        (logits.to("meta"), bitmask, None),
        (logits.numpy(), bitmask, None),
        (torch.frombuffer(bytearray(844), dtype=torch.float32, offset=1, count=210).view(3, 70), bitmask, None),
        (logits, bitmask.numpy(), None),
    ]
    before = logits.clone()
    for given, mask, rows in wrong:
        with pytest.raises(BitmaskError):
            apply_token_bitmask(given, mask, indices=rows)
    assert torch.equal(logits, before)
