"""Every law over every shipped backend: one test for each law, vocabulary and backend."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from grammar_backends import load_backend
from grammar_backends_conformance.laws import LAWS, Lab, Law
from grammar_backends_conformance.vocabularies import suite_vocabulary

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
VOCABULARIES = ("byte", "adversarial")  # the suite itself takes the real ones, in processes of their own

CHECKS = [
    pytest.param(law, vocabulary, backend, id=f"{law.id}@{vocabulary}-{backend}")
    for backend in BACKENDS
    for vocabulary in VOCABULARIES
    for law in LAWS.values()
    if vocabulary in law.vocabularies and law.rule != "case"  # some cases are beyond some engines
]


@functools.cache
def lab_of(backend: str, vocabulary: str) -> Lab:
    return Lab(load_backend(backend, suite_vocabulary(vocabulary)), vocabulary)


@pytest.mark.parametrize(("law", "vocabulary", "backend"), CHECKS)
def test_law(law: Law, vocabulary: str, backend: str, assert_law: Callable[[Law, Lab], None]) -> None:
    assert_law(law, lab_of(backend, vocabulary))


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_b7_the_engines_that_know_tokens_do_not_refuse_named_ones(backend: str) -> None:
    LAWS["B7/named-tokens"].check(lab_of(backend, "byte"))
