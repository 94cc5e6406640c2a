"""What gates do, rule by rule, over every backend where the grammar matters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from grammar_backends import (
    CompiledGrammar,
    GrammarSpec,
    StructuredOutputGrammar,
    Vocabulary,
    allocate_bitmask,
    fill_bitmasks,
    load_backend,
    load_vocabulary,
)
from grammar_backends.contract import unpack_ids
from grammar_backends.decoding import (
    BitmaskBuilder,
    DraftTree,
    Gate,
    HostEnd,
    MarkerSearch,
    MaskRequest,
    PatternMarker,
    ReasoningGate,
    TextMarker,
    TokenMarker,
    TriggerGate,
)
from grammar_backends.errors import DeadEnd, GrammarError, SpecError

BYTE = load_vocabulary("byte")
EOS, PAD, BOS, THINK, UNTHINK, CALL, UNCALL = range(256, 263)
BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
NUMBERS = GrammarSpec.regex("[1-9][0-9]*(;[0-9]+)?")


def compiled(backend: str = "xgrammar", spec: GrammarSpec = NUMBERS) -> CompiledGrammar:
    return load_backend(backend, BYTE).compile_grammar(spec)


def grammar(backend: str = "xgrammar", spec: GrammarSpec = NUMBERS, **options: Any) -> StructuredOutputGrammar:
    return compiled(backend, spec).new_grammar(**options)


def search(*markers: Any) -> MarkerSearch:
    return MarkerSearch(BYTE, markers)


def tokens(*parts: str | int) -> list[int]:
    return [id_ for part in parts for id_ in ([part] if isinstance(part, int) else part.encode())]


def row(gate: StructuredOutputGrammar, words: int = BYTE.words) -> list[int]:
    bitmask = np.full((1, words), 0x5A5A5A5A, dtype=np.int32)
    gate.fill_bitmask(bitmask, 0)
    return unpack_ids(bitmask[0])


def state(gate: Gate) -> tuple[Any, ...]:
    return row(gate), gate.is_accepting(), gate.is_terminated(), gate.num_accepted, gate.is_open, gate.opened_at


def reasoning(backend: str = "xgrammar", **options: Any) -> Gate:
    return ReasoningGate(grammar(backend, **options), search("</think>", TokenMarker(tokens("go"))))


def without_digits(backend: str = "xgrammar", **options: Any) -> Gate:
    return ReasoningGate(grammar(backend, **options), search("</think>"), excluded_ids=tokens("012345678;"))


def calls(backend: str = "xgrammar", **options: Any) -> Gate:
    triggers = search(TokenMarker(tokens("aab aab")), TextMarker("4", implicit=True), "<tool_call>")
    return TriggerGate(grammar(backend, **options), triggers, bound=UNCALL, rearm=True)


def patterns(backend: str = "xgrammar", **options: Any) -> Gate:
    triggers = search(PatternMarker("<[a-zé]+>"), PatternMarker("[1-9][0-9]", implicit=True), "<tool_call>")
    return TriggerGate(grammar(backend, **options), triggers, bound=UNCALL, rearm=True)


SESSIONS = [
    (reasoning, tokens("hm 12", UNTHINK, "120;07", EOS)),
    (without_digits, tokens("hm", UNTHINK, "120;07", EOS)),
    (reasoning, tokens("gg", "go", "9", EOS)),
    (calls, tokens("a", "aab aaab aab", "5;1", UNCALL, "x", CALL, "12", UNCALL, "<tool_call", CALL, "1", UNCALL, EOS)),
    (calls, tokens("11", "4", "4;4", UNCALL, "4", UNCALL, "4")),
    (patterns, tokens("<1<a<é>", "5;1", UNCALL, "4", CALL, "7", UNCALL, "042", "0;1", UNCALL, "<b", EOS)),
]
SESSION_IDS = ["explicit", "excluded", "tokens", "regions", "implicit", "patterns"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("make", "session"), SESSIONS, ids=SESSION_IDS)
def test_a15_a_block_may_cross_any_boundary_at_any_offset_and_be_taken_back(
    backend: str, make: Any, session: list[int]
) -> None:
    straight = make(backend)
    states = [state(straight)]
    for token in session:
        assert straight.accept_tokens("r", [token])
        states.append(state(straight))
    for start in range(len(session)):
        gate = make(backend)
        assert gate.accept_tokens("r", session[:start])
        assert gate.validate_tokens([*session[start:], 0]) == session[start:]
        assert not gate.accept_tokens("r", [*session[start:-1], -1])
        assert state(gate) == states[start]
        for end in range(start + 1, len(session) + 1):
            assert gate.accept_tokens("r", session[start:end])
            assert state(gate) == states[end]
            gate.rollback(end - start)
            assert state(gate) == states[start]
    for steps in range(1, len(session) + 1):
        gate = straight.fork()
        gate.rollback(steps)
        assert state(gate) == states[-1 - steps]
        assert gate.accept_tokens("r", session[len(session) - steps :])
        assert state(gate) == states[-1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("make", "session"), SESSIONS, ids=SESSION_IDS)
def test_f7_rows_of_drafts_that_cross_a_boundary_are_those_of_fresh_gates(
    backend: str, make: Any, session: list[int]
) -> None:
    builder = BitmaskBuilder(BYTE, 1, 9, max_rollback=10)
    rows = []
    for end in range(len(session) + 1):
        fresh = make(backend, max_rollback=10)
        assert fresh.accept_tokens("r", session[:end])
        rows.append(row(fresh))
    gate = make(backend, max_rollback=10)
    for start, token in enumerate(session):
        before = state(gate)
        chain = session[start : start + 4]
        count = len(chain)
        # The chain, an illegal child of the root, and the chain again from the root.
        parents = [-1, *range(count), 0, 0, *range(count + 2, 2 * count + 1)]
        tree = DraftTree.from_parents([-1, *chain, BYTE.size, *chain], parents)
        for drafts, depths in ((chain, [*range(count + 1)]), (tree, [*range(count + 1), 0, *range(1, count + 1)])):
            masks = builder.build([MaskRequest("r", gate, drafts)])
            assert [unpack_ids(mask) for mask in masks.bitmask] == [rows[start + depth] for depth in depths]
            assert state(gate) == before
        assert gate.accept_tokens("r", [token])


def test_j1_a_trigger_that_overlaps_itself_is_found_after_a_false_start() -> None:
    for false_start in ("aab aaa", "aab aab"[:6], "aab a", "aaaa", "aab aaab aa"):
        gate = TriggerGate(grammar(), search(TokenMarker(tokens("aab aab"))))
        gate.accept_tokens("r", tokens(false_start))
        assert not gate.is_open
        rest = next(
            "aab aab"[length:] for length in range(6, -1, -1) if ("x" + false_start).endswith("aab aab"[:length])
        )
        gate.accept_tokens("r", tokens(rest[:-1]))
        assert not gate.is_open
        gate.accept_tokens("r", tokens(rest[-1]))
        assert gate.is_open


def test_j1_a_rollback_into_the_middle_of_a_trigger_keeps_its_first_part() -> None:
    gate = TriggerGate(grammar(max_rollback=4), search(TokenMarker(tokens("aab aab"))))
    gate.accept_tokens("r", tokens("aab aab", "1"))
    gate.rollback(4)  # to "aab "
    assert not gate.is_open
    with pytest.raises(ValueError, match="max_rollback is 4"):
        gate.rollback(1)
    assert gate.accept_tokens("r", tokens("aab"))
    assert row(gate) == tokens("123456789")


def test_j1_an_end_of_two_tokens_is_not_taken_apart_by_padding() -> None:
    gate = ReasoningGate(grammar(), search(TokenMarker((UNTHINK, 10))))
    gate.accept_tokens("r", [UNTHINK])
    assert not gate.accept_tokens("r", [-1])
    assert gate.validate_tokens([-1]) == []
    assert gate.accept_tokens("r", [10])
    assert gate.is_open


@pytest.mark.parametrize("backend", BACKENDS)
def test_f12_an_implicit_end_is_the_first_content(backend: str) -> None:
    gate = ReasoningGate(grammar(backend), search(TokenMarker(tokens("4"), implicit=True)))
    assert gate.accept_tokens("r", tokens("x4"))
    assert row(gate) == sorted(tokens("0123456789;", EOS))
    whole = ReasoningGate(grammar(backend), search(TokenMarker(tokens("40;"), implicit=True)))
    assert whole.accept_tokens("r", tokens("x440;"))
    assert row(whole) == tokens("0123456789")
    whole.rollback(1)
    assert not whole.is_open
    assert len(row(whole)) == BYTE.size - 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_f13_an_implicit_end_that_the_grammar_refuses_is_masked_where_it_would_be_complete(backend: str) -> None:
    gate = ReasoningGate(grammar(backend), search("</think>", TokenMarker(tokens("x0"), implicit=True)))
    assert ord("0") in row(gate)
    assert gate.accept_tokens("r", tokens("x"))
    assert set(range(BYTE.size)) - set(row(gate)) == {ord("0"), EOS}
    assert gate.validate_tokens(tokens("0")) == []
    assert not gate.accept_tokens("r", tokens("0"))
    assert gate.accept_tokens("r", tokens("y0", UNTHINK, "7"))


def test_f13_some_end_must_be_legal() -> None:
    with pytest.raises(SpecError, match="begins with none of the ends of reasoning"):
        ReasoningGate(grammar(), search(TokenMarker((CALL,), implicit=True), TextMarker("x", implicit=True)))


def test_f12_the_prompt_says_whether_reasoning_is_over() -> None:
    ends, start = search("</think>"), search("<think>")
    for prompt, is_open in (
        ([], False),
        ([BOS, THINK], False),
        ([THINK, 1, UNTHINK, 2], True),
        ([THINK, 1, UNTHINK, 2, THINK, 3], False),
        ([UNTHINK, THINK, 1, UNTHINK], True),
        ([UNTHINK, 2**40, -1], True),
    ):
        gate = ReasoningGate(grammar(), ends, start=start, prompt=prompt)
        assert gate.is_open == is_open, prompt
        assert gate.opened_at == (0 if is_open else None)
    assert ReasoningGate(grammar(), ends, prompt=[UNTHINK, THINK]).is_open  # nobody said what a start is


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_f12_ids_may_be_those_of_arrays_and_tensors(kind: Any) -> None:
    prompt, end = kind([THINK, 1, UNTHINK, 2]), np.int64(UNTHINK)
    assert ReasoningGate(grammar(), search(end), prompt=prompt).is_open
    assert TriggerGate(grammar(), search(end, TokenMarker(kind([CALL]))), prompt=prompt[:3]).is_open
    assert ReasoningGate(grammar(), HostEnd(BYTE, lambda _, new: UNTHINK in new), prompt=prompt).is_open


def test_j1_one_text_is_no_list_of_markers() -> None:
    with pytest.raises(TypeError, match=re.escape("['</think>']")):
        MarkerSearch(BYTE, "</think>")


def test_f12_an_end_may_begin_in_the_prompt() -> None:
    gate = ReasoningGate(grammar(), search(TokenMarker(tokens("abab"))), prompt=tokens("xaba"))
    assert gate.accept_tokens("r", tokens("b7"))
    assert gate.is_open


def test_a12_a_closed_gate_allows_the_vocabulary_and_nothing_beyond() -> None:
    padded = BYTE.with_width(400)
    made = load_backend("xgrammar", padded).compile_grammar(NUMBERS).new_grammar()
    gate = TriggerGate(made, MarkerSearch(padded, ["<tool_call>"]))
    assert row(gate, padded.words) == list(range(BYTE.size))
    assert gate.validate_tokens([BYTE.size]) == []


def test_f17_a_closed_gate_masks_nothing_where_the_vocabulary_fills_its_words() -> None:
    letters = [bytes([value]) for value in range(63)]
    vocabulary = Vocabulary.from_bytes([*letters, b"<end>"], special_ids=[63], stop_ids=[63])
    made = load_backend("outlines", vocabulary).compile_grammar(GrammarSpec.choice(["1"])).new_grammar()
    gate = TriggerGate(made, MarkerSearch(vocabulary, ["!"]))
    bitmask = allocate_bitmask(1, vocabulary.width)
    bitmask.zero_()
    assert gate.fill_bitmask(bitmask, 0) is False
    assert bool((bitmask == -1).all())
    assert ReasoningGate(made, MarkerSearch(vocabulary, ["!"])).fill_bitmask(bitmask, 0) is True


def test_a9_a_stop_token_in_a_closed_gate_ends_the_request_unless_it_must_open() -> None:
    free = TriggerGate(grammar(), search("<tool_call>"))
    assert free.is_accepting()
    assert free.accept_tokens("r", tokens("x", EOS, "y"))
    assert (free.is_terminated(), free.num_accepted, free.constraint_activated) == (True, 2, False)  # J8
    assert row(free) == [EOS]
    assert free.accept_tokens("r", [1])
    assert free.validate_tokens([1]) == []
    free.rollback(1)
    assert not free.is_terminated()
    assert len(row(free)) == BYTE.size
    strict = ReasoningGate(grammar(), search("</think>"))
    assert not strict.is_accepting()
    assert EOS not in row(strict)
    assert not strict.accept_tokens("r", tokens("x", EOS))
    assert strict.num_accepted == 0


def test_a10_the_stop_set_is_that_of_the_request() -> None:
    gate = TriggerGate(grammar(stop_token_ids=[PAD, ord("!")]), search("<tool_call>"))
    assert gate.stop_set == {PAD, ord("!")}
    assert EOS not in row(gate)
    assert gate.validate_tokens(tokens("x!", "y")) == tokens("x!")
    assert gate.accept_tokens("r", tokens(CALL, "1", PAD))
    assert gate.is_terminated()


def test_j3_a_bound_ends_a_region_and_stop_tokens_do_not() -> None:
    gate = calls()
    gate.accept_tokens("r", tokens(CALL))
    assert UNCALL not in row(gate)
    assert not gate.accept_tokens("r", [UNCALL])
    gate.accept_tokens("r", tokens("12"))
    assert row(gate) == sorted(tokens("0123456789;", UNCALL))
    assert gate.validate_tokens([EOS]) == []
    assert not gate.is_accepting()
    assert gate.accept_tokens("r", [UNCALL])
    assert (gate.is_open, gate.constraint_activated, gate.is_accepting()) == (False, True, True)
    once = TriggerGate(grammar(), search("<tool_call>"), bound=UNCALL)
    assert once.accept_tokens("r", tokens(CALL, "1", UNCALL, CALL, "x", CALL, EOS))


def test_j3_a_bound_that_is_text_ends_the_region_as_soon_as_it_may() -> None:
    gate = TriggerGate(grammar(), search("<tool_call>"), bound=ord(";"), rearm=True)
    assert gate.accept_tokens("r", tokens(CALL, "1;", "x;", CALL, "2"))
    assert gate.is_open
    assert gate.accept_tokens("r", tokens(";"))
    assert not gate.is_open


def test_j5_the_rest_of_the_token_in_which_a_trigger_ends_is_content() -> None:
    pieces = [b"ab<", b"f>4", b"f>x", b"<f>", b"f>", b"f", b">", b"4", b"2", b"<", b"x"]
    vocabulary = Vocabulary.from_bytes([*pieces, b"<end>", b"<ctl>"], special_ids=[11, 12], stop_ids=[11])
    made = load_backend("xgrammar", vocabulary).compile_grammar(GrammarSpec.regex("42?")).new_grammar()
    begun, ends, ends_wrongly = 0, 1, 2
    gate = TriggerGate(made, MarkerSearch(vocabulary, [TextMarker("<f>")]))
    assert gate.accept_tokens("r", [begun])
    assert ends_wrongly not in row(gate, vocabulary.words)
    assert {ends, 4, 5} <= set(row(gate, vocabulary.words))
    assert not gate.accept_tokens("r", [ends_wrongly])
    assert gate.validate_tokens([ends, 8, 11]) == [ends, 8, 11]
    assert gate.accept_tokens("r", [ends])
    assert row(gate, vocabulary.words) == [8, 11]
    gate.rollback(1)
    assert gate.accept_tokens("r", [12, ends])  # a control token is no text, and nothing reaches across it
    assert not gate.is_open
    content = load_backend("xgrammar", vocabulary).compile_grammar(GrammarSpec.regex("<f>(4|x)")).new_grammar()
    implicit = TriggerGate(content, MarkerSearch(vocabulary, [TextMarker("<f>", implicit=True)]))
    assert implicit.accept_tokens("r", [begun, ends_wrongly])
    assert row(implicit, vocabulary.words) == [11]


@pytest.mark.parametrize("make", [reasoning, calls])
def test_j6_replaying_tokens_in_one_block_is_living_through_them(make: Any) -> None:
    _, session = next(pair for pair in SESSIONS if pair[0] is make)
    live, replayed = make(max_rollback=3), make(max_rollback=3)
    for token in session:
        live.accept_tokens("r", [token])
    assert replayed.accept_tokens("r", session)
    for _ in range(3):
        assert state(live) == state(replayed)
        live.rollback(1)
        replayed.rollback(1)
    for gate in (live, replayed):
        with pytest.raises(ValueError, match="max_rollback is 3"):
            gate.rollback(1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_j7_gates_compose(backend: str) -> None:
    inner = TriggerGate(grammar(backend), search("<tool_call>"), bound=UNCALL, rearm=True)
    gate = ReasoningGate(inner, search("</think>"), budget=5)
    assert gate.accept_tokens("r", tokens(CALL, "x"))  # reasoning may hold anything
    assert (gate.is_open, gate.constraint_activated) == (False, False)
    assert gate.accept_tokens("r", tokens(UNTHINK, "free"))
    assert (gate.is_open, gate.constraint_activated) == (False, False)
    assert gate.accept_tokens("r", tokens(CALL, "1"))
    assert (gate.is_open, gate.constraint_activated) == (True, True)
    assert row(gate) == sorted(tokens("0123456789;", UNCALL))
    assert gate.accept_tokens("r", tokens("0", UNCALL, CALL, "9", UNCALL, EOS))
    assert gate.is_terminated()
    gate.rollback(gate.num_accepted)
    assert state(gate) == state(ReasoningGate(inner, search("</think>"), budget=5))


def test_j7_a_spent_budget_forces_the_terminator_token_by_token() -> None:
    ends = search("</think>")
    gate = ReasoningGate(grammar(), ends, budget=3, terminator=tokens("so.", UNTHINK), excluded_ids=[ord("."), BOS])
    assert set(range(BYTE.size)) - set(row(gate)) == {ord("."), BOS, EOS}
    assert not gate.accept_tokens("r", [BOS])
    gate.accept_tokens("r", tokens("xys"))
    for token in tokens("o.", UNTHINK):  # "s" was the terminator's first already
        assert row(gate) == [token]
        assert gate.validate_tokens([PAD]) == []
        assert gate.accept_tokens("r", [token])
    assert gate.is_open
    assert row(gate) == tokens("123456789")
    gate.rollback(2)
    assert row(gate) == tokens(".")
    for must_open in (True, False):  # the terminator comes before a stop token, too
        spent = ReasoningGate(grammar(), ends, budget=0, must_open=must_open)
        assert row(spent) == [UNTHINK]
        assert not spent.is_accepting()
        assert not spent.accept_tokens("r", [EOS])


def test_j7_the_grammar_may_describe_the_reasoning_too() -> None:
    spec = GrammarSpec.regex("[a-z]{2,}\\.[0-9]{2}")
    gate = ReasoningGate(
        grammar(spec=spec),
        search(TokenMarker(tokens("."))),
        constrain_reasoning=True,
        budget=1,
        excluded_ids=tokens("x5"),
    )
    assert gate.is_open
    assert row(gate) == tokens("abcdefghijklmnopqrstuvwyz")
    assert gate.accept_tokens("r", tokens("a"))
    assert row(gate) == tokens("abcdefghijklmnopqrstuvwyz")  # spent, but the grammar has no end here
    assert gate.accept_tokens("r", tokens("b"))
    assert row(gate) == tokens(".")
    assert gate.validate_tokens(tokens("c")) == []
    assert gate.accept_tokens("r", tokens("."))
    assert row(gate) == tokens("0123456789")  # the reasoning is over, and with it what was excluded
    gate.rollback(1)
    assert row(gate) == tokens(".")


def test_a14_a_dead_end_of_the_gate_can_be_taken_back() -> None:
    gate = ReasoningGate(
        grammar(spec=GrammarSpec.choice(["ab", "c"])),
        search("</think>"),
        constrain_reasoning=True,
        excluded_ids=tokens("b"),
    )
    gate.accept_tokens("r", tokens("a"))
    for _ in range(2):
        with pytest.raises(DeadEnd):
            row(gate)
        assert not gate.accept_tokens("r", tokens("b"))
    gate.rollback(1)
    assert gate.error is None
    assert row(gate) == tokens("ac")


@pytest.mark.parametrize("backend", BACKENDS)
def test_i6_nothing_is_forced_while_a_gate_is_closed(backend: str) -> None:
    gate = ReasoningGate(grammar(backend, GrammarSpec.choice(["abcde"])), search("</think>"), budget=1)
    for _ in range(2):
        assert (gate.forced_tokens(), gate.forced_bytes()) == ([], b"")
        gate.accept_tokens("r", tokens("x"))
    gate.accept_tokens("r", [UNTHINK])
    assert gate.forced_bytes() == b"abcde"
    assert gate.forced_tokens() == tokens("abcde")


class Ended:
    """A host's own parser: the reasoning is over after a full stop and a new line; it notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], list[int]]] = []

    def __call__(self, token_ids: Sequence[int], new_ids: Sequence[int]) -> bool:
        self.asked.append((list(token_ids), list(new_ids)))
        if "!" in bytes(id_ for id_ in new_ids if id_ < 256).decode():
            raise RuntimeError("a bug of the host")
        return list(token_ids[-2:]) == tokens(".\n") or token_ids[-1] == CALL


