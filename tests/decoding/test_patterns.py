"""Markers that are patterns, against Python's `re` tried at every begin and end of the text."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from grammar_backends import (
    CompiledGrammar,
    GrammarOptions,
    GrammarSpec,
    MarkerSearch,
    PatternMarker,
    ReasoningGate,
    StructuredOutputGrammar,
    TextMarker,
    TokenMarker,
    TriggerGate,
    Vocabulary,
    load_backend,
    load_vocabulary,
)
from grammar_backends.contract import unpack_ids
from grammar_backends.decoding import beginnings, gate, markers, text_automaton
from grammar_backends.errors import SpecError, UnsupportedFeature

BYTE = load_vocabulary("byte")
EOS, PAD, BOS, THINK, UNTHINK, CALL, UNCALL = range(256, 263)
ALPHABET = ["a", "b", "<", ">", "1", "\n", "é", "è", "漢", "😀"]
SMALL_GRAMMAR = GrammarSpec.regex("[ab<>1é漢]{1,3}|<a*>1?|(漢|b)+1")

Text = TextMarker | PatternMarker


# --------------------------------------------------------------------------------------------------- the oracle


@functools.cache
def matches(marker: Text, text: bytes) -> bool:
    if isinstance(marker, TextMarker):
        return text == marker.text.encode()
    try:
        return re.fullmatch(marker.pattern, text.decode(), re.ASCII) is not None
    except UnicodeDecodeError:
        return False


class Oracle:
    """Where the tokens since the last marker lead, found anew each time from all of them."""

    def __init__(self, vocabulary: Vocabulary, made: Sequence[Text]) -> None:
        self.texts = vocabulary.text_tokens
        self.markers = sorted(made, key=lambda marker: isinstance(marker, PatternMarker))

    def found(self, tokens: Sequence[int]) -> tuple[Text, bytes] | None:
        """The marker that the last token completes, and what the grammar gets."""
        if not self.texts[tokens[-1]]:
            return None
        control = [place for place, token in enumerate(tokens) if not self.texts[token]]
        text = b"".join(self.texts[token] for token in tokens[control[-1] + 1 if control else 0 :])
        for end in range(len(text) - len(self.texts[tokens[-1]]) + 1, len(text) + 1):
            for begin in range(end):
                for marker in self.markers:
                    if matches(marker, text[begin:end]):
                        return marker, text[begin if marker.implicit else end :]
        return None


def random_pattern(rng: random.Random, depth: int = 3) -> str:
    """Some pattern that means the same to `re`; it may match the empty text."""
    kind = rng.randrange(9 if depth else 4)
    if kind < 2:
        return rng.choice([char for char in ALPHABET if char != "\n"])
    if kind < 4:
        return rng.choice([".", "[ab]", "[^a]", "[é-ê]", "[^<>]", r"\d", r"\w", r"[\s\S]", "[漢-𐍈]", "[^漢]", r"\n"])
    if kind < 6:
        return random_pattern(rng, depth - 1) + random_pattern(rng, depth - 1)
    if kind < 7:
        return f"(?:{random_pattern(rng, depth - 1)}|{random_pattern(rng, depth - 1)})"
    return f"(?:{random_pattern(rng, depth - 1)}){rng.choice(['?', '*', '+', '{2}', '{1,3}', '{2,}', '*?'])}"


def random_markers(rng: random.Random) -> list[Text]:
    made: list[Text] = []
    while len(made) < rng.choice([1, 1, 2, 3]):
        implicit = rng.random() < 0.6
        if rng.random() < 0.25:
            made.append(TextMarker("".join(rng.choices(ALPHABET, k=rng.randint(1, 3))), implicit))
            continue
        pattern = random_pattern(rng)
        if not re.fullmatch(pattern, ""):
            made.append(PatternMarker(pattern, implicit))
    return made


def random_vocabulary(rng: random.Random) -> Vocabulary:
    """Every byte of the alphabet, a control token, and pieces of texts that may begin and end inside characters."""
    bytes_ = sorted({bytes([byte]) for char in ALPHABET for byte in char.encode()} | {b"\xff", b"\x80"})
    pieces = set()
    while len(pieces) < 60:
        text = "".join(rng.choices(ALPHABET, k=rng.randint(1, 5))).encode()
        cut = rng.randrange(len(text))
        pieces.add(text[cut : rng.randint(cut + 1, len(text))])
    tokens = [*bytes_, *sorted(pieces), b"a"]
    return Vocabulary.from_bytes(
        [*tokens, b"<ctl>", b"<end>"], special_ids=[len(tokens), len(tokens) + 1], stop_ids=[len(tokens) + 1]
    )


def row(grammar: StructuredOutputGrammar, words: int) -> list[int]:
    bitmask = np.full((1, words), 0x5A5A5A5A, dtype=np.int32)
    grammar.fill_bitmask(bitmask, 0)
    return unpack_ids(bitmask[0])


# ---------------------------------------------------------------------------------------------------- the search


@pytest.mark.parametrize("seed", range(20))
def test_j5_a_pattern_is_found_at_its_first_end_with_the_leftmost_begin(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        vocabulary, made = random_vocabulary(rng), random_markers(rng)
        search, oracle = MarkerSearch(vocabulary, made), Oracle(vocabulary, made)
        for _ in range(10):
            place, seen = search.start, []
            for _ in range(rng.randint(1, 25)):
                seen.append(rng.randrange(vocabulary.size - 1))
                place, match = search.follow(place, seen[-1])
                expected = oracle.found(seen)
                assert (match and match.marker) == (expected and expected[0]), (made, seen)
                if match is not None and expected is not None:
                    assert match.content is not None
                    assert b"".join(vocabulary.text_tokens[token] for token in match.content) == expected[1]
                    assert place == search.start
                    seen = []


def check_rows(rng: random.Random) -> None:
    """A closed gate on a random way: its row, and what it takes, against the oracle and fresh grammars."""
    vocabulary, made = random_vocabulary(rng), random_markers(rng)
    oracle = Oracle(vocabulary, made)
    compiled = load_backend("xgrammar", vocabulary).compile_grammar(SMALL_GRAMMAR)
    closed = TriggerGate(compiled.new_grammar(), MarkerSearch(vocabulary, made))
    legal = functools.cache(functools.partial(begins, compiled, vocabulary))
    seen: list[int] = []
    for _ in range(12):
        contents = {token: oracle.found([*seen, token]) for token in range(vocabulary.size)}
        expected = [token for token, match in contents.items() if match is None or not match[1] or legal(match[1])]
        assert row(closed, vocabulary.words) == expected, (made, seen)
        assert [token for token in range(vocabulary.size) if closed.validate_tokens([token])] == expected
        token = rng.randrange(vocabulary.size - 1)
        assert closed.accept_tokens("r", [token]) == (token in expected)
        if closed.is_open:
            closed.rollback(1)
        elif token in expected:
            seen.append(token)


@pytest.mark.parametrize("seed", range(8))
def test_f13_exactly_the_tokens_are_illegal_of_which_the_grammar_refuses_what_it_would_get(seed: int) -> None:
    rng = random.Random(1000 + seed)
    for _ in range(3):
        check_rows(rng)


@pytest.mark.parametrize("name", ["guidance", "xgrammar", "outlines"])
def test_f13_other_spellings_of_a_forced_text_are_not_refused_where_the_engine_leaves_them_out(name: str) -> None:
    pieces = [*(bytes([byte]) for byte in range(256)), b'":', b'":"', b'":1', b'"x', b"<end>"]
    vocabulary = Vocabulary.from_bytes(pieces, special_ids=[260], stop_ids=[260])
    schema = {"type": "object", "properties": {"a": {"const": "b"}}, "required": ["a"], "additionalProperties": False}
    spec = GrammarSpec.json_schema(schema, options=GrammarOptions(whitespace="compact"))
    compiled = load_backend(name, vocabulary).compile_grammar(spec)
    closed = TriggerGate(compiled.new_grammar(), MarkerSearch(vocabulary, [PatternMarker(r'\{"[a-z]"', implicit=True)]))
    assert closed.accept_tokens("r", [*b'say {"a'])
    allowed = row(closed, vocabulary.words)
    assert {ord('"'), 256, 257} <= {*allowed}
    assert {258, 259}.isdisjoint(allowed)
    assert [token for token in range(vocabulary.size) if closed.validate_tokens([token])] == allowed


def test_a33_what_is_kept_is_bounded_and_may_be_forgotten_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_automaton, "MAX_SIZE", 40)
    monkeypatch.setattr(markers, "MAX_KEPT", markers.KEPT_PER_STATE + 1)
    monkeypatch.setattr(markers, "SPARE_HELD", 0)
    monkeypatch.setattr(gate, "MAX_PLACES", 1)
    monkeypatch.setattr(gate, "MAX_FREE_ROWS", 1)
    monkeypatch.setattr(beginnings, "MAX_ROWS", 1)
    monkeypatch.setattr(beginnings, "MAX_ANSWERS", 1)
    rng = random.Random(33)
    for _ in range(10):
        check_rows(rng)


def test_a33_a_long_text_leaves_little_behind() -> None:
    search = MarkerSearch(BYTE, [PatternMarker("<[a-z]{0,40}é.{2,30}x>", implicit=True)])
    compiled = load_backend("outlines", BYTE).compile_grammar(SMALL_GRAMMAR)
    closed = TriggerGate(compiled.new_grammar(max_rollback=4), search)
    rng, sizes = random.Random(4), []
    for _ in range(3000):
        assert closed.accept_tokens("r", [rng.choice(b"<<ab\n") if rng.random() < 0.9 else rng.randrange(256)])
        row(closed, BYTE.words)
        held = closed._place.held
        sizes.append(held.size if held else 0)
    assert max(sizes) <= 2 * 160 + markers.SPARE_HELD
    assert len(closed._refused_at) <= gate.MAX_PLACES
    assert len(closed._free_rows) <= gate.MAX_FREE_ROWS


def begins(compiled: CompiledGrammar, vocabulary: Vocabulary, content: bytes) -> bool:
    tokens = vocabulary.spell(content)
    return compiled.new_grammar().validate_tokens(tokens) == tokens


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        (PatternMarker(r"<function=[a-z_]+>", implicit=True), "well <func <function=get_time>"),
        (PatternMarker(r"<[^>\n]*>", implicit=True), "x < 3\n é<tool 漢字>"),
        (PatternMarker(r"\p{Lu}\p{L}{2,8}:"), "an Äpfelé: Über:"),
    ],
)
def test_f13_the_walk_over_a_large_vocabulary_finds_every_completing_token(marker: Text, text: str) -> None:
    tekken = load_vocabulary("tekken")
    search = MarkerSearch(tekken, [marker])
    place = search.start
    for token in tekken.encode(text):
        following, match = search.follow(place, token)
        if match is not None:
            break
        place = following
    else:
        pytest.fail("no place from which tokens complete the marker")
    matches = {id_: search.follow(place, id_)[1] for id_ in range(tekken.size)}
    completing = {id_ for id_, match in matches.items() if match is not None and match.content != ()}
    assert search.refused(place, Refusing()) == completing


class Refusing(beginnings.Beginnings):
    """A grammar that begins with nothing."""

    def __init__(self) -> None:
        pass

    def refuses(self, content: tuple[int, ...] | None) -> bool:
        return content != ()

    def refused_behind(self, before: tuple[int, ...], ids: Any) -> list[int]:
        return [*ids]


def test_j5_of_equal_ends_the_leftmost_begin_wins_then_the_text_then_the_order() -> None:
    first, second, text = PatternMarker("b+>"), PatternMarker("[ab]+>"), TextMarker("ab>")
    assert found([first, second, text], "b>") == first
    assert found([second, first, text], "b>") == second
    assert found([first, second, text], "ab>") == text
    assert found([first, second, text], "aab>") == second
    assert found([first, second, TokenMarker([ord(">")])], "aab>") == TokenMarker((ord(">"),))


def found(made: Sequence[Any], text: str) -> Any:
    search, match = MarkerSearch(BYTE, made), None
    place = search.start
    for token in text.encode():
        assert match is None
        place, match = search.follow(place, token)
    return match and match.marker


EDGES = bytes.fromhex("007f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5ff")
"""Bytes on both sides of every border of UTF-8."""


@pytest.mark.parametrize(
    "pattern", [".", r"[^a]", r"[\u0800-\ud7ff]", r"[\U00010000-\U0010ffffé]", r"[^\u3000-\U000f0000]"]
)
def test_j5_bytes_that_are_no_character_are_no_text(pattern: str) -> None:
    search = MarkerSearch(BYTE, [PatternMarker(pattern)])
    starts = [*itertools.product(EDGES, repeat=3), *itertools.product(EDGES[18:23], EDGES, EDGES[2:8], EDGES[2:8])]
    for data in map(bytes, starts):
        ends = (
            end for end in range(1, len(data) + 1) if any(matches(search.markers[0], data[b:end]) for b in range(end))
        )
        assert find_first(search, data) == next(ends, None), data


def find_first(search: MarkerSearch, tokens: Sequence[int]) -> int | None:
    place = search.start
    for count, token in enumerate(tokens, start=1):
        place, match = search.follow(place, token)
        if match is not None:
            return count
    return None


def test_j5_a_fixed_text_is_the_simplest_pattern() -> None:
    rng = random.Random(7)
    vocabulary = random_vocabulary(rng)
    for text in ("ab", "é<", "aab", "漢é漢"):
        for implicit in (False, True):
            fixed = MarkerSearch(vocabulary, [TextMarker(text, implicit)])
            pattern = MarkerSearch(vocabulary, [PatternMarker(text, implicit)])
            for _ in range(30):
                tokens = rng.choices(range(vocabulary.size), k=30)
                assert fixed.find_last(tokens)[0] == pattern.find_last(tokens)[0]


def test_a29_a_pattern_does_not_reach_across_a_control_token() -> None:
    search = MarkerSearch(BYTE, [PatternMarker("<.*>")])
    assert search.find_last([*b"<a", CALL, *b"b>"])[0] == 0
    assert search.find_last([*b"<a", CALL, *b"<b>", *b"<c"])[0] == 6


def test_j5_what_a_pattern_hands_over_are_the_tokens_that_spelled_it() -> None:
    pieces = [b"a", b"b", b"<", b">", b"ab", b"x<a", b">1", b"1", b"<end>"]
    vocabulary = Vocabulary.from_bytes(pieces, special_ids=[8], stop_ids=[8])
    search, place = MarkerSearch(vocabulary, [PatternMarker("<[ab]+>", implicit=True)]), None
    for token in (5, 4, 0, 1):
        place, match = search.follow(place or search.start, token)
        assert match is None
    place, match = search.follow(place, 6)
    assert match == (search.markers[0], (2, 0, 4, 0, 1, 6))  # "<a" was the end of a token, and is spelled anew
    assert place == search.start


def test_f12_a_prompt_may_end_reasoning_or_begin_a_trigger_with_a_pattern() -> None:
    ends, starts = MarkerSearch(BYTE, [PatternMarker("</[a-z]+>")]), MarkerSearch(BYTE, [PatternMarker("<[a-z]+>")])
    for prompt, is_open in ((b"<a>x</a>", True), (b"<a>x</a><b", True), (b"</a><b>", False), (b"x</", False)):
        assert ReasoningGate(numbers(), ends, start=starts, prompt=[*prompt]).is_open == is_open
    begun = ReasoningGate(numbers(), ends, prompt=[*b"x</"])
    assert begun.accept_tokens("r", [*b"a>7"])
    assert begun.is_open
    implicit = MarkerSearch(BYTE, [PatternMarker("[0-9]{2}", implicit=True)])
    assert TriggerGate(numbers(), implicit, prompt=[*b"is 42"]).forced_bytes() == b""
    assert row(TriggerGate(numbers(), implicit, prompt=[*b"is 42"]), BYTE.words) == sorted([*b"0123456789;", EOS])
    with pytest.raises(SpecError, match="refuses the trigger at the end of the prompt"):
        TriggerGate(numbers(), implicit, prompt=[*b"is 04"])
    assert row(TriggerGate(numbers(), implicit, prompt=[*b"is 0"]), BYTE.words) == sorted(
        set(range(BYTE.size)) - {*b"0123456789"}
    )


def numbers() -> StructuredOutputGrammar:
    return load_backend("guidance", BYTE).compile_grammar(GrammarSpec.regex("[1-9][0-9]*(;[0-9]+)?")).new_grammar()


def test_j7_gates_with_patterns_compose() -> None:
    calls = MarkerSearch(BYTE, [PatternMarker("<(call|fn)=[a-z]*>")])
    inner = TriggerGate(numbers(), calls, bound=UNCALL, rearm=True)
    outer = ReasoningGate(inner, MarkerSearch(BYTE, [PatternMarker("<call=[a-z]+>", implicit=True)]))
    assert outer.accept_tokens("r", [*b"<fn=x> hm <call=a"])
    assert not outer.is_open
    assert outer.validate_tokens([*b">12x"]) == [*b">12"]
    assert outer.accept_tokens("r", [*b">12", UNCALL, *b" and <fn=>7"])  # the implicit end opened the inner gate, too
    assert (outer.is_open, outer.opened_at) == (True, 18)
    outer.rollback(2)
    assert not outer.is_open
    assert outer.accept_tokens("r", [*b"b>8", UNCALL, EOS])


def test_j7_patterns_give_no_terminator_and_none_is_known_to_be_refused() -> None:
    ends = MarkerSearch(BYTE, [PatternMarker("x+", implicit=True)])
    with pytest.raises(ValueError, match="needs a terminator"):
        ReasoningGate(numbers(), ends, budget=3)
    never = ReasoningGate(numbers(), ends)  # though the grammar begins with none of them
    assert ord("x") not in row(never, BYTE.words)
    spent = ReasoningGate(numbers(), ends, budget=1, terminator=[UNTHINK])
    assert spent.accept_tokens("r", [ord("a")])
    assert row(spent, BYTE.words) == [UNTHINK]


def test_a24_threads_share_a_search() -> None:
    rng = random.Random(24)
    vocabulary, made = random_vocabulary(rng), [PatternMarker("<(a|é.*)*[^<]b", True), PatternMarker("漢+[ab]{2,4}1")]
    texts = [rng.choices(range(vocabulary.size), k=300) for _ in range(8)]
    expected = [MarkerSearch(vocabulary, made).find_last(tokens)[0] for tokens in texts]
    for _ in range(5):
        search = MarkerSearch(vocabulary, made)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert [last for last, _ in pool.map(search.find_last, texts)] == expected


@pytest.mark.parametrize(
    ("pattern", "error", "message", "place"),
    [
        ("a*", SpecError, "matches the empty text", None),
        ("a|(b?)", SpecError, "matches the empty text", None),
        ("", SpecError, "matches the empty text", None),
        ("[ab]{1,1001}", SpecError, "1001 characters", None),
        ("([a-z]{40}){40}", SpecError, "1600 characters", None),
        ("ab\n(c", SpecError, "never closed", (2, 1)),
        ("a(?=b)", UnsupportedFeature, "look-ahead", (1, 2)),
        ("^a", UnsupportedFeature, r"\^ is not supported in a marker", (1, 1)),
        ("[$]\n(a|b$)", UnsupportedFeature, r"\$ is not supported in a marker", (2, 5)),
        (r"\Aa", UnsupportedFeature, r"\\A is not supported", (1, 1)),
    ],
)
def test_j5_patterns_that_mean_nothing_here_are_refused_with_their_place(
    pattern: str, error: type[SpecError], message: str, place: tuple[int, int] | None
) -> None:
    with pytest.raises(error, match=message) as caught:
        PatternMarker(pattern)
    assert place is None or (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize("pattern", [r"\^a\$", "[$^]", r"[\]^]", r"\p{^L}+", "a{1,1000}"])
def test_j5_what_only_looks_like_an_anchor_is_none(pattern: str) -> None:
    assert PatternMarker(pattern).pattern == pattern
