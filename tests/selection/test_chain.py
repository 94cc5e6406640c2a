"""The automatic choice, on the real backends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import GrammarOptions, GrammarSpec, PluginHost, Vocabulary, load_backend
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, CompiledGrammar, GrammarKind
from grammar_backends.errors import BackendUnavailable, SpecError, UnsupportedFeature
from grammar_backends.plugins import hookimpl
from grammar_backends.selection import Policy, explain, select_backend

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "conformance" / "grammar_backends_conformance" / "cases" / "smoke.jsonl"
FEATURES = ROOT.parent / "shared" / "cases" / "json_features.jsonl"
CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}}
UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}


def verdicts(schema: Any, host: PluginHost, **options: Any) -> dict[str, str]:
    trace = explain(GrammarSpec.json_schema(schema, options=GrammarOptions(**options)), host=host)
    return {step.backend: step.verdict for step in trace.steps}


def accepts(compiled: CompiledGrammar, text: str) -> bool:
    grammar = compiled.new_grammar()
    return grammar.accept_tokens("test", compiled.backend.vocabulary.encode(text)) and grammar.is_accepting()


def cases(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def spec_of(case: dict[str, Any]) -> GrammarSpec:
    options = dict(case.get("options") or {})
    if case["kind"] == "grammar":
        return GrammarSpec.grammar(case["spec"], options.get("syntax", "auto"))
    if case["kind"] == "json_object":
        return GrammarSpec.json_object()
    make: Any = getattr(GrammarSpec, case["kind"])
    spec: GrammarSpec = make(case["spec"])
    return spec


def wrongly_judged(case: dict[str, Any], compiled: CompiledGrammar) -> list[str]:
    texts = [
        (t["valid"], t["text"] if "text" in t else json.dumps(t["data"], ensure_ascii=False)) for t in case["tests"]
    ]
    return [text for valid, text in texts if accepts(compiled, text) != valid]


def test_c1_the_order_is_xgrammar_guidance_outlines(host: PluginHost) -> None:
    assert list(verdicts(CLOSED, host)) == ["xgrammar", "guidance", "outlines"]


def test_c2_1_the_first_backend_that_enforces_it_is_chosen(host: PluginHost) -> None:
    found = verdicts(CLOSED, host)
    assert (found["xgrammar"], found["guidance"]) == ("chosen", "not tried")


def test_c2_1_a_backend_that_is_slow_at_it_is_deferred_for_one_that_is_not(host: PluginHost) -> None:
    trace = explain(GrammarSpec.json_schema(OPEN), host=host)
    first, second, _ = trace.steps
    assert (first.verdict, second.verdict) == ("deferred", "chosen")
    assert first.findings[0].keyword == "additionalProperties"
    assert first.findings[0].hint == 'Write "additionalProperties": false'


def test_c2_1_a_deferred_backend_is_chosen_when_no_other_enforces_it(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema(OPEN)
    only = Policy(order=("xgrammar",))
    assert explain(spec, host=host, policy=only).chosen == "xgrammar"
    assert select_backend(spec, vocabulary, host=host, policy=only).backend.name == "xgrammar"


@pytest.mark.parametrize("policy", ["default", "fast"])
@pytest.mark.parametrize(
    ("bounds", "beyond"),
    [
        ({"minimum": -90, "maximum": 90}, "90.0000001"),
        ({"exclusiveMinimum": -34}, "-34.0000001"),
        ({"maximum": 0.5}, "0.50000000001"),
    ],
)
def test_c2_1_bounded_numbers_keep_their_decimals(
    bounds: dict[str, Any], beyond: str, policy: str, host: PluginHost, vocabulary: Vocabulary
) -> None:
    spec = GrammarSpec.json_schema({"type": "number", **bounds})
    selection = select_backend(spec, vocabulary, host=host, policy=policy)
    compiled = selection.backend.compile_grammar(spec)
    texts = ("-33.8688197", "0.4990000000000001", beyond)
    assert [accepts(compiled, text) for text in texts] == [True, True, False]


def test_c2_1_a_bounded_integer_is_not_deferred_and_a_bounded_number_is(host: PluginHost) -> None:
    for kind, verdict in (("integer", "chosen"), ("number", "deferred")):
        schema = {**CLOSED, "properties": {"a": {"type": kind, "minimum": 0}}}
        assert explain(GrammarSpec.json_schema(schema), host=host).steps[0].verdict == verdict


@pytest.mark.parametrize("pattern", [r"^[\p{L} ]{1,50}$", r"^\p{Lu}"])
def test_c2_1_categories_of_unicode_are_left_to_who_is_quick_at_them(pattern: str, host: PluginHost) -> None:
    for schema in ({"type": "string", "pattern": pattern}, {"type": "object", "patternProperties": {pattern: {}}}):
        assert verdicts(schema, host)["guidance"] == "chosen"
    assert verdicts({"type": "string", "pattern": "^p{2}$"}, host)["xgrammar"] == "chosen"


def test_c2_1_what_loses_valid_texts_comes_after_what_is_rewritten(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema({"propertyNames": {"minLength": 1}, "additionalProperties": {}, "type": "object"})
    selection = select_backend(spec, vocabulary, host=host)
    assert [step.verdict for step in selection.trace.steps[:2]] == ["deferred", "chosen"]
    compiled = selection.backend.compile_grammar(spec)
    texts = ('{"a\\"b": 1}', '{"\\\\": 1}', '{"": 1}')
    assert [accepts(compiled, text) for text in texts] == [True, True, False]
    only = Policy(order=("xgrammar",))
    assert select_backend(spec, vocabulary, host=host, policy=only).backend.name == "xgrammar"


def test_c2_1_closed_objects_by_option_are_not_deferred(host: PluginHost) -> None:
    assert verdicts(OPEN, host, additional_properties="closed")["xgrammar"] == "chosen"


def test_c2_5_a_refusal_names_every_backend_and_the_place(host: PluginHost, vocabulary: Vocabulary) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        select_backend(GrammarSpec.json_schema(UNIQUE), vocabulary, host=host)
    assert caught.value.pointer == "/uniqueItems"
    assert {step.verdict for step in caught.value.trace.steps} == {"refused"}
    for name in ("xgrammar", "guidance", "outlines"):
        assert f"{name}: uniqueItems" in str(caught.value)


def test_c2_5_a_backend_named_explicitly_refuses_what_it_would_ignore(host: PluginHost, vocabulary: Vocabulary) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        load_backend("xgrammar", vocabulary, host=host).compile_grammar(GrammarSpec.json_schema(UNIQUE))
    assert (caught.value.pointer, caught.value.backend) == ("/uniqueItems", "xgrammar")


@pytest.mark.parametrize(
    "spec",
    [
        GrammarSpec.json_schema({"type": "strin"}),
        GrammarSpec.regex("(a"),
        GrammarSpec.grammar('root ::= "a" b'),
        GrammarSpec.grammar('start: "a" b', "lark"),
    ],
    ids=str,
)
def test_c2_2_a_mistake_stops_the_chain(spec: GrammarSpec, host: PluginHost, vocabulary: Vocabulary) -> None:
    with pytest.raises(SpecError) as caught:
        select_backend(spec, vocabulary, host=host)
    assert not isinstance(caught.value, UnsupportedFeature)
    assert caught.value.where


def test_c2_2_a_gap_that_only_the_engine_knows_falls_through(host: PluginHost, vocabulary: Vocabulary) -> None:
    # llguidance's own header: xgrammar's reader refuses it loudly.
    spec = GrammarSpec.grammar("%llguidance {}\nstart: /[ab]+/\n", "lark")
    selection = select_backend(spec, vocabulary, host=host)
    assert selection.backend.name == "guidance"
    assert selection.trace.steps[0].verdict == "refused"


@pytest.mark.parametrize("backend", ["xgrammar", "guidance", "outlines"])
def test_c3_siblings_of_ref_say_nothing_in_the_older_drafts(
    backend: str, host: PluginHost, vocabulary: Vocabulary
) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"enum": [3, 9]}},
        "$ref": "#/definitions/a",
        "maximum": 5,
        "uniqueItems": True,
    }
    compiled = load_backend(backend, vocabulary, host=host).compile_grammar(GrammarSpec.json_schema(schema))
    assert [accepts(compiled, text) for text in ("3", "9", "4")] == [True, True, False]


@pytest.mark.parametrize(
    "schema", [{"properties": {}}, {"additionalProperties": True}, {"items": True}], ids=json.dumps
)
def test_c3_a_keyword_that_says_nothing_is_not_taken_for_a_type(
    schema: Any, host: PluginHost, vocabulary: Vocabulary
) -> None:
    compiled = load_backend("xgrammar", vocabulary, host=host).compile_grammar(GrammarSpec.json_schema(schema))
    assert all(accepts(compiled, text) for text in ('"x"', "1", "{}", "[]", "null"))


def test_c3_branches_of_one_of_exclude_each_other_by_what_stands_beside_it(
    host: PluginHost, vocabulary: Vocabulary
) -> None:
    branches = [{"properties": {"kind": {"const": name}}} for name in ("a", "b")]
    schema = {"type": "object", "properties": {"kind": {}}, "required": ["kind"], "oneOf": branches}
    selection = select_backend(GrammarSpec.json_schema(schema), vocabulary, host=host)
    assert not any(step.rewrites for step in selection.trace.steps)
    compiled = selection.backend.compile_grammar(GrammarSpec.json_schema(schema))
    assert [accepts(compiled, text) for text in ('{"kind":"a"}', '{"kind":"c"}', "{}")] == [True, False, False]


def test_c2_6_structural_tags_never_reach_outlines(host: PluginHost) -> None:
    tag = {"structures": [{"begin": "<f>", "schema": CLOSED, "end": "</f>"}], "triggers": ["<f"]}
    trace = explain(GrammarSpec.structural_tag(tag), host=host)
    assert {step.backend: step.verdict for step in trace.steps}["outlines"] == "refused"


def test_c2_5_a_schema_inside_a_tag_is_judged_with_its_pointer(host: PluginHost) -> None:
    tag = {"structures": [{"begin": "<f>", "schema": UNIQUE, "end": "</f>"}], "triggers": ["<f"]}
    step = explain(GrammarSpec.structural_tag(tag), host=host).steps[0]
    assert step.findings[0].pointer == "/structures/0/schema/uniqueItems"


@pytest.mark.parametrize(
    ("pattern", "text", "expected"), [(".", "\n", False), (r"\s", "\xa0", False), (r"^ab$", "ab", True)]
)
def test_c3_a_pattern_in_a_tag_means_the_same_as_alone(
    pattern: str, text: str, expected: bool, host: PluginHost, vocabulary: Vocabulary
) -> None:
    for spec in (
        GrammarSpec.regex(pattern),
        GrammarSpec.structural_tag({"format": {"type": "regex", "pattern": pattern}}),
    ):
        compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
        assert accepts(compiled, text) is expected


@pytest.mark.parametrize(
    "schema", [{"multipleOf": 10**400}, {"type": "number", "multipleOf": 10**400}], ids=["any", "number"]
)
def test_d20_a_huge_number_is_refused_with_an_error_of_ours(
    schema: Any, host: PluginHost, vocabulary: Vocabulary
) -> None:
    with pytest.raises(SpecError):
        select_backend(GrammarSpec.json_schema(schema), vocabulary, host=host)


def test_c3_min_contains_alone_is_never_over_constrained(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema({"type": "array", "minContains": 2})
    assert accepts(load_backend("xgrammar", vocabulary, host=host).compile_grammar(spec), "[]")


def test_k4_a_plugin_that_raises_in_a_hook_or_makes_no_engine_harms_nobody(vocabulary: Vocabulary) -> None:
    class Broken:
        @hookimpl
        def grammar_backends_order_chain(self, request: GrammarSpec, candidates: Sequence[str]) -> list[str]:
            raise ZeroDivisionError

        @hookimpl
        def grammar_backends_register_backends(self) -> list[BackendSpec]:
            kinds = Capabilities(kinds=frozenset(GrammarKind))
            return [
                BackendSpec("no-engine", "builtins:max", API_VERSION, kinds, priority=1),
                BackendSpec("exits", "sys:exit", API_VERSION, kinds, priority=2),
            ]

    class Garbage:
        @hookimpl
        def grammar_backends_register_backends(self) -> list[BackendSpec]:
            kinds = Capabilities(kinds=frozenset(GrammarKind))
            return [BackendSpec("garbage", "a:b", API_VERSION, kinds, priority="a")]  # type: ignore[arg-type]  # the point

    host = PluginHost(plugins={"broken": Broken(), "garbage": Garbage()})
    selection = select_backend(GrammarSpec.choice(["yes"]), vocabulary, host=host)
    assert [step.verdict for step in selection.trace.steps[:3]] == ["skipped", "skipped", "chosen"]
    assert {record.name: record.state for record in host.plugins}["garbage"] == "failed"


def test_c3_ipv4_with_leading_zeros_is_never_accepted(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema({"type": "string", "format": "ipv4"})
    compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    assert accepts(compiled, '"1.2.3.4"')
    assert not accepts(compiled, '"01.2.3.4"')


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"format": "hostname"}, ["a", "ab", "a-b.c-d.example", "x" * 63], ["a-", "xn--X", "a.", "x" * 64]),
        ({"format": "hostname"}, [".".join(["x" * 62] * 4)], [".".join(["x" * 63] * 4)]),
        ({"format": "hostname", "pattern": "^a", "maxLength": 3}, ["abc"], ["bcd", "a--d", "ab-", "abcd"]),
        ({"format": "date", "pattern": "^2"}, ["2024-02-29"], ["1999-01-01", "2023-02-29"]),
        ({"pattern": r"^\s$"}, ["\ufeff", "\u2028", " "], ["x"]),
        ({"pattern": r"^\S$"}, ["x"], ["\ufeff", "\u2028", " "]),
    ],
)
def test_c3_formats_and_classes_that_engines_take_too_widely_are_exact(
    schema: Any, valid: list[str], invalid: list[str], host: PluginHost, vocabulary: Vocabulary
) -> None:
    spec = GrammarSpec.json_schema({"type": "string", **schema})
    compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    for text in (*valid, *invalid):
        assert accepts(compiled, json.dumps(text, ensure_ascii=False)) is (text in valid), text


def test_c1_the_policy_names_the_order_and_unknown_names_are_errors(host: PluginHost) -> None:
    spec = GrammarSpec.choice(["yes", "no"])
    assert explain(spec, host=host, policy=Policy(order=("outlines", "xgrammar"))).chosen == "outlines"
    with pytest.raises(BackendUnavailable, match="did you mean 'outlines'"):
        explain(spec, host=host, policy=Policy(order=("outline",)))


def test_c2_7_a_failed_backend_is_skipped_with_its_reason(vocabulary: Vocabulary) -> None:
    host = PluginHost(block=["xgrammar"])
    selection = select_backend(GrammarSpec.choice(["yes"]), vocabulary, host=host)
    assert selection.backend.name == "guidance"


def test_a_plugin_orders_the_chain() -> None:
    class Reversed:
        @hookimpl
        def grammar_backends_order_chain(self, request: GrammarSpec, candidates: Sequence[str]) -> list[str]:
            return [*reversed(candidates)]

    host = PluginHost(plugins={"reversed": Reversed()})
    assert explain(GrammarSpec.choice(["yes"]), host=host).chosen == "outlines"


def test_c2_3_selecting_leaves_the_schema_as_it_was(host: PluginHost, vocabulary: Vocabulary) -> None:
    schema = json.loads(json.dumps(CLOSED))
    select_backend(GrammarSpec.json_schema(schema), vocabulary, host=host)
    assert schema == CLOSED


def test_c2_4_several_backends_live_in_one_engine(host: PluginHost, vocabulary: Vocabulary) -> None:
    names = {
        select_backend(GrammarSpec.json_schema(schema), vocabulary, host=host).backend.name for schema in (CLOSED, OPEN)
    }
    assert names == {"xgrammar", "guidance"}


@pytest.mark.parametrize("case", cases(SMOKE), ids=lambda case: case["id"])
def test_auto_judges_every_text_of_the_smoke_suite_rightly(
    case: dict[str, Any], host: PluginHost, vocabulary: Vocabulary
) -> None:
    spec = spec_of(case)
    compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    assert wrongly_judged(case, compiled) == []


@pytest.mark.skipif(not FEATURES.exists(), reason="the shared cases are not on this machine")
@pytest.mark.parametrize("case", cases(FEATURES), ids=lambda case: case["id"])
def test_c3_auto_is_never_silently_wrong(case: dict[str, Any], host: PluginHost, vocabulary: Vocabulary) -> None:
    refusal = None
    try:
        spec = spec_of(case)
        compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    except SpecError as error:
        refusal = error
    if refusal is None:
        assert wrongly_judged(case, compiled) == []
    else:
        assert refusal.pointer is not None
        # Nothing satisfies a date of three characters; outlines "enforces" that by allowing what is no date.
        unsatisfiable = case["id"] == "json-feature/format-maxlength"
        assert unsatisfiable or "enforced" not in case["measured"].values()


@pytest.mark.parametrize("schema", [{"type": "number", "minimum": 2**53 + 1}, {"maximum": 2**64 - 1}])
def test_c3_bounds_of_numbers_that_engines_round_are_refused(schema: dict[str, Any], vocabulary: Vocabulary) -> None:
    with pytest.raises(UnsupportedFeature):
        select_backend(GrammarSpec.json_schema(schema), vocabulary)


@pytest.mark.parametrize("bound", [2**53 + 1, 2**63 - 1])
def test_c3_bounds_of_integers_are_enforced_as_far_as_they_fit_64_bits(bound: int, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.json_schema({"type": "integer", "minimum": -bound - 1, "maximum": bound})
    compiled = select_backend(spec, vocabulary).backend.compile_grammar(spec)
    for number, is_valid in ((bound, True), (bound + 1, False), (-bound - 1, True), (-bound - 2, False)):
        grammar = compiled.new_grammar()
        accepted = grammar.accept_tokens("r", vocabulary.encode(str(number)))
        assert (accepted and grammar.is_accepting()) == is_valid, number
