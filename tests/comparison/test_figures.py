"""What is made of raw results: figures, result files, baselines, tables and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grammar_backends.cli.output import emit
from grammar_backends_conformance.comparison.html import render
from grammar_backends_conformance.comparison.outcome import OUTCOMES, CaseResult, Outcome, TextFailure
from grammar_backends_conformance.comparison.results import (
    ResultsError,
    RunResults,
    compare_with_baseline,
)
from grammar_backends_conformance.comparison.statistics import percentiles, summarise
from grammar_backends_conformance.comparison.tables import figure, run_blocks
from grammar_backends_conformance.running.files import write_text

EVIL = '<script>alert("x")</script>'


def passed(id_: str, first: float, *fills: float) -> CaseResult:
    return CaseResult(id_, "pass", first_mask_ms=first, fills_us=list(fills), accepts_us=[1.0] * len(fills))


def run_of(results: dict[str, list[CaseResult]], digest: str = "d") -> RunResults:
    by_id = {backend: {result.id: result for result in found} for backend, found in results.items()}
    ids = {id_ for found in by_id.values() for id_ in found}
    cases = {id_: {"kind": "choice", "source": "", "tests": 1, "digest": digest} for id_ in sorted(ids)}
    versions = {backend: {"version": "1.0"} for backend in results}
    corpus = {"name": "toys", "cases": len(ids), "problems": []}
    return RunResults(True, {"tokenizer": "byte"}, corpus, versions, {}, cases, by_id)


TWO = {
    "fast": [passed("a", 1.0, 2.0, 4.0), passed("b", 3.0, 6.0), CaseResult("c", "wrong-accept", "1 of 2")],
    "slow": [passed("a", 2.0, 4.0, 8.0), CaseResult("b", "timeout", "over 15 s"), passed("c", 1.0, 1.0)],
}


def test_a_percentile_is_a_measured_value_and_the_mean_stands_beside_it() -> None:
    figures = {"mean": 2.75, "p50": 2.0, "p90": 5.0, "p99": 5.0, "max": 5.0, "count": 4}
    assert percentiles([5.0, 1.0, 3.0, 2.0]) == figures
    assert percentiles([float(value) for value in range(1, 101)])["p99"] == 99.0
    assert percentiles([]) == {"count": 0}


def test_times_are_compared_on_the_cases_that_every_backend_passes() -> None:
    summary = summarise(run_of(TWO).results)
    assert summary.common == ["a"]
    assert summary.times["fill"]["fast"]["count"] == 2
    assert summary.ratios["first_mask"] == {
        "fast": dict.fromkeys(("mean", "p50", "p90", "p99", "max"), 1.0),
        "slow": dict.fromkeys(("mean", "p50", "p90", "p99", "max"), 2.0),
    }
    assert summary.outcomes["slow"] == {**dict.fromkeys(OUTCOMES, 0), "pass": 2, "timeout": 1}
    assert summary.wrong_accepts == {"fast": ["c"], "slow": []}


def test_tables_put_correctness_first_and_name_the_wrong_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    emit("table", {}, run_blocks(run_of(TWO)))
    out = capsys.readouterr().out
    assert out.index("Correctness") < out.index("Time to first mask, ms, on the 1 of 3 cases that every backend passes")
    assert "fast wrongly accepts 1: c" in out
    assert "2.0×" in out


def test_a_backend_that_passes_nothing_is_left_out_of_the_times_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of({**TWO, "none": [CaseResult("a", "unsupported"), CaseResult("b", "error")]})
    assert summarise(run.results).common == ["a"]
    emit("table", {}, run_blocks(run))
    assert "cases that every backend passes (without none: nothing passes)" in capsys.readouterr().out


def test_without_a_common_case_no_times_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    emit("markdown", {}, run_blocks(run_of({"a": [passed("x", 1.0)], "b": [passed("y", 1.0)]})))
    assert "No case passes on every backend" in capsys.readouterr().out


@pytest.mark.parametrize(("value", "text"), [(0.123, "0.12"), (7.04, "7.0"), (99.95, "100.0"), (1234.5, "1234")])
def test_figures_show_the_digits_that_mean_something(value: float, text: str) -> None:
    assert figure(value) == text


def test_results_survive_their_file(tmp_path: Path) -> None:
    failing = CaseResult("c", "wrong-reject", "1 of 2", "/a", "toy", [TextFailure(1, 3, "refused")], 0.5, [1.5], [2.5])
    run = run_of({"toy": [failing, passed("a", 1.0, 2.0)]})
    path = tmp_path / "results.json"
    write_text(path, json.dumps(run.to_dict()))
    assert RunResults.read(path) == run
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("nonsense", "is not JSON"),
        ("[]", "schema version None, this reads 1"),
        ('{"schema_version": 9}', "schema version 9"),
        ('{"schema_version": 1}', "is not a results file"),
    ],
)
def test_a_file_that_holds_no_results_is_refused_with_a_reason(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(content)
    with pytest.raises(ResultsError, match=reason):
        RunResults.read(path)


@pytest.mark.parametrize("now", [outcome for outcome in OUTCOMES if outcome != "pass"])
def test_a_case_that_no_longer_passes_is_a_regression(now: Outcome) -> None:
    old = run_of({"toy": [passed("a", 1.0), CaseResult("b", "error")]})
    comparison = compare_with_baseline(run_of({"toy": [CaseResult("a", now, "why"), passed("b", 1.0)]}), old)
    assert [(r.backend, r.case, r.now, r.detail) for r in comparison.regressions] == [("toy", "a", now, "why")]
    assert (comparison.fixed, comparison.compared) == (1, 2)


def test_only_the_same_backend_and_the_same_content_are_compared() -> None:
    old = run_of({"toy": [passed("a", 1.0)]})
    lost = [CaseResult("a", "error")]
    assert not compare_with_baseline(run_of({"toy": lost}, digest="changed"), old).compared
    assert not compare_with_baseline(run_of({"other": lost}), old).compared


def test_the_page_is_self_contained_and_holds_the_results(elements_of: Any) -> None:
    run = run_of(TWO)
    text = render(run)
    assert not elements_of(text).links
    assert "url(" not in text
    assert "@import" not in text
    start = text.index('id="results">') + len('id="results">')
    embedded = json.loads(text[start : text.index("</script>", start)])
    assert embedded == json.loads(json.dumps(run.to_dict(raw=False)))


def test_text_from_a_corpus_or_an_engine_cannot_become_markup(elements_of: Any) -> None:
    failing = CaseResult(EVIL, "wrong-accept", EVIL, failures=[TextFailure(0, 0, EVIL)])
    run = run_of({"toy": [failing, passed("a", 0.0, 0.0)]})
    text = render(run)
    assert EVIL not in text
    assert elements_of(text).tags.count("script") == 2


@pytest.mark.parametrize("results", [{}, {"toy": []}, {"toy": [passed("a", 0.0)]}])
def test_the_page_can_be_made_of_hardly_anything(results: dict[str, list[CaseResult]]) -> None:
    assert render(run_of(results)).endswith("</html>\n")
