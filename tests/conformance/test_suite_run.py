"""``gb conformance run`` as a user runs it: a wild backend beside a tame one, exit codes, files, doors."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as Xml
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grammar_backends.cli import gb
from grammar_backends.kernels.apply import available_implementations
from grammar_backends_conformance.reports.report import SuiteReport

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the worker pool needs POSIX pipes and signals")

ONE_LAW = "A1/atomic-accept@byte*"
ONE_CHECK = "A1/atomic-accept@byte:stairs-choice"


@pytest.fixture(scope="module")
def wild(run_gb: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One law on a backend that goes wrong in every way, and on one that does not."""
    folder = tmp_path_factory.mktemp("wild")
    files = {name: folder / f"report.{name}" for name in ("json", "xml", "html", "md", "svg")}
    options = ["--out", files["json"], "--junit", files["xml"], "--html", files["html"], "--markdown", files["md"]]
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    done = run_gb(
        *("conformance", "run", "wild", "tame", "--only", ONE_LAW, "--time-limit", "3", "--jobs", "2"),
        *options,
        *("--badge", files["svg"], "--format", "table"),
        **github,
    )
    assert done.returncode == 1, done.stderr
    summary = (folder / "summary.md").read_text()
    return {"done": done, "summary": summary, "report": SuiteReport.read(files["json"]), **files}


@pytest.mark.parametrize(
    ("sample", "outcome", "detail"),
    [
        ("word", "crash", "SIGABRT: wild engine: about to abort"),
        ("accents", "pass", ""),
        ("replies", "error", "RuntimeError: the wild engine gave up"),
        ("stairs", "fail", "a refused block changed the grammar"),
        ("quoted", "timeout", "not done after 3 s"),
    ],
)
def test_a_trouble_costs_its_own_check_only(wild: dict[str, Any], sample: str, outcome: str, detail: str) -> None:
    by_id = {line.check.id: line.result for line in wild["report"].lines if line.backend == "wild"}
    result = by_id[f"A1/atomic-accept@byte:{sample}-choice"]
    assert (result.outcome, result.detail) == (outcome, detail)
    assert len(by_id) == 6


def test_the_other_backend_does_not_notice(wild: dict[str, Any]) -> None:
    assert wild["report"].outcomes["tame"] == {"pass": 6}


def test_a_violation_leaves_its_process_with_all_its_evidence(wild: dict[str, Any]) -> None:
    (line,) = [line for line in wild["report"].lines if line.result.outcome == "fail"]
    evidence = line.result.evidence
    assert "ababab" in evidence.spec
    assert evidence.expected != evidence.got
    assert any(".accept_tokens(" in call for call in evidence.calls)
    assert (line.rule, line.check.vocabulary, line.check.subject) == ("A1", "byte", "stairs-choice")


def test_the_terminal_shows_each_failing_check_and_what_does_it_again(wild: dict[str, Any]) -> None:
    printed = wild["done"].stdout
    for line in wild["report"].failures:
        assert f"{line.result.outcome.upper()} wild {line.check.id}" in printed
        assert f"gb conformance repro '{line.check.id}' --backend wild" in printed
    assert "4 of 12 checks fail" in printed
    counts = wild["report"].counts()
    assert f"{counts.states:,} states, {counts.masks:,} masks" in printed
    assert counts.masks > 0


def test_the_header_says_what_was_judged_and_on_what(wild: dict[str, Any]) -> None:
    report = wild["report"]
    assert report.backends["wild"]["version"] == "1.0"
    assert report.backends["wild"]["distribution_version"] == "1.0"
    assert report.backends["wild"]["vocabularies"]["byte"]["name"] == "byte"
    assert report.backends["wild"]["applied_by"] == sorted(each.name for each in available_implementations())
    assert report.environment["packages"]["wild-engines"] == "1.0"
    assert report.settings["profile"] == "core"
    assert report.complete
    assert not report.ok


def test_junit_counts_failures_and_errors(wild: dict[str, Any]) -> None:
    suites = {suite.get("name"): suite for suite in Xml.parse(wild["xml"]).getroot()}
    assert {name: suites["wild"].get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "1",
        "errors": "3",
        "skipped": "0",
    }
    assert suites["tame"].get("failures") == suites["tame"].get("errors") == "0"
    (failure,) = suites["wild"].iter("failure")
    assert "gb conformance repro" in (failure.text or "")


