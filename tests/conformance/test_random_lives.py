"""Random lives: they agree with the oracle, and where they do not the failure is short and can be repeated."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from grammar_backends import load_backend
from grammar_backends_conformance.laws import LAWS, Lab, Sample, Violation
from grammar_backends_conformance.laws.soak import soak
from grammar_backends_conformance.vocabularies import suite_vocabulary


@functools.cache
def lab() -> Lab:
    return Lab(load_backend("outlines", suite_vocabulary("byte")), "byte")


def misjudged() -> Sample:
    """The sample "runs" with another language for its truth, as if the backend took one letter too few."""
    sample = next(sample for sample in lab().samples if sample.language.name == "runs")
    return dataclasses.replace(sample, language=dataclasses.replace(sample.language, truth="[abd]+c?"))


def test_a_violation_shrinks_to_calls_that_can_be_repeated() -> None:
    with pytest.raises(Violation, match="A12") as caught:
        LAWS["A25/random-lives"].check(lab(), misjudged())
    calls = [line for line in caught.value.calls if line.startswith("g")]
    assert len(calls) <= 8
    made: dict[str, Any] = {}
    exec("\n".join(caught.value.calls), made)  # the reproduction is a script
    assert made["g0"].num_accepted == 0


def test_a_walk_finds_what_a_law_finds() -> None:
    broken = Lab(lab().backend, "byte")
    broken.__dict__["samples"] = [misjudged()]
    result = soak(broken, 500, seed=1)
    assert result["steps"] < 500
    assert "A12" in result["violation"]["message"]


def test_the_same_seed_walks_the_same_steps() -> None:
    first, second = (soak(Lab(lab().backend, "byte"), 400, seed=7) for _ in range(2))
    assert first["violation"] is None
    assert (first["steps"], first["masks"]) == (second["steps"], second["masks"]) == (400, first["masks"])
