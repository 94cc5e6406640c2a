"""Every rule of the front end (D1 to D20): the error, its place, its words, and no others."""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from grammar_backends import (
    GrammarOptions,
    GrammarSpec,
    PluginHost,
    Vocabulary,
    explain,
    load_backend,
    select_backend,
    validate_spec,
)
from grammar_backends.contract import CompiledGrammar
from grammar_backends.errors import BackendUnavailable, SpecError, UnsupportedFeature, VocabularyError
from grammar_backends.selection import Limits, Policy

Make = Callable[[], Any]
TAG = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f>"]}
BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")


def refusal(make: Make) -> SpecError:
    """The error of a spec that cannot be made or does not pass."""
    with pytest.raises(SpecError) as caught:
        validate_spec(make())
    return caught.value


def fields(**given: Any) -> Make:
    return lambda: GrammarSpec.from_structured_outputs(given)


def of_format(format_: Any) -> Make:
    return lambda: GrammarSpec.structural_tag({"format": format_})


def nested(levels: int, keyword: str = "items") -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", keyword: schema}
    return schema


def accepts(compiled: CompiledGrammar, text: str) -> bool:
    grammar = compiled.new_grammar()
    return grammar.accept_tokens("test", compiled.backend.vocabulary.encode(text)) and grammar.is_accepting()


# -- D1 to D8: one constraint, with content ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, "none"),
        ({"json": None, "regex": None}, "none"),
        ({"disable_any_whitespace": True}, "none"),
        ({"json": {"title": "SECRET"}, "regex": "SECRET"}, "json, regex"),
        ({"choice": ["SECRET"], "json_object": True, "grammar": "SECRET"}, "choice, grammar, json_object"),
    ],
)
def test_d1_exactly_one_constraint_and_the_message_names_fields_not_contents(given: Any, names: str) -> None:
    message = str(refusal(fields(**given)))
    assert f"exactly one constraint is needed, and there are: {names}" in message
    assert "SECRET" not in message


def test_d1_each_field_is_the_constraint_of_its_kind() -> None:
    assert fields(json={"type": "null"})() == GrammarSpec.json_schema({"type": "null"})
    assert fields(json='{"type": "null"}', regex=None)() == GrammarSpec.json_schema({"type": "null"})
    assert fields(regex="a+")() == GrammarSpec.regex("a+")
    assert fields(choice=["a", "b"])() == GrammarSpec.choice(["a", "b"])
    assert fields(grammar='root ::= "a"')() == GrammarSpec.grammar('root ::= "a"')
    assert fields(json_object=True)() == GrammarSpec.json_object()
    assert fields(structural_tag=TAG)() == GrammarSpec.structural_tag(TAG)


def test_d1_an_unknown_field_is_never_passed_over() -> None:
    assert "no field 'regexp'. Did you mean 'regex'?" in str(refusal(fields(regexp="a")))
    assert "whitespace_pattern" in str(refusal(fields(json={}, whitespace_pattern=" ")))
    assert "an object is needed" in str(refusal(lambda: GrammarSpec.from_structured_outputs([])))  # type: ignore[arg-type]


LARGE: list[Any] = ["x" * 10_000, ["x" * 50] * 1_000, 10**9_999, [[[[[[]]]]]] * 99, {"a" * 999: 1}]


