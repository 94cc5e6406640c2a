"""Toy backends for processes of their own: folders with a plugin's metadata, put on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
        module: str, *args: str | Path, timeout: float = 60.0, cwd: Path | None = None, **variables: str
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
