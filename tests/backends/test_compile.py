"""GrammarBackend: what compiles, what is refused and how, options that change the meaning, and the end of an engine."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from grammar_backends.contract import (
    API_VERSION,
    BackendSpec,
    Capabilities,
    CompiledGrammar,
    Grammar,
    GrammarBackend,
    GrammarKind,
    GrammarOptions,
    GrammarSpec,
    Vocabulary,
    unpack_ids,
)
from grammar_backends.contract.backend import unsupported_kind
from grammar_backends.errors import CompileError, GrammarBackendsError, SpecError, UnsupportedFeature

if TYPE_CHECKING:
    from tests.backends.conftest import Lab, Sample

PARSERS = ("xgrammar", "guidance")
COMPACT = GrammarOptions(whitespace="compact")
POINT: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "array", "items": {"type": "boolean"}}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def takes(lab: Lab, spec: GrammarSpec, text: str) -> bool:
    """Whether the text is of the language."""
    return lab.compile(spec).new_grammar().accept_tokens("r", [*lab.encode(text), lab.stop])


def test_b2_an_artifact_is_shared_and_grammars_are_not(lab: Lab, sample: Sample) -> None:
    compiled = lab.compile(sample.spec)
    assert isinstance(compiled, CompiledGrammar)
    assert compiled.spec == sample.spec
    assert compiled.backend is lab.backend
    untouched = lab.state(compiled.new_grammar())
    grammars = [compiled.new_grammar() for _ in sample.texts]
    for grammar, text in zip(grammars, sample.texts, strict=True):
        assert grammar.accept_tokens("r", [*lab.encode(text), lab.stop])
    assert lab.state(compiled.new_grammar()) == untouched


def test_b4_every_declared_kind_and_syntax_has_a_sample(byte_lab: Lab) -> None:
    declared = byte_lab.backend.capabilities
    if "lark" in declared.syntaxes:
        for text, syntax in (('root ::= "a"+', "ebnf"), ('root ::= "a"+', "gbnf"), ('start: "a"+', "lark")):
            assert takes(byte_lab, GrammarSpec.grammar(text, syntax), "aa")  # type: ignore[arg-type]
            assert takes(byte_lab, GrammarSpec.grammar(text), "aa")
    else:
        assert declared.kinds - {GrammarKind.JSON_OBJECT} == {
            GrammarKind.JSON_SCHEMA,
            GrammarKind.REGEX,
            GrammarKind.CHOICE,
        }


def test_b4_json_object_means_objects_unless_told_otherwise(byte_lab: Lab) -> None:
    if GrammarKind.JSON_OBJECT not in byte_lab.backend.capabilities.kinds:
        return
    anything = GrammarSpec.json_object(options=GrammarOptions(json_object_only=False))
    for text, is_object in (('{"a": [1, null]}', True), ("{}", True), ("[1]", False), ('"a"', False), ("1", False)):
        assert takes(byte_lab, GrammarSpec.json_object(), text) == is_object
        assert takes(byte_lab, anything, text)


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


def test_b10_the_form_of_a_structural_tag_is_declared(byte_lab: Lab) -> None:
    legacy = GrammarSpec.structural_tag(
        {"structures": [{"begin": "<f>", "schema": POINT, "end": "</f>"}], "triggers": ["<f>"]}
    )
    newer = GrammarSpec.structural_tag({"format": {"type": "const_string", "value": "hello"}})
    for form, spec, text in (("legacy", legacy, 'so <f>{"x": 1, "y": []}</f>.'), ("format", newer, "hello")):
        if form in byte_lab.backend.capabilities.structural_tags:
            assert unsupported_kind(spec, byte_lab.backend.spec) is None
            assert takes(byte_lab, spec, text)
            assert not takes(byte_lab, spec, text.replace("1", '"').replace("hello", "hallo"))
        else:
            assert isinstance(unsupported_kind(spec, byte_lab.backend.spec), UnsupportedFeature)


@pytest.mark.parametrize("loose", [None, {"whitespace_flexible": True, "lenient": True}])
def test_b5_compact_whitespace_is_an_override(byte_lab: Lab, loose: dict[str, bool] | None) -> None:
    schema = POINT if loose is None else {"x-guidance": loose, **POINT}
    spec = GrammarSpec.json_schema(schema, options=COMPACT)
    assert takes(byte_lab, spec, '{"x":1,"y":[true,false]}')
    for text in (
        '{"x": 1,"y":[true]}',
        '{"x":1, "y":[]}',
        '{ "x":1,"y":[]}',
        '{"x":1,"y":[true, false]}',
        '{"x":1,"y":[]} ',
    ):
        assert not takes(byte_lab, spec, text), text


def test_b5_any_whitespace_is_allowed_between_tokens_by_default(byte_lab: Lab) -> None:
    spec = GrammarSpec.json_schema(POINT)
    for text in ('{"x":1,"y":[]}', '{"x": 1, "y": [true, false]}', '{\n\t"x" : 1 ,\r\n"y":[ true ]\n}'):
        assert takes(byte_lab, spec, text), text


def test_b5_a_schema_cannot_switch_off_its_own_enforcement(byte_lab: Lab) -> None:
    if byte_lab.name != "guidance":  # the key is llguidance's
        return
    schema = {"x-guidance": {"lenient": True}, "type": "array", "uniqueItems": True}
    with pytest.raises(UnsupportedFeature):
        byte_lab.backend.compile_grammar(GrammarSpec.json_schema(schema))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [(r"^\d+$", "12", "\u0661"), (r"^\w$", "a", "\u00e9"), (r"^[^\W_]{2}$", "a1", "\u00e9a"), (r"^(a|b)$", "b", "ab")],
)
def test_c3_patterns_of_schemas_have_the_dialect_of_the_layer(
    byte_lab: Lab, pattern: str, inside: str, outside: str
) -> None:
    if GrammarKind.JSON_SCHEMA not in byte_lab.backend.capabilities.kinds:
        pytest.skip("no schemas on this backend")
    # What only looks like a pattern stays as it is.
    properties = {"pattern": {"type": "string", "pattern": pattern}, "enum": {"enum": [r"\d"]}}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    spec = GrammarSpec.json_schema(schema)
    assert takes(byte_lab, spec, json.dumps({"pattern": inside, "enum": r"\d"}, ensure_ascii=False))
    assert not takes(byte_lab, spec, json.dumps({"pattern": outside, "enum": r"\d"}, ensure_ascii=False))
    assert not takes(byte_lab, spec, json.dumps({"pattern": inside, "enum": "1"}))


def test_b6_rows_cover_the_width_of_the_model(byte_lab: Lab, runs: GrammarSpec) -> None:
    narrow = byte_lab.vocabulary
    for width in (264, 300, 320, 513):
        wide = narrow.with_width(width)
        backend = GrammarBackend(
            byte_lab.backend.spec, type(byte_lab.backend.engine)(wide, {}), wide, lambda spec: None
        )
        grammar = backend.compile_grammar(runs).new_grammar()
        assert grammar.words == (width + 31) // 32
        for text in ("", "ab", "abc"):
            grammar.accept_tokens("r", list(text.encode()))
            row = _row(grammar)
            assert len(row) == grammar.words
            assert set(unpack_ids(row)) == byte_lab.allowed(byte_lab.grammar(runs, text))
            grammar.reset()


def _row(grammar: Grammar) -> Any:
    import numpy as np

    bitmask = np.full((1, grammar.words), -1, dtype=np.int32)
    grammar.fill_bitmask(bitmask, 0)
    return bitmask[0]


def test_b6_a_vocabulary_needs_no_single_bytes(small_lab: Lab) -> None:
    grammar = small_lab.compile(GrammarSpec.regex("(ab)+")).new_grammar()
    assert grammar.accept_tokens("r", [2, 0, 1])
    assert small_lab.allowed(grammar) == {0, 2, 3}


THINK = 259


def test_b7_a29_a_control_token_is_allowed_only_where_a_grammar_names_it(byte_lab: Lab) -> None:
    if "lark" not in byte_lab.backend.capabilities.syntaxes:
        return
    assert byte_lab.vocabulary.special_names[THINK] == "<think>"
    grammar = byte_lab.compile(GrammarSpec.grammar('start: <think> /[^x]*/ "x"', "lark")).new_grammar()
    assert byte_lab.allowed(grammar) == {THINK}
    assert grammar.accept_tokens("r", [THINK])
    allowed = byte_lab.allowed(grammar)
    assert {ord("a"), ord("x"), ord("<")} <= allowed
    assert not allowed & byte_lab.vocabulary.special_ids
    assert not grammar.accept_tokens("r", [THINK])
    grammar.rollback(1)
    assert byte_lab.allowed(grammar) == {THINK}


def test_b7_compiling_with_named_tokens_leaves_other_grammars_alone(byte_lab: Lab, runs: GrammarSpec) -> None:
    if "lark" not in byte_lab.backend.capabilities.syntaxes:
        return
    text = GrammarSpec.regex('[^"]*')
    before = byte_lab.state(byte_lab.backend.compile_grammar(text).new_grammar())
    byte_lab.backend.compile_grammar(GrammarSpec.grammar("start: <think> <pad>", "lark"))
    assert byte_lab.state(byte_lab.backend.compile_grammar(text).new_grammar()) == before


def test_b7_the_text_of_a_control_token_can_be_spelled_in_bytes(byte_lab: Lab) -> None:
    assert takes(byte_lab, GrammarSpec.choice(["<think>"]), "<think>")
    grammar = byte_lab.compile(GrammarSpec.choice(["<think>"])).new_grammar()
    assert byte_lab.allowed(grammar) == {ord("<")}


def test_b8_no_dot_matches_a_mistral_control_token(tekken_lab: Lab) -> None:
    vocabulary = tekken_lab.vocabulary
    names = {name: id_ for id_, name in vocabulary.special_names.items()}
    assert "[TOOL_CALLS]" in names
    specs = [GrammarSpec.regex("(.|\n)*"), GrammarSpec.json_schema({"type": "string"})]
    if "lark" in tekken_lab.backend.capabilities.syntaxes:
        specs.append(GrammarSpec.grammar("start: /(.|\n)*/", "lark"))
    for spec in specs:
        grammar = tekken_lab.grammar(spec, '"' if spec.kind is GrammarKind.JSON_SCHEMA else "")
        assert tekken_lab.allowed(grammar) & vocabulary.special_ids <= vocabulary.stop_set
        assert not grammar.accept_tokens("r", [names["[TOOL_CALLS]"]])


EMPTY_LANGUAGES = [
    ("schema false", GrammarSpec.json_schema(False)),
    ("reference to itself", GrammarSpec.json_schema({"$ref": "#"})),
    ("no branch", GrammarSpec.json_schema({"enum": []})),
    ("left recursion only", GrammarSpec.grammar("root ::= root", "ebnf")),
    ("no way to finish", GrammarSpec.grammar('root ::= "a" root', "ebnf")),
    ("lark without end", GrammarSpec.grammar("start: start", "lark")),
    ("no character", GrammarSpec.regex(r"[^\s\S]")),
    ("no character in the middle", GrammarSpec.regex(r"a[^\s\S]b")),
]


@pytest.mark.parametrize("spec", [spec for _, spec in EMPTY_LANGUAGES], ids=[name for name, _ in EMPTY_LANGUAGES])
def test_b12_a30_a_language_without_texts_is_a_compile_error(byte_lab: Lab, spec: GrammarSpec) -> None:
    if spec.kind not in byte_lab.backend.capabilities.kinds:
        return
    with pytest.raises(SpecError) as caught:
        byte_lab.backend.compile_grammar(spec)
    assert caught.value.backend is not None
    assert byte_lab.name in caught.value.backend


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


def backend_of(outcome: object, judge: Any = lambda spec: None) -> GrammarBackend:
    spec = BackendSpec("stub", "m:f", API_VERSION, Capabilities(kinds=frozenset()))
    return GrammarBackend(spec, Engine(outcome), Vocabulary.from_bytes([b"a", b"$"], [1], [1]), judge)


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
    def judge(spec: GrammarSpec) -> None:
        raise UnsupportedFeature("judged")

    with pytest.raises(UnsupportedFeature, match="judged"):
        backend_of(AssertionError("the engine was asked"), judge).compile_grammar(GrammarSpec.regex("a"))


MALFORMED = [
    GrammarSpec.regex("(a"),
    GrammarSpec.json_schema({"type": "no such type"}),
    GrammarSpec.grammar('root ::= "a', "ebnf"),
    GrammarSpec.grammar("root ::= other", "ebnf"),
    GrammarSpec.grammar("start: other", "lark"),
]


@pytest.mark.parametrize("spec", MALFORMED, ids=lambda spec: spec.text)
def test_b13_a_malformed_spec_is_the_clients_fault_and_leaves_the_backend_usable(
    byte_lab: Lab, spec: GrammarSpec, runs: GrammarSpec
) -> None:
    if spec.kind not in byte_lab.backend.capabilities.kinds:
        return
    for _ in range(2):
        with pytest.raises(SpecError) as caught:
            byte_lab.backend.compile_grammar(spec)
        assert len(str(caught.value)) < 600
    assert takes(byte_lab, runs, "ab")


def test_b13_destroy_is_idempotent_and_later_compiles_are_refused() -> None:
    backend = backend_of(Artifact(None))
    backend.destroy()
    backend.destroy()
    assert backend.engine.closed == 1  # type: ignore[attr-defined]
    with pytest.raises(CompileError, match="destroyed"):
        backend.compile_grammar(GrammarSpec.regex("a"))


def test_b13_grammars_outlive_their_backend(byte_lab: Lab, runs: GrammarSpec) -> None:
    vocabulary = byte_lab.vocabulary
    engine = type(byte_lab.backend.engine)(vocabulary, {})
    backend = GrammarBackend(byte_lab.backend.spec, engine, vocabulary, lambda spec: None)
    grammar = backend.compile_grammar(runs).new_grammar()
    backend.destroy()
    del backend, engine
    assert grammar.accept_tokens("r", [*b"ab", byte_lab.stop])
    assert grammar.is_terminated()


def test_a24_other_threads_run_while_one_compiles(byte_lab: Lab) -> None:
    def spec(attempt: int) -> GrammarSpec:
        names = [f"property {attempt} {i}" for i in range(60)]
        return GrammarSpec.json_schema(
            {
                "type": "object",
                "properties": {name: {"enum": [f"{name} {j}" for j in range(30)]} for name in names},
                "additionalProperties": False,
            }
        )

    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1

    threading.Thread(target=tick, daemon=True).start()
    try:
        # A busy machine may not run the other thread during one short compilation, but it does during one of many.
        for attempt in range(50):
            before = ticks[0]
            byte_lab.backend.compile_grammar(spec(attempt))
            if ticks[0] > before:
                break
        assert ticks[0] > before
    finally:
        done.set()