@pytest.mark.parametrize("value", LARGE, ids=["text", "list", "number", "nested", "name"])
def test_d1_a_client_s_content_comes_back_in_small_pieces_only(value: Any) -> None:
    wrong: list[Make] = [
        lambda: GrammarSpec.from_openai({"type": value}),
        lambda: GrammarSpec.from_openai(tools=[{"function": {"name": "a", "strict": value}}]),
        lambda: GrammarSpec.from_openai(tools=[{"function": {"name": "a"}}], tool_choice=value),
        lambda: GrammarSpec.json_object(options=GrammarOptions(whitespace=value)),
        lambda: GrammarSpec.grammar("a", value),
        fields(json_object=value),
        of_format({"type": value}),
        of_format({"type": "const_string", "value": [value]}),
    ]
    if not isinstance(value, int):  # which JSON cannot hold
        wrong.append(lambda: GrammarSpec.json_schema({"type": value}))
    for make in wrong:
        assert len(str(refusal(make))) < 700


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([], "the list is empty"),
        ("ab", "a list of strings is needed"),
        (["a", 1], "a string is needed, not a number at /1"),
        (["a", "\ud800"], "lone surrogate"),
    ],
)
def test_d2_choices_are_a_list_of_strings(choices: Any, words: str) -> None:
    assert words in str(refusal(lambda: GrammarSpec.choice(choices)))


def test_d2_duplicates_go_the_empty_string_stays_and_there_is_a_cap() -> None:
    assert GrammarSpec.choice(["", "a", ""]).value == ["", "a"]
    assert "3 choices, the limit is 2" in str(_limited(GrammarSpec.choice(["a", "b", "c"]), choices=2))


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_d3_a_blank_grammar_is_an_error_not_no_constraint(text: str) -> None:
    assert "grammar: the text is blank" in str(refusal(lambda: GrammarSpec.grammar(text)))
    assert "structured_outputs.grammar: the text is blank" in str(refusal(fields(grammar=text)))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("", "structured_outputs.json: the text is blank"),
        (" \n", "structured_outputs.json: the text is blank"),
        ('{"type":\n "a",}', "at 2:6"),
        ("[]", "a schema is an object or a boolean, not an array at the root"),
        (3, "a schema is an object or a boolean, not a number at the root"),
    ],
)
def test_d4_a_schema_is_json_and_an_object_or_a_boolean(schema: Any, words: str) -> None:
    assert words in str(refusal(fields(json=schema)))


@pytest.mark.parametrize("value", [False, 0, "true", {}])
def test_d5_json_object_is_true_or_not_there(value: Any) -> None:
    assert "structured_outputs.json_object: true is needed" in str(refusal(fields(json_object=value)))


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: GrammarSpec.regex("a\0"), ""),
        (lambda: GrammarSpec.json_schema('{"pattern": "a\\u0000"}'), "/pattern"),
        (lambda: GrammarSpec.json_schema({"patternProperties": {"a\0": {}}}), "/patternProperties/a\0"),
        (of_format({"type": "regex", "pattern": "\0"}), "/format/pattern"),
        (
            of_format({"type": "json_schema", "json_schema": {"properties": {"b": {"pattern": "\0"}}}}),
            "/format/json_schema/properties/b/pattern",
        ),
        (
            lambda: GrammarSpec.structural_tag(
                {"structures": [{"begin": "<", "schema": {"items": {"pattern": "\0"}}, "end": ""}], "triggers": ["<"]}
            ),
            "/structures/0/schema/items/pattern",
        ),
    ],
)
def test_d6_a_nul_in_a_pattern_is_refused_wherever_it_stands(make: Make, where: str) -> None:
    error = refusal(make)
    assert "NUL character" in str(error)
    assert (error.pointer or "") == where


@pytest.mark.parametrize(("pattern", "text"), [("", ""), ("  ", "  "), ("\n", "\n"), (r"\x00", "\0")])
def test_d7_empty_and_blank_patterns_and_an_escaped_nul_are_valid(
    pattern: str, text: str, host: PluginHost, vocabulary: Vocabulary
) -> None:
    spec = GrammarSpec.regex(pattern)
    compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    assert accepts(compiled, text)
    assert not accepts(compiled, "x")


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("", "the text is blank"),
        ({}, "neither form was recognised"),
        ({"triggers": ["<"]}, "neither form was recognised"),
        ({"structures": [], "triggers": ["<"]}, "structures must be a non-empty array at /structures"),
        ({"structures": [{}], "triggers": ["<"]}, "begin must be a string at /structures/0/begin"),
        ({"structures": [{"begin": "a", "end": ""}], "triggers": ["<"]}, "starts with none of the triggers"),
        (
            {"structures": [{"begin": "<", "shema": {}, "end": ""}], "triggers": ["<"]},
            "no member 'shema' here at /structures/0/shema. Did you mean 'schema'?",
        ),
        ({**TAG, "at_least_one": True}, "no member 'at_least_one' here at /at_least_one"),
        ({"format": {"type": "any_text"}, "triggers": ["<"]}, "no member 'triggers' here at /triggers"),
    ],
)
def test_d8_a_tag_of_the_older_form_has_structures_and_triggers(tag: Any, words: str) -> None:
    assert words in str(refusal(lambda: GrammarSpec.structural_tag(tag)))


