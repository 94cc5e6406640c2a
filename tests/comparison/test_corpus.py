"""Reading corpora: what a case is, and that a corrupt line costs one case and is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grammar_backends_conformance.comparison.corpus import case_spec, read_corpus, read_lines, read_suite

LINE = {"id": "a", "kind": "choice", "spec": ["x"], "tests": [{"valid": True, "text": "x"}]}


def line(**changes: Any) -> bytes:
    return json.dumps({**LINE, **changes}).encode()


def test_data_is_serialised_without_escaping_and_text_is_kept() -> None:
    tests = [{"valid": True, "data": {"é": [1, "日"]}}, {"valid": False, "text": '"\\u00e9"'}]
    (case,) = read_lines("c", [line(kind="json_schema", spec={}, tests=tests)]).cases
    assert [test.text for test in case.tests] == ['{"é": [1, "日"]}', '"\\u00e9"']
    assert [test.valid for test in case.tests] == [True, False]


def test_unknown_fields_of_a_line_are_ignored() -> None:
    corpus = read_lines(
        "c", [line(note="n", tests=[{"valid": True, "data": 1, "description": "d", "rust_error": None}])]
    )
    assert not corpus.problems


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{oops", "not JSON"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[1]", "not an object"),
        (line(id=""), '"id"'),
        (line(id=3), '"id"'),
        (line(kind="xml"), '"kind" must be one of'),
        (b'{"id": "a", "kind": "regex", "tests": []}', '"spec" is missing'),
        (line(options={"colour": "red"}), '"options"'),
        (line(tests=[]), '"tests"'),
        (line(tests=[{"text": "x"}]), 'test 0 must be an object with a boolean "valid"'),
        (line(tests=[{"valid": True}]), 'either "data" or "text"'),
        (line(tests=[{"valid": True, "text": "x", "data": 1}]), 'either "data" or "text"'),
        (line(tests=[{"valid": True, "text": 1}]), '"text" must be a text'),
        (line(tests=[{"valid": True, "data": "\ud800"}]), "lone surrogate"),
        (b"[" * 200_000, "nested too deep"),
    ],
)
def test_a_corrupt_line_is_reported_with_its_number_and_the_others_are_read(bad: bytes, reason: str) -> None:
    corpus = read_lines("c.jsonl", [line(id="first"), b"", bad, line(id="last")])
    assert [case.id for case in corpus.cases] == ["first", "last"]
    (problem,) = corpus.problems
    assert problem.startswith("c.jsonl:3: ")
    assert reason in problem


def test_a_taken_id_gets_a_suffix_and_a_notice() -> None:
    corpus = read_lines("c", [line(), line(), line(id="a#2"), line()])
    assert [case.id for case in corpus.cases] == ["a", "a#2", "a#2#2", "a#3"]
    assert not corpus.problems
    assert corpus.notices[0] == "c:2: the id 'a' is taken, this case runs as 'a#2'"


def test_the_digest_follows_the_content_and_not_the_id() -> None:
    same, other, changed = read_lines("c", [line(), line(id="b"), line(id="c", spec=["y"])]).cases
    assert same.digest == other.digest != changed.digest


def test_options_reach_the_spec(tmp_path: Path) -> None:
    options = {"syntax": "lark"}
    lines = [
        line(kind="grammar", spec='start: "x"', options=options),
        line(id="b", kind="json_object", options={"whitespace": "compact", "json_object_only": False}),
        line(id="c", kind="json_schema", spec={}, options={"additional_properties": "closed"}),
    ]
    (tmp_path / "c.jsonl").write_bytes(b"\n".join(lines))
    grammar, json_object, schema = map(case_spec, read_corpus(tmp_path / "c.jsonl").cases)
    assert grammar.syntax == "lark"
    assert (json_object.options.whitespace, json_object.options.json_object_only) == ("compact", False)
    assert schema.options.additional_properties == "closed"


def test_every_case_of_the_smoke_suite_can_be_read() -> None:
    corpus = read_suite("smoke")
    assert len(corpus.cases) > 100
    assert not corpus.problems
    assert not corpus.notices
    assert all(case_spec(case).kind.value == case.kind for case in corpus.cases)
