"""``gb conformance``: does a backend keep the contract?

The module itself imports only click and the shared options, since ``gb --help`` loads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from grammar_backends.cli.support import (
    ExitCode,
    Table,
    Verbatim,
    emit,
    exit_with,
    format_option,
    markdown,
    note,
)
from grammar_backends_conformance.suite import TIME_LIMIT

if TYPE_CHECKING:
    from grammar_backends.contract import BackendSpec
    from grammar_backends_conformance.reports.outcome import CheckResult
    from grammar_backends_conformance.reports.report import SuiteReport
    from grammar_backends_conformance.suite.expectations import Expectation
    from grammar_backends_conformance.suite.run import Settings

__all__ = ["conformance"]

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_JOBS = 8
"""Workers by default at most: each holds a vocabulary and an engine."""

MARKDOWN_FAILURES = 100
"""Failing checks that Markdown shows in full: GitHub refuses a step's summary beyond 1 MiB."""

FORMS = ("out", "junit", "html", "markdown", "badge")
"""Files that a report can be written as, by the options that name them."""

_FILE = click.Path(dir_okay=False, path_type=Path)
_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)

_SELECTION: list[Any] = [
    click.option("--profile", default="core", show_default=True, help="core, full, or one capability."),
    click.option("--vocabulary", "vocabularies", multiple=True, metavar="NAME", help="Only with this one; repeatable."),
    click.option("--only", multiple=True, metavar="GLOB", help="Only checks whose id matches; repeatable."),
    click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one a core, at most 8."),
    click.option(
        "--time-limit",
        type=click.FloatRange(min=0, min_open=True),
        default=TIME_LIMIT,
        show_default=True,
        help="Seconds for one check.",
    ),
    click.option(
        "--expectations", type=_EXISTING, help="Known deviations. Default: expectations.toml of the plugin itself."
    ),
]

_FILES: list[Any] = [
    click.option("--out", type=_FILE, help="Write the report as JSON."),
    click.option("--junit", type=_FILE, help="Write it as JUnit XML."),
    click.option("--html", type=_FILE, help="Write it as a page."),
    click.option("--markdown", type=_FILE, help="Write it as Markdown."),
    click.option("--badge", type=_FILE, help="Write a badge (SVG)."),
]


