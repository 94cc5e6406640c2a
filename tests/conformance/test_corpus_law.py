"""The laws made of data cases: right data passes, and each kind of wrong answer is found."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from grammar_backends import GrammarSpec, load_backend
from grammar_backends_conformance.corpora.reading import Case, CaseText, read_suite
from grammar_backends_conformance.laws import LAWS, Lab, Unsupported, Violation
from grammar_backends_conformance.laws.corpus import SUITES, check_case
from grammar_backends_conformance.vocabularies import suite_vocabulary


@functools.cache
def lab_of(backend: str, vocabulary: str = "byte") -> Lab:
    return Lab(load_backend(backend, suite_vocabulary(vocabulary)), vocabulary)


def case_of(kind: str, spec: Any, *tests: tuple[bool, str]) -> Case:
    return Case("x", kind, spec, tuple(CaseText(valid, text) for valid, text in tests))


def test_every_case_of_the_suite_is_a_law_of_its_own() -> None:
    cases = [case.id for suites in SUITES.values() for suite in suites for case in read_suite(suite).cases]
    assert [f"case/{id_}" for id_ in cases] == [law.id for law in LAWS.values() if law.rule == "case"]
    assert len(cases) > 300


@pytest.mark.parametrize("vocabulary", ["byte", "adversarial"])
@pytest.mark.parametrize("suite", ["choice", "gbnf"])
def test_right_data_passes(suite: str, vocabulary: str) -> None:
    for case in read_suite(suite).cases:
        check_case(lab_of("xgrammar", vocabulary), case)


@pytest.mark.parametrize("suite", ["choice", "regex"])
def test_a_case_with_its_verdicts_exchanged_is_a_violation(suite: str) -> None:
    for case in read_suite(suite).cases[:10]:
        exchanged = tuple(CaseText(not test.valid, test.text) for test in case.tests)
        with pytest.raises(Violation):
            check_case(lab_of("outlines"), dataclasses.replace(case, tests=exchanged))


def test_a_violation_tells_the_text_and_how_to_repeat_it() -> None:
    with pytest.raises(Violation, match="masked in a valid text") as caught:
        check_case(lab_of("xgrammar"), case_of("regex", "ab", (True, "ax")))
    assert caught.value.token_bytes == [b"a"]
    assert caught.value.spec.endswith(": ab")
    script = "\n".join(caught.value.calls)
    made: dict[str, Any] = {}
    exec(script, made)  # the reproduction runs, up to where it went wrong
    assert made["g0"].num_accepted == 1


def test_what_a_backend_refuses_is_unsupported_and_malformed_specs_are_not() -> None:
    with pytest.raises(Unsupported):
        check_case(lab_of("outlines"), case_of("json_object", None, (True, "{}")))
    check_case(lab_of("outlines"), case_of("regex", "(a", (False, "a")))
    with pytest.raises(Violation, match="does not compile") as caught:
        check_case(lab_of("outlines"), case_of("regex", "(a", (True, "a")))
    assert caught.value.spec.endswith(": (a")


def test_a_violation_names_the_tokens_that_were_offered_though_the_grammar_was_looked_at_since() -> None:
    lab = lab_of("outlines")
    lab.begin()
    grammar = lab.grammar(GrammarSpec.regex("ab"), "a")
    grammar.accept_tokens("r", lab.encode("x"))
    lab.state(grammar)
    assert lab.violation("made up").token_bytes == [b"a", b"x"]
    grammar.rollback(1)
    assert lab.violation("made up").token_bytes == []
