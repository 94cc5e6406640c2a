"""Faults planted in the CUDA kernel are found by random cases, or by how often memory is touched."""

from __future__ import annotations

from pathlib import Path

from .conftest import StandIn
from .mutants import mutants, survivors

SHARE = 16
"""One fault in so many is tried here; ``python tests/kernels/mutants.py`` tries all."""

EQUIVALENT = {
    "const i32 logits_row = logits_row_of(a, job);",  # rows are fewer than 2**30, and the stride has 64 bits
    "if (column < 1) masked &= column > -32 ? ALL << -column : 0u;",  # at column 0, nothing is shifted out
    "constexpr i32 SHARERS = 33 / LANES;",  # a division of whole numbers
}
"""Changes that change nothing."""


def test_h_planted_faults_are_caught(stand_in_driver: StandIn, tmp_path: Path) -> None:
    planted = mutants()[::SHARE]
    assert len(planted) > 20
    left = [(mutant.line, mutant.changed) for mutant in survivors(planted, tmp_path)]
    assert [fault for fault in left if fault[1] not in EQUIVALENT] == []