def _with(options: Sequence[Any]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.group()
def conformance() -> None:
    """Judge backends by the rules of the contract.

    Every check runs in a worker process, so that a backend that crashes or hangs costs one check only.
    """


@conformance.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_with(_SELECTION)
@_with(_FILES)
@format_option
def run(names: tuple[str, ...], format_: str, expectations: Path | None, **options: Any) -> None:
    """Judge backends: the gate for CI.

    Exits with 0 when every rule holds, 1 on any violation that is not expected (or an expectation that does not
    hold any more), 5 when no check was selected, 6 when a backend could not start.

    Example: gb conformance run xgrammar --profile core --html report.html
    """
    from grammar_backends_conformance.suite.expectations import of_backend  # lazy: numpy and the laws

    files = {form: options.pop(form) for form in FORMS}
    _check_writable(files)
    specs, settings = _specs(names), _settings(**options)
    report = _run(specs, settings, {spec.name: of_backend(spec, expectations) for spec in specs})
    _show(report, format_, files)
    _finish(report)


@conformance.command()
@click.argument("reports", metavar="FILE...", nargs=-1, required=True, type=_EXISTING)
@_with(_FILES)
@format_option
def show(reports: tuple[Path, ...], format_: str, **files: Path | None) -> None:
    """Show reports again that `run --out` wrote, several backends' as one.

    The exit code is that of the run.

    Example: gb conformance show a.json b.json --html matrix.html
    """
    from grammar_backends_conformance.reports.report import SuiteReport  # lazy: numpy

    _check_writable(files)
    report = SuiteReport.merged([SuiteReport.read(path) for path in reports])
    _show(report, format_, files)
    _finish(report)


@conformance.command("list")
@click.option("--profile", default="full", show_default=True, help="core, full, or one capability.")
@format_option
def list_laws(profile: str, format_: str) -> None:
    """List the laws: id, profile, vocabularies, and what must hold."""
    from grammar_backends_conformance.suite.plan import Plan  # lazy: numpy and the laws

    plan = Plan(profile)
    data = [
        {
            "id": law.id,
            "rule": law.rule,
            "profile": law.profile,
            "vocabularies": [*plan.vocabularies_of(law)],
            "per_sample": law.per_sample,
            "statement": law.statement,
        }
        for law in plan.laws
    ]
    rows = [[law.id, law.profile, ", ".join(law.vocabularies), law.statement] for law in plan.laws]
    emit(format_, data, [Table("", ["Law", "Profile", "Vocabularies", "What must hold"], rows)])


@conformance.command()
@click.argument("check_id", metavar="CHECK_ID")
@click.option("--backend", required=True, metavar="NAME", help="Whom to judge.")
@click.option("--script", type=_FILE, help="Write the calls as a Python file that does it again without the suite.")
@format_option
def repro(check_id: str, backend: str, script: Path | None, format_: str) -> None:
    """Run one check in this process, and show all of a violation: ids, bytes, and the calls that lead to it.

    Example: gb conformance repro A1/atomic-accept@byte:runs-regex --backend xgrammar
    """
    import faulthandler

    from grammar_backends_conformance.reports.outcome import FAILING
    from grammar_backends_conformance.reports.report import Line
    from grammar_backends_conformance.suite.bench import Bench  # lazy: numpy and the laws
    from grammar_backends_conformance.suite.plan import parse_check

    check = parse_check(check_id)
    (spec,) = _specs([backend])
    faulthandler.enable()  # nothing is between a crash and this process
    result = Bench(spec, check.vocabulary).run(check)
    line = Line.of(backend, check, result)
    emit(format_, line.to_dict(), [Verbatim(line.in_full)])
    if script is not None and result.evidence:
        _write(script, "\n".join(result.evidence.calls) + "\n")
    elif script is not None:
        note(f"There are no calls to write: the outcome is {result.outcome}.")
    exit_with(ExitCode.FAILURES if result.outcome in FAILING else ExitCode.OK)


@conformance.command("update-expectations")
@click.argument("name", metavar="NAME")
@_with(_SELECTION)
def update_expectations(name: str, expectations: Path | None, **options: Any) -> None:
    """Run a backend, and write the checks that fail into its expectations file.

    Reasons are kept, entries that no longer fail go, new ones ask for a reason. Without --expectations the file is
    that of the plugin itself.
    """
    from grammar_backends_conformance.suite import expectations as expected  # lazy: numpy and the laws

    (spec,) = _specs([name])
    file = expectations or expected.own_file(spec)
    if file is None:
        raise click.UsageError(f"{name} has no package to keep the file in; give --expectations.")
    entries = expected.read(file) if file.exists() else []
    settings = _settings(**options)
    report = _run([spec], settings, {})
    if not report.complete or report.unavailable or not report.lines:
        _finish(report)
    version = report.backends[name]["version"]
    new = expected.updated(entries, report.lines, name, version, whole=not settings.plan.only)
    if new or file.exists():
        _write(file, expected.dumps(new))
    kept = sum(entry in entries for entry in new)
    note(f"{file}: {len(new) - kept} new, {kept} kept, {len(entries) - kept} gone.")


def _specs(names: Sequence[str]) -> list[BackendSpec]:
    """The backends by name, each once; raises `BackendUnavailable` for one that cannot be used."""
    from grammar_backends import default_host  # lazy: numpy and every plugin

    host = default_host()
    return [host.backend(name) for name in dict.fromkeys(names)]


def _settings(
    profile: str, vocabularies: tuple[str, ...], only: tuple[str, ...], jobs: int | None, time_limit: float
) -> Settings:
    from grammar_backends.installation import available_cores  # lazy: numpy and the laws
    from grammar_backends_conformance.suite.plan import Plan
    from grammar_backends_conformance.suite.run import Settings

    return Settings(Plan(profile, vocabularies, only), jobs or min(available_cores(), MAX_JOBS), time_limit)


def _run(specs: Sequence[BackendSpec], settings: Settings, entries: Mapping[str, Sequence[Expectation]]) -> SuiteReport:
    from grammar_backends_conformance.running.interruption import terminate_as_interrupt  # lazy: as above
    from grammar_backends_conformance.running.progress import Progress
    from grammar_backends_conformance.suite.run import run_backends

    surveys = len(specs) * len(settings.plan.surveys)
    with Progress(surveys) as progress, terminate_as_interrupt():

        def advance(backend: str, result: CheckResult, added: int) -> None:
            progress.expect(added)
            progress.advance(backend, result)

        return run_backends(specs, settings, entries=entries, on_result=advance)


def _show(report: SuiteReport, format_: str, files: dict[str, Path | None]) -> None:
    from grammar_backends_conformance.reports import badge, html, junit, tables  # lazy: as above

    renderers: dict[str, Callable[[SuiteReport], str]] = {
        "out": lambda report: report.dumps(),
        "junit": junit.render,
        "html": html.render,
        "markdown": lambda report: markdown(tables.blocks(report, MARKDOWN_FAILURES)) + "\n",
        "badge": badge.render,
    }
    for form, path in files.items():
        if path is not None:
            _write(path, renderers[form](report))
    emit(format_, report.to_dict(), tables.blocks(report))
    if format_ == "json":
        note(report.summary)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _tell_github(report, renderers["markdown"](report))


def _tell_github(report: SuiteReport, summary: str) -> None:
    """On GitHub Actions: the step's summary, and an annotation for everything that fails."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(summary)
    for line in report.failures:
        _annotate(f"{line.backend} {line.check.id}", f"{line.result.detail}\n{line.command}")
    for problem in report.problems:
        _annotate("expectations", problem)


def _annotate(title: str, message: str) -> None:
    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    title = escaped(title).replace(":", "%3A").replace(",", "%2C")
    note(f"::error title={title}::{escaped(message)}")


def _finish(report: SuiteReport) -> None:
    if not report.complete:
        exit_with(ExitCode.INTERRUPTED)
    if report.unavailable:
        for name, reason in report.unavailable.items():
            note(f"Backend {name} is unavailable: {reason}")
        exit_with(ExitCode.BACKEND_UNAVAILABLE)
    if not report.lines:
        note(f"Nothing ran: no check was selected by {_chosen(report.settings)}.")
        note("`gb conformance list` has every law, with its vocabularies.")
        exit_with(ExitCode.NOTHING_RAN)
    exit_with(ExitCode.OK if report.ok else ExitCode.FAILURES)


def _chosen(settings: Mapping[str, Any]) -> str:
    """What selected the checks, as options."""
    options = {"profile": [settings["profile"]]}
    options |= {"vocabulary": settings.get("vocabularies", ()), "only": settings.get("only", ())}
    return " ".join(f"--{option} {value}" for option, values in options.items() for value in values)


def _check_writable(files: dict[str, Path | None]) -> None:
    # Before the run: minutes of work must not end in "permission denied".
    for form, path in files.items():
        if path is not None and not os.access(path.parent, os.W_OK):
            raise click.UsageError(f"--{form}: cannot write to {str(path.parent)!r}.")


def _write(path: Path, text: str) -> None:
    from grammar_backends_conformance.running.files import write_text

    try:
        write_text(path, text)
    except OSError as error:
        raise click.ClickException(f"cannot write {str(path)!r}: {error.strerror}") from None
