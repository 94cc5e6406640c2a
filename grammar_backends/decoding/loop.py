"""A decode loop, whole and small: what the author of an inference engine reads first.

It does everything that an engine does around its model to constrain requests, in the order in which an engine does it:
compile in the background, attach a gate, propose and trim drafts, build masks, apply them, verify, commit. It batches
and speculates, but it is no engine: there is no cache, no scheduling, and the model is any function.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch

from grammar_backends.compilation import GrammarManager, GrammarTicket
from grammar_backends.contract import GrammarSpec, StructuredOutputGrammar, Vocabulary
from grammar_backends.decoding.builder import BitmaskBuilder, MaskRequest
from grammar_backends.decoding.drafts import Commit, CommitReason, commit_tokens, trim_drafts
from grammar_backends.decoding.jump import JumpForward
from grammar_backends.errors import GrammarBackendsError, GrammarError
from grammar_backends.kernels import RowMapping, apply_token_bitmask

__all__ = ["DecodeLoop", "Drafter", "FinishReason", "Model", "Request", "Sampler", "greedy"]

FinishReason = Literal["stop", "length", "error"]


@dataclass(eq=False)
class Request:
    """What a client asks for, and what has become of it.

    Attributes:
        request_id: unique among those that run together.
        prompt: tokens.
        spec: what the output must be; None for free text.
        max_tokens: the output is cut there.
        gate: puts a gate around the grammar, for a model that reasons or calls tools; None for no gate.
        output: tokens so far, a stop token included.
        finish_reason: None while it runs. "error" is the server's answer to a client whose constraint was lost:
            it is never served without (K5).
        error: why, with "error".
    """

    request_id: str
    prompt: Sequence[int]
    spec: GrammarSpec | None = None
    max_tokens: int = 256
    gate: Callable[[StructuredOutputGrammar], StructuredOutputGrammar] | None = None
    output: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: Exception | None = None


Model: TypeAlias = Callable[[Sequence[Sequence[int]]], torch.Tensor]
"""From sequences of tokens to the logits of the next token of each, ``[sequences, columns]``."""

Sampler: TypeAlias = Callable[[torch.Tensor], int]
"""From the logits of one position, masked, to a token."""

Drafter: TypeAlias = Callable[[Request, "StructuredOutputGrammar | None"], Sequence[int]]
"""Proposes what may come next: a draft model, a look-up, or what the grammar forces. It changes nothing."""


def greedy(logits: torch.Tensor) -> int:
    """The likeliest token."""
    return int(logits.argmax())


class DecodeLoop:
    """Takes requests to their ends, all at once.

    Args:
        vocabulary: the model's.
        manager: compiles what requests ask for.
        model: the model.
        sample: how a token is chosen.
        drafter: proposes drafts; None proposes what the grammar forces (I5).
        max_num_seqs: requests at a time.
        num_draft_tokens: drafts of a request at most.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        manager: GrammarManager,
        model: Model,
        sample: Sampler = greedy,
        drafter: Drafter | None = None,
        *,
        max_num_seqs: int = 16,
        num_draft_tokens: int = 4,
    ) -> None:
        self._vocabulary = vocabulary
        self._manager = manager
        self._model = model
        self._sample = sample
        self._drafter = drafter or self._forced
        self._max_num_seqs = max_num_seqs
        self._num_draft_tokens = num_draft_tokens
        # Drafts are accepted to see their rows and taken back; the committed token may be, too (A27).
        self._max_rollback = num_draft_tokens + 1
        self._builder = BitmaskBuilder(vocabulary, max_num_seqs, num_draft_tokens, max_rollback=self._max_rollback)
        self._jump = JumpForward(vocabulary)

    def run(self, requests: Sequence[Request]) -> None:
        """Run requests until each has a `finish_reason`."""
        # Compilation starts at once, and nothing below ever waits for it while something else can run (E3).
        waiting = [(request, self._submit(request)) for request in requests]
        running: list[_Running] = []
        while waiting or running:
            finished = self._manager.finished
            waiting = [pair for pair in waiting if not self._admit(*pair, running)]
            if running:
                self._step(running)
                running = [request for request in running if request.request.finish_reason is None]
            elif waiting:
                self._manager.wait_finished(finished)

    def _submit(self, request: Request) -> GrammarTicket | None:
        return None if request.spec is None else self._manager.submit(request.request_id, request.spec)

    def _admit(self, request: Request, ticket: GrammarTicket | None, running: list[_Running]) -> bool:
        """Whether a request need not wait any longer: it runs, or it has failed."""
        if len(running) == self._max_num_seqs or (ticket is not None and not ticket.done()):
            return False
        try:
            grammar = None if ticket is None else ticket.new_grammar(max_rollback=self._max_rollback)
            if grammar is not None and request.gate is not None:
                grammar = request.gate(grammar)
        except GrammarBackendsError as error:  # of the client: its message says what to mend
            request.finish_reason, request.error = "error", error
        else:
            running.append(_Running(request, grammar))
        return True

    def _step(self, running: list[_Running]) -> None:
        """One pass of the model over all requests."""
        for each in running:
            proposed = self._drafter(each.request, each.grammar)
            each.drafts = trim_drafts(each.grammar, proposed, limit=self._num_draft_tokens).tokens
        # An engine launches the model here and builds the masks while it runs (F6).
        logits = self._model([context for each in running for context in each.contexts()])
        masks = self._builder.build([MaskRequest(each.id, each.grammar, each.drafts) for each in running])
        first_rows = [0, *itertools.accumulate(len(each.drafts) + 1 for each in running)]
        # The worker's batch may be in another order than the masks, and lack requests: jobs say what goes where (H1).
        jobs = masks.descriptor.apply_jobs([each.id for each in running])
        rows = RowMapping.by_index(jobs.logits_rows(first_rows), mask_rows=jobs.mask_rows)
        apply_token_bitmask(logits, torch.from_numpy(masks.bitmask), rows=rows)
        for each, report, first in zip(running, masks.reports, first_rows, strict=False):
            if report.error is not None:  # its rows have no bit: it must not be sampled (A14, F2)
                each.request.finish_reason, each.request.error = "error", report.error
            else:
                self._commit(each, self._verify(logits[first:], each.drafts, report.num_acceptable))

    def _verify(self, logits: torch.Tensor, drafts: Sequence[int], num_acceptable: int) -> list[int]:
        """Sample position by position, as long as the draft there is what was sampled."""
        tokens: list[int] = []
        for position in range(len(drafts) + 1):
            tokens.append(self._sample(logits[position]))
            if position >= num_acceptable or tokens[-1] != drafts[position]:
                break
        return tokens

    def _commit(self, each: _Running, sampled: list[int]) -> None:
        """Request and grammar advance by the same tokens (G5)."""
        request = each.request
        sampled = sampled[: max(request.max_tokens - len(request.output), 0)]
        num_kept, reason = self._advance(each, sampled)
        request.output += sampled[:num_kept]
        if reason is CommitReason.TERMINATED:
            request.finish_reason = "stop"
        elif reason is not CommitReason.ALL:
            error = None if each.grammar is None else each.grammar.error
            request.finish_reason = "error"
            request.error = error or GrammarError("a token was sampled against its row")
        elif len(request.output) >= request.max_tokens:
            request.finish_reason = "length"

    def _advance(self, each: _Running, sampled: list[int]) -> Commit:
        if each.grammar is not None:
            return commit_tokens(each.grammar, each.id, sampled)
        for count, token in enumerate(sampled, start=1):
            if token in self._vocabulary.stop_set:
                return Commit(count, CommitReason.TERMINATED)
        return Commit(len(sampled), CommitReason.ALL)

    def _forced(self, request: Request, grammar: StructuredOutputGrammar | None) -> list[int]:
        return [] if grammar is None else self._jump.drafts(grammar, request.output, self._num_draft_tokens)


@dataclass(eq=False)
class _Running:
    """A request with its grammar, and the drafts of this step."""

    request: Request
    grammar: StructuredOutputGrammar | None
    drafts: list[int] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.request.request_id

    def contexts(self) -> list[list[int]]:
        """The tokens before each position that is sampled: before the drafts, after the first, and so on."""
        tokens = [*self.request.prompt, *self.request.output]
        return [tokens + self.drafts[:count] for count in range(len(self.drafts) + 1)]
