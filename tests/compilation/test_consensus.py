"""Ranks agree on every request, whatever the order in which their compilations end or fail (E13)."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from grammar_backends.compilation import Verdict, local_consensus
from grammar_backends.compilation.consensus import merge_verdicts

RANK = Path(__file__).with_name("rank.py")

OUTCOMES = {
    "ready": Verdict({"r": "digest"}, {}),
    "other": Verdict({"r": "another digest"}, {}),
    "failed": Verdict({}, {"r": "broken"}),
    "pending": Verdict({}, {}),
}


@pytest.mark.parametrize("ranks", list(itertools.product(OUTCOMES, repeat=3)), ids="-".join)
def test_e13_one_failure_fails_it_everywhere_and_only_all_make_it_ready(ranks: tuple[str, ...]) -> None:
    verdict = merge_verdicts([OUTCOMES[outcome] for outcome in ranks])
    if "failed" in ranks:
        assert verdict == ({}, {"r": "broken"})
    elif "pending" in ranks:
        assert verdict == ({}, {})
    elif len(set(ranks)) == 1:
        assert verdict.failed == {}
        assert verdict.ready.keys() == {"r"}
    else:
        assert verdict.ready == {}
        assert "different grammars" in verdict.failed["r"]


def test_e13_the_reason_is_that_of_the_first_rank_that_failed_and_ids_are_in_order() -> None:
    verdicts = [
        Verdict({"c": "1", "a": "1"}, {"z": "first"}),
        Verdict({"a": "1", "c": "1"}, {"z": "second", "b": "second"}),
    ]
    verdict = merge_verdicts(verdicts)
    assert verdict.failed == {"z": "first", "b": "second"}
    assert [list(verdict.ready), list(verdict.failed)] == [["a", "c"], ["b", "z"]]


def test_e13_what_failed_and_is_ready_failed() -> None:
    assert local_consensus({"a": "1", "b": "1"}, {"b": "broken"}) == ({"a": "1"}, {"b": "broken"})


@pytest.mark.parametrize(("size", "runs"), [(2, 3), (4, 1)], ids=["two-ranks", "pipeline-of-two-by-two"])
def test_e13_ranks_agree_over_500_random_schedules(size: int, runs: int, tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, RANK, str(rank), str(size), tmp_path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    answers = [rank.communicate(timeout=400) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, answers
    logs = {output for output, _ in answers}
    assert len(logs) == 1, "the logs of two ranks differ"
    assert len(logs.pop().split()) == runs
