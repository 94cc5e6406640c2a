"""Applies packed bitmasks to logits, in place: the one entry point, and the implementations it chooses from.

All implementations give the same logits (H6); `available_implementations` lists them, for whoever proves that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from grammar_backends.errors import BitmaskError

__all__ = ["Implementation", "apply_token_bitmask", "available_implementations"]

Indices: TypeAlias = "Sequence[int] | torch.Tensor | None"

LOGITS_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ROWS_AT_ONCE = 16
"""Rows unpacked together: bounds the scratch memory to about 2 MiB for a vocabulary of 128k."""


class Implementation(NamedTuple):
    """One way to apply bitmasks.

    Attributes:
        name: what reports call it.
        device: where its logits and bitmasks lie.
        apply: ``apply(logits, bitmask, indices)``, as `apply_token_bitmask`.
    """

    name: str
    device: str
    apply: Callable[[torch.Tensor, torch.Tensor, Indices], None]


def available_implementations() -> tuple[Implementation, ...]:
    """Every implementation that works on this machine, the one that is chosen for CPU tensors first."""
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    portable = [Implementation(f"torch on {device}", device, _by_torch) for device in devices]
    return (Implementation("cpu", "cpu", _by_numpy), *portable)


def apply_token_bitmask(logits: torch.Tensor, bitmask: torch.Tensor, *, indices: Indices = None) -> None:
    """Set the logits of masked tokens to -inf, in place.

    ::

        for mask_row, logits_row in enumerate(indices or range(rows)):
            for t in range(columns):
                if t is beyond the mask, or bit t of bitmask[mask_row] is 0:
                    logits[logits_row, t] = -inf

    Rows that are not listed keep every bit (H8). Columns beyond the mask become -inf, for no token there can be
    legal; a mask wider than the logits is cut (H7).

    Args:
        logits: float32, float16 or bfloat16 ``[batch, columns]`` or ``[columns]``, any strides.
        bitmask: int32 ``[rows, words]`` or ``[words]`` on the same device, any strides.
        indices: the logits row of each mask row; None when they correspond one to one.

    Raises:
        BitmaskError: wrong dtype, device, number of dimensions or rows, or an index out of range or listed twice;
            the logits are unchanged.
    """
    apply = _by_numpy if bitmask.device.type == "cpu" else _by_torch
    apply(logits, bitmask, indices)


def _by_numpy(logits: torch.Tensor, bitmask: torch.Tensor, indices: Indices) -> None:
    # numpy unpacks bits ten times faster than torch can shift them out, on CPUs.
    _apply(logits, bitmask, indices, _masked_by_numpy)


def _by_torch(logits: torch.Tensor, bitmask: torch.Tensor, indices: Indices) -> None:
    _apply(logits, bitmask, indices, _masked_by_torch)


def _apply(
    logits: torch.Tensor,
    bitmask: torch.Tensor,
    indices: Indices,
    masked_by: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    if logits.dim() == 1:
        logits = logits.unsqueeze(0)
    if bitmask.dim() == 1:
        bitmask = bitmask.unsqueeze(0)
    rows = _logits_rows(logits, bitmask, indices)
    columns = logits.shape[1]
    covered = min(columns, bitmask.shape[1] * 32)
    bitmask = bitmask[:, : (covered + 31) // 32]
    for start in range(0, bitmask.shape[0], ROWS_AT_ONCE):
        masked = masked_by(bitmask[start : start + ROWS_AT_ONCE])[:, :covered]
        if rows is None:
            logits[start : start + ROWS_AT_ONCE, :covered].masked_fill_(masked, float("-inf"))
        else:
            for row, mask in zip(rows[start : start + ROWS_AT_ONCE], masked, strict=True):
                logits[row, :covered].masked_fill_(mask, float("-inf"))
    if covered < columns:
        if rows is None:
            logits[:, covered:] = float("-inf")
        else:
            for row in rows:
                logits[row, covered:] = float("-inf")


def _masked_by_numpy(words: torch.Tensor) -> torch.Tensor:
    """Which tokens are masked, bool ``[rows, 32 * words]``."""
    packed = np.ascontiguousarray(~words.numpy(), dtype="<i4").view(np.uint8)
    return torch.from_numpy(np.unpackbits(packed, axis=1, bitorder="little")).view(torch.bool)


def _masked_by_torch(words: torch.Tensor) -> torch.Tensor:
    """As `_masked_by_numpy`, on any device."""
    shifts = torch.arange(32, dtype=torch.int32, device=words.device)
    return ((words.unsqueeze(-1) >> shifts) & 1).eq(0).flatten(1)


def _logits_rows(logits: torch.Tensor, bitmask: torch.Tensor, indices: Indices) -> list[int] | None:
    if logits.dim() != 2 or bitmask.dim() != 2:
        raise BitmaskError(f"two dimensions are needed, not {logits.dim()} (logits) and {bitmask.dim()} (bitmask)")
    if logits.dtype not in LOGITS_DTYPES:
        raise BitmaskError(f"logits are float32, float16 or bfloat16, not {logits.dtype}")
    if bitmask.dtype != torch.int32:
        raise BitmaskError(f"a bitmask is int32, not {bitmask.dtype}")
    if logits.device != bitmask.device:
        raise BitmaskError(f"logits are on {logits.device}, the bitmask is on {bitmask.device}")
    if indices is None:
        if bitmask.shape[0] != logits.shape[0]:
            raise BitmaskError(
                f"{bitmask.shape[0]} mask rows for {logits.shape[0]} logits rows", hint="Pass indices to map them"
            )
        return None
    rows = indices.tolist() if isinstance(indices, torch.Tensor) else list(indices)
    if len(rows) != bitmask.shape[0]:
        raise BitmaskError(f"{len(rows)} indices for {bitmask.shape[0]} mask rows")
    if len(set(rows)) != len(rows):
        raise BitmaskError("an index is listed twice")
    for row in rows:
        if not 0 <= row < logits.shape[0]:
            raise BitmaskError(f"index {row} is outside {logits.shape[0]} logits rows")
    return rows
