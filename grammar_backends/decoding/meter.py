"""Decoding, counted: the calls of a step with what they cost and what came of them written down for each request (K1).

An engine that wants statistics makes these calls instead of those they are named after; nothing else differs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from grammar_backends.contract import StructuredOutputGrammar
from grammar_backends.decoding.builder import BitmaskBuilder, MaskRequest
from grammar_backends.decoding.drafts import Commit, TrimmedDrafts, commit_tokens, trim_drafts
from grammar_backends.decoding.layout import MaskBatch
from grammar_backends.decoding.trees import DraftTree
from grammar_backends.statistics import (
    CompileStatistics,
    DecodeCounters,
    EngineStatistics,
    RequestRecorder,
    RequestStatistics,
    Termination,
)

__all__ = ["DecodeMeter"]


class DecodeMeter:
    """Counts what the requests of one engine do. Used by one thread, the scheduler's.

    ::

        meter.start(request_id)
        ... each step: meter.trim, meter.build, meter.commit, meter.add_forced ...
        meter.finish(request_id, grammar, ticket.statistics)

    A request that was not started, or has finished, is served all the same and not counted.

    Args:
        statistics: where requests go when they end.
    """

    def __init__(self, statistics: EngineStatistics) -> None:
        self._statistics = statistics
        self._live: dict[str, RequestRecorder] = {}

    def start(self, request_id: str) -> None:
        """Follow a request from now on, which is when it is submitted."""
        self._live[request_id] = self._statistics.start(request_id)

    def finish(
        self,
        request_id: str,
        grammar: StructuredOutputGrammar | None,
        compilation: CompileStatistics | None,
        *,
        aborted: bool = False,
        error: BaseException | None = None,
    ) -> RequestStatistics | None:
        """The request has ended.

        ::

            aborted                             -> ABORTED
            an error, given or the grammar's    -> FAILED
            the grammar is terminated           -> STOPPED
            otherwise                           -> UNFINISHED

        Args:
            request_id: whose.
            grammar: as it ended; None where there was none.
            compilation: how it came to its grammar, `GrammarTicket.statistics`.
            aborted: the client or the engine gave it up.
            error: what ended it, besides its grammar's own error.

        Returns:
            All that is known of it; None when it was not started.
        """
        recorder = self._live.pop(request_id, None)
        if recorder is None:
            return None
        recorder.compilation = compilation
        if grammar is not None:
            error = error or grammar.error
            active = getattr(grammar, "constraint_activated", True)
            recorder.decoding.gate_step = getattr(grammar, "opened_at", 0) if active else None
        if aborted:
            termination = Termination.ABORTED
        elif error is not None:
            termination = Termination.FAILED
        else:
            stopped = grammar is not None and grammar.is_terminated()
            termination = Termination.STOPPED if stopped else Termination.UNFINISHED
        return self._statistics.finish(recorder, termination, error)

    def build(self, builder: BitmaskBuilder, requests: Sequence[MaskRequest], *, overlapped: bool = False) -> MaskBatch:
        """`BitmaskBuilder.build`. Its time is shared out to the requests by their rows.

        `overlapped`: the device works meanwhile, so that nobody waits for the masks.
        """
        started = time.perf_counter_ns()
        batch = builder.build(requests)
        elapsed = time.perf_counter_ns() - started
        self._statistics.record_mask_build(elapsed / 1e9, overlapped=overlapped)
        about = batch.descriptor
        drafts = {request.request_id: request.drafts for request in requests}
        for id_, count, acceptable in zip(about.request_ids, about.counts, about.num_acceptable, strict=True):
            counters = self._counters(id_)
            share = elapsed * count // max(1, about.num_rows)
            offered = sum(1 for draft in _tokens(drafts[id_]) if draft >= 0)
            counters.rows_filled += count
            counters.fill_nanoseconds += share
            counters.drafts_offered += offered
            counters.drafts_trimmed += offered - acceptable
            counters.rollback_steps += acceptable  # the builder took the grammar there and back
            if isinstance(drafts[id_], DraftTree):
                counters.add_tree(share / 1e9)
        return batch

    def trim(
        self, request_id: str, grammar: StructuredOutputGrammar | None, drafts: Sequence[int], **options: Any
    ) -> TrimmedDrafts:
        """`trim_drafts`, with its options. Those that are left out will not come to `build`: they are counted here."""
        trimmed = trim_drafts(grammar, drafts, **options)
        left_out = trimmed.num_legal + trimmed.num_invalid - len(trimmed.tokens)
        counters = self._counters(request_id)
        counters.drafts_offered += left_out
        counters.drafts_trimmed += left_out
        return trimmed

    def commit(self, grammar: StructuredOutputGrammar, request_id: str, tokens: Sequence[int]) -> Commit:
        """`commit_tokens`. The last token was sampled, those before it were drafts."""
        commit = commit_tokens(grammar, request_id, tokens)
        counters = self._counters(request_id)
        counters.tokens_accepted += commit.num_kept
        counters.drafts_accepted += min(commit.num_kept, max(0, len(tokens) - 1))
        return commit

    def add_forced(self, request_id: str, num_tokens: int) -> None:
        """So many tokens were appended without being sampled, since the grammar left no choice (I4)."""
        self._counters(request_id).forced_tokens += num_tokens

    def add_rollback(self, request_id: str, num_steps: int) -> None:
        """So many steps were taken back by somebody else than `build`: over drafts that were not accepted, say."""
        self._counters(request_id).rollback_steps += num_steps

    def _counters(self, request_id: str) -> DecodeCounters:
        recorder = self._live.get(request_id)
        return DecodeCounters() if recorder is None else recorder.decoding


def _tokens(drafts: Sequence[int] | DraftTree) -> Sequence[int]:
    return drafts.tokens[1:] if isinstance(drafts, DraftTree) else drafts
