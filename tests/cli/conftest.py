"""The command line in this process, with the comparison's toy plugins as the only installed ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grammar_backends.cli import gb

TOYS = Path(__file__).parents[1] / "comparison" / "toys"
BLOCKED = "xgrammar,guidance,outlines,lm-format-enforcer,conformance,toy-dies-at-start"
"""What else may be installed, and the toy that would take this process down."""

Invoke = Callable[..., Result]


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs the toys and blocks what else may be installed."""
    monkeypatch.syspath_prepend(TOYS)
    monkeypatch.setenv("GRAMMAR_BACKENDS_BLOCK", BLOCKED)
    yield
    for name in ("toy_engines", "toy_engines_broken"):
        sys.modules.pop(name, None)


@pytest.fixture
def invoke(toys: None) -> Invoke:
    """Runs ``gb`` with these arguments; stdout is a pipe."""

    def run(*args: str, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(gb, list(args), input=stdin, prog_name="gb")
        assert "Traceback" not in result.stderr
        return result

    return run
