"""What the layer adds to the engines below, as ratios against the fastest raw calls, in one process.

Every step of a decode is taken twice from the same state, once by the layer and once by the engine alone, in turns,
so that whatever else the machine does weighs on both alike. Run it with ``python -m``; ``make bench`` does.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import torch

from grammar_backends import (
    GrammarBackend,
    GrammarOptions,
    GrammarSpec,
    StructuredOutputGrammar,
    Vocabulary,
    allocate_bitmask,
    fill_bitmasks,
    load_backend,
    load_vocabulary,
)
from grammar_backends.contract import CompiledGrammar
from grammar_backends.errors import GrammarBackendsError

BACKENDS = ("xgrammar", "guidance")
BATCH = 256
OPTIONS = {"xgrammar": GrammarOptions(additional_properties="closed"), "guidance": GrammarOptions()}
"""xgrammar takes minutes to compile some open objects, and is then not what one would choose."""


class RawXGrammar:
    """xgrammar by its own Python calls.

    The adapter passes its wrapper by, which pays for a part of what the layer adds; ``--native`` compares with the
    object behind that wrapper, on a tensor that it need not convert.
    """

    native = False

    def __init__(self, compiled: CompiledGrammar, bitmask: torch.Tensor) -> None:
        import tvm_ffi
        from xgrammar import BatchGrammarMatcher, GrammarMatcher

        artifact = compiled._artifact._compiled  # type: ignore[attr-defined]  # the adapter's own artifact
        self.new: Callable[[], Any] = lambda: GrammarMatcher(artifact)
        matcher = self.new()
        self.matcher, self.tensor, self.batch = matcher, bitmask, BatchGrammarMatcher(max_threads=1)
        self.fill = functools.partial(matcher.fill_next_token_bitmask, bitmask, 0)
        self.accept = matcher.accept_token
        if self.native:
            self.tensor = tvm_ffi.from_dlpack(bitmask)
            self.fill = functools.partial(matcher._handle.fill_next_token_bitmask, self.tensor, 0, False)
            self.accept = lambda token: matcher._handle.accept_token(token, False)

    @staticmethod
    def fill_loop(raws: Sequence[Any], bitmask: torch.Tensor) -> None:
        tensor = raws[0].tensor
        if raws[0].native:
            for row, raw in enumerate(raws):
                raw.matcher._handle.fill_next_token_bitmask(tensor, row, False)
        else:
            for row, raw in enumerate(raws):
                raw.matcher.fill_next_token_bitmask(tensor, row)

    @staticmethod
    def fill_batch(raws: Sequence[Any], bitmask: torch.Tensor) -> None:
        matchers = [raw.matcher for raw in raws]
        raws[0].batch.batch_fill_next_token_bitmask(matchers, raws[0].tensor, list(range(len(raws))))


class RawGuidance:
    """llguidance by raw pointer, which is three times as fast as its torch helper."""

    def __init__(self, compiled: CompiledGrammar, bitmask: torch.Tensor) -> None:
        from llguidance import LLExecutor

        pristine = compiled._artifact.pristine  # type: ignore[attr-defined]  # the adapter's own artifact
        self.new = pristine.deep_copy
        self.matcher = self.new()
        self.address, self.nbytes = bitmask.data_ptr(), bitmask.shape[1] * 4
        self.executor: Any = LLExecutor(1)

    def fill(self) -> None:
        self.matcher.unsafe_compute_mask_ptr(self.address, self.nbytes)

    def accept(self, token: int) -> None:
        self.matcher.consume_token(token)

    @staticmethod
    def fill_loop(raws: Sequence[Any], bitmask: torch.Tensor) -> None:
        address, nbytes = bitmask.data_ptr(), bitmask.shape[1] * 4
        for row, raw in enumerate(raws):
            raw.matcher.unsafe_compute_mask_ptr(address + row * nbytes, nbytes)

    @staticmethod
    def fill_batch(raws: Sequence[Any], bitmask: torch.Tensor) -> None:
        pairs = [(raw.matcher, row) for row, raw in enumerate(raws)]
        raws[0].executor.unsafe_compute_mask_ptr(pairs, bitmask.data_ptr(), bitmask.shape[1] * 4, bitmask.shape[0])


RAW: dict[str, Any] = {"xgrammar": RawXGrammar, "guidance": RawGuidance}


def forget_rows(grammars: Sequence[Any], ahead: Sequence[Sequence[int]]) -> None:
    """Make llguidance compute the next row of each, as after every step of a decode loop: it keeps the last one.

    Args:
        grammars: of guidance by the layer, or engines' own matchers; those of other engines keep no row.
        ahead: legal tokens of each; where there is none, the row is left.
    """
    for grammar, tokens in zip(grammars, ahead, strict=True):
        _, matcher = getattr(grammar, "batch", (None, grammar))
        engine = getattr(matcher, "matcher", matcher)
        if tokens and hasattr(engine, "compute_bitmask"):
            engine.consume_token(tokens[0])
            engine.compute_bitmask()
            engine.rollback(1)


@dataclass
class Pair:
    """Times of the same calls, in ns: by the layer and by the engine alone."""

    layer: list[int] = field(default_factory=list)
    raw: list[int] = field(default_factory=list)

    def run(self, turn: int, layer: Callable[[], object], raw: Callable[[], object]) -> None:
        """Time one call of each; whose turn it is goes first."""
        clock = time.perf_counter_ns
        first, second = (layer, raw) if turn % 2 else (raw, layer)
        t0 = clock()
        first()
        t1 = clock()
        second()
        t2 = clock()
        self.layer.append(t1 - t0 if turn % 2 else t2 - t1)
        self.raw.append(t2 - t1 if turn % 2 else t1 - t0)

    def extend_by_least(self, runs: Sequence[Pair]) -> None:
        """Append the least time of each call over runs of the same calls: what is more was the machine's doing."""
        self.layer += map(min, zip(*(run.layer for run in runs), strict=True))
        self.raw += map(min, zip(*(run.raw for run in runs), strict=True))

    def ratio(self) -> float:
        """Median of the ratios of calls that took turns: both had the same machine."""
        return statistics.median(layer / raw for layer, raw in zip(self.layer, self.raw, strict=True))

    def summary(self) -> dict[str, float]:
        """Ratio of the sums, and the median of the differences in µs."""
        added = [layer - raw for layer, raw in zip(self.layer, self.raw, strict=True)]
        return {
            "calls": len(self.layer),
            "ratio_of_totals": sum(self.layer) / sum(self.raw),
            "added_us_median": statistics.median(added) / 1000,
            "raw_us_median": statistics.median(self.raw) / 1000,
        }


