"""The proof on a GPU: what it does where there is none, all its code that runs on the host, and what it would claim."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from grammar_backends.kernels.apply import Implementation
from grammar_backends.kernels.call import Call
from grammar_backends.kernels.verify import __main__ as command
from grammar_backends.kernels.verify.checks import CHECKS, Limits, Verdict, run_checks
from grammar_backends.kernels.verify.evidence import REHEARSAL, Evidence
from grammar_backends.kernels.verify.machine import Host
from grammar_backends.kernels.verify.timing import (
    CEILING,
    MASKS,
    OURS,
    TRITON,
    Cell,
    Plan,
    Timed,
    cells,
    mask_bits,
    needed_bytes,
    packed,
)

from .conftest import StandIn


class Wrong(Host):
    """A host whose kernel forgets the last row."""

    @property
    def implementation(self) -> Implementation:
        right = super().implementation

        def run(call: Call) -> None:
            if call.logits.shape[0] > 1:
                right.run(call._replace(logits=call.logits[:-1]))

        return right._replace(run=run)


def test_h_without_a_gpu_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = CliRunner().invoke(command.main, ["--out", str(tmp_path / "evidence")])
    assert done.exit_code == 5
    assert "nothing was verified" in done.output
    assert not (tmp_path / "evidence").exists()


def test_h_a_rehearsal_runs_everything_and_claims_nothing(stand_in_driver: StandIn, tmp_path: Path) -> None:
    done = CliRunner().invoke(command.main, ["--out", str(tmp_path), "--rehearse"])
    assert done.exit_code == 0, done.output
    evidence = json.loads((tmp_path / "evidence.json").read_text())
    outcomes = {check["name"]: check["outcome"] for check in evidence["checks"]}
    assert set(outcomes) == set(CHECKS)
    assert {name for name, outcome in outcomes.items() if outcome == "pass"} == {
        "random cases",
        "small and large pieces",
        "many rows",
        "threads",
    }
    assert evidence["rehearsal"]
    assert not any(evidence[claim] for claim in ("times", "goals", "host_cost_us"))
    text = (tmp_path / "evidence.md").read_text()
    assert REHEARSAL in text
    assert "GB/s" not in text
    assert f"{2 * 2 * len(MASKS)} comparisons ran" in text


def test_h_a_kernel_that_is_wrong_fails_the_checks(stand_in_driver: StandIn) -> None:
    outcomes = {verdict.name: verdict for verdict in run_checks(Wrong(), Limits(200, 20.0, 0))}
    for name in ("random cases", "many rows", "threads"):
        assert outcomes[name].outcome == "fail", name
    assert "differs at" in outcomes["random cases"].detail


def timed(microseconds: dict[str, float], cell: Cell, needed: int = 1000, filled: int = 1000) -> Timed:
    return Timed(cell, needed, filled, microseconds, {})


def evidence_of(*times: Timed, rehearsal: bool = False, outcome: str = "pass") -> Evidence:
    return Evidence(rehearsal, {"device": "one"}, [Verdict("check", outcome, "done", 0.1)], {"call": 5.0}, times, 3)


JSON_CELL = Cell(torch.float32, 256, "200 allowed", True)
OTHER_CELL = Cell(torch.bfloat16, 1, "half", False)


@pytest.mark.parametrize(
    ("microseconds", "goals"),
    [
        ({OURS: 10.0, CEILING: 9.0, TRITON: 11.0}, [True, True]),
        ({OURS: 10.0, CEILING: 8.0, TRITON: 11.0}, [False, True]),
        ({OURS: 10.0, CEILING: 9.0, TRITON: 10.0}, [True, False]),
        ({OURS: 10.0, CEILING: 9.0}, [True, None]),
    ],
)
def test_h_goals_are_judged_by_the_times(microseconds: dict[str, float], goals: list[bool | None]) -> None:
    assert list(evidence_of(timed(microseconds, JSON_CELL)).goals.values()) == goals
    assert evidence_of(timed(microseconds, JSON_CELL), rehearsal=True).goals == {}


def test_h_a_goal_for_every_cell_fails_in_one() -> None:
    fast = timed({OURS: 10.0, CEILING: 9.0, TRITON: 11.0}, JSON_CELL)
    slow = timed({OURS: 12.0, CEILING: 9.0, TRITON: 11.0}, OTHER_CELL)
    assert [*evidence_of(fast, slow).goals.values()] == [True, False]
    assert [*evidence_of(slow).goals.values()] == [None, False]


def test_h_the_evidence_says_what_was_measured(tmp_path: Path) -> None:
    evidence = evidence_of(timed({OURS: 10.0, CEILING: 8.0, TRITON: 12.5}, JSON_CELL, needed=40_000, filled=40_000))
    evidence.write(tmp_path / "new")
    text = (tmp_path / "new" / "evidence.md").read_text()
    assert "| float32 | 256 | 200 allowed | cold | 10.00 | 8.00 | 12.50 | 4 | 80% |" in text
    assert "3 comparisons were left out" in text
    assert json.loads((tmp_path / "new" / "evidence.json").read_text())["times"][0]["share_of_fill"] == 0.8
    assert not evidence_of(outcome="fail").ok


def test_h_what_tells_most_is_timed_first() -> None:
    planned = list(cells(Plan()))
    assert len(planned) == len(set(planned)) == 6 * 2 * 2 * len(MASKS)
    assert {cell.rows for cell in planned[:20]} == {256}


@pytest.mark.parametrize("mask", MASKS)
def test_h_masks_to_be_timed_are_what_they_are_called(mask: str) -> None:
    bits = mask_bits(mask, 3, 6400, "cpu")
    allowed = bits.sum(1).tolist()
    expected: dict[str, Callable[[int], bool]] = {
        "all allowed": lambda n: n == 6400,
        "1,500 masked": lambda n: 4900 <= n <= 5200,
        "half": lambda n: 2900 < n < 3500,
        "200 allowed": lambda n: 180 < n <= 200,
        "all masked": lambda n: n == 0,
    }
    assert all(expected[mask](count) for count in allowed), allowed
    words = packed(bits)
    assert [bool(words[1, id_ // 32] >> (id_ % 32) & 1) for id_ in range(200)] == bits[1, :200].tolist()


def test_h_the_bytes_that_a_mask_needs_are_its_own_and_the_sectors_that_it_masks_in() -> None:
    bits = torch.ones((2, 64), dtype=torch.bool)
    assert needed_bytes(bits, 4) == 16
    bits[0, 8] = bits[0, 15] = bits[1, 63] = False
    assert needed_bytes(bits, 4) == 16 + 2 * 32
    assert needed_bytes(~bits, 2) == 16 + 8 * 32