TEXT_FORMAT = {"type": "any_text"}


@pytest.mark.parametrize(
    ("format_", "words"),
    [
        ([], "a format is an object, not an array at /format"),
        ({}, "a format without a type at /format"),
        ({"json_schema": {"uniqueItems": True}}, "a format without a type at /format"),
        ({"type": "any_txt"}, "there is no type 'any_txt' at /format/type. Did you mean 'any_text'?"),
        (
            {"type": "any_text", "maxtokens": 5},
            "no member 'maxtokens' here at /format/maxtokens. Did you mean 'max_tokens'",
        ),
        ({"type": "any_text", "max_tokens": -1}, "max_tokens must be a whole number, 0 or more, or null, not -1"),
        ({"type": "tag", "begin": "a", "content": TEXT_FORMAT}, "the format lacks end at /format"),
        ({"type": "tag", "begin": 1, "content": TEXT_FORMAT, "end": ""}, "begin must be a string"),
        ({"type": "tag", "begin": "a", "content": TEXT_FORMAT, "end": []}, "end must be a string, a list of strings"),
        ({"type": "tag", "begin": "a", "content": {"type": "x"}, "end": ""}, "at /format/content/type"),
        ({"type": "sequence", "elements": []}, "elements must be a list of formats, at least one"),
        ({"type": "or", "elements": [TEXT_FORMAT, {"type": "regex"}]}, "lacks pattern at /format/elements/1"),
        ({"type": "json_schema", "json_schema": [1]}, "json_schema must be a schema"),
        ({"type": "repeat", "min": 3, "max": 1, "content": TEXT_FORMAT}, "max is smaller than min at /format/max"),
        ({"type": "dispatch", "rules": [["a"]]}, "rules must be a list of rules"),
        ({"type": "dispatch", "rules": [["a", {"type": "tag"}]]}, "lacks begin at /format/rules/0/1"),
        (
            {"type": "triggered_tags", "triggers": ["<"], "tags": [{"begin": "a", "content": TEXT_FORMAT, "end": ""}]},
            "starts with none of the triggers ['<'] at /format/tags/0/begin",
        ),
        ({"type": "triggered_tags", "triggers": [""], "tags": [{}]}, "triggers must be a list of strings"),
    ],
)
def test_d8_a_format_has_the_members_of_its_type(format_: Any, words: str) -> None:
    assert words in str(refusal(of_format(format_)))


# -- D9 to D11: bounds ---------------------------------------------------------------------------------------


def _limited(spec: GrammarSpec, **limits: int) -> SpecError:
    with pytest.raises(SpecError) as caught:
        validate_spec(spec, Limits(**limits))
    validate_spec(spec)
    with pytest.raises(SpecError):
        explain(spec, policy=Policy(limits=Limits(**limits)))
    return caught.value


def test_d9_schemas_nest_64_levels_and_tags_16_more() -> None:
    validate_spec(GrammarSpec.json_schema(nested(64)))
    assert "nested too deep (more than 64 levels)" in str(refusal(lambda: GrammarSpec.json_schema(nested(65))))
    format_: dict[str, Any] = {"type": "json_schema", "json_schema": nested(64)}
    for _ in range(79):
        format_ = {"type": "optional", "content": format_}
    validate_spec(of_format(format_)())
    assert "nested more than 80 deep" in str(refusal(of_format({"type": "optional", "content": format_})))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"items":' * 100_000])
