"""Runs the laws on backends: which checks there are, each in a process that may crash, and what became of them.

`plan` says which checks there are, `bench` runs one in this process, `worker` puts a bench into a process of its own,
`run` runs them all and makes a `report`, `expectations` holds known deviations, `command` and `pytest_plugin` are the
doors beside `run_suite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grammar_backends_conformance.reports.report import SuiteReport
    from grammar_backends_conformance.suite.run import run_suite

__all__ = ["TIME_LIMIT", "SuiteReport", "run_suite"]

TIME_LIMIT = 120.0
"""Seconds for one check, unless said otherwise."""


def __getattr__(name: str) -> Any:
    # Lazy: the command line and pytest import modules of this package without ever running a law.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grammar_backends_conformance.reports import report
    from grammar_backends_conformance.suite import run

    return getattr(run if name == "run_suite" else report, name)
