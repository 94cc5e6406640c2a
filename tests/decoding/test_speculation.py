"""A simulated speculative engine: whatever is drafted, only texts of the grammar come out.

The model is a function of the tokens before, with a taste for everything that a grammar forbids. The drafter often
guesses right, and else proposes anything: illegal tokens, stop tokens, padding, markers of gates. What comes out is
judged by Python's `re` over the bytes of the output, which shares nothing with any engine.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from grammar_backends import GrammarSpec, StructuredOutputGrammar, apply_token_bitmask, load_vocabulary
from grammar_backends.compilation import GrammarManager
from grammar_backends.contract import unpack_ids
from grammar_backends.decoding import (
    BitmaskBuilder,
    CommitReason,
    DraftTree,
    MarkerSearch,
    MaskRequest,
    ReasoningGate,
    RowState,
    TextMarker,
    TriggerGate,
    commit_tokens,
)
from grammar_backends.decoding.loop import DecodeLoop, Request
from grammar_backends.errors import GrammarError
from grammar_backends.kernels import RowMapping

BYTE = load_vocabulary("byte")
EOS, PAD, BOS, THINK, UNTHINK, CALL, UNCALL = range(256, 263)
BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
REQUESTS = 125
"""For each of the sixteen ways to run: 2,000 together."""

PATTERNS = ["[ab]{1,8}c?", "(yes|no|yes please)", "-?[1-9][0-9]{0,4}(\\.[0-9]{1,3})?", '\\{"k":"[a-f ]{0,6}(é)?"\\}']
ENDS = MarkerSearch(BYTE, ["</think>"])
TRIGGERS = MarkerSearch(BYTE, ["<tool_call>", TextMarker("!")])
OUTPUT = "(?s).{0,6}<U>(<F>*((<C>|!)%s<B>))*<F>*"
"""A gated output: reasoning up to its budget and its end, then free text with regions in it."""


def gated(grammar: StructuredOutputGrammar) -> StructuredOutputGrammar:
    inner = TriggerGate(grammar, TRIGGERS, bound=UNCALL, rearm=True)
    return ReasoningGate(inner, ENDS, budget=6)


def table() -> NDArray[np.float32]:
    """Different logits; control tokens, those that stop and those that are markers, are likely in all."""
    rows = np.random.default_rng(0).random((1009, BYTE.width), np.float32)
    rows[:, EOS:] += 0.9 * (rows[:, EOS:] > 0.6)
    return rows


LOGITS = table()


def model(contexts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits that depend on all tokens before."""
    return torch.from_numpy(LOGITS[[hash(tuple(context)) % len(LOGITS) for context in contexts]])


@dataclass
class Drafter:
    """Guesses what the model will say, and sometimes says something else."""

    chance: random.Random
    proposed: int = 0
    wrong: list[int] = field(default_factory=lambda: [EOS, -1, PAD, UNTHINK, CALL, UNCALL, ord("a"), ord("!"), 10**6])

    def next(self, tokens: Sequence[int], grammar: StructuredOutputGrammar) -> int:
        self.proposed += 1
        if self.chance.random() < 0.25 or grammar.is_terminated():
            return self.chance.choice(self.wrong)
        bitmask = np.zeros((1, BYTE.words), np.int32)
        try:
            grammar.fill_bitmask(bitmask, 0)
        except GrammarError:
            return self.chance.choice(self.wrong)
        allowed = unpack_ids(bitmask[0])
        logits = model([tokens])[0]
        return max(allowed, key=lambda id_: float(logits[id_]))

    def chain(self, request: Request, grammar: StructuredOutputGrammar | None) -> list[int]:
        assert grammar is not None
        return self.path(list(request.output), grammar.fork(), self.chance.randrange(5))

    def path(self, tokens: list[int], ahead: StructuredOutputGrammar, length: int) -> list[int]:
        drafts: list[int] = []
        for _ in range(length):
            drafts.append(self.next(tokens + drafts, ahead))
            ahead.accept_tokens("draft", drafts[-1:])
        return drafts

    def tree(self, tokens: list[int], grammar: StructuredOutputGrammar) -> DraftTree:
        """One good path, with other nodes hung on it anywhere."""
        drafts = self.path(tokens, grammar.fork(), self.chance.randrange(4))
        nodes, parents = [-1, *drafts], [-1, *range(len(drafts))]
        for _ in range(self.chance.randrange(4)):
            parents.append(self.chance.randrange(len(nodes)))
            nodes.append(self.chance.choice([*self.wrong, *drafts, ord("b")]))
        return DraftTree.from_parents(nodes, parents)


