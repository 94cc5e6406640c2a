"""Probes about what plugins declare in code: kinds, syntaxes, regular expressions, grammars and structural tags.

These are not derived, since they are what an adapter is written for: a declaration and the engine are held against one
another, in both directions. The cases of the suite are the probes of kinds; those about one feature stand here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grammar_backends.contract import BackendSpec
from grammar_backends.errors import SpecError
from grammar_backends.selection.judgement import findings_of
from grammar_backends_conformance.corpora.reading import Case, CaseText, case_spec, read_suite
from grammar_backends_conformance.probing.probe import Probe, Verdict

__all__ = ["disagreements", "feature_probes"]

SUITES = ("regex", "choice", "json_object", "ebnf", "gbnf", "lark", "structural_tag")

Texts = tuple[Sequence[str], Sequence[str]]
"""Valid texts, and others."""

REGEX: Mapping[str, tuple[str, Texts]] = {
    "dot": ("a.b", (("axb", "aéb", "a\rb"), ("a\nb", "ab"))),
    "digit": (r"\d+", (("0", "19"), ("٣", "a", ""))),
    "word": (r"\w+", (("aZ_9",), ("é", "-"))),
    "space": (r"\s", ((" ", "\t", "\n"), ("\u00a0", "\u2003", "a"))),
    "negated-shorthand": (r"\D\W\S", (("é-x", "٣ a"), ("1-x", "aaa", "a- "))),
    "class": ("[a-cx]+", (("abcx",), ("d", ""))),
    "negated-class": ("[^a]", (("b", "é", "\n", "😀"), ("a", "bb"))),
    "nested-bracket": (r"[[a]+", (("[a[",), ("b",))),
    "category": (r"\p{Lu}\P{L}", (("A1", "É-"), ("a1", "AA"))),
    "counts": ("a{2,3}b{1,}c{2}", (("aabcc", "aaabbbcc"), ("abcc", "aaaabcc", "aabc"))),
    "large-count": ("(?:ab){100}", (("ab" * 100,), ("ab" * 99, "ab" * 101))),
    "lazy": ("a+?b", (("ab", "aab"), ("b", "a"))),
    "alternation": ("a|bc|", (("a", "bc", ""), ("ab", "b"))),
    "groups": ("(?P<n>a)(?:b)(c)", (("abc",), ("ab",))),
    "outer-anchors": ("^a$|^b$", (("a", "b"), ("ab", "^a$"))),
    "escapes": (r"\x41\u0042\n\t\.", (("AB\n\t.",), ("AB\n\tx",))),
    "unicode": ("é日😀", (("é日😀",), ("e日😀",))),
    "nul": (r"a\x00b", (("a\x00b",), ("ab",))),
    "inner-anchor": ("a^b", (("b",), ("ab", "a^b"))),
    "look-ahead": ("a(?=b)b", (("ab",), ("a",))),
    "negative-look-ahead": ("(?!ab)a.", (("ac",), ("ab",))),
    "look-behind": ("a(?<=a)b", (("ab",), ("bb",))),
    "back-reference": (r"(a|b)\1", (("aa", "bb"), ("ab",))),
    "word-boundary": (r"a\b b", (("a b",), ("ab",))),
    "ignore-case": ("(?i)ab", (("AB", "ab"), ("ac",))),
    "possessive": ("a++b", (("aab",), ("b",))),
    "atomic": ("(?>a|ab)c", (("ac",), ("abc",))),
}
"""Per feature of regular expressions, a pattern and texts by the meaning of the layer's dialect, or of Python's."""

LARK: Mapping[str, tuple[str, Texts]] = {
    "lark_attributes/lazy": ('start: x "b"\nx[lazy]: /a+b/', (("abb", "aabb"), ("ab", "abbb"))),
    "lark_attributes/max_tokens": ('start: x ";"\nx[max_tokens=2]: /[a-z]*/', (("ab;", "a;"), ("abc;", "abcdef;"))),
    "lark_attributes/stop": ('start: x "c"\nx[stop="b"]: /[a-z]*/', (("abc", "bc"), ("ac", "abbc"))),
    "lark_attributes/stop_capture": (
        'start: x "c"\nx[stop="b", stop_capture="y"]: /[a-z]*/',
        (("abc",), ("ac", "abbc")),
    ),
    "lark_attributes/suffix": ('start: x "c"\nx[suffix="b"]: /[a-z]*/', (("abc",), ("ac", "abbc"))),
    "lark_directives/%json": (
        'start: "=" x\nx: %json {"allOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]}',
        (("=3", "=5"), ("=2", "=6", "=a")),
    ),
    "lark_directives/%regex": (
        'start: %regex {"substring_chars": "abc"} x\nx: "y"',
        (("aby", "bcy", "y"), ("acy", "ab")),
    ),
    "lazy_terminals/in-front": ('start: /a+?/ "b"', (("ab",), ("aab", "b"))),
    "lazy_terminals/named": ('start: A "b"\nA: /[ab]+?/', (("ab", "bb"), ("aab", "abb"))),
    "foreign_terminals/escape": ('start: "x" | /\\h+/', (("x",), ("h", "hh"))),
    "foreign_terminals/look-ahead": ('start: "x" | /a(?=b)./', (("x", "ab"), ("ac",))),
}
"""Per field and member of `GrammarSupport`, a Lark grammar and its texts."""

EBNF: Mapping[str, tuple[str, Texts]] = {
    "TagDispatch": (
        'root ::= TagDispatch(("<a>", x))\nx ::= "1</a>"',
        (("free", "<a>1</a>", "f<a>1</a>g"), ("<a>2</a>", "<a>")),
    ),
}
"""Per extension of EBNF, a grammar and its texts."""


def feature_probes() -> Iterator[Probe]:
    """The suite's cases of every kind but JSON schemas, and one probe for each feature."""
    for suite in SUITES:
        yield from (Probe(f"features/{suite}", case) for case in read_suite(suite).cases)
    for name, (pattern, texts) in REGEX.items():
        yield _probe(f"features/regex/{name}", "regex", pattern, texts)
    for name, (grammar, texts) in LARK.items():
        yield _probe(f"features/grammar/{name}", "grammar", grammar, texts, syntax="lark")
    for name, (grammar, texts) in EBNF.items():
        yield _probe(f"features/grammar/ebnf_extensions/{name}", "grammar", grammar, texts, syntax="ebnf")