def test_markdown_and_githubs_summary_agree_and_every_failure_is_annotated(wild: dict[str, Any]) -> None:
    assert wild["md"].read_text() == wild["summary"]
    assert "| wild 1.0 | 6 | 2 | 0 | 0 | 1 | 1 | 1 | 1 |" in wild["summary"]
    annotations = [line for line in wild["done"].stderr.splitlines() if line.startswith("::error title=wild A1/")]
    assert len(annotations) == 4
    assert all("%0Agb conformance repro" in annotation for annotation in annotations)


def test_the_page_has_a_row_for_the_law_and_embeds_the_report(wild: dict[str, Any]) -> None:
    page = wild["html"].read_text()
    assert '<span class="law">A1/atomic-accept</span>' in page
    assert 'title="pass 2, fail 1, error 1, crash 1, timeout 1">4</span>' in page
    start = page.index('id="results">') + len('id="results">')
    assert SuiteReport.loads(page[start : page.index("</script>", start)]) == wild["report"]


def test_the_badge_says_how_many_checks_fail(wild: dict[str, Any]) -> None:
    badge = Xml.parse(wild["svg"]).getroot()
    assert badge.get("aria-label") == "grammar-backends: core 4 failing"


def test_reports_can_be_shown_again_as_one(run_gb: Any, wild: dict[str, Any], tmp_path: Path) -> None:
    again = run_gb("conformance", "show", wild["json"], "--junit", tmp_path / "again.xml")
    assert again.returncode == 1
    assert json.loads(again.stdout) == json.loads(wild["json"].read_text())
    assert (tmp_path / "again.xml").read_text() == wild["xml"].read_text()
    twice = run_gb("conformance", "show", wild["json"], wild["json"])
    assert twice.returncode == 4
    assert "two reports hold the same backend" in twice.stderr


def test_a_backend_that_keeps_the_law_exits_with_0(run_gb: Any) -> None:
    done = run_gb("conformance", "run", "tame", "--only", ONE_CHECK)
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["footer"]["ok"]
    assert report["footer"]["complete"]
    assert [check["id"] for check in report["checks"]] == [ONE_CHECK]


def test_a_backend_that_cannot_start_is_exit_code_6_and_the_others_are_judged(run_gb: Any) -> None:
    done = run_gb("conformance", "run", "toy-dies-at-start", "toy-cannot-start", "tame", "--only", ONE_CHECK)
    assert done.returncode == 6
    report = json.loads(done.stdout)
    assert "SIGABRT" in report["header"]["unavailable"]["toy-dies-at-start"]
    assert "the toy will not start" in report["header"]["unavailable"]["toy-cannot-start"]
    assert [(check["backend"], check["outcome"]) for check in report["checks"]] == [("tame", "pass")]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run"], 4, "NAME"),
        (["run", "tamee"], 6, "did you mean 'tame'?"),
        (["run", "tame", "--profile", "cor"], 4, "did you mean 'core'?"),
        (["run", "tame", "--vocabulary", "bite"], 4, "did you mean 'byte'?"),
        (["run", "tame", "--only", "Z9/*"], 5, "no check was selected by --profile core --only Z9/*."),
        (["run", "tame", "--out", "/nowhere/report.json"], 4, "--out: cannot write"),
        (["run", "tame", "--expectations", __file__], 4, "test_suite_run.py"),
        (["run", "tame", "--time-limit", "0"], 4, "--time-limit"),
        (["repro", "A1/atomic-accept@bite", "--backend", "tame"], 4, "did you mean 'A1/atomic-accept"),
        (["show", __file__], 4, "is not JSON"),
        (["list", "--profile", "cor"], 4, "did you mean 'core'?"),
    ],
)
def test_bad_input_is_one_clear_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    for folder in ("comparison", "conformance"):
        monkeypatch.syspath_prepend(Path(__file__).parents[1] / folder / "toys")
    result = CliRunner().invoke(gb, ["conformance", *arguments], prog_name="gb")
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_repro_shows_the_whole_violation_and_writes_a_script_that_does_it_again(
    run_gb: Any, environment: Any, tmp_path: Path
) -> None:
    script = tmp_path / "again.py"
    done = run_gb("conformance", "repro", ONE_CHECK, "--backend", "wild", "--script", script, "--format", "table")
    assert done.returncode == 1
    assert "a refused block changed the grammar" in done.stdout
    text = script.read_text()
    assert text.strip() in done.stdout
    last = re.findall(r"^lab\.state\((g\d+)\)$", text, re.MULTILINE)[-1]
    probe = [sys.executable, "-c", f"{text}\nprint({{'row': set(lab.state({last}).allowed)}})"]
    run = subprocess.run(probe, env=environment(), capture_output=True, text=True, check=True)
    assert f"got        {run.stdout.strip()}\n" in done.stdout


