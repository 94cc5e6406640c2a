"""xgrammar's JSON of a compiled grammar, reduced: the same grammar, and no more than it needs."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest

from grammar_backends import GrammarBackend, GrammarSpec, load_backend, load_vocabulary
from grammar_backends.contract import CompiledGrammar
from grammar_backends.errors import ArtifactError
from grammar_backends_xgrammar.engine import SERIAL_LIMIT
from grammar_backends_xgrammar.serial import estimated_bytes, reduced

POINT = {
    "type": "object",
    "properties": {"x": {"type": "string", "pattern": "^[a-z]{1,9}$"}, "y": {"enum": [1]}},
    "additionalProperties": False,
}
LARGE = GrammarSpec.json_schema(
    {"type": "object", "properties": {f"p{number}": POINT for number in range(20)}, "additionalProperties": False}
)
SPECS = {
    "large": LARGE,
    "repeats": GrammarSpec.regex(r"([a-z]{3,400}, ){2,60}end"),
    "recursive": GrammarSpec.json_schema(
        {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    ),
    "lark": GrammarSpec.grammar('start: "a" b* "c"\nb: /[0-9]+/ | "(" start ")"', "lark"),
    "legacy": GrammarSpec.structural_tag(
        {"structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}], "triggers": ["<f"]}
    ),
    "format": GrammarSpec.structural_tag(
        {
            "format": {
                "type": "triggered_tags",
                "triggers": ["<f"],
                "tags": [
                    {"begin": "<f>", "content": {"type": "json_schema", "json_schema": LARGE.value}, "end": "</f>"}
                ],
            }
        }
    ),
}


@functools.cache
def backend() -> GrammarBackend:
    return load_backend("xgrammar", load_vocabulary("byte"))


@functools.cache
def compiled(name: str) -> CompiledGrammar:
    return backend().compile_grammar(SPECS[name])


def native(grammar: CompiledGrammar) -> Any:
    return grammar._artifact._compiled  # type: ignore[attr-defined]  # the adapter's own


@functools.cache
def whole() -> str:
    """What xgrammar writes for the large schema."""
    return str(native(compiled("large")).serialize_json())


def rows(grammar: CompiledGrammar, seed: int) -> list[bytes]:
    """The rows along a random text."""
    rng, state, found = np.random.default_rng(seed), grammar.new_grammar(), []
    row = np.empty((1, backend().vocabulary.words), dtype=np.int32)
    for _ in range(150):
        state.fill_bitmask(row, 0)
        found.append(row.tobytes())
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        text = allowed[allowed < 256]
        if not len(text):
            break
        assert state.accept_tokens("r", [int(rng.choice(text))])
    return found


@pytest.mark.parametrize("name", SPECS)
def test_e6_a_reduced_grammar_goes_every_way_that_the_compiled_one_goes(name: str) -> None:
    loaded = backend().load_grammar(SPECS[name], backend().dump_grammar(compiled(name)))
    for seed in range(20):
        assert rows(loaded, seed) == rows(compiled(name), seed)


def test_b11_a_reduced_grammar_holds_no_copies_for_each_rule() -> None:
    small = reduced(whole())
    assert len(small) < len(whole()) / 4
    parts = [rule[0][0] for rule in json.loads(small)["grammar"]["per_rule_fsms"] if rule is not None]
    edges = json.loads(small)["grammar"]["complete_fsm"]["edge_num"]
    assert sum(part["edge_num"] for part in parts) <= edges
    assert all(part["edges"]["indptr_"][-1] == len(part["edges"]["data_"]) == part["edge_num"] for part in parts)


def test_e6_reducing_twice_is_reducing_once() -> None:
    once = reduced(whole())
    assert reduced(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "{}",
        '{"grammar":{}}',
        '{"grammar":{"complete_fsm":{"edges":[]},"per_rule_fsms":[[[{"other":1},0,[],false,0],1,1]]}}',
        '{"grammar":{"complete_fsm":{"edges":[]},"per_rule_fsms":[[[{"edges":[]},0,[],false,0],1,1]]}}',
        '{"grammar":{"complete_fsm":{},"per_rule_fsms":[[[{},0]]]}}',
    ],
)
def test_e6_json_of_another_form_is_left_as_it_is(text: str) -> None:
    assert reduced(text) == text


def test_b11_the_estimate_of_a_large_grammar_is_of_the_right_size() -> None:
    assert len(whole()) / 3 < estimated_bytes(str(native(compiled("large")).grammar)) < len(whole()) * 3


@functools.cache
def enormous() -> GrammarSpec:
    """A grammar that compiles fast, and whose JSON would be larger than any limit."""
    rules = "\n".join(f'r{n} ::= "a{n}" r{n} "b" | "c{n}"' for n in range(2_200))
    return GrammarSpec.grammar(f"root ::= {' | '.join(f'r{n}' for n in range(2_200))}\n{rules}", "ebnf")


def test_b11_what_would_be_too_large_is_not_written() -> None:
    grammar = backend().compile_grammar(enormous())
    assert estimated_bytes(str(native(grammar).grammar)) > SERIAL_LIMIT
    with pytest.raises(ArtifactError, match="too large"):
        backend().dump_grammar(grammar)
