"""The layer's regex dialect: its parser against Python's, and its renderings against the bare engines.

The engines get a vocabulary of the 256 bytes, so that every text can be fed and every state be seen.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence

import llguidance
import outlines_core
import pytest
import xgrammar
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grammar_backends.contract.regex import (
    Regex,
    RegexDialect,
    check_regex,
    parse_regex,
    parse_terminal,
    regex_of_texts,
    split_empty,
    translate,
)
from grammar_backends.errors import SpecError, UnsupportedFeature

XGRAMMAR_DIALECT = RegexDialect("xgrammar")
GUIDANCE_DIALECT = RegexDialect("guidance", max_depth=250)
OUTLINES_DIALECT = RegexDialect("outlines", end=r"\z", empty="first", max_positions=5_000, max_depth=250)

EOS = 256
TOKENS = [bytes([byte]) for byte in range(256)] + [b""]
_INFO = xgrammar.TokenizerInfo(TOKENS, xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[EOS])
_COMPILER = xgrammar.GrammarCompiler(_INFO, max_threads=1, cache_enabled=False)
_BYTES = outlines_core.Vocabulary(EOS, {bytes([byte]): [byte] for byte in range(256)})


class _ByteTokenizer:
    eos_token_id = EOS
    bos_token_id = None
    tokens = TOKENS
    special_token_ids = (EOS,)
    is_tokenizer_wrapper = True

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


_LL_TOKENIZER = llguidance.LLTokenizer(_ByteTokenizer(), n_vocab=257, eos_token=[EOS])


def xgrammar_matches(pattern: str, texts: Sequence[str]) -> list[bool]:
    compiled = _COMPILER.compile_regex(pattern)

    def matches(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(matcher.accept_token(byte) for byte in text.encode()) and matcher.is_completed()

    return [matches(text) for text in texts]


def guidance_matches(pattern: str, texts: Sequence[str]) -> list[bool]:
    pristine = llguidance.LLMatcher(_LL_TOKENIZER, llguidance.LLMatcher.grammar_from_regex(pattern), log_level=0)
    assert not pristine.is_error(), pristine.get_error()

    def matches(text: str) -> bool:
        matcher, tokens = pristine.deep_copy(), list(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    return [matches(text) for text in texts]


def outlines_matches(pattern: str, texts: Sequence[str]) -> list[bool]:
    index = outlines_core.Index(pattern, _BYTES)

    def matches(text: str) -> bool:
        guide, tokens = outlines_core.Guide(index), list(text.encode())
        if not guide.accepts_tokens(tokens):
            return False
        for token in tokens:
            guide.advance(token, False)
        return index.is_final_state(guide.get_state())

    return [matches(text) for text in texts]


ENGINES: dict[str, tuple[RegexDialect, Callable[[str, Sequence[str]], list[bool]]]] = {
    "xgrammar": (XGRAMMAR_DIALECT, xgrammar_matches),
    "guidance": (GUIDANCE_DIALECT, guidance_matches),
    "outlines": (OUTLINES_DIALECT, outlines_matches),
}
ON_EVERY_ENGINE = pytest.mark.parametrize("engine", ENGINES)


def matches(engine: str, pattern: str | Regex, texts: Sequence[str]) -> list[bool]:
    dialect, run = ENGINES[engine]
    return run(translate(pattern, dialect), texts)


def expect(engine: str, pattern: str, good: Sequence[str], bad: Sequence[str]) -> None:
    found = matches(engine, pattern, [*good, *bad])
    assert dict(zip([*good, *bad], found, strict=True)) == {**dict.fromkeys(good, True), **dict.fromkeys(bad, False)}


# ------------------------------------------------------------------------------------------- one meaning everywhere


@ON_EVERY_ENGINE
def test_c3_dot_does_not_match_newline_on_any_engine(engine: str) -> None:
    expect(engine, "a.b", ["axb", "aéb", "a😀b", "a\rb"], ["a\nb", "ab", "axxb"])


@ON_EVERY_ENGINE
@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"\d+", ["123"], ["٣٤", "", "1a"]),
        (r"\w+", ["aZ_9"], ["é", "-"]),
        (r"a\sb", ["a b", "a\tb", "a\nb", "a\x0bb"], ["a\xa0b", "a\u2003b", "ab"]),
        (r"\D\W\S", ["é-é", "٣\xa0٣"], ["1--", "aa-", "a- "]),
        (r"[\w-]+", ["a-b"], ["é"]),
        (r"[^\w]", ["é", "-"], ["a"]),
    ],
)
def test_c3_shorthands_are_ascii_on_every_engine(engine: str, pattern: str, good: list[str], bad: list[str]) -> None:
    expect(engine, pattern, good, bad)


@ON_EVERY_ENGINE
@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^abc$", ["abc"], ["^abc$", "abcd", "xabc"]),
        ("^a|b$", ["a", "b"], ["ab", "^a"]),
        ("(^a|^b)c$", ["ac", "bc"], ["c"]),
        (r"\Aab\z", ["ab"], ["a"]),
        ("^(?:(?:yes$)|no$)", ["yes", "no"], ["yesno"]),
        ("^^a$$", ["a"], ["aa"]),
    ],
)
def test_c3_anchors_at_the_ends_change_nothing(engine: str, pattern: str, good: list[str], bad: list[str]) -> None:
    expect(engine, pattern, good, bad)


@pytest.mark.parametrize(
    ("pattern", "column"), [("a^b", 2), ("a$b", 2), ("(a|^b)+", 4), ("x(^a)", 3), ("(a$)b", 3), ("x*^a", 3)]
)
def test_c3_anchors_in_the_middle_are_refused(pattern: str, column: int) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        check_regex(pattern)
    assert (caught.value.line, caught.value.column) == (1, column)


@ON_EVERY_ENGINE
@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("[a-z]+?[0-9]*?", ["abc12", "a"], ["1", ""]),
        (r"\x41\u00e9\u{1F600}\U0001F600", ["Aé😀😀"], ["x41"]),
        (r"[\ud83d\ude00-\ud83d\ude0e]{1,3}", ["😀😎"], ["a", "😏"]),
        (r"[\]\[^]+", ["][^"], ["a"]),
        (r"[\^a]", ["^", "a"], ["b"]),
        (r"[\^-b]", ["^", "_", "b"], ["c", "\\", "-"]),
        (r"[\x01a1]", ["\x01", "a", "1"], ["\x1a", "x"]),
        (r"[\x0aab]", ["\n", "a", "b"], ["\xaa"]),
        (r"[\^\x05]", ["^", "\x05"], ["a"]),
        (r"a\x00b", ["a\x00b"], ["a", "ab"]),
        (r'"[^"\\\x00-\x1f]*"', ['"a é"'], ['"\n"', '"', '"\x00"']),
        ('{"a":1}', ['{"a":1}'], ["a"]),
        ("a{,2}b", ["b", "aab"], ["aaab", "a{,2}b"]),
        (r"(?P<y>[0-9]{4})-(?<m>[0-9]{2})", ["2024-05"], ["20-5"]),
        ("[a&&b]", ["a", "&", "b"], [""]),
        (r"a\/b", ["a/b"], ["a\\/b"]),
        (r"[[a]", ["[", "a"], ["b"]),
        ("[а-яё]+", ["привет"], ["hello"]),
        ("(?:a{0,2}){3}b", ["b", "aaaaaab"], ["aaaaaaab"]),
        ("(?:a{2}){2,3}b", ["aaaab", "aaaaaab"], ["aab", "aaaaab"]),
        ("yes|no|yes please", ["yes", "no", "yes please"], ["yes p", ""]),
        ("a(?:é|bc)*", ["a", "aé", "abcé"], ["ab", "abcb"]),
        (r"[0-9]+(?:\.[0-9]+)?", ["1", "1.5"], ["1.", ".5"]),
        (r"\p{Lu}\pL?", ["É", "Aé"], ["a", "1"]),
        (r"\P{L}", ["1"], ["é"]),
        (r"[\p{Nd}x]", ["٣", "x"], ["a"]),
        ("(?i)yes|Nö", ["yes", "YES", "yEs", "nÖ", "NÖ"], ["ye", "n"]),
        ("(?i)[^a-c]x", ["dX", "Dx"], ["ax", "Ax", "BX"]),
        ("(?s).", ["\n", "a"], ["", "aa"]),
        ("(?si)^.B$", ["\nb", "aB"], ["b"]),
    ],
)
def test_c3_every_engine_reads_the_same_meaning(engine: str, pattern: str, good: list[str], bad: list[str]) -> None:
    expect(engine, pattern, good, bad)


@pytest.mark.parametrize("pattern", ["", "^$", "(|x)", "a*", "()", "[ab]?"])
@ON_EVERY_ENGINE
def test_d7_the_empty_text_can_be_matched(engine: str, pattern: str) -> None:
    assert matches(engine, pattern, [""]) == [True]


@ON_EVERY_ENGINE
def test_d7_a_regex_of_blanks_matches_those_blanks(engine: str) -> None:
    expect(engine, "  ", ["  "], ["", " "])


@pytest.mark.parametrize("engine", ["xgrammar", "guidance"])
@pytest.mark.parametrize("pattern", ["(abc)*", "(?:é)?", "(?:a|bc)*"])
def test_c3_outlines_refuses_what_it_would_lose_and_others_take_it(engine: str, pattern: str) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        translate(pattern, OUTLINES_DIALECT)
    assert caught.value.backend == "outlines"
    assert matches(engine, pattern, [""]) == [True]


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [("(abc)*", ["abc", "abcabc"], ["", "ab"]), ("a?b?(cd)?", ["a", "bcd", "cd", "abcd"], ["", "c", "ac"])],
)
def test_c3_outlines_matches_the_rest_once_the_empty_text_is_taken_out(
    pattern: str, good: list[str], bad: list[str]
) -> None:
    matches_empty, rest = split_empty(pattern, OUTLINES_DIALECT)
    assert matches_empty
    assert rest is not None
    found = outlines_matches(rest, [*good, *bad])
    assert found == [True] * len(good) + [False] * len(bad)


def test_c3_nothing_is_left_of_the_empty_text_without_it() -> None:
    assert parse_regex("^()$").without_empty() is None
    assert split_empty("", OUTLINES_DIALECT) == (True, None)
    assert split_empty("a", XGRAMMAR_DIALECT) == (False, "a")


@ON_EVERY_ENGINE
def test_d14_a_choice_becomes_a_regex_of_its_texts(engine: str) -> None:
    texts = [
        'a"b',
        "c\\d",
        "e\nf",
        "i[j]",
        "k(l)",
        "m|n",
        "o*p",
        "q.r",
        "$",
        "^",
        "{x}",
        "é",
        "e\u0301",
        "漢字",
        "😀👍🏽",
    ]
    texts += ["a\0b", "yes", "yes please", "no", "# x", "// y", "\x7f", "\u2028"]
    assert matches(engine, regex_of_texts(texts), [*texts, "", "yes ", "qxr", "oop", "e", "a"]) == (
        [True] * len(texts) + [False] * 6
    )
    matches_empty, rest = split_empty(regex_of_texts(["", "ab", "abcd"]), ENGINES[engine][0])
    assert matches_empty
    assert ENGINES[engine][1](rest or "", ["ab", "abcd", "abc"]) == [True, True, False]


@pytest.mark.parametrize("texts", [[], ["a\ud800"]])
def test_d2_a_choice_without_texts_or_with_a_surrogate_is_refused(texts: list[str]) -> None:
    with pytest.raises(SpecError):
        regex_of_texts(texts)


@ON_EVERY_ENGINE
def test_c3_every_low_character_survives_as_literal_and_in_classes(engine: str) -> None:
    for code in [*range(1, 256), 0x2028, 0xFEFF, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]:
        char, escape = chr(code), rf"\u{{{code:x}}}"
        expect(engine, f"{escape}a1", [f"{char}a1"], ["a1", char])
        expect(engine, f"[{escape}a-c1]", list(dict.fromkeys([char, "a", "1"])), [f"{char}a", "-d"])


def test_c3_engines_write_no_warnings_about_what_they_get(capfd: pytest.CaptureFixture[str]) -> None:
    everything = "".join(rf"\u{{{code:x}}}" for code in range(1, 0x300))
    xgrammar_matches(translate(f"^{everything}[^{everything}]$", XGRAMMAR_DIALECT), ["a"])
    assert "Warning" not in capfd.readouterr().err


# ------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("pattern", "keyword"),
    [
        ("(?=ab)abc", "look-ahead"),
        ("a(?!b)", "look-ahead"),
        ("(?<=a)b", "look-behind"),
        ("(?<!a)b", "look-behind"),
        (r"(a)\1", "back-reference"),
        (r"(?P<x>a)(?P=x)", "back-reference"),
        (r"(?<x>a)\k<x>", "back-reference"),
        (r"\bcat\b", "word boundary"),
        (r"a\Bb", "word boundary"),
        ("a(?i)bc", "flag"),
        ("(?m)abc", "flag"),
        ("(?i:abc)", "flag"),
        ("(?i)(?s)abc", "flag"),
        ("(?s:.)", "flag"),
        ("a(?x-i:b)", "flag"),
        ("a++b", "possessive repetition"),
        ("a{2}+", "possessive repetition"),
        ("(?>ab)", "atomic group"),
        ("(?#note)a", "comment group"),
        ("(a)(?(1)b|c)", "conditional"),
        ("(?R)", "recursion"),
        (r"\141", "back-reference"),
        (r"[\141]", "octal escape"),
        ("[[:alpha:]]", "POSIX class"),
        (r"\p{Greek}", r"property \p{Greek}"),
        (r"\R", r"line break \R"),
    ],
)
def test_d11_constructs_outside_the_dialect_are_unsupported_by_name(pattern: str, keyword: str) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        check_regex(pattern)
    assert caught.value.keyword == keyword
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        ("[a-z", "1:1"),
        ("(a", "1:1"),
        ("a)", "1:2"),
        ("ab\n(c", "2:1"),
        ("*a", "1:1"),
        ("a|+", "1:3"),
        ("^*", "1:2"),
        ("a**", "1:3"),
        ("a{2}{3}", "1:5"),
        ("a{5,2}", "1:2"),
        ("a{2", "1:2"),
        ("a{1,x}", "1:2"),
        ("a{100001}", "1:2"),
        ("[z-a]", "1:2"),
        (r"[a-\d]", "1:2"),
        (r"\y", "1:1"),
        ("a\\", "1:2"),
        (r"\x4", "1:1"),
        (r"\ud800", "1:1"),
        (r"\u{110000}", "1:1"),
        ("[]a]", "1:1"),
        ("[^]", "1:1"),
        ("(?<a>x)(?<a>y)", "1:8"),
        ("(?", "1:1"),
        ("(?<1>x)", "1:1"),
        (r"\p", "1:1"),
        ("(" * 201 + ")" * 201, "1:201"),
        ("((a{1,99999}){1,99999}b)", "1:1"),
        ("x" * 65_537, "1:1"),
    ],
)
def test_d11_bad_syntax_is_refused_with_its_place(pattern: str, where: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_regex(pattern)
    assert not isinstance(caught.value, UnsupportedFeature)
    assert caught.value.where == where


@pytest.mark.parametrize("pattern", ["ab\0cd", "[\0]", "\0"])
def test_d6_a_raw_nul_is_refused(pattern: str) -> None:
    with pytest.raises(SpecError, match="NUL"):
        check_regex(pattern)


@pytest.mark.parametrize("pattern", [r"[^\s\S]", r"a[^\w\W]", r"(?:[^\d\D]|[^\s\S]b)", r"[^\u{0}-\u{10FFFF}]+"])
def test_b12_a_pattern_that_no_text_matches_is_refused(pattern: str) -> None:
    with pytest.raises(SpecError, match="no text can match"):
        check_regex(pattern)


@ON_EVERY_ENGINE
def test_b12_dead_parts_beside_living_ones_fall_away(engine: str) -> None:
    expect(engine, r"a|b[^\s\S]|c(?:[^\s\S])*d", ["a", "cd"], ["b", "c"])


@ON_EVERY_ENGINE
def test_d9_groups_nest_to_the_limit(engine: str) -> None:
    expect(engine, "(" * 200 + "a" + ")" * 200, ["a"], ["b"])


def test_d9_what_an_engine_cannot_nest_is_unsupported_for_it_alone() -> None:
    deep = "(x" * 150 + "a" + "y)?" * 150
    for name in ("guidance", "outlines"):
        with pytest.raises(UnsupportedFeature) as caught:
            translate("a" + deep, ENGINES[name][0])
        assert caught.value.backend == name
    assert matches("xgrammar", deep, [""]) == [True]


def test_d10_outlines_refuses_what_would_take_it_minutes() -> None:
    with pytest.raises(UnsupportedFeature):
        translate(".{0,20000}", OUTLINES_DIALECT)


@pytest.mark.parametrize("engine", ["xgrammar", "guidance"])
def test_d10_large_counts_are_exact(engine: str) -> None:
    expect(engine, "a{1,5000}", ["a", "a" * 5000], ["", "a" * 5001])
    expect(engine, "((a{1,100}){1,100}){1,100}", ["a", "a" * 500], ["b"])


def test_c2_a_parsed_regex_and_its_text_translate_alike() -> None:
    regex = parse_regex("a.b")
    assert translate(regex, XGRAMMAR_DIALECT) == translate("a.b", XGRAMMAR_DIALECT)
    assert regex == parse_regex("a.b")
    assert hash(regex) == hash(parse_regex("a.b"))


@ON_EVERY_ENGINE
def test_c3_a_third_party_dialect_writes_groups_and_escapes_its_own_way(engine: str) -> None:
    dialect = RegexDialect("other", group="(", escape=r"\U{:08X}", max_repeat=10)
    written = translate(r"(?:ab|\u2028){2}", dialect)
    assert "(?:" not in written
    assert ENGINES[engine][1](written, ["ab\u2028", "ab\u2028ab"]) == [True, False]
    with pytest.raises(UnsupportedFeature):
        translate("a{11}", dialect)


def test_c3_terminals_take_the_flags_of_lark() -> None:
    assert matches("xgrammar", parse_terminal("[^k]é.", "is"), ["aÉ\n", "Ké.", "k"]) == [True, False, False]
    with pytest.raises(UnsupportedFeature):
        parse_terminal("a", "x")


# -------------------------------------------------------------------------------------------------- random patterns

_PIECES = [
    "a", "b", "c", "é", "😀", "\n", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "[ab]", "[^a]", "[a-c]", "[é-ü]",
    r"[\w-]", r"[^\s]", "-", r"\.", r"\n", "1", " ", r"[^\d\n]", '"', r"\\", "}", "]", "/", "#", "_", "A",
    r"[\x80-\xff]", r"\x41", r"[\]\\^-]", r"[\x01-\x1fa]", "~", "&", "[&~-]", "'", r"[\^a]",
]  # fmt: skip
_COUNTS = ["*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}", "{,2}", "{0}", "{3,5}", "*?", "+?", "{0,1}?"]


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    options = st.lists(inner, min_size=1, max_size=3).map("|".join)
    group = st.tuples(st.sampled_from(["(", "(?:"]), options).map(lambda pair: f"{pair[0]}{pair[1]})")
    repeated = st.tuples(group | st.sampled_from(_PIECES), st.sampled_from(_COUNTS)).map("".join)
    return st.lists(group | repeated | inner, max_size=3).map("".join)


PATTERNS = st.recursive(st.sampled_from(_PIECES), _grow, max_leaves=8)
TEXTS = st.lists(st.text("abcAé😀\n 1-_.\"\\/#~&üÿ}]^\x80\x05'", max_size=5), min_size=8, max_size=24)


@settings(max_examples=500, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["", "", "(?i)", "(?s)", "(?is)"]), PATTERNS, TEXTS)
def test_c3_random_patterns_mean_what_python_says_on_every_engine(flags: str, pattern: str, texts: list[str]) -> None:
    pattern = flags + pattern
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of classes that may change their meaning one day
        python = re.compile(pattern, re.ASCII)
    expected = [python.fullmatch(text) is not None for text in texts]
    regex = parse_regex(pattern)
    assert regex.matches_empty == (python.fullmatch("") is not None)
    for engine in ENGINES:
        try:
            found = matches(engine, regex, texts)
        except UnsupportedFeature:
            assert engine == "outlines"
            continue
        assert found == expected, (engine, translate(regex, ENGINES[engine][0]))


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(PATTERNS, TEXTS)
def test_c3_taking_the_empty_text_out_takes_out_nothing_else(pattern: str, texts: list[str]) -> None:
    regex = parse_regex(pattern)
    rest = regex.without_empty()
    expected = [text != "" and found for text, found in zip(texts, matches("guidance", regex, texts), strict=True)]
    if rest is None:
        assert not any(expected)
    else:
        assert matches("outlines", rest, texts) == expected


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.text("ab(|)*+?{}[]^$.\\-,01xpudwkP<>=!:é\n", max_size=12))
def test_d11_any_text_parses_or_is_refused_with_a_place(pattern: str) -> None:
    error = None
    try:
        check_regex(pattern)
    except SpecError as caught:
        error = caught
    assert error is None or (error.line or 0) >= 1
    assert error is None or (error.column or 0) >= 1


def test_c3_an_engine_that_lists_classes_gets_large_ones_by_what_they_leave_out() -> None:
    lists = RegexDialect("lists", negate=True, max_class=100)
    assert translate('[^"a]', lists) == '[^"a]'
    assert translate(r"[\s\S]", lists) == "[^]"
    assert translate("[a-z]", lists) == "[a-z]"
    with pytest.raises(UnsupportedFeature, match="128 characters in a class, more than the 100"):
        translate(r"[\x00-\x7f]", lists)
    assert '"' not in translate('[^"]', RegexDialect("plain"))