def test_f12_a_host_may_say_where_reasoning_ends() -> None:
    ended = Ended()
    end = HostEnd(BYTE, ended, implicit_ids=[CALL])
    gate = ReasoningGate(grammar(max_rollback=9), end, prompt=tokens(BOS, "p."))
    assert ended.asked == [(tokens(BOS, "p."), tokens(BOS, "p."))]
    assert CALL not in row(gate)  # F13
    assert not gate.accept_tokens("r", [CALL])
    assert gate.validate_tokens(tokens("a.\n7x")) == tokens("a.\n7")
    assert gate.accept_tokens("r", tokens("a."))
    fork = gate.fork()
    gate.rollback(1)
    assert gate.accept_tokens("r", tokens("x\n"))
    assert not gate.is_open
    assert ended.asked[-1] == (tokens(BOS, "p.ax\n"), tokens("\n"))
    assert fork.accept_tokens("r", tokens("\n7"))
    assert fork.is_open
    fork.rollback(2)
    assert not fork.is_open
    assert len(row(gate)) == BYTE.size - 2


def test_a19_a_failure_of_the_host_sticks() -> None:
    gate = ReasoningGate(grammar(), HostEnd(BYTE, Ended()))
    assert gate.accept_tokens("r", tokens("a."))
    assert not gate.accept_tokens("r", tokens("c!"))
    for _ in range(2):
        assert isinstance(gate.error, GrammarError)
        assert not gate.accept_tokens("r", tokens("c"))
        assert gate.validate_tokens(tokens("c")) == []
        with pytest.raises(GrammarError, match="a bug of the host"):
            row(gate)
        gate.rollback(1)
    gate.reset()
    assert gate.error is None
    assert gate.accept_tokens("r", tokens("c"))
    open_gate = ReasoningGate(
        grammar(spec=GrammarSpec.regex("[a-z!]+")), HostEnd(BYTE, Ended()), constrain_reasoning=True
    )
    assert not open_gate.accept_tokens("r", tokens("a!"))
    assert isinstance(open_gate.error, GrammarError)


