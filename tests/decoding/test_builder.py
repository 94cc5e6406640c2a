"""BitmaskBuilder: layouts, row states and reports, each seen on small hand-written cases with real engines."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from grammar_backends import (
    BitmaskBuilder,
    DraftTree,
    GrammarSpec,
    MaskRequest,
    RowState,
    StructuredOutputGrammar,
    Vocabulary,
    load_backend,
    load_vocabulary,
)
from grammar_backends.contract import unpack_ids

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
SPEC = GrammarSpec.regex("ab+c?")
STOP = 256
OPEN, HELD, ENDED = RowState.UNCONSTRAINED, RowState.CONSTRAINED, RowState.TERMINATED
DEAD, NEVER = RowState.DEAD, RowState.UNREACHABLE


@functools.cache
def vocabulary() -> Vocabulary:
    return load_vocabulary("byte")


@functools.cache
def compiled(name: str, spec: GrammarSpec = SPEC) -> Any:
    return load_backend(name, vocabulary()).compile_grammar(spec)


def grammar(name: str, text: str = "", stop: bool = False, **options: Any) -> StructuredOutputGrammar:
    made: StructuredOutputGrammar = compiled(name).new_grammar(**options)
    assert made.accept_tokens("r", [*text.encode(), *[STOP] * stop])
    return made


def builder(num_draft_tokens: int = 0, **options: Any) -> BitmaskBuilder:
    return BitmaskBuilder(vocabulary(), 4, num_draft_tokens, **options)


def shown(bitmask: np.ndarray[Any, Any]) -> list[str]:
    """Rows as text: what they allow, "$" for the stop token, "*" for all ones."""
    return [
        "*" if (row == -1).all() else "".join("$" if i == STOP else chr(i) for i in unpack_ids(row)) for row in bitmask
    ]


def ids(text: str) -> list[int]:
    """Token ids of a text in which "$" is the stop token and "-" is padding."""
    return [{"$": STOP, "-": -1}.get(letter, ord(letter)) for letter in text]


def chain(name: str, drafts: str, text: str = "", **options: Any) -> tuple[list[str], list[RowState], int]:
    each = grammar(name, text)
    before = each.num_accepted, each.is_terminated(), each.is_accepting()
    batch = builder(4, **options).build([MaskRequest("r", each, ids(drafts))])
    assert (each.num_accepted, each.is_terminated(), each.is_accepting()) == before
    about = batch.descriptor
    return shown(batch.bitmask), [RowState(state) for state in about.states], about.num_acceptable[0]


@pytest.mark.parametrize("name", BACKENDS)
def test_f7_each_row_holds_what_may_follow_the_drafts_before_it(name: str) -> None:
    assert chain(name, "abc") == (["a", "b", "bc$", "$"], [HELD] * 4, 3)
    assert chain(name, "bc", "a") == (["b", "bc$", "$"], [HELD] * 3, 2)
    assert chain(name, "") == (["a"], [HELD], 0)


@pytest.mark.parametrize("name", BACKENDS)
def test_f8_rows_behind_an_illegal_draft_repeat_the_last_legal_one(name: str) -> None:
    assert chain(name, "aacb") == (["a", "b", "b", "b", "b"], [HELD, HELD, NEVER, NEVER, NEVER], 1)
    assert chain(name, "x") == (["a", "a"], [HELD, NEVER], 0)
    assert chain(name, "a$") == (["a", "b", "b"], [HELD, HELD, NEVER], 1)


@pytest.mark.parametrize("name", BACKENDS)
def test_f10_rows_behind_padding_are_all_ones_and_no_draft_there_is_acceptable(name: str) -> None:
    assert chain(name, "a-b") == (["a", "b", "*", "*"], [HELD, HELD, NEVER, NEVER], 1)
    assert chain(name, "--") == (["a", "*", "*"], [HELD, NEVER, NEVER], 0)
    assert chain(name, "ax-b") == (["a", "b", "b", "*", "*"], [HELD, HELD, NEVER, NEVER, NEVER], 1)


@pytest.mark.parametrize("name", BACKENDS)
def test_f9_drafts_behind_a_stop_token_are_not_acceptable(name: str) -> None:
    assert chain(name, "ab$b") == (["a", "b", "bc$", "$", "$"], [HELD, HELD, HELD, ENDED, NEVER], 3)
    assert chain(name, "ab$$") == (["a", "b", "bc$", "$", "$"], [HELD, HELD, HELD, ENDED, NEVER], 3)
    assert chain(name, "ab$b", terminated="all")[0] == ["a", "b", "bc$", "*", "*"]


@pytest.mark.parametrize("name", BACKENDS)
def test_f4_without_a_bonus_row_drafts_have_as_many_rows_as_there_are(name: str) -> None:
    assert chain(name, "abb", bonus_row=False) == (["a", "b", "bc$"], [HELD] * 3, 3)
    assert chain(name, "abx", bonus_row=False) == (["a", "b", "bc$"], [HELD] * 3, 2)
    assert chain(name, "axbb", bonus_row=False) == (["a", "b", "b", "b"], [HELD, HELD, NEVER, NEVER], 1)


@pytest.mark.parametrize("name", BACKENDS)
def test_g8_the_rows_of_a_tree_follow_its_branches(name: str) -> None:
    #      a - b - $
    # root <    \ x - b
    #      x - b     - (padding) - b
    tree = DraftTree.from_parents([7, *ids("ab$xbxb-b")], [-1, 0, 1, 2, 1, 4, 0, 6, 2, 8])
    each = grammar(name)
    batch = builder(9).build([MaskRequest("r", each, tree)])
    assert shown(batch.bitmask) == ["a", "b", "bc$", "$", "b", "b", "a", "a", "*", "*"]
    assert list(batch.descriptor.states) == [HELD, HELD, HELD, ENDED, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER]
    assert batch.descriptor.num_acceptable == (3,)
    assert each.num_accepted == 0


def test_f2_a_row_that_was_never_written_is_failed() -> None:
    assert RowState(0) is RowState.FAILED
    assert [RowState(state) for state in bytes(3)] == [RowState.FAILED] * 3
