"""Random steps of a host: batches of living requests with drafts, trees, padding and nonsense; commits, rollbacks,
resets and forks in between. Every row, state, count and commit is compared with brute force.

A grammar that a build did not leave exactly as it was is found by a later step, since it lives on.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grammar_backends import (
    BitmaskBuilder,
    Commit,
    CommitReason,
    DraftTree,
    MaskBatch,
    MaskRequest,
    RowState,
    StructuredOutputGrammar,
    Vocabulary,
    commit_tokens,
    trim_drafts,
)
from grammar_backends.contract import unpack_ids
from grammar_backends_conformance.laws.batches.oracle import Answer, Origin, Replay

__all__ = ["MAX_DRAFTS", "Disagreement", "Walk"]

MAX_REQUESTS = 6
MAX_DRAFTS = 5
POPULATION = 10
LIFE = 14
"""Committed tokens after which a request is replaced by another one."""


class Disagreement(Exception):
    """The builder and brute force differ."""


@dataclass
class Living:
    """A request between its steps.

    Attributes:
        name: what its grammar is of.
        grammar: the living grammar.
        history: what was committed to it.
        furthest: as far as it has been, drafts included: a bounded rollback counts from there.
    """

    name: str
    grammar: StructuredOutputGrammar
    history: list[int] = field(default_factory=list)
    furthest: int = 0


class Host:
    """A builder with its policies, and the truth under the same policies."""

    def __init__(self, vocabulary: Vocabulary, origins: Mapping[str, Origin], opens_terminated: bool, **options: Any):
        policy = "all" if opens_terminated else "stop"
        self.builder = BitmaskBuilder(vocabulary, MAX_REQUESTS, MAX_DRAFTS, terminated=policy, **options)  # type: ignore[arg-type]  # a Literal
        self.truths = {name: Replay(origin, vocabulary.words, opens_terminated) for name, origin in origins.items()}
        self.bonus_row = options["bonus_row"]
        self.fixed = options["layout"] == "fixed"


class Walk:
    """Random steps over the grammars of some origins.

    Args:
        vocabulary: theirs.
        origins: by name, what makes grammars; where their rollback is bounded, by more than `MAX_DRAFTS`.
        seed: the same seed takes the same steps.
        threads: of the builders.
        often: tokens that shall come often, such as what opens a gate.

    Attributes:
        steps: batches that were built.
        seen: rows that were compared, by state.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        origins: Mapping[str, Origin],
        seed: int,
        threads: int = 1,
        often: Sequence[int] = (),
    ) -> None:
        self.steps = 0
        self.seen = dict.fromkeys(RowState, 0)
        self._seed = seed
        self._random = random.Random(seed)
        self._origins = dict(origins)
        self._hosts = [
            Host(vocabulary, origins, opens, layout=layout, bonus_row=bonus_row, threads=threads)
            for layout, bonus_row, opens in itertools.product(("compact", "fixed"), (True, False), (False, True))
        ]
        self._open = bytes(vocabulary.words * 4).replace(b"\0", b"\xff")
        self._odd = [
            *vocabulary.stop_ids,
            *sorted(vocabulary.special_ids)[:4],
            vocabulary.size,
            vocabulary.width,
            1 << 40,
        ]
        self._often = often
        self._size = vocabulary.size
        self._living = [self._newborn() for _ in range(POPULATION)]

    def run(self, steps: int) -> None:
        """Take so many steps.

        Raises:
            Disagreement: with the seed and the number of the step that shows it.
        """
        for _ in range(steps):
            self.steps += 1
            try:
                self._step()
            except Disagreement as found:
                raise Disagreement(f"seed {self._seed}, step {self.steps}: {found}") from None

    def _step(self) -> None:
        host = self._random.choice(self._hosts)
        living = self._random.sample(self._living, self._random.randrange(MAX_REQUESTS + 1))
        requests = [self._request(host, str(place), each) for place, each in enumerate(living)]
        batch = host.builder.build(requests)
        self._compare(
            host, batch, [(each, request) for each, request in zip(living, requests, strict=True) if request.samples]
        )
        for each in living:
            self._live_on(host, each)

    # What a host asks for

    def _newborn(self) -> Living:
        name = self._random.choice(list(self._origins))
        return Living(name, self._origins[name]())

    def _request(self, host: Host, request_id: str, each: Living) -> MaskRequest:
        grammar = None if self._random.random() < 0.05 else each.grammar
        samples = self._random.random() < 0.95
        if host.bonus_row and self._random.random() < 0.4:
            return MaskRequest(request_id, grammar, self._tree(host, each), samples)
        return MaskRequest(request_id, grammar, self._chain(host, each, MAX_DRAFTS), samples)

    def _chain(self, host: Host, each: Living, longest: int) -> list[int]:
        drafts: list[int] = []
        for _ in range(self._random.randrange(longest + 1)):
            drafts.append(self._token(host, each, drafts))
        return drafts

    def _tree(self, host: Host, each: Living) -> DraftTree:
        paths: list[list[int]] = [[]]
        parents = [-1]
        for node in range(1, self._random.randrange(MAX_DRAFTS + 1) + 1):
            parents.append(self._random.randrange(node))
            paths.append([*paths[parents[-1]], self._token(host, each, paths[parents[-1]])])
        return DraftTree.from_parents([-1, *(path[-1] for path in paths[1:])], parents)

    def _token(self, host: Host, each: Living, drafts: Sequence[int]) -> int:
        """Mostly a token that may come next, where there is one."""
        kind = self._random.random()
        if kind < 0.06:
            return -1
        if kind < 0.12:
            return self._random.choice(self._odd)
        if kind < 0.2:
            return self._random.randrange(self._size)
        if self._often and kind < 0.4:
            return self._random.choice(self._often)
        seen = None if any(draft < 0 for draft in drafts) else host.truths[each.name].after([*each.history, *drafts])
        allowed = [id_ for id_ in unpack_ids(np.frombuffer(seen.row, np.int32)) if id_ < self._size] if seen else []
        return self._random.choice(allowed or [0])

    # What must be true

    def _compare(self, host: Host, batch: MaskBatch, asked: Sequence[tuple[Living, MaskRequest]]) -> None:
        about = batch.descriptor
        self._equal("request ids", about.request_ids, tuple(request.request_id for _, request in asked))
        answers = [self._answer(host, each, request) for each, request in asked]
        first = 0
        rows = [row.tobytes() for row in batch.bitmask]
        for place, ((each, request), answer) in enumerate(zip(asked, answers, strict=True)):
            count = len(answer.rows)
            what = f"{each.name} after {each.history} with {request.drafts}"
            self._equal(f"offset of {what}", about.offsets[place], first)
            self._equal(f"rows of {what}", about.counts[place], count)
            states = [RowState(state) for state in about.states[first : first + count]]
            self._equal(f"states of {what}", states, answer.states)
            self._equal(f"bits of {what}", rows[first : first + count], answer.rows)
            self._equal(f"acceptable drafts of {what}", about.num_acceptable[place], answer.num_acceptable)
            dead = bool(answer.states) and answer.states[0] == RowState.DEAD
            self._equal(f"failure of {what}", request.request_id in batch.errors, dead)
            self._equal(f"history of {what}", each.grammar.num_accepted, len(each.history))
            for state in answer.states:
                self.seen[state] += 1
            if host.fixed:
                gap = host.builder.stride - count
                self._equal(f"gap of {what}", rows[first + count : first + count + gap], [self._open] * gap)
                self._equal(f"gap of {what}", about.states[first + count :][:gap], bytes([RowState.UNREACHABLE]) * gap)
                count += gap
            first += count
        self._equal("rows in all", (about.num_rows, len(rows)), (first, first))

    def _answer(self, host: Host, each: Living, request: MaskRequest) -> Answer:
        truth, drafts = host.truths[each.name], request.drafts
        if request.grammar is None:
            tree = drafts if isinstance(drafts, DraftTree) else DraftTree.chain(drafts)
            padding = tree.padding()
            num_rows = len(tree.tokens) - (not host.bonus_row)
            states = [RowState.UNREACHABLE if node in padding else RowState.UNCONSTRAINED for node in range(num_rows)]
            return Answer([self._open] * num_rows, states, len(tree.tokens) - 1 - len(padding))
        if isinstance(drafts, DraftTree):
            return truth.tree(each.history, drafts)
        return truth.chain(each.history, drafts, bonus_row=host.bonus_row)

    def _equal(self, what: str, got: object, expected: object) -> None:
        if got != expected:
            raise Disagreement(f"{what}: {got!r}, not {expected!r}")

    # What happens between two steps

    def _live_on(self, host: Host, each: Living) -> None:
        kind = self._random.random()
        seen = host.truths[each.name].after(each.history)
        ended = seen is not None and seen.state in (RowState.DEAD, RowState.TERMINATED)
        if len(each.history) > LIFE or (ended and kind < 0.3):
            self._living[self._living.index(each)] = self._newborn()
        elif ended or kind < 0.15:
            self._roll_back(each)
        elif kind < 0.18:
            each.grammar.reset()
            each.history.clear()
            each.furthest = 0
        elif kind < 0.22:
            each.grammar = each.grammar.fork()
        elif kind < 0.3:
            self._trim(host, each)
        else:
            self._commit(host, each)

    def _roll_back(self, each: Living) -> None:
        each.furthest = max(each.furthest, len(each.history) + MAX_DRAFTS)
        limit = each.grammar.max_rollback
        floor = 0 if limit is None else max(0, each.furthest - limit)
        steps = self._random.randrange(min(max(0, len(each.history) - floor), 4) + 1)
        each.grammar.rollback(steps)
        del each.history[len(each.history) - steps :]

    def _trim(self, host: Host, each: Living) -> None:
        drafts = self._chain(host, each, MAX_DRAFTS)
        proposed, kept = self._legal_prefix(host, each, drafts)
        for keep in (False, True):
            trimmed = trim_drafts(each.grammar, drafts, keep_first_invalid=keep)
            expected = (proposed[: len(kept) + keep], len(kept), len(proposed) - len(kept))
            self._equal(f"trimmed {drafts} of {each.name} after {each.history}", tuple(trimmed), expected)

    def _commit(self, host: Host, each: Living) -> None:
        tokens = self._chain(host, each, 3)
        proposed, kept = self._legal_prefix(host, each, tokens)
        commit = commit_tokens(each.grammar, "walk", tokens)
        reason = CommitReason.ALL if kept == proposed else CommitReason.ILLEGAL
        seen = host.truths[each.name].after([*each.history, *kept])
        if seen is not None and seen.state == RowState.TERMINATED:
            reason = CommitReason.TERMINATED
        self._equal(f"commit of {tokens} to {each.name} after {each.history}", commit, Commit(len(kept), reason))
        each.history += kept
        each.furthest = max(each.furthest, len(each.history) + MAX_DRAFTS)

    def _legal_prefix(self, host: Host, each: Living, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """Tokens before the first padding, and those of them that are legal."""
        proposed = list(itertools.takewhile(lambda token: token >= 0, tokens))
        legal = 0
        while legal < len(proposed) and host.truths[each.name].after([*each.history, *proposed[: legal + 1]]):
            legal += 1
        return proposed, proposed[:legal]
