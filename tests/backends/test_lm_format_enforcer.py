"""The fourth backend: each fault of the bare engine that its adapter repairs, and its table against jsonschema.

Every repair is first shown to be needed: the bare engine, asked in the same way, still has the fault. A test that
fails there says that a new version of the engine has mended it.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from lmformatenforcer import JsonSchemaParser, RegexParser

from grammar_backends import GrammarOptions, GrammarSpec, load_backend, load_vocabulary
from grammar_backends.contract import GrammarBackend
from grammar_backends.errors import SpecError, UnsupportedFeature


@functools.cache
def backend() -> GrammarBackend:
    return load_backend("lm-format-enforcer", load_vocabulary("byte"))


def takes(spec: GrammarSpec, text: str) -> bool:
    grammar = backend().compile_grammar(spec).new_grammar()
    return grammar.accept_tokens("r", list(text.encode())) and grammar.is_accepting()


def engine_takes(parser: Any, text: str) -> bool:
    for character in text:
        if character not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(character)
    return bool(parser.can_end())


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


INTEGER = {"type": "integer"}
STRING = {"type": "string"}

WRONGLY_ACCEPTED = [
    (closed(a=INTEGER, b=INTEGER), '{"a":1,}'),
    ({"type": "number"}, "1.e5"),
    (INTEGER, "-0.5"),
    (INTEGER, "1e-5"),
    ({"type": "string", "maxLength": 2}, '"   "'),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 3}, "[true,true]"),
]


@pytest.mark.parametrize(("schema", "text"), WRONGLY_ACCEPTED)
def test_c3_what_the_bare_engine_wrongly_accepts_is_refused(schema: Any, text: str) -> None:
    assert engine_takes(JsonSchemaParser(schema), text)
    assert not takes(GrammarSpec.json_schema(schema), text)


WRONGLY_REFUSED = [
    (STRING, '"é|~"'),
    ({"enum": [" a"]}, '" a"'),
    ({"type": "string", "maxLength": 1}, r'"\ud83d\ude00"'),
    ({"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, "[true,true,true]"),
    ({"type": "array", "items": INTEGER}, f"[{','.join('1' * 21)}]"),
    ({"anyOf": [{"type": "array", "items": item} for item in (STRING, INTEGER)]}, "[1,2]"),
    ({"enum": [True]}, "true"),
    (STRING, f'"{" " * 13}"'),
]


@pytest.mark.parametrize(("schema", "text"), WRONGLY_REFUSED)
def test_c3_what_the_bare_engine_wrongly_refuses_is_accepted(schema: Any, text: str) -> None:
    assert not engine_takes(JsonSchemaParser(schema), text)
    assert takes(GrammarSpec.json_schema(schema), text)


def test_c3_patterns_reach_over_the_whole_of_unicode() -> None:
    assert not engine_takes(RegexParser("[^a]+"), "日é\n")
    assert takes(GrammarSpec.regex("[^a]+"), "日é\n")


@pytest.mark.parametrize("pattern", [".", "[^é]", "[à-ü]", r"\W", "日|\U0001f600", r"[^\n]{2}"])
def test_a28_a_character_may_begin_exactly_where_one_of_its_beginning_is_legal(pattern: str) -> None:
    grammar = backend().compile_grammar(GrammarSpec.regex(pattern)).new_grammar()
    legal = {chr(code).encode()[0] for code in range(0x3000) if re.match(pattern.removesuffix("{2}"), chr(code), re.A)}
    legal |= {char.encode()[0] for char in "日\U0001f600" if re.match(pattern.removesuffix("{2}"), char, re.A)}
    beginnings = {byte for byte in range(256) if grammar.validate_tokens([byte])}
    assert legal <= beginnings
    assert not beginnings & {*range(0x80, 0xC2), *range(0xF5, 0x100)}


def test_a28_no_token_may_lead_towards_a_surrogate() -> None:
    grammar = backend().compile_grammar(GrammarSpec.regex(".")).new_grammar()
    assert grammar.accept_tokens("r", [0xED])
    assert [byte for byte in range(256) if grammar.validate_tokens([byte])] == list(range(0x80, 0xA0))


def test_c2_8_it_is_never_chosen_automatically() -> None:
    assert backend().spec.priority is None


def test_b5_blanks_are_bounded_outside_of_strings_only() -> None:
    two = GrammarOptions(max_whitespace=2)
    spec = GrammarSpec.json_schema({"type": "array", "items": STRING}, options=two)
    assert takes(spec, '[  "    "]')
    assert not takes(spec, '[   "    "]')
    compact = GrammarSpec.json_schema({"const": {"a": [1, " "]}}, options=GrammarOptions(whitespace="compact"))
    assert takes(compact, '{"a":[1," "]}')
    assert not takes(compact, '{"a": [1," "]}')


REFUSED = [
    {"type": "object", "properties": {"a": INTEGER}},
    {"type": "array", "items": INTEGER, "maxItems": 0},
    {"type": "string", "pattern": "^a$"},
    {"type": "integer", "minimum": 1},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
    {"oneOf": [INTEGER, {"type": "number"}]},
    {"type": "array", "uniqueItems": True},
    {"type": "array", "items": [INTEGER]},
]


@pytest.mark.parametrize("schema", REFUSED, ids=json.dumps)
def test_c3_what_would_not_be_enforced_is_refused_with_its_place(schema: Any) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        backend().compile_grammar(GrammarSpec.json_schema(schema))
    assert caught.value.pointer is not None


@pytest.mark.parametrize("schema", [{"type": "string", "minLength": 3, "maxLength": 2}, {"enum": []}], ids=json.dumps)
def test_b12_what_nothing_satisfies_is_the_clients_fault(schema: Any) -> None:
    with pytest.raises(SpecError) as caught:
        backend().compile_grammar(GrammarSpec.json_schema(schema))
    assert not isinstance(caught.value, UnsupportedFeature)


def test_b14_references_that_multiply_are_bounded() -> None:
    definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(24)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d24": INTEGER}}
    with pytest.raises(UnsupportedFeature):
        backend().compile_grammar(GrammarSpec.json_schema(schema))


LEAVES: list[Any] = [
    {}, INTEGER, STRING, {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {"type": ["integer", "null"]},
    {"enum": ["a", "ab", 1, None]}, {"const": 'a"\\é'}, {"type": "string", "minLength": 1, "maxLength": 2},
]  # fmt: skip


def schemas() -> Iterator[Any]:
    """Each leaf by itself and under everything that holds others."""
    yield from LEAVES
    for leaf in LEAVES:
        yield {"type": "array", "items": leaf}
        yield {"type": "array", "items": leaf, "minItems": 1, "maxItems": 2}
        yield {**closed(a=leaf, **{'b"': leaf}), "required": ["a"]}
        yield {"type": "object", "additionalProperties": leaf}
        yield {"$ref": "#/$defs/leaf", "$defs": {"leaf": leaf}}
    for one, other in itertools.combinations(LEAVES, 2):
        yield {"anyOf": [one, other]}
        yield {"anyOf": [{"type": "array", "items": one}, closed(a=other), {"type": "array", "items": other}]}


SCALARS: list[Any] = [None, True, 0, -1, 12, 1.5, -0.25, "", "a", "ab", "abc", " ", "é", 'a"\\é', "\n", "\U0001f600"]
VALUES: list[Any] = [
    *SCALARS, *([value] for value in SCALARS), [], [1, 1], ["a", "ab"], [1, "a", None], [[True], [True]], {},
    *({"a": value} for value in SCALARS), {"a": 1, 'b"': 2}, {'b"': 1}, {"a": {"a": 1}}, {"a": [], "c": {}}, [{"a": 1}],
]  # fmt: skip
BROKEN = ["[1,]", "[,1]", "[1", "01", "1.", "+1", "1.e1", '{"a":1,}', '{"a" 1}', '"', '"\n"', r'"\x"', "nul", "tru", ""]


@pytest.mark.parametrize("schema", list(schemas()), ids=lambda schema: json.dumps(schema, ensure_ascii=True))
def test_c3_the_table_is_right(schema: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    compiled = backend().compile_grammar(GrammarSpec.json_schema(schema))

    def accepted(text: str) -> bool:
        grammar = compiled.new_grammar()
        return grammar.accept_tokens("r", list(text.encode())) and grammar.is_accepting()

    for value in VALUES:
        for separators in ((",", ":"), (" , ", " : ")):
            text = json.dumps(value, ensure_ascii=False, separators=separators)
            assert accepted(text) == validator.is_valid(value), text
    assert not [text for text in BROKEN if accepted(text)]
