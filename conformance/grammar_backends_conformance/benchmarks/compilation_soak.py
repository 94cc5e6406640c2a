"""A long run of the manager as an engine uses it: many requests over many specs, with cancels and failures.

Writes one JSON object, with the resident memory of this process and of its workers along the way. Exit code 1 when a
request had another outcome than its spec allows, when memory grew after the first half, or when something was left
behind. Run it with ``python -m``.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from grammar_backends import GrammarManager, GrammarSpec, GrammarTicket, Vocabulary, load_vocabulary
from grammar_backends.compilation import ManagerLimits
from grammar_backends_conformance.running.environment import describe_environment

IN_FLIGHT = 64
"""Requests at a time."""

CANCELLED = 0.05
"""The part of requests that are cancelled as soon as they are submitted."""

SAMPLES = 20
"""How often memory is looked at."""

GROWTH_MB = 32.0
"""How much memory may grow over the second half of a run: what the allocator does with caches that come and go."""

LIMITS = ManagerLimits(compile_seconds=2.0, compile_megabytes=1024.0, cached_entries=500, cached_failures=50, workers=2)
"""Caches far smaller than the number of specs, so that they turn over all the time."""

SLOW = {"type": "object", "properties": {f"property_{number}": {"type": "string"} for number in range(5000)}}
"""xgrammar takes many times longer for this than it is given."""


def spec(n: int) -> tuple[str, GrammarSpec, set[str]]:
    """One of many requests: who is asked, for what, and which states it may end in."""
    if n == 7:
        return "xgrammar", GrammarSpec.json_schema(SLOW), {"failed"}
    if n % 20 == 1:
        return "auto", GrammarSpec.json_schema({"type": f"no such type {n}"}), {"failed"}
    if n % 20 == 2:
        return "guidance", GrammarSpec.regex(f"[a-z]{{{1 + n % 30}}}-{n}"), {"ready"}
    if n % 20 == 3:
        return "auto", GrammarSpec.choice([f"choice {n}", f"other {n}"]), {"ready"}
    properties = {f"field_{n}": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", f"b{n}"]}}}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return "auto", GrammarSpec.json_schema(schema), {"ready"}


@dataclass
class Soak:
    """A run.

    Attributes:
        requests, specs: how many.
        outcomes: how many tickets ended how.
        wrong: tickets that ended otherwise than their specs allow, the first few in words.
        memory: ``[requests done, MB of this process, MB of its workers]`` along the way.
    """

    requests: int
    specs: int
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[int, float, float]] = field(default_factory=list)

    def run(self, manager: GrammarManager, vocabulary: Vocabulary) -> None:
        """Submit everything; a few specs are asked for often, most of them seldom."""
        random_ = random.Random(self.seed)
        row = np.empty((1, vocabulary.words), dtype=np.int32)
        waiting: deque[tuple[GrammarTicket, set[str]]] = deque()
        for n in range(self.requests):
            asked, what, states = spec(min(int(random_.paretovariate(0.5)) - 1, self.specs - 1))
            ticket = manager.submit(f"request {n}", what, asked)
            if random_.random() < CANCELLED:
                ticket.cancel()
                states = states | {"failed"}
            waiting.append((ticket, states))
            if len(waiting) >= IN_FLIGHT:
                self._end(*waiting.popleft(), row)
            if n % max(1, self.requests // SAMPLES) == 0:
                self.memory.append((n, *_megabytes()))
        while waiting:
            self._end(*waiting.popleft(), row)
        self.memory.append((self.requests, *_megabytes()))

    def _end(self, ticket: GrammarTicket, states: set[str], row: Any) -> None:
        """One request's end: its first mask, or its failure."""
        ticket.wait(600.0)
        failure, known = ticket.failure, ticket.provenance
        self.outcomes[str(failure.kind) if failure else f"{ticket.state}, {known.source if known else ''}"] += 1
        if ticket.state not in states and len(self.wrong) < 10:
            self.wrong.append(f"{ticket}: {failure}")
        if ticket.state == "ready":
            ticket.new_grammar().fill_bitmask(row, 0)

    @property
    def growth(self) -> float:
        """MB that this process grew over the second half."""
        half = [mine for done, mine, _ in self.memory if done >= self.requests / 2]
        return half[-1] - half[0]


@click.command()
@click.option("--requests", default=100_000, show_default=True)
@click.option("--specs", default=2_000, show_default=True)
@click.option("--tokenizer", default="byte", show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(requests: int, specs: int, tokenizer: str, seed: int) -> None:
    """Run, and print a report."""
    before = (threading.active_count(), _descriptors())
    vocabulary = load_vocabulary(tokenizer)
    soak, started = Soak(requests, specs, seed), time.monotonic()
    with GrammarManager(vocabulary, limits=LIMITS) as manager:
        soak.run(manager, vocabulary)
        state = manager.state
    left = {
        "threads": threading.active_count() - before[0],
        "descriptors": _descriptors() - before[1],
        "processes": len(_children()),
    }
    report = {
        "requests": requests,
        "specs": specs,
        "seconds": round(time.monotonic() - started, 1),
        "outcomes": dict(soak.outcomes.most_common()),
        "wrong": soak.wrong,
        "workers_lost": state.processes.lost if state.processes else 0,
        "cached_entries": state.cached_entries,
        "evictions": state.evictions,
        "memory_mb": soak.memory,
        "growth_mb": round(soak.growth, 1),
        "left_behind": left,
        "environment": describe_environment([], sys.argv),
    }
    click.echo(json.dumps(report, indent=1))
    if soak.wrong or soak.growth > GROWTH_MB or any(left.values()):
        raise SystemExit(1)


def _megabytes() -> tuple[float, float]:
    """Resident memory of this process, and of its workers together."""
    return round(_resident("self"), 1), round(sum(map(_resident, _children())), 1)


def _resident(pid: str) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def _children() -> list[str]:
    return [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


if __name__ == "__main__":
    main()
