"""The suite inside pytest: ``pytest --pyargs grammar_backends_conformance --grammar-backend NAME``.

Every check is a test whose id holds the rule, so that pytest's selection, reports and xdist work on it. This module is
loaded by every run of pytest that finds this distribution, so it imports nothing heavy until the option is given.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grammar_backends.errors import GrammarBackendsError
from grammar_backends_conformance.suite import TIME_LIMIT

if TYPE_CHECKING:
    from grammar_backends_conformance.suite.session import Session

__all__ = ["grammar_session", "pytest_addoption", "pytest_generate_tests", "pytest_unconfigure"]

ARGUMENTS = ("grammar_backend", "grammar_check")
"""What `test_conformance` asks for."""

_SESSION = pytest.StashKey["Session"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("grammar_backends", "conformance of grammar backends")
    group.addoption("--grammar-backend", metavar="NAME", action="append", default=[], help="judge this backend")
    group.addoption("--grammar-profile", metavar="PROFILE", default="core", help="core, full, or one capability")
    group.addoption("--grammar-vocabulary", metavar="NAME", action="append", default=[], help="only with this one")
    group.addoption("--grammar-time-limit", metavar="SECONDS", type=float, default=TIME_LIMIT, help="for one check")
    group.addoption("--grammar-expectations", metavar="FILE", type=Path, help="known deviations")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a test of each check."""
    if not set(ARGUMENTS) <= set(metafunc.fixturenames):
        return
    if not metafunc.config.getoption("grammar_backend"):
        raise pytest.Collector.CollectError("The suite needs a backend to judge: give --grammar-backend NAME.")
    try:
        checks = _session(metafunc.config).checks()
    except GrammarBackendsError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    metafunc.parametrize(ARGUMENTS, checks, ids=[f"{name}-{check.id}" for name, check in checks])


@pytest.fixture(scope="session")
def grammar_session(pytestconfig: pytest.Config) -> Session:
    """The backends that the options name, with their workers."""
    return _session(pytestconfig)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the workers."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()


def _session(config: pytest.Config) -> Session:
    if _SESSION not in config.stash:
        config.stash[_SESSION] = _open(config)
    return config.stash[_SESSION]


def _open(config: pytest.Config) -> Session:
    from grammar_backends import default_host  # lazy: numpy, the laws and every plugin
    from grammar_backends_conformance.suite.plan import Plan
    from grammar_backends_conformance.suite.session import Session

    host = default_host()
    specs = [host.backend(name) for name in dict.fromkeys(config.getoption("grammar_backend"))]
    plan = Plan(config.getoption("grammar_profile"), tuple(config.getoption("grammar_vocabulary")))
    return Session(specs, plan, config.getoption("grammar_time_limit"), config.getoption("grammar_expectations"))
