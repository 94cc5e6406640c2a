"""``gb compare``: which backend is right, and how fast, on a corpus.

The module itself imports only click and the shared options, since ``gb --help`` loads it.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grammar_backends.cli.support import (
    ExitCode,
    emit,
    exit_with,
    format_option,
    ignore_option,
    note,
    policy_of,
    tokenizer_option,
)

if TYPE_CHECKING:
    from grammar_backends import PluginHost
    from grammar_backends_conformance.comparison.outcome import CaseResult
    from grammar_backends_conformance.comparison.results import RunResults
    from grammar_backends_conformance.corpora.reading import Case, Corpus
    from grammar_backends_conformance.running.pool import Pool

__all__ = ["compare"]


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    backends: str | None
    tokenizer: str
    corpus: Path | None
    suite: str | None
    limit: int | None
    out: Path
    jobs: int | None
    time_limit: float
    memory_limit: float
    baseline: Path | None
    ignore: str


WORKER = "grammar_backends_conformance.comparison.worker"
AUTOMATIC = ("auto", "auto-fast")
"""The automatic choice, by its order and by predicted speed."""
MAX_JOBS = 8
"""Workers by default at most: each holds a vocabulary and an engine."""


@click.command()
@click.option(
    "--backends", metavar="A,B", help="Whom to compare; also auto and auto-fast. Default: all but the optional."
)
@tokenizer_option
@click.option(
    "--corpus",
    type=click.Path(exists=True, path_type=Path),
    help="Cases of ours, of MaskBench or of the JSON-Schema-Test-Suite: a file, or a folder with all in it.",
)
@click.option("--suite", type=click.Choice(["smoke", "full"]), help="A built-in corpus; smoke is the default.")
@click.option("--limit", type=click.IntRange(min=1), help="Run the first N cases only.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("grammar-backends-compare"),
    show_default=True,
    help="Where results.json and report.html go.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one a core, at most 8.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=15.0,
    show_default=True,
    help="Seconds for one case.",
)
@click.option(
    "--memory-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=4096.0,
    show_default=True,
    help="MB that one case may add.",
)
@click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An older results.json: exit with 1 when a case that passed does not any more.",
)
@ignore_option
@format_option
def compare(format_: str, **options: Any) -> None:
    """Compare backends on a corpus: correctness first, then speed.

    Every case runs in a warm process of its own backend; one that hangs, crashes or eats memory costs that case only.
    Wrong outcomes are results, not failures. Exits with 0 when the run completed, 1 on a regression against
    --baseline or when lines of the corpus could not be read (the others still ran), 6 when a named backend could
    not start. Use --jobs 1 for the quietest times.

    Example: gb compare --backends xgrammar,guidance,auto --suite smoke --out comparison
    """
    from grammar_backends import default_host  # lazy: numpy and every plugin

    policy_of(options["ignore"])  # what cannot be ignored is said at once
    request = Request(**options)
    corpus = _read(request)
    baseline = _read_baseline(request.baseline)
    host = default_host()
    names = _names(host, request.backends)
    if not corpus.cases or not names:
        note("There is nothing to run: no " + ("case." if names else "backend is installed."))
        exit_with(ExitCode.NOTHING_RAN)
    _prepare(request.out)
    run = _run(request, names, corpus, host)
    _write(request.out, run)
    regressed = _show(run, baseline, format_, request.out)
    _finish(run, named=request.backends is not None, failed=regressed or bool(corpus.problems))


def _read(request: Request) -> Corpus:
    from grammar_backends_conformance.corpora.reading import Corpus, read_corpus, read_suite  # lazy: as above

    if request.corpus is not None and request.suite is not None:
        raise click.UsageError("Give --corpus or --suite, not both.")
    try:
        corpus = read_corpus(request.corpus) if request.corpus else read_suite(request.suite or "smoke")
    except OSError as error:
        raise click.UsageError(f"--corpus: cannot read {str(request.corpus)!r}: {error.strerror}.") from None
    for line in (*corpus.notices, *corpus.problems):
        note(line)
    return Corpus(corpus.name, corpus.cases[: request.limit], corpus.problems, corpus.notices)


def _read_baseline(path: Path | None) -> RunResults | None:
    from grammar_backends_conformance.comparison.results import ResultsError, RunResults  # lazy: as above

    try:
        return RunResults.read(path) if path else None
    except ResultsError as error:
        raise click.UsageError(f"--baseline: {error}.") from None


def _names(host: PluginHost, backends: str | None) -> list[str]:
    """Whom to run; raises `BackendUnavailable` for a name that cannot be used."""
    if backends is None:
        records = [record for record in host.backends if record.spec.priority is not None]
        return [record.spec.name for record in records if record.state == "loaded"]
    names = list(dict.fromkeys(name.strip() for name in backends.split(",") if name.strip()))
    if not names:
        raise click.UsageError("--backends names none.")
    for name in names:
        if name not in AUTOMATIC:
            host.backend(name)
    return names


def _prepare(out: Path) -> None:
    # Before the run: half an hour of work must not end in "permission denied".
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".writable").touch()
        (out / ".writable").unlink()
    except OSError as error:
        raise click.UsageError(f"--out: cannot write to {str(out)!r}: {error.strerror}.") from None


def _run(request: Request, names: list[str], corpus: Corpus, host: PluginHost) -> RunResults:
    from grammar_backends.installation import available_cores
    from grammar_backends.workers import Limits
    from grammar_backends_conformance.comparison.outcome import CaseResult
    from grammar_backends_conformance.running.environment import describe_environment
    from grammar_backends_conformance.running.interruption import terminate_as_interrupt
    from grammar_backends_conformance.running.pool import Lane, Pool
    from grammar_backends_conformance.running.progress import Progress

    jobs = request.jobs or min(available_cores(), MAX_JOBS)
    limits = Limits(request.time_limit, request.memory_limit)
    environment = describe_environment([record.spec for record in host.backends], ["gb", *sys.argv[1:]])
    start, complete = time.monotonic(), True
    lanes = [Lane(name, (WORKER, name, request.tokenizer, request.ignore), corpus.cases) for name in names]
    with Progress(len(names) * len(corpus.cases)) as progress, terminate_as_interrupt():
        pool = Pool(
            lanes,
            jobs=jobs,
            limits=limits,
            read=CaseResult.from_dict,
            trouble=CaseResult,
            on_result=progress.advance,
        )
        try:
            with pool:
                pool.run()
        except KeyboardInterrupt:
            complete = False
    environment |= {
        "tokenizer": request.tokenizer,
        "jobs": jobs,
        "time_limit_s": limits.seconds,
        "memory_limit_mb": limits.megabytes,
        "seconds": round(time.monotonic() - start, 1),
    }
    return _collect(pool, corpus, environment, complete)


def _collect(pool: Pool[Case, CaseResult], corpus: Corpus, environment: dict[str, Any], complete: bool) -> RunResults:
    from grammar_backends_conformance.comparison.results import RunResults, describe_case

    vocabulary = next((ready["vocabulary"] for ready in pool.ready.values()), None)
    return RunResults(
        complete=complete,
        environment={**environment, "vocabulary": vocabulary},
        corpus={"name": corpus.name, "cases": len(corpus.cases), "problems": list(corpus.problems)},
        backends={name: {"version": ready["version"]} for name, ready in pool.ready.items()},
        unavailable=pool.unavailable,
        cases={case.id: describe_case(case) for case in corpus.cases},
        results=_in_order(pool, corpus),
    )


def _in_order(pool: Pool[Case, CaseResult], corpus: Corpus) -> dict[str, dict[str, Any]]:
    """Results in the order of the corpus: workers finish in any order, files should not differ for it."""
    ids = [case.id for case in corpus.cases]
    return {name: {id_: by_id[id_] for id_ in ids if id_ in by_id} for name, by_id in pool.results.items()}


def _write(out: Path, run: RunResults) -> None:
    import json

    from grammar_backends_conformance.comparison.html import render
    from grammar_backends_conformance.running.files import write_text

    try:
        write_text(out / "results.json", json.dumps(run.to_dict(), separators=(",", ":")) + "\n")
        write_text(out / "report.html", render(run))
    except OSError as error:
        raise click.ClickException(f"cannot write to {str(out)!r}: {error.strerror}") from None


def _show(run: RunResults, baseline: RunResults | None, format_: str, out: Path) -> bool:
    """Print the run; whether it regressed against the baseline."""
    from dataclasses import asdict

    from grammar_backends_conformance.comparison.results import compare_with_baseline
    from grammar_backends_conformance.comparison.tables import comparison_blocks, run_blocks

    data, blocks = run.to_dict(raw=False), run_blocks(run)
    comparison = compare_with_baseline(run, baseline) if baseline else None
    if comparison and baseline:
        data["baseline"] = asdict(comparison)
        blocks += comparison_blocks(comparison)
        if baseline.environment.get("tokenizer") != run.environment["tokenizer"]:
            note(f"The baseline was taken with another tokenizer: {baseline.environment.get('tokenizer')}.")
    emit(format_, data, blocks)
    note(f"Wrote {out / 'results.json'} and {out / 'report.html'}.")
    return bool(comparison and comparison.regressions)


def _finish(run: RunResults, *, named: bool, failed: bool) -> None:
    for name, reason in run.unavailable.items():
        note(f"Backend {name} is unavailable: {reason}")
    if not run.complete:
        note("Interrupted: the results so far were written.")
        exit_with(ExitCode.INTERRUPTED)
    if run.unavailable and (named or not run.results):
        exit_with(ExitCode.BACKEND_UNAVAILABLE)
    exit_with(ExitCode.FAILURES if failed else ExitCode.OK)
