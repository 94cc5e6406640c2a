"""What is left of logits when a mask was applied to them."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from grammar_backends.kernels.apply import Implementation
from grammar_backends.kernels.call import prepare

__all__ = ["DTYPES", "surviving_ids"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

BEYOND = 32
"""Columns of the logits beyond the mask, where no token can be legal (H7)."""


def surviving_ids(implementation: Implementation, row: NDArray[np.int32]) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """For each type of logits its name, and the ids that stay what they were, as a row with one word more.

    A logit that is finite but not what it was before counts as lost. `row` is int32 ``[words]``.
    """
    bitmask = torch.from_numpy(row[None].copy()).to(implementation.device)
    columns = row.size * 32 + BEYOND
    for dtype in DTYPES:
        before = _logits(columns, dtype, implementation.device)
        logits = before.clone()
        implementation.run(prepare(logits, bitmask))
        unchanged = (logits == before)[0].cpu().numpy()
        yield str(dtype).removeprefix("torch."), np.packbits(unchanged, bitorder="little").view("<i4").astype(np.int32)


@functools.lru_cache(maxsize=16)
def _logits(columns: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.linspace(-30, 30, columns, device=device).to(dtype)[None]
