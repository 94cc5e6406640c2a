"""F7, F8, G8: batches, drafts and trees of all backends, against a fresh grammar for every row."""

from __future__ import annotations

import functools

import pytest

from grammar_backends import RowState, Vocabulary, load_vocabulary
from grammar_backends.decoding import builder
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