def test_j7_a_budget_ends_reasoning_whatever_the_host_says() -> None:
    gate = ReasoningGate(grammar(), HostEnd(BYTE, lambda token_ids, new_ids: False), budget=2, terminator=tokens("ok"))
    assert gate.accept_tokens("r", tokens("ab"))
    assert row(gate) == tokens("o")
    assert gate.accept_tokens("r", tokens("ok7"))
    assert gate.is_open
    end = HostEnd(BYTE, lambda token_ids, new_ids: False, implicit_ids=[CALL])
    with pytest.raises(DeadEnd):  # what is forced is refused
        row(ReasoningGate(grammar(), end, budget=0, terminator=[CALL]))


def test_f18_open_gates_fill_their_rows_together_with_grammars() -> None:
    made = [grammar(), reasoning(), calls(), ReasoningGate(grammar(), search("</think>"), prompt=[UNTHINK])]
    for gate in made[1:3]:
        gate.accept_tokens("r", tokens(UNTHINK, CALL, "1") if gate is made[2] else [UNTHINK])
    assert [getattr(each, "batch", None) is None for each in made] == [False, False, True, False]
    bitmask = allocate_bitmask(4, BYTE.width)
    assert fill_bitmasks(made, bitmask) == [None] * 4
    assert [unpack_ids(bitmask[number]) for number in range(4)] == [row(each) for each in made]


