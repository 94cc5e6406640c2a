"""What is made of outcomes: totals, files and how they are read, every form of report."""

from __future__ import annotations

import json
import xml.etree.ElementTree as Xml
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grammar_backends.cli.output import markdown
from grammar_backends_conformance.laws.check import Check
from grammar_backends_conformance.laws.law import Counts, Violation
from grammar_backends_conformance.reports import badge, junit, tables
from grammar_backends_conformance.reports import html as page
from grammar_backends_conformance.reports.outcome import FAILING, OUTCOMES, CheckResult, Evidence, Outcome
from grammar_backends_conformance.reports.report import Line, ReportError, SuiteReport
from grammar_backends_conformance.running.files import write_text

EVIL = '<script>alert("x")</script>\x00\x1b[31m|\ud800'
RUNS, WORD = "A1/atomic-accept@byte:runs-regex", "A1/atomic-accept@byte:word-choice"


def line(id_: str, outcome: Outcome, backend: str = "mine", **more: object) -> Line:
    result = CheckResult(id_, outcome, counts=Counts(3, 2, 1), seconds=0.5)
    law, _, rest = id_.partition("@")
    vocabulary, _, subject = rest.partition(":")
    return Line.of(backend, Check(law, vocabulary, subject or None), replace(result, **more))  # type: ignore[arg-type]  # fields by name


def report_of(*lines: Line, **more: object) -> SuiteReport:
    backends = {name: {"version": "1.0"} for name in dict.fromkeys(line.backend for line in lines)}
    whole = SuiteReport({"profile": "core"}, {"time": "now"}, backends, {}, list(lines))
    return replace(whole, **more)  # type: ignore[arg-type]  # fields by name


def evidence() -> Evidence:
    violation = Violation(
        "wrong",
        expected={1},
        got="x" * 5000,
        spec="regex: a",
        tokens=[*range(100)],
        token_bytes=[bytes([id_]) for id_ in range(100)],
        step=7,
        calls=["g.accept_tokens('r', [1])"],
    )
    return Evidence.of(violation)


BAD = line(WORD, "fail", detail="wrong", evidence=evidence())


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_only_what_fails_makes_a_report_fail(outcome: Outcome) -> None:
    assert report_of(line(RUNS, outcome)).ok == (outcome not in FAILING)


@pytest.mark.parametrize(
    "trouble", [{"complete": False}, {"problems": ["x"]}, {"unavailable": {"other": "gone"}}, {"lines": []}]
)
def test_a_report_that_could_not_tell_is_not_ok(trouble: dict[str, object]) -> None:
    assert report_of(line(RUNS, "pass")).ok
    assert not report_of(line(RUNS, "pass"), **trouble).ok


def test_totals_are_by_backend_and_all_together() -> None:
    report = report_of(line(RUNS, "pass"), line(WORD, "fail"), line(RUNS, "pass", "other"))
    assert report.outcomes == {"mine": {"pass": 1, "fail": 1}, "other": {"pass": 1}}
    assert report.counts() == Counts(9, 6, 3)
    assert report.counts("mine") == Counts(6, 4, 2)
    assert report.seconds("mine") == 1.0
    assert "mine, other, profile core: 1 of 3 checks fail; 9 comparisons, 6 states, 3 masks" in report.summary


def test_h6_a_report_says_by_what_masks_were_applied() -> None:
    report = report_of(line(RUNS, "pass"))
    facts = {name: {**facts, "applied_by": ["torch on cpu", "numpy"]} for name, facts in report.backends.items()}
    assert "1 masks, applied by numpy, torch on cpu" in replace(report, backends=facts).summary


def test_a_failing_check_is_told_with_everything_that_helps() -> None:
    told = str(BAD)
    for part in ("FAIL mine", "A1: A block", "wrong", "regex: a", "99 b'c'", "36 more", "{1}", "step       7"):
        assert part in told
    assert "gb conformance repro 'A1/atomic-accept@byte:word-choice' --backend mine" in told
    assert "accept_tokens" not in told
    assert "accept_tokens" in BAD.in_full
    assert len(told) < 6000
    assert str(BAD) in str(report_of(BAD))


def test_a_grammar_of_several_lines_is_told_as_these_lines() -> None:
    two_lines = Evidence.of(Violation("wrong", spec='start: "a"\nx: /\\n/\x1b'))
    told = str(line(RUNS, "fail", evidence=two_lines))
    assert '  grammar    start: "a"\n             x: /\\n/\\x1b\n' in told


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    report = report_of(BAD, line(RUNS, "expected-fail", samples=["a"]), problems=["p"], unavailable={"other": "gone"})
    path = tmp_path / "report.json"
    path.write_text(report.dumps())
    assert SuiteReport.read(path) == report
    assert json.loads(report.dumps()) == json.loads(json.dumps(report.to_dict()))
    assert list(json.loads(report.dumps())) == ["schema_version", "header", "checks", "footer"]