class TreeEngine:
    """Verifies trees: from the root on, to an acceptable child that is what was sampled, as long as there is one."""

    def __init__(self, num_nodes: int) -> None:
        self.builder = BitmaskBuilder(BYTE, 1, num_nodes)
        self.accepted = 0

    def run(self, request: Request, grammar: StructuredOutputGrammar, drafter: Drafter) -> None:
        while request.finish_reason is None:
            tree = drafter.tree(request.output, grammar)
            masks = self.builder.build([MaskRequest(request.request_id, grammar, tree)])
            assert not masks.errors
            logits = model([request.output + path for path in _paths(tree)])
            jobs = masks.descriptor.apply_jobs([request.request_id])
            rows = RowMapping.by_index(jobs.logits_rows([0, len(logits)]), mask_rows=jobs.mask_rows)
            apply_token_bitmask(logits, torch.from_numpy(masks.bitmask), rows=rows)
            tokens = self.verify(tree, logits.argmax(dim=1).tolist(), masks.descriptor.states)
            num_kept, reason = commit_tokens(grammar, request.request_id, tokens)
            request.output += tokens[:num_kept]
            assert reason in (CommitReason.ALL, CommitReason.TERMINATED)
            if reason is CommitReason.TERMINATED:
                request.finish_reason = "stop"
            elif len(request.output) >= request.max_tokens:
                request.finish_reason = "length"

    def verify(self, tree: DraftTree, sampled: list[int], states: bytes) -> list[int]:
        node, tokens = 0, [sampled[0]]
        while True:
            children = (
                child
                for child, parent in enumerate(tree.parents)
                if parent == node and tree.tokens[child] == tokens[-1] and states[child] < RowState.DEAD
            )
            node = next(children, -1)
            if node == -1:
                return tokens
            self.accepted += 1
            tokens.append(sampled[node])


def _paths(tree: DraftTree) -> list[list[int]]:
    """The tokens from the root to each node."""
    paths: dict[int, list[int]] = {}
    for node, _ in tree.walk:
        paths[node] = [] if node == 0 else [*paths[tree.parents[node]], tree.tokens[node]]
    return [paths[node] for node in range(len(tree.tokens))]


def judge(request: Request, pattern: str, *, is_gated: bool) -> None:
    """Demand that an output is of the language; one that was cut is only looked at as far as it is whole."""
    *tokens, last = request.output
    pattern = pattern.encode().decode("latin1")  # one character for each byte, as in the text
    text = "".join(chr(0xE000 + token - EOS) if token >= EOS else chr(token) for token in tokens)
    assert request.finish_reason == "stop"
    assert last == EOS
    assert EOS not in tokens
    if is_gated:
        names = {"<U>": UNTHINK, "<C>": CALL, "<B>": UNCALL}
        pattern = OUTPUT % f"({pattern})"
        for name, token in names.items():
            pattern = pattern.replace(name, chr(0xE000 + token - EOS))
        pattern = pattern.replace("<F>", f"[^!{chr(0xE000 + CALL - EOS)}]")
    assert re.fullmatch(pattern, text), (pattern, text)
    if not is_gated:
        assert all(token < EOS for token in tokens)


@pytest.fixture(scope="module", params=BACKENDS)
def manager(request: pytest.FixtureRequest) -> Iterator[GrammarManager]:
    with GrammarManager(BYTE, backend=request.param, isolation="inline", synchronous=True) as made:
        yield made


def requests_for(is_gated: bool) -> list[tuple[Request, str]]:
    made = []
    for number in range(REQUESTS):
        pattern = PATTERNS[number % len(PATTERNS)]
        request = Request(f"r{number}", [], GrammarSpec.regex(pattern), 2000, gated if is_gated else None)
        request.prompt = [number, is_gated]
        made.append((request, pattern))
    return made


@pytest.mark.parametrize("is_gated", [False, True], ids=["grammar", "gates"])
def test_f7_chains_of_drafts_lead_to_texts_of_the_grammar_only(manager: GrammarManager, is_gated: bool) -> None:
    drafter = Drafter(random.Random(1))
    pairs = requests_for(is_gated)
    loop = DecodeLoop(BYTE, manager, model, drafter=drafter.chain, max_num_seqs=25)
    loop.run([request for request, _ in pairs])
    for request, pattern in pairs:
        judge(request, pattern, is_gated=is_gated)
    assert drafter.proposed > 1_000


@pytest.mark.parametrize("is_gated", [False, True], ids=["grammar", "gates"])
def test_g8_trees_of_drafts_lead_to_texts_of_the_grammar_only(manager: GrammarManager, is_gated: bool) -> None:
    drafter, engine = Drafter(random.Random(2)), TreeEngine(6)
    for request, pattern in requests_for(is_gated):
        assert request.spec is not None
        grammar = manager.submit(request.request_id, request.spec).new_grammar()
        engine.run(request, gated(grammar) if is_gated else grammar, drafter)
        judge(request, pattern, is_gated=is_gated)
    assert engine.accepted > 200
