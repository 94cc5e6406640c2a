"""What a choice costs without compiling: `explain` on each schema of a corpus, which no cache has seen.

``python -m grammar_backends_conformance.benchmarks.selection --corpus F --repeats 5`` writes one JSON object: the
percentiles in milliseconds of processor time and the slowest schemas. Each repeat is a process of its own, so that
every one starts with empty caches; what counts for a schema is the least of its times. Both leave out most of what
other work on the machine adds.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import click

from grammar_backends import GrammarSpec, PluginHost, default_host, explain
from grammar_backends.errors import SpecError
from grammar_backends_conformance.corpora.reading import Case, case_spec, read_corpus

__all__ = ["main", "times_of"]

SHOWN = 8
"""Schemas that are named as the slowest."""


def times_of(corpus: Path, policy: str) -> dict[str, float]:
    """By case: the milliseconds of its first `explain` in this process."""
    host = default_host()
    cases = [case for case in read_corpus(corpus).cases if case.kind == "json_schema"]
    for spec in (GrammarSpec.json_schema({"type": "string", "pattern": "a"}), GrammarSpec.regex(r"\p{L}")):
        explain(spec, host=host, policy=policy)
    # What was loaded lives on, as in a server: without this, every full collection would walk it.
    gc.collect()
    gc.freeze()
    return {case.id: _milliseconds(case, host, policy) for case in cases}


def _milliseconds(case: Case, host: PluginHost, policy: str) -> float:
    spec = case_spec(case)
    began = time.thread_time()
    with contextlib.suppress(SpecError):  # a refusal costs what it costs
        explain(spec, host=host, policy=policy)
    return (time.thread_time() - began) * 1000


@click.command()
@click.option("--corpus", type=click.Path(exists=True, path_type=Path), required=True, help="As gb compare takes it.")
@click.option("--repeats", default=5, show_default=True, help="Processes, of whose times the least count.")
@click.option("--policy", type=click.Choice(["default", "fast"]), default="default", show_default=True)
@click.option("--once", is_flag=True, hidden=True)
def main(corpus: Path, repeats: int, policy: str, once: bool) -> None:
    """Measure selection without compiling."""
    if once:
        click.echo(json.dumps(times_of(corpus, policy)))
        return
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--once"]
    command += ["--corpus", str(corpus), "--policy", policy]
    runs = [json.loads(subprocess.check_output(command)) for _ in range(repeats)]
    least = sorted((min(run[id_] for run in runs), id_) for id_ in runs[0])
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    figures = {name: round(least[int(rank * (len(least) - 1))][0], 3) for name, rank in ranks.items()}
    slowest = [[id_, round(milliseconds, 1)] for milliseconds, id_ in reversed(least[-SHOWN:])]
    result = {"schemas": len(least), "ms": {**figures, "max": round(least[-1][0], 3)}, "slowest": slowest}
    click.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
