"""The masks of one step for all requests that sample: `BitmaskBuilder`.

It owns the memory, lays the rows out, takes each request over its drafts and back, and says what every row is. Which
requests sample, when the masks are needed and how they reach the device is the host's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, NamedTuple

from grammar_backends.contract import BatchFiller, Matcher, StructuredOutputGrammar, Vocabulary, allocate_bitmask
from grammar_backends.contract.bitmask import Bitmask
from grammar_backends.decoding.batch import by_filler
from grammar_backends.decoding.canvas import Canvas
from grammar_backends.decoding.forward import roll_over_chain, roll_over_tree
from grammar_backends.decoding.layout import MaskBatch, MaskDescriptor, RowState
from grammar_backends.decoding.native import LONG_WAY, NativeRows
from grammar_backends.decoding.trees import DraftTree
from grammar_backends.errors import BitmaskError, GrammarError, trim

__all__ = ["BitmaskBuilder", "MaskRequest"]

BUFFERS = 2
"""Steps whose masks can be in use at once (F15)."""

ROWS_PER_THREAD = 64
"""Rows below which another thread costs more than it saves."""

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
    """The requests of one step in columns, and what is found out about them."""

    ids: tuple[str, ...]
    grammars: tuple[StructuredOutputGrammar | None, ...]
    drafts: tuple[Drafts, ...]
    num_drafts: list[int]
    counts: list[int]
    firsts: list[int]
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
        threads: that fill rows at once.

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
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._threads = threads
        self._turn = 0
        tensor = allocate_bitmask(BUFFERS * max_num_seqs * self.stride, vocabulary.width)
        view = Bitmask.of(tensor)
        self._canvas = Canvas(tensor, view, bytearray(view.num_rows), terminated == "all")
        self._native = NativeRows(self._canvas, vocabulary, bonus_row)
        # A row can only be all ones where this word is: it holds a control token, or ids beyond the vocabulary.
        closed = vocabulary.special_ids - vocabulary.stop_set
        self._closed_word = -1 if vocabulary.width > vocabulary.size else min(closed, default=0) >> 5

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
        step = self._plan(requests)
        base = self._turn * self._max_num_seqs * self.stride
        states = self._canvas.states
        num_rows = len(step.ids) * self.stride if self._fixed else sum(step.counts)
        states[base : base + num_rows] = bytes(num_rows)
        self._fill(step, self._within_rollback(step))
        if self._fixed:
            for first, count in zip(step.firsts, step.counts, strict=True):
                self._canvas.open(first + count, first + self.stride, RowState.UNREACHABLE)
        bitmask = self._canvas.view.array[base : base + num_rows]
        for row in (bitmask[:, self._closed_word] == -1).nonzero()[0].tolist():
            if states[base + row] == RowState.CONSTRAINED and (bitmask[row] == -1).all():
                states[base + row] = RowState.UNCONSTRAINED
        descriptor = MaskDescriptor(
            step.ids,
            tuple([first - base for first in step.firsts]),
            tuple(step.counts),
            tuple(step.acceptable),
            bytes(states[base : base + num_rows]),
        )
        return MaskBatch(descriptor, bitmask, step.errors)

    def _plan(self, requests: Sequence[MaskRequest]) -> _Step:
        """The step in columns, once everything about it is known to be in order."""
        sampling = [request for request in requests if request.samples]
        ids, grammars, drafts, _ = zip(*sampling, strict=True) if sampling else ((), (), (), ())
        num_drafts = list(map(len, drafts))
        self._check(ids, grammars, drafts, num_drafts)
        counts = [num + self._bonus_row for num in num_drafts]
        self._turn = (self._turn + 1) % BUFFERS
        base = self._turn * self._max_num_seqs * self.stride
        taken = [self.stride] * len(counts) if self._fixed else counts
        firsts = list(accumulate(taken, initial=base))[:-1]
        return _Step(ids, grammars, drafts, num_drafts, counts, firsts, [0] * len(ids))

    def _check(
        self,
        ids: Sequence[str],
        grammars: Sequence[StructuredOutputGrammar | None],
        drafts: Sequence[Drafts],
        num_drafts: Sequence[int],
    ) -> None:
        if len(ids) > self._max_num_seqs:
            raise ValueError(f"{len(ids)} requests, but max_num_seqs is {self._max_num_seqs}")
        if len(set(ids)) != len(ids):
            raise ValueError("a request may come once in a step")
        if max(num_drafts, default=0) > self._num_draft_tokens:
            raise ValueError(f"{max(num_drafts)} drafts, but num_draft_tokens is {self._num_draft_tokens}")
        if not self._bonus_row and any(isinstance(each, DraftTree) for each in drafts):
            raise ValueError("a tree of drafts needs a bonus row")
        for words in {getattr(grammar, "words", self._words) for grammar in grammars}:
            if words != self._words:
                raise BitmaskError(f"a grammar fills rows of {words} words, these have {self._words}")

    def _within_rollback(self, step: _Step) -> Sequence[int]:
        """The requests that can be rolled back over their drafts; the others are failed (G12)."""
        members: Sequence[int] = range(len(step.ids))
        if not any(step.num_drafts):
            return members
        for member in members:
            grammar, drafts = step.grammars[member], step.drafts[member]
            if grammar is None or not step.num_drafts[member]:
                continue
            limit = grammar.max_rollback
            depth = drafts.depth if isinstance(drafts, DraftTree) else len(drafts)
            if limit is not None and limit <= depth:
                self._fail(
                    step, member, GrammarError(f"{depth} drafts need a max_rollback of {depth + 1}, not {limit}")
                )
        return [member for member in members if step.ids[member] not in step.errors]

    def _fill(self, step: _Step, members: Sequence[int]) -> None:
        """Fill the rows of some requests, in as many threads as pay."""
        num_rows = sum(step.counts)
        threads = min(self._threads, num_rows // ROWS_PER_THREAD)
        if self._pool is None or threads < 2:
            self._fill_some(step, members)
            return
        parts = [members[part::threads] for part in range(threads)]
        for done in [self._pool.submit(self._fill_some, step, part) for part in parts]:
            done.result()

    def _fill_some(self, step: _Step, members: Sequence[int]) -> None:
        whole = len(members) == len(step.grammars)
        grammars = step.grammars if whole else [step.grammars[member] for member in members]
        alone: list[int] = []
        for filler, places, matchers in by_filler(grammars):
            of_filler = places if whole else [members[place] for place in places]
            alone += of_filler if filler is None else self._fill_together(step, filler, of_filler, matchers)
        for member in alone:
            self._fill_alone(step, member)

    def _fill_together(
        self, step: _Step, filler: BatchFiller, members: Sequence[int], matchers: Sequence[Matcher]
    ) -> list[int]:
        """Fill the rows of requests by the calls of their engine; those are returned that must be filled alone."""
        firsts = [step.firsts[member] for member in members]
        drafts = [step.drafts[member] for member in members] if any(step.num_drafts) else None
        acceptable = self._native.fill(filler, matchers, firsts, drafts)
        if drafts is not None:
            for member, num in zip(members, acceptable, strict=True):
                step.acceptable[member] = max(num, 0)
        if LONG_WAY not in acceptable:
            return []
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
