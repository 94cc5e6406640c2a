"""``gb compare`` as a user runs it: isolation of what misbehaves, exit codes, files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the worker pool needs POSIX pipes and signals")

TROUBLES = ["hang", "abort", "quit", "eat", "exhaust", "fail", "refuse", "talk"]


def write_corpus(path: Path, first_texts: list[str]) -> Path:
    lines = [
        {"id": text, "kind": "choice", "spec": [text, "x"], "tests": [{"valid": True, "text": text}]}
        for text in first_texts
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((path / "results.json").read_text())
    return data


@pytest.fixture(scope="module")
def troubled(run_gb: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of everything that can go wrong, each trouble followed by a case that must not suffer."""
    folder = tmp_path_factory.mktemp("troubled")
    texts = [text for trouble in TROUBLES for text in (trouble, f"after {trouble}")]
    corpus = write_corpus(folder / "corpus.jsonl", texts)
    options = ["--time-limit", "2", "--memory-limit", "300", "--jobs", "2", "--out", folder / "out"]
    done = run_gb("compare", "--backends", "toy-trouble,toy", "--tokenizer", "byte", "--corpus", corpus, *options)
    assert done.returncode == 0, done.stderr
    return {"printed": json.loads(done.stdout), "stderr": done.stderr, "folder": folder / "out", **read(folder / "out")}


@pytest.mark.parametrize(
    ("trouble", "outcome", "detail"),
    [
        ("hang", "timeout", "not done after 2 s"),
        ("abort", "crash", "SIGABRT: toy engine: about to abort"),
        ("quit", "crash", "exit status 3"),
        ("eat", "crash", "out of memory: grew beyond 300 MB"),
        ("exhaust", "crash", "out of memory (MemoryError)"),
        ("fail", "error", "the toy broke"),
        ("refuse", "unsupported", "does not refuse politely"),
        ("talk", "pass", ""),
    ],
)
def test_a_trouble_costs_its_own_case_only(troubled: dict[str, Any], trouble: str, outcome: str, detail: str) -> None:
    results = troubled["results"]["toy-trouble"]
    assert results[trouble]["outcome"] == outcome
    assert detail in results[trouble].get("detail", "")
    assert results[f"after {trouble}"]["outcome"] == "pass"


def test_other_backends_do_not_notice(troubled: dict[str, Any]) -> None:
    assert {result["outcome"] for result in troubled["results"]["toy"].values()} == {"pass"}
    assert list(troubled["results"]["toy"]) == list(troubled["cases"])


def test_the_environment_says_what_the_times_depend_on(troubled: dict[str, Any]) -> None:
    environment = troubled["environment"]
    assert environment["vocabulary"]["name"] == "byte"
    assert environment["packages"]["toy-engines"] == "1.0"
    assert environment["memory_limit_mb"] == 300
    assert environment["cores"] >= 1
    assert troubled["backends"] == {"toy-trouble": {"version": "1.0"}, "toy": {"version": "1.0"}}
    assert (troubled["schema_version"], troubled["complete"]) == (1, True)


def test_the_page_and_the_printed_results_agree_with_the_file(troubled: dict[str, Any]) -> None:
    assert troubled["printed"]["summary"] == troubled["summary"]
    page = (troubled["folder"] / "report.html").read_text()
    assert "out of memory: grew beyond 300 MB" in page
    assert "16 of 16 done" not in troubled["stderr"]
    assert "32 of 32 done" in troubled["stderr"]


