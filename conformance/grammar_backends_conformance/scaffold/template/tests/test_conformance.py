"""The contract, as the suite judges it. `gb conformance run toy` shows more, and is quicker with several cores."""

from __future__ import annotations

from grammar_backends_conformance.suite import run_suite
from toy_backend import SPEC


def test_the_backend_keeps_the_contract() -> None:
    report = run_suite(SPEC, profile="core", vocabularies=["byte", "adversarial"])
    assert report.ok, report.summary
