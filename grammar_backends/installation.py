"""What is installed, and what it may run on: questions to the interpreter that every layer asks in the same way."""

from __future__ import annotations

import importlib.metadata
import os

__all__ = ["available_cores", "installed_version"]


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution; None where there is none, or no name."""
    try:
        return importlib.metadata.version(distribution) if distribution else None
    except importlib.metadata.PackageNotFoundError:
        return None


def available_cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
