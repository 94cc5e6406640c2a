"""What ``pytest --pyargs grammar_backends_conformance`` collects: one test, for each check of each named backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from grammar_backends_conformance.laws.check import Check
    from grammar_backends_conformance.suite.session import Session


def test_law(grammar_session: Session, grammar_backend: str, grammar_check: Check) -> None:
    line, problem = grammar_session.judge(grammar_backend, grammar_check)
    if line.result.outcome == "expected-fail":
        pytest.xfail(line.reason)
    if problem:
        pytest.fail(problem, pytrace=False)
    if line.failed:
        pytest.fail(line.in_full, pytrace=False)