def test_d9_text_that_overflows_the_parser_is_too_deep(text: str) -> None:
    for make in (lambda: GrammarSpec.json_schema(text), lambda: GrammarSpec.structural_tag(text)):
        assert "nested too deep" in str(refusal(make))


def test_d9_data_that_overflows_the_writer_is_too_deep() -> None:
    for levels in (300, 5_000, 100_000):
        assert "nested too deep" in str(refusal(lambda: GrammarSpec.json_schema(nested(levels))))  # noqa: B023  # called at once


def test_d9_what_outlines_carries_is_less(host: PluginHost) -> None:
    closed = {"type": "object", "additionalProperties": False, "required": ["a"]}
    for levels, verdict in ((3, "chosen"), (4, "refused")):
        schema: dict[str, Any] = {"type": "boolean"}
        for _ in range(levels):
            schema = {**closed, "properties": {"a": schema}}
        trace = explain(GrammarSpec.json_schema(schema), host=host, policy=Policy(order=("outlines",)))
        assert trace.steps[0].verdict == verdict


@pytest.mark.parametrize(
    ("spec", "limits", "words"),
    [
        (GrammarSpec.regex("aaaa"), {"spec_characters": 3}, "regex: 4 characters, the limit is 3"),
        (GrammarSpec.regex("aaaa"), {"pattern_characters": 3}, "regex: 4 characters, the limit is 3"),
        (GrammarSpec.choice(["a", "b"]), {"choices": 1}, "choice: 2 choices, the limit is 1"),
        (
            GrammarSpec.json_schema({"items": {"enum": [1, 2, 3]}}),
            {"enum_members": 2},
            "json_schema: 3 members of enum, the limit is 2 at /items/enum",
        ),
        (
            GrammarSpec.json_schema({"properties": {"a": {}, "b": {}}}),
            {"properties": 1},
            "json_schema: 2 properties, the limit is 1 at /properties",
        ),
        (GrammarSpec.json_schema(nested(3)), {"schema_depth": 2}, "more than 2 levels) at /items/items/items"),
        (GrammarSpec.json_schema(nested(3)), {"subschemas": 3}, "json_schema: 4 subschemas, the limit is 3"),
        (GrammarSpec.grammar('root ::= "a"'), {"grammar_characters": 5}, "12 characters, the limit is 5"),
        (GrammarSpec.grammar('root ::= x\nx ::= "a"'), {"grammar_rules": 1}, "grammar: 2 rules, the limit is 1"),
        (of_format({"type": "regex", "pattern": "aaa"})(), {"pattern_characters": 2}, "limit is 2 at /format/pattern"),
    ],
)
def test_d10_every_size_has_a_cap_that_can_be_set(spec: GrammarSpec, limits: dict[str, int], words: str) -> None:
    assert words in str(_limited(spec, **limits))


