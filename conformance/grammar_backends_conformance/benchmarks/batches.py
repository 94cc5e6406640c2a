"""What `BitmaskBuilder` adds to the engines below, as ratios against the fastest raw way to make the same calls.

Two batches, both at random positions of texts: many requests without drafts, and fewer with drafts that all are legal.
Each is built by the layer and filled by every raw way in turns, in one process, and all rows must be equal. Run it
with ``python -m``; ``make bench`` does.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from grammar_backends import (
    BitmaskBuilder,
    GrammarBackend,
    GrammarSpec,
    MaskRequest,
    StructuredOutputGrammar,
    Vocabulary,
    allocate_bitmask,
    load_backend,
    load_vocabulary,
)
from grammar_backends.contract import CompiledGrammar
from grammar_backends.errors import GrammarBackendsError
from grammar_backends_conformance.benchmarks.overhead import BACKENDS, OPTIONS, forget_rows, texts_of

__all__ = ["main"]

SHAPES = ((256, 0), (64, 4))
"""Requests, and drafts of each."""

SWEPT = 1 << 26
"""Bytes that are written before each turn: more than the caches hold."""


@dataclass(frozen=True)
class Position:
    """A request in the middle of a text.

    Attributes:
        compiled: its grammar.
        before: the tokens behind it.
        ahead: the tokens before it.
    """

    compiled: CompiledGrammar
    before: list[int]
    ahead: list[int]

    def grammar(self) -> StructuredOutputGrammar:
        grammar = self.compiled.new_grammar()
        grammar.accept_tokens("bench", self.before)
        return grammar


Way = Callable[[], object]


class RawXGrammar:
    """xgrammar by its own Python calls: `GrammarMatcher` in a loop, `BatchGrammarMatcher`, and its walk over trees."""

    def __init__(self, positions: Sequence[Position], num_drafts: int, bitmask: torch.Tensor) -> None:
        from xgrammar import GrammarMatcher

        self.bitmask, self.stride = bitmask, num_drafts + 1
        self.matchers = [GrammarMatcher(each.compiled._artifact._compiled) for each in positions]  # type: ignore[attr-defined]  # the adapter's own artifact
        self.drafts = [each.ahead[:num_drafts] for each in positions]
        for matcher, each in zip(self.matchers, positions, strict=True):
            for token in each.before:
                matcher.accept_token(token)
        self.firsts = list(range(0, len(positions) * self.stride, self.stride))

    def ways(self, threads: int) -> dict[str, Way]:
        from xgrammar import BatchGrammarMatcher

        batch = BatchGrammarMatcher(max_threads=threads)
        if self.stride == 1:
            return {
                "loop": self.loop,
                "batch": lambda: batch.batch_fill_next_token_bitmask(self.matchers, self.bitmask, self.firsts),
            }
        links = torch.tensor([*range(1, self.stride), -1]), torch.full((self.stride,), -1)
        blocks = self.bitmask.view(-1, self.stride, self.bitmask.shape[1]).unbind()

        def walk() -> None:
            for matcher, tokens, block in zip(self.matchers, self.drafts, blocks, strict=True):
                matcher.traverse_draft_tree(*links, torch.tensor([0, *tokens]), block)

        return {"loop": self.loop, "tree": walk}

    def loop(self) -> None:
        bitmask = self.bitmask
        for matcher, tokens, first in zip(self.matchers, self.drafts, self.firsts, strict=True):
            matcher.fill_next_token_bitmask(bitmask, first)
            for row, token in enumerate(tokens, start=first + 1):
                matcher.accept_token(token)
                matcher.fill_next_token_bitmask(bitmask, row)
            if tokens:
                matcher.rollback(len(tokens))


class RawGuidance:
    """llguidance by raw pointer, in a loop and by `LLExecutor`."""

    def __init__(self, positions: Sequence[Position], num_drafts: int, bitmask: torch.Tensor) -> None:
        self.bitmask, self.stride = bitmask, num_drafts + 1
        self.matchers = [each.compiled._artifact.pristine.deep_copy() for each in positions]  # type: ignore[attr-defined]  # the adapter's own artifact
        self.drafts = [each.ahead[:num_drafts] for each in positions]
        for matcher, each in zip(self.matchers, positions, strict=True):
            matcher.consume_tokens(each.before)
        self.firsts = list(range(0, len(positions) * self.stride, self.stride))

    def ways(self, threads: int) -> dict[str, Way]:
        from llguidance import LLExecutor

        executor: Any = LLExecutor(threads)
        address, nbytes, rows = self.bitmask.data_ptr(), self.bitmask.shape[1] * 4, len(self.bitmask)

        def together() -> None:
            pairs = list(zip(self.matchers, self.firsts, strict=True))
            executor.unsafe_compute_mask_ptr(pairs, address, nbytes, rows)

        def with_drafts() -> None:
            chains = list(zip(self.matchers, self.firsts, self.drafts, strict=True))
            executor.unsafe_compute_mask_ptr_with_draft_token(chains, address, nbytes, rows)

        return {"loop": self.loop, "executor": with_drafts if self.stride > 1 else together}

    def loop(self) -> None:
        start, nbytes = self.bitmask.data_ptr(), self.bitmask.shape[1] * 4
        for matcher, tokens, row in zip(self.matchers, self.drafts, self.firsts, strict=True):
            address = start + row * nbytes
            matcher.unsafe_compute_mask_ptr(address, nbytes)
            for token in tokens:
                matcher.consume_token(token)
                address += nbytes
                matcher.unsafe_compute_mask_ptr(address, nbytes)
            if tokens:
                matcher.rollback(len(tokens))


RAW: dict[str, Any] = {"xgrammar": RawXGrammar, "guidance": RawGuidance}


def positions_in(
    backend: GrammarBackend, texts: Sequence[tuple[Any, str]], number: int, ahead: int, seed: int
) -> list[Position]:
    """Random positions with at least `ahead` legal tokens to come, in the texts in turn."""
    walks = []
    for schema, text in texts:
        try:
            compiled = backend.compile_grammar(GrammarSpec.json_schema(schema, options=OPTIONS[backend.name]))
        except GrammarBackendsError:
            continue
        ids = compiled.new_grammar().validate_tokens(backend.vocabulary.encode(text))  # some want another key order
        if len(ids) > ahead:
            walks.append((compiled, ids))
    among = random.Random(seed)
    found = []
    for place in range(number):
        compiled, ids = walks[place % len(walks)]
        at = among.randrange(len(ids) - ahead)
        found.append(Position(compiled, ids[:at], ids[at:]))
    return found


def measure(
    positions: Sequence[Position], vocabulary: Vocabulary, num_drafts: int, threads: int, turns: int
) -> dict[str, float]:
    """Median times of one batch in µs, and the layer's ratio to each raw way: the greatest is that to the fastest."""
    rows = len(positions) * (num_drafts + 1)
    bitmask = allocate_bitmask(rows, vocabulary.width)
    raw = RAW[positions[0].compiled.backend.name](positions, num_drafts, bitmask)
    builder = BitmaskBuilder(vocabulary, len(positions), num_drafts, threads=threads)
    ids = [f"request-{place}" for place in range(len(positions))]
    grammars = [each.grammar() for each in positions]
    drafts = [each.ahead[:num_drafts] for each in positions]
    plain = [MaskRequest(*each) for each in zip(ids, grammars, strict=True)]
    built: list[Any] = []

    def layer() -> None:
        # Without drafts a request asks for the same in every step.
        requests = [MaskRequest(*each) for each in zip(ids, grammars, drafts, strict=True)] if num_drafts else plain
        built[:] = [builder.build(requests)]

    ways = raw.ways(threads)
    # The process' own time, where no more than one thread works: a busy machine then says little about either side.
    clock = time.process_time_ns if threads == 1 else time.perf_counter_ns
    swept = np.zeros(SWEPT, np.uint8)

    ahead = [each.ahead for each in positions]

    def taken(way: Way) -> int:
        forget_rows(grammars if way is layer else raw.matchers, ahead)
        np.add(swept, 1, out=swept)  # a model's step leaves nothing in the caches, and no way shall profit by another
        began = clock()
        way()
        return clock() - began

    # In pairs a moment apart: they had the same machine, and neither side was seen last more often than the other.
    times: dict[str, list[tuple[int, int]]] = {name: [] for name in ways}
    among = random.Random(turns)
    for _ in range(turns):
        for name, way in among.sample(sorted(ways.items()), len(ways)):
            if among.random() < 0.5:
                mine = taken(layer)
                times[name].append((mine, taken(way)))
            else:
                theirs = taken(way)
                times[name].append((taken(layer), theirs))
    for name, way in ways.items():
        bitmask.fill_(7)
        way()
        if not np.array_equal(built[0].bitmask, bitmask.numpy()):
            raise RuntimeError(f"the layer's rows differ from those by {name}")
    ratios = {f"to raw {name}": statistics.median(ours / raw for ours, raw in pairs) for name, pairs in times.items()}
    return {
        "ratio": max(ratios.values()),
        **ratios,
        "layer µs": statistics.median(ours for pairs in times.values() for ours, _ in pairs) / 1000,
        **{f"raw {name} µs": statistics.median(raw for _, raw in pairs) / 1000 for name, pairs in times.items()},
    }


