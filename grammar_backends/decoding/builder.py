"""The masks of one step for all requests that sample: `BitmaskBuilder`.

It owns the memory, lays the rows out, takes each request over its drafts and back, and says what every row is. Which
requests sample, when the masks are needed and how they reach the device is the host's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from grammar_backends.contract import StructuredOutputGrammar, Vocabulary, allocate_bitmask
from grammar_backends.contract.bitmask import Bitmask
from grammar_backends.decoding.forward import Canvas, roll_over_chain, roll_over_tree
from grammar_backends.decoding.layout import MaskBatch, MaskDescriptor, RowState
from grammar_backends.decoding.trees import DraftTree
from grammar_backends.errors import BitmaskError, GrammarError, trim

__all__ = ["BitmaskBuilder", "MaskRequest"]


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
    drafts: Sequence[int] | DraftTree = ()
    samples: bool = True


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
    ) -> None:
        if max_num_seqs < 1 or num_draft_tokens < 0 or num_draft_tokens + bonus_row < 1:
            raise ValueError(f"{max_num_seqs} requests with {num_draft_tokens} drafts have no rows")
        if layout not in ("compact", "fixed") or terminated not in ("stop", "all"):
            raise ValueError(
                f'layout is "compact" or "fixed", terminated "stop" or "all", not {layout!r}, {terminated!r}'
            )
        self._words = vocabulary.words
        self._max_num_seqs = max_num_seqs
        self._num_draft_tokens = num_draft_tokens
        self._bonus_row = int(bonus_row)
        self.stride = num_draft_tokens + self._bonus_row
        self.min_rollback = num_draft_tokens + 1 if num_draft_tokens else 0
        if max_rollback is not None and max_rollback < self.min_rollback:
            raise ValueError(
                f"{num_draft_tokens} draft tokens need a max_rollback of {self.min_rollback}, not {max_rollback}"
            )
        self._fixed = layout == "fixed"
        self._rows = max_num_seqs * self.stride
        self._turn = 0
        tensor = allocate_bitmask(_BUFFERS * self._rows, vocabulary.width)
        array = Bitmask.of(tensor).array
        self._canvas = Canvas(tensor, array, bytearray(len(array)), terminated == "all")

    def build(self, requests: Sequence[MaskRequest]) -> MaskBatch:
        """The masks of one step; every grammar is afterwards as it was.

        A request that fails harms no other: its rows have no bit, their state says why, and its error is in
        `MaskBatch.errors` (F18).

        Returns:
            A view that stays as it is during the next build, and is overwritten by the one after (F15).

        Raises:
            ValueError: too many requests or drafts, a request twice, or a tree where there is no bonus row.
            BitmaskError: a grammar of another vocabulary. Nothing was written then.
        """
        requests = [request for request in requests if request.samples]
        counts = self._counts(requests)
        self._turn = (self._turn + 1) % _BUFFERS
        base = self._turn * self._rows
        offsets = self._offsets(counts)
        num_rows = len(requests) * self.stride if self._fixed else sum(counts)
        self._canvas.states[base : base + num_rows] = bytes(num_rows)
        errors: dict[str, GrammarError] = {}
        acceptable = [0] * len(requests)
        for place, request in enumerate(requests):
            first = base + offsets[place]
            end = first + counts[place]
            try:
                acceptable[place] = self._roll(request, first, end)
            except Exception as error:
                errors[request.request_id] = cause = _grammar_error(error)
                self._canvas.close(first, end, cause)
            if self._fixed:
                self._canvas.open(end, first + self.stride, RowState.UNREACHABLE)
        descriptor = MaskDescriptor(
            tuple(request.request_id for request in requests),
            tuple(offsets),
            tuple(counts),
            tuple(acceptable),
            bytes(self._canvas.states[base : base + num_rows]),
        )
        return MaskBatch(descriptor, self._canvas.array[base : base + num_rows], errors)

    def _counts(self, requests: Sequence[MaskRequest]) -> list[int]:
        """The number of rows of each request, once all of them are known to be in order."""
        if len(requests) > self._max_num_seqs:
            raise ValueError(f"{len(requests)} requests, but max_num_seqs is {self._max_num_seqs}")
        if len({request.request_id for request in requests}) != len(requests):
            raise ValueError("a request may come once in a step")
        counts = []
        for request in requests:
            drafts = request.drafts
            if isinstance(drafts, DraftTree):
                if not self._bonus_row:
                    raise ValueError(f"{request.request_id}: a draft tree needs a bonus row")
                num_drafts = len(drafts.tokens) - 1
            else:
                num_drafts = len(drafts)
            if num_drafts > self._num_draft_tokens:
                raise ValueError(f"{request.request_id}: {num_drafts} drafts, at most {self._num_draft_tokens}")
            words = getattr(request.grammar, "words", self._words)
            if words != self._words:
                raise BitmaskError(
                    f"{request.request_id}: its grammar fills {words} words, the rows have {self._words}"
                )
            counts.append(num_drafts + self._bonus_row)
        return counts

    def _offsets(self, counts: Sequence[int]) -> list[int]:
        if self._fixed:
            return list(range(0, len(counts) * self.stride, self.stride))
        offsets, total = [], 0
        for count in counts:
            offsets.append(total)
            total += count
        return offsets

    def _roll(self, request: MaskRequest, first: int, end: int) -> int:
        """Write a request's rows and return how many of its drafts are acceptable."""
        request_id, grammar, drafts, _ = request
        if grammar is None:
            return self._leave_open(drafts, first, end)
        depth = drafts.depth if isinstance(drafts, DraftTree) else len(drafts)
        limit = grammar.max_rollback
        if depth and limit is not None and limit <= depth:
            raise GrammarError(f"{depth} drafts need a max_rollback of {depth + 1}, not {limit}")
        if isinstance(drafts, DraftTree):
            return roll_over_tree(grammar, request_id, drafts, self._canvas, first)
        return roll_over_chain(grammar, request_id, drafts, self._canvas, first, end)

    def _leave_open(self, drafts: Sequence[int] | DraftTree, first: int, end: int) -> int:
        """All ones for a request without a grammar, padding marked as such."""
        self._canvas.open(first, end, RowState.UNCONSTRAINED)
        if not drafts:
            return 0
        tree = drafts if isinstance(drafts, DraftTree) else DraftTree.chain(drafts)
        padding = tree.padding()
        for node in padding:
            if first + node < end:
                self._canvas.states[first + node] = RowState.UNREACHABLE
        return len(tree.tokens) - 1 - len(padding)


_BUFFERS = 2


def _grammar_error(error: Exception) -> GrammarError:
    if isinstance(error, GrammarError):
        return error
    return GrammarError(f"the grammar failed: {type(error).__name__}: {trim(str(error))}")