def texts_of(corpus: Path | None, limit: int) -> Iterator[tuple[Any, str]]:
    """JSON schemas with one accepted text each."""
    path = corpus or Path(__file__).parent.parent / "cases" / "smoke.jsonl"
    cases = (json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())
    schemas = [case for case in cases if case["kind"] == "json_schema"]
    # Evenly over the whole corpus, since neighbours are alike.
    for case in schemas[:: max(1, len(schemas) // limit)][:limit]:
        for test in case["tests"]:
            if test["valid"]:
                yield (
                    case["spec"],
                    test.get("text") or json.dumps(test["data"], ensure_ascii=False),
                )
                break


def measure(backend: GrammarBackend, cases: Sequence[tuple[Any, str]], repeats: int) -> dict[str, Any]:
    """All figures of one backend."""
    vocabulary = backend.vocabulary
    totals = {"fill": Pair(), "accept": Pair(), "new_grammar": Pair()}
    mine, raws = allocate_bitmask(1, vocabulary.width), allocate_bitmask(1, vocabulary.width)
    compiled_all = []
    for schema, text in cases:
        try:
            compiled = backend.compile_grammar(GrammarSpec.json_schema(schema, options=OPTIONS[backend.name]))
        except GrammarBackendsError:
            continue
        compiled_all.append((compiled, vocabulary.encode(text)))
        walks = [_walk(compiled, compiled_all[-1][1], mine, raws, number) for number in range(repeats)]
        for name, total in totals.items():
            total.extend_by_least([walk[name] for walk in walks])
    result: dict[str, Any] = {"version": backend.version, "specs": len(compiled_all)}
    result |= {name: total.summary() for name, total in totals.items()}
    result[f"batch_of_{BATCH}"] = _batch(compiled_all, vocabulary)
    return result


def _walk(
    compiled: CompiledGrammar, ids: Sequence[int], mine: torch.Tensor, theirs: torch.Tensor, number: int
) -> dict[str, Pair]:
    """Times of one walk over a text; walks with an odd and an even number take turns in another order."""
    raw = RAW[compiled.backend.name](compiled, theirs)
    grammar: StructuredOutputGrammar = compiled.new_grammar()
    fills, accepts, news = Pair(), Pair(), Pair()
    news.run(number, compiled.new_grammar, raw.new)
    for turn, token in enumerate(ids, start=number):
        if grammar.validate_tokens([token]) != [token]:
            break  # the engine wants another order of properties
        fills.run(turn, lambda: grammar.fill_bitmask(mine, 0), raw.fill)
        if not torch.equal(mine, theirs):
            raise RuntimeError(f"the layer's row differs from the engine's own for {compiled.spec}")
        accept = functools.partial(grammar.accept_tokens, "bench", [token])
        accepts.run(turn, accept, functools.partial(raw.accept, token))
    return {"fill": fills, "accept": accepts, "new_grammar": news}


def _batch(compiled_all: Sequence[tuple[CompiledGrammar, list[int]]], vocabulary: Vocabulary) -> dict[str, float]:
    mine, theirs = allocate_bitmask(BATCH, vocabulary.width), allocate_bitmask(BATCH, vocabulary.width)
    grammars: list[StructuredOutputGrammar] = []
    raws: list[Any] = []
    ahead: list[list[int]] = []
    for row, (compiled, ids) in zip(range(BATCH), itertools.cycle(compiled_all), strict=False):
        grammar, raw = compiled.new_grammar(), RAW[compiled.backend.name](compiled, theirs)
        legal = grammar.validate_tokens(ids)
        at = row % max(1, len(legal))
        for token in legal[:at]:
            grammar.accept_tokens("bench", [token])
            raw.accept(token)
        ahead.append(legal[at:])
        grammars.append(grammar)
        raws.append(raw)
    kind = type(raws[0])
    loop, native = Pair(), Pair()
    fill_bitmasks(grammars, mine)
    for turn in range(41):
        for pair, way in ((loop, kind.fill_loop), (native, kind.fill_batch)):
            forget_rows(grammars, ahead)
            forget_rows([raw.matcher for raw in raws], ahead)
            pair.run(turn, lambda: fill_bitmasks(grammars, mine), functools.partial(way, raws, theirs))
    if not torch.equal(mine, theirs):
        raise RuntimeError("the layer's rows differ from the engine's own")
    return {
        "ratio_to_fastest": max(loop.ratio(), native.ratio()),
        "raw_loop_us": statistics.median(loop.raw) / 1000,
        "raw_batch_us": statistics.median(native.raw) / 1000,
        "layer_us": statistics.median(loop.layer + native.layer) / 1000,
    }


@click.command()
@click.option("--corpus", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="JSONL; default: smoke.")
@click.option("--limit", default=100, show_default=True, help="Schemas to take.")
@click.option(
    "--repeats", default=6, show_default=True, help="Walks over each text; the least time of each call counts."
)
@click.option("--tokenizer", default="tekken", show_default=True)
@click.option("--native", is_flag=True, help="Compare with the object behind xgrammar's Python wrapper.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here, as JSON.")
def main(corpus: Path | None, limit: int, repeats: int, tokenizer: str, native: bool, out: Path | None) -> None:
    """Measure what the layer adds to xgrammar and llguidance."""
    RawXGrammar.native = native
    vocabulary = load_vocabulary(tokenizer)
    cases = list(texts_of(corpus, limit))
    results = {}
    for name in BACKENDS:
        backend = load_backend(name, vocabulary)
        gc.disable()  # a collection would fall on one side at random
        results[name] = measure(backend, cases, repeats)
        gc.enable()
        click.echo(f"{name} {backend.version}, {results[name]['specs']} schemas, {vocabulary.name}")
        for figure, values in results[name].items():
            if isinstance(values, dict):
                click.echo(f"  {figure:>13}  " + "  ".join(f"{key} {value:.3f}" for key, value in values.items()))
    if out is not None:
        out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
