"""accept_tokens and validate_tokens: atomic, pure, and of one mind, with stop tokens in every place."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pytest

from grammar_backends.contract import GrammarSpec

if TYPE_CHECKING:
    from tests.backends.conftest import Lab, Sample

BAD_IDS = (-1, -(2**31), 2**31, 2**70)


def test_a1_accept_is_atomic(lab: Lab, word: GrammarSpec) -> None:
    a = lab.encode("a")
    grammar = lab.grammar(word)
    before = lab.state(grammar)
    assert not grammar.accept_tokens("r", a * 2)
    assert lab.state(grammar) == before
    assert grammar.accept_tokens("r", lab.encode("ab"))


def test_a1_a_refused_block_leaves_the_state_after_every_prefix(lab: Lab, sample: Sample) -> None:
    for wrong in sample.wrong:
        tokens = lab.encode(wrong)
        grammar = lab.grammar(sample.spec)
        before = lab.state(grammar)
        assert not grammar.accept_tokens("r", [*tokens, lab.stop])
        assert lab.state(grammar) == before
        legal = grammar.validate_tokens(tokens)
        assert grammar.accept_tokens("r", legal)
        middle = lab.state(grammar)
        assert not grammar.accept_tokens("r", [*tokens[len(legal) :], lab.stop])
        assert lab.state(grammar) == middle


def test_every_text_of_a_language_is_accepted_and_then_stopped(lab: Lab, sample: Sample) -> None:
    for text in sample.texts:
        grammar = lab.grammar(sample.spec, text)
        assert grammar.is_accepting(), text
        assert not grammar.is_terminated()
        assert grammar.accept_tokens("r", [lab.stop])
        assert grammar.is_terminated()


def test_a2_tokens_after_the_stop_token_are_ignored(lab: Lab, runs: GrammarSpec) -> None:
    tokens = lab.encode("ab")
    grammar = lab.grammar(runs)
    assert grammar.accept_tokens("r", [*tokens, lab.stop, *tokens, -1, 2**40, lab.stop])
    assert grammar.is_terminated()
    assert grammar.num_accepted == len(tokens) + 1
    grammar.rollback(len(tokens) + 1)
    assert lab.state(grammar) == lab.state(lab.grammar(runs))


def test_a3_a_terminated_grammar_takes_everything_and_changes_nothing(lab: Lab, runs: GrammarSpec) -> None:
    grammar = lab.grammar(runs, "ab")
    grammar.accept_tokens("r", [lab.stop])
    before = lab.state(grammar)
    for tokens in ([], [lab.stop], lab.encode("a"), [-1], [2**40]):
        assert grammar.accept_tokens("r", tokens)
        assert grammar.validate_tokens(tokens) == []
    assert lab.state(grammar) == before


def test_a4_the_difference_of_num_accepted_is_what_a_caller_rolls_back(lab: Lab, runs: GrammarSpec) -> None:
    grammar = lab.grammar(runs, "a")
    before, count = lab.state(grammar), grammar.num_accepted
    grammar.accept_tokens("r", [*lab.encode("bab"), lab.stop, *lab.encode("bb")])
    grammar.accept_tokens("r", lab.encode("abab"))
    grammar.rollback(grammar.num_accepted - count)
    assert lab.state(grammar) == before


def test_a5_empty_input_changes_nothing_in_any_state(lab: Lab, runs: GrammarSpec) -> None:
    grammar = lab.grammar(runs)
    for tokens in ([], lab.encode("ab"), [lab.stop]):
        assert grammar.accept_tokens("r", tokens)
        before = lab.state(grammar)
        assert grammar.accept_tokens("r", [])
        assert grammar.validate_tokens([]) == []
        grammar.rollback(0)
        assert lab.state(grammar) == before


@pytest.mark.parametrize("bad", BAD_IDS)
def test_a6_a7_bad_ids_are_refused_and_stop_validation(lab: Lab, runs: GrammarSpec, bad: int) -> None:
    tokens = lab.encode("ab")
    grammar = lab.grammar(runs, "a")
    before = lab.state(grammar)
    for block in ([bad], [*tokens, bad], [bad, *tokens], [*tokens, bad, lab.stop]):
        assert not grammar.accept_tokens("r", block)
        assert lab.state(grammar) == before
    assert grammar.validate_tokens([*tokens, bad, *tokens]) == tokens
    assert grammar.validate_tokens([bad]) == []
    assert grammar.accept_tokens("r", [*tokens, lab.stop])


def test_a7_the_first_ids_past_the_tokenizer_and_past_the_row_are_refused(lab: Lab) -> None:
    grammar = lab.grammar(GrammarSpec.regex('[^"]*'))
    vocabulary = lab.vocabulary
    for id_ in range(vocabulary.size, vocabulary.words * 32 + 2):
        assert not grammar.accept_tokens("r", [id_])
        assert grammar.validate_tokens([*lab.encode("a"), id_]) == lab.encode("a")
    assert grammar.num_accepted == 0
    assert grammar.error is None


def test_a8_validate_is_pure_and_maximal(lab: Lab, sample: Sample) -> None:
    for text in (*sample.texts, *sample.wrong):
        tokens = [*lab.encode(text), lab.stop, *lab.encode("a")]
        grammar = lab.grammar(sample.spec)
        before = lab.state(grammar)
        legal = grammar.validate_tokens(tokens)
        assert lab.state(grammar) == before
        assert legal == tokens[: len(legal)]
        assert grammar.accept_tokens("r", legal)
        assert grammar.num_accepted == len(legal)
        if not grammar.is_terminated():
            assert not grammar.accept_tokens("r", tokens[len(legal) : len(legal) + 1])
        assert (lab.stop in legal) == (text in sample.texts)


def test_a8_validate_ends_with_the_legal_stop_token(lab: Lab, word: GrammarSpec) -> None:
    b = lab.grammar(word, "a").validate_tokens([*lab.encode("b"), lab.stop, lab.stop])
    assert b == [*lab.encode("b"), lab.stop]
    assert lab.grammar(word).validate_tokens([lab.stop]) == []
    assert lab.grammar(word, "ab").validate_tokens([lab.stop, lab.stop]) == [lab.stop]


def test_a9_a_stop_token_is_legal_only_while_accepting(lab: Lab, word: GrammarSpec) -> None:
    grammar = lab.grammar(word)
    for text in ("a", "b"):
        assert not grammar.is_accepting()
        assert not grammar.accept_tokens("r", [lab.stop])
        assert lab.stop not in lab.allowed(grammar)
        grammar.accept_tokens("r", lab.encode(text))
    assert grammar.is_accepting()
    count = grammar.num_accepted
    assert grammar.accept_tokens("r", [lab.stop])
    assert grammar.num_accepted == count + 1
    assert not grammar.is_accepting()


def test_a9_the_stop_reading_wins_over_a_text_reading(lab: Lab, runs: GrammarSpec) -> None:
    a, b = lab.encode("a")[0], lab.encode("b")[0]
    grammar = lab.grammar(runs, stop_token_ids=[b])
    assert b not in lab.allowed(grammar)
    assert not grammar.accept_tokens("r", [b])
    assert grammar.accept_tokens("r", [a, b, a])
    assert grammar.is_terminated()
    assert grammar.num_accepted == 2


def test_a9_no_text_can_terminate_a_grammar_and_no_stop_text_completes_one(tricky_lab: Lab) -> None:
    # The text of this vocabulary's stop token is "b".
    grammar = tricky_lab.grammar(GrammarSpec.regex(".+"))
    assert tricky_lab.stop not in tricky_lab.allowed(grammar)
    assert not grammar.accept_tokens("r", [tricky_lab.stop])
    assert grammar.accept_tokens("r", [tricky_lab.token(b"b")])
    assert not grammar.is_terminated()


@pytest.mark.parametrize("own", [False, True], ids=["defaults", "own stops"])
def test_a10_a31_every_stop_id_is_masked_until_accepting_and_any_one_terminates(
    lab: Lab, word: GrammarSpec, own: bool
) -> None:
    text = lab.encode("z")[0]
    special = max(lab.vocabulary.special_ids - lab.vocabulary.stop_set)
    stops = (text, special) if own else lab.vocabulary.stop_ids
    grammar = lab.grammar(word, "a", stop_token_ids=stops)
    assert not lab.allowed(grammar) & set(stops)
    grammar.accept_tokens("r", lab.encode("b"))
    assert lab.allowed(grammar) == set(stops)
    for stop in stops:
        fork = grammar.fork()
        assert fork.validate_tokens([stop, *stops]) == [stop]
        assert fork.accept_tokens("r", [stop, *stops])
        assert fork.is_terminated()
        assert fork.num_accepted == grammar.num_accepted + 1
        assert lab.allowed(fork) == set(stops)


def test_a10_the_vocabularys_own_stop_ids_are_illegal_under_others(lab: Lab, runs: GrammarSpec) -> None:
    other = max(lab.vocabulary.special_ids - lab.vocabulary.stop_set)
    grammar = lab.grammar(runs, "ab", stop_token_ids=[other])
    before = lab.state(grammar)
    for stop in lab.vocabulary.stop_ids:
        assert stop not in before.allowed
        assert grammar.validate_tokens([stop]) == []
        assert grammar.validate_tokens([*lab.encode("a"), stop, other]) == lab.encode("a")
        assert not grammar.accept_tokens("r", [stop])
        assert not grammar.accept_tokens("r", [*lab.encode("a"), stop])
        assert lab.state(grammar) == before
    assert grammar.accept_tokens("r", [other])


def test_a10_stop_ids_of_one_request_do_not_reach_another(lab: Lab, runs: GrammarSpec) -> None:
    other = max(lab.vocabulary.special_ids - lab.vocabulary.stop_set)
    own = lab.grammar(runs, "a", stop_token_ids=[other])
    default = lab.grammar(runs, "a")
    assert other in lab.allowed(own)
    assert other not in lab.allowed(default)
    assert lab.vocabulary.stop_set <= lab.allowed(default)


def test_a10_no_stop_ids_of_its_own_means_the_vocabularys(lab: Lab, runs: GrammarSpec) -> None:
    assert lab.state(lab.grammar(runs, "a", stop_token_ids=[])) == lab.state(lab.grammar(runs, "a"))


def test_a11_a_complete_text_is_accepting_and_not_terminated(lab: Lab, word: GrammarSpec) -> None:
    grammar = lab.grammar(word, "ab")
    assert grammar.is_accepting()
    assert not grammar.is_terminated()
    assert not grammar.accept_tokens("r", lab.encode("a"))


def test_a20_no_token_content_raises(lab: Lab, record: GrammarSpec) -> None:
    grammar = lab.grammar(record, '{"name": "')
    blocks = [[bad] * 3 for bad in (*BAD_IDS, lab.vocabulary.width, lab.stop, *lab.vocabulary.special_ids)][:40]
    for block in blocks:
        grammar.accept_tokens("r", block)
        grammar.validate_tokens(block)
        assert not grammar.is_terminated()
        assert not grammar.is_accepting()
    assert grammar.error is None


def test_a20_numpy_ids_are_ids(lab: Lab, runs: GrammarSpec) -> None:
    tokens = lab.encode("abab")
    grammar = lab.grammar(runs)
    assert grammar.validate_tokens(np.array(tokens)) == tokens
    assert grammar.accept_tokens("r", np.array(tokens[:1]))
    assert grammar.accept_tokens("r", np.array([*tokens, lab.stop], dtype=np.int32))
    assert grammar.is_terminated()


def test_a21_rejections_log_nothing(
    lab: Lab, runs: GrammarSpec, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    # One line for each refused token, as xgrammar itself writes, would flood a server.
    grammar = lab.grammar(runs, "abc")
    control = max(lab.vocabulary.special_ids - lab.vocabulary.stop_set)
    for tokens in (lab.encode("a"), [-1], [2**40], [lab.stop, *lab.encode("z")], lab.encode("z"), [control]):
        grammar.validate_tokens(tokens)
        grammar.accept_tokens("r", tokens)
    out, err = capfd.readouterr()
    assert (out, err, caplog.text) == ("", "", "")


def test_a22_num_accepted_is_the_length_of_the_live_history(lab: Lab, runs: GrammarSpec) -> None:
    grammar = lab.grammar(runs)
    tokens = lab.encode("ababab")
    assert grammar.num_accepted == 0
    grammar.accept_tokens("r", tokens)
    assert grammar.num_accepted == len(tokens)
    grammar.accept_tokens("r", [lab.illegal(grammar)])
    assert grammar.num_accepted == len(tokens)
    grammar.accept_tokens("r", [lab.stop])
    assert grammar.num_accepted == len(tokens) + 1
    grammar.rollback(2)
    assert grammar.num_accepted == len(tokens) - 1


def test_a34_a_multi_token_block_equals_its_tokens_one_by_one(lab: Lab, sample: Sample) -> None:
    for text in sample.texts:
        at_once, one_by_one = lab.grammar(sample.spec, text), lab.grammar(sample.spec)
        for token in lab.encode(text):
            assert one_by_one.accept_tokens("r", [token])
        assert lab.state(one_by_one) == lab.state(at_once)


def test_a35_the_request_id_matters_nowhere(lab: Lab, runs: GrammarSpec) -> None:
    one, other = lab.grammar(runs), lab.grammar(runs)
    for request_id in ("x", "", "y\n"):
        one.accept_tokens(request_id, lab.encode("ab"))
        other.accept_tokens("same", lab.encode("ab"))
    assert lab.state(one) == lab.state(other)
