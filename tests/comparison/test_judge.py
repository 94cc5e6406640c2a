"""Judging one case: what counts as accepted, and what each kind of refusal and failure becomes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import PluginHost, Vocabulary, load_backend, load_vocabulary
from grammar_backends_conformance.comparison.judge import judge
from grammar_backends_conformance.comparison.outcome import CaseResult
from grammar_backends_conformance.corpora.reading import Case, CaseText

TOYS = Path(__file__).parent / "toys"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary("byte")


@pytest.fixture(scope="module")
def host() -> Any:
    location = importlib.util.spec_from_file_location("toy_engines", TOYS / "toy_engines.py")
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    sys.modules["toy_engines"] = module
    location.loader.exec_module(module)
    yield PluginHost(autoload=False, plugins={"toys": module})
    del sys.modules["toy_engines"]


@pytest.fixture
def judged(host: PluginHost, vocabulary: Vocabulary) -> Any:
    def run(backend: str, choices: list[str], tests: dict[str, bool]) -> CaseResult:
        case = Case("case", "choice", choices, tuple(CaseText(valid, text) for text, valid in tests.items()))
        return judge(case, load_backend(backend, vocabulary, host=host).compile_grammar, vocabulary)

    return run


def test_a_right_backend_passes_and_its_times_cover_the_tokens_of_valid_texts(judged: Any) -> None:
    result = judged("toy", ["yes", "no", ""], {"yes": True, "no": True, "": True, "ye": False, "nope": False})
    assert (result.outcome, result.detail, result.failures) == ("pass", "", [])
    assert len(result.fills_us) == len(result.accepts_us) == len("yes" + "no")
    assert result.first_mask_ms > 0


def test_an_invalid_text_that_is_accepted_is_a_wrong_accept(judged: Any) -> None:
    result = judged("toy-lenient", ["yes"], {"yes": True, "wrong": False})
    assert result.outcome == "wrong-accept"
    (failure,) = result.failures
    assert (failure.test, failure.position) == (1, 5)
    assert result.detail == "1 of 2 texts judged wrongly"


def test_a_valid_text_that_is_refused_is_a_wrong_reject_with_its_position(judged: Any) -> None:
    result = judged("toy-strict", ["yes", "year"], {"yes": True, "year": True})
    assert result.outcome == "wrong-reject"
    (failure,) = result.failures
    assert (failure.test, failure.position) == (1, 2)
    assert "b'a' is refused" in failure.what


def test_a_wrong_accept_weighs_more_than_a_wrong_reject(judged: Any) -> None:
    assert judged("toy-lenient", ["yes"], {"no": True, "wrong": False}).outcome == "wrong-accept"


def test_a_text_that_ends_too_early_is_refused(judged: Any) -> None:
    result = judged("toy", ["yes"], {"ye": True})
    assert result.failures[0].what == "the end of the text is refused"


def test_a_mask_that_forbids_what_is_accepted_is_a_wrong_reject(judged: Any) -> None:
    result = judged("toy-trouble", ["blind"], {"blind": True})
    assert result.outcome == "wrong-reject"
    assert "the mask forbids" in result.failures[0].what
    assert "though it is accepted" in result.failures[0].what


def test_unsupported_carries_pointer_and_reason(judged: Any) -> None:
    result = judged("toy-trouble", ["refuse"], {"x": False})
    assert (result.outcome, result.pointer) == ("unsupported", "/0")
    assert "does not refuse politely" in result.detail


@pytest.mark.parametrize(("valid", "outcome"), [(True, "unsupported"), (False, "pass")])
def test_refusing_a_malformed_spec_is_right_when_no_text_is_valid(judged: Any, valid: bool, outcome: str) -> None:
    assert judged("toy-trouble", ["malformed"], {"x": valid}).outcome == outcome


def test_a_failure_of_the_engine_is_an_error(judged: Any) -> None:
    result = judged("toy-trouble", ["fail"], {"x": True})
    assert result.outcome == "error"
    assert "the toy broke" in result.detail


def test_a_spec_that_cannot_be_made_is_refused_and_not_a_failure_of_the_run(judged: Any) -> None:
    assert judged("toy", [], {"x": True}).outcome == "unsupported"
