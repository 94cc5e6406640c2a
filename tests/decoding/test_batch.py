"""fill_bitmasks: the rows of any mix of backends equal those filled one by one, and no failure spreads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from grammar_backends import load_vocabulary
from grammar_backends.contract import (
    Bitmask,
    BitmaskRow,
    Grammar,
    GrammarBackend,
    GrammarSpec,
    Vocabulary,
    allocate_bitmask,
    pack_ids,
    unpack_ids,
)
from grammar_backends.decoding import fill_bitmasks
from grammar_backends.errors import BitmaskError, DeadEnd, GrammarError
from grammar_backends.plugins import PluginHost

BACKENDS = ("xgrammar", "guidance", "outlines")
TEXTS = [
    (GrammarSpec.regex("[ab]+c?"), ("", "ab", "abc")),
    (GrammarSpec.choice(["yes", "no", "yes please"]), ("", "yes", "yes pl")),
    (GrammarSpec.json_schema({"type": "array", "items": {"type": "boolean"}}), ("", "[true", "[]")),
]


@functools.cache
def vocabulary(name: str) -> Vocabulary:
    if name == "small":
        return Vocabulary.from_bytes([b"a", b"b", b"ab", b"<eos>"], [3], [3], width=40)
    return load_vocabulary(name)


@functools.cache
def backend(name: str, tokens: str = "byte") -> GrammarBackend:
    host = PluginHost()
    engine = host.create_engine(name, vocabulary(tokens))
    return GrammarBackend(host.backend(name), engine, vocabulary(tokens), lambda spec: spec)


@functools.cache
def compiled(name: str, spec: GrammarSpec, tokens: str = "byte") -> Any:
    return backend(name, tokens).compile_grammar(spec)


def grammar(name: str, spec: GrammarSpec, text: str = "", tokens: str = "byte", **options: Any) -> Grammar:
    made: Grammar = compiled(name, spec, tokens).new_grammar(**options)
    if not made.accept_tokens("r", vocabulary(tokens).encode(text)):
        raise AssertionError(text)
    return made


def mixture(tokens: str) -> list[Grammar]:
    """Grammars of every backend in many states, terminated and with their own stop tokens among them."""
    stop = vocabulary(tokens).stop_ids[0]
    made = [grammar(name, spec, text, tokens) for spec, texts in TEXTS for text in texts for name in BACKENDS]
    terminated = [grammar(name, TEXTS[0][0], "ab", tokens) for name in BACKENDS]
    for each in terminated:
        each.accept_tokens("r", [stop])
    own = [grammar(name, TEXTS[0][0], "a", tokens, stop_token_ids=[stop, stop + 1]) for name in BACKENDS]
    return [*made, *terminated, *own]


def rows_one_by_one(grammars: Sequence[Grammar], tokens: str) -> torch.Tensor:
    bitmask = allocate_bitmask(len(grammars), vocabulary(tokens).width)
    for row, each in enumerate(grammars):
        each.fill_bitmask(bitmask, row)
    return bitmask


@pytest.mark.parametrize("tokens", ["byte", "tekken"])
def test_f14_a_batch_equals_its_rows_filled_one_by_one(tokens: str) -> None:
    grammars = mixture(tokens)
    expected = rows_one_by_one(grammars, tokens)
    for stale in (-1, 0, 0x5A5A5A5A):
        bitmask = torch.full_like(expected, stale)
        assert fill_bitmasks(grammars, bitmask) == [None] * len(grammars)
        assert torch.equal(bitmask, expected)


def test_f14_rows_go_where_they_are_told_and_others_keep_every_bit() -> None:
    grammars = mixture("byte")
    expected = rows_one_by_one(grammars, "byte")
    rows = list(range(2 * len(grammars), 0, -2))
    bitmask = torch.full((2 * len(grammars) + 2, expected.shape[1]), 0x5A5A5A5A, dtype=torch.int32)
    fill_bitmasks(grammars, bitmask, rows)
    assert torch.equal(bitmask[rows], expected)
    others = sorted(set(range(len(bitmask))) - set(rows))
    assert (bitmask[others] == 0x5A5A5A5A).all()


def test_f14_numpy_bitmasks_and_index_arrays_will_do() -> None:
    grammars = mixture("byte")
    expected = rows_one_by_one(grammars, "byte").numpy()
    for rows in (np.arange(len(grammars)), torch.arange(len(grammars)), [False, True, *range(2, len(grammars))]):
        bitmask = np.zeros_like(expected)
        fill_bitmasks(grammars, bitmask, rows)
        assert np.array_equal(bitmask, expected)


def test_a25_a_batch_fill_changes_no_grammar() -> None:
    grammars = mixture("byte")
    states = [(each.num_accepted, each.is_accepting(), each.is_terminated()) for each in grammars]
    expected = rows_one_by_one(grammars, "byte")
    fill_bitmasks(grammars, allocate_bitmask(len(grammars), vocabulary("byte").width))
    assert [(each.num_accepted, each.is_accepting(), each.is_terminated()) for each in grammars] == states
    assert torch.equal(rows_one_by_one(grammars, "byte"), expected)


def test_f18_a_dead_end_harms_no_other_row() -> None:
    spec = GrammarSpec.choice(["ax", "bb"])
    parsers = ("xgrammar", "guidance")
    good = [grammar(name, spec, text, "small") for name in parsers for text in ("", "b", "bb")]
    dead = [grammar(name, spec, "a", "small") for name in parsers]
    grammars = [dead[0], *good, dead[1]]
    bitmask = allocate_bitmask(len(grammars), 40)
    for _ in range(2):
        outcomes = fill_bitmasks(grammars, bitmask)
        assert [type(outcome) for outcome in outcomes] == [DeadEnd, *[type(None)] * len(good), DeadEnd]
        assert outcomes[0] is dead[0].error
        assert not bitmask[0].any()
        assert not bitmask[-1].any()
        assert [set(unpack_ids(row)) for row in bitmask[1:-1]] == [{0, 1}, {1}, {3}] * 2
    for each in dead:
        each.rollback(1)
    assert fill_bitmasks(grammars, bitmask) == [None] * len(grammars)
    assert torch.equal(bitmask[0], bitmask[1])


class Matcher:
    """Allows token 0; fails when its artifact says so."""

    fills_stop_tokens = True

    def __init__(self, broken: bool) -> None:
        self.broken = broken

    def consume(self, tokens: Sequence[int]) -> int:
        return len(tokens)

    def rollback(self, num_tokens: int) -> None: ...

    def fill_row(self, row: BitmaskRow) -> None:
        if self.broken:
            raise OSError("this one is broken")
        row.array[:] = pack_ids([0], 40)

    def is_accepting(self) -> bool:
        return False

    def fork(self) -> Matcher:
        return Matcher(self.broken)


class Maker:
    """An `Artifact` of matchers that are broken or not."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken

    def new_matcher(self) -> Matcher:
        return Matcher(self.broken)


