"""Grammars as text: telling the syntaxes apart, the checks before any engine, and one meaning on the bare engines.

The engines get a vocabulary of the 256 bytes, so that every text can be fed and every state be seen.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import llguidance
import pytest
import xgrammar

from grammar_backends.contract import grammar_text as gt
from grammar_backends.contract.grammar_text import (
    check_grammar,
    detect_syntax,
    ebnf_for_xgrammar,
    ebnf_literal,
    ebnf_to_lark,
    lark_for,
    named_tokens,
    read_grammar,
)
from grammar_backends.contract.regex import RegexDialect
from grammar_backends.errors import SpecError, UnsupportedFeature
from grammar_backends.selection.grammar_support import grammar_findings
from grammar_backends_guidance import GRAMMARS as GUIDANCE
from grammar_backends_xgrammar import GRAMMARS as XGRAMMAR

XGRAMMAR_DIALECT = RegexDialect("xgrammar")
GUIDANCE_DIALECT = RegexDialect("guidance", max_depth=250)

EOS = 256
TOKENS = [bytes([byte]) for byte in range(256)] + [b""]
_INFO = xgrammar.TokenizerInfo(TOKENS, xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[EOS])
_COMPILER = xgrammar.GrammarCompiler(_INFO, max_threads=1, cache_enabled=False)


class _ByteTokenizer:
    eos_token_id = EOS
    bos_token_id = None
    tokens = TOKENS
    special_token_ids = (EOS,)
    is_tokenizer_wrapper = True

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


_LL_TOKENIZER = llguidance.LLTokenizer(_ByteTokenizer(), n_vocab=257, eos_token=[EOS])


def _xgrammar(compiled: xgrammar.CompiledGrammar, texts: Sequence[str]) -> list[bool]:
    def matches(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(matcher.accept_token(byte) for byte in text.encode()) and matcher.is_completed()

    return [matches(text) for text in texts]


def xgrammar_ebnf(text: str, texts: Sequence[str]) -> list[bool]:
    return _xgrammar(_COMPILER.compile_grammar(text), texts)


def xgrammar_lark(text: str, texts: Sequence[str]) -> list[bool]:
    return _xgrammar(_COMPILER.compile_lark(text), texts)


def guidance_lark(text: str, texts: Sequence[str]) -> list[bool]:
    pristine = llguidance.LLMatcher(_LL_TOKENIZER, llguidance.LLMatcher.grammar_from_lark(text), log_level=0)
    assert not pristine.is_error(), pristine.get_error()

    def matches(text: str) -> bool:
        matcher, tokens = pristine.deep_copy(), list(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    return [matches(text) for text in texts]


def on_xgrammar(text: str, texts: Sequence[str]) -> list[bool]:
    return xgrammar_ebnf(ebnf_for_xgrammar(text), texts)


def on_guidance(text: str, texts: Sequence[str]) -> list[bool]:
    return guidance_lark(ebnf_to_lark(text), texts)


Run = Callable[[str, Sequence[str]], list[bool]]
EBNF_ENGINES: dict[str, Run] = {"xgrammar": on_xgrammar, "guidance": on_guidance}
ON_BOTH = pytest.mark.parametrize("engine", EBNF_ENGINES)


# ------------------------------------------------------------------------------------------------------- detection


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ('root ::= "a"', "ebnf"),
        ('# comment\n\n  root\n  ::= "a"', "ebnf"),
        ('// odd comment\nroot ::= "a"', "ebnf"),
        ('root ::= "a: b // c"', "ebnf"),
        ('my-rule.x ::= "start: a"', "ebnf"),
        ('start: "a"', "lark"),
        ('start: "::="', "lark"),
        ("start: A\nA: /::=/", "lark"),
        ('// x ::= y\n# root ::= "a"\nstart: "a"', "lark"),
        ("%llguidance {}\nstart: x\nx: /a/", "lark"),
        ("%import common.WS\nstart: WS", "lark"),
        ('?start: "a"', "lark"),
        ('!start: "a"', "lark"),
        ('A.2: "a"\nstart: A', "lark"),
        ('x[lazy]: /a/\nstart: x "::="', "lark"),
        ('sep{x, y}: x y\nstart: sep{"a", "b"}', "lark"),
    ],
)
def test_b9_the_first_definition_tells_the_syntax(text: str, syntax: str) -> None:
    assert detect_syntax(text) == syntax


@pytest.mark.parametrize("text", ["# only a comment", "// root ::= x", "\n  # a\n// b\n", "  "])
def test_b9_text_of_comments_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="comments"):
        detect_syntax(text)


@pytest.mark.parametrize("text", ['root = "a"', '"a"', '{"type": "object"}', "SELECT", 'root := "a"'])
def test_b9_what_starts_with_no_definition_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        detect_syntax(text)
    assert caught.value.where == "1:1"


# ---------------------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ('root ::= numbr\nnumber ::= "1"', "1:10", "Did you mean 'number'"),
        ('foo ::= "a"', "1:1", "no rule 'root'"),
        ('root ::= x\nx ::= "a"\nx ::= "b"', "3:1", "defined twice"),
        ('root ::= "a', "1:10", "never closed"),
        ('root ::= "a\n"', "1:10", "never closed"),
        ("root ::= [a-z", "1:10", "never closed"),
        ('root ::= ("a"', "1:10", "never closed"),
        ('root ::= "a")', "1:13", "closes nothing"),
        (r'root ::= "\q"', "1:11", "unknown escape"),
        ("root ::= [z-a]", "1:10", "bad range"),
        ("root ::= []", "1:10", "matches nothing"),
        ('root ::= * "a"', "1:10", "nothing to repeat"),
        ('root ::= "a"{3,2}', "1:13", "no text can match"),
        ('root ::= "a" // b', "1:14", "Comments start with #"),
        ("root ::= 'a'", "1:10", "double quotes"),
        ('root ::= "a"\nstart: "b"', "2:6", "unexpected"),
        ('root ::= "a\0b"', "1:12", "cannot be in a grammar"),
        ('root ::= "\ud800"', "1:11", "cannot be in a grammar"),
        ('root ::= "a"\n::= "b"', "2:1", "unexpected"),
        ('root ::= "a", "b"', "1:13", "unexpected"),
    ],
)
def test_d13_ebnf_mistakes_are_refused_with_their_place(text: str, where: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_grammar(text, "ebnf")
    assert caught.value.where == where
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("start: numbr\nnumber: /1/", "1:8", "Did you mean 'number'"),
        ('root: "a"', "1:1", "no rule 'start'"),
        ('start: x\nx: "a"\nx: "b"', "3:1", "defined twice"),
        ('start: "a', "1:8", "never closed"),
        ("start: /a", "1:8", "never closed"),
        ('start: ("a"', "1:8", "never closed"),
        ('start: ("a"]', "1:12", "does not close"),
        ('start: "a")', "1:11", "closes nothing"),
        ("start: 'a'", "1:8", "double quotes"),
        ('start: "a"\nfoo ::= "b"', "2:5", "::="),
        ('start: "a"\n"b"', "2:1", "name was expected"),
        ('start "a"', "1:1", "colon was expected"),
        ('start: * "a"', "1:8", "nothing to repeat"),
        ("%import common.WS", "1:1", "no rule"),
    ],
)
def test_d13_lark_mistakes_are_refused_with_their_place(text: str, where: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_grammar(text, "lark")
    assert caught.value.where == where
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "root ::= root",
        'root ::= "a" root',
        "root ::= a\na ::= b\nb ::= a",
        'root ::= "a" | "b" x\nx ::= "c" x',
        'root ::= x+\nx ::= "a" root',
        "root ::= root{0,2}",
        'root ::= "a" | x\nx ::= x{2,}',
        'root ::= "a" | x\nx ::= (y)*\ny ::= x?',
    ],
)
def test_b12_rules_that_can_never_finish_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        check_grammar(text, "ebnf")
    with pytest.raises(SpecError):
        check_grammar(text.replace(" ::=", ":").replace("root", "start"), "lark")


@pytest.mark.parametrize(
    "text", ['root ::= "a" root | ""', 'root ::= "(" root? ")"', 'root ::= root "a" | "b"', 'root ::= ("a" root)*']
)
def test_b12_recursion_with_a_way_out_is_fine(text: str) -> None:
    check_grammar(text, "ebnf")
    check_grammar(text.replace(" ::=", ":").replace("root", "start"), "lark")


def test_d10_long_chains_of_rules_are_refused_before_they_crash_an_engine() -> None:
    chain = "".join(f"r{i} ::= r{i + 1}\n" for i in range(3000))
    with pytest.raises(SpecError, match="in a row"):
        check_grammar(f'root ::= r0\n{chain}r3000 ::= "a"\n', "ebnf")
    terminals = "".join(f"R{i}: R{i + 1}\n" for i in range(3000))
    with pytest.raises(SpecError, match="in a row"):
        check_grammar(f'start: R0\n{terminals}R3000: "a"\n', "lark")


def test_d10_too_many_rules_are_refused() -> None:
    rules = "".join(f'r{i} ::= "a"\n' for i in range(5001))
    with pytest.raises(SpecError, match="more than 5000 rules"):
        check_grammar(f"root ::= r0\n{rules}", "ebnf")


def test_d10_wide_grammars_are_fine() -> None:
    rules = "".join(f'r{i} ::= "a"\n' for i in range(2000))
    check_grammar(f"root ::= {' | '.join(f'r{i}' for i in range(2000))}\n{rules}", "ebnf")


@pytest.mark.parametrize("syntax", ["ebnf", "lark"])
def test_d9_deep_nesting_is_refused(syntax: gt.Syntax) -> None:
    start = "root ::= " if syntax == "ebnf" else "start: "
    with pytest.raises(SpecError, match="nested deeper"):
        check_grammar(f'{start}{"(" * 5000}"a"{")" * 5000}', syntax)
    check_grammar(f'{start}{"(" * 90}"a"{")" * 90}', syntax)


@pytest.mark.parametrize(
    "text",
    [
        "start: NUMBER\n%import common.NUMBER",
        "start: X\n%import common.WORD -> X",
        "start: A B\n%import common (WORD, INT)\nA: WORD\nB: INT",
        'start: sep{"a", ","}\nsep{x, y}: x (y x)*',
        'start: %json {"type": "object", "properties": {"a": {"type": "string"}}}',
        'start: %regex {"substring_chars": "abc"} x\nx: "y"',
        '%llguidance {"no_forcing": true}\nstart: "a"',
        "start: <think> /.*/ </think> <[12]> <[1-5,7]> <[*]> <[^3]>",
        '?start: _x | y -> done\n!_x.2: /a/\ny.-1: A~3 B~1..2\nA.5: /[\\/]/i\nB: "b"i',
        'start: x[0]\nx[lazy, max_tokens=3, stop="\\n"]: /a+/',
        'start: ["a"] ("b" | "c")? x+ x* "a".."z" x{2} x{,3} x{1,}\nx: "y"',
        'start: A\nA: /a/ & ~/b/ & (C | ~C)\nC: "c"',
        'start: (\n  "a"\n  | "b"\n) "c"\n     | "d"\n\n     | "e"  // end\n# done',
        "start: x\n%override start: x\n%extend y: z\nx: w",
        'start: "//" | "#" | /#/ | "a" // comment "\n',
        "start: @sub\n%ignore / +/\n%declare FOO\nx: FOO\nstop:",
        'start: "a"\r\n     | "b"\r\n',
        "start:\n",
        'start: "a" |\n',
        'start: "::=" x->y\nx: "q"',
    ],
)
def test_b9_lark_features_nobody_here_judges_pass(text: str) -> None:
    check_grammar(text, "lark")


def test_b9_named_tokens_are_found_outside_strings_only() -> None:
    text = 'start: <think> /<b>/ "<c>" </think> <|im_end|> <[3]> <[*]> // <d>\n'
    assert named_tokens(text, "lark") == {"<think>", "</think>", "<|im_end|>"}
    assert named_tokens('root ::= "<think>"', "ebnf") == set()


# ----------------------------------------------------------------------------------------- one meaning: EBNF and GBNF


@pytest.mark.parametrize(
    "text",
    ["\x00", "a\x00b", '"', "\\", "\\n", "\r\n\t", "".join(map(chr, range(0x20))) + "ab1", "\x7f", "\x85", "\u2028",
     "#", "//x", "😀é漢", "\U000e0001", "\x01ab", "\ufeff", "", "e\u0301", "[]{}()|*+?^$."],
)  # fmt: skip
def test_d14_a_literal_matches_exactly_its_text(text: str) -> None:
    grammar = f'root ::= {ebnf_literal(text)} | "other"'
    assert xgrammar_ebnf(grammar, [text, text + "x", text[:-1] + "\x02"]) == [True, False, False]
    check_grammar(grammar, "ebnf")
    for run in EBNF_ENGINES.values():
        assert run(grammar, [text, text + "x", "other"]) == [True, False, True]


def test_d14_every_character_makes_the_round_trip() -> None:
    codes = [*range(0x300), 0x2028, 0x2029, 0xD7FF, 0xE000, 0xFEFF, 0xFFFE, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF]
    for first in range(0, len(codes), 20):
        part = [chr(code) for code in codes[first : first + 20]]
        grammar = "root ::= " + " | ".join(ebnf_literal(char + "a1") for char in part)
        for run in EBNF_ENGINES.values():
            assert run(grammar, [char + "a1" for char in part] + ["a1", "xa1y"]) == [True] * len(part) + [False] * 2


@ON_BOTH
@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("root ::= .", ["a", "\n", "é"], ["", "ab"]),
        (r'root ::= "\u00e9ab"', ["éab"], ["\ue9ab"]),
        (r'root ::= "\x41b"', ["Ab"], ["\u041b"]),
        (r"root ::= [\u00e9\x41-\x43]", ["é", "B"], ["D"]),
        ("root ::= [a-z&&b]", ["a", "&", "b"], ["A"]),
        ("root ::= [a-c--b]", ["a", "-", "A", "b"], ["d"]),
        (r"root ::= [\]\-\^\\]", ["]", "-", "^", "\\"], ["a"]),
        ("root ::= [^]", ["a", "\n"], [""]),
        ('root ::= a-b a_b\na-b ::= "x"\na_b ::= "y"', ["xy"], ["xx", "yy"]),
        ('root ::= Ab ab\nAb ::= "x"\nab ::= "y"', ["xy"], ["yx"]),
        ('root ::= "a"\n  "b"\n  | "c"', ["ab", "c"], ["a"]),
        ('root ::= "a" | ', ["a", ""], ["b"]),
        ("root ::= ()", [""], ["a"]),
        ('root ::= ("a"+)*', ["", "aa"], ["b"]),
        ('root ::= "a"{0} "b"{,2} "c"{2,}', ["cc", "bbccc"], ["acc", "c"]),
        ('root ::= "(" root ")" | [0-9]+', ["((12))", "5"], ["((12)"]),
        ('root ::= e\ne ::= e "+" [0-9] | [0-9]', ["1", "1+2+3"], ["+1", "1+"]),
        ('root ::= [ab]+ "b"', ["ab", "abab"], ["a", "b"]),
        ('root ::= "a" "bb" | "ab" "c"', ["abb", "abc"], ["ab"]),
        ('root ::= x x\nx ::= "a"+', ["aa", "aaaa"], ["a"]),
        ('1a ::= "b"\nroot ::= 1a', ["b"], ["a"]),
        ('root ::= "#" # "x"\n# y', ["#"], ["# "]),
        ('rest.of_it ::= "b"\nroot ::= "a" rest.of_it', ["ab"], ["a"]),
    ],
)
def test_c3_ebnf_means_the_same_on_both_engines(engine: str, text: str, good: list[str], bad: list[str]) -> None:
    check_grammar(text, "ebnf")
    assert EBNF_ENGINES[engine](text, [*good, *bad]) == [True] * len(good) + [False] * len(bad)


def test_c3_look_ahead_is_refused_on_both_engines() -> None:
    text = 'root ::= "a" (= "b")\n'
    check_grammar(text, "ebnf")
    for write in (ebnf_for_xgrammar, ebnf_to_lark):
        with pytest.raises(UnsupportedFeature) as caught:
            write(text)
        assert caught.value.where == "1:14"
    assert [f.keyword for f in grammar_findings(text, "ebnf", XGRAMMAR)] == ["look-ahead"]


def test_c3_extensions_of_xgrammar_go_to_xgrammar_alone() -> None:
    text = 'root ::= TagDispatch(("<a>", x))\nx ::= "b"\n'
    check_grammar(text, "ebnf")
    assert ebnf_for_xgrammar(text) == text
    assert xgrammar_ebnf(text, ["zz<a>b", "zz<a>c"]) == [True, False]
    with pytest.raises(UnsupportedFeature):
        ebnf_to_lark(text)
    assert [f.keyword for f in grammar_findings(text, "ebnf", GUIDANCE)] == ["TagDispatch"]
    assert grammar_findings(text, "ebnf", XGRAMMAR) == []
    with pytest.raises(SpecError, match="GBNF"):
        check_grammar(text, "gbnf")


_TERMINALS = [
    '"a"', '"b"', '"ab"', '"abc"', '"é"', "[ab]", "[^a]", "[a-c]", '""', '"c"', '"ba"', r"[^b\n]", r'"\n"',
    r'"\u0061b"', r'"\x61"', ".",
]  # fmt: skip
_COUNTS = ["*", "+", "?", "{2}", "{0,2}", "{1,2}", "{2,}", "{0}"]


def _random_element(rng: random.Random, depth: int, names: list[str]) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        return rng.choice(_TERMINALS) if rng.random() < 0.65 else rng.choice(names)
    if kind < 0.6:
        return " ".join(_random_element(rng, depth - 1, names) for _ in range(rng.randint(1, 3)))
    if kind < 0.8:
        return f"({' | '.join(_random_element(rng, depth - 1, names) for _ in range(rng.randint(1, 3)))})"
    return f"({_random_element(rng, depth - 1, names)}){rng.choice(_COUNTS)}"


def _random_grammar(rng: random.Random) -> str:
    names = ["root", "x", "y", "Z-a"][: rng.randint(1, 4)]
    return "".join(
        f"{name} ::= {' | '.join(_random_element(rng, 2, names) for _ in range(rng.randint(1, 2)))}\n" for name in names
    )


LONGEST = 4
ALL_TEXTS = ["".join(text) for size in range(LONGEST + 1) for text in itertools.product("abcé\n", repeat=size)]


def _joined(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return frozenset(a + b for a in left for b in right if len(a) + len(b) <= LONGEST)


def _texts(node: gt.Element, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """All texts of the node up to the longest, by the definition of the operators and nothing cleverer."""
    if isinstance(node, gt.Text):
        return frozenset([node.text][: len(node.text) <= LONGEST])
    if isinstance(node, gt.Set):
        return frozenset(c for c in "abcé\n" if any(low <= ord(c) <= high for low, high in node.ranges))
    if isinstance(node, gt.Reference):
        return known[node.name]
    if isinstance(node, gt.Choice):
        return frozenset().union(*(_texts(option, known) for option in node.options))
    out = frozenset([""])
    if isinstance(node, gt.Series):
        for item in node.items:
            out = _joined(out, _texts(item, known))
        return out
    assert isinstance(node, gt.Repeat)
    item = _texts(node.item, known)
    for _ in range(node.least):
        out = _joined(out, item)
    last = out
    for _ in range((node.most if node.most is not None else node.least + LONGEST + 1) - node.least):
        last = _joined(last, item)
        out |= last
    return out


def _language(grammar: gt.Grammar) -> frozenset[str]:
    known: dict[str, frozenset[str]] = dict.fromkeys(grammar.rules, frozenset())
    while True:
        found = {name: _texts(rule.body, known) for name, rule in grammar.rules.items()}
        if found == known:
            return known[grammar.start]
        known = found


@pytest.mark.parametrize("seed", range(4))
def test_c3_random_ebnf_means_what_the_operators_say_on_both_engines(seed: int) -> None:
    rng = random.Random(seed)
    judged = 0
    for _ in range(150):
        text = _random_grammar(rng)
        language = _language(read_grammar(text, "ebnf"))
        try:
            check_grammar(text, "ebnf")
        except SpecError:
            continue  # a rule of it can never finish
        good = sorted(language)
        bad = [other for other in ALL_TEXTS if other not in language]
        texts = rng.sample(good, min(len(good), 20)) + rng.sample(bad, min(len(bad), 20))
        expected = [candidate in language for candidate in texts]
        for engine, run in EBNF_ENGINES.items():
            assert run(text, texts) == expected, (engine, text)
        judged += 1
    assert judged > 90


# --------------------------------------------------------------------------------------------------- one meaning: Lark


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        (r"start: /\d+/", ["12"], ["٣", ""]),
        (r"start: /\w/", ["a", "_"], ["é"]),
        (r"start: /[\x01a1]/", ["a", "\x01", "1"], ["b"]),
        (r"start: /[\^a]/", ["^", "a"], ["b"]),
        (r"start: /\Aa\z/", ["a"], ["A", "az"]),
        ("start: /[a&&b]/", ["a", "&"], ["c"]),
        ("start: /[^k]/i", ["a", "é"], ["k", "K"]),
        ('start: "k"i "é"i', ["Ké", "kÉ"], ["\u212aé"]),
        ("start: /a.b/s | /c.d/", ["a\nb", "cxd"], ["c\nd"]),
        ("start: /a|b/ /()/", ["a", "b"], [""]),
        ('start: A "b"i\nA: "a".."c"~2\n%ignore / +/', ["abb", "ca B"], ["ab"]),
        ('start: "a{,3}" /b{,2}c/', ["a{,3}c", "a{,3}bbc"], ["c"]),
        (r'start: "a\\b\"c" /\//', ['a\\b"c/'], ["ab"]),
        ("start: WORD /[0-9]/\n%import common.WORD", ["ab1"], ["1"]),
    ],
)
def test_c3_lark_terminals_mean_the_same_on_both_engines(text: str, good: list[str], bad: list[str]) -> None:
    check_grammar(text, "lark")
    assert grammar_findings(text, "lark", XGRAMMAR) == grammar_findings(text, "lark", GUIDANCE) == []
    expected = [True] * len(good) + [False] * len(bad)
    assert xgrammar_lark(lark_for(text, XGRAMMAR_DIALECT), [*good, *bad]) == expected
    assert guidance_lark(lark_for(text, GUIDANCE_DIALECT), [*good, *bad]) == expected


@pytest.mark.parametrize(
    ("text", "keyword", "place"),
    [
        ('start: /(.|\\n)*?/ "END"', "lazy repetition", (1, 8)),
        ("start: x\nx: /a^b/", "anchor inside the pattern", (2, 4)),
        ("start: /(?!a)[ab]/", "look-ahead", (1, 8)),
        ("start: /[[:alpha:]]/", "POSIX class", (1, 8)),
        ("start: x\nx[max_tokens=1]: /a+/", "max_tokens", (2, 3)),
        ("start: x\nx[capture, lazy]: /a+/", "lazy", (2, 12)),
        ('start: x "END"\n?x[stop="E"]: /.*/', "stop", (2, 4)),
        ('start: "a" | %json {"not": {}}', "%json", (1, 14)),
    ],
)
def test_c3_what_xgrammar_would_get_wrong_in_lark_is_found_with_its_place(
    text: str, keyword: str, place: tuple[int, int]
) -> None:
    check_grammar(text, "lark")
    found = grammar_findings(text, "lark", XGRAMMAR)
    assert [(f.keyword, (f.line, f.column)) for f in found] == [(keyword, place)]
    assert found[0].reason
    elsewhere = [finding.keyword for finding in grammar_findings(text, "lark", GUIDANCE)]
    assert elsewhere == ([keyword] if keyword == "lazy repetition" else [])


def test_c3_lark_outside_its_terminals_is_left_as_it_is() -> None:
    text = 'start: x[0] -> y // /\\d/\n  | "\\d" /a+?/ <tok> %json {"a": "/\\\\d/"}\n?x.2: /\\d/i\n'
    written = lark_for(text, XGRAMMAR_DIALECT)
    assert written == text.replace("?x.2: /\\d/i", "?x.2: /[0-9]/")
