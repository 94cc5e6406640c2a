"""G7, G10: the ledger, driven as a host does that leaves grammars advanced until drafts are verified."""

from __future__ import annotations

import random

import numpy as np
import pytest

from grammar_backends import (
    BitmaskBuilder,
    DraftLedger,
    GrammarSpec,
    RowState,
    Vocabulary,
    allocate_bitmask,
    load_backend,
    load_vocabulary,
)
from grammar_backends.contract import unpack_ids
from grammar_backends.errors import GrammarError
from grammar_backends_conformance.laws.batches import Replay

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
SPEC = GrammarSpec.regex("(ab|ac+)+d?")
STOP = 256
DRAFTS = 3


def vocabulary() -> Vocabulary:
    return load_vocabulary("byte")


def ledger(text: str = "", name: str = "xgrammar") -> DraftLedger:
    grammar = load_backend(name, vocabulary()).compile_grammar(SPEC).new_grammar()
    assert grammar.accept_tokens("r", list(text.encode()))
    return DraftLedger(grammar, "r")


@pytest.mark.parametrize("name", BACKENDS)
def test_g7_random_steps_of_target_and_draft_model_keep_grammar_and_history_together(name: str) -> None:
    among = random.Random(7)
    compiled = load_backend(name, vocabulary()).compile_grammar(SPEC)
    truth = Replay(compiled.new_grammar, vocabulary().words)
    builder = BitmaskBuilder(vocabulary(), 1)
    bitmask = allocate_bitmask(1, vocabulary().width)

    def some_token() -> int:
        return among.choice([*b"aabbccd", STOP, ord("x"), 10**6])

    for _ in range(40):
        each, history = DraftLedger(compiled.new_grammar(), "r"), list[int]()
        drafts: list[int] = []
        while len(history) < 25:
            # The target's rows, advanced draft by draft.
            rows, acceptable = [], 0
            each.grammar.fill_bitmask(bitmask, 0)
            rows.append(bitmask.numpy().tobytes())
            for draft in drafts:
                if not each.advance(draft):
                    break
                acceptable += 1
                each.grammar.fill_bitmask(bitmask, 0)
                rows.append(bitmask.numpy().tobytes())
            answer = truth.chain(history, drafts)
            assert (rows, acceptable) == (answer.rows[: acceptable + 1], answer.num_acceptable)
            assert each.num_advanced == acceptable
            accepted = among.randrange(acceptable + 1)
            beyond = each.grammar.is_terminated() and accepted == acceptable and among.random() < 0.5
            each.settle(accepted + beyond)
            history += drafts[:accepted]
            assert each.grammar.num_accepted == len(history)
            seen = truth.after(history)
            assert seen is not None
            if seen.state == RowState.TERMINATED:
                break
            token = among.choice(unpack_ids(np.frombuffer(seen.row, np.int32)))
            each.begin(token)
            history.append(token)
            if token == STOP:
                break
            # The drafting loop, with masks for the draft model.
            drafts, alive = [], True
            for _ in range(among.randrange(DRAFTS + 1)):
                batch = builder.build([each.draft_request()])
                expected = truth.after([*history, *drafts])
                if alive and expected is not None:
                    assert batch.bitmask.tobytes() == expected.row
                else:
                    assert batch.descriptor.states == bytes([RowState.UNCONSTRAINED])
                drafts.append(some_token())
                alive = each.draft(drafts[-1])
                assert each.draft_dead is not alive
            each.end_drafting()
            assert (each.num_advanced_draft, each.draft_dead) == (0, False)
            assert each.grammar.num_accepted == len(history)


def test_g7_counts_that_cannot_be_are_refused_and_change_nothing() -> None:
    each = ledger("a")
    assert [each.advance(token) for token in b"bax"] == [True, True, False]
    assert each.num_advanced == 2
    for wrong in (3, -1):
        with pytest.raises(ValueError, match="accepted drafts of 2"):
            each.settle(wrong)
    with pytest.raises(ValueError, match="not settled"):
        each.begin(ord("b"))
    assert (each.num_advanced, each.grammar.num_accepted) == (2, 3)
    each.settle(1)
    assert (each.num_advanced, each.grammar.num_accepted) == (0, 2)


def test_g7_drafts_accepted_behind_a_stop_token_are_not_counted() -> None:
    each = ledger("ab")
    assert [each.advance(token) for token in (STOP, ord("a"))] == [True, False]
    each.settle(2)
    assert each.grammar.is_terminated()
    assert each.grammar.num_accepted == 3


def test_g7_a_token_against_the_grammar_fails_the_request() -> None:
    with pytest.raises(GrammarError, match="against its mask"):
        ledger("a").begin(ord("x"))


def test_g10_a_dead_draft_goes_on_without_masks_and_leaves_the_target_alone() -> None:
    each = ledger("a")
    assert each.draft_request().grammar is not None
    assert [each.draft(token) for token in b"bxa"] == [True, False, False]
    assert (each.num_advanced_draft, each.draft_dead) == (1, True)
    assert each.draft_request().grammar is None
    each.end_drafting()
    assert each.draft_request().grammar is not None
    assert each.grammar.num_accepted == 1
    ended = ledger("ab")
    assert ended.draft(STOP) is False
    assert (ended.num_advanced_draft, ended.draft_dead) == (1, True)
    assert not ended.grammar.is_terminated()
