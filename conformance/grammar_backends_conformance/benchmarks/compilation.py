"""What the manager costs an engine: polling tickets, submitting what is known, compiling in a thread or in a process.

Writes one JSON object. Run it with ``python -m``; ``--check`` exits with 1 where a bound is exceeded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import click

from grammar_backends import GrammarManager, GrammarSpec, Vocabulary, load_vocabulary
from grammar_backends.compilation import Isolation
from grammar_backends_conformance.running.environment import describe_environment

PENDING = 10_000
"""Tickets that one pass polls."""

PASSES = 500

SUBMISSIONS = 100
"""In one go: short enough to come to an end before anybody else gets the core."""

BOUNDS = {"poll_ms": 2.0, "cached_us": 20.0, "cached_auto_us": 20.0, "failed_before_us": 20.0}
"""What may be no slower."""


def spec(n: int) -> GrammarSpec:
    """One of many constraints that compile within milliseconds."""
    properties = {f"field_{n}": {"type": "integer"}, "name": {"type": "string"}}
    required = list(properties)
    return GrammarSpec.json_schema(
        {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    )


@click.command()
@click.option("--backend", default="xgrammar", show_default=True)
@click.option("--tokenizer", default="tekken", show_default=True)
@click.option("--compilations", default=30, show_default=True, help="Compilations for each level of isolation.")
@click.option("--check", is_flag=True, help="Exit with 1 where a bound is exceeded.")
def main(backend: str, tokenizer: str, compilations: int, check: bool) -> None:
    """Measure, and print."""
    vocabulary = load_vocabulary(tokenizer)
    figures = {"poll_ms": _polling(vocabulary, backend), **_submitting(vocabulary, backend)}
    levels: Sequence[Isolation] = ("thread", "process")
    for level in levels:
        figures[f"compile_in_{level}_ms"] = _compiling(vocabulary, backend, level, compilations)
    report = {
        "backend": backend,
        "tokenizer": vocabulary.name,
        "figures": {name: round(value, 3) for name, value in figures.items()},
        "bounds": BOUNDS,
        "environment": describe_environment([], sys.argv),
    }
    click.echo(json.dumps(report, indent=1))
    if check and any(figures[name] > bound for name, bound in BOUNDS.items()):
        raise SystemExit(1)


def _polling(vocabulary: Vocabulary, backend: str) -> float:
    """Milliseconds of one pass over pending tickets: those of a manager that has only begun to start its workers."""
    with GrammarManager(vocabulary, backend=backend, isolation="process") as manager:
        tickets = [manager.submit(str(n), spec(n % 100)) for n in range(PENDING)]
        milliseconds = 1e3 * _least(PASSES, lambda: [ticket for ticket in tickets if ticket.done()])
        if any(ticket.done() for ticket in tickets):
            raise click.ClickException("something was compiled before it was measured")
    return milliseconds


def _submitting(vocabulary: Vocabulary, backend: str) -> dict[str, float]:
    """Microseconds of one submission of what is in memory, or known to fail."""
    wrong = GrammarSpec.json_schema({"type": "no such type"})
    with GrammarManager(vocabulary, backend=backend, isolation="thread") as manager:

        def submit(what: GrammarSpec, asked: str) -> float:
            if not manager.submit("r", what, asked).wait(600.0):
                raise click.ClickException(f"{asked} is not done with {what}")
            return (
                1e6
                * _least(PASSES, lambda: [manager.submit("r", what, asked) for _ in range(SUBMISSIONS)])
                / SUBMISSIONS
            )

        return {
            "cached_us": submit(spec(0), backend),
            "cached_auto_us": submit(spec(0), "auto"),
            "failed_before_us": submit(wrong, backend),
        }


def _compiling(vocabulary: Vocabulary, backend: str, level: Isolation, compilations: int) -> float:
    """Milliseconds from submission to a ready ticket, the least of small schemas one after another."""
    with GrammarManager(vocabulary, backend=backend, isolation=level) as manager:
        manager.wait_warm(600.0)
        manager.submit("first", spec(0)).wait(600.0)  # loads the backend in this process
        times = []
        for n in range(1, compilations + 1):
            started = time.perf_counter()
            manager.submit("r", spec(n)).wait(600.0)
            times.append(1e3 * (time.perf_counter() - started))
    return min(times)


def _least(times: int, call: Callable[[], object]) -> float:
    """Seconds of the quickest of several calls: whatever else the machine does makes one slower, never quicker."""
    least = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - started)
    return least


if __name__ == "__main__":
    main()
