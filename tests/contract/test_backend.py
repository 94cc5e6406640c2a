"""GrammarBackend over engines made for one test: order of the checks, errors and whose fault they are, the end."""

from __future__ import annotations

from typing import Any

import pytest

from grammar_backends.contract import (
    API_VERSION,
    BackendSpec,
    Capabilities,
    GrammarBackend,
    GrammarKind,
    GrammarOptions,
    GrammarSpec,
    Vocabulary,
)
from grammar_backends.contract.backend import unsupported_kind
from grammar_backends.errors import CompileError, GrammarBackendsError, SpecError, UnsupportedFeature

COMPACT = GrammarOptions(whitespace="compact")


class Artifact:
    """Makes matchers whose first row fails or is empty."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def new_matcher(self) -> Any:
        return self

    def fill_row(self, row: Any) -> None:
        if self.error is not None:
            raise self.error
        row.array.fill(0)

    def is_accepting(self) -> bool:
        return False


class Engine:
    """An `Engine` that compiles everything to one artifact, or raises."""

    version = "7"

    def __init__(self, outcome: object) -> None:
        self.outcome = outcome
        self.closed = 0

    def compile(self, spec: GrammarSpec) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def close(self) -> None:
        self.closed += 1


def backend_of(outcome: object, judge: Any = lambda spec: spec) -> GrammarBackend:
    spec = BackendSpec("stub", "m:f", API_VERSION, Capabilities(kinds=frozenset()))
    return GrammarBackend(spec, Engine(outcome), Vocabulary.from_bytes([b"a", b"$"], [1], [1]), judge)


def test_b4_what_is_not_declared_is_unsupported_before_any_engine_sees_it() -> None:
    tag = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f>"]}
    closed = GrammarOptions(additional_properties="closed")
    specs = {
        "json_schema": GrammarSpec.json_schema({}),
        "json_object": GrammarSpec.json_object(),
        "regex": GrammarSpec.regex("a"),
        "choice": GrammarSpec.choice(["a"]),
        "grammar": GrammarSpec.grammar('root ::= "a"'),
        "structural_tag": GrammarSpec.structural_tag(tag),
    }
    for kind, spec in specs.items():
        nothing = BackendSpec("none", "m:f", API_VERSION, Capabilities(kinds=frozenset()))
        refusal = unsupported_kind(spec, nothing)
        assert isinstance(refusal, UnsupportedFeature)
        assert refusal.keyword == kind
        only = BackendSpec(
            "one", "m:f", API_VERSION, Capabilities(frozenset({spec.kind}), structural_tags=frozenset({"legacy"}))
        )
        assert unsupported_kind(spec, only) is None
        assert [name for name, other in specs.items() if unsupported_kind(other, only) is None] == [kind]
    schemas = BackendSpec("json", "m:f", API_VERSION, Capabilities(frozenset({GrammarKind.JSON_SCHEMA})))
    for options, keyword in ((COMPACT, "whitespace"), (closed, "additional_properties")):
        refusal = unsupported_kind(GrammarSpec.json_schema({}, options=options), schemas)
        assert refusal is not None
        assert refusal.keyword == keyword


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (Artifact(None), SpecError, "no text of this vocabulary satisfies it"),
        (Artifact(OSError("gone")), CompileError, "gone"),
        (OSError("gone"), CompileError, "stub 7 failed on regex .*OSError: gone"),
        (SpecError("not so"), SpecError, "not so; stub 7"),
        (UnsupportedFeature("not here"), UnsupportedFeature, "not here; stub 7"),
        (CompileError("crashed", backend="stub"), CompileError, "crashed"),
    ],
)
def test_b12_errors_say_whose_fault_it_is_and_name_the_backend(
    outcome: object, error: type[GrammarBackendsError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        backend_of(outcome).compile_grammar(GrammarSpec.regex("a"))
    assert type(caught.value) is error
    assert "stub" in str(caught.value) or words == "crashed"


def test_b4_the_judge_comes_before_the_engine() -> None:
    def judge(spec: GrammarSpec) -> GrammarSpec:
        raise UnsupportedFeature("judged")

    with pytest.raises(UnsupportedFeature, match="judged"):
        backend_of(AssertionError("the engine was asked"), judge).compile_grammar(GrammarSpec.regex("a"))


def test_b13_destroy_is_idempotent_and_later_compiles_are_refused() -> None:
    backend = backend_of(Artifact(None))
    backend.destroy()
    backend.destroy()
    assert backend.engine.closed == 1  # type: ignore[attr-defined]
    with pytest.raises(CompileError, match="destroyed"):
        backend.compile_grammar(GrammarSpec.regex("a"))
