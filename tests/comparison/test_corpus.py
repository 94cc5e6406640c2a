"""Reading corpora: what a case is, and that a corrupt line costs one case and is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grammar_backends_conformance.comparison.command import compare
from grammar_backends_conformance.corpora.reading import SUITES, case_spec, read_corpus, read_lines, read_suite

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


MASKBENCH = {"schema": {"type": "null"}, "tests": [{"description": "d", "valid": True, "data": None}], "meta": {}}
GROUPS = [
    {
        "description": "integers",
        "schema": {"type": "integer"},
        "tests": [{"description": "d", "data": 1, "valid": True}],
    },
    {"description": "nothing", "schema": False, "tests": [{"description": "d", "data": "é", "valid": False}]},
]


def test_a_folder_is_read_whole_with_names_of_the_files_in_the_ids(tmp_path: Path) -> None:
    files = {
        "b/ours.jsonl": line(id="own"),
        "a/Github_1.json": json.dumps(MASKBENCH).encode(),
        "tests/draft7/type.json": json.dumps(GROUPS).encode(),
        "README.md": b"no corpus",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    corpus = read_corpus(tmp_path)
    assert not corpus.problems
    assert [case.id for case in corpus.cases] == [
        "a/Github_1",
        "own",
        "tests/draft7/type#0 integers",
        "tests/draft7/type#1 nothing",
    ]
    assert [test.text for case in corpus.cases for test in case.tests] == ["null", "x", "1", '"é"']


def test_a_test_suite_of_an_older_draft_keeps_its_meaning(tmp_path: Path) -> None:
    (tmp_path / "draft4").mkdir()
    (tmp_path / "draft4" / "a.json").write_text(json.dumps(GROUPS))
    case, boolean = read_corpus(tmp_path).cases
    assert case.spec == {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}
    assert boolean.spec is False


def test_lines_and_single_files_of_maskbench_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(f"{json.dumps(MASKBENCH)}\n{json.dumps({**MASKBENCH, 'id': 'named'})}\n")
    (tmp_path / "one.json").write_text(json.dumps(MASKBENCH))
    lines, single = read_corpus(tmp_path / "m.jsonl"), read_corpus(tmp_path / "one.json")
    assert [case.id for case in lines.cases] == [f"{tmp_path / 'm.jsonl'}:1", "named"]
    assert [(case.id, case.kind, case.spec) for case in single.cases] == [("one", "json_schema", {"type": "null"})]


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (line(kind="law", tests=[], steps=["compile", "fork"]), "words or steps instead of texts"),
        (line(tests=[], expected="refuse"), "words or steps instead of texts"),
        (line(spec={"$generate": "'a' * 10**6"}), "its spec is described, not given"),
    ],
)
def test_what_is_no_case_for_a_run_is_left_out_with_a_notice(left_out: bytes, reason: str) -> None:
    corpus = read_lines("c", [left_out, line()])
    assert [case.id for case in corpus.cases] == ["a"]
    assert not corpus.problems
    assert corpus.notices == (f"c:1: left out: {reason}",)


def test_a_document_that_is_no_corpus_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "broken.json").write_text("{")
    corpus = read_corpus(tmp_path)
    assert not corpus.cases
    assert [problem.partition(":")[0] for problem in corpus.problems] == ["broken.json#0", "package.json#0"]


SHARED = Path(__file__).parents[3] / "shared"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpora are not beside this checkout")
@pytest.mark.parametrize("folder", ["cases", "corpora"])
def test_the_shared_corpora_are_read_without_a_problem(folder: str) -> None:
    corpus = read_corpus(SHARED / folder)
    assert len(corpus.cases) > 100
    assert not corpus.problems


def test_the_command_offers_the_suites_there_are() -> None:
    (option,) = (parameter for parameter in compare.params if parameter.name == "suite")
    assert tuple(option.type.choices) == SUITES


def test_every_case_of_the_smoke_suite_can_be_read() -> None:
    corpus = read_suite("smoke")
    assert len(corpus.cases) > 100
    assert not corpus.problems
    assert not corpus.notices
    assert all(case_spec(case).kind.value == case.kind for case in corpus.cases)
