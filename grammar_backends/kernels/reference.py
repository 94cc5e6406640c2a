"""What applying a bitmask means, one bit at a time: slow, and simple enough to be seen to be right.

Shares no code with the implementations, which are proven against it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from grammar_backends.kernels.mapping import RowMapping

__all__ = ["apply_by_reference"]

NO_TOKEN = -1


def apply_by_reference(
    logits: torch.Tensor,
    bitmask: torch.Tensor,
    *,
    rows: RowMapping | None = None,
    tail: str = "mask",
    vocab_size: int | None = None,
    column_offset: int = 0,
    d2t: torch.Tensor | None = None,
) -> None:
    """As `apply_token_bitmask`, of arguments that are right, in two dimensions, in host memory; nothing is checked."""
    integer = torch.int32 if logits.dtype == torch.float32 else torch.int16
    minus_infinity = torch.tensor(float("-inf"), dtype=logits.dtype).view(integer).item()
    values = logits.view(integer).numpy()  # as integers: no NaN changes its bits on the way
    words = bitmask.tolist()
    bits = 32 * bitmask.shape[1] if vocab_size is None else min(vocab_size, 32 * bitmask.shape[1])
    shifts = None if d2t is None else d2t.tolist()
    for mask_row, logits_row in _pairs(rows or RowMapping(), len(words), len(logits)):
        for column in range(logits.shape[1]):
            token = column_offset + column
            if shifts is not None:
                token = token + shifts[token] if token < len(shifts) else NO_TOKEN
            if 0 <= token < bits:
                masked = words[mask_row][token // 32] >> (token % 32) & 1 == 0
            else:
                masked = tail == "mask"
            if masked:
                values[logits_row, column] = minus_infinity


def _pairs(rows: RowMapping, mask_row_count: int, logits_row_count: int) -> Iterator[tuple[int, int]]:
    """Mask row and logits row of each job that is not skipped."""
    for job in range(rows.jobs(mask_row_count)):
        if rows.enabled is not None and not rows.enabled[job]:
            continue
        mask_row = job if rows.mask_rows is None else int(rows.mask_rows[job])
        logits_row = _logits_row(rows, job, logits_row_count)
        if 0 <= mask_row < mask_row_count and 0 <= logits_row < logits_row_count:
            yield mask_row, logits_row


def _logits_row(rows: RowMapping, job: int, logits_row_count: int) -> int:
    if rows.first_rows is None:
        return job if rows.logits_rows is None else int(rows.logits_rows[job])
    firsts = rows.first_rows.tolist()
    if rows.slots is None:
        request, position = job, rows.step
        ends = [*firsts[1:], logits_row_count]
    else:
        request, position = divmod(int(rows.slots[job]), rows.positions_per_request)
        ends = firsts[1:]
    if not 0 <= request < len(ends) or firsts[request] < 0 or firsts[request] + position >= ends[request]:
        return -1
    return int(firsts[request]) + position
