"""Engines that break one rule each, written from the texts of the rules and not from the laws.

Each is one part of the engine in `right` with one thing changed; the rule that it breaks stands above it, with what
the suite needs to see it. Importing this module fills `FAULTS`.
"""

from broken_engines import (  # noqa: F401  # each adds its engines
    accepting,
    compiling,
    forcing,
    living,
    rolling_back,
    rows,
    stopping,
)
from broken_engines.fault import EVERYTHING, FAULTS, TEXT, Fault, spec_of

__all__ = ["EVERYTHING", "FAULTS", "TEXT", "Fault", "spec_of"]