@click.command()
@click.option("--corpus", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="JSONL; default: smoke.")
@click.option("--limit", default=100, show_default=True, help="Schemas to take.")
@click.option("--tokenizer", default="tekken", show_default=True)
@click.option("--turns", default=41, show_default=True, help="Times that each way is taken.")
@click.option("--seed", default=1, show_default=True, help="Of the positions.")
@click.option("--threads", default="1,2", show_default=True, help="Numbers of threads, joined by commas.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here, as JSON.")
def main(
    corpus: Path | None, limit: int, tokenizer: str, turns: int, seed: int, threads: str, out: Path | None
) -> None:
    """Measure what building the masks of a whole step adds to xgrammar and llguidance."""
    vocabulary = load_vocabulary(tokenizer)
    texts = list(texts_of(corpus, limit))
    results: dict[str, Any] = {}
    for name in BACKENDS:
        backend = load_backend(name, vocabulary)
        for number, num_drafts in SHAPES:
            positions = positions_in(backend, texts, number, max(1, num_drafts), seed)
            for count in map(int, threads.split(",")):
                gc.collect()
                gc.disable()  # a collection would fall on one way at random
                figures = measure(positions, vocabulary, num_drafts, count, turns)
                gc.enable()
                results[f"{name} {backend.version}, {number} x {num_drafts} drafts, {count} threads"] = figures
    for title, figures in results.items():
        click.echo(f"{title}\n  " + "  ".join(f"{key} {value:.2f}" for key, value in figures.items()))
    if out is not None:
        out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