def test_a_corrupt_line_is_reported_the_others_run_and_the_exit_code_is_1(run_gb: Any, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", ["yes", "no"])
    corpus.write_text("{broken\n" + corpus.read_text())
    done = run_gb("compare", "--backends", "toy", "--tokenizer", "byte", "--corpus", corpus, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"{corpus}:1: not JSON" in done.stderr
    results = read(tmp_path / "out")
    assert set(results["results"]["toy"]) == {"yes", "no"}
    assert len(results["corpus"]["problems"]) == 1


def test_a_regression_against_the_baseline_is_exit_code_1(run_gb: Any, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", ["yes", "fail"])
    common = [
        "compare",
        "--backends",
        "toy-trouble",
        "--tokenizer",
        "byte",
        "--corpus",
        corpus,
        "--out",
        tmp_path / "out",
    ]
    assert run_gb(*common).returncode == 0
    old = read(tmp_path / "out")
    same = run_gb(*common, "--baseline", tmp_path / "out" / "results.json")
    assert same.returncode == 0
    assert json.loads(same.stdout)["baseline"] == {"regressions": [], "fixed": 0, "compared": 2}
    old["results"]["toy-trouble"]["fail"]["outcome"] = "pass"
    (tmp_path / "old.json").write_text(json.dumps(old))
    worse = run_gb(*common, "--baseline", tmp_path / "old.json", "--format", "markdown")
    assert worse.returncode == 1
    assert "1 regressions" in worse.stdout
    assert "| toy-trouble | fail | error |" in worse.stdout


@pytest.mark.parametrize(
    ("name", "reason"),
    [("toy-cannot-start", "the toy will not start"), ("toy-dies-at-start", "its process ended with SIGABRT")],
)
def test_a_named_backend_that_cannot_start_is_exit_code_6_and_the_others_run(
    run_gb: Any, tmp_path: Path, name: str, reason: str
) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", ["yes"])
    backends = f"{name},toy"
    done = run_gb("compare", "--backends", backends, "--tokenizer", "byte", "--corpus", corpus, "--out", tmp_path)
    assert done.returncode == 6
    assert reason in done.stderr
    results = read(tmp_path)
    assert reason in results["unavailable"][name]
    assert results["results"]["toy"]["yes"]["outcome"] == "pass"
    assert name not in results["results"]


def test_a_built_in_suite_runs_with_a_limit(run_gb: Any, tmp_path: Path) -> None:
    done = run_gb("compare", "--backends", "toy", "--tokenizer", "byte", "--limit", "2", "--out", tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["summary"]["outcomes"]["toy"]["unsupported"] == 2


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--backends", "toyy"], 6, "did you mean 'toy'?"),
        (["--backends", "toy-old"], 6, "incompatible"),
        (["--backends", ","], 4, "--backends names none."),
        (["--tokenizer", "tekkem"], 4, "did you mean 'tekken'?"),
        (["--corpus", "missing.jsonl"], 4, "missing.jsonl"),
        (["--baseline", __file__], 4, "is not JSON"),
        (["--suite", "smoke", "--corpus", __file__], 4, "not both"),
        (["--out", __file__], 4, "--out"),
        (["--jobs", "0"], 4, "--jobs"),
        (["--time-limit", "0"], 4, "--time-limit"),
    ],
)
def test_bad_input_is_one_clear_line_and_its_exit_code(
    run_gb: Any, tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    done = run_gb("compare", "--backends", "toy", "--tokenizer", "byte", "--out", tmp_path / "out", *options)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_corpus_without_a_case_is_exit_code_5(run_gb: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    done = run_gb("compare", "--backends", "toy", "--corpus", tmp_path / "empty.jsonl", "--out", tmp_path / "out")
    assert done.returncode == 5
    assert "no case" in done.stderr


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_kills_the_workers_and_writes_what_there_is(
    start_gb: Callable[..., subprocess.Popen[str]], tmp_path: Path, signal_: signal.Signals
) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", ["yes", "hang", "never"])
    pid_file = tmp_path / "pid"
    options = ["--time-limit", "600", "--jobs", "1", "--out", str(tmp_path / "out")]
    arguments = ["compare", "--backends", "toy-trouble", "--tokenizer", "byte", "--corpus", str(corpus), *options]
    process = start_gb(*arguments, TOY_PID_FILE=str(pid_file))
    assert process.stderr is not None
    while "1 of 3 done" not in (line := process.stderr.readline()):
        assert line, "it ended before its first result"
    process.send_signal(signal_)
    stderr = process.communicate(timeout=300)[1]
    assert process.returncode == 2
    assert "the results so far were written" in stderr
    results = read(tmp_path / "out")
    assert results["complete"] is False
    assert results["results"]["toy-trouble"]["yes"]["outcome"] == "pass"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
