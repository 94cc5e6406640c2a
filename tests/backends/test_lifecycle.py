"""A grammar's life: reset, forks, errors, reads in between, threads, memory; and the engine faults behind the rules."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from llguidance import LLMatcher, LLTokenizer

from grammar_backends.contract import Grammar, GrammarSpec, StructuredOutputGrammar, allocate_bitmask
from grammar_backends.errors import DeadEnd, UnsupportedFeature

if TYPE_CHECKING:
    from tests.backends.conftest import Lab, Sample


def test_grammars_satisfy_the_protocol(lab: Lab, runs: GrammarSpec) -> None:
    assert isinstance(lab.grammar(runs), StructuredOutputGrammar)


@pytest.mark.parametrize("terminated", [False, True])
def test_a18_reset_returns_to_the_initial_state(lab: Lab, sample: Sample, terminated: bool) -> None:
    grammar = lab.grammar(sample.spec)
    initial = lab.state(grammar)
    for _ in range(2):
        assert grammar.accept_tokens("r", [*lab.encode(sample.texts[0]), *[lab.stop] * terminated])
        grammar.reset()
        assert lab.state(grammar) == initial
        with pytest.raises(ValueError, match="cannot roll back"):
            grammar.rollback(1)


def test_a18_reset_clears_a_dead_end(small_lab: Lab, dead_end: GrammarSpec) -> None:
    if small_lab.name == "outlines":  # it does not compile a grammar with one
        return
    grammar = small_lab.grammar(dead_end, "a")
    with pytest.raises(DeadEnd):
        small_lab.row(grammar)
    grammar.reset()
    assert grammar.error is None
    assert small_lab.state(grammar) == small_lab.state(small_lab.grammar(dead_end))


def test_a19_an_illegal_token_is_never_followed_by_success(lab: Lab, sample: Sample) -> None:
    # llguidance's own matcher answers a second illegal token with "stopped" and a row of stop tokens only.
    prefix = lab.encode(sample.texts[-1])[:1]
    grammar = lab.grammar(sample.spec)
    grammar.accept_tokens("r", prefix)
    before = lab.state(grammar)
    illegal = lab.vocabulary.special_ids - lab.vocabulary.stop_set
    for id_ in sorted(illegal)[:5]:
        assert not grammar.accept_tokens("r", [id_])
        assert not grammar.accept_tokens("r", [id_, lab.stop])
        assert grammar.validate_tokens([id_]) == []
    assert lab.state(grammar) == before
    assert grammar.error is None


def test_a23_a_fork_has_the_state_and_history_and_is_independent(lab: Lab, sample: Sample) -> None:
    tokens = [*lab.encode(max(sample.texts, key=len)), lab.stop]
    half = len(tokens) // 2
    grammar = lab.grammar(sample.spec)
    grammar.accept_tokens("r", tokens[:half])
    middle = lab.state(grammar)
    fork = grammar.fork()
    assert lab.state(fork) == middle
    assert grammar.accept_tokens("r", tokens[half:])
    assert lab.state(fork) == middle
    fork.rollback(half)
    assert lab.state(fork) == lab.state(lab.grammar(sample.spec))
    assert grammar.is_terminated()
    twin = grammar.fork()
    assert lab.state(twin) == lab.state(grammar)
    twin.reset()
    assert grammar.is_terminated()
    grammar.rollback(len(tokens) - half)
    assert lab.state(grammar) == middle


def test_a23_grammars_of_one_artifact_share_no_state(lab: Lab, runs: GrammarSpec) -> None:
    compiled = lab.compile(runs)
    one, other = compiled.new_grammar(), compiled.new_grammar(stop_token_ids=lab.encode("b")[:1])
    initial = lab.state(compiled.new_grammar())
    one.accept_tokens("r", [*lab.encode("ab"), lab.stop])
    other.accept_tokens("r", lab.encode("aa"))
    assert lab.state(compiled.new_grammar()) == initial


def test_a23_a_fork_keeps_stop_ids_and_rollback_limit(lab: Lab, runs: GrammarSpec) -> None:
    b = lab.encode("b")[0]
    fork = lab.grammar(runs, "aaaa", stop_token_ids=[b], max_rollback=1).fork()
    with pytest.raises(ValueError, match="max_rollback is 1"):
        fork.rollback(2)
    assert fork.accept_tokens("r", [b])
    assert fork.is_terminated()


def in_threads(tasks: list[Callable[[], object]]) -> list[object]:
    barrier = threading.Barrier(len(tasks))

    def run(task: Callable[[], object]) -> object:
        barrier.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(run, tasks))


def test_a24_grammars_in_parallel_threads_give_the_serial_results(lab: Lab) -> None:
    cases = [
        (GrammarSpec.regex('[^"]*'), "some text, é and 日"),
        (GrammarSpec.regex("[ab]+c?"), "abababababab"),
        (GrammarSpec.choice(["yes", "no", "yes please"]), "yes please"),
    ]
    compiled = [lab.backend.compile_grammar(spec) for spec, _ in cases]  # with nothing computed before

    def walk(index: int) -> list[object]:
        states: list[object] = []
        for _ in range(4):
            grammar = compiled[index].new_grammar()
            for token in [*lab.encode(cases[index][1]), lab.stop]:
                states.append(lab.state(grammar))
                grammar.validate_tokens([token, token])
                grammar.accept_tokens("r", [token])
            grammar.rollback(grammar.num_accepted // 2)
            states.append(lab.state(grammar))
        return states

    order = [0, 1, 2, 0, 1, 2]
    parallel = in_threads([lambda index=index: walk(index) for index in order])  # type: ignore[misc]
    assert parallel == [walk(index) for index in order]


def test_a24_compiling_in_parallel_threads_gives_the_same_grammars(byte_lab: Lab, record: GrammarSpec) -> None:
    specs = [record, GrammarSpec.regex("[0-9]{1,20}"), record, GrammarSpec.choice(["a", "b"])]
    compiled = in_threads([lambda spec=spec: byte_lab.backend.compile_grammar(spec) for spec in specs])  # type: ignore[misc]
    for spec, result in zip(specs, compiled, strict=True):
        assert byte_lab.state(result.new_grammar()) == byte_lab.state(byte_lab.grammar(spec))  # type: ignore[attr-defined]


def read_everything(lab: Lab, grammar: Grammar) -> None:
    bitmask = allocate_bitmask(2, lab.vocabulary.width)
    grammar.fill_bitmask(bitmask, 1)
    grammar.validate_tokens([*lab.encode('a"b}'), lab.stop])
    grammar.validate_tokens([-1, 2**40])
    grammar.is_accepting()
    grammar.fill_bitmask(bitmask, 0)
    grammar.fork().accept_tokens("r", lab.encode("a"))
    for ask in (grammar.forced_tokens, grammar.forced_bytes):
        try:
            ask()
        except UnsupportedFeature:
            assert lab.name in ("outlines", "lm-format-enforcer")
    assert (bitmask[0] == bitmask[1]).all()


def test_a25_reads_leave_the_next_result_of_everything_unchanged(lab: Lab, sample: Sample) -> None:
    for text in sample.texts:
        read, untouched = lab.grammar(sample.spec), lab.grammar(sample.spec)
        for token in [*lab.encode(text), lab.stop]:
            read_everything(lab, read)
            assert lab.state(read) == lab.state(untouched)
            assert read.accept_tokens("r", [token]) == untouched.accept_tokens("r", [token]) is True
        read_everything(lab, read)
        read.rollback(1)
        untouched.rollback(1)
        assert lab.state(read) == lab.state(untouched)


def test_a25_filling_twice_without_a_step_gives_one_row(lab: Lab, record: GrammarSpec) -> None:
    grammar = lab.grammar(record, '{"name": "x')
    assert lab.allowed(grammar) == lab.allowed(grammar)


def test_a33_a_bounded_grammar_does_not_grow_with_its_output(byte_lab: Lab, runs: GrammarSpec) -> None:
    grammar = byte_lab.grammar(runs, "abab" * 100, max_rollback=4)
    block = byte_lab.encode("ab" * 50)
    gc.collect()
    tracemalloc.start()
    try:
        grammar.accept_tokens("r", block)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            assert grammar.accept_tokens("r", block)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # A guidance matcher keeps its tokens, to come back from a dead end; a list has slack of an eighth.
    assert grown < (16 * 100 * len(block) if byte_lab.name == "guidance" else 10_000)
    grammar.rollback(4)
    with pytest.raises(ValueError, match="max_rollback"):
        grammar.rollback(1)


def test_a33_compiling_and_filling_leave_nothing_behind(byte_lab: Lab, runs: GrammarSpec) -> None:
    from grammar_backends.contract.bitmask import _views

    before = len(_views)
    for _ in range(5):
        byte_lab.row(byte_lab.backend.compile_grammar(runs).new_grammar())
    gc.collect()
    assert len(_views) <= before


A, B = b"ab"


def bare_llguidance(pattern: str, consumed: bytes) -> tuple[LLMatcher, int]:
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_regex(pattern), log_level=0)
    for token in consumed:
        assert matcher.consume_token(token)
    return matcher, tokenizer.eos_token


def test_the_llguidance_stop_tokens_that_the_adapter_hides_still_behave_as_measured() -> None:
    matcher, stop = bare_llguidance("ab", b"ab")
    assert (matcher.is_accepting(), matcher.is_stopped(), matcher.stop_reason()) == (True, True, "NoExtension")
    assert matcher.try_consume_tokens([stop]) == 0
    assert matcher.consume_token(stop)
    assert matcher.rollback(1)
    assert matcher.validate_tokens([B]) == 1  # the stop token was not counted: "b" has gone

    matcher, stop = bare_llguidance("ab", b"ab")
    assert not matcher.consume_tokens([stop])
    assert matcher.is_error()

    matcher, stop = bare_llguidance("ab", b"")
    assert matcher.try_consume_tokens([A, B, stop]) == 2
    matcher, stop = bare_llguidance("ab", b"")
    assert matcher.consume_tokens([A, B, stop])
    assert matcher.rollback(3)
    assert matcher.validate_tokens([A, B]) == 2

    matcher, stop = bare_llguidance("[ab]+", b"ab")
    assert matcher.try_consume_tokens([stop]) == 1
    assert matcher.stop_reason() == "EndOfSentence"
    assert matcher.rollback(1)
    assert matcher.validate_tokens([A, B]) == 2

    matcher, stop = bare_llguidance("ab", b"a")
    assert matcher.validate_tokens([B, stop]) == 2
    assert matcher.try_consume_tokens([B, stop]) == 1


@pytest.mark.parametrize("pattern", ["ab", "[ab]+"])
def test_a9_a16_stop_tokens_are_one_step_however_they_arrive(byte_lab: Lab, pattern: str) -> None:
    # What llguidance itself answers to the same calls is the test above.
    stop = byte_lab.stop
    for blocks in ([[A], [B], [stop]], [[A, B], [stop]], [[A], [B, stop]], [[A, B, stop]], [[A, B, stop, stop, A]]):
        grammar = byte_lab.grammar(GrammarSpec.regex(pattern))
        for block in blocks:
            legal = grammar.validate_tokens(block)
            assert grammar.accept_tokens("r", block)
            assert legal == block[: len(legal)]
        assert (grammar.num_accepted, grammar.is_terminated()) == (3, True)
        grammar.rollback(1)
        assert byte_lab.state(grammar) == byte_lab.state(byte_lab.grammar(GrammarSpec.regex(pattern), "ab"))
        grammar.rollback(1)
        assert byte_lab.state(grammar) == byte_lab.state(byte_lab.grammar(GrammarSpec.regex(pattern), "a"))
        assert not grammar.fork().accept_tokens("r", [stop]) or pattern == "[ab]+"


def test_llguidance_still_ruins_a_matcher_at_a_dead_end() -> None:
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark('start: "a" x | "bb"\nx: x'), log_level=0)
    assert matcher.consume_token(A)
    matcher.compute_bitmask()
    assert matcher.get_error().startswith("NoExtensionBias")
    assert not matcher.rollback(1)
