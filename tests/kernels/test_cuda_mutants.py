"""Faults planted in the CUDA kernel are found by random cases, or by how often memory is touched."""

from __future__ import annotations

from pathlib import Path

from .conftest import StandIn
from .mutants import mutants, survivors

SHARE = 16
"""One fault in so many is tried here; ``python tests/kernels/mutants.py`` tries all."""


def test_h_planted_faults_are_caught(stand_in_driver: StandIn, tmp_path: Path) -> None:
    planted = mutants()[::SHARE]
    assert len(planted) > 20
    assert [(mutant.line, mutant.changed) for mutant in survivors(planted, tmp_path)] == []
