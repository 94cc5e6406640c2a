"""What a warm restart is worth: artifacts loaded from disk beside the same ones compiled, by one warm process.

The slowest tenth of a corpus is taken, since the rest is compiled before anybody notices. Every schema is compiled, put
into a store, and loaded by a store that is opened anew; both grammars then have to write the same rows. Run it with
``python -m``; with a corpus of real schemas it takes minutes. A schema that takes longer than the limit is left out: to
load it would save still more.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from grammar_backends import GrammarBackend, GrammarSpec, load_backend, load_vocabulary
from grammar_backends.compilation import ArtifactStore
from grammar_backends.contract import CompiledGrammar
from grammar_backends.errors import GrammarBackendsError
from grammar_backends.workers import Limits, Message, Service, WorkerPool, WorkerTrouble, serve

STEPS = 200
"""Rows that are compared along one text."""


@dataclass(frozen=True)
class Measured:
    """One schema; times in seconds.

    Attributes:
        compile, dump, load: of the grammar; loading includes finding it on disk and looking at its first mask.
        nbytes: what is kept on disk.
    """

    id: str
    compile: float
    dump: float
    load: float
    nbytes: int


def measure(backend: GrammarBackend, case_id: str, spec: GrammarSpec, directory: Path) -> Measured | None:
    """Compile, keep and load one schema; None where the backend refuses it.

    Raises:
        RuntimeError: what was loaded is not what was compiled.
    """
    t0 = time.perf_counter()
    try:
        compiled = backend.compile_grammar(spec)
        t1 = time.perf_counter()
        data = backend.dump_grammar(compiled)
    except GrammarBackendsError:
        return None
    t2 = time.perf_counter()
    key = backend.artifact_key(spec)
    ArtifactStore(directory).put(key, data)
    store = ArtifactStore(directory)
    t3 = time.perf_counter()
    found = store.get(key)
    if found is None:
        raise RuntimeError(f"{case_id} is not in the store")
    loaded = backend.load_grammar(spec, found)
    t4 = time.perf_counter()
    nbytes = store.nbytes
    store.remove(key)
    if list(rows(compiled)) != list(rows(loaded)):
        raise RuntimeError(f"{case_id}: the loaded grammar writes other rows than the compiled one")
    return Measured(case_id, t1 - t0, t2 - t1, t4 - t3, nbytes)


def rows(compiled: CompiledGrammar) -> Iterator[bytes]:
    """The rows along one text: of the allowed tokens, a different one each time."""
    grammar, vocabulary = compiled.new_grammar(), compiled.backend.vocabulary
    row = np.empty((1, vocabulary.words), dtype=np.int32)
    for step in range(STEPS):
        grammar.fill_bitmask(row, 0)
        yield row.tobytes()
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        if not grammar.accept_tokens("bench", [int(allowed[(step * 7919) % len(allowed)])]) or grammar.is_terminated():
            return


def serve_cases(name: str, tokenizer: str, directory: Path) -> int:
    """Measure the schemas that the parent sends; the exit status."""

    def start() -> Service:
        backend = load_backend(name, load_vocabulary(tokenizer))

        def answer(task: Message) -> Message:
            spec = GrammarSpec.json_schema(task.head["spec"])
            found = measure(backend, task.head["id"], spec, directory)
            return Message({"version": backend.version, "measured": found and asdict(found)})

        return Service({}, answer)

    return serve(start)


@click.command()
@click.option("--corpus", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, help="JSONL.")
@click.option("--limit", default=None, type=int, help="Schemas to take, spread evenly; default: all.")
@click.option("--slowest", default=0.1, show_default=True, help="Which part of them counts.")
@click.option("--case-seconds", default=60.0, show_default=True, help="Time for one schema.")
@click.option("--seconds", default=600.0, show_default=True, help="When to stop taking more.")
@click.option("--backend", "name", default="xgrammar", show_default=True)
@click.option("--tokenizer", default="tekken", show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here, as JSON.")
@click.option("--serve", "directory", type=click.Path(path_type=Path), hidden=True)
def main(
    corpus: Path,
    limit: int | None,
    slowest: float,
    case_seconds: float,
    seconds: float,
    name: str,
    tokenizer: str,
    out: Path | None,
    directory: Path | None,
) -> None:
    """Measure how much faster grammars are loaded from disk than compiled."""
    if directory is not None:
        sys.exit(serve_cases(name, tokenizer, directory))
    cases = [json.loads(line) for line in corpus.read_text("utf-8").splitlines() if line.strip()]
    cases = [case for case in cases if case["kind"] == "json_schema"]
    cases = cases[:: max(1, len(cases) // (limit or len(cases)))]
    end = time.monotonic() + seconds
    measured: list[Measured] = []
    lost = 0
    version = ""
    with tempfile.TemporaryDirectory() as place:
        command = (__spec__.name, *sys.argv[1:], "--serve", place)
        pool = WorkerPool(command, size=1, limits=Limits(seconds=case_seconds, megabytes=8192))
        for case in itertools.takewhile(lambda _: time.monotonic() < end, cases):
            try:
                answer = pool.run(Message({"id": case["id"], "spec": case["spec"]})).head
            except WorkerTrouble as trouble:
                if trouble.kind == "unavailable":
                    raise
                lost += 1
                continue
            version = answer["version"]
            if answer["measured"] is not None:
                measured.append(Measured(**answer["measured"]))
        pool.close()
    measured.sort(key=lambda each: each.compile)
    tenth = measured[-max(1, round(len(measured) * slowest)) :]
    click.echo(f"{name} {version}, {tokenizer}: {len(measured)} schemas, {lost} over {case_seconds:g} s or 8 GB")
    click.echo(summary(tenth))
    if out is not None:
        out.write_text(json.dumps([asdict(each) for each in measured], indent=1) + "\n", "utf-8")


def summary(tenth: list[Measured]) -> str:
    """The figures of the slowest ones, in lines."""
    compiling, loading = sum(each.compile for each in tenth), sum(each.load for each in tenth)
    ratios = [each.load / each.compile for each in tenth]
    median, worst = statistics.median(ratios), max(ratios)
    return "\n".join(
        (
            f"  the slowest {len(tenth)}: compile {compiling:.2f} s, dump {sum(each.dump for each in tenth):.2f} s",
            f"  load {loading:.2f} s from {sum(each.nbytes for each in tenth) / 1e6:.1f} MB",
            f"  load / compile {loading / compiling:.3f}, median {median:.3f}, worst {worst:.3f}",
        )
    )


if __name__ == "__main__":
    main()
