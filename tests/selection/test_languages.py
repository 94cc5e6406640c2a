"""Patterns as languages (C3, D11): what a pattern finds, what it does not, and both at once, against Python's `re`."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator

import pytest

from grammar_backends.contract.regex import Ranges, parse_pattern
from grammar_backends.selection.languages import (
    EVERYTHING,
    NOTHING,
    Language,
    but,
    common,
    exactly,
    forbidden_texts,
    keywords_of,
    language_of,
    looks_ahead,
    pattern_of,
    strings_of,
    texts,
)

LETTERS = "ab1 "
SHORT = ["".join(letters) for length in range(5) for letters in itertools.product(LETTERS, repeat=length)]


def found(language: Language | None) -> set[str]:
    """The short texts in a language, which are also those that the pattern for it matches."""
    assert language is not None
    texts = {text for text in SHORT if holds(language, text)}
    pattern = pattern_of(language) if not language.is_empty else None
    assert pattern is None or texts == matched(pattern)
    return texts


def holds(language: Language, text: str) -> bool:
    state = 0
    for letter in text:
        moves = (to for ranges, to in language.moves[state] for low, high in ranges if low <= ord(letter) <= high)
        following = next(moves, None)
        if following is None:
            return False
        state = following
    return state in language.accepting


def matched(pattern: str) -> set[str]:
    return {text for text in SHORT if re.search(pattern, text)}


PATTERNS = [
    "", "a", "^a", "a$", "^$", "^a|b$", "a|^b", "(a|b)1", "a*", "^a*$", "^[ab]{2,3}$", "^(a1)+$", r"^\d+$", "[^a]",
    "^(?!a)", "^(?=a)", "^(?!a$)[ab]+$", "^(?!ab|1)", "^(?=.*a)(?=.*1).{2,3}$", "^a(?!b)", "a(?=b)", "^(?!.*ab).*$",
    "(?!a)b", "^(?!$)", "^(?=a|b$).1?$", "(?!a)b|^1$", r"^(?!\s)(?!.*\s$).+$", "^(?:a|b)(?=1)", "^(?!(?:a|b1)$)[ab]1?",
    r"\s", "^(?!)a", "^(?=)a", "^a(?!b)(?!1)", "(?=1)1", "^(?=a(?!b)).*$",
    "^((?!ab).)*$", "^(?:(?!a|b1)[ab1])+$", "^b((?!a+1).){1,2}$", "^(?=.*1)((?!aa).)*$", r"^((?!a)\w)*$|^a$",
    "((?!ab).)*$", r"^(?:(?!a(?!b)).)*$",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_c3_a_language_has_the_texts_that_its_pattern_matches(pattern: str) -> None:
    language = language_of(pattern, wide=False)
    assert found(language) == matched(pattern)
    assert language is not None
    assert found(but(EVERYTHING, [language])) == {*SHORT} - matched(pattern)
    written = "" if language.is_empty else pattern_of(language)
    assert written is not None
    if 0 < len(written) < 400:
        assert language_of(written, wide=False) == language_of(written, wide=True) == language


def random_pattern(source: random.Random, depth: int = 3) -> str:
    """A pattern in the syntax that all dialects share."""
    if not depth:
        return source.choice(["a", "b", "1", ".", "[ab]", "[^a]", r"\d", r"\s", " "])
    one, other = random_pattern(source, depth - 1), random_pattern(source, depth - 1)
    shapes = (f"(?:{one}|{other})", one + other, f"(?:{one}){source.choice(['*', '+', '?', '{2}', '{0,1}', '{1,}'])}")
    return source.choice(shapes)


def cases() -> Iterator[str]:
    source = random.Random(7)
    for _ in range(150):
        looks = [f"(?{source.choice('=!')}{random_pattern(source, 2)}{source.choice(['', '$'])})" for _ in range(3)]
        look = "".join(looks[: source.randrange(3)])
        yield (
            source.choice(["", "^"])
            + source.choice(["", random_pattern(source, 1)])
            + look
            + random_pattern(source, 2)
            + source.choice(["", "$"])
        )


def test_c3_random_patterns_and_their_languages_agree_on_every_short_text() -> None:
    languages = {}
    for pattern in cases():
        language = language_of(pattern, wide=False)
        if language is not None:
            assert found(language) == matched(pattern), pattern
            languages[pattern] = language
    assert sum(map(looks_ahead, languages)) > 90
    assert len(languages) > 145
    for one, other in itertools.pairwise(languages):
        mine, yours = languages[one], languages[other]
        assert mine is not None
        assert yours is not None
        assert found(common([mine, yours])) == matched(one) & matched(other), (one, other)
        assert found(but(mine, [yours])) == matched(one) - matched(other), (one, other)
        if mine == yours:
            assert matched(one) == matched(other)


def test_c3_equal_languages_are_equal() -> None:
    assert language_of("^(?:a|b)$", False) == language_of("^[ab]$", True) == texts(["b", "a"])
    assert language_of("a", False) == language_of(r"^[^a]*a[\s\S]*$", False)
    assert language_of("^(?!)", False) == NOTHING == texts([])
    assert language_of("", False) == EVERYTHING


def test_c3_where_dialects_differ_what_all_of_them_match_and_what_one_of_them_matches_are_told_apart() -> None:
    def reads(shorthand: str, character: str, wide: bool) -> bool:
        ranges: Ranges = parse_pattern(shorthand, wide=wide).ranges  # type: ignore[union-attr]  # it is one set
        return any(low <= ord(character) <= high for low, high in ranges)

    for shorthand, characters in {
        r"\w": "é\u0301٣Ⅷⓐ\u200d\u203f", r"\d": "٣", r"\s": "\xa0\ufeff\x85\x1c", ".": "\r\u2028",
        r"\W": "é\u0301٣", r"\D": "٣", r"\S": "\xa0\ufeff\x85", r"[^\w]": "é", r"[^\W]": "é", r"[\Da]": "٣",
    }.items():  # fmt: skip
        for character in characters:
            assert (reads(shorthand, character, False), reads(shorthand, character, True)) == (False, True)
    for shorthand, character in {r"\w": "a", r"\d": "1", r"\s": "\t", ".": "a", r"\W": "-", r"[^\w]": "-"}.items():
        assert (reads(shorthand, character, False), reads(shorthand, character, True)) == (True, True)
    for everything in (r"[\s\S]", r"[\W\w]", r"[x\d\D]"):
        assert parse_pattern(everything, wide=False) == parse_pattern(everything, wide=True)
    for shorthand in (r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", "."):
        for code in (*range(0x400), *range(0x2000, 0x2100), *range(0x1D400, 0x1D440)):
            for flags in (0, re.ASCII):
                if re.fullmatch(shorthand, chr(code), flags):
                    assert reads(shorthand, chr(code), True), (shorthand, hex(code))
    assert exactly(r"\w") is None
    assert exactly("[a-z]") is not None


def test_c3_what_a_pattern_does_not_match_is_what_no_dialect_matches() -> None:
    language = language_of(r"\w", wide=True)
    assert language is not None
    others = but(EVERYTHING, [language])
    pattern = pattern_of(others) if others is not None else None
    assert pattern is not None
    assert re.search(pattern, "- +")
    assert not any(re.search(pattern, text) for text in ("a", "é", "- ٣"))
    spaces = strings_of({"not": {"pattern": r"\s"}}, wide=False)
    assert spaces is not None
    assert not re.search(str(pattern_of(spaces)), "a\u00a0b")


@pytest.mark.parametrize(
    ("schema", "accepted"),
    [
        (True, {*SHORT}),
        (False, set()),
        ({"type": "integer"}, set()),
        ({"minLength": 2, "maxLength": 3.0}, {text for text in SHORT if 2 <= len(text) <= 3}),
        ({"minLength": 3, "maxLength": 1}, set()),
        ({"minLength": 4}, {text for text in SHORT if len(text) == 4}),
        ({"enum": ["a", "b1", 3], "minimum": 9}, {"a", "b1"}),
        ({"not": {"const": "a"}, "maxLength": 1}, {"", "b", "1", " "}),
        ({"allOf": [{"pattern": "^a"}, {"pattern": "b$"}, True]}, matched("^a") & matched("b$")),
        ({"anyOf": [{"pattern": "^a"}, {"type": "null"}, False]}, matched("^a")),
        ({"title": "t", "required": ["a"], "pattern": "1"}, matched("1")),
    ],
    ids=str,
)
def test_c3_the_strings_of_a_schema(schema: object, accepted: set[str]) -> None:
    assert found(strings_of(schema, wide=False)) == accepted


@pytest.mark.parametrize(
    "schema",
    [{"format": "email"}, {"not": {"format": "time"}}, {"$ref": "#"}, {"oneOf": [True]}, {"pattern": r"\bword"}],
    ids=str,
)
def test_c3_the_strings_of_a_schema_with_other_keywords_are_not_known(schema: object) -> None:
    assert strings_of(schema, wide=False) is None


@pytest.mark.parametrize("pattern", [
    "(?<!a)b", r"\bfoo", r"(a)\1", "a(^b)", "(a$)b", r"\Aa", r"a\Z", "(?:(?!a).)*", "(?=a)*b", "(",
    "^((?!a).)*b$", "^((?!a?).)*$", "^((?!^a).)*$", "^((?!a$).)*$", "^((?!a).)*b((?!b).)*$", r"^((?!a).)*\$",
    "[" + "a" * 500 + "]", "a{999}", "(a?){399}b{399}", r"^(?=.{1,255}$)(.{1,63}\.){1,127}[a-z]+$",
])  # fmt: skip
def test_d11_a_pattern_that_is_too_much_or_means_different_things_has_no_language(pattern: str) -> None:
    assert language_of(pattern, wide=False) is None


def test_c3_characters_that_cannot_be_printed_are_escaped_in_a_way_that_all_dialects_read() -> None:
    assert pattern_of(texts(["\x00\x7f\u200b"]) or NOTHING) == r"^\u0000\u007F\u200B$"
    assert pattern_of(texts(["\U000e0001"]) or NOTHING) == "^\U000e0001$"
    assert texts(["\ud800"]) is None
    assert pattern_of(language_of("^[^\U0001f600]$", False) or NOTHING) == "^[^\U0001f600]$"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^(?=a)[a-z]+$", {"pattern": "^a[a-z]*$"}),
        (
            "^(?!.*--)[a-z0-9-]{1,63}$",
            {"pattern": r"^(?:[0-9a-z]|\-[0-9a-z])*\-?$", "minLength": 1, "maxLength": 63},
        ),
        (
            "^(?=.{3,40}$)(?!.*__)[a-z_]+$",
            {"pattern": "^(?:_|(?:[a-z]|_[a-z])(?:[a-z]|_[a-z])*_?)$", "minLength": 3, "maxLength": 40},
        ),
        (
            "^(?=.*[a-c])(?=.*[0-2])[a-c0-2]{40,}$",
            {"pattern": "^(?:[0-2][0-2]*[a-c]|[a-c][a-c]*[0-2])[0-2a-c]*$", "minLength": 40},
        ),
        ("^(?!x)[a-z]{1,40}-[0-9]{1,40}$", None),
    ],
)
def test_c3_counts_that_multiply_with_the_rest_of_a_pattern_become_lengths(
    pattern: str, expected: dict[str, object] | None
) -> None:
    keywords = keywords_of({"pattern": pattern})
    if expected is None:
        assert keywords is not None
        assert {*keywords} == {"pattern"}  # the counts are not those of the whole text
    else:
        assert keywords == expected
        assert strings_of(keywords, wide=False) == language_of(pattern, wide=False)


@pytest.mark.parametrize("schema", [{"pattern": "^(?!)"}, {"pattern": r"\bx"}, {"format": "email"}], ids=str)
def test_c3_what_has_no_strings_or_none_that_are_known_has_no_keywords(schema: object) -> None:
    assert keywords_of(schema) is None


def test_c3_a_pattern_that_nests_deeply_is_not_written() -> None:
    language = language_of("a{59}", wide=False)
    deeper = language_of("a{90}", wide=False)
    assert language is not None
    assert deeper is not None
    assert pattern_of(but(EVERYTHING, [language]) or NOTHING) is not None
    assert pattern_of(but(EVERYTHING, [deeper]) or NOTHING) is None


def test_c3_look_ahead_is_seen_where_it_is_none_of_the_characters() -> None:
    assert looks_ahead("^(?=a)")
    assert looks_ahead("a(?!b)")
    assert not any(map(looks_ahead, [r"\(?=a", "[(?=]", "(?:a)", "(?<=a)"]))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"^(?!(?:if|else)$)\w+$", (["if", "else"], r"^\w+$")),
        ("^(?!(a|[bB]1?)$|1$)a", (["a", "B", "B1", "b", "b1", "1"], "^a")),
        ("^(?!a{0,2}$)(?!b$)", (["", "a", "aa"], "^(?!b$)")),
        (r"^(?!a\$$)", (["a$"], "^")),
        # More or other texts than a list of whole ones has.
        ("^(?!a)b", None),
        (r"^(?!a\$)b", None),
        ("^(?!a+$)b", None),
        (r"^(?!\d$)b", None),
        ("^(?![a-z]{3}$)b", None),
        ("^(?!a$|b)", None),
        ("^(?!a$)|b", None),
        ("^(?!)", None),
        ("^(?!^a$)", None),
        ("^(?=a$)", None),
        ("(?!a$)b", None),
        (r"^(?!\ud800$)", None),
    ],
)
def test_c3_texts_that_a_look_ahead_forbids_are_listed(pattern: str, expected: object) -> None:
    found = forbidden_texts(pattern)
    assert found == expected
    if found is not None:
        assert matched(found[1]) - {*found[0]} == matched(pattern)
