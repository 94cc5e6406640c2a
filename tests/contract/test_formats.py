"""Formats as patterns (D4): each against texts that were labelled by hand from its specification."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grammar_backends import GrammarSpec, load_backend, load_vocabulary
from grammar_backends.contract.formats import FORMAT_PATTERNS, FORMAT_SHAPES
from grammar_backends.errors import UnsupportedFeature
from grammar_backends_conformance.oracles.formats import FORMATS
from grammar_backends_conformance.probing.formats import SAMPLES

MORE = {
    "iri": (
        ["a:", "a:/", "a://", "x:?\ue000", "http://[v1.a:b]/", "http://a:1"],
        ["a:#\ue000", "http://[::1", "a:%a", "a:\\"],
    ),
    "regex": (
        [r"^(?:[\w.-]+/)*(a|b){2,5}?$", r"^(?!a|b)\u00e9.*", "((((a))))", "a||", "[^-a-c-]", r"\$\{[A-Z_]+\}", "日"],
        ["[]", "[b-a]", "a{3,2}", "(?=a)*", "^*", r"\p{L}", r"\1", "(?<n>a)", "(?P<n>a)", "(?<=a)", "]", "a{", "\\"],
    ),
    "uri": (["a:", "a:/b//c", "http://[1:2::3]:80?#", "a:b@c:d"], ["a:é", "http://a:b/", "http://[1::2::3]", "a:[b]"]),
    "uri-reference": (["./a:b", "//", "a@b", "?:/?"], ["a:b:[", ":a", "//[a]", "1:a"]),
    "iri-reference": (["\u00e9@\U00010000", "//日本:1/", "?\ue000"], [":\u00e9", "\ufffe", "#\ue000"]),
    "uri-template": (
        ["{a.b}", "{a%20}", "{=x}", "日本", "a%20b", "{x:9999,y*}"],
        ["{x:0}", "{x:10000}", "{a..b}", "{.}", "'", "%"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMAT_PATTERNS)
def test_d4_a_format_is_what_its_specification_says(name: str) -> None:
    more = MORE.get(name, ([], []))
    for texts, extra, is_valid in zip(SAMPLES[name], more, (True, False), strict=True):
        for text in (*texts, *extra):
            assert bool(re.search(FORMAT_PATTERNS[name], text)) == is_valid, text
            if name in FORMATS and text.isascii() and "[" not in text:
                assert FORMATS[name](text) == is_valid


@pytest.mark.parametrize("name", FORMAT_SHAPES)
def test_d4_every_text_of_a_format_has_its_shape(name: str) -> None:
    right, wrong = SAMPLES[name]
    more = MORE.get(name, ([], []))[0]
    assert [text for text in (*right, *more) if not re.search(FORMAT_SHAPES[name], text)] == []
    assert not all(re.search(FORMAT_SHAPES[name], text) for text in wrong)


@settings(max_examples=500, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.from_regex(FORMAT_PATTERNS["regex"], fullmatch=True))
def test_d4_every_text_of_the_format_regex_is_one(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of sets in sets
        re.compile(text)


def test_d4_seconds_leap_at_the_end_of_a_day_only() -> None:
    for name, day in (("time", ""), ("date-time", "2016-12-31T")):
        assert re.search(FORMAT_PATTERNS[name], f"{day}23:59:60Z")
        assert not re.search(FORMAT_PATTERNS[name], f"{day}22:59:60Z")


@pytest.mark.parametrize("name", FORMAT_PATTERNS)
@pytest.mark.parametrize("backend", ["guidance", "xgrammar"])
def test_d4_an_engine_that_does_not_know_a_format_enforces_its_pattern(backend: str, name: str) -> None:
    vocabulary = load_vocabulary("byte")
    spec = GrammarSpec.json_schema({"type": "string", "format": name})
    try:
        compiled = load_backend(backend, vocabulary).compile_grammar(spec)
    except UnsupportedFeature:  # alternatives of the pattern begin alike
        assert backend == "xgrammar"
        assert name not in ("duration", "json-pointer", "relative-json-pointer", "uuid")
        return
    for texts, is_valid in zip(SAMPLES[name], (True, False), strict=True):
        for text in texts:
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            grammar = compiled.new_grammar()
            accepted = grammar.accept_tokens("r", vocabulary.encode(f'"{escaped}"')) and grammar.is_accepting()
            assert accepted == is_valid, text
