"""An engine with known gaps: the schema oracle, told less than all. They are found, all of them and nothing else."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from grammar_backends import default_host
from grammar_backends_conformance.oracles import Uncovered, schema_valid
from grammar_backends_conformance.probing.keywords import FRAGMENTS
from grammar_backends_conformance.probing.probe import Probe, Verdict
from grammar_backends_conformance.probing.probes import single_probes
from grammar_backends_conformance.probing.report import Report
from grammar_backends_conformance.probing.run import Measured

IGNORED = frozenset({"uniqueItems", "not", "maxProperties"})
REFUSED = frozenset({"minLength"})


class RefusedError(Exception):
    """The engine refuses a keyword by name."""


def weakened(schema: Any) -> Any:
    """What the engine makes of a schema: it ignores some keywords, and takes `oneOf` for `anyOf`."""
    if isinstance(schema, list):
        return [weakened(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if REFUSED & schema.keys():
        raise RefusedError
    kept = {key: value if key in ("enum", "const") else weakened(value) for key, value in schema.items()}
    written = {key: value for key, value in kept.items() if key not in IGNORED | {"oneOf"}}
    return {**written, "anyOf": kept["oneOf"]} if "oneOf" in kept else written


def answer(probe: Probe) -> Verdict:
    if probe.case.kind != "json_schema" or probe.about.startswith(("formats/", "unknown_formats")):
        return "refuses"
    try:
        schema = weakened(probe.case.spec)
        verdicts = [schema_valid(schema, test.text) for test in probe.case.tests]
    except (RefusedError, Uncovered):
        return "refuses"
    pairs = list(zip(verdicts, probe.case.tests, strict=True))
    if any(taken and not test.valid for taken, test in pairs):
        return "wrong"
    return "over-constrains" if any(test.valid and not taken for taken, test in pairs) else "enforced"


@functools.cache
def report() -> Report:
    asked = [probe for probe in single_probes() if not probe.case.options]
    return Report.of(
        default_host().backend("outlines"), Measured("9.9", {each.case.id: answer(each) for each in asked})
    )


def table() -> dict[str, Any]:
    # A version that no table is for gets one of its own, behind those there are.
    found: dict[str, Any] = report().to_dict()["data"][-1]
    return found


@pytest.mark.parametrize(
    ("name", "missing"),
    [("string", {"minLength", "format"}), ("array", {"uniqueItems"}), ("object", {"maxProperties"})],
)
def test_c3_exactly_the_gaps_of_an_engine_are_found(name: str, missing: set[str]) -> None:
    assert {*FRAGMENTS[name]} - {*table()["types"][name]} == missing


def test_c3_gaps_of_combinators_are_found() -> None:
    assert "not" not in table()["types"]["any"]
    assert "oneof-disjoint" in table()["checks"]
    assert "allof-branches" not in table()["checks"]


def test_c3_a_disagreement_is_shown_as_a_difference_that_can_be_read() -> None:
    assert report().differs
    assert '+  "measured": "9.9",' in report().diff.splitlines()
