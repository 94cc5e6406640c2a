"""Toy backends for the comparison's own processes: a folder with a plugin's metadata, put on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TOYS = Path(__file__).parent / "toys"

RunGb = Callable[..., "subprocess.CompletedProcess[str]"]


def toy_environment(**more: str) -> dict[str, str]:
    paths = [str(TOYS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


@pytest.fixture(scope="session")
def environment() -> Callable[..., dict[str, str]]:
    """Variables under which the toys are installed."""
    return toy_environment


@pytest.fixture(scope="session")
def run_gb() -> RunGb:
    """Runs the command line in a process of its own, with the toys installed."""

    def run(*args: str | Path, timeout: float = 60.0, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "grammar_backends.cli", *map(str, args)]
        env = toy_environment(**variables)
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)

    return run
