"""What the laws cannot see: how the engines below behave, where an adapter hides it, and what adapters add."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
import xgrammar
from llguidance import LLMatcher, LLTokenizer

from grammar_backends import (
    GrammarBackend,
    GrammarOptions,
    GrammarSpec,
    Vocabulary,
    allocate_bitmask,
    load_backend,
    load_vocabulary,
    select_backend,
)
from grammar_backends.contract import unpack_ids
from grammar_backends.contract.bitmask import _views
from grammar_backends.errors import BackendUnavailable, SpecError, UnsupportedFeature

A, B = b"ab"


@functools.cache
def byte_vocabulary() -> Vocabulary:
    return load_vocabulary("byte")


LETTERS = [*(bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyzABCD"), b"<call>", b"<end>"]
"""As many tokens as a word of a row has bits."""


@pytest.mark.parametrize("name", ["xgrammar", "guidance"])
@pytest.mark.parametrize("width", [32, 33, 64])
def test_f17_fill_says_false_exactly_for_rows_of_ones(name: str, width: int) -> None:
    for special, text in (({31}, "start: /[a-zA-Z<>]*/"), ({30, 31}, "start: (/[a-zA-Z]/ | <call>)*")):
        names = {id_: LETTERS[id_].decode() for id_ in special}
        vocabulary = Vocabulary(LETTERS, special_ids=special, stop_ids=[31], special_names=names, width=width)
        grammar = load_backend(name, vocabulary).compile_grammar(GrammarSpec.grammar(text)).new_grammar()
        bitmask = allocate_bitmask(1, width)
        constrains = grammar.fill_bitmask(bitmask, 0)
        assert unpack_ids(bitmask[0]) == list(range(32))
        assert constrains == (width > 32)
        assert grammar.accept_tokens("r", [31])
        assert grammar.fill_bitmask(bitmask, 0)


@functools.cache
def backend_of(name: str) -> GrammarBackend:
    return load_backend(name, byte_vocabulary())


def bare_llguidance(pattern: str, consumed: bytes) -> tuple[LLMatcher, int]:
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_regex(pattern), log_level=0)
    for token in consumed:
        assert matcher.consume_token(token)
    return matcher, tokenizer.eos_token


def test_the_llguidance_stop_tokens_that_the_adapter_hides_still_behave_as_measured() -> None:
    matcher, stop = bare_llguidance("ab", b"ab")
    assert (matcher.is_accepting(), matcher.is_stopped(), matcher.stop_reason()) == (True, True, "NoExtension")
    assert matcher.try_consume_tokens([stop]) == 0
    assert matcher.consume_token(stop)
    assert matcher.rollback(1)
    assert matcher.validate_tokens([B]) == 1  # the stop token was not counted: "b" has gone

    matcher, stop = bare_llguidance("ab", b"ab")
    assert not matcher.consume_tokens([stop])
    assert matcher.is_error()

    matcher, stop = bare_llguidance("ab", b"")
    assert matcher.try_consume_tokens([A, B, stop]) == 2
    matcher, stop = bare_llguidance("ab", b"")
    assert matcher.consume_tokens([A, B, stop])
    assert matcher.rollback(3)
    assert matcher.validate_tokens([A, B]) == 2

    matcher, stop = bare_llguidance("[ab]+", b"ab")
    assert matcher.try_consume_tokens([stop]) == 1
    assert matcher.stop_reason() == "EndOfSentence"
    assert matcher.rollback(1)
    assert matcher.validate_tokens([A, B]) == 2

    matcher, stop = bare_llguidance("ab", b"a")
    assert matcher.validate_tokens([B, stop]) == 2
    assert matcher.try_consume_tokens([B, stop]) == 1


def test_llguidance_still_ruins_a_matcher_at_a_dead_end() -> None:
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark('start: "a" x | "bb"\nx: x'), log_level=0)
    assert matcher.consume_token(A)
    matcher.compute_bitmask()
    assert matcher.get_error().startswith("NoExtensionBias")
    assert not matcher.rollback(1)


def test_i1_guidance_asks_for_no_forced_text_of_lark_which_may_never_end() -> None:
    backend = load_backend("guidance", byte_vocabulary())
    for syntax, text, forced in (
        ("lark", "start: /a+/ /a/", b""),
        ("lark", 'start: "ab" /[cd]/', b""),
        ("ebnf", 'root ::= "ab" [cd]', b"ab"),
    ):
        grammar = backend.compile_grammar(GrammarSpec.grammar(text, syntax)).new_grammar()  # type: ignore[arg-type]
        assert grammar.forced_bytes() == forced
        assert grammar.validate_tokens([A]) == [A]


@pytest.mark.parametrize("block", [1, 60_001])
def test_a19_a_text_beyond_llguidances_limits_costs_no_new_request_and_is_not_refused_in_silence(block: int) -> None:
    backend = load_backend("guidance", byte_vocabulary())
    spec = GrammarSpec.json_schema({"type": "string", "maxLength": 70_000})
    compiled = backend.compile_grammar(spec)
    other, grammar = compiled.new_grammar(), compiled.new_grammar()
    assert other.accept_tokens("other", b'"ab')
    text = b'"' + b"x" * 60_000
    assert not all(grammar.accept_tokens("r", text[at : at + block]) for at in range(0, len(text), block))
    assert re.search("llguidance: its lexer has reached a limit|too many expressions", str(grammar.error))
    # All grammars that were there share the lexer, and say so; those to come do not.
    assert not other.accept_tokens("other", b"c")
    assert "limit" in str(other.error)
    assert compiled.new_grammar().accept_tokens("new", b'"abc"')
    assert backend.compile_grammar(spec).new_grammar().accept_tokens("new", b'"abc"')


def test_i1_forced_text_beyond_llguidances_limits_leaves_the_grammar_as_it_was() -> None:
    schema = {"type": "array", "items": {"const": 1}, "minItems": 12_000}
    spec = GrammarSpec.json_schema(schema, options=GrammarOptions(whitespace="compact"))
    grammar = load_backend("guidance", byte_vocabulary()).compile_grammar(spec).new_grammar()
    assert grammar.forced_bytes().startswith(b"[1,1,1")
    row = allocate_bitmask(1, byte_vocabulary().width)
    grammar.fill_bitmask(row, 0)
    assert unpack_ids(row[0].numpy()) == [ord("[")]
    assert grammar.accept_tokens("r", b"[1,1")


def test_a15_llguidance_still_keeps_a_row_beyond_a_rollback() -> None:
    vocabulary = load_vocabulary("tekken")
    backend = load_backend("guidance", vocabulary)
    compiled = backend.compile_grammar(GrammarSpec.json_schema({"type": "array"}))
    bare = compiled._artifact.pristine.deep_copy()  # type: ignore[attr-defined]  # the adapter's own artifact
    grammar = compiled.new_grammar()
    row = allocate_bitmask(1, vocabulary.width)
    draft, text = vocabulary.encode('[["x"'), vocabulary.encode("[[]")
    [both] = vocabulary.encode("]]")

    bare.consume_tokens(draft)
    bare.compute_bitmask()
    bare.rollback(len(draft))
    bare.consume_tokens(text)
    assert both in unpack_ids(np.frombuffer(bare.compute_bitmask(), np.int32))

    grammar.accept_tokens("r", draft)
    grammar.fill_bitmask(row, 0)
    grammar.rollback(len(draft))
    grammar.accept_tokens("r", text)
    grammar.fill_bitmask(row, 0)
    assert both not in unpack_ids(row[0].numpy())
    assert grammar.validate_tokens([both]) == []


@pytest.mark.parametrize("cached", [True, False])
def test_a12_xgrammars_cache_still_gives_rules_the_masks_of_others(cached: bool) -> None:
    tokens = [*(bytes([value]) for value in range(256)), b"<eos>"]
    info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=cached)
    matcher = xgrammar.GrammarMatcher(compiler.compile_grammar(xgrammar.Grammar.from_ebnf('root ::= "é" | "éa"')))
    assert all(map(matcher.accept_token, "é".encode()))
    row = xgrammar.allocate_token_bitmask(1, 257)
    matcher.fill_next_token_bitmask(row)
    assert set(unpack_ids(row[0])) == ({256} if cached else {ord("a"), 256})


def test_b5_a_schema_cannot_switch_off_its_own_enforcement() -> None:
    schema = {"x-guidance": {"lenient": True}, "type": "array", "uniqueItems": True}
    with pytest.raises(UnsupportedFeature):
        backend_of("guidance").compile_grammar(GrammarSpec.json_schema(schema))


@pytest.mark.parametrize("name", ["xgrammar", "guidance", "outlines"])
def test_a33_compiling_and_filling_leave_no_views_behind(name: str) -> None:
    before = len(_views)
    for _ in range(5):
        compiled = backend_of(name).compile_grammar(GrammarSpec.regex("[ab]+c?"))
        compiled.new_grammar().fill_bitmask(allocate_bitmask(1, byte_vocabulary().width), 0)
    gc.collect()
    assert len(_views) <= before


@pytest.mark.parametrize("text", ["[true , false]", "[ true\n,\tfalse ]", "[true,false]"])
def test_b5_outlines_takes_white_space_before_the_commas_of_arrays(text: str) -> None:
    spec = GrammarSpec.json_schema({"type": "array", "items": {"type": "boolean"}})
    grammar = backend_of("outlines").compile_grammar(spec).new_grammar()
    assert grammar.accept_tokens("r", byte_vocabulary().encode(text))
    assert grammar.is_accepting()


def test_b5_the_commas_inside_strings_get_no_white_space() -> None:
    spec = GrammarSpec.json_schema({"enum": ["a,b", "\ue000,\ue001"]})
    grammar = backend_of("outlines").compile_grammar(spec).new_grammar()
    encode = byte_vocabulary().encode
    assert grammar.validate_tokens(encode('"a, b"')) == encode('"a,')
    assert grammar.accept_tokens("r", encode('"\ue000,\ue001"'))
    assert grammar.is_accepting()


def test_b10_guidance_refuses_a_tag_that_names_a_control_token() -> None:
    vocabulary = Vocabulary.from_bytes(
        [*(bytes([value]) for value in range(256)), b"<eos>", b"<call>"], [256, 257], [256]
    )
    backend = load_backend("guidance", vocabulary)
    for begin, end, place in (("<call>", "</f>", "begin"), ("<f>", "<call>", "end")):
        tag = {"structures": [{"begin": begin, "schema": {"type": "object"}, "end": end}], "triggers": [begin]}
        spec = GrammarSpec.structural_tag(tag)
        with pytest.raises(UnsupportedFeature, match=f"control token <call>.* at /structures/0/{place}"):
            backend.check_spec(spec)
        assert select_backend(spec, vocabulary).backend.name == "xgrammar"


def test_b14_limits_of_llguidance_are_options_of_its_backend() -> None:
    schema = GrammarSpec.json_schema({"type": "object"})
    load_backend("guidance", byte_vocabulary(), {"max_grammar_size": 100_000}).compile_grammar(schema)
    narrow = load_backend("guidance", byte_vocabulary(), {"max_grammar_size": 5})
    with pytest.raises(UnsupportedFeature, match="grammar size"):
        narrow.compile_grammar(schema)


@pytest.mark.parametrize("name", ["xgrammar", "guidance", "outlines", "lm-format-enforcer"])
def test_b14_an_option_that_a_backend_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(BackendUnavailable, match="has no option 'max_gramar_size'"):
        load_backend(name, byte_vocabulary(), {"max_gramar_size": 5})


def test_c3_a_keyword_that_asserts_nothing_does_not_cost_outlines_another_one() -> None:
    spec = GrammarSpec.json_schema({"type": "string", "minLength": 0, "pattern": "^[0-9]+$"})
    grammar = backend_of("outlines").compile_grammar(spec).new_grammar()
    assert grammar.validate_tokens(byte_vocabulary().encode('"12"')) == list(b'"12"')
    assert grammar.validate_tokens(byte_vocabulary().encode('"a"')) == list(b'"')
    with pytest.raises(UnsupportedFeature, match="maxLength is not enforced beside pattern"):
        backend_of("outlines").compile_grammar(GrammarSpec.json_schema({**spec.value, "maxLength": 3}))


@pytest.mark.parametrize("name", ["xgrammar", "guidance", "outlines", "lm-format-enforcer", "auto"])
@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        *(
            ({**combined, "properties": {}}, {})
            for combined in (
                {"$ref": "#/$defs/text"},
                {"allOf": [{"type": "string"}]},
                {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                {"enum": ["a", 7]},
                {"const": "a"},
            )
        ),
        *(
            ({"type": "array", "items": {"type": "string"}, "minItems": least, "maxItems": most}, ["a"] * most)
            for least, most in ((1, 0), (2, 0), (2, 1), (3, 1))
        ),
        ({"$ref": "#/$defs/texts", "maxItems": 0}, []),
        ({"allOf": [{"$ref": "#/$defs/texts"}, {"maxItems": 0}]}, []),
    ],
)
def test_c2_neither_silent_keywords_nor_counts_that_contradict_each_other_let_a_wrong_value_pass(
    name: str, schema: dict[str, Any], wrong: Any
) -> None:
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    whole = {"type": "array", "items": schema, "$defs": {"text": {"type": "string"}, "texts": texts}}
    spec = GrammarSpec.json_schema(whole)
    try:
        backend = select_backend(spec, byte_vocabulary()).backend if name == "auto" else backend_of(name)
        grammar = backend.compile_grammar(spec).new_grammar()
    except SpecError:
        assert name not in ("guidance", "auto")
        return
    text = list(byte_vocabulary().encode(json.dumps([wrong], separators=(",", ":"))))
    assert len(grammar.validate_tokens(text)) < len(text)


def xgrammar_takes(pattern: str, text: str) -> bool:
    """Whether the bare engine takes a string for one of a schema's pattern."""
    tokens = [*(bytes([value]) for value in range(256)), b"<eos>"]
    info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256])
    schema = json.dumps({"type": "string", "pattern": pattern})
    compiled = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False).compile_json_schema(schema)
    matcher = xgrammar.GrammarMatcher(compiled)
    return all(map(matcher.accept_token, f'"{text}"'.encode())) and matcher.is_completed()


