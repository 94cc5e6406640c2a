"""Replayed requests stand where live ones do (E17); a failure seen as a grammar never looks like success (E18)."""

from __future__ import annotations

import numpy as np
import pytest

from grammar_backends import GrammarSpec, StructuredOutputGrammar, load_backend, load_vocabulary
from grammar_backends.compilation import AbortedGrammar, replay_tokens
from grammar_backends.contract import CompiledGrammar
from grammar_backends.decoding import BitmaskBuilder, MaskRequest, RowState, fill_bitmasks
from grammar_backends.errors import DeadEnd, GrammarError, SpecError

VOCABULARY = load_vocabulary("byte")
TEXT = '{"a": [1, 22, 333]}'
TOKENS = [*VOCABULARY.encode(TEXT), VOCABULARY.stop_ids[0]]


@pytest.fixture(scope="module", params=["xgrammar", "guidance", "outlines"])
def compiled(request: pytest.FixtureRequest) -> CompiledGrammar:
    spec = GrammarSpec.regex(r'\{"a": \[\d+(, \d+)*\]\}')
    return load_backend(request.param, VOCABULARY).compile_grammar(spec)


def seen(grammar: StructuredOutputGrammar) -> tuple[object, ...]:
    row = np.zeros((1, VOCABULARY.words), dtype=np.int32)
    grammar.fill_bitmask(row, 0)
    return row.tobytes(), grammar.num_accepted, grammar.is_terminated(), grammar.is_accepting()


def test_e17_a_replayed_grammar_stands_where_the_live_one_does_and_goes_on_alike(compiled: CompiledGrammar) -> None:
    live = compiled.new_grammar()
    for end in range(len(TOKENS) + 1):
        replayed = replay_tokens(compiled.new_grammar(), "r", TOKENS[:end])
        assert seen(replayed) == seen(live)
        replayed.rollback(end // 2)
        live.rollback(end // 2)
        assert seen(replayed) == seen(live)
        for token in TOKENS[end - end // 2 : end + 1]:
            assert live.accept_tokens("r", [token])


def test_e17_tokens_after_the_stop_token_are_ignored_as_they_were_live(compiled: CompiledGrammar) -> None:
    grammar = replay_tokens(compiled.new_grammar(), "r", [*TOKENS, 65, 66])
    assert grammar.is_terminated()
    assert grammar.num_accepted == len(TOKENS)


def test_e17_no_token_is_accepted_twice(compiled: CompiledGrammar) -> None:
    grammar = replay_tokens(compiled.new_grammar(), "r", TOKENS[:3])
    with pytest.raises(ValueError, match="has 3 tokens already"):
        replay_tokens(grammar, "r", TOKENS[:3])
    assert grammar.num_accepted == 3


@pytest.mark.parametrize("wrong", [65, -1, 10**9])
def test_e17_tokens_of_another_language_are_named_and_change_nothing(compiled: CompiledGrammar, wrong: int) -> None:
    grammar = compiled.new_grammar()
    with pytest.raises(GrammarError, match=f"token 4 of the 6 generated before, {wrong}, is not legal"):
        replay_tokens(grammar, "r", [*TOKENS[:4], wrong, 65])
    assert seen(grammar) == seen(compiled.new_grammar())


def test_e17_a_bounded_rollback_reaches_back_into_replayed_tokens(compiled: CompiledGrammar) -> None:
    grammar = replay_tokens(compiled.new_grammar(max_rollback=2), "r", TOKENS[:9])
    grammar.rollback(2)
    assert seen(grammar) == seen(replay_tokens(compiled.new_grammar(), "r", TOKENS[:7]))
    with pytest.raises(ValueError, match="max_rollback"):
        grammar.rollback(1)


def test_e18_an_aborted_grammar_is_a_grammar_in_its_error_state() -> None:
    reason = SpecError("choice: the list is empty")
    grammar = AbortedGrammar(reason)
    assert isinstance(grammar, StructuredOutputGrammar)
    assert grammar.error.__cause__ is reason
    assert "the list is empty" in str(grammar.error)
    for step in (grammar.reset, lambda: grammar.rollback(0), grammar.fork):
        step()
        assert not grammar.accept_tokens("r", [1])
        assert not grammar.accept_tokens("r", [])
        assert grammar.validate_tokens([1]) == []
        assert not grammar.is_terminated()
        assert not grammar.is_accepting()
        assert (grammar.num_accepted, grammar.forced_tokens(), grammar.forced_bytes()) == (0, [], b"")
        with pytest.raises(GrammarError, match="there is no grammar"):
            grammar.fill_bitmask(np.zeros((1, 1), dtype=np.int32), 0)
    with pytest.raises(ValueError, match="cannot roll back"):
        grammar.rollback(1)


def test_e18_an_aborted_grammar_in_a_batch_fails_alone(compiled: CompiledGrammar) -> None:
    bitmask = np.zeros((2, VOCABULARY.words), dtype=np.int32)
    outcomes = fill_bitmasks([AbortedGrammar(DeadEnd("x")), compiled.new_grammar()], bitmask)
    assert [type(outcome) for outcome in outcomes] == [GrammarError, type(None)]
    assert bitmask[1].any()
    builder = BitmaskBuilder(VOCABULARY, max_num_seqs=2)
    batch = builder.build([MaskRequest("a", AbortedGrammar(DeadEnd("x"))), MaskRequest("b", compiled.new_grammar())])
    assert [report.state for report in batch.reports] == [RowState.FAILED, RowState.CONSTRAINED]
    assert "there is no grammar" in str(batch.errors["a"])
