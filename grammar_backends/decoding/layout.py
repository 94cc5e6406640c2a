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

__all__ = ["ApplyJobs", "MaskBatch", "MaskDescriptor", "RequestReport", "RowState"]


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


class ApplyJobs(NamedTuple):
    """Which mask rows change the logits of a worker's batch: int32 arrays with one entry for each such row (H1, H3).

    ``RowMapping.by_index(jobs.logits_rows(first_rows), mask_rows=jobs.mask_rows)`` and
    ``RowMapping.by_slot(jobs.slots(n), first_rows, n, mask_rows=jobs.mask_rows)`` take them as they are.

    Attributes:
        mask_rows: the row of the mask.
        requests: whose it is, as a place in the worker's batch.
        steps: the position among the request's rows: 0 for the row before the first draft.
    """

    mask_rows: NDArray[np.int32]
    requests: NDArray[np.int32]
    steps: NDArray[np.int32]

    def logits_rows(self, first_rows: Sequence[int] | NDArray[np.int32]) -> NDArray[np.int32]:
        """The logits row of each job; -1 where the worker has dropped that position.

        Args:
            first_rows: the first logits row of each request of the batch, and behind them the total.
        """
        firsts = np.asarray(first_rows, np.int32)
        rows = np.add(firsts[self.requests], self.steps, dtype=np.int32)
        rows[rows >= firsts[self.requests + 1]] = -1
        return rows

    def slots(self, positions_per_request: int) -> NDArray[np.int32]:
        """Request and position in one number, for a kernel that finds the logits row itself (H3)."""
        return np.add(self.requests * positions_per_request, self.steps, dtype=np.int32)

    def mask_rows_at(self, step: int, num_requests: int) -> NDArray[np.int32]:
        """For each request of the batch its mask row at a position; -1 where that changes nothing (H3)."""
        rows = np.full(num_requests, -1, np.int32)
        here = self.steps == step
        rows[self.requests[here]] = self.mask_rows[here]
        return rows


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

    def apply_jobs(self, batch: Sequence[str]) -> ApplyJobs:
        """What to apply in a worker whose batch may be in another order, lack requests, or have others too (H1).

        Rows that change nothing are left out, and so are those of requests that failed: such a request must not be
        sampled, and a row without any bit would turn its logits into NaN (A14).

        Args:
            batch: the ids of the worker's requests, in the order of its logits.
        """
        places = {request_id: place for place, request_id in enumerate(self.request_ids)}
        found = [(request, places[id_]) for request, id_ in enumerate(batch) if id_ in places]
        requests, chosen = np.array(found, np.int32).reshape(-1, 2).T
        counts = np.array(self.counts, np.int32)[chosen]
        steps = np.arange(counts.sum(), dtype=np.int32) - np.repeat(counts.cumsum(dtype=np.int32) - counts, counts)
        offsets = np.repeat(np.array(self.offsets, np.int32)[chosen], counts)
        states = np.frombuffer(self.states, np.uint8)
        matters = (states[offsets + steps] != RowState.UNCONSTRAINED) & ~np.isin(states[offsets], _LOST)
        return ApplyJobs((offsets + steps)[matters], np.repeat(requests, counts)[matters], steps[matters])


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
