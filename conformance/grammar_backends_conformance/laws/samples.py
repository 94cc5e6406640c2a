"""Sample constraints: small languages whose every answer is known, each written in as many kinds as can express it.

A law asks for what it needs by property (`growing`, `closed`, `loop`, ...), and gets it in a kind that the backend
declares, so that a backend with any one kind can be judged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grammar_backends.contract import Capabilities, GrammarKind, GrammarSpec
from grammar_backends.errors import CompileError, SpecError, UnsupportedFeature

if TYPE_CHECKING:
    from grammar_backends_conformance.laws.lab import Lab

__all__ = ["LANGUAGES", "Language", "Loop", "Sample", "declares", "sample_names", "samples_for"]


@dataclass(frozen=True)
class Loop:
    """Texts of any length: ``head + body * n + tail`` is of the language for every n up to `most`."""

    head: str
    body: str
    tail: str = ""
    most: int = 10**9

    def text(self, times: int) -> str:
        return self.head + self.body * min(times, self.most) + self.tail


@dataclass(frozen=True)
class Language:
    """A language, by texts of which everything is known.

    Attributes:
        name: stable.
        writings: the same language as specs, by `WRITINGS`.
        texts: of the language.
        partial: not of the language, but every one can become such a text.
        wrong: legal up to the last character, which no text of the language can have there.
        growing: two texts of the language, the first a proper prefix of the second.
        closed: texts of the language that nothing can follow.
        loop: texts of any length.
        truth: a pattern of the same language, for an oracle; None where there is none.
    """

    name: str
    writings: Mapping[str, GrammarSpec] = field(repr=False)
    texts: tuple[str, ...]
    partial: tuple[str, ...]
    wrong: tuple[str, ...]
    growing: tuple[str, str] | None = None
    closed: tuple[str, ...] = ()
    loop: Loop | None = None
    truth: str | None = None


@dataclass(frozen=True)
class Sample:
    """A language in one writing.

    Attributes:
        name: stable: the language's name and the writing's.
        spec: what is compiled.
        language: what is known about it.
    """

    name: str
    spec: GrammarSpec
    language: Language

    @property
    def texts(self) -> tuple[str, ...]:
        return self.language.texts

    @property
    def partial(self) -> tuple[str, ...]:
        return self.language.partial

    @property
    def wrong(self) -> tuple[str, ...]:
        return self.language.wrong

    @property
    def longest(self) -> str:
        """The longest of `texts`."""
        return max(self.texts, key=len)


WRITINGS = ("regex", "choice", "json_schema", "json_object", "ebnf", "gbnf", "lark", "legacy", "format")
"""How a language can be written: kinds, the syntaxes of grammars, and the forms of structural tags."""


def declares(capabilities: Capabilities, writing: str) -> bool:
    """Whether a backend declares what a writing needs."""
    if writing in ("ebnf", "gbnf", "lark"):
        return GrammarKind.GRAMMAR in capabilities.kinds and writing in capabilities.syntaxes
    if writing in ("legacy", "format"):
        return GrammarKind.STRUCTURAL_TAG in capabilities.kinds and writing in capabilities.structural_tags
    return GrammarKind(writing) in capabilities.kinds


def samples_for(lab: Lab) -> list[Sample]:
    """Every language that the backend enforces, in one writing; further ones, so that each declared writing occurs."""
    kept: list[Sample] = []
    seen: set[str] = set()
    for language in LANGUAGES:
        writings = [name for name in language.writings if declares(lab.capabilities, name)]
        # A writing that did not occur yet comes first, so that few samples show many writings.
        for name in sorted(writings, key=seen.__contains__):
            if enforces(lab, language.writings[name]):
                kept.append(_sample(language, name))
                seen.add(name)
                break
    return kept + list(_of_other_writings(lab, seen))


def sample_names() -> list[str]:
    """The names of all samples, also of those that some backend does not enforce."""
    return [_sample(language, writing).name for language in LANGUAGES for writing in language.writings]


def _of_other_writings(lab: Lab, seen: set[str]) -> Iterator[Sample]:
    for name in WRITINGS:
        if name in seen or not declares(lab.capabilities, name):
            continue
        for language in LANGUAGES:
            if name in language.writings and enforces(lab, language.writings[name]):
                yield _sample(language, name)
                break


def all_samples(lab: Lab, writing: str) -> list[Sample]:
    """Every language that the backend enforces in this writing."""
    return [
        _sample(language, writing)
        for language in LANGUAGES
        if writing in language.writings and enforces(lab, language.writings[writing])
    ]


def _sample(language: Language, writing: str) -> Sample:
    return Sample(f"{language.name}-{writing}", language.writings[writing], language)


def enforces(lab: Lab, spec: GrammarSpec) -> bool:
    """Whether a backend does not say that it would not enforce a spec; what else goes wrong is for laws to find."""
    try:
        lab.backend.compile_grammar(spec)
    except UnsupportedFeature:
        return False
    except (SpecError, CompileError):
        return True
    return True


def _grammars(ebnf: str, lark: str) -> dict[str, GrammarSpec]:
    return {
        "ebnf": GrammarSpec.grammar(ebnf, "ebnf"),
        "gbnf": GrammarSpec.grammar(ebnf, "gbnf"),
        "lark": GrammarSpec.grammar(lark, "lark"),
    }


def _texts(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


_UNITS = ("é", "日", "日x")
_ACCENTS = _texts(
    "".join(units) + tail for n in (1, 2, 3) for units in itertools.product(_UNITS, repeat=n) for tail in ("", "b")
)
_STAIRS = _texts("ab" * n for n in range(1, 31))
_REPLIES = ("yes", "no", "yes please", "日\n\\")

_RECORD = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "n": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
_COLOURS = {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 3}
_TAG = {
    "structures": [{"begin": "<f>", "schema": {"type": "object", "properties": {}}, "end": "</f>"}],
    "triggers": ["<f>"],
}

LANGUAGES = (
    Language(
        "runs",
        {
            "regex": GrammarSpec.regex("[ab]+c?"),
            **_grammars('root ::= [ab]+ "c"?', 'start: /[ab]+/ "c"?'),
            "format": GrammarSpec.structural_tag({"format": {"type": "regex", "pattern": "[ab]+c?"}}),
        },
        texts=("a", "abab", "bbaaaaaaaabc"),
        partial=("",),
        wrong=("c", "abca"),
        growing=("a", "abab"),
        closed=("abc",),
        loop=Loop("a", "ab"),
        truth="[ab]+c?",
    ),
    Language(
        "word",
        {
            "choice": GrammarSpec.choice(["ab"]),
            "regex": GrammarSpec.regex("ab"),
            **_grammars('root ::= "ab"', 'start: "ab"'),
            "format": GrammarSpec.structural_tag({"format": {"type": "const_string", "value": "ab"}}),
        },
        texts=("ab",),
        partial=("", "a"),
        wrong=("b", "aa", "aba"),
        closed=("ab",),
        truth="ab",
    ),
    Language(  # what the two share is no prefix of both as tokens: tekken has `expl`, `ore` and `ex`, `plo`, `it`
        "verbs",
        {
            "choice": GrammarSpec.choice(["explore", "exploit"]),
            "regex": GrammarSpec.regex("explo(re|it)"),
            **_grammars('root ::= "explo" ("re" | "it")', 'start: "explo" ("re" | "it")'),
        },
        texts=("explore", "exploit"),
        partial=("", "explo"),
        wrong=("a", "explos"),
        closed=("explore", "exploit"),
        truth="explo(re|it)",
    ),
    Language(
        "cycle",
        {"regex": GrammarSpec.regex("(abc)*"), **_grammars('root ::= ("abc")*', 'start: "abc"*')},
        texts=("", "abc", "abcabc"),
        partial=("a", "ab", "abca"),
        wrong=("aba", "abcb"),
        growing=("", "abc"),
        loop=Loop("", "abc"),
        truth="(abc)*",
    ),
    Language(
        "accents",
        {
            "regex": GrammarSpec.regex("(é|日x?){1,3}b?"),
            "choice": GrammarSpec.choice(_ACCENTS),
            **_grammars('root ::= unit unit? unit? "b"?\nunit ::= "é" | "日" "x"?', "start: /(é|日x?){1,3}b?/"),
        },
        texts=("éé", "日日xéb", "日b"),
        partial=("",),
        wrong=("b", "éx", "ééé日"),
        growing=("é", "éé"),
        closed=("日b",),
        truth="(é|日x?){1,3}b?",
    ),
    Language(
        "anything",
        {
            "regex": GrammarSpec.regex('[^"]*'),
            **_grammars('root ::= [^"]*', 'start: /[^"]*/'),
            "format": GrammarSpec.structural_tag({"format": {"type": "regex", "pattern": '[^"]*'}}),
        },
        texts=("", "日é<f> {a}\n", "<think></think>"),
        partial=(),
        wrong=('a"',),
        growing=("", "é"),
        loop=Loop("", "xy"),
        truth='[^"]*',
    ),
    Language(
        "replies",
        {
            "choice": GrammarSpec.choice(_REPLIES),
            "regex": GrammarSpec.regex(r"yes|no|yes please|日\n\\"),
            **_grammars(
                r'root ::= "yes" | "no" | "yes please" | "日\n\\"', r'start: "yes" | "no" | "yes please" | "日\n\\"'
            ),
        },
        texts=_REPLIES,
        partial=("", "ye", "yes pl"),
        wrong=("yesp", "x"),
        growing=("yes", "yes please"),
        closed=("no", "yes please"),
        truth=r"yes|no|yes please|日\n\\",
    ),
    Language(
        "stairs",
        {"choice": GrammarSpec.choice(_STAIRS), "regex": GrammarSpec.regex("(ab){1,30}")},
        texts=("ab", "abab", "ab" * 7),
        partial=("", "a", "aba"),
        wrong=("b", "abb"),
        growing=("ab", "abab"),
        closed=(_STAIRS[-1],),
        loop=Loop("ab", "ab", most=29),
        truth="(ab){1,30}",
    ),
    Language(
        "pairs",
        _grammars('root ::= "(" root ")" | "x"', 'start: "(" start ")" | "x"'),
        texts=("x", "(x)", "((((x))))"),
        partial=("", "(", "((x", "((x)", "(((x"),
        wrong=(")", "(x))"),
        closed=("x", "((x))"),
    ),
    Language(
        "leaves",
        _grammars('root ::= "(" root ")" | leaf\nleaf ::= [a-c] [a-c]?', 'start: "(" start ")" | X\nX: /[a-c]{1,2}/'),
        texts=("a", "((bc))"),
        partial=("", "(", "((bc)"),
        wrong=("()", "abc"),
        growing=("a", "ab"),
        closed=("ab", "(a)"),
    ),
    Language(
        "quoted",
        {
            "json_schema": GrammarSpec.json_schema({"enum": ["ab", "é"]}),
            "choice": GrammarSpec.choice(['"ab"', '"é"']),
            "regex": GrammarSpec.regex('"(ab|é)"'),
        },
        texts=('"ab"', '"é"'),
        partial=("", '"', '"a', '"ab'),
        wrong=("a", '"b', '"ab"x'),
        closed=('"ab"',),
        truth='"(ab|é)"',
    ),
    Language(
        "record",
        {"json_schema": GrammarSpec.json_schema(_RECORD)},
        texts=('{"name": "a\\n日é", "n": 120}', '{"name": "", "n": 0, "ok": true}', '{"name":"b","n":-7,"ok":false}'),
        partial=("", "{", '{"name": "', '{"name": "a", "n": 1'),
        wrong=('{"name": "a", "n": 1.', '{"x', '{"name": 1'),
        loop=Loop('{"name": "', "xy", '", "n": 0}'),
    ),
    Language(
        "colours",
        {"json_schema": GrammarSpec.json_schema(_COLOURS)},
        texts=('["red"]', '["green", "red", "red"]'),
        partial=("", "[", '["gre', '["red",'),
        wrong=("[]", '["ro', '["red", "red", "red",'),
    ),
    Language(
        "integer",
        {"json_schema": GrammarSpec.json_schema({"type": "integer"})},
        texts=("0", "-7", "1203"),
        partial=("", "-"),
        wrong=("a", "-a", "01", "1x"),
        growing=("1", "120"),
        loop=Loop("1", "23"),
    ),
    Language(
        "string",
        {"json_schema": GrammarSpec.json_schema({"type": "string"})},
        texts=('""', '"aé日"', r'"\n <think>"'),
        partial=("", '"', '"a', '"\\'),
        wrong=("a", '"a\n', '"\\x'),
        closed=('""',),
        loop=Loop('"', "ab", '"'),
    ),
    Language(
        "object",
        {"json_object": GrammarSpec.json_object()},
        texts=("{}", '{"name": [1, {"a": null}]}'),
        partial=("", "{", '{"', '{"a": [1'),
        wrong=("[", "{1", '{"a" 1'),
        loop=Loop('{"a": "', "xy", '"}'),
    ),
    Language(
        "calls",
        {"legacy": GrammarSpec.structural_tag(_TAG)},
        texts=("", "a日 <f>{}</f> b"),
        partial=("<f>{", "x<f>{}<"),
        wrong=("<f>[",),
        growing=("", "a"),
        loop=Loop("a", "b"),
    ),
    Language(
        "tagged",
        {
            "format": GrammarSpec.structural_tag(
                {
                    "format": {
                        "type": "tag",
                        "begin": "<f>",
                        "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
                        "end": "</f>",
                    }
                }
            )
        },
        texts=("<f>12</f>", "<f>-3</f>"),
        partial=("", "<f>", "<f>1"),
        wrong=("x", "<f>a"),
        closed=("<f>12</f>",),
        loop=Loop("<f>1", "23", "</f>"),
    ),
)
"""The languages, the most telling first."""
