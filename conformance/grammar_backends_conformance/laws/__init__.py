"""The contract's rules as executable laws over any backend. Importing this package registers all of them in `LAWS`."""

from grammar_backends_conformance.laws import (  # noqa: F401  # each registers its laws
    accept,
    applying,
    capabilities,
    compiling,
    corpus,
    lifecycle,
    machine,
    mask,
    rollback,
    stop,
)
from grammar_backends_conformance.laws.lab import Lab, State
from grammar_backends_conformance.laws.law import LAWS, Counts, Law, Unsupported, Violation, law
from grammar_backends_conformance.laws.samples import Sample, samples_for

__all__ = ["LAWS", "Counts", "Lab", "Law", "Sample", "State", "Unsupported", "Violation", "law", "samples_for"]
