"""rollback: exact to every depth, over termination, and checked before the engine sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grammar_backends.contract import GrammarSpec

if TYPE_CHECKING:
    from tests.backends.conftest import Lab, Sample


def test_a15_a16_rollback_restores_every_state_bit_by_bit(lab: Lab, sample: Sample) -> None:
    tokens = [*lab.encode(max(sample.texts, key=len)), lab.stop]
    grammar = lab.grammar(sample.spec)
    history = [lab.state(grammar)]
    for token in tokens:
        assert grammar.accept_tokens("r", [token])
        history.append(lab.state(grammar))
    for depth in range(len(tokens) + 1):
        grammar.rollback(depth)
        assert lab.state(grammar) == history[len(tokens) - depth]
        assert grammar.accept_tokens("r", tokens[len(tokens) - depth :])
        assert lab.state(grammar) == history[-1]


def test_a15_a_rolled_back_branch_leaves_no_trace(lab: Lab, record: GrammarSpec) -> None:
    grammar = lab.grammar(record, '{"name": "')
    start = lab.state(grammar)
    for text in ("abc", 'x", "n": 12', 'é", "n": 5, "ok": true}'):
        count = grammar.num_accepted
        assert grammar.accept_tokens("r", lab.encode(text))
        grammar.rollback(grammar.num_accepted - count)
        assert lab.state(grammar) == start
    assert grammar.accept_tokens("r", [*lab.encode('z", "n": 3}'), lab.stop])


@pytest.mark.parametrize("extendable", [True, False])
def test_a16_the_stop_token_is_one_step(lab: Lab, runs: GrammarSpec, word: GrammarSpec, extendable: bool) -> None:
    grammar = lab.grammar(runs if extendable else word, "ab")
    before = lab.state(grammar)
    for _ in range(3):
        assert grammar.accept_tokens("r", [lab.stop])
        grammar.rollback(1)
        assert lab.state(grammar) == before
    assert grammar.accept_tokens("r", lab.encode("a")) == extendable


def test_a16_rollback_over_termination_and_text_together(lab: Lab, word: GrammarSpec) -> None:
    grammar = lab.grammar(word)
    start = lab.state(grammar)
    block = [*lab.encode("ab"), lab.stop]
    for _ in range(3):
        assert grammar.accept_tokens("r", block)
        grammar.rollback(len(block))
        assert lab.state(grammar) == start


@pytest.mark.parametrize("terminated", [False, True])
def test_a17_rollback_beyond_history_or_negative_raises_and_changes_nothing(
    lab: Lab, runs: GrammarSpec, terminated: bool
) -> None:
    grammar = lab.grammar(runs, "ab")
    if terminated:
        grammar.accept_tokens("r", [lab.stop])
    before = lab.state(grammar)
    for steps in (grammar.num_accepted + 1, 10**9, -1, -(10**9)):
        with pytest.raises(ValueError, match="cannot roll back"):
            grammar.rollback(steps)
        assert lab.state(grammar) == before
    grammar.rollback(grammar.num_accepted)
    assert lab.state(grammar) == lab.state(lab.grammar(runs))


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a17_a27_rollback_reaches_max_rollback_and_no_further(lab: Lab, runs: GrammarSpec, limit: int) -> None:
    tokens = [lab.encode("a")[0], lab.encode("b")[0]] * 5
    history = [lab.state(lab.grammar(runs))]
    grammar = lab.grammar(runs, max_rollback=limit)
    for token in tokens:
        grammar.accept_tokens("r", [token])
        history.append(lab.state(grammar))
    with pytest.raises(ValueError, match=f"max_rollback is {limit}"):
        grammar.rollback(limit + 1)
    assert lab.state(grammar) == history[-1]
    grammar.rollback(limit)
    assert lab.state(grammar) == history[len(tokens) - limit]
    with pytest.raises(ValueError, match="cannot roll back"):
        grammar.rollback(1)


def test_a17_a_refused_block_longer_than_max_rollback_is_undone(lab: Lab, runs: GrammarSpec) -> None:
    grammar = lab.grammar(runs, "ab", max_rollback=1)
    block = [lab.encode("a")[0]] * 200
    for _ in range(3):
        before = lab.state(grammar)
        assert not grammar.accept_tokens("r", [*block, lab.illegal(grammar)])
        assert not grammar.accept_tokens("r", [*block, -1])
        assert grammar.validate_tokens([*block, lab.stop]) == [*block, lab.stop]
        assert lab.state(grammar) == before
        assert grammar.accept_tokens("r", block)


def test_a17_max_rollback_must_not_be_negative(lab: Lab, runs: GrammarSpec) -> None:
    with pytest.raises(ValueError, match="max_rollback"):
        lab.compile(runs).new_grammar(max_rollback=-1)


def test_a27_a_speculation_window_and_its_stop_token_fit_into_the_budget(lab: Lab, runs: GrammarSpec) -> None:
    drafts = [lab.encode("a")[0]] * 4
    grammar = lab.grammar(runs, "ab" * 20, max_rollback=len(drafts) + 1)
    before = lab.state(grammar)
    for _ in range(3):
        assert grammar.accept_tokens("r", [*drafts, lab.stop])
        grammar.rollback(len(drafts) + 1)
        assert lab.state(grammar) == before


def test_a27_unbounded_rollback_reaches_the_start_of_a_long_history(byte_lab: Lab, runs: GrammarSpec) -> None:
    grammar = byte_lab.grammar(runs, "ab" * 1_000)
    assert grammar.max_rollback is None
    grammar.rollback(2_000)
    assert byte_lab.state(grammar) == byte_lab.state(byte_lab.grammar(runs))