def test_a_file_has_a_line_for_each_check() -> None:
    lines = report_of(BAD, line(RUNS, "pass")).dumps().splitlines()
    assert [json.loads(text.rstrip(","))["id"] for text in lines if text.startswith('{"backend"')] == [WORD, RUNS]


def test_a_file_that_was_cut_off_anywhere_is_recognised() -> None:
    text = report_of(BAD, line(RUNS, "pass")).dumps()
    for end in range(20, len(text.rstrip())):
        with pytest.raises(ReportError, match="cut off"):
            SuiteReport.loads(text[:end])


def test_a_file_that_lost_lines_is_recognised() -> None:
    data = report_of(BAD, line(RUNS, "pass")).to_dict()
    data["checks"].pop()
    with pytest.raises(ReportError, match="has 1 of its 2 checks"):
        SuiteReport.loads(json.dumps(data))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"nonsense", "not JSON"),
        (b"\xff", "utf-8"),
        (b"[]", "schema version None, this reads 1"),
        (b'{"schema_version": 9}', "schema version 9"),
        (b'{"schema_version": 1}', "not a report"),
    ],
)
def test_a_file_that_holds_no_report_is_refused_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=reason):
        SuiteReport.read(path)
    with pytest.raises(ReportError, match="No such file"):
        SuiteReport.read(tmp_path / "none.json")


def test_reports_of_different_backends_are_merged() -> None:
    one, other = report_of(BAD), report_of(line(RUNS, "pass", "other"), complete=False)
    merged = SuiteReport.merged([one, other])
    assert [line.backend for line in merged.lines] == ["mine", "other"]
    assert not merged.complete
    with pytest.raises(ReportError, match="the same backend: mine"):
        SuiteReport.merged([one, one])


NASTY = report_of(line(WORD, "fail", EVIL, detail=EVIL, trace=EVIL), problems=[EVIL], unavailable={EVIL: EVIL})


def test_the_page_is_self_contained_and_no_text_becomes_markup(tmp_path: Path, elements_of: Any) -> None:
    write_text(tmp_path / "page.html", page.render(NASTY))
    text = (tmp_path / "page.html").read_text("utf-8")
    assert not elements_of(text).links
    assert elements_of(text).tags.count("script") == 2
    assert "url(" not in text
    assert "@import" not in text


def test_xml_holds_any_text() -> None:
    suites = Xml.fromstring(junit.render(NASTY).encode())
    assert [suite.get("name", "")[:8] for suite in suites] == ["<script>", "<script>", "expectat"]
    assert Xml.fromstring(badge.render(NASTY))


@pytest.mark.parametrize(
    ("outcome", "element"),
    [
        ("pass", None),
        ("unsupported", None),
        ("expected-fail", "skipped"),
        ("fail", "failure"),
        ("error", "error"),
        ("crash", "error"),
        ("timeout", "error"),
    ],
)
def test_junit_knows_every_outcome(outcome: Outcome, element: str | None) -> None:
    suite = Xml.fromstring(junit.render(report_of(line(RUNS, outcome, detail="why"))))[0]
    found = [child.tag for child in suite[0] if child.tag != "system-out"]
    assert found == ([element] if element else [])


def test_markdown_shows_a_hundred_failures_and_says_how_many_there_are_more() -> None:
    report = report_of(*[BAD] * 103)
    text = markdown(tables.blocks(report, 100))
    assert text.count("FAIL mine") == 100
    assert "3 more checks fail." in text
    assert "more checks" not in markdown(tables.blocks(report))


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (report_of(line(RUNS, "pass")), "core conformant"),
        (report_of(line(RUNS, "pass"), line(WORD, "expected-fail")), "core conformant, 1 known"),
        (report_of(line(RUNS, "pass"), BAD), "core 1 failing"),
        (report_of(line(RUNS, "pass"), problems=["x"]), "core 1 failing"),
        (report_of(line(RUNS, "pass"), complete=False), "core not judged"),
        (report_of(), "core not judged"),
    ],
)
def test_the_badge_says_nothing_better_than_the_report(report: SuiteReport, message: str) -> None:
    assert Xml.fromstring(badge.render(report)).get("aria-label") == f"grammar-backends: {message}"


def test_the_matrix_shows_the_worst_of_each_law_and_orders_rules_by_number() -> None:
    report = report_of(
        line("A10/a-later-rule@byte", "pass"),
        line("A2/ignored-after-stop@byte", "expected-fail"),
        line(RUNS, "crash"),
        line(WORD, "fail"),
    )
    text = page.render(report)
    assert text.index(">A1/") < text.index(">A2/") < text.index(">A10/")
    assert 'color:var(--fail)" title="fail 1, crash 1">2</span>' in text
    assert "≈</span>" in text
