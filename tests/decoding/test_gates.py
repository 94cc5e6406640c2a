"""Gates against a model that keeps the tokens and works everything out anew from the first one, by naive comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from grammar_backends import GrammarSpec, StructuredOutputGrammar, Vocabulary, load_backend
from grammar_backends.contract import CompiledGrammar, unpack_ids
from grammar_backends.decoding import (
    Gate,
    MarkerSearch,
    PatternMarker,
    ReasoningGate,
    TextMarker,
    TokenMarker,
    TriggerGate,
)
from grammar_backends.errors import DeadEnd

TEXT = [b"a", b"b", b"<", b"f", b">", b" ", b"ab", b"aab", b"<f", b"f>", b"f>a", b"<f>ab", b"><f>", b"bb<", b"\xc3"]
TEXT += [b"a"]
SPECIAL = [b"<eos>", b"<end>", b"<think>", b"</think>", b"<call>", b"</call>"]
A, B, LESS, F, MORE, SPACE, AB, AAB, LESS_F, F_MORE, F_MORE_A, WHOLE, AROUND, BB_LESS, BROKEN, A2 = range(16)
EOS, END, THINK, UNTHINK, CALL, UNCALL = range(16, 22)
SIZE, WIDTH = 22, 40

VOCABULARY = Vocabulary.from_bytes(
    [*TEXT, *SPECIAL], special_ids=range(16, 22), stop_ids=[EOS, END], width=WIDTH, name="gates"
)
WORDS = ("ab", "aba", "abab", "b", "bb", "<f>ab", "<f>", "ab<f>b", "<fa")
"""What the grammars allow: texts that begin like markers, and such that markers end in."""


def compiled(backend: str, words: Sequence[str] = WORDS) -> CompiledGrammar:
    return load_backend(backend, VOCABULARY).compile_grammar(GrammarSpec.choice(list(words)))


# --------------------------------------------------------------------------------------------------- the model


@dataclass
class Replay:
    """Where a gate is after some tokens, worked out from the first one on."""

    legal: bool = True
    steps: int = 0
    terminated: bool = False
    opened_at: int | None = None
    region: bytes | None = None
    """What the grammar got, while the gate is open."""
    spent: bool = False
    """The gate does not open again."""
    seen: list[int] = field(default_factory=list)
    """The tokens since the gate was closed, or since the prompt began."""
    thought: int = 0


@dataclass(frozen=True)
class Rules:
    """A gate, in the words of the requirements."""

    markers: Sequence[TokenMarker | TextMarker | PatternMarker]
    bound: int | None = None
    rearm: bool = False
    prompt: tuple[int, ...] = ()
    must_open: bool = False
    stops: frozenset[int] = frozenset({EOS, END})
    reasoning: bool = False
    budget: int | None = None
    terminator: tuple[int, ...] = ()
    excluded: frozenset[int] = frozenset()

    def replay(self, tokens: Sequence[int]) -> Replay:
        at = self.begin()
        for token in tokens:
            if not at.terminated:
                self.step(at, token)
                if not at.legal:
                    break
                at.steps += 1
                if at.region is not None and at.opened_at is None:
                    at.opened_at = at.steps
        return at

    def begin(self) -> Replay:
        at = Replay()
        for token in self.prompt:
            at.region = None
            at.seen.append(token)
            match = self.match(at.seen)
            if match is not None:
                at.seen, at.region = [], b"" if self.reasoning else match
                if self.reasoning:
                    break
        at.opened_at = None if at.region is None else 0
        return at

    def step(self, at: Replay, token: int) -> None:
        if at.region is None:
            self.step_closed(at, token)
        elif token == self.bound and at.region.decode("latin1") in WORDS:
            at.region, at.spent, at.seen = None, not self.rearm, []
        elif token in self.stops:
            at.legal = at.terminated = at.region.decode("latin1") in WORDS and self.bound is None
        else:
            at.legal = 0 <= token < len(TEXT)
            if at.legal:
                at.region += TEXT[token]
                at.legal = begins(at.region)

    def step_closed(self, at: Replay, token: int) -> None:
        forced = self.forced(at)
        if token in self.stops:
            at.legal = at.terminated = (not self.must_open or at.opened_at is not None) and forced is None
            return
        at.legal = 0 <= token < SIZE and token not in (EOS, END)
        if forced is not None:
            at.legal = token == forced
        elif token in self.excluded:
            at.legal = False
        if not at.legal or at.spent:
            return
        at.seen.append(token)
        at.thought += 1
        match = self.match(at.seen)
        if match is None and self.terminator and tuple(at.seen[-len(self.terminator) :]) == self.terminator:
            match = b""
        if match is not None:
            at.region, at.seen = match, []
            at.legal = begins(match)

    def forced(self, at: Replay) -> int | None:
        if self.budget is None or at.thought < self.budget:
            return None
        return next(
            self.terminator[length]
            for length in reversed(range(len(self.terminator)))
            if not length or tuple(at.seen[-length:]) == self.terminator[:length]
        )

    def match(self, seen: Sequence[int]) -> bytes | None:
        """What the grammar gets when the last of these tokens completes a marker; None when it completes none."""
        by_length = sorted((m for m in self.markers if isinstance(m, TokenMarker)), key=lambda m: -len(m.tokens))
        for marker in by_length:
            if tuple(seen[-len(marker.tokens) :]) == marker.tokens:
                return b"".join(TEXT[t] if t < 16 else b"?" for t in marker.tokens) if marker.implicit else b""
        special = [place for place, token in enumerate(seen) if not 0 <= token < len(TEXT)]
        text = b"".join(TEXT[token] for token in seen[special[-1] + 1 if special else 0 :])
        last = TEXT[seen[-1]] if not special or special[-1] < len(seen) - 1 else b""
        texts = sorted(
            (m for m in self.markers if not isinstance(m, TokenMarker)), key=lambda m: type(m) is not TextMarker
        )
        for end in range(len(text) - len(last) + 1, len(text) + 1):
            for start in range(end):
                for text_marker in texts:
                    if is_marked(text_marker, text[start:end]):
                        return text[start if text_marker.implicit else end :]
        return None


def is_marked(marker: TextMarker | PatternMarker, text: bytes) -> bool:
    if isinstance(marker, TextMarker):
        return text == marker.text.encode()
    return re.fullmatch(marker.pattern.encode(), text) is not None


def begins(text: bytes) -> bool:
    return any(word.encode().startswith(text) for word in WORDS)


@dataclass(frozen=True)
class Config:
    name: str
    rules: Rules
    make: Callable[[StructuredOutputGrammar], Gate]


def trigger(name: str, *markers: TokenMarker | TextMarker | PatternMarker, **options: Any) -> Config:
    search = MarkerSearch(VOCABULARY, markers)
    rules = Rules(markers, **options)
    return Config(name, rules, lambda grammar: TriggerGate(grammar, search, **options))


def reasoning(name: str, *markers: TokenMarker | TextMarker | PatternMarker, **options: Any) -> Config:
    options = {"must_open": True, **options}
    search = MarkerSearch(VOCABULARY, markers)
    given = dict(options)
    rules = Rules(markers, reasoning=True, excluded=frozenset(given.pop("excluded_ids", ())), **given)
    if rules.budget is not None and "terminator" not in options:
        rules = Rules(**{**vars(rules), "terminator": next(m.tokens for m in markers if isinstance(m, TokenMarker))})
    return Config(name, rules, lambda grammar: ReasoningGate(grammar, search, **options))


PATTERNS = {
    "<[af]?>": "<f>",
    "ab*<f|<f>?a": "<f>a",
    "b[ <]": "b<",
    "(a|ab)+<": "aabab<",
    "[a-f>]b": "ab",
    "(<f>)+b": "<f>b",
}
"""The patterns below, and a text that each matches."""

AAB_AAB = TokenMarker((A, A, B, A, A, B))
CONFIGS = [
    trigger("one token", TokenMarker((CALL,))),
    trigger("overlaps itself", AAB_AAB),
    trigger("overlaps itself, bounded", TokenMarker((A, B, A)), bound=UNCALL, rearm=True),
    trigger("several that end in each other", AAB_AAB, TokenMarker((B, A)), TokenMarker((A, A)), bound=UNCALL),
    trigger("implicit", TokenMarker((A, B), implicit=True), bound=UNCALL, rearm=True),
    trigger("implicit and refused", TokenMarker((A, A), implicit=True), TokenMarker((B,), implicit=True)),
    trigger("implicit control token", TokenMarker((CALL,), implicit=True), TokenMarker((A, CALL))),
    trigger("text", TextMarker("<f>"), bound=UNCALL, rearm=True),
    trigger("text that is content", TextMarker("<f>", implicit=True), bound=UNCALL, rearm=True),
    trigger("texts", TextMarker("ab<", implicit=True), TextMarker("<f>"), TextMarker("f"), bound=UNCALL, rearm=True),
    trigger("text and tokens", TextMarker("aab"), TokenMarker((AAB,), implicit=True), TokenMarker((A, B))),
    trigger("pattern", PatternMarker("<[af]?>"), bound=UNCALL, rearm=True),
    trigger("pattern that is content", PatternMarker("ab*<f|<f>?a", implicit=True), bound=UNCALL, rearm=True),
    trigger(
        "patterns, some content", PatternMarker("(a|ab)+<", True), PatternMarker("(<f>)+b"), PatternMarker("b[ <]")
    ),
    trigger(
        "patterns, text and tokens",
        PatternMarker("[a-f>]b", implicit=True),
        TextMarker("f>ab"),
        TextMarker("ab", implicit=True),
        TokenMarker((AAB,)),
        bound=UNCALL,
        rearm=True,
    ),
    trigger(
        "half a pattern in the prompt", PatternMarker("(<f>)+b", implicit=True), prompt=(A, WHOLE, LESS_F, F_MORE, LESS)
    ),
    trigger("bound is text", TokenMarker((CALL,)), bound=B, rearm=True),
    trigger("must open", TokenMarker((CALL,)), bound=UNCALL, must_open=True),
    trigger("half in the prompt", AAB_AAB, prompt=(B, A, A, B, A)),
    trigger("once more in the prompt", AAB_AAB, prompt=(A, A, B, A, A, B, A, A)),
    trigger("all in the prompt", TokenMarker((A, B), implicit=True), prompt=(A, B, A, B), bound=UNCALL, rearm=True),
    reasoning("one end", TokenMarker((UNTHINK,))),
    reasoning("may stop", TokenMarker((A, A, B)), must_open=False),
    reasoning("may stop, budget", TokenMarker((A, B)), must_open=False, budget=2, excluded_ids=[SPACE, A]),
    reasoning("over in the prompt", TokenMarker((UNTHINK,)), prompt=(THINK, A, UNTHINK, A)),
    reasoning("implicit ends", TokenMarker((UNTHINK,)), TokenMarker((A,), implicit=True), TokenMarker((SPACE,), True)),
    reasoning("budget", TokenMarker((A, A, B)), budget=4, excluded_ids=[THINK, B]),
    reasoning("no reasoning", TokenMarker((UNTHINK,)), budget=0),
    reasoning("own terminator", TokenMarker((UNTHINK,)), budget=3, terminator=(SPACE, B, SPACE, A), excluded_ids=[A]),
    reasoning("pattern end", PatternMarker("b[ <]", implicit=True), TokenMarker((A, A)), budget=5),
    reasoning("text end", TextMarker("b<"), TokenMarker((A, A)), budget=5),
]


# --------------------------------------------------------------------------------------------------- random lives

BITMASK = np.zeros((1, VOCABULARY.words), dtype=np.int32)


def row_of(grammar: StructuredOutputGrammar) -> set[int]:
    BITMASK.fill(0x5A5A5A5A)
    masked = grammar.fill_bitmask(BITMASK, 0)
    assert masked == bool((BITMASK != -1).any())
    return set(unpack_ids(BITMASK[0]))


class Pair:
    """A gate and the tokens that it took; everything else is worked out from these."""

    def __init__(self, config: Config, gate: Gate, limit: int | None) -> None:
        self.config, self.gate, self.limit = config, gate, limit
        self.history: list[int] = []
        self.reachable = 0

    def copy(self) -> Pair:
        pair = Pair(self.config, self.gate.fork(), self.limit)
        pair.history, pair.reachable = list(self.history), self.reachable
        return pair

    def prefix(self, tokens: Sequence[int]) -> int:
        """How many of these tokens are legal, one after the other; those behind a stop token do not count."""
        before = self.config.rules.replay(self.history)
        if before.terminated:
            return 0
        return self.config.rules.replay([*self.history, *tokens]).steps - before.steps

    def accept(self, tokens: Sequence[int]) -> None:
        after = self.config.rules.replay([*self.history, *tokens])
        assert self.gate.accept_tokens("r", tokens) == after.legal
        if after.legal:
            self.history = [*self.history, *tokens][: after.steps]
            if self.limit is not None:
                self.reachable = max(self.reachable, len(self.history) - self.limit)

    def rollback(self, steps: int) -> None:
        if 0 <= steps <= len(self.history) - self.reachable:
            self.gate.rollback(steps)
            del self.history[len(self.history) - steps :]
        else:
            with pytest.raises(ValueError, match="cannot roll back"):
                self.gate.rollback(steps)

    def check(self) -> None:
        gate, rules = self.gate, self.config.rules
        at = rules.replay(self.history)
        legal = {id_ for id_ in range(WIDTH) if self.prefix([id_])}
        allowed = rules.stops if at.terminated else legal
        if allowed:
            assert row_of(gate) == allowed
        else:
            with pytest.raises(DeadEnd):
                row_of(gate)
        assert (gate.num_accepted, gate.is_terminated()) == (len(self.history), at.terminated)
        assert gate.is_accepting() == (not at.terminated and bool(legal & rules.stops))
        assert (gate.is_open, gate.opened_at) == (at.region is not None, at.opened_at)
        assert gate.constraint_activated == (at.opened_at is not None)
        assert (gate.error is None) == bool(allowed)


TOKENS = st.one_of(st.sampled_from([A, B, AB, CALL, UNTHINK, UNCALL]), st.integers(-1, WIDTH), st.just(EOS))
BLOCKS = st.lists(TOKENS, max_size=7)


class Lives(RuleBasedStateMachine):
    config: Config
    grammars: CompiledGrammar

    @initialize(limit=st.sampled_from([None, 0, 2, 5]))
    def start(self, limit: int | None) -> None:
        gate = self.config.make(self.grammars.new_grammar(max_rollback=limit))
        self.pairs = [Pair(self.config, gate, limit)]
        self.pairs[0].check()

    def act(self, index: int, call: Callable[[Pair], None]) -> None:
        call(self.pairs[index % len(self.pairs)])
        for pair in self.pairs:
            pair.check()

    @rule(index=st.integers(0, 2), tokens=BLOCKS)
    def accept(self, index: int, tokens: list[int]) -> None:
        self.act(index, lambda pair: pair.accept(tokens))

    @rule(index=st.integers(0, 2), data=st.data())
    def accept_legal(self, index: int, data: Any) -> None:
        def call(pair: Pair) -> None:
            for _ in range(data.draw(st.integers(1, 6))):
                legal = [id_ for id_ in range(SIZE) if pair.prefix([id_])]
                pair.accept([data.draw(st.sampled_from(legal))] if legal else [])

        self.act(index, call)

    @rule(index=st.integers(0, 2), number=st.integers(0, 20))
    def accept_marker(self, index: int, number: int) -> None:
        markers = self.config.rules.markers
        marker = markers[number % len(markers)]
        text = PATTERNS[marker.pattern] if isinstance(marker, PatternMarker) else getattr(marker, "text", "")
        tokens = marker.tokens if isinstance(marker, TokenMarker) else VOCABULARY.spell(text.encode())
        self.act(index, lambda pair: pair.accept(tokens))

    @rule(index=st.integers(0, 2), tokens=BLOCKS)
    def validate(self, index: int, tokens: list[int]) -> None:
        def call(pair: Pair) -> None:
            assert pair.gate.validate_tokens(tokens) == tokens[: pair.prefix(tokens)]

        self.act(index, call)

    @rule(index=st.integers(0, 2), steps=st.integers(-1, 9))
    def rollback(self, index: int, steps: int) -> None:
        self.act(index, lambda pair: pair.rollback(steps))

    @rule(index=st.integers(0, 2))
    def fork(self, index: int) -> None:
        self.pairs = [*self.pairs[:2], self.pairs[index % len(self.pairs)].copy()]

    @rule(index=st.integers(0, 2))
    def reset(self, index: int) -> None:
        def call(pair: Pair) -> None:
            pair.gate.reset()
            pair.history, pair.reachable = [], 0

        self.act(index, call)


SETTINGS = settings(
    derandomize=True,
    max_examples=20,
    stateful_step_count=20,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_j4_whatever_is_called_a_gate_is_where_its_tokens_lead(config: Config) -> None:
    members = {"config": config, "grammars": compiled("outlines")}
    run_state_machine_as_test(type("GateLives", (Lives,), members), settings=SETTINGS)
