"""The masks of one step for all requests that sample: `BitmaskBuilder`.

It owns the memory, lays the rows out, takes each request over its drafts and back, and says what every row is. Which
requests sample, when the masks are needed and how they reach the device is the host's business.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, NamedTuple

from grammar_backends.contract import BatchFiller, Matcher, StructuredOutputGrammar, Vocabulary, allocate_bitmask
from grammar_backends.contract.bitmask import Bitmask
from grammar_backends.decoding.batch import Group, by_filler, words_of
from grammar_backends.decoding.canvas import Canvas
from grammar_backends.decoding.forward import roll_over_chain, roll_over_tree
from grammar_backends.decoding.layout import MaskBatch, MaskDescriptor, RowState
from grammar_backends.decoding.native import LONG_WAY, NativeRows
from grammar_backends.decoding.trees import DraftTree
from grammar_backends.errors import BitmaskError, GrammarError, trim

__all__ = ["BitmaskBuilder", "MaskRequest"]

BUFFERS = 2
"""Steps whose masks can be in use at once (F15)."""

ROWS_PER_THREAD = 32
"""Rows that each thread must have. With 16 two threads of xgrammar are as quick as one, with 32 a third quicker."""

Drafts = Sequence[int] | DraftTree


class MaskRequest(NamedTuple):
    """What one request needs of a step.

    Attributes:
        request_id: unique in the step.
        grammar: its state before the drafts; None when the request is unconstrained.
        drafts: tokens to verify in this step, a list or a tree; negative ones are padding (F10).
        samples: whether it samples in this step; a prefill chunk that ends before the last known token does not, and
            then takes no row and leaves the grammar alone (F5).
    """

    request_id: str
    grammar: StructuredOutputGrammar | None
    drafts: Drafts = ()
    samples: bool = True


@dataclass(slots=True)
class _Step:
    """The requests of one step in columns, and what is found out about them.

    Attributes:
        any_drafts: whether a request has drafts.
        counts: how many rows each request has.
        offsets, firsts: the first row of each, in the step and on the canvas.
        base, num_rows: the rows of the step on the canvas.
    """

    ids: tuple[str, ...]
    grammars: tuple[StructuredOutputGrammar | None, ...]
    drafts: tuple[Drafts, ...]
    any_drafts: bool
    counts: tuple[int, ...]
    offsets: tuple[int, ...]
    firsts: Sequence[int]
    base: int
    num_rows: int
    acceptable: list[int]
    errors: dict[str, GrammarError] = field(default_factory=dict)


class BitmaskBuilder:
    """Builds the masks of step after step in memory that is allocated once, pinned where CUDA is in use (F1).

    Args:
        vocabulary: of every grammar that will come.
        max_num_seqs: requests in a step at most.
        num_draft_tokens: drafts of a request at most; the nodes of a tree but its root.
        layout: "compact": each request takes its rows and no more; "fixed": each takes as many as the longest can
            have, so that the first row of the n-th is known (F3).
        bonus_row: False for hosts that sample no token behind the drafts, such as diffusion: n drafts have n rows (F4).
        terminated: rows of terminated grammars allow "stop" tokens only, or "all" (F9).
        max_rollback: what grammars are made with; None is unbounded.
        threads: that fill rows at once, by engines that let other Python threads run meanwhile.

    Attributes:
        stride: the rows of a request at most.
        min_rollback: the least `max_rollback` that grammars must be made with (A27).

    Raises:
        ValueError: a number out of range, an unknown policy, or a `max_rollback` that the drafts exceed (G12).
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_num_seqs: int,
        num_draft_tokens: int = 0,
        *,
        layout: Literal["compact", "fixed"] = "compact",
        bonus_row: bool = True,
        terminated: Literal["stop", "all"] = "stop",
        max_rollback: int | None = None,
        threads: int = 1,
    ) -> None:
        self.stride = num_draft_tokens + bonus_row
        self.min_rollback = num_draft_tokens + 1 if num_draft_tokens else 0
        if max_num_seqs < 1 or num_draft_tokens < 0 or self.stride < 1 or threads < 1:
            raise ValueError(
                f"no builder for {max_num_seqs} requests with {num_draft_tokens} drafts by {threads} threads"
            )
        if layout not in ("compact", "fixed"):
            raise ValueError(f'layout is "compact" or "fixed", not {layout!r}')
        if terminated not in ("stop", "all"):
            raise ValueError(f'terminated is "stop" or "all", not {terminated!r}')
        if max_rollback is not None and max_rollback < self.min_rollback:
            raise ValueError(
                f"{num_draft_tokens} draft tokens need a max_rollback of {self.min_rollback}, not {max_rollback}"
            )
        self._words = vocabulary.words
        self._max_num_seqs = max_num_seqs
        self._num_draft_tokens = num_draft_tokens
        self._bonus_row = bonus_row
        self._fixed = layout == "fixed"
        self._threads = threads
        self._pool: tuple[int, ThreadPoolExecutor] | None = None  # and the process whose threads it has
        self._turn = 0
        self._last_ids: tuple[str, ...] = ()
        tensor = allocate_bitmask(BUFFERS * max_num_seqs * self.stride, vocabulary.width)
        view = Bitmask.of(tensor)
        self._canvas = Canvas(tensor, view, bytearray(view.num_rows), terminated == "all")
        self._native = NativeRows(self._canvas, vocabulary, bonus_row)

    def build(self, requests: Sequence[MaskRequest]) -> MaskBatch:
        """The masks of one step; every grammar is afterwards as it was.

        A request that fails harms no other: its rows have no bit, their state says why, and its error is in
        `MaskBatch.errors` (F18).

        Returns:
            A view that stays as it is during the next build, and is overwritten by the one after (F15).

        Raises:
            ValueError: too many requests or drafts, a request twice, or a tree where there is no bonus row. No row was
                written then, and no grammar touched.
            BitmaskError: a grammar of another vocabulary; likewise.
        """
        step = self._plan([*requests])
        groups = by_filler(step.grammars)
        for words in words_of(step.grammars, groups, self._words):
            if words != self._words:
                raise BitmaskError(f"a grammar fills rows of {words} words, these have {self._words}")
        self._turn = (self._turn + 1) % BUFFERS  # now that nothing is refused: the last step but one goes
        base, states = step.base, self._canvas.states
        states[base : base + step.num_rows] = bytes(step.num_rows)
        self._fill(step, groups)
        if self._fixed:
            for first, count in zip(step.firsts, step.counts, strict=True):
                self._canvas.open(first + count, first + self.stride, RowState.UNREACHABLE)
        descriptor = MaskDescriptor(
            step.ids,
            step.offsets,
            step.counts,
            tuple(step.acceptable),
            bytes(states[base : base + step.num_rows]),
        )
        return MaskBatch(descriptor, self._canvas.view.array[base : base + step.num_rows], step.errors)

    def _plan(self, requests: Sequence[MaskRequest]) -> _Step:
        """The step in columns, once everything about it is known to be in order."""
        ids, grammars, drafts, samples = zip(*requests, strict=False) if requests else ((), (), (), ())
        if not all(samples):
            return self._plan([request for request in requests if request.samples])
        any_drafts = any(map(len, drafts))
        self._check(ids, drafts, any_drafts)
        base = self._turn * self._max_num_seqs * self.stride
        counts = tuple([len(each) + self._bonus_row for each in drafts]) if any_drafts else None
        common = int(self._bonus_row) if counts is None else _common(counts)
        stride = self.stride if self._fixed else common
        firsts: Sequence[int]
        if stride:
            offsets, even_counts = _evenly(len(ids), stride, common)
            counts = counts or even_counts
            num_rows = len(ids) * stride
            firsts = range(base, base + num_rows, stride)
        else:
            counts = counts or (0,) * len(ids)
            *before, num_rows = accumulate(counts, initial=0)
            offsets, firsts = tuple(before), [base + offset for offset in before]
        return _Step(ids, grammars, drafts, any_drafts, counts, offsets, firsts, base, num_rows, [0] * len(ids))

    def _check(self, ids: tuple[str, ...], drafts: Sequence[Drafts], any_drafts: bool) -> None:
        if len(ids) > self._max_num_seqs:
            raise ValueError(f"{len(ids)} requests, but max_num_seqs is {self._max_num_seqs}")
        if ids != self._last_ids:  # quick where the same requests come again, as most do
            if len(set(ids)) != len(ids):
                raise ValueError("a request may come once in a step")
            self._last_ids = ids
        longest = max(map(len, drafts)) if any_drafts else 0
        if longest > self._num_draft_tokens:
            raise ValueError(f"{longest} drafts, but num_draft_tokens is {self._num_draft_tokens}")
        if not self._bonus_row and any(isinstance(each, DraftTree) for each in drafts):
            raise ValueError("a tree of drafts needs a bonus row")

    def _fill(self, step: _Step, groups: Sequence[Group]) -> None:
        """Fill the rows of the step, in as many threads as pay."""
        if (step.any_drafts and self._refuse_beyond_rollback(step)) or not self._bonus_row:
            # Without a bonus row a request without drafts has no rows at all.
            kept = [place for place, id_ in enumerate(step.ids) if step.counts[place] and id_ not in step.errors]
            groups = by_filler(step.grammars, kept)
        shared: list[Group] = []
        serial: list[Group] = []
        for group in groups:
            (shared if getattr(group[0], "releases_gil", False) else serial).append(group)
        members = sum(len(members) for _, members, _ in shared)
        threads = min(self._threads, members * step.num_rows // (len(step.ids) * ROWS_PER_THREAD)) if members else 1
        if threads < 2:
            self._fill_groups(step, groups)
            return
        if self._pool is None or self._pool[0] != os.getpid():  # a fork takes no threads along
            self._pool = os.getpid(), ThreadPoolExecutor(self._threads - 1)
        submit = self._pool[1].submit
        parts = [
            [(filler, members[part::threads], matchers[part::threads]) for filler, members, matchers in shared]
            for part in range(threads)
        ]
        jobs = [submit(self._fill_groups, step, part) for part in parts[1:]]
        try:
            self._fill_groups(step, [*parts[0], *serial])
        finally:
            for job in jobs:
                job.result()

    def _refuse_beyond_rollback(self, step: _Step) -> bool:
        """Fail the requests that cannot be rolled back over their drafts (G12); whether there are any."""
        for member, (grammar, drafts) in enumerate(zip(step.grammars, step.drafts, strict=True)):
            limit = None if grammar is None or not len(drafts) else grammar.max_rollback
            if limit is not None:
                depth = drafts.depth if isinstance(drafts, DraftTree) else len(drafts)
                if limit <= depth:
                    message = f"{depth} drafts need a max_rollback of {depth + 1}, not {limit}"
                    self._fail(step, member, GrammarError(message))
        return bool(step.errors)

    def _fill_groups(self, step: _Step, groups: Sequence[Group]) -> None:
        for filler, members, matchers in groups:
            if not members:
                continue  # there are more threads than requests
            alone = members if filler is None else self._fill_together(step, filler, members, matchers)
            for member in alone:
                self._fill_alone(step, member)

    def _fill_together(
        self, step: _Step, filler: BatchFiller, members: Sequence[int], matchers: Sequence[Matcher]
    ) -> Sequence[int]:
        """Fill the rows of requests by the calls of their engine; those are returned that must be filled alone."""
        if len(members) == len(step.ids):
            firsts, drafts = step.firsts, step.drafts
        else:
            firsts = [step.firsts[member] for member in members]
            drafts = tuple([step.drafts[member] for member in members])
        acceptable = self._native.fill(filler, matchers, firsts, drafts if step.any_drafts else None)
        if acceptable is None:
            return []
        if LONG_WAY not in acceptable and len(members) == len(step.ids):
            step.acceptable = acceptable
            return []
        for member, num in zip(members, acceptable, strict=True):
            step.acceptable[member] = max(num, 0)
        return [member for member, num in zip(members, acceptable, strict=True) if num == LONG_WAY]

    def _fill_alone(self, step: _Step, member: int) -> None:
        request_id, grammar, drafts = step.ids[member], step.grammars[member], step.drafts[member]
        first, end = step.firsts[member], step.firsts[member] + step.counts[member]
        try:
            if grammar is None:
                step.acceptable[member] = self._leave_open(drafts, first, end)
            elif isinstance(drafts, DraftTree):
                step.acceptable[member] = roll_over_tree(grammar, request_id, drafts, self._canvas, first)
            else:
                step.acceptable[member] = roll_over_chain(grammar, request_id, drafts, self._canvas, first, end)
        except Exception as error:
            self._fail(step, member, error)

    def _fail(self, step: _Step, member: int, error: Exception) -> None:
        if not isinstance(error, GrammarError):
            error = GrammarError(f"the grammar failed: {type(error).__name__}: {trim(str(error))}")
        step.errors[step.ids[member]] = error
        first = step.firsts[member]
        self._canvas.close(first, first + step.counts[member], error)

    def _leave_open(self, drafts: Drafts, first: int, end: int) -> int:
        """All ones for a request without a grammar, padding marked as such; what is acceptable."""
        self._canvas.open(first, end, RowState.UNCONSTRAINED)
        if not len(drafts):
            return 0
        tree = drafts if isinstance(drafts, DraftTree) else DraftTree.chain(drafts)
        padding = tree.padding()
        for node in padding:
            if first + node < end:
                self._canvas.states[first + node] = RowState.UNREACHABLE
        return len(tree) - len(padding)


def _common(counts: Sequence[int]) -> int:
    """The count that all have; 0 where they differ."""
    return counts[0] if counts and counts.count(counts[0]) == len(counts) else 0


@functools.lru_cache(maxsize=64)
def _evenly(num: int, stride: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first rows and the counts of requests that have as many rows each; steps without drafts ask for ever."""
    return tuple(range(0, num * stride, stride)), (count,) * num
