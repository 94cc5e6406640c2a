"""A long random walk: the calls of `machine`, chosen at random and fast, on one backend.

``python -m grammar_backends_conformance.laws.soak --backend NAME --steps 1000000 --seed N`` writes one JSON object:
steps, seed, versions, speed, and the first violation with the calls that lead to it. Exit code 1 when there is one.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

from grammar_backends import load_backend
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import Violation
from grammar_backends_conformance.laws.machine import LIMITS, MOST, Lives, odd_tokens, stop_sets, tokens_of
from grammar_backends_conformance.laws.model import truth_of
from grammar_backends_conformance.laws.samples import Sample
from grammar_backends_conformance.vocabularies import suite_vocabulary

__all__ = ["soak"]

LIFE = 150
"""Steps of one life, after which another one begins."""

LIVES_OF_ONE_TRUTH = 40
"""Lives after which a sample's language is looked at anew, since what is remembered of it grows."""

HABITS = {"legal": 40, "block": 15, "text": 5, "validate": 12, "rollback": 16, "fork": 5, "reset": 3, "together": 4}
"""How often each operation is chosen."""


@dataclass
class Walk:
    """Lives of one sample after another.

    Attributes:
        steps: calls made so far.
    """

    lab: Lab
    random: random.Random
    steps: int = 0
    _near: dict[str, list[int]] = field(default_factory=dict)
    _truths: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def live(self, sample: Sample, most: int) -> None:
        """One life of at most `most` steps.

        Raises:
            Violation: an answer differs from the model's.
        """
        choose = self.random.choice
        lives = Lives(self.lab, sample, self._truth(sample), choose(stop_sets(self.lab, sample)), choose(LIMITS))
        near = self._near.setdefault(sample.name, tokens_of(self.lab, sample))
        operations = self._operations(lives, sample, near, odd_tokens(self.lab))
        names, weights = list(operations), [HABITS[name] for name in operations]
        for name in self.random.choices(names, weights, k=min(LIFE, most)):
            operations[name](self.random.randrange(MOST))
            self.steps += 1
            lives.check()

    def _truth(self, sample: Sample) -> Any:
        used, truth = self._truths.get(sample.name, (LIVES_OF_ONE_TRUTH, None))
        if used >= LIVES_OF_ONE_TRUTH:
            used, truth = 0, truth_of(self.lab, sample)
        self._truths[sample.name] = used + 1, truth
        return truth

    def _operations(
        self, lives: Lives, sample: Sample, near: list[int], odd: list[int]
    ) -> dict[str, Callable[[int], None]]:
        choose, among = self.random.choice, self.random.randrange
        texts = [self.lab.encode(text) for text in (*sample.texts, *sample.partial, *sample.wrong)]

        def block() -> list[int]:
            return [choose(odd) if among(6) == 0 else choose(near) for _ in range(among(5))]

        def legal(index: int) -> None:
            allowed = sorted(lives.pick(index)[1].allowed)
            usual = [id_ for id_ in allowed if id_ in near]
            if allowed:
                lives.accept(index, [choose(usual if usual and among(4) else allowed)])

        return {
            "legal": legal,
            "block": lambda index: lives.accept(index, block()),
            "text": lambda index: lives.accept(index, choose(texts)),
            "validate": lambda index: lives.validate(index, block() if among(3) else choose(texts)),
            "rollback": lambda index: lives.rollback(index, choose((-1, 0, 1, 1, 1, 2, 3, 5, 8, 40))),
            "fork": lives.fork,
            "reset": lives.reset,
            "together": lambda index: lives.fill_together(),
        }


def soak(lab: Lab, steps: int, seed: int) -> dict[str, Any]:
    """Walk `steps` steps, or up to the first violation; what happened, as data."""
    walk = Walk(lab, random.Random(seed))
    began = time.perf_counter()
    violation = None
    try:
        while walk.steps < steps:
            walk.live(walk.random.choice(lab.samples), steps - walk.steps)
    except Violation as found:
        violation = {
            "message": found.message,
            "expected": repr(found.expected),
            "got": repr(found.got),
            "spec": found.spec,
            "calls": found.calls,
        }
    seconds = time.perf_counter() - began
    return {
        "backend": lab.name,
        "version": lab.backend.version,
        "vocabulary": lab.vocabulary_name,
        "seed": seed,
        "steps": walk.steps,
        "seconds": round(seconds, 1),
        "steps_per_second": round(walk.steps / seconds),
        "masks": lab.counts.masks,
        "samples": [sample.name for sample in lab.samples],
        "violation": violation,
    }


@click.command()
@click.option("--backend", required=True, help="Name of the backend.")
@click.option("--steps", default=1_000_000, show_default=True, help="Calls to make.")
@click.option("--seed", default=1, show_default=True, help="The same seed makes the same calls.")
@click.option("--vocabulary", default="byte", show_default=True, help="Name of a vocabulary of the suite.")
@click.pass_context
def main(context: click.Context, backend: str, steps: int, seed: int, vocabulary: str) -> None:
    """Make random calls on a backend, and compare every answer with the model."""
    lab = Lab(load_backend(backend, suite_vocabulary(vocabulary)), vocabulary)
    result = soak(lab, steps, seed)
    click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    context.exit(1 if result["violation"] else 0)


if __name__ == "__main__":
    main()