class Filler:
    """A `BatchFiller` that breaks off at the first broken matcher, leaving junk behind."""

    calls = 0

    def fill_rows(self, matchers: Sequence[Matcher], bitmask: Bitmask, rows: Sequence[int]) -> None:
        self.calls += 1
        bitmask.array[list(rows)] = 0x77
        for matcher, row in zip(matchers, rows, strict=True):
            matcher.fill_row(bitmask.rows[row])


def made_of(broken: bool, filler: Filler | None) -> Grammar:
    tokens = vocabulary("small")
    return Grammar(Maker(broken), tokens, tokens.stop_set, None, filler)


def test_f18_a_failing_batch_call_is_blamed_on_the_grammar_whose_fault_it_is() -> None:
    filler = Filler()
    grammars = [made_of(broken, filler) for broken in (False, True, False, True)]
    bitmask = allocate_bitmask(5, 40)
    outcomes = fill_bitmasks(grammars, bitmask)
    assert [outcome is not None for outcome in outcomes] == [False, True, False, True]
    assert isinstance(outcomes[1], GrammarError)
    assert "this one is broken" in str(outcomes[1])
    assert [unpack_ids(row) for row in bitmask[:4]] == [[0], [], [0], []]
    assert (bitmask[4] == -1).all()
    again = fill_bitmasks(grammars, bitmask)
    assert again == outcomes
    assert [unpack_ids(row) for row in bitmask[:4]] == [[0], [], [0], []]
    assert filler.calls == 2  # the second time without the broken ones


