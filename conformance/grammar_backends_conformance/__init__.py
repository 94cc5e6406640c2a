"""Proves and compares the backends of grammar_backends.

`laws` is the contract made executable, `suite` runs it on backends and isolates them, `reports` shows what became of
it; `comparison` runs corpora on several backends and reports correctness and speed. Importing this package loads
nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grammar_backends_conformance.suite import SuiteReport, run_suite

__version__ = "0.1.0"

__all__ = ["SuiteReport", "__version__", "run_suite"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grammar_backends_conformance import suite

    return getattr(suite, name)
