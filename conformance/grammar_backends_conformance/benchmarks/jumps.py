"""Which share of the tokens of compact JSON is forced, per backend, and whether forced tokens are the tokenizer's own.

Each valid instance of a corpus is written without white space and decoded as if a model chose exactly that text: what
the grammar forces is appended by `JumpForward`, everything else comes from the text. The tokens must at every step be
the beginning of the tokenizer's own encoding of the whole text; a difference is counted, and makes the run fail.

Run it with ``python -m``. Compilations run in workers, since some engines take minutes for some schemas.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from grammar_backends import CompiledGrammar, GrammarOptions, GrammarSpec, Vocabulary, load_backend
from grammar_backends.decoding import JumpForward, JumpPolicy, JumpStatistics
from grammar_backends.errors import GrammarBackendsError
from grammar_backends.workers import Limits, Message, Service, serve
from grammar_backends_conformance.running.pool import Lane, Pool, Trouble
from grammar_backends_conformance.vocabularies import suite_vocabulary

__all__ = ["Walk", "main", "walk"]

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
VOCABULARIES = ("tekken", "tiktoken", "huggingface")
POLICIES = {"worth": JumpPolicy(), "all": JumpPolicy(min_tokens=1)}
"""Jumps as the policy has them by default, and every one."""


@dataclass(frozen=True)
class Schema:
    """A schema with the texts to decode."""

    id: str
    schema: Any
    texts: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Walk:
    """Counts over some texts, for one policy.

    Attributes:
        texts: how many were decoded to their end.
        refused: texts that are not of the grammar: property order, say, is the engine's.
        different: texts whose tokens were not the tokenizer's own.
        tokens: of the texts that were decoded.
        saved, jumps: `JumpStatistics` of these texts.
        jump_us: how long it took to find each jump, in µs.
    """

    texts: int = 0
    refused: int = 0
    different: int = 0
    tokens: int = 0
    saved: int = 0
    jumps: int = 0
    jump_us: list[float] = field(default_factory=list)

    def add(self, other: Walk) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def share(self) -> float:
        """Of the tokens, those that were appended without sampling."""
        return self.saved / self.tokens if self.tokens else 0.0


def walk(compiled: CompiledGrammar, vocabulary: Vocabulary, text: str, policy: JumpPolicy) -> Walk:
    """Decode one text as a model would that wants exactly this text."""
    wanted = vocabulary.encode(text)
    grammar = compiled.new_grammar()
    if not grammar.accept_tokens("walk", [*wanted, vocabulary.stop_ids[0]]):
        return Walk(refused=1)
    grammar.reset()
    jumper, counts = JumpForward(vocabulary, policy), JumpStatistics()
    output: list[int] = []
    result = Walk()
    while len(output) < len(wanted):
        begun = time.perf_counter()
        jump = jumper.take("walk", grammar, output, counts)
        if jump:
            result.jump_us.append((time.perf_counter() - begun) * 1e6)
            if output != wanted[: len(output)]:
                return Walk(different=1)
        else:
            token = wanted[len(output)]
            grammar.accept_tokens("walk", [token])
            output.append(token)
    result.texts, result.tokens = 1, len(wanted)
    result.saved, result.jumps = counts.tokens_saved, counts.jumps
    return result


# ------------------------------------------------------------------------------------------------------ in a worker


@dataclass
class Answer:
    """What became of one schema."""

    id: str
    outcome: str
    seconds: float = 0.0
    walks: dict[str, Any] = field(default_factory=dict)


def start(backend_name: str, vocabulary_name: str) -> Service:
    """Load a backend, and answer with the walks over a schema's texts."""
    vocabulary = suite_vocabulary(vocabulary_name)
    backend = load_backend(backend_name, vocabulary)
    # xgrammar takes minutes to compile some open objects; llguidance cannot close them.
    options = GrammarOptions(
        whitespace="compact", additional_properties="closed" if backend.capabilities.closed_objects else "schema"
    )

    def answer(task: Message) -> Message:
        try:
            compiled = backend.compile_grammar(GrammarSpec.json_schema(task.head["schema"], options=options))
        except GrammarBackendsError as error:
            return Message(asdict(Answer(task.head["id"], type(error).__name__)))
        walks = {}
        for name, policy in POLICIES.items():
            walks[name] = Walk()
            for text in task.head["texts"]:
                walks[name].add(walk(compiled, vocabulary, text, policy))
        counts = {name: asdict(counts) for name, counts in walks.items()}
        return Message(asdict(Answer(task.head["id"], "done", walks=counts)))

    return Service({"version": backend.version}, answer)


