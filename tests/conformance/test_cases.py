"""Every case is what an oracle says it is, never what an engine says; and there are enough, of every kind."""

from __future__ import annotations

import collections
import importlib.resources
import json
import re
from typing import Any

import pytest

from grammar_backends_conformance.corpora.reading import KINDS, case_spec, parse_case, read_suite
from grammar_backends_conformance.oracles import text_valid

FILES = sorted(
    (
        file
        for file in (importlib.resources.files("grammar_backends_conformance") / "cases").iterdir()
        if file.name.endswith(".jsonl")
    ),
    key=lambda file: file.name,
)
LINES: list[dict[str, Any]] = [json.loads(line) for file in FILES for line in file.read_bytes().split(b"\n") if line]
FULL = read_suite("full")


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_every_text_of_a_case_is_what_its_oracle_says(line: dict[str, Any]) -> None:
    case = parse_case(line)
    spec = case_spec(case)
    verdicts = {test.text: text_valid(spec, test.text) for test in case.tests}
    if None in verdicts.values():
        assert line.get("note"), "no oracle covers it, so that it must say why its verdicts are right"
    else:
        assert verdicts == {test.text: test.valid for test in case.tests}


def test_few_cases_are_beyond_the_oracles() -> None:
    beyond = collections.Counter(
        case.kind for case in FULL.cases if any(text_valid(case_spec(case), test.text) is None for test in case.tests)
    )
    assert beyond.pop("structural_tag") == sum(case.kind == "structural_tag" for case in FULL.cases)
    assert beyond == {"json_schema": 2, "regex": 6, "grammar": 4}


def test_the_full_suite_is_every_file_and_the_smoke_suite_one_of_them() -> None:
    assert not FULL.problems
    assert not FULL.notices
    assert [case.id for case in FULL.cases] == [line["id"] for line in LINES]
    smoke = [case.id for case in read_suite("smoke").cases]
    assert len(smoke) == 113
    assert set(smoke) < {case.id for case in FULL.cases}


def test_ids_are_unique_and_readable() -> None:
    ids = [case.id for case in FULL.cases]
    assert len(set(ids)) == len(ids) >= 450
    assert not [id_ for id_ in ids if not re.fullmatch(r"[a-z0-9_-]+(/[a-z0-9_-]+)+", id_)]


def test_no_case_is_there_twice() -> None:
    assert len({case.digest for case in FULL.cases}) == len(FULL.cases)


def test_every_kind_and_syntax_has_texts_of_both_verdicts() -> None:
    counts = collections.Counter(
        (case.kind, case.options.get("syntax"), test.valid) for case in FULL.cases for test in case.tests
    )
    assert {kind for kind, _, _ in counts} == set(KINDS)
    assert {syntax for _, syntax, _ in counts} >= {"ebnf", "lark", "gbnf"}
    assert all(counts[kind, syntax, not verdict] for kind, syntax, verdict in counts)
    assert min(counts.values()) >= 8