def test_c3_xgrammar_still_goes_on_inside_of_an_optional_group_that_it_has_left_out() -> None:
    assert xgrammar_takes("^(ab+)?c$", "bc")
    assert not xgrammar_takes("^(ab+){0,1}c$", "bc")
    assert xgrammar_takes("^(?:a|a{1,2})$", "aaa")


@pytest.mark.parametrize(
    "pattern", ["^(ab+)?c$", r"^v(\.\d+)?$", r"^(?:[)]?a*)?\)?b$", "^((x[ab]{1,3})?c)?$", "^(a{1,2}|a)$"]
)
def test_c3_patterns_with_optional_groups_and_options_mean_what_they_say(pattern: str) -> None:
    texts = ["".join(chosen) for length in range(4) for chosen in itertools.product("abcxv.1)", repeat=length)]
    named = {"type": "object", "patternProperties": {pattern: {}}, "additionalProperties": False}
    for name, schema in itertools.product(("xgrammar", "guidance"), ({"type": "string", "pattern": pattern}, named)):
        try:
            compiled = backend_of(name).compile_grammar(GrammarSpec.json_schema(schema))
        except UnsupportedFeature:
            assert (name, "|" in pattern) == ("xgrammar", True)
            continue
        for text in texts:
            grammar = compiled.new_grammar()
            written = f'{{"{text}":1}}' if schema is named else f'"{text}"'
            accepted = grammar.accept_tokens("r", byte_vocabulary().encode(written)) and grammar.is_accepting()
            assert accepted == (re.search(pattern, text) is not None), text