def test_f14_each_engine_is_called_once_with_all_its_grammars() -> None:
    fillers = [Filler(), Filler()]
    grammars = [made_of(False, filler) for filler in (fillers[0], None, fillers[1], fillers[0])]
    assert fill_bitmasks(grammars, allocate_bitmask(4, 40)) == [None] * 4
    assert [filler.calls for filler in fillers] == [1, 1]


def test_a_grammar_fills_in_batches_again_after_rollback_reset_and_fork() -> None:
    filler = Filler()
    each = made_of(False, filler)
    each.accept_tokens("r", [0])
    assert each.batch is not None
    assert each.fork().batch is not None
    assert each.fork().batch != each.batch
    each.reset()
    assert each.batch is not None
    assert each.batch[1] is not None
    broken = made_of(True, filler)
    fill_bitmasks([broken], allocate_bitmask(1, 40))
    assert broken.batch is None
    assert broken.fork().batch is None


@pytest.mark.parametrize("name", BACKENDS)
def test_a16_termination_takes_a_grammar_out_of_the_batch_and_rollback_back_in(name: str) -> None:
    each = grammar(name, TEXTS[0][0], "ab")
    bitmask = allocate_bitmask(2, vocabulary("byte").width)
    fill_bitmasks([each], bitmask, [0])
    each.accept_tokens("r", [256])
    fill_bitmasks([each], bitmask, [1])
    assert unpack_ids(bitmask[1]) == [256]
    each.rollback(1)
    fill_bitmasks([each], bitmask, [1])
    assert torch.equal(bitmask[0], bitmask[1])


def test_no_grammars_fill_nothing() -> None:
    bitmask = torch.full((2, 2), 7, dtype=torch.int32)
    assert fill_bitmasks([], bitmask) == []
    assert fill_bitmasks([], bitmask, []) == []
    assert (bitmask == 7).all()


def test_a20_misuse_raises_before_any_row_is_written() -> None:
    grammars = [grammar(name, TEXTS[0][0]) for name in BACKENDS]
    words = vocabulary("byte").words
    bitmask = torch.full((3, words), 7, dtype=torch.int32)
    wrong: list[tuple[torch.Tensor, Sequence[int] | None]] = [
        (bitmask, [0, 1]),
        (bitmask, [0, 1, 1]),
        (bitmask, [0, 1, 3]),
        (bitmask, [0, 1, -1]),
        (bitmask[:2], None),
        (torch.full((3, words + 1), 7, dtype=torch.int32), None),
        (torch.full((3, words), 7, dtype=torch.int64), None),
    ]
    for tensor, rows in wrong:
        with pytest.raises(BitmaskError):
            fill_bitmasks(grammars, tensor, rows)
        assert (tensor == 7).all()


def test_a20_grammars_of_different_widths_do_not_fit_one_bitmask() -> None:
    grammars = [grammar("xgrammar", TEXTS[0][0]), grammar("xgrammar", GrammarSpec.choice(["ab"]), "", "small")]
    bitmask = torch.full((2, vocabulary("byte").words), 7, dtype=torch.int32)
    with pytest.raises(BitmaskError):
        fill_bitmasks(grammars, bitmask)
    assert (bitmask == 7).all()


def test_a24_batches_in_parallel_threads_give_the_serial_rows() -> None:
    batches = [mixture("byte") for _ in range(4)]
    expected = rows_one_by_one(batches[0], "byte")

    def fill(grammars: list[Grammar]) -> list[torch.Tensor]:
        filled = []
        for _ in range(20):
            bitmask = allocate_bitmask(len(grammars), vocabulary("byte").width)
            fill_bitmasks(grammars, bitmask)
            filled.append(bitmask)
        return filled

    with ThreadPoolExecutor(len(batches)) as pool:
        for filled in pool.map(fill, batches):
            assert all(torch.equal(bitmask, expected) for bitmask in filled)
