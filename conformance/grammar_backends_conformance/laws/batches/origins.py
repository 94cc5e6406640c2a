"""The grammars that walks are over: small languages on every backend, and a vocabulary in which some have dead ends."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from grammar_backends import GrammarSpec, Vocabulary, load_backend
from grammar_backends.errors import GrammarBackendsError
from grammar_backends_conformance.laws.batches.oracle import Origin
from grammar_backends_conformance.laws.batches.walk import MAX_DRAFTS

__all__ = ["gapped_vocabulary", "origins"]

SPECS = {
    "runs": GrammarSpec.regex("[ab]+c?"),
    "choice": GrammarSpec.choice(["yes", "no", "yes please", "bxa", "bb"]),
    "flags": GrammarSpec.json_schema({"type": "array", "items": {"type": "boolean"}}),
    "record": GrammarSpec.json_schema(
        {
            "type": "object",
            "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    ),
    "nested": GrammarSpec.grammar('root ::= "(" root ")" | "ab" | root "+" root', syntax="ebnf"),
}

BOUND = MAX_DRAFTS + 4


def gapped_vocabulary() -> Vocabulary:
    """Letters without x, so that some texts cannot be spelled to their end; two stop tokens, and padded rows."""
    letters = [bytes([byte]) for byte in range(32, 127) if byte != ord("x")]
    longer = [b"ab", b"aab", b"es", b"ye", b' "', b'":', b"true", b"]]", b"))"]
    special = [b"<pad>", b"<end>", b"<stop>"]
    first = len(letters) + len(longer)
    return Vocabulary.from_bytes(
        [*letters, *longer, *special], special_ids=range(first, first + 3), stop_ids=[first + 1, first + 2], width=150
    )


def origins(vocabulary: Vocabulary, backends: Iterable[str]) -> dict[str, Origin]:
    """Every spec on every backend that can, with the vocabulary's stop tokens and others, unbounded and bounded."""
    made: dict[str, Origin] = {}
    other_stops = [vocabulary.stop_ids[0], vocabulary.encode("b")[0]]
    for backend in backends:
        engine = load_backend(backend, vocabulary)
        for name, spec in SPECS.items():
            try:
                compiled = engine.compile_grammar(spec)
            except GrammarBackendsError:
                continue
            made[f"{name}/{backend}"] = compiled.new_grammar
            made[f"{name}/{backend}/bounded"] = partial(compiled.new_grammar, max_rollback=BOUND)
            made[f"{name}/{backend}/stops"] = partial(compiled.new_grammar, stop_token_ids=other_stops)
    return made
