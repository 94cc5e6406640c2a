"""An engine may bring grammars of its own: a `GrammarMaker` artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grammar_backends.contract import (
    API_VERSION,
    BackendSpec,
    Capabilities,
    Grammar,
    GrammarBackend,
    GrammarKind,
    GrammarMaker,
    GrammarSpec,
    StructuredOutputGrammar,
    Vocabulary,
    pack_ids,
)
from grammar_backends.decoding import fill_bitmasks


class Words:
    """An artifact whose matchers allow the one text token, and that makes its grammars itself."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.asked: list[tuple[frozenset[int], int | None]] = []

    def new_matcher(self) -> Any:
        return self

    def fill_row(self, row: Any) -> None:
        row.array[:] = pack_ids([0], self.vocabulary.width)

    def is_accepting(self) -> bool:
        return False

    def new_grammar(self, stop_token_ids: frozenset[int], max_rollback: int | None) -> StructuredOutputGrammar:
        self.asked.append((stop_token_ids, max_rollback))
        return Grammar(self, self.vocabulary, stop_token_ids, max_rollback)


class Engine:
    version = "1"

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self.artifact = Words(vocabulary)

    def compile(self, spec: GrammarSpec) -> Words:
        return self.artifact


def test_an_artifact_may_make_its_grammars_itself() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"$"], [1], [1])
    engine = Engine(vocabulary, {})
    spec = BackendSpec("own", "m:f", API_VERSION, Capabilities(kinds=frozenset({GrammarKind.CHOICE})))
    backend = GrammarBackend(spec, engine, vocabulary, lambda spec: spec)
    compiled = backend.compile_grammar(GrammarSpec.choice(["a"]))
    grammar = compiled.new_grammar(stop_token_ids=[1], max_rollback=3)
    assert isinstance(engine.artifact, GrammarMaker)
    assert isinstance(grammar, StructuredOutputGrammar)
    assert engine.artifact.asked[-1] == (frozenset({1}), 3)
    bitmask = np.full((1, 1), -1, dtype=np.int32)
    assert fill_bitmasks([grammar], bitmask) == [None]
    assert bitmask.tolist() == [[1]]
