"""Random lives of grammars against an oracle: small deterministic automata written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from grammar_backends.contract import Grammar, GrammarSpec, allocate_bitmask, unpack_ids

if TYPE_CHECKING:
    from tests.backends.conftest import Lab


@dataclass(frozen=True)
class Automaton:
    """The same language as `pattern`: byte moves of each state, and the states that accept. 0 is the start."""

    pattern: str
    moves: Mapping[int, Mapping[int, int]]
    accepting: frozenset[int]


def moves(**by_state: dict[str, int]) -> dict[int, dict[int, int]]:
    return {int(state[1:]): {ord(text): to for text, to in row.items()} for state, row in by_state.items()}


AUTOMATA = [
    Automaton("[ab]+c?", moves(s0={"a": 1, "b": 1}, s1={"a": 1, "b": 1, "c": 2}, s2={}), frozenset({1, 2})),
    Automaton("(abc|ad)*", moves(s0={"a": 1}, s1={"b": 2, "d": 0}, s2={"c": 0}), frozenset({0})),
    Automaton("(é|a)b{1,2}", {0: {0xC3: 1, 97: 2}, 1: {0xA9: 2}, 2: {98: 3}, 3: {98: 4}, 4: {}}, frozenset({3, 4})),
]
STOP, OTHER_STOP = 256, 259
ALPHABET = [*b"abcd", 0xC3, 0xA9]
TOKENS = st.one_of(
    st.sampled_from(ALPHABET),
    st.sampled_from(ALPHABET),
    st.sampled_from([STOP, OTHER_STOP, 257, 263, 400, -1, -5, 2**40]),
)
BLOCKS = st.lists(TOKENS, max_size=6)


@dataclass
class Oracle:
    """What a grammar must do, over the list of states it went through."""

    automaton: Automaton
    stops: frozenset[int]
    limit: int | None
    states: list[int]
    terminated: bool = False
    floor: int = 0

    @property
    def length(self) -> int:
        return len(self.states) - 1 + self.terminated

    @property
    def accepting(self) -> bool:
        return not self.terminated and self.states[-1] in self.automaton.accepting

    @property
    def allowed(self) -> set[int]:
        if self.terminated:
            return set(self.stops)
        text = set(self.automaton.moves[self.states[-1]]) - self.stops
        return text | (self.stops if self.accepting else frozenset())

    def legal(self, tokens: list[int]) -> tuple[list[int], list[int], bool]:
        """The longest legal prefix, the states after each of its text tokens, whether it terminates."""
        states = [self.states[-1]]
        for index, token in enumerate(tokens):
            if token in self.stops:
                stopped = states[-1] in self.automaton.accepting
                return tokens[: index + stopped], states[1:], stopped
            following = self.automaton.moves[states[-1]].get(token)
            if following is None or token == STOP:
                return tokens[:index], states[1:], False
            states.append(following)
        return tokens, states[1:], False

    def accept(self, tokens: list[int]) -> bool:
        if self.terminated:
            return True
        prefix, states, stopped = self.legal(tokens)
        if len(prefix) != len(tokens) and not stopped:
            return False
        self.states += states
        self.terminated = stopped
        if self.limit is not None:
            self.floor = max(self.floor, self.length - self.limit)
        return True

    def can_roll_back(self, steps: int) -> bool:
        return 0 <= steps <= self.length - self.floor

    def rollback(self, steps: int) -> None:
        text = steps - self.terminated if steps else 0
        self.terminated = self.terminated and not steps
        del self.states[len(self.states) - text :]

    def copy(self) -> Oracle:
        return Oracle(self.automaton, self.stops, self.limit, [*self.states], self.terminated, self.floor)


class Lives(RuleBasedStateMachine):
    """One grammar and up to three forks of it, each with its oracle."""

    lab: Lab

    @initialize(
        automaton=st.sampled_from(AUTOMATA),
        stops=st.sampled_from([(), (OTHER_STOP,), (STOP, OTHER_STOP), (98, OTHER_STOP)]),
        limit=st.sampled_from([None, None, 0, 1, 3]),
    )
    def start(self, automaton: Automaton, stops: tuple[int, ...], limit: int | None) -> None:
        compiled = self.lab.compile(GrammarSpec.regex(automaton.pattern))
        grammar = compiled.new_grammar(stop_token_ids=stops, max_rollback=limit)
        self.pairs: list[tuple[Grammar, Oracle]] = [
            (grammar, Oracle(automaton, frozenset(stops or (STOP,)), limit, [0]))
        ]
        self.bitmask = allocate_bitmask(4, self.lab.vocabulary.width)

    def pick(self, index: int) -> tuple[Grammar, Oracle]:
        return self.pairs[index % len(self.pairs)]

    @rule(index=st.integers(0, 3), tokens=BLOCKS)
    def accept(self, index: int, tokens: list[int]) -> None:
        grammar, oracle = self.pick(index)
        assert grammar.accept_tokens("r", tokens) == oracle.accept(tokens)

    @rule(index=st.integers(0, 3), data=st.data())
    def accept_legal(self, index: int, data: Any) -> None:
        grammar, oracle = self.pick(index)
        token = data.draw(st.sampled_from(sorted(oracle.allowed) or [STOP]))
        assert grammar.accept_tokens("r", [token]) == oracle.accept([token])

    @rule(index=st.integers(0, 3), tokens=BLOCKS)
    def validate(self, index: int, tokens: list[int]) -> None:
        grammar, oracle = self.pick(index)
        assert grammar.validate_tokens(tokens) == ([] if oracle.terminated else oracle.legal(tokens)[0])

    @rule(index=st.integers(0, 3), steps=st.integers(-1, 12))
    def rollback(self, index: int, steps: int) -> None:
        grammar, oracle = self.pick(index)
        if oracle.can_roll_back(steps):
            grammar.rollback(steps)
            oracle.rollback(steps)
        else:
            with pytest.raises(ValueError, match="cannot roll back"):
                grammar.rollback(steps)

    @precondition(lambda self: len(self.pairs) < 4)
    @rule(index=st.integers(0, 3))
    def fork(self, index: int) -> None:
        grammar, oracle = self.pick(index)
        self.pairs.append((grammar.fork(), oracle.copy()))

    @rule(index=st.integers(0, 3))
    def reset(self, index: int) -> None:
        grammar, oracle = self.pick(index)
        grammar.reset()
        self.pairs[index % len(self.pairs)] = grammar, Oracle(oracle.automaton, oracle.stops, oracle.limit, [0])

    @invariant()
    def agrees(self) -> None:
        for row, (grammar, oracle) in enumerate(self.pairs):
            assert grammar.num_accepted == oracle.length
            assert grammar.is_terminated() == oracle.terminated
            assert grammar.is_accepting() == oracle.accepting
            assert grammar.error is None
            if not oracle.allowed:  # the request's stop tokens took every way on
                continue
            grammar.fill_bitmask(self.bitmask, row)
            assert set(unpack_ids(self.bitmask[row])) == oracle.allowed


def test_a1_to_a25_random_lives_agree_with_hand_written_automata(byte_lab: Lab) -> None:
    machine = type("Lives", (Lives,), {"lab": byte_lab})
    bounds = settings(
        derandomize=True,
        max_examples=120,
        stateful_step_count=25,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=bounds)
