"""The implementations that need nothing but numpy or torch: numpy for host memory, torch for every device (H6).

They are what is left where no native code is: slower, and equal bit for bit.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from grammar_backends.kernels.call import MINUS_INFINITY, Call, resolve_rows

__all__ = ["apply_by_numpy", "apply_by_torch"]

ELEMENTS_AT_ONCE = 2**22
"""Logits that torch treats at a time: bounds its scratch memory to some 50 MiB."""


def apply_by_numpy(call: Call) -> None:
    """Unpack one mask row after the other; numpy unpacks bits ten times faster than torch can shift them out."""
    unsigned = np.uint32 if call.logits.element_size() == 4 else np.uint16
    integer = torch.int32 if unsigned is np.uint32 else torch.int16
    logits = call.logits.detach().view(integer).numpy().view(unsigned)
    words = call.bitmask.numpy()
    minus_infinity = unsigned(MINUS_INFINITY[call.logits.dtype])
    mask_rows, logits_rows, counts = resolve_rows(call)
    for mask_row, logits_row in zip(mask_rows[counts].tolist(), logits_rows[counts].tolist(), strict=True):
        packed = np.ascontiguousarray(words[mask_row]).view(np.uint8)
        bits = np.unpackbits(packed, count=call.mask_bits, bitorder="little")
        np.copyto(logits[logits_row], minus_infinity, where=_masked_columns(call, bits))


def _masked_columns(call: Call, bits: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which columns are masked, by the bits of one row."""
    columns, offset = call.logits.shape[1], call.column_offset
    masked = np.full(columns, not call.keep_tail)
    if call.d2t is None:
        covered = bits[offset : offset + columns]
        masked[: covered.size] = covered == 0
    else:
        shifts = call.d2t.numpy()[offset : offset + columns].astype(np.int64)
        ids = np.arange(offset, offset + shifts.size) + shifts
        known = np.flatnonzero((ids >= 0) & (ids < bits.size))
        masked[known] = bits[ids[known]] == 0
    return masked


@torch.inference_mode()  # type: ignore[untyped-decorator, unused-ignore]  # whether torch types it depends on its version
def apply_by_torch(call: Call) -> None:
    """Unpack all mask rows, for as many columns at once as fit; never waits for the device.

    Logits that were made in inference mode can be changed in it alone, and others in it as well.
    """
    row_count, columns = call.logits.shape
    words, hit_rows = call.bitmask, None
    if not (call.rows.is_one_to_one and call.jobs == row_count):
        mask_rows, logits_rows, counts = resolve_rows(call)
        words = words.index_select(0, mask_rows.where(counts, 0))
        hit_rows = logits_rows.where(counts, row_count)
    at_once = max(1, ELEMENTS_AT_ONCE // max(row_count, call.jobs))
    for start in range(0, columns, at_once):
        stop = min(start + at_once, columns)
        masked = _masked_on_device(call, words, start, stop)
        if hit_rows is not None:
            # Several jobs may hit one row; those that are skipped hit one row more than there is.
            hits = torch.zeros((row_count + 1, stop - start), dtype=torch.int32, device=words.device)
            masked = hits.index_add_(0, hit_rows, masked.to(torch.int32))[:row_count] > 0
        call.logits[:, start:stop].masked_fill_(masked, float("-inf"))


def _masked_on_device(call: Call, words: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Which of the columns from `start` to `stop` are masked, bool ``[jobs, stop - start]``."""
    masked = torch.full((call.jobs, stop - start), not call.keep_tail, device=words.device)
    first, last = call.column_offset + start, call.column_offset + stop
    if call.d2t is None:
        last = min(last, call.mask_bits)
        if first < last:
            masked[:, : last - first] = _bits(words, first, last) == 0
    elif call.mask_bits and first < call.d2t.shape[0]:
        ids = torch.arange(first, min(last, call.d2t.shape[0]), device=words.device) + call.d2t[first:last]
        known = (ids >= 0) & (ids < call.mask_bits)
        ids = ids.where(known, 0)
        bits = words.index_select(1, ids >> 5) >> (ids & 31).to(torch.int32) & 1
        masked[:, : ids.shape[0]] = torch.where(known, bits == 0, not call.keep_tail)
    return masked


def _bits(words: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """The bits of the ids from `first` to `last`, one to an element."""
    some = words[:, first // 32 : (last + 31) // 32]
    shifts = torch.arange(32, dtype=torch.int32, device=words.device)
    return (some.unsqueeze(-1) >> shifts & 1).flatten(1)[:, first % 32 :][:, : last - first]
