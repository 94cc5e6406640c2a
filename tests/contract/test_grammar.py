"""`Grammar` without an engine: over a small automaton that can be told to fail, hang up, or say less than it should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from grammar_backends.contract import (
    BitmaskRow,
    Grammar,
    StructuredOutputGrammar,
    Vocabulary,
    allocate_bitmask,
    pack_ids,
    unpack_ids,
)
from grammar_backends.errors import BitmaskError, DeadEnd, GrammarError, UnsupportedFeature, VocabularyError

A, B, C, X, PAD, EOS, END = range(7)
VOCABULARY = Vocabulary.from_bytes(
    [b"a", b"b", b"c", b"x", b"<pad>", b"<eos>", b"<end>"], [PAD, EOS, END], [EOS, END], width=40
)

MOVES = {0: {A: 1, X: 9}, 1: {B: 2}, 2: {A: 1, C: 3}, 3: {}, 9: {}}
ACCEPTING = {2, 3}
"""The language (ab)+c?, and after "x" a dead end."""


class EngineFailure(Exception):
    """What an engine might raise."""


class Walker:
    """A `Matcher` over `MOVES` that checks what the layer promises it, and fails in the methods named in `broken`."""

    def __init__(self, broken: set[str] | None = None) -> None:
        self.states = [0]
        self.broken = set() if broken is None else broken
        self.failed = False

    def enter(self, method: str) -> None:
        if self.failed:
            raise AssertionError("a matcher was used after its failure")
        if method in self.broken:
            self.failed = True
            raise EngineFailure(method)

    def consume(self, tokens: Sequence[int]) -> int:
        self.enter("consume")
        for index, token in enumerate(tokens):
            if not 0 <= token < VOCABULARY.size or token in VOCABULARY.stop_set:
                raise AssertionError(f"token {token} reached the matcher")
            following = MOVES[self.states[-1]].get(token)
            if following is None:
                return index
            self.states.append(following)
        return len(tokens)

    def rollback(self, num_tokens: int) -> None:
        self.enter("rollback")
        if not 0 < num_tokens < len(self.states):
            raise AssertionError(f"rollback of {num_tokens} in {self.states}")
        del self.states[-num_tokens:]

    def fill_row(self, row: BitmaskRow) -> None:
        self.enter("fill_row")
        row.array[:] = pack_ids(MOVES[self.states[-1]], VOCABULARY.width)

    def is_accepting(self) -> bool:
        self.enter("is_accepting")
        return self.states[-1] in ACCEPTING

    def fork(self) -> Walker:
        self.enter("fork")
        copy = Walker(self.broken)
        copy.states = [*self.states]
        return copy


class Maker:
    """An `Artifact` of walkers."""

    def __init__(self, make: Callable[[], Any] = Walker) -> None:
        self.new_matcher = make


def grammar(
    *tokens: int,
    make: Callable[[], Any] = Walker,
    stops: Sequence[int] = (EOS, END),
    max_rollback: int | None = None,
) -> Grammar:
    made = Grammar(Maker(make), VOCABULARY, frozenset(stops), max_rollback)
    if not made.accept_tokens("r", tokens):
        raise AssertionError(tokens)
    return made


def allowed(made: Grammar) -> set[int]:
    row = np.full((1, VOCABULARY.words), -1, dtype=np.int32)
    made.fill_bitmask(row, 0)
    return set(unpack_ids(row[0]))


def test_the_layer_implements_the_protocol() -> None:
    assert isinstance(grammar(), StructuredOutputGrammar)


def test_a2_a4_ignored_tokens_are_not_counted() -> None:
    made = grammar(A)
    assert made.accept_tokens("r", [B, EOS, A, B, -1, 10**9, END])
    assert made.num_accepted == 3
    made.rollback(3)
    assert allowed(made) == {A, X}


@pytest.mark.parametrize("block", [[-1], [A, B, -1], [VOCABULARY.size], [A, 39], [A, 40], [A, B, -1, EOS], [2**80]])
def test_a6_a7_no_bad_id_reaches_the_matcher(block: list[int]) -> None:
    made = grammar()
    assert not made.accept_tokens("r", block)
    assert made.validate_tokens(block) == block[: len([t for t in block if t in (A, B)])]
    assert (made.num_accepted, made.error) == (0, None)
    assert allowed(made) == {A, X}


@pytest.mark.parametrize("stops", [(PAD,), (C,), (PAD, END)])
def test_a9_a10_no_stop_token_of_any_kind_reaches_the_matcher(stops: tuple[int, ...]) -> None:
    # Walker raises when one of the vocabulary's stop ids arrives, which would show as a sticky error.
    for prefix in ([], [A], [A, B]):
        for block in ([EOS], [A, EOS], [EOS, A], [A, B, EOS]):
            made = grammar(*prefix, stops=stops)
            assert EOS not in made.validate_tokens(block)
            assert not made.accept_tokens("r", block)
            assert (made.error, made.num_accepted) == (None, len(prefix))


def test_a9_a_text_token_that_is_a_stop_id_is_never_text() -> None:
    made = grammar(A, stops=(B,))
    assert not made.accept_tokens("r", [B])
    with pytest.raises(DeadEnd):
        allowed(made)
    made = grammar(A, B, stops=(C,))
    assert allowed(made) == {A, C}
    assert made.accept_tokens("r", [C])
    assert made.is_terminated()


def test_a13_the_matcher_is_not_asked_after_termination() -> None:
    broken: set[str] = set()
    made = grammar(A, B, EOS, make=lambda: Walker(broken))
    broken |= {"fill_row", "is_accepting", "consume", "rollback"}
    assert allowed(made) == {EOS, END}
    assert made.validate_tokens([A]) == []
    assert made.accept_tokens("r", [A])
    assert not made.is_accepting()
    made.rollback(1)
    assert made.num_accepted == 2


def test_a14_a_dead_end_is_sticky_until_it_is_rolled_back() -> None:
    made = grammar(X)
    for _ in range(2):
        with pytest.raises(DeadEnd):
            allowed(made)
    assert isinstance(made.error, DeadEnd)
    assert not made.is_accepting()
    assert not made.is_terminated()
    assert made.validate_tokens([A]) == []
    assert not made.accept_tokens("r", [A])
    assert not made.accept_tokens("r", [])
    made.rollback(0)
    assert isinstance(made.error, DeadEnd)
    made.rollback(1)
    assert made.error is None
    assert allowed(made) == {A, X}


class Canonical(Walker):
    """Its rows have the first of several spellings only."""

    def fill_row(self, row: BitmaskRow) -> None:
        self.enter("fill_row")
        row.array[:] = pack_ids([min(MOVES[self.states[-1]])], VOCABULARY.width)


def test_a14_other_spellings_are_a_way_on_where_the_canonical_one_is_a_stop_token() -> None:
    assert allowed(grammar(make=Canonical)) == {A}
    made = grammar(make=Canonical, stops=(A, END))
    assert allowed(made) == {X}
    assert made.error is None


class Telling(Walker):
    """Tells of dead ends itself, so that nobody reads its rows."""

    fills_stop_tokens = True

    def fill_row(self, row: BitmaskRow) -> None:
        super().fill_row(row)
        if self.is_accepting() or self.is_lost():  # as llguidance does at a dead end
            row.array[:] |= pack_ids([EOS, END], VOCABULARY.width)

    def is_lost(self) -> bool:
        return self.states[-1] == 9

    def check(self) -> None:
        if self.is_lost():
            raise DeadEnd("told")


@pytest.mark.parametrize("open_rows", [True, False])
def test_a14_an_engine_that_tells_of_dead_ends_is_believed(open_rows: bool) -> None:
    made = Grammar(Maker(Telling), VOCABULARY, VOCABULARY.stop_set, None, open_rows=open_rows)
    assert allowed(made) == {A, X}
    made.accept_tokens("r", [X])
    for _ in range(2):
        with pytest.raises(DeadEnd, match="told"):
            allowed(made)
    made.rollback(1)
    assert allowed(made) == {A, X}
    made.accept_tokens("r", [A, B, C])
    assert allowed(made) == {EOS, END}


def test_a14_an_accepting_state_without_continuation_is_no_dead_end() -> None:
    assert allowed(grammar(A, B, C)) == {EOS, END}


def test_a15_a16_a17_rollback_over_termination_to_every_depth() -> None:
    tokens = [A, B, A, B, C, END]
    for depth in range(len(tokens) + 1):
        made = grammar(*tokens)
        made.rollback(depth)
        assert made.num_accepted == len(tokens) - depth
        assert allowed(made) == allowed(grammar(*tokens[: len(tokens) - depth]))
    with pytest.raises(ValueError, match="cannot roll back 7 of 6"):
        grammar(*tokens).rollback(7)


def test_a17_a_bounded_rollback_counts_from_the_furthest_step() -> None:
    made = grammar(A, B, A, B, max_rollback=2)
    made.rollback(2)
    with pytest.raises(ValueError, match="max_rollback is 2"):
        made.rollback(1)
    made.accept_tokens("r", [A])
    made.rollback(1)
    assert made.num_accepted == 2
    made.accept_tokens("r", [A, B, C, END])
    made.rollback(2)
    with pytest.raises(ValueError, match="max_rollback is 2"):
        made.rollback(1)
    made.reset()
    made.accept_tokens("r", [A])
    made.rollback(1)
    assert made.num_accepted == 0


FAILURES = [
    ("consume", lambda made: made.accept_tokens("r", [A, B])),
    ("consume", lambda made: made.validate_tokens([A])),
    ("consume", lambda made: made.validate_tokens([A, B, EOS])),
    ("rollback", lambda made: made.validate_tokens([A])),
    ("rollback", lambda made: made.accept_tokens("r", [A, A])),
    ("rollback", lambda made: made.accept_tokens("r", [A, EOS])),
    ("is_accepting", lambda made: made.accept_tokens("r", [A, B, EOS])),
    ("is_accepting", lambda made: made.validate_tokens([A, B, EOS])),
    ("is_accepting", lambda made: made.is_accepting()),
]


@pytest.mark.parametrize(("method", "call"), FAILURES)
def test_a19_a20_an_engine_that_raises_is_a_sticky_error_and_no_exception(
    method: str, call: Callable[[Grammar], object]
) -> None:
    broken: set[str] = set()
    made = grammar(A, B, make=lambda: Walker(broken))
    broken.add(method)
    assert not call(made)
    assert isinstance(made.error, GrammarError)
    assert "EngineFailure" in str(made.error)
    check_errored(made, count=2)
    made.rollback(1)
    check_errored(made, count=1)
    broken.clear()
    made.reset()
    assert made.error is None
    assert allowed(made) == {A, X}


def check_errored(made: Grammar, count: int) -> None:
    error = made.error
    for tokens in ([], [A], [EOS], [-1]):
        assert not made.accept_tokens("r", tokens)
        assert made.validate_tokens(tokens) == []
    assert not made.is_terminated()
    assert not made.is_accepting()
    made.rollback(0)
    assert made.num_accepted == count
    assert made.error is error
    with pytest.raises(GrammarError) as caught:
        allowed(made)
    assert caught.value is error
    with pytest.raises(ValueError, match="cannot roll back"):
        made.rollback(count + 1)


def test_a19_a_failing_fill_raises_and_stays() -> None:
    made = grammar(A, make=lambda: Walker({"fill_row"}))
    with pytest.raises(GrammarError, match="EngineFailure: fill_row") as caught:
        allowed(made)
    assert isinstance(caught.value.__cause__, EngineFailure)
    check_errored(made, count=1)


def test_a19_a_failing_rollback_is_counted_and_stays() -> None:
    made = grammar(A, B, make=lambda: Walker({"rollback"}))
    made.rollback(1)
    assert made.error is not None
    check_errored(made, count=1)


def test_a19_a_fork_of_a_lost_grammar_is_errored_and_resets_alone() -> None:
    made = grammar(A, make=lambda: Walker({"fill_row"}))
    with pytest.raises(GrammarError):
        allowed(made)
    fork = made.fork()
    check_errored(fork, count=1)
    fork.reset()
    assert fork.error is None
    check_errored(made, count=1)


def test_a19_the_engines_words_are_trimmed() -> None:
    class Talker(Walker):
        def is_accepting(self) -> bool:
            raise EngineFailure("state " * 1_000)

    made = grammar(make=Talker)
    assert not made.is_accepting()
    assert len(str(made.error)) < 300


def test_a12_a_matcher_that_writes_no_stop_bits_gets_them() -> None:
    class Stray(Walker):
        def fill_row(self, row: BitmaskRow) -> None:
            super().fill_row(row)
            row.array |= pack_ids([EOS, END], VOCABULARY.width)

    assert allowed(grammar(A, make=Stray)) == {B}
    assert allowed(grammar(A, B, make=Stray)) == {A, C, EOS, END}
    assert allowed(grammar(A, B, make=Stray, stops=(PAD,))) == {A, C, PAD}


def test_a12_a_matcher_that_writes_exact_stop_bits_is_trusted_with_the_vocabularys_only() -> None:
    class Exact(Walker):
        fills_stop_tokens = True

        def fill_row(self, row: BitmaskRow) -> None:
            super().fill_row(row)
            if self.is_accepting():
                row.array |= pack_ids([EOS, END], VOCABULARY.width)

    assert allowed(grammar(A, B, make=Exact)) == {A, C, EOS, END}
    assert allowed(grammar(A, B, make=Exact, stops=(END, EOS))) == {A, C, EOS, END}
    assert allowed(grammar(A, B, make=Exact, stops=(END,))) == {A, C, END}
    assert allowed(grammar(A, make=Exact, stops=(END, PAD))) == {B}


def test_f17_fill_says_false_only_for_a_row_of_ones() -> None:
    class Open(Walker):
        def fill_row(self, row: BitmaskRow) -> None:
            row.array.fill(-1)
            if self.states[-1]:
                row.array[-1] = 0

    class Accepting(Open):
        def is_accepting(self) -> bool:
            return True

    bitmask = allocate_bitmask(1, VOCABULARY.width)
    assert not grammar(make=Accepting).fill_bitmask(bitmask, 0)
    assert grammar(A, make=Accepting).fill_bitmask(bitmask, 0)
    assert grammar(make=Open).fill_bitmask(bitmask, 0)
    assert grammar(A, B, EOS).fill_bitmask(bitmask, 0)


@pytest.mark.parametrize("width", [7, 31, 32, 33, 64, 96, 129])
def test_a14_dead_ends_are_found_for_every_number_of_words(width: int) -> None:
    tokens = [b"a", b"b", b"<eos>"] + [b"t%d" % index for index in range(width - 4)] + [b"z"]
    vocabulary = Vocabulary.from_bytes(tokens, [2], [2])

    class Last(Walker):
        def fill_row(self, row: BitmaskRow) -> None:
            row.array[:] = pack_ids([vocabulary.size - 1] if self.states[-1] == 0 else [], vocabulary.width)

    made = Grammar(Maker(Last), vocabulary, frozenset({2}), None)
    bitmask = allocate_bitmask(1, vocabulary.width)
    assert made.fill_bitmask(bitmask, 0)
    assert unpack_ids(bitmask[0]) == [vocabulary.size - 1]
    made.accept_tokens("r", [A])
    with pytest.raises(DeadEnd):
        made.fill_bitmask(bitmask, 0)


def test_a8_an_engines_own_validate_is_asked_for_text_only() -> None:
    class Validating(Walker):
        def validate(self, tokens: Sequence[int]) -> int:
            legal = self.consume(tokens)
            if legal:
                self.rollback(legal)
            return legal

    made = grammar(A, make=Validating)
    assert made.validate_tokens([B, A, A]) == [B, A]
    assert made.validate_tokens([B, -1]) == [B]
    assert made.validate_tokens([B, EOS, A]) == [B, EOS]
    assert made.validate_tokens([EOS]) == []
    assert allowed(made) == {B}


def test_a33_a_matcher_hears_how_far_it_will_be_rolled_back() -> None:
    heard = []

    class Bounded(Walker):
        def limit_rollback(self, num_tokens: int) -> None:
            heard.append(num_tokens)

    grammar(make=Bounded)
    assert heard == []
    made = grammar(A, make=Bounded, max_rollback=3)
    assert heard == [3]
    made.reset()
    assert heard == [3, 3]
    made.fork()
    assert heard == [3, 3]


def test_i1_forced_text_is_empty_at_the_end_and_refused_where_unknown() -> None:
    class Forcing(Walker):
        def forced_tokens(self) -> list[int]:
            self.enter("forced_tokens")
            return [B]

    made = grammar(A, make=Forcing)
    assert made.forced_tokens() == [B]
    with pytest.raises(UnsupportedFeature):
        made.forced_bytes()
    assert grammar(A, B, EOS, make=Forcing).forced_tokens() == []
    failing = grammar(A, make=lambda: Forcing({"forced_tokens"}))
    assert failing.forced_tokens() == []
    assert failing.error is not None
    assert failing.forced_tokens() == []


def test_a20_one_grammar_fills_torch_and_numpy_bitmasks_of_any_number_of_rows() -> None:
    made = grammar(A)
    for rows in (1, 3):
        for bitmask in (allocate_bitmask(rows, 40), np.empty((rows, 2), dtype=np.int32)):
            for row in range(rows):
                made.fill_bitmask(bitmask, row)
                assert unpack_ids(bitmask[row]) == [B]


def test_a20_a_slice_of_rows_is_a_bitmask() -> None:
    bitmask = allocate_bitmask(6, 40)
    grammar(A).fill_bitmask(bitmask[2:4], 1)
    assert [unpack_ids(row) == [B] for row in bitmask] == [False, False, False, True, False, False]


def test_a_row_goes_to_the_tensors_memory_of_the_moment() -> None:
    made, other = grammar(A), grammar(A, B)
    bitmask = allocate_bitmask(2, 40)
    made.fill_bitmask(bitmask, 0)
    bitmask.share_memory_()
    bitmask.fill_(-1)
    for filler, expected in ((made, [B]), (other, [A, C, EOS, END]), (made, [B])):
        filler.fill_bitmask(bitmask, 0)
        assert unpack_ids(bitmask[0]) == expected
    bitmask.set_(torch.full((3, 2), -1, dtype=torch.int32))
    made.fill_bitmask(bitmask, 2)
    assert unpack_ids(bitmask[2]) == [B]
    with pytest.raises(BitmaskError):
        made.fill_bitmask(bitmask, 3)


def test_a20_the_last_good_bitmask_lends_nothing_to_a_bad_one() -> None:
    made = grammar(A)
    made.fill_bitmask(allocate_bitmask(2, 40), 1)
    for bad in (torch.zeros((2, 2), dtype=torch.int64), torch.zeros((2, 3), dtype=torch.int32), [[0, 0]], None):
        with pytest.raises(BitmaskError):
            made.fill_bitmask(bad, 0)  # type: ignore[arg-type]
    with pytest.raises(BitmaskError):
        grammar(A).fill_bitmask(None, 0)  # type: ignore[arg-type]


def test_a10_a_stop_id_outside_the_vocabulary_is_refused() -> None:
    from grammar_backends.contract import BackendSpec, Capabilities, CompiledGrammar, GrammarBackend, GrammarSpec

    class Engine:
        version = "0"

        def compile(self, spec: GrammarSpec) -> Maker:
            return Maker()

    spec = BackendSpec("walker", "tests:Engine", 1, Capabilities(kinds=frozenset()))
    compiled = GrammarBackend(spec, Engine(), VOCABULARY, lambda spec: spec).compile_grammar(GrammarSpec.regex("a"))
    assert isinstance(compiled, CompiledGrammar)
    for bad in (-1, VOCABULARY.size, 39):
        with pytest.raises(VocabularyError, match=str(bad)):
            compiled.new_grammar(stop_token_ids=[EOS, bad])


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple], ids=["numpy", "torch", "tuple"])
def test_a20_tokens_come_in_any_sequence_of_integers(kind: Any) -> None:
    for count in (1, 2):
        made = grammar()
        assert made.validate_tokens(kind([A, B][:count])) == [A, B][:count]
        assert made.accept_tokens("r", kind([A, B][:count]))
        assert made.num_accepted == count
    assert made.accept_tokens("r", kind([EOS]))
    assert made.is_terminated()
    made.rollback(np.int64(1))
    assert not made.is_terminated()


@pytest.mark.parametrize("bad", [1.0, None, "a", [1]])
def test_a20_what_is_no_integer_is_a_type_error_and_changes_nothing(bad: Any) -> None:
    made = grammar()
    calls: list[Callable[[], object]] = [
        lambda: made.accept_tokens("r", [bad]),
        lambda: made.accept_tokens("r", [A, bad]),
        lambda: made.validate_tokens([A, bad]),
        lambda: made.rollback(bad),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert made.num_accepted == 0
    assert made.error is None
    assert made.accept_tokens("r", [A])
