"""A long random walk of batches.

``python -m grammar_backends_conformance.laws.batches.soak --steps 1000000 --seed N`` writes one JSON object: steps,
seed, speed, rows by state, and the first disagreement. Exit code 1 when there is one.
"""

from __future__ import annotations

import json
import time

import click

from grammar_backends import load_vocabulary
from grammar_backends_conformance.laws.batches.origins import gapped_vocabulary, origins
from grammar_backends_conformance.laws.batches.walk import Disagreement, Walk

__all__: list[str] = []


@click.command()
@click.option("--steps", default=1_000_000, show_default=True, help="Batches to build.")
@click.option("--seed", default=1, show_default=True, help="The same seed takes the same steps.")
@click.option("--backends", default="xgrammar,guidance,outlines,lm-format-enforcer", show_default=True)
@click.option("--vocabulary", type=click.Choice(["byte", "gapped"]), default="byte", show_default=True)
@click.option("--threads", default=1, show_default=True, help="Of the builder.")
@click.pass_context
def main(context: click.Context, steps: int, seed: int, backends: str, vocabulary: str, threads: int) -> None:
    """Build random batches on all backends at once, and compare every row with brute force."""
    tokens = gapped_vocabulary() if vocabulary == "gapped" else load_vocabulary(vocabulary)
    walk = Walk(tokens, origins(tokens, backends.split(",")), seed, threads)
    began = time.perf_counter()
    disagreement = None
    try:
        walk.run(steps)
    except Disagreement as found:
        disagreement = str(found)
    seconds = time.perf_counter() - began
    result = {
        "backends": backends.split(","),
        "vocabulary": vocabulary,
        "threads": threads,
        "seed": seed,
        "steps": walk.steps,
        "seconds": round(seconds, 1),
        "steps_per_second": round(walk.steps / seconds),
        "rows": {state.name.lower(): rows for state, rows in walk.seen.items()},
        "disagreement": disagreement,
    }
    click.echo(json.dumps(result, indent=2))
    context.exit(1 if disagreement else 0)


if __name__ == "__main__":
    main()
