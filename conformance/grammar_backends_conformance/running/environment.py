"""What a run ran on: versions, machine, limits. Part of every result file, since times mean nothing without it."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from grammar_backends import Vocabulary
from grammar_backends.contract import BackendSpec
from grammar_backends.installation import available_cores, installed_version

__all__ = ["describe_environment", "describe_vocabulary"]

PACKAGES = ("grammar-backends", "grammar-backends-conformance", "numpy", "torch")


def describe_environment(backends: Iterable[BackendSpec], command_line: Sequence[str]) -> dict[str, Any]:
    """The environment of this process as JSON-able data, with the versions of these backends' distributions."""
    names = {*PACKAGES}
    for spec in backends:
        names |= {spec.distribution, spec.engine}
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: version for name in sorted(names) if (version := installed_version(name))},
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": available_cores(),
        "memory_mb": _memory_mb(),
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": list(command_line),
    }


def describe_vocabulary(vocabulary: Vocabulary) -> dict[str, Any]:
    """What a report says of a vocabulary."""
    return {
        "name": vocabulary.name,
        "size": vocabulary.size,
        "width": vocabulary.width,
        "fingerprint": vocabulary.fingerprint,
    }


def cpu_model() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_mb() -> int | None:
    if sys.platform == "win32":
        return None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return None