def test_repro_of_what_holds_exits_with_0_and_writes_nothing(run_gb: Any, tmp_path: Path) -> None:
    done = run_gb("conformance", "repro", ONE_CHECK, "--backend", "tame", "--script", tmp_path / "none.py")
    assert done.returncode == 0
    assert json.loads(done.stdout)["outcome"] == "pass"
    assert not (tmp_path / "none.py").exists()
    assert "no calls to write" in done.stderr


def test_every_law_is_listed_with_its_statement(run_gb: Any) -> None:
    done = run_gb("conformance", "list", "--profile", "core")
    laws = {law["id"]: law for law in json.loads(done.stdout)}
    assert laws["A1/atomic-accept"]["rule"] == "A1"
    assert "byte" in laws["A1/atomic-accept"]["vocabularies"]
    assert all(law["profile"] == "core" and law["statement"].endswith(".") for law in laws.values())


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_exit_code_2_and_leaves_what_there_is(
    start_gb: Callable[..., subprocess.Popen[str]], tmp_path: Path, signal_: signal.Signals
) -> None:
    out = tmp_path / "report.json"
    options = ["--only", "A1/atomic-accept@byte:quoted*", "--time-limit", "600", "--jobs", "1", "--out", str(out)]
    process = start_gb("conformance", "run", "wild", *options)
    assert process.stderr is not None
    while "1 of 2 done" not in (line := process.stderr.readline()):
        assert line, "it ended before its first result"
    process.send_signal(signal_)
    process.communicate(timeout=300)
    assert process.returncode == 2
    report = SuiteReport.read(out)
    assert not report.complete
    assert not report.ok


def test_pytest_judges_a_backend_of_somebody_elses(run_module: Any, tmp_path: Path) -> None:
    (tmp_path / "expectations.toml").write_text(
        f'[[expected]]\nid = "{ONE_CHECK}"\nreason = "its rollback is one short"\n'
    )
    done = run_module(
        *("pytest", "--pyargs", "grammar_backends_conformance", "--grammar-backend", "wild"),
        *("--grammar-vocabulary", "byte", "--grammar-expectations", "expectations.toml"),
        *("-k", "atomic-accept and not prefix and not quoted", "-p", "no:cacheprovider", "-rA"),
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stdout
    outcomes = dict(reversed(line.split(" ")[:2]) for line in done.stdout.splitlines() if "test_law[" in line[:60])
    by_id = {test.partition("[")[2]: outcome for test, outcome in outcomes.items()}
    assert by_id["wild-A1/atomic-accept@byte:accents-choice]"] == "PASSED"
    assert by_id["wild-A1/atomic-accept@byte:word-choice]"] == "FAILED"
    assert by_id["wild-A1/atomic-accept@byte:replies-choice]"] == "FAILED"
    assert by_id["wild-A1/atomic-accept@byte:stairs-choice]"] == "XFAIL"
    assert "CRASH wild A1/atomic-accept@byte:word-choice" in done.stdout
    assert "its rollback is one short" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --grammar-backend NAME"),
        (["--grammar-backend", "wildd"], "did you mean 'wild'?"),
        (["--grammar-backend", "tame", "--grammar-profile", "cor"], "did you mean 'core'?"),
    ],
)
def test_pytest_without_a_backend_to_judge_says_so(
    run_module: Any, tmp_path: Path, options: list[str], message: str
) -> None:
    done = run_module("pytest", "--pyargs", "grammar_backends_conformance", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stdout
    assert "Traceback" not in done.stdout
    assert "def pytest_generate_tests" not in done.stdout


def test_a_script_of_somebody_elses_gets_a_verdict_it_can_assert(environment: Any, tmp_path: Path) -> None:
    script = tmp_path / "test_mine.py"
    script.write_text(
        "from grammar_backends import default_host\n"
        "from grammar_backends_conformance import run_suite\n\n\n"
        "def test_conforms():\n"
        f"    report = run_suite(default_host().backend('wild'), only='{ONE_CHECK}')\n"
        "    assert report.ok, str(report)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", str(script)]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAIL wild A1/atomic-accept@byte:stairs-choice" in done.stdout
    assert "1 of 1 checks fail" in done.stdout


def test_importing_the_doors_runs_no_law() -> None:
    code = (
        "import sys; from grammar_backends_conformance.suite import command, pytest_plugin;"
        "print(sorted({'numpy', 'torch', 'grammar_backends_conformance.laws'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
