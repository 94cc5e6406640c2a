"""Drafts before and after verification: trimming, padding, the commit rule, verification in sequence."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from grammar_backends import (
    Commit,
    CommitReason,
    GrammarSpec,
    StructuredOutputGrammar,
    allocate_bitmask,
    commit_tokens,
    load_backend,
    load_vocabulary,
    trim_drafts,
    verify_in_sequence,
)
from grammar_backends.contract import unpack_ids
from grammar_backends.errors import DeadEnd

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
STOP = 256
ALL, TERMINATED = CommitReason.ALL, CommitReason.TERMINATED
ILLEGAL, FAILED = CommitReason.ILLEGAL, CommitReason.FAILED


@functools.cache
def compiled(name: str, spec: GrammarSpec) -> Any:
    return load_backend(name, load_vocabulary("byte")).compile_grammar(spec)


def grammar(name: str, text: str = "") -> StructuredOutputGrammar:
    made: StructuredOutputGrammar = compiled(name, GrammarSpec.regex("ab+c?")).new_grammar()
    assert made.accept_tokens("r", ids(text))
    return made


def ids(text: str) -> list[int]:
    """Token ids of a text in which "$" is the stop token and "-" is padding."""
    return [{"$": STOP, "-": -1}.get(letter, ord(letter)) for letter in text]


@pytest.mark.parametrize("name", BACKENDS)
def test_g1_trim_keeps_the_legal_prefix_and_on_request_the_first_illegal_draft(name: str) -> None:
    each = grammar(name, "a")
    assert trim_drafts(each, ids("bbxb")) == (ids("bb"), 2, 2)
    assert trim_drafts(each, ids("bbxb"), keep_first_invalid=True) == (ids("bbx"), 2, 2)
    assert trim_drafts(each, ids("bc$"), keep_first_invalid=True) == (ids("bc$"), 3, 0)
    assert trim_drafts(each, ids("bc$b"), keep_first_invalid=True) == (ids("bc$b"), 3, 1)
    assert trim_drafts(each, []) == ([], 0, 0)
    assert each.num_accepted == 1


def test_g1_padding_fills_the_places_that_were_laid_out() -> None:
    trimmed = trim_drafts(grammar("xgrammar"), ids("axb"))
    assert trimmed.padded(3) == ids("a--")
    with pytest.raises(ValueError, match="do not fit"):
        trimmed.padded(0)


def test_g2_drafts_beyond_the_scheduled_number_and_behind_padding_do_not_count() -> None:
    assert trim_drafts(grammar("xgrammar"), ids("abxx"), limit=3) == (ids("ab"), 2, 1)
    assert trim_drafts(grammar("xgrammar"), ids("ax-b")) == (ids("a"), 1, 1)
    assert trim_drafts(None, ids("ax-b")) == (ids("ax"), 2, 0)
    assert trim_drafts(None, ids("ab"), limit=-1) == ([], 0, 0)  # what is left of a length may be less than nothing


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_g1_drafts_may_be_those_of_arrays_and_tensors(kind: Any) -> None:
    for each in (None, grammar("xgrammar")):
        trimmed = trim_drafts(each, kind(ids("ab-x")))
        assert trimmed == (ids("ab"), 2, 0)
        assert set(map(type, trimmed.tokens)) == {int}


def test_g4_drafts_of_another_step_are_all_invalid() -> None:
    each = grammar("xgrammar", "a")
    assert trim_drafts(each, ids("bb"), made_at=1) == (ids("bb"), 2, 0)
    assert trim_drafts(each, ids("bb"), made_at=0) == ([], 0, 2)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("tokens", "kept", "reason"),
    [
        ("ab", 2, ALL),
        ("", 0, ALL),
        ("-a", 0, ALL),
        ("ab-x", 2, ALL),
        ("axb", 1, ILLEGAL),
        ("x", 0, ILLEGAL),
        ("a$", 1, ILLEGAL),
        ("ab$", 3, TERMINATED),
        ("abc$xa", 4, TERMINATED),
    ],
)
def test_g5_a_commit_keeps_the_longest_legal_prefix(name: str, tokens: str, kept: int, reason: CommitReason) -> None:
    each = grammar(name)
    assert commit_tokens(each, "r", ids(tokens)) == Commit(kept, reason)
    assert each.num_accepted == kept


@pytest.mark.parametrize("name", BACKENDS)
def test_g5_nothing_is_kept_behind_the_end_or_an_error(name: str) -> None:
    ended = grammar(name, "ab$")
    assert commit_tokens(ended, "r", ids("a")) == (0, TERMINATED)
    assert ended.num_accepted == 3
    dead = compiled("xgrammar", GrammarSpec.choice(["ab", "bb"])).new_grammar(stop_token_ids=ids("b"))
    assert commit_tokens(dead, "r", ids("a")) == (1, ALL)
    with pytest.raises(DeadEnd):
        dead.fill_bitmask(allocate_bitmask(1, load_vocabulary("byte").width), 0)
    assert commit_tokens(dead, "r", ids("b")) == (0, FAILED)


class Model:
    """Samples the letters of a text; where the row forbids the next one, the smallest token that it allows."""

    def __init__(self, text: str) -> None:
        self.bitmask = allocate_bitmask(1, load_vocabulary("byte").width)
        self.text = text
        self.asked: list[tuple[int, bool]] = []

    def __call__(self, position: int, masked: bool) -> int:
        self.asked.append((position, masked))
        wanted = ids(self.text)[position]
        if not masked:
            return wanted
        allowed = unpack_ids(self.bitmask[0])
        return wanted if wanted in allowed else allowed[0]


def verified(name: str, model: Model, drafts: str, before: str = "", **options: Any) -> tuple[str, CommitReason, int]:
    each = grammar(name, before)
    tokens, reason = verify_in_sequence(each, "r", ids(drafts), model, model.bitmask, **options)
    assert each.num_accepted == len(before) + len(tokens)
    return "".join("$" if token == STOP else chr(token) for token in tokens), reason, len(model.asked)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("mask_first", [True, False])
def test_g9_positions_are_sampled_one_by_one_until_the_draft_is_left(name: str, mask_first: bool) -> None:
    options = {"mask_first": mask_first}
    assert verified(name, Model("abbb"), "abb", **options) == ("abbb", ALL, 4)
    assert verified(name, Model("abc"), "abb", **options) == ("abc", ALL, 3)
    assert verified(name, Model("ab"), "", **options) == ("a", ALL, 1)
    assert verified(name, Model("ab$x"), "ab$x", **options) == ("ab$", TERMINATED, 3)
    assert verified(name, Model("x"), "ab", before="ab$", **options) == ("", TERMINATED, 0)


@pytest.mark.parametrize("name", BACKENDS)
def test_g9_a_first_choice_that_the_grammar_refuses_is_sampled_again_by_the_row(name: str) -> None:
    model = Model("xbb")
    assert verified(name, model, "ab", mask_first=False) == ("abb", ALL, 4)
    assert model.asked == [(0, False), (0, True), (1, False), (2, False)]


def test_g9_a_token_sampled_against_its_row_and_a_dead_end_end_the_step() -> None:
    model = Model("")
    against: Sequence[int] = ids("ax")
    each = grammar("xgrammar")
    tokens, reason = verify_in_sequence(each, "r", ids("ab"), lambda at, _: against[at], model.bitmask)
    assert (tokens, reason) == (ids("a"), ILLEGAL)
    assert verify_in_sequence(each, "r", ids("-"), lambda *_: -1, model.bitmask) == ([], ILLEGAL)
    dead = compiled("xgrammar", GrammarSpec.choice(["ab", "bb"])).new_grammar(stop_token_ids=ids("b"))
    tokens, reason = verify_in_sequence(dead, "r", ids("ab"), lambda at, _: against[at], model.bitmask)
    assert (tokens, reason) == (ids("a"), FAILED)