# ------------------------------------------------------------------------------------------------------- in the parent


def schemas_of(corpus: Path | None, limit: int) -> Iterator[Schema]:
    """JSON schemas with their valid instances as compact texts, evenly over a corpus."""
    path = corpus or Path(__file__).parent.parent / "cases" / "smoke.jsonl"
    cases = (json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())
    chosen = [case for case in cases if case["kind"] == "json_schema" and any(t["valid"] for t in case["tests"])]
    for case in chosen[:: max(1, len(chosen) // limit)][:limit]:
        yield Schema(case["id"], case["spec"], tuple(_texts(case["tests"])))


def _texts(tests: Iterable[dict[str, Any]]) -> Iterator[str]:
    for test in tests:
        if test["valid"]:
            data = test["data"] if "data" in test else json.loads(test["text"])
            yield json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _trouble(id_: str, outcome: Trouble, detail: str) -> Answer:
    return Answer(id_, outcome)


def measure(schemas: tuple[Schema, ...], backend: str, vocabulary: str, seconds: float) -> dict[str, Walk]:
    """The counts of one backend with one vocabulary, for each policy."""
    lane = Lane(f"{backend} {vocabulary}", (__spec__.name, "--worker", backend, vocabulary), schemas)
    totals = {name: Walk() for name in POLICIES}
    with Pool([lane], jobs=1, limits=Limits(seconds=seconds), read=_read, trouble=_trouble) as pool:
        pool.run()
        for reason in pool.unavailable.values():
            raise click.ClickException(reason)
        for answer in pool.results[lane.name].values():
            for name, counts in answer.walks.items():
                totals[name].add(Walk(**counts))
    return totals


def _read(answer: dict[str, Any]) -> Answer:
    return Answer(**answer)


@click.command()
@click.option("--corpus", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="JSONL; default: smoke.")
@click.option("--limit", default=100, show_default=True, help="Schemas to take.")
@click.option("--seconds", default=5.0, show_default=True, help="For one schema, compilation included.")
@click.option("--backend", "backends", multiple=True, type=click.Choice(BACKENDS), default=BACKENDS)
@click.option("--vocabulary", "vocabularies", multiple=True, default=VOCABULARIES[:2], show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here, as JSON.")
def main(
    corpus: Path | None, limit: int, seconds: float, backends: list[str], vocabularies: list[str], out: Path | None
) -> None:
    """Measure how much of compact JSON the backends force."""
    schemas = tuple(schemas_of(corpus, limit))
    results: dict[str, Any] = {}
    for vocabulary in vocabularies:
        for backend in backends:
            walks = measure(schemas, backend, vocabulary, seconds)
            results[f"{backend} {vocabulary}"] = {name: _summary(counts) for name, counts in walks.items()}
            click.echo(f"{backend} {vocabulary}: {json.dumps(results[f'{backend} {vocabulary}'])}")
    if out is not None:
        out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    if any(counts["different"] for result in results.values() for counts in result.values()):
        raise click.ClickException("some forced tokens were not the tokenizer's own")


def _summary(counts: Walk) -> dict[str, Any]:
    return {
        "texts": counts.texts,
        "refused": counts.refused,
        "different": counts.different,
        "tokens": counts.tokens,
        "saved": counts.saved,
        "share": round(counts.share, 3),
        "jumps": counts.jumps,
        "jump_us_median": round(statistics.median(counts.jump_us)) if counts.jump_us else None,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        sys.exit(serve(lambda: start(*sys.argv[2:])))
    main()
