"""What travels from the process that builds masks to the one that applies them: rows, and what each row is.

Everything here is a frozen value that pickles cheaply; nothing here knows a grammar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grammar_backends.errors import GrammarError

__all__ = ["MaskBatch", "MaskDescriptor", "RequestReport", "RowMapping", "RowState"]


class RowState(IntEnum):
    """What a row of a batch is. A row that nobody wrote is FAILED, so that a forgotten one never fails open (F2)."""

    FAILED = 0
    """The engine failed, or the row was never written: no bit is set, and the request must be failed (A19, F18)."""

    UNCONSTRAINED = 1
    """All ones: there is no grammar, or it allows everything now. Need not be applied (F17)."""

    CONSTRAINED = 2
    """What the grammar allows."""

    TERMINATED = 3
    """A stop token came before it: stop tokens only, or all ones, by the builder's policy (F9)."""

    DEAD = 4
    """No token would be legal here. As a request's first row: no bit is set, and the request must be failed (A14).
    After a draft: that draft is not acceptable, and the row repeats the one before it."""

    UNREACHABLE = 5
    """No verification may get here: it follows a rejected draft or padding. The row repeats the last legal one (F8);
    after padding it is all ones (F10)."""


class RequestReport(NamedTuple):
    """What became of one request in one batch (F18).

    Attributes:
        request_id: whose.
        state: of its first row; FAILED and DEAD mean that the request must be failed.
        num_rows: rows it takes, the bonus row included.
        num_acceptable: of its drafts, how many a verifier may accept (F8, F10).
        error: why it failed; None otherwise.
    """

    request_id: str
    state: RowState
    num_rows: int
    num_acceptable: int
    error: GrammarError | None


class RowMapping(NamedTuple):
    """Which row of a mask goes to which row of logits; both int32, of the same length (H1, H2)."""

    mask_rows: NDArray[np.int32]
    logits_rows: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class MaskDescriptor:
    """What the rows of a mask are; it travels with them (F3). Readers use these counts and no others.

    Attributes:
        request_ids: in the order of the rows.
        offsets: the first row of each request.
        counts: how many rows each request has; with a fixed stride the rest of its stride is UNREACHABLE.
        num_acceptable: how many drafts of each request may be accepted: of a chain its first so many, of a tree as
            many nodes, which `states` tells. A verifier must reject every other draft (F10).
        states: a `RowState` for each row.
    """

    request_ids: tuple[str, ...]
    offsets: tuple[int, ...]
    counts: tuple[int, ...]
    num_acceptable: tuple[int, ...]
    states: bytes

    @property
    def num_rows(self) -> int:
        return len(self.states)

    def map_rows(self, batch: Sequence[str], first_rows: Sequence[int]) -> RowMapping:
        """Rows to apply to the logits of a worker whose batch may be in another order or lack some requests (H1).

        Rows that change nothing, and rows of requests that failed, are left out: such a request must not be sampled
        (A14), and a row without any bit would turn its logits into NaN.

        Args:
            batch: the worker's requests, described here or not, in the order of its logits.
            first_rows: the first logits row of each, and last their total: ``len(batch) + 1`` numbers.

        Raises:
            ValueError: `first_rows` has another length, or fewer logits rows for a request than there are mask rows.
        """
        if len(first_rows) != len(batch) + 1:
            raise ValueError(f"{len(batch)} requests need {len(batch) + 1} first rows, not {len(first_rows)}")
        places = {request_id: place for place, request_id in enumerate(self.request_ids)}
        mask_rows: list[int] = []
        logits_rows: list[int] = []
        for request_id, first, end in zip(batch, first_rows, first_rows[1:], strict=False):
            place = places.get(request_id)
            if place is None:
                continue
            offset, count = self.offsets[place], self.counts[place]
            if end - first < count:
                raise ValueError(f"{request_id} has {count} mask rows but {end - first} rows of logits")
            if self.states[offset] in _LOST:
                continue
            for step, state in enumerate(self.states[offset : offset + count]):
                if state != RowState.UNCONSTRAINED:
                    mask_rows.append(offset + step)
                    logits_rows.append(first + step)
        return RowMapping(np.array(mask_rows, np.int32), np.array(logits_rows, np.int32))


_LOST = (RowState.FAILED, RowState.DEAD)


@dataclass(frozen=True, slots=True)
class MaskBatch:
    """The masks of one step.

    Attributes:
        descriptor: what each row is.
        bitmask: int32 ``[descriptor.num_rows, words]``, a view of the builder's memory, which holds it until the
            next build but one (F15). Pickling it copies.
        errors: by request id, why a request must be failed; empty nearly always.
    """

    descriptor: MaskDescriptor
    bitmask: NDArray[np.int32]
    errors: Mapping[str, GrammarError] = field(default_factory=dict)

    @property
    def reports(self) -> list[RequestReport]:
        """One for each request, in the order of the rows."""
        about = self.descriptor
        return [
            RequestReport(id_, self._state_at(offset), count, acceptable, self.errors.get(id_))
            for id_, offset, count, acceptable in zip(
                about.request_ids, about.offsets, about.counts, about.num_acceptable, strict=True
            )
        ]

    def _state_at(self, row: int) -> RowState:
        return RowState(self.descriptor.states[row])
