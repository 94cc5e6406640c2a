"""What several folders of tests use: toy backends for processes of their own (folders with a plugin's metadata, put on
the path), laws of the suite as assertions, and a reader of HTML pages."""

from __future__ import annotations

import html.parser
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grammar_backends_conformance.laws import Lab, Law, Unsupported, Violation

TOYS = [Path(__file__).parent / name / "toys" for name in ("comparison", "conformance")]

RunModule = Callable[..., "subprocess.CompletedProcess[str]"]


def toy_environment(**more: str) -> dict[str, str]:
    paths = [*map(str, TOYS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


@pytest.fixture(scope="session")
def environment() -> Callable[..., dict[str, str]]:
    """Variables under which the toys are installed."""
    return toy_environment


@pytest.fixture(scope="session")
def run_module() -> RunModule:
    """Runs ``python -m MODULE`` with the toys installed."""

    def run(
        module: str, *args: str | Path, timeout: float = 300.0, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", module, *map(str, args)]
        env = toy_environment(**variables)
        return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)

    return run


@pytest.fixture(scope="session")
def run_gb(run_module: RunModule) -> RunModule:
    """Runs the command line in a process of its own, with the toys installed."""

    def run(*args: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
        return run_module("grammar_backends.cli", *args, **more)

    return run


@pytest.fixture(scope="session")
def start_gb() -> Callable[..., subprocess.Popen[str]]:
    """Starts the command line in a process of its own, with the toys installed, to be interrupted."""

    def start(*args: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "grammar_backends.cli", *args],
            env=toy_environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_take_interruptions,  # noqa: PLW1509  # no lock is held that the child would need
        )

    return start


def _take_interruptions() -> None:
    # What starts these tests may ignore Ctrl-C, and a process inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Elements(html.parser.HTMLParser):
    """The elements of a page, and what it would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]


@pytest.fixture(scope="session")
def elements_of() -> type[Elements]:
    """Reads a page."""
    return Elements


@pytest.fixture(scope="session")
def assert_law() -> Callable[[Law, Lab], None]:
    """Fails with the evidence where a law does not hold; a law of the core holds for every backend."""

    def check(law: Law, lab: Lab) -> None:
        for sample in lab.samples if law.per_sample else [None]:
            try:
                law.check(lab, *([sample] if sample else []))
            except Violation as violation:
                facts = [f"{violation.spec}", f"expected {violation.expected!r}", f"got {violation.got!r}"]
                pytest.fail("\n".join([violation.message, *facts, *violation.calls]), pytrace=False)
            except Unsupported:
                if law.profile == "core":
                    raise

    return check
