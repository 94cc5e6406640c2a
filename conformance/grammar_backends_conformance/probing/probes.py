"""All probes, in the two rounds in which they are asked."""

from __future__ import annotations

import functools
import itertools

from grammar_backends_conformance.probing.checks import check_probes
from grammar_backends_conformance.probing.features import feature_probes
from grammar_backends_conformance.probing.formats import format_probes
from grammar_backends_conformance.probing.keywords import core_probes, pair_probes, sibling_probes
from grammar_backends_conformance.probing.nothing import nothing_probes
from grammar_backends_conformance.probing.probe import Probe

__all__ = ["combinations", "single_probes"]


@functools.cache
def single_probes() -> tuple[Probe, ...]:
    """What is asked of every engine."""
    return tuple(itertools.chain(core_probes(), format_probes(), nothing_probes(), check_probes(), feature_probes()))


@functools.cache
def combinations() -> tuple[Probe, ...]:
    """What is asked about keywords that an engine enforces by themselves: pairs, and siblings of combinators."""
    return tuple(itertools.chain(pair_probes(), sibling_probes()))
