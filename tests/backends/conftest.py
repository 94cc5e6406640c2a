"""Every backend with three vocabularies, and samples of every kind of constraint with texts of their language.

A test that takes `lab` runs for each backend with each vocabulary; `byte_lab`, `tekken_lab`, `tricky_lab` and
`small_lab` for each backend with that one; with `sample` for each constraint that the backend enforces. Engines and
compiled grammars are made once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from grammar_backends.contract import CompiledGrammar, Grammar, GrammarBackend, GrammarSpec, Vocabulary
from grammar_backends.contract import unpack_ids as ids_of
from grammar_backends.plugins import PluginHost
from grammar_backends_conformance.vocabularies import suite_vocabulary

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
VOCABULARIES = ("byte", "tekken", "tricky")

SMALL = [b"a", b"b", b"ab", b"<eos>"]
"""Too few tokens to spell every text."""


@dataclass(frozen=True)
class Sample:
    """A constraint, texts of its language, and texts outside it that stay legal up to their last character."""

    name: str
    spec: GrammarSpec
    texts: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    only: frozenset[str] = frozenset(BACKENDS)


RECORD = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "n": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
COLOURS = {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 3}
TAG = {
    "structures": [{"begin": "<f>", "schema": {"type": "object", "properties": {}}, "end": "</f>"}],
    "triggers": ["<f>"],
}
PARSERS = frozenset({"xgrammar", "guidance"})

SAMPLES = [
    Sample(
        "record",
        GrammarSpec.json_schema(RECORD),
        ('{"name": "a\\n日é", "n": 120}', '{"name": "", "n": 0, "ok": true}', '{"name":"b","n":-7,"ok":false}'),
        ('{"name": "a", "n": 1.', '{"x', '{"name": 1'),
    ),
    Sample("colours", GrammarSpec.json_schema(COLOURS), ('["red"]', '["green", "red", "red"]'), ("[]", '["rod')),
    Sample("runs", GrammarSpec.regex("[ab]+c?"), ("a", "abab", "bbaaaaaaaabc"), ("c", "abca")),
    Sample("cycle", GrammarSpec.regex("(abc)*"), ("", "abc", "abcabc"), ("aba", "abcb")),
    Sample("accents", GrammarSpec.regex("(é|日x?){1,3}b?"), ("éé", "日日xéb", "日b"), ("b", "éx", "ééé日")),
    Sample("anything", GrammarSpec.regex('[^"]*'), ("", "日é<f> {a}\n", "<think></think>"), ('a"',)),
    Sample(
        "choice",
        GrammarSpec.choice(["yes", "no", "yes please", "日\n\\"]),
        ("yes", "yes please", "日\n\\"),
        ("yesp",),
    ),
    Sample(
        "pairs",
        GrammarSpec.grammar('root ::= "(" root ")" | "x"', "ebnf"),
        ("x", "((((x))))"),
        (")", "(x))"),
        PARSERS,
    ),
    Sample(
        "lark",
        GrammarSpec.grammar('start: "(" start ")" | X\nX: /[a-c]{1,2}/', "lark"),
        ("a", "((bc))"),
        ("()",),
        PARSERS,
    ),
    Sample(
        "object",
        GrammarSpec.json_object(),
        ("{}", '{"name": [1, {"a": null}]}'),
        ("[", "{1"),
        PARSERS | {"lm-format-enforcer"},
    ),
    Sample("tag", GrammarSpec.structural_tag(TAG), ("", "a日 <f>{}</f> b"), ("<f>[",), PARSERS),
]


@dataclass(frozen=True)
class State:
    """All that can be observed of a grammar."""

    allowed: tuple[int, ...]
    accepting: bool
    terminated: bool
    num_accepted: int
    error: Any


@dataclass
class Lab:
    """One backend with one vocabulary, and what tests do with them."""

    backend: GrammarBackend
    _compiled: dict[GrammarSpec, CompiledGrammar] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.backend.name

    @property
    def vocabulary(self) -> Vocabulary:
        return self.backend.vocabulary

    @property
    def stop(self) -> int:
        return self.vocabulary.stop_ids[0]

    @property
    def full(self) -> bool:
        """Whether rows have exactly the tokens that are accepted (A12)."""
        return self.backend.capabilities.mask == "full"

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        if spec not in self._compiled:
            self._compiled[spec] = self.backend.compile_grammar(spec)
        return self._compiled[spec]

    def grammar(self, spec: GrammarSpec, text: str = "", **options: Any) -> Grammar:
        """A grammar after the tokenizer's own encoding of `text`."""
        grammar = self.compile(spec).new_grammar(**options)
        if not grammar.accept_tokens("lab", self.encode(text)):
            raise AssertionError(f"{self.name} refuses {text!r} for {spec.text}")
        return grammar

    def encode(self, text: str) -> list[int]:
        return self.vocabulary.encode(text)

    def token(self, data: bytes) -> int:
        """The first text token with these bytes."""
        return self.vocabulary.text_tokens.index(data)

    def row(self, grammar: Grammar, stale: int = -1) -> NDArray[np.int32]:
        bitmask = np.full((1, self.vocabulary.words), stale, dtype=np.int32)
        grammar.fill_bitmask(bitmask, 0)
        return bitmask[0]

    def allowed(self, grammar: Grammar) -> set[int]:
        return set(ids_of(self.row(grammar)))

    def state(self, grammar: Grammar) -> State:
        allowed = () if grammar.error else tuple(ids_of(self.row(grammar)))
        return State(allowed, grammar.is_accepting(), grammar.is_terminated(), grammar.num_accepted, grammar.error)

    def illegal(self, grammar: Grammar) -> int:
        """A text token that is not legal now."""
        return next(
            id_ for id_, token in enumerate(self.vocabulary.text_tokens) if token and not grammar.validate_tokens([id_])
        )

    def some_ids(self) -> Sequence[int]:
        """Every id of a row; of a large vocabulary all special ids and 3,000 others, spread evenly."""
        width = self.vocabulary.width
        if width < 10_000:
            return range(width)
        return sorted({*self.vocabulary.special_ids, *range(7, width, width // 3000), width - 1})


@functools.cache
def _vocabulary(name: str) -> Vocabulary:
    if name == "small":
        return Vocabulary.from_bytes(SMALL, [3], [3], name="small")
    return suite_vocabulary("adversarial" if name == "tricky" else name)


@functools.cache
def _host() -> PluginHost:
    return PluginHost()


@functools.cache
def _lab(backend: str, vocabulary: str) -> Lab:
    tokens = _vocabulary(vocabulary)
    engine = _host().create_engine(backend, tokens)
    return Lab(GrammarBackend(_host().backend(backend), engine, tokens, judge=lambda spec: None))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = {"lab": VOCABULARIES, **{f"{name}_lab": (name,) for name in (*VOCABULARIES, "small")}}
    for fixture, vocabularies in wanted.items():
        if fixture not in metafunc.fixturenames:
            continue
        pairs = [(backend, vocabulary) for backend in BACKENDS for vocabulary in vocabularies]
        if "sample" not in metafunc.fixturenames:
            metafunc.parametrize(fixture, pairs, ids=["-".join(pair) for pair in pairs], indirect=True)
            continue
        cases = [(pair, sample) for pair in pairs for sample in SAMPLES if pair[0] in sample.only]
        names = [f"{pair[0]}-{pair[1]}-{sample.name}" for pair, sample in cases]
        metafunc.parametrize((fixture, "sample"), cases, ids=names, indirect=[fixture])


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Lab:
    return _lab(*request.param)


byte_lab = tricky_lab = tekken_lab = small_lab = lab


@pytest.fixture
def runs() -> GrammarSpec:
    """``[ab]+c?``: accepting after every letter, and can be extended until "c"."""
    return GrammarSpec.regex("[ab]+c?")


@pytest.fixture
def word() -> GrammarSpec:
    """Just "ab"."""
    return GrammarSpec.choice(["ab"])


@pytest.fixture
def record() -> GrammarSpec:
    return GrammarSpec.json_schema(RECORD)


@pytest.fixture
def dead_end() -> GrammarSpec:
    """With the vocabulary `small`: no way on after "a"; outlines-core refuses to compile it."""
    return GrammarSpec.choice(["ax", "bb"])