def test_d10_a_backend_that_is_named_keeps_the_same_caps(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec, limits = GrammarSpec.choice(["a", "b"]), Limits(choices=1)
    with pytest.raises(SpecError, match="the limit is 1"):
        load_backend("xgrammar", vocabulary, host=host, limits=limits).compile_grammar(spec)
    backend = select_backend(GrammarSpec.choice(["a"]), vocabulary, host=host, policy=Policy(limits=limits)).backend
    with pytest.raises(SpecError, match="the limit is 1"):
        backend.compile_grammar(spec)


@pytest.mark.parametrize("limits", [{"choices": 0}, {"choices": True}, {"schema_depth": 65}, {"grammar_rules": 5_001}])
def test_d10_a_cap_is_positive_and_below_what_engines_bear(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="limit"):
        Limits(**limits)
    assert Limits(choices=10**6).choices == 10**6


HOSTILE: dict[str, Callable[[int], str]] = {
    "counts in counts": lambda size: "(" * min(size, 99) + "a" + "{99})" * min(size, 99),
    "stars in stars": lambda size: "(" * min(size, 99) + "a*" + ")*" * min(size, 99),
    "many alternatives": lambda size: "|".join(f"{index:04}" for index in range(size)),
    "optional letters": lambda size: "a?" * size + "a" * size,
    "large classes": lambda size: r"[\p{L}\p{N}\p{M}]" * (size // 10),
    "negated classes": lambda size: "".join(f"[^{chr(97 + index % 26)}]" for index in range(size)),
    "empty groups": lambda size: "()*" * size,
    "deep groups": lambda size: "(" * size + ")" * size,
    "optional series": lambda size: "(a?" * min(size, 99) + ")?" * min(size, 99),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_d11_the_work_on_a_hostile_pattern_grows_as_the_pattern(name: str, host: PluginHost) -> None:
    small, large = (_calls(lambda: _judge(GrammarSpec.regex(HOSTILE[name](size)), host)) for size in (600, 1_800))  # noqa: B023  # called at once
    assert large < 4 * small + 5_000


@pytest.mark.parametrize("name", HOSTILE)
def test_d11_and_so_does_the_work_on_one_inside_a_schema(name: str, host: PluginHost) -> None:
    def schema(size: int) -> GrammarSpec:
        pattern, text = HOSTILE[name](size), "a" * 190
        listed = {text: {"type": "string", "pattern": pattern, "enum": [text, "b"]}}
        others = {pattern: {"not": {"pattern": pattern}}}
        return GrammarSpec.json_schema(
            {"type": "object", "properties": listed, "patternProperties": others, "required": [text]}
        )

    small, large = (_calls(lambda: _judge(schema(size), host)) for size in (600, 1_800))  # noqa: B023  # called at once
    assert large < 4 * small + 20_000


HOSTILE_NAMES: Mapping[str, Callable[[int], Any]] = {
    "counts that overlap": lambda size: {f"^[a-{'bcdefgh'[at]}]{{0,{size + at}}}$": {} for at in range(4)},
    "large classes with counts": lambda size: {rf"^\w{{0,{size}}}b": {}, rf"^\W{{0,{size}}}e": {}},
    "alternatives in a row": lambda size: {f"^(?!{letter})(a|b)*a(a|b){{8}}$": {} for letter in "abcdefgh"},
}


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("size", [50, 150, 400])
def test_d11_the_work_on_many_patterns_of_names_is_bounded(name: str, size: int, host: PluginHost) -> None:
    shape = {"type": "object", "patternProperties": HOSTILE_NAMES[name](size), "additionalProperties": False}
    schema = {"type": "object", "properties": {f"p{at}": shape for at in range(40)}}
    assert _calls(lambda: _judge(GrammarSpec.json_schema(schema), host)) < 6_000_000


def _judge(spec: GrammarSpec, host: PluginHost) -> None:
    with contextlib.suppress(SpecError):
        explain(spec, host=host)


def _calls(action: Callable[[], None]) -> int:
    """The calls that an action makes: a measure of its work that no busy machine changes."""
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counting)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(?<!a)b", r"\bfoo", r"(a)\1", r"(?i:a)", r"a++", r"(?>a)"])
def test_d11_what_no_engine_reads_alike_is_refused_with_the_place(
    pattern: str, host: PluginHost, vocabulary: Vocabulary
) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        select_backend(GrammarSpec.regex(pattern), vocabulary, host=host)
    assert (caught.value.line, caught.value.column is not None) == (1, True)
    assert {step.backend for step in caught.value.trace.steps} == {"xgrammar", "guidance", "outlines"}


# -- D12 to D16: the engines' own judgement ------------------------------------------------------------------


def test_d12_what_the_front_end_lets_pass_an_engine_may_still_refuse(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.grammar("%llguidance {}\nstart: /a/\n%json {\n", "lark")
    validate_spec(spec)
    with pytest.raises(SpecError) as caught:
        select_backend(spec, vocabulary, host=host)
    assert (caught.value.line, caught.value.backend is not None) == (3, True)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ('root ::= "a"\nroot ::= "b"', "2:1", "defined twice, first at 1:1"),
        ('root ::= "a" | bb\nb ::= "x"', "1:16", "rule 'bb' is not defined"),
        ('root ::= ("a"', "1:10", "this group is never closed"),
        ('root ::= "a', "1:10", "this string is never closed"),
        ('start: "a" b', "1:12", "rule 'b' is not defined"),
        ("start: /a\n", "1:8", "never closed"),
        ('root ::= "a" root', "1:1", "can never finish"),
        ('rot ::= "a"', "1:1", "there is no rule 'root'"),
    ],
)
def test_d13_a_grammar_s_mistake_has_line_and_column(text: str, where: str, words: str) -> None:
    error = refusal(lambda: GrammarSpec.grammar(text))
    assert error.where == where
    assert words in str(error)


def test_d13_an_engine_s_words_are_trimmed(host: PluginHost, vocabulary: Vocabulary) -> None:
    long = "x" * 5_000
    with pytest.raises(SpecError) as caught:
        load_backend("xgrammar", vocabulary, host=host).compile_grammar(
            of_format({"type": "json_schema", "json_schema": {}, "style": long})()
        )
    assert caught.value.engine_text
    assert len(caught.value.engine_text) <= 200


ODD = [*'"\\\n\r\t\b\0\x7f\x1b[]{}()|*+?.^$/#', "\u0085", "\u2028", "漢字", "\U0001f600", "", "a" * 5_000, "root ::= x"]


@pytest.mark.parametrize("name", BACKENDS)
def test_d14_every_choice_comes_back_as_it_was(name: str, host: PluginHost, vocabulary: Vocabulary) -> None:
    items = [item for item in ODD if name in ("xgrammar", "guidance") or len(item) < 500]
    compiled = load_backend(name, vocabulary, host=host).compile_grammar(GrammarSpec.choice(items))
    assert [item for item in items if not accepts(compiled, item)] == []
    assert not any(accepts(compiled, text) for text in ("aa", "x", '""', "\\n", "\\x00"))


def test_d14_a_choice_stays_a_choice(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.choice(["a", "b"])
    selection = select_backend(spec, vocabulary, host=host)
    assert selection.trace.spec is spec
    assert selection.backend.compile_grammar(spec).spec.kind.value == "choice"


LARK = """
// a comment
start: ?greeting | "b" // another one
?greeting: "hello" " "
         | !name
!name: /[a-z]{2,3}/
"""


def test_d15_lark_is_read_as_lark(host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.grammar(LARK.replace("?greeting |", "greeting |").replace("!name\n!", "name\n!"), "lark")
    compiled = select_backend(spec, vocabulary, host=host).backend.compile_grammar(spec)
    assert [text for text in ("hello ", "b", "abc", "hello", "x", "a c") if accepts(compiled, text)] == [
        "hello ",
        "b",
        "abc",
    ]


@pytest.mark.parametrize("name", ["xgrammar", "guidance"])
def test_d15_ebnf_means_the_same_on_every_engine(name: str, host: PluginHost, vocabulary: Vocabulary) -> None:
    spec = GrammarSpec.grammar('root ::= item ("," item)*\nitem ::= [a-c]+ | "ab" "!"?')
    compiled = load_backend(name, vocabulary, host=host).compile_grammar(spec)
    assert [text for text in ("ab", "ab!", "a,ab!", "", "a,", "d") if accepts(compiled, text)] == ["ab", "ab!", "a,ab!"]


def test_d16_compact_white_space_and_closed_objects_are_enforced_or_refused(host: PluginHost) -> None:
    spec = fields(json={"type": "object"}, disable_any_whitespace=True, disable_additional_properties=True)()
    assert spec.options == GrammarOptions(whitespace="compact", additional_properties="closed")
    wrong = refusal(fields(json={}, disable_any_whitespace="no"))
    assert "disable_any_whitespace: true or false is needed, not 'no'" in str(wrong)
    closed = GrammarOptions(additional_properties="closed")
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    steps = explain(GrammarSpec.json_schema(schema, options=closed), host=host).steps
    assert {step.backend: step.verdict for step in steps}["guidance"] == "refused"


# -- D17 to D20: the whole -----------------------------------------------------------------------------------


def test_d17_without_a_vocabulary_the_constraint_is_not_dropped(host: PluginHost) -> None:
    with pytest.raises(VocabularyError, match="the constraint would be dropped"):
        select_backend(GrammarSpec.regex("a"), None, host=host)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [(), ("none",)])
def test_d17_no_backend_is_an_error_never_silence(
    order: tuple[str, ...], host: PluginHost, vocabulary: Vocabulary
) -> None:
    with pytest.raises((UnsupportedFeature, BackendUnavailable), match="no backend"):
        select_backend(GrammarSpec.regex("a"), vocabulary, host=host, policy=Policy(order=order))
    with pytest.raises(BackendUnavailable, match="no backend 'none'"):
        load_backend("none", vocabulary, host=host)


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FORMAT = {"type": "json_object"}


def test_d18_tools_and_a_format_exclude_each_other() -> None:
    error = refusal(lambda: GrammarSpec.from_openai(FORMAT, tools=[TOOL]))
    assert "cannot be combined with tools" in str(error)
    assert GrammarSpec.from_openai(FORMAT, tools=[TOOL], tool_choice="none") == GrammarSpec.json_object()


def test_d19_validation_neither_writes_logs_nor_changes_what_it_reads(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object", "properties": {"secret": {"type": "nope"}}}
    before = json.dumps(schema)
    with caplog.at_level(logging.DEBUG):
        refusal(lambda: GrammarSpec.json_schema(schema))
    assert caplog.records == []
    assert json.dumps(schema) == before


def test_d19_threads_get_the_same_answers(host: PluginHost) -> None:
    specs = [GrammarSpec.json_schema({"items": {"minimum": number}, "uniqueItems": True}) for number in range(40)]
    found: list[list[str]] = []

    def work() -> None:
        found.append([str(explain(spec, host=host)) for spec in specs])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(answers == found[0] for answers in found)


MALFORMED: dict[str, tuple[Make, str]] = {
    "a type that is none": (lambda: GrammarSpec.json_schema({"type": "not-a-type"}), "/type"),
    "a property's type": (
        lambda: GrammarSpec.json_schema({"type": "object", "properties": {"a": {"type": "strin"}}}),
        "/properties/a/type",
    ),
    "a reference to nothing": (lambda: GrammarSpec.json_schema({"$ref": "#/$defs/nope"}), "/$ref"),
    "a reference to itself": (
        lambda: GrammarSpec.json_schema({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}),
        "/$defs/n",
    ),
    "a pattern that is none": (lambda: GrammarSpec.json_schema({"type": "string", "pattern": "(a"}), "/pattern"),
    "bounds that exclude each other": (
        lambda: GrammarSpec.json_schema({"type": "integer", "minimum": 5, "maximum": 1}),
        "the root",
    ),
    "an empty enum": (lambda: GrammarSpec.json_schema({"enum": []}), "the root"),
    "a regex that is not closed": (lambda: GrammarSpec.regex("(a"), "1:1"),
    "a class that is not closed": (lambda: GrammarSpec.regex("[a-"), "1:1"),
    "a grammar without its rule": (lambda: GrammarSpec.grammar("root ::= x"), "1:10"),
    "a grammar that is cut off": (lambda: GrammarSpec.grammar('root ::= "a'), "1:10"),
    "a tag without its schema's type": (
        lambda: GrammarSpec.structural_tag(
            {"structures": [{"begin": "<f>", "schema": {"type": 3}, "end": ""}], "triggers": ["<f>"]}
        ),
        "/structures/0/schema/type",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_d20_malformed_specs_are_the_client_s_mistake_with_a_message_and_a_place(
    name: str, host: PluginHost, vocabulary: Vocabulary
) -> None:
    make, where = MALFORMED[name]
    error = refusal(make)
    assert not isinstance(error, UnsupportedFeature)
    assert (error.where, error.backend) == (where, None)
    assert f" at {where}" in str(error)
    assert error.message
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(SpecError) as caught:
        select_backend(make(), vocabulary, host=host)
    assert str(caught.value) == str(error)


def test_d20_a_message_says_what_where_who_and_what_to_do() -> None:
    error = SpecError(
        "json: pattern is wrong", pointer="/a", backend="xgrammar 0.2.9", engine_text="x" * 500, hint="Fix it"
    )
    assert str(error).startswith("json: pattern is wrong at /a; xgrammar 0.2.9: xxx")
    assert str(error).endswith("… Fix it")
    assert len(error.engine_text or "") == 200
    deep = SpecError("json: wrong", pointer="/properties" * 500)
    assert len(str(deep)) < 300
    assert len(deep.pointer or "") == 5_500


DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 7))
FOREIGN = [
    ({}, {"dependencies": {"a": ["b"]}}),
    ({"$schema": DRAFT_4}, {"const": 1}),
    ({"$schema": DRAFT_4}, {"type": "array", "contains": {"type": "integer"}}),
    ({"$schema": DRAFT_4}, {"if": {"type": "integer"}, "then": False}),
    ({"$schema": DRAFT_7}, {"dependentRequired": {"a": ["b"]}}),
    ({"$schema": DRAFT_7}, {"prefixItems": [{"type": "integer"}]}),
    ({"$schema": "https://json-schema.org/draft/2019-09/schema"}, {"prefixItems": [{"type": "integer"}]}),
]


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "array", "items": False, "prefixItems": [{}]}, "prefixItems"),
        ({"additionalItems": False, "prefixItems": [{}]}, "prefixItems"),
        ({"type": "array", "contains": {"type": "integer"}, "minContains": 0}, "minContains"),
    ],
)
def test_c2_a_keyword_that_the_draft_lacks_is_refused_where_others_say_less_beside_it(
    schema: dict[str, Any], keyword: str
) -> None:
    for held in (schema, {"properties": {"a": schema}}):
        error = refusal(lambda held=held: GrammarSpec.json_schema({"$schema": DRAFT_7, **held}))  # type: ignore[misc]
        assert error.keyword == keyword
        assert str(error.pointer).endswith(f"/{keyword}")
    validate_spec(GrammarSpec.json_schema(schema))
    alone = {"$schema": DRAFT_7, keyword: schema[keyword]}
    validate_spec(GrammarSpec.json_schema(alone))


@pytest.mark.parametrize(("dialect", "schema"), FOREIGN)
def test_c2_a_keyword_that_the_draft_lacks_is_refused_where_its_failing_would_make_a_value_valid(
    dialect: dict[str, Any], schema: dict[str, Any]
) -> None:
    keyword = next(key for key in schema if key != "type")
    for held in ({"not": schema}, {"if": {"allOf": [schema]}, "then": False}, {"oneOf": [{"type": "null"}, schema]}):
        error = refusal(lambda held=held: GrammarSpec.json_schema({**dialect, **held}))  # type: ignore[misc]
        assert error.keyword == keyword
        assert str(error.pointer).endswith(f"/{keyword}")
    validate_spec(GrammarSpec.json_schema({**dialect, "anyOf": [schema]}))
    other = {} if dialect else {"$schema": DRAFT_7}
    validate_spec(GrammarSpec.json_schema({**other, "not": schema}))
