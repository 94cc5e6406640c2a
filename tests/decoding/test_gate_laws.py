"""Every law of the contract over gates: open before the first token, a gate has to be what the grammar in it is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from grammar_backends import StructuredOutputGrammar, Vocabulary, load_backend
from grammar_backends.contract import Grammar, GrammarBackend, GrammarSpec
from grammar_backends.decoding import Gate, MarkerSearch, ReasoningGate, TriggerGate
from grammar_backends.plugins.host import load_attribute
from grammar_backends_conformance.laws import LAWS, Lab, Law
from grammar_backends_conformance.vocabularies import suite_vocabulary


def marker(grammar: StructuredOutputGrammar, vocabulary: Vocabulary) -> int:
    """Any token that does not stop the request."""
    stops = vocabulary.stop_set | getattr(grammar, "stop_set", frozenset())
    return next(id_ for id_ in range(vocabulary.size) if id_ not in stops)


def trigger(grammar: StructuredOutputGrammar, vocabulary: Vocabulary) -> Gate:
    token = marker(grammar, vocabulary)
    return TriggerGate(grammar, MarkerSearch(vocabulary, [token]), prompt=[0, token])


def reasoning(grammar: StructuredOutputGrammar, vocabulary: Vocabulary) -> Gate:
    token = marker(grammar, vocabulary)
    return ReasoningGate(grammar, MarkerSearch(vocabulary, [token]), prompt=[token, 0], budget=3)


def composed(grammar: StructuredOutputGrammar, vocabulary: Vocabulary) -> Gate:
    return reasoning(trigger(grammar, vocabulary), vocabulary)


Wrap = Callable[[StructuredOutputGrammar, Vocabulary], Gate]


class GatedArtifact:
    """A `GrammarMaker` of gates around the grammars of another artifact."""

    def __init__(self, artifact: Any, engine: Any, vocabulary: Vocabulary, wrap: Wrap) -> None:
        self._artifact, self._vocabulary, self._wrap = artifact, vocabulary, wrap
        self._filler = engine if hasattr(engine, "fill_rows") else None

    def new_matcher(self) -> Any:
        return self._artifact.new_matcher()

    def new_grammar(self, stop_token_ids: frozenset[int], max_rollback: int | None) -> StructuredOutputGrammar:
        grammar = Grammar(self._artifact, self._vocabulary, stop_token_ids, max_rollback, self._filler)
        return self._wrap(grammar, self._vocabulary)


class GatedEngine:
    def __init__(self, engine: Any, vocabulary: Vocabulary, wrap: Wrap) -> None:
        self.version = engine.version
        self._engine, self._vocabulary, self._wrap = engine, vocabulary, wrap

    def compile(self, spec: GrammarSpec) -> GatedArtifact:
        return GatedArtifact(self._engine.compile(spec), self._engine, self._vocabulary, self._wrap)


def gated(backend: GrammarBackend, wrap: Wrap) -> GrammarBackend:
    return dataclasses.replace(backend, engine=GatedEngine(backend.engine, backend.vocabulary, wrap))


class GatedLab(Lab):
    """A lab whose other vocabularies have gates, too."""

    def __init__(self, backend: GrammarBackend, name: str, wrap: Wrap) -> None:
        super().__init__(gated(backend, wrap), name)
        self._wrap = wrap

    def _sibling(self, vocabulary: Vocabulary, source: str) -> Lab:
        spec = self.backend.spec
        engine = load_attribute(spec.factory)(vocabulary, {})
        return GatedLab(GrammarBackend(spec, engine, vocabulary, self.backend.judge), self.vocabulary_name, self._wrap)


SETUPS = [
    ("byte", "xgrammar", composed),
    ("adversarial", "outlines", composed),
]


@functools.cache
def lab_of(vocabulary: str, backend: str, wrap: Wrap) -> Lab:
    return GatedLab(load_backend(backend, suite_vocabulary(vocabulary)), vocabulary, wrap)


@pytest.mark.parametrize(
    ("law", "setup"),
    [
        pytest.param(law, setup, id=f"{law.id}@{setup[0]}-{setup[1]}-{setup[2].__name__}")
        for setup in SETUPS
        for law in LAWS.values()
        if setup[0] in law.vocabularies and law.rule != "case"
    ],
)
def test_j7_an_open_gate_obeys_every_law(
    law: Law, setup: tuple[str, str, Wrap], assert_law: Callable[[Law, Lab], None]
) -> None:
    assert_law(law, lab_of(*setup))