def _probe(about: str, kind: str, spec: Any, texts: Texts, **options: Any) -> Probe:
    valid, invalid = texts
    tests = (*(CaseText(True, text) for text in valid), *(CaseText(False, text) for text in invalid))
    feature = about.rpartition("/")[0] if "terminals/" in about else about
    return Probe(feature, Case(about, kind, spec, tests, options))


def disagreements(backend: BackendSpec, probes: Sequence[Probe], verdicts: Mapping[str, Verdict]) -> list[str]:
    """Where the plugin's declarations and its engine disagree, one line each.

    What is declared must not be got wrong, and a kind that is declared not always be refused; what is not declared must
    not be enforced whole.
    """
    found: list[str] = []
    declared: dict[str, list[Verdict]] = {}
    undeclared: dict[str, list[Verdict]] = {}
    for probe in probes:
        verdict = verdicts.get(probe.case.id)
        if verdict is None or probe.case.kind == "json_schema":
            continue
        passes = _is_declared(backend, probe.case)
        (declared if passes else undeclared).setdefault(probe.about, []).append(verdict)
        if passes and verdict in ("wrong", "over-constrains"):
            found.append(f"{probe.case.id}: declared, but {verdict}")
    for about, answers in declared.items():
        if about in _KINDS and "enforced" not in answers:
            found.append(f"{about}: declared, but never enforced")
    for about, answers in undeclared.items():
        if about not in declared and set(answers) == {"enforced"} and not about.startswith(_BOUNDS):
            found.append(f"{about}: not declared, but enforced")
    return found


_KINDS = frozenset(f"features/{suite}" for suite in SUITES)
_BOUNDS = "features/grammar/lark_attributes"
"""What is wrong with these shows only with tokens of several bytes, so that nobody is told to declare them."""


def _is_declared(backend: BackendSpec, case: Case) -> bool:
    try:
        return not findings_of(case_spec(case), backend)
    except SpecError:
        return False
