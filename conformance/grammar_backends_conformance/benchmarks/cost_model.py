"""Fits the cost models of `Policy(prefer="speed")` on runs of ``gb compare``.

``python -m grammar_backends_conformance.benchmarks.cost_model --results DIR/results.json --corpus F --out FOLDER``
writes ``NAME.json`` for each backend of the run: for each kind of spec the constant and the weights, none below zero,
that fit the measured times best by relative error. Copy it into the plugin as its cost data.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from grammar_backends import validate_spec
from grammar_backends.selection.cost_model import FEATURES, features_of
from grammar_backends_conformance.corpora.reading import Corpus, case_spec, read_corpus, read_suite

__all__ = ["fit", "main"]

NAMES = ("", *FEATURES)
ROUNDS = 12
"""Times that the weights are fitted anew, to errors that are weighed by the fit before."""
PASSES = 400
"""Passes over the weights in one fit: each sets one after another to its best value."""
LARGEST_RATIO = 4
"""Beyond it a larger error counts no more."""


def fit(rows: Sequence[dict[str, float]], times: Sequence[float]) -> dict[str, float]:
    """Weights, none below zero, that make up for the times with the least squares of the error as a ratio."""
    matrix = np.array([[1.0, *(row.get(name, 0.0) for name in FEATURES)] for row in rows])
    wanted = np.array(times)
    fitted, weights = wanted, np.zeros(len(NAMES))
    for _ in range(ROUNDS):
        # An error counts by what is predicted, so that half as much is as wrong as twice as much.
        scale = 1 / np.clip(fitted, wanted / LARGEST_RATIO, wanted * LARGEST_RATIO)
        weights = _not_negative(matrix * scale[:, None], wanted * scale)
        fitted = matrix @ weights
    return {name: float(f"{weight:.3g}") for name, weight in zip(NAMES, weights, strict=True) if weight > 1e-4}


def _not_negative(matrix: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares under x >= 0, by coordinate descent."""
    gram, target = matrix.T @ matrix, matrix.T @ wanted
    weights = np.zeros(len(target))
    for _ in range(PASSES):
        for index in range(len(target)):
            if gram[index, index]:
                rest = target[index] - gram[index] @ weights + gram[index, index] * weights[index]
                weights[index] = max(0.0, rest / gram[index, index])
    return weights


def samples(corpus: Corpus, results: dict[str, Any]) -> Iterator[tuple[str, dict[str, float], float, float]]:
    """Kind, features, time to first mask and median time of a mask of each case that passed."""
    for case in corpus.cases:
        result = results.get(case.id)
        if result and result["outcome"] == "pass" and result.get("fills_us"):
            spec = case_spec(case)
            validate_spec(spec)
            found = dict(features_of(spec))
            yield spec.kind.value, found, result["first_mask_ms"], statistics.median(result["fills_us"])


@click.command()
@click.option("--results", "runs", type=(Path, Path), multiple=True, help="results.json, and the corpus; - is full.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Where the models go.")
def main(runs: Sequence[tuple[Path, Path]], out: Path) -> None:
    """Fit the cost models on the results of runs."""
    found: dict[str, list[tuple[str, dict[str, float], float, float]]] = {}
    measured: dict[str, str] = {}
    for path, cases in runs:
        corpus = read_suite("full") if str(cases) == "-" else read_corpus(cases)
        run = json.loads(path.read_text("utf-8"))
        for name, about in run["backends"].items():
            if name.startswith("auto"):
                continue
            measured[name] = f"{about['version']} on {run['environment']['tokenizer']}"
            found.setdefault(name, []).extend(samples(corpus, run["results"][name]))
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in found.items():
        kinds = {kind: _times([row for row in rows if row[0] == kind]) for kind in sorted({row[0] for row in rows})}
        data = {"engine": name, "measured": measured[name], "kinds": kinds}
        (out / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n", "utf-8")


def _times(rows: Sequence[tuple[str, dict[str, float], float, float]]) -> dict[str, dict[str, float]]:
    features = [row[1] for row in rows]
    return {
        "first_mask_ms": fit(features, [row[2] for row in rows]),
        "mask_us": fit(features, [row[3] for row in rows]),
    }


if __name__ == "__main__":
    main()