def test_a33_a_bounded_gate_keeps_a_bounded_log() -> None:
    gate = calls(max_rollback=5)
    for _ in range(300):
        assert gate.accept_tokens("r", tokens(CALL, "12", UNCALL, "x"))
    assert gate.num_accepted == 1500
    gate.rollback(5)
    assert not gate.is_open
    assert len(gate._log) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (search, "at least one marker"),
        (lambda: search(""), "needs a character"),
        (lambda: search([]), "needs a token"),
        (lambda: search(BYTE.size), "outside 0..262"),
        (lambda: TriggerGate(grammar(), search(EOS)), "stop token"),
        (lambda: TriggerGate(grammar(), search(CALL), bound=EOS), "bound: 256 is a stop token"),
        (lambda: TriggerGate(grammar(), search(CALL), bound=-1), "bound: -1"),
        (lambda: TriggerGate(grammar(), search(CALL), rearm=True), "without a bound"),
        (lambda: TriggerGate(grammar(), search(TokenMarker((CALL,), implicit=True)), prompt=[CALL]), "refuses"),
        (lambda: TriggerGate(grammar(), search(CALL), stop_token_ids=[999]), "stop id 999"),
        (lambda: ReasoningGate(grammar(), search(UNTHINK), budget=-1), "must not be negative"),
        (lambda: ReasoningGate(grammar(), search(TextMarker("x")), budget=1), "needs a terminator"),
        (lambda: ReasoningGate(grammar(), search(UNTHINK), excluded_ids=[EOS]), "excluded ids: 256"),
        (lambda: ReasoningGate(grammar(), HostEnd(BYTE, Ended()), budget=1), "needs a terminator"),
        (lambda: ReasoningGate(grammar(), search(UNTHINK), terminator=[EOS]), "terminator: 256"),
        (lambda: ReasoningGate(grammar(), HostEnd(BYTE, Ended()), start=search(THINK)), "knows its start"),
    ],
)
def test_wrong_arguments_are_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
