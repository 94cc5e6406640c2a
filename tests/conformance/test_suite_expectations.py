"""Expected failures are strict: what passes, what does not exist and what nobody explained are errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities
from grammar_backends_conformance.reports.outcome import CheckResult, Outcome
from grammar_backends_conformance.reports.report import Line
from grammar_backends_conformance.suite.expectations import (
    UNKNOWN,
    Expectation,
    ExpectationsError,
    apply,
    dumps,
    of_backend,
    own_file,
    read,
    updated,
)
from grammar_backends_conformance.suite.plan import parse_check

RUNS, WORD, REPLIES = (f"A1/atomic-accept@byte:{name}" for name in ("runs-regex", "word-choice", "replies-choice"))


def line(id_: str, outcome: Outcome) -> Line:
    return Line.of("mine", parse_check(id_), CheckResult(id_, outcome))


LINES = [line(RUNS, "pass"), line(WORD, "fail"), line(REPLIES, "crash")]


def judged(*entries: Expectation, whole: bool = True) -> tuple[list[str], list[str]]:
    marked, problems = apply(entries, LINES, "mine", "1.5", whole=whole)
    return [line.result.outcome for line in marked], problems


def test_a_failure_that_is_expected_does_not_count_and_keeps_its_reason() -> None:
    marked, problems = apply([Expectation(WORD, "known")], LINES, "mine", "1.5", whole=True)
    assert [line.result.outcome for line in marked] == ["pass", "expected-fail", "crash"]
    assert (marked[1].reason, marked[1].failed, problems) == ("known", False, [])


def test_a_glob_expects_several() -> None:
    assert judged(Expectation("*:*-choice", "no choices")) == (["pass", "expected-fail", "expected-fail"], [])


def test_a_check_that_passes_though_it_is_expected_to_fail_is_an_error() -> None:
    outcomes, (problem,) = judged(Expectation(RUNS, "known"))
    assert outcomes == ["pass", "fail", "crash"]
    assert problem == f"mine: {RUNS} passes, but is expected to fail (known)"


@pytest.mark.parametrize("whole", [True, False])
def test_an_id_that_does_not_exist_is_an_error_however_little_ran(whole: bool) -> None:
    _, (problem,) = judged(Expectation("A1/atomic@byte:*", "a slip"), whole=whole)
    assert "no check is called 'A1/atomic@byte:*'" in problem


def test_an_id_that_the_backend_has_no_sample_for_is_an_error_of_a_whole_run() -> None:
    other = Expectation("A1/atomic-accept@byte:pairs-ebnf", "grammars are not declared")
    assert "no check matches" in judged(other)[1][0]
    assert judged(other, whole=False)[1] == []


def test_an_id_of_what_did_not_run_is_not_judged() -> None:
    assert judged(Expectation("A1/atomic-accept@adversarial:*", "later"))[1] == []


@pytest.mark.parametrize(
    ("versions", "backend", "concerned"),
    [
        ("", "", True),
        (">=1,<2", "", True),
        (">=2", "", False),
        ("", "mine", True),
        ("", "other", False),
    ],
)
def test_an_entry_concerns_some_versions_and_some_backends_only(versions: str, backend: str, concerned: bool) -> None:
    outcomes, problems = judged(Expectation(WORD, "known", versions=versions, backend=backend))
    assert outcomes[1] == ("expected-fail" if concerned else "fail")
    assert problems == []


def test_a_version_that_is_none_is_in_no_range() -> None:
    assert not Expectation(WORD, "known", versions=">=0").concerns("mine", "nightly")
    assert Expectation(WORD, "known").concerns("mine", "nightly")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("expected = [", "expectations.toml: "),
        ("[[expect]]\n", "something else than"),
        ("[expected]\n", "something else than"),
        (f'[[expected]]\nid = "{WORD}"\n', "entry 1: needs an id and a reason"),
        (f'[[expected]]\nid = "{WORD}"\nreason = ""\n', "entry 1: needs an id and a reason"),
        (f'[[expected]]\nid = "{WORD}"\nreason = "x"\nwhy = "y"\n', "entry 1: unknown why. It may have id, reason"),
        (f'[[expected]]\nid = "{WORD}"\nreason = 1\n', "must be a table of texts"),
        (f'[[expected]]\nid = "{WORD}"\nreason = "x"\nversions = "new"\n', "new"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "expectations.toml"
    path.write_text(content)
    with pytest.raises(ExpectationsError, match=r"expectations\.toml") as caught:
        read(path)
    assert reason in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExpectationsError, match="No such file"):
        read(tmp_path / "none.toml")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    entries = [
        Expectation(WORD, 'a "quoted" reason \\ with é, \x7f and\na line', "https://example.org/1", ">=1", "mine"),
        Expectation("A1/*", "short"),
    ]
    path = tmp_path / "expectations.toml"
    path.write_text(dumps(entries))
    assert read(path) == entries


def test_an_update_keeps_reasons_narrows_globs_drops_what_passes_and_asks_for_reasons() -> None:
    kept = Expectation(WORD, "known", "https://example.org/1")
    passes, elsewhere = Expectation(RUNS, "was known"), Expectation("A1/atomic-accept@adversarial:*", "later")
    gone = Expectation("A0/nothing@byte", "a slip")
    new = updated([kept, passes, elsewhere, gone], LINES, "mine", "1.5", whole=True)
    assert new == [kept, elsewhere, Expectation(REPLIES, UNKNOWN)]
    wide = Expectation("A1/atomic-accept@byte:*", "all of it")
    assert updated([wide], LINES, "mine", "1.5", whole=True) == [
        Expectation(REPLIES, "all of it"),
        Expectation(WORD, "all of it"),
    ]


def test_an_update_leaves_entries_of_other_backends_and_versions_alone() -> None:
    others = [Expectation(WORD, "theirs", backend="other"), Expectation(WORD, "old", versions="<1")]
    assert updated(others, LINES[:1], "mine", "1.5", whole=True) == others
    assert updated(others, LINES, "mine", "1.5", whole=True) == [
        *others,
        Expectation(REPLIES, UNKNOWN, backend="mine"),
        Expectation(WORD, UNKNOWN, backend="mine"),
    ]


def test_a_plugin_keeps_its_own_file_in_its_package() -> None:
    def spec(factory: str) -> BackendSpec:
        return BackendSpec("mine", factory, API_VERSION, Capabilities(frozenset()))

    packaged = own_file(spec("grammar_backends_conformance.plugin:anything"))
    assert packaged is not None
    assert packaged.parent.name == "grammar_backends_conformance"
    assert own_file(spec("json:anything")) is not None
    assert own_file(spec("no_such_package:anything")) is None
    assert own_file(spec("this:anything")) is None  # a module beside others has no folder of its own
    assert of_backend(spec("this:anything"), None) == []


def test_the_gate_is_strict(run_gb: Any, tmp_path: Path) -> None:
    """One run with an expectation that holds and one that does not; then the file is put right."""
    file = tmp_path / "expectations.toml"
    file.write_text(
        '[[expected]]\nid = "A1/atomic-accept@byte:stairs-choice"\nreason = "one short"\nlink = "https://example.org/1"\n'
        '[[expected]]\nid = "A1/atomic-accept@byte:accents-choice"\nreason = "a lie"\n'
    )
    selection = ["wild", "--only", "*accept@byte:[as]*-choice", "--only", "A1/*@byte:word*", "--expectations", file]
    selection += ["--jobs", "2"]
    strict = run_gb("conformance", "run", *selection)
    report = json.loads(strict.stdout)
    assert strict.returncode == 1
    by_id = {check["id"]: check for check in report["checks"]}
    assert by_id["A1/atomic-accept@byte:stairs-choice"]["outcome"] == "expected-fail"
    assert by_id["A1/atomic-accept@byte:stairs-choice"]["reason"] == "one short"
    assert report["footer"]["problems"] == [
        "wild: A1/atomic-accept@byte:accents-choice passes, but is expected to fail (a lie)"
    ]
    assert run_gb("conformance", "update-expectations", *selection).returncode == 0
    entries = {entry.id: entry for entry in read(file)}
    assert "A1/atomic-accept@byte:accents-choice" not in entries
    assert entries["A1/atomic-accept@byte:stairs-choice"].link == "https://example.org/1"
    assert entries["A1/atomic-accept@byte:word-choice"].reason == UNKNOWN
    assert run_gb("conformance", "run", *selection).returncode == 0
