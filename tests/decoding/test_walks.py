"""F7, F8, G8: batches, drafts and trees of all backends, against a fresh grammar for every row."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from grammar_backends import RowState, StructuredOutputGrammar, Vocabulary, load_vocabulary
from grammar_backends.decoding import (
    MarkerSearch,
    PatternMarker,
    ReasoningGate,
    TextMarker,
    TokenMarker,
    TriggerGate,
    builder,
)
from grammar_backends_conformance.laws.batches import Disagreement, Origin, Replay, Walk
from grammar_backends_conformance.laws.batches.origins import gapped_vocabulary, origins

COMPILED = ("xgrammar", "guidance", "outlines")


@functools.cache
def vocabulary(name: str) -> Vocabulary:
    return gapped_vocabulary() if name == "gapped" else load_vocabulary(name)


@functools.cache
def made(name: str, backends: tuple[str, ...]) -> dict[str, Origin]:
    return origins(vocabulary(name), backends)


@pytest.mark.parametrize(
    ("name", "backends", "steps"),
    [("byte", COMPILED, 9000), ("gapped", COMPILED, 9000), ("byte", ("lm-format-enforcer", "guidance"), 2000)],
)
def test_f7_rows_states_and_commits_equal_brute_force_on_20000_random_steps(
    name: str, backends: tuple[str, ...], steps: int
) -> None:
    walk = Walk(vocabulary(name), made(name, backends), seed=steps)
    walk.run(steps)
    assert {state for state, rows in walk.seen.items() if rows} == set(RowState) - {RowState.FAILED}


def gated() -> dict[str, Origin]:
    """Gates of every kind over native and other grammars; "z" and "q" open them, "!" closes some again."""
    ends, triggers = MarkerSearch(vocabulary("byte"), ["z"]), MarkerSearch(vocabulary("byte"), [TextMarker("q")])
    implicit = MarkerSearch(vocabulary("byte"), [TokenMarker([ord("z"), ord("a")], implicit=True), TextMarker("qq")])
    patterns = MarkerSearch(vocabulary("byte"), [PatternMarker("z[ab]", implicit=True), PatternMarker("q+[^q]")])
    gates: dict[str, Callable[[StructuredOutputGrammar], StructuredOutputGrammar]] = {
        "reasoning": lambda grammar: ReasoningGate(grammar, ends),
        "budget": lambda grammar: ReasoningGate(grammar, ends, budget=3, terminator=[ord("z")]),
        "trigger": lambda grammar: TriggerGate(grammar, implicit),
        "patterns": lambda grammar: TriggerGate(grammar, patterns, bound=ord("!"), rearm=True),
        "regions": lambda grammar: TriggerGate(grammar, triggers, bound=ord("!"), rearm=True),
    }
    plain = {
        name: make for name, make in made("byte", COMPILED).items() if name.startswith("runs") and "stops" not in name
    }
    return {
        f"{kind} of {name}": lambda gate=gate, make=make: gate(make())  # type: ignore[misc]  # bound early
        for kind, gate in gates.items()
        for name, make in plain.items()
    }


def test_f12_gates_open_and_close_at_any_offset_among_the_drafts() -> None:
    often = [ord(letter) for letter in "zqab!"]
    walk = Walk(vocabulary("byte"), gated(), seed=5, often=often)
    walk.run(2500)
    assert {state for state, rows in walk.seen.items() if rows} >= {RowState.CONSTRAINED, RowState.UNREACHABLE}


def test_f14_threads_fill_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "ROWS_PER_THREAD", 2)
    Walk(vocabulary("byte"), made("byte", COMPILED), seed=3, threads=3).run(1000)


def test_a_walk_notices_one_wrong_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    after = Replay.after

    def flipped(self: Replay, tokens: list[int]) -> object:
        seen = after(self, tokens)
        return seen and type(seen)(bytes([seen.row[0] ^ 1, *seen.row[1:]]), seen.state)

    monkeypatch.setattr(Replay, "after", flipped)
    with pytest.raises(Disagreement, match="bits of"):
        Walk(vocabulary("byte"), made("byte", COMPILED), seed=1).run(50)
