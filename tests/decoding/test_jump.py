"""Jump-forward: what is forced, as the tokenizer's own tokens, on every backend."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grammar_backends import CompiledGrammar, GrammarOptions, GrammarSpec, Vocabulary, load_backend, load_vocabulary
from grammar_backends.contract import Grammar
from grammar_backends.decoding import (
    JumpForward,
    JumpPolicy,
    JumpStatistics,
    MarkerSearch,
    ReasoningGate,
    TokenMarker,
    TriggerGate,
    trim_drafts,
)
from grammar_backends.errors import UnsupportedFeature
from grammar_backends_conformance.benchmarks.jumps import walk
from grammar_backends_conformance.vocabularies import suite_vocabulary

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
BYTE = load_vocabulary("byte")
ALL = JumpPolicy(min_tokens=1)


def compiled(backend: str, spec: GrammarSpec, vocabulary: Vocabulary = BYTE) -> CompiledGrammar:
    return load_backend(backend, vocabulary).compile_grammar(spec)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string"},
        "größe": {"type": "number"},
        "address": {
            "type": "object",
            "properties": {"street_number": {"type": "integer"}, "country": {"enum": ["Germany", "Greece", "日本"]}},
            "required": ["street_number", "country"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"const": "internationalisation"}, "minItems": 2, "maxItems": 2},
    },
    "required": ["first_name", "größe", "address", "tags"],
    "additionalProperties": False,
}
DOCUMENTS = [
    {"first_name": name, "größe": size, "address": {"street_number": number, "country": country}, "tags": tags}
    for name, size, number, country in [
        ("", 0, -1, "Germany"),
        ("Ann 'ü'", 1.75, 12345, "日本"),
        ("\n{", 1e3, 7, "Greece"),
    ]
    for tags in [["internationalisation"] * 2]
]


@pytest.mark.parametrize("vocabulary", ["tekken", "huggingface"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_i3_texts_with_forced_tokens_are_the_tokenizers_own_encoding(backend: str, vocabulary: str) -> None:
    spec = GrammarSpec.json_schema(SCHEMA, options=GrammarOptions(whitespace="compact"))
    made = compiled(backend, spec, suite_vocabulary(vocabulary))
    walks = [
        walk(made, suite_vocabulary(vocabulary), json.dumps(data, ensure_ascii=False, separators=(",", ":")), ALL)
        for data in DOCUMENTS
    ]
    assert [counts.different for counts in walks] == [0, 0, 0]
    assert [counts.refused for counts in walks] == [0, 0, 0]
    assert all(counts.share > 0.3 for counts in walks)  # it forces what it is for


def toy(*merged: bytes) -> Vocabulary:
    """Letters, and longer tokens of which the tokenizer always takes the longest."""
    tokens = [bytes([letter]) for letter in b"abcdxyz"] + list(merged)
    ids = {token: id_ for id_, token in enumerate(tokens)}

    def encode(text: str) -> list[int]:
        found = []
        while text:
            token = max((token for token in ids if text.encode().startswith(token)), key=len)
            found.append(ids[token])
            text = text[len(token) :]
        return found

    return Vocabulary([*tokens, b"<end>"], special_ids=[len(tokens)], stop_ids=[len(tokens)], encode=encode, name="toy")


def found(vocabulary: Vocabulary, pattern: str, output: str = "", policy: JumpPolicy = ALL) -> tuple[list[bytes], int]:
    """The tokens of the jump after an output that is spelled in single letters where it has a dot behind it."""
    grammar = compiled("xgrammar", GrammarSpec.regex(pattern), vocabulary).new_grammar()
    tokens = [id_ for part in output.split(".") for id_ in vocabulary.encode(part)]
    assert grammar.accept_tokens("r", tokens)
    before = grammar.num_accepted
    jump = JumpForward(vocabulary, policy).find(grammar, tokens)
    assert grammar.num_accepted == before
    return [vocabulary.token_bytes(id_) for id_ in jump.tokens], jump.num_replaced


def test_i3_tokens_that_could_merge_with_what_follows_are_left_out() -> None:
    assert found(toy(), "abc[xy]") == ([b"a", b"b", b"c"], 0)
    assert found(toy(b"cx"), "abc[xy]") == ([b"a", b"b"], 0)
    assert found(toy(b"cz"), "abc[xy]") == ([b"a", b"b", b"c"], 0)  # no such text is legal
    assert found(toy(b"bcx"), "abc[xy]") == ([b"a"], 0)
    assert found(toy(b"abc", b"bcx"), "abc[xy]") == ([], 0)
    assert found(toy(b"cxz"), "abc[xy]") == ([b"a", b"b", b"c"], 0)
    assert found(toy(b"cxz"), "abc(xz|y)") == ([b"a", b"b"], 0)
    assert found(toy(b"cxd"), "abc(x?|y)d") == ([b"a", b"b"], 0)
    assert found(toy(b"cx"), "abcx") == ([b"a", b"b", b"cx"], 0)  # nothing can follow


def test_i3_tokens_that_merge_with_what_was_there_are_found_or_replaced() -> None:
    replacing = JumpPolicy(min_tokens=1, may_replace=True)
    merging = toy(b"ab", b"bc")
    assert found(merging, "[ax]bcd", "x") == ([b"bc", b"d"], 0)
    assert found(merging, "[ax]bcd", "a") == ([], 0)
    assert found(merging, "[ax]bcd", "a", replacing) == ([b"ab", b"c", b"d"], 1)
    assert found(toy(b"yab"), "[xy]abcd", "y", replacing) == ([b"yab", b"c", b"d"], 1)
    assert found(toy(b"abc"), "[xa]bcdz", "a", JumpPolicy(min_tokens=3, may_replace=True)) == ([], 0)  # two gained


def test_i3_a_jump_that_replaces_tokens_leaves_output_and_grammar_in_step() -> None:
    vocabulary = toy(b"ab", b"bc")
    grammar = compiled("guidance", GrammarSpec.regex("z[ax]bcd[yz]"), vocabulary).new_grammar()
    output = vocabulary.encode("z") + vocabulary.encode("a")
    grammar.accept_tokens("r", output)
    statistics = JumpStatistics()
    jumper = JumpForward(vocabulary, JumpPolicy(min_tokens=1, may_replace=True))
    assert jumper.take("r", grammar, output, statistics)
    assert output == vocabulary.encode("zabcd")
    assert grammar.num_accepted == len(output) == 4
    assert not jumper.take("r", grammar, output, statistics)
    assert statistics == JumpStatistics(questions=2, jumps=1, tokens_saved=2)


def test_i3_a_character_is_never_cut() -> None:
    vocabulary = suite_vocabulary("huggingface")
    grammar = compiled("xgrammar", GrammarSpec.regex("ab[ä-ö]"), vocabulary).new_grammar()
    assert grammar.forced_bytes().startswith(b"ab")
    for output in ([], vocabulary.encode("a")):
        grammar.reset()
        grammar.accept_tokens("r", output)
        jump = JumpForward(vocabulary, ALL).find(grammar, output)
        assert b"ab".startswith(vocabulary.decode([*output, *jump.tokens]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_i4_short_runs_are_left_to_sampling_and_there_is_an_off_switch(backend: str) -> None:
    made = compiled(backend, GrammarSpec.regex("[xy]abc[xy]abcd[xy]"))
    grammar = made.new_grammar()
    statistics = JumpStatistics()
    output = BYTE.encode("x")
    grammar.accept_tokens("r", output)
    jumper = JumpForward(BYTE)
    assert not jumper.find(grammar, output, statistics)
    grammar.accept_tokens("r", BYTE.encode("abcx"))
    output = BYTE.encode("xabcx")
    assert bytes(jumper.find(grammar, output, statistics).tokens) == b"abcd"
    assert statistics == JumpStatistics(questions=2, jumps=1, tokens_saved=4)
    off = JumpForward(BYTE, JumpPolicy(enabled=False))
    assert not off.find(grammar, output)
    assert off.drafts(grammar, output, 9) == []


def test_i4_a_vocabulary_that_is_not_canonical_forces_nothing() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"<end>"], special_ids=[2], stop_ids=[2])
    grammar = compiled("xgrammar", GrammarSpec.regex("aabba"), vocabulary).new_grammar()
    assert grammar.forced_bytes() == b"aabba"
    assert grammar.forced_tokens() == []
    assert not JumpForward(vocabulary).find(grammar, [])


def test_i1_a_backend_that_cannot_tell_forces_nothing() -> None:
    class Silent:
        def new_matcher(self) -> Any:
            return self

    grammar = Grammar(Silent(), BYTE, BYTE.stop_set, None)
    with pytest.raises(UnsupportedFeature):
        grammar.forced_bytes()
    with pytest.raises(UnsupportedFeature):
        grammar.forced_tokens()
    assert not JumpForward(BYTE).find(grammar, [])


@pytest.mark.parametrize("backend", BACKENDS)
def test_i5_forced_tokens_are_legal_drafts(backend: str) -> None:
    grammar = compiled(backend, GrammarSpec.choice(["abcdx", "abcdy", "zz"])).new_grammar()
    jumper = JumpForward(BYTE)
    assert jumper.drafts(grammar, [], 3) == []
    output = BYTE.encode("a")
    grammar.accept_tokens("r", output)
    drafts = jumper.drafts(grammar, output, 9)
    assert bytes(drafts) == b"bcd"
    assert trim_drafts(grammar, drafts).num_invalid == 0
    assert bytes(jumper.drafts(grammar, output, 2)) == b"bc"
    assert jumper.drafts(grammar, output, -1) == []
    assert bytes(grammar.forced_tokens()) == b"bcd"


@pytest.mark.parametrize(("marker", "content", "num_replaced"), [("ab", "cdx[yz]", 1), ("c", "dx[yz]", 0)])
def test_i6_a_jump_takes_back_what_the_grammar_got_and_nothing_before(
    marker: str, content: str, num_replaced: int
) -> None:
    vocabulary = toy(b"ab", b"cd")
    search = MarkerSearch(vocabulary, [TokenMarker(vocabulary.encode(marker))])
    gate = TriggerGate(compiled("guidance", GrammarSpec.regex(content), vocabulary).new_grammar(), search)
    output = vocabulary.encode("zabc")
    assert gate.accept_tokens("r", output)
    assert gate.forced_bytes() == b"dx"
    jump = JumpForward(vocabulary, JumpPolicy(min_tokens=1, may_replace=True)).take("r", gate, output, JumpStatistics())
    assert jump.num_replaced == num_replaced  # "cd" is the tokenizer's, but "c" may be what opened the gate
    assert gate.is_open
    assert not gate.validate_tokens(vocabulary.encode("b"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_i6_a_closed_gate_forces_nothing_and_an_open_one_what_its_grammar_does(backend: str) -> None:
    unthink = BYTE.tag_names["</think>"]
    gate = ReasoningGate(
        compiled(backend, GrammarSpec.regex("abcdef[xy]")).new_grammar(), MarkerSearch(BYTE, ["</think>"])
    )
    jumper = JumpForward(BYTE)
    output = [*BYTE.encode("abc"), unthink]
    gate.accept_tokens("r", output[:-1])
    assert not jumper.find(gate, output[:-1])
    gate.accept_tokens("r", output[-1:])
    assert bytes(jumper.find(gate, output).tokens) == b"abcdef"  # what was thought is not text of the answer
