"""Character machines as automata over bytes: beginnings of characters, sharing of states, and bounds."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from grammar_backends.contract import Vocabulary, unpack_ids
from grammar_backends.contract.automata import Automaton, AutomatonArtifact, TokenTree, code_points
from grammar_backends.contract.bitmask import Bitmask


class Words:
    """The beginnings of some words, and on demand any one character that they do not have."""

    def __init__(self, *words: str, other: bool = False) -> None:
        self.words = words
        self.other = other
        self.ranges: Sequence[tuple[str, str]] = [(char, char) for char in sorted(set().union(*words))]
        self.asked = 0

    def start(self) -> str:
        return ""

    def follow(self, state: str, character: str | None) -> str | None:
        self.asked += 1
        if character is None:
            return "?" if self.other and not state else None
        text = state + character
        return text if any(word.startswith(text) for word in self.words) else None

    def can_end(self, state: str) -> bool:
        return state in (*self.words, "?")


BYTES = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), b"\xa5\xe6", b"<end>"], [257], [257], width=300)


def test_a28_beginnings_of_characters_stand_for_exactly_the_characters_that_begin_so() -> None:
    spans: dict[bytes, list[int]] = {}
    for code in itertools.chain(range(0xD800), range(0xE000, 0x110000)):
        data = chr(code).encode()
        for end in range(1, len(data) + 1):
            span = spans.setdefault(data[:end], [code, code])
            span[1] = code
    for data, (low, high) in spans.items():
        if len(data) < 4:
            assert code_points(data) == (low, high, data.decode("utf-8", "ignore") != ""), data
    for pair in itertools.product(range(256), repeat=2):
        assert (code_points(bytes(pair)) is not None) == (bytes(pair) in spans)
    assert [code_points(bytes([byte])) is not None for byte in range(256)] == [bytes([b]) in spans for b in range(256)]


@pytest.mark.parametrize("other", [False, True])
def test_a28_a_byte_is_legal_when_some_legal_character_begins_with_it(other: bool) -> None:
    automaton = Automaton(Words("日", "a", other=other))
    legal = {byte for byte in range(256) if automaton.step(automaton.start, byte) is not None}
    if other:
        everything = {char.encode()[0] for char in map(chr, range(0xD800))} | {*range(0xEE, 0xF5)}
        assert legal == everything
    else:
        assert legal == {ord("a"), 0xE6}
    assert automaton.walk(automaton.start, "日".encode()[:2]) is not None
    assert automaton.walk(automaton.start, "時".encode() if not other else b"\xe6\xff") is None


class Ranges:
    """Any one character of some ranges."""

    def __init__(self, *ranges: str, but: str = "") -> None:
        self.ranges: Sequence[tuple[str, str]] = [(low, high) for low, high in ranges]
        self.but = but

    def start(self) -> int:
        return 0

    def follow(self, state: int, character: str | None) -> int | None:
        return None if state or character in (None, *self.but) else 1

    def can_end(self, state: int) -> bool:
        return state == 1


@pytest.mark.parametrize("ranges", [("az",), ("az", "àü", "一龥"), ("\x00\x7f", "\ud7a0\ud7ff"), ("\ue000\U0010ffff",)])
@pytest.mark.parametrize("number", [0, -1])
def test_a28_characters_of_a_range_are_taken_as_its_first_and_no_beginning_leads_to_others(
    ranges: Sequence[str], number: int
) -> None:
    for but in ("", ranges[number][0]):
        automaton = Automaton(Ranges(*ranges, but=but))
        taken = [span for span in ranges if span[0] not in (but or None,)]
        codes = [code for low, high in taken for code in range(ord(low), ord(high) + 1)][::97]
        beginnings = {chr(code).encode()[:2] for low, high in taken for code in range(ord(low), ord(high) + 1)}
        assert all(automaton.walk(automaton.start, chr(code).encode()) is not None for code in codes)
        for pair in itertools.product(range(0xC2, 0xF5), range(0x80, 0xC0)):
            assert (automaton.walk(automaton.start, bytes(pair)) is not None) == (bytes(pair) in beginnings)


def test_a28_no_text_ends_inside_of_a_character() -> None:
    automaton = Automaton(Words("日", ""))
    inside = automaton.walk(automaton.start, "日".encode()[:2])
    assert inside is not None
    assert automaton.start.accepting
    assert not inside.accepting


def test_a_character_that_is_named_is_not_any_other() -> None:
    automaton = Automaton(Words("éa", other=True))
    for character, follows in (("é", True), ("è", True), ("a", False)):
        assert (automaton.walk(automaton.start, character.encode()) is not None) == follows
    accent = automaton.walk(automaton.start, "é".encode())
    assert accent is not None
    assert not accent.accepting


def test_a26_equal_states_are_one_and_the_machine_is_asked_once() -> None:
    machine = Words("ab")
    automaton = Automaton(machine)
    first = automaton.walk(automaton.start, b"ab")
    asked = machine.asked
    assert automaton.walk(automaton.start, b"ab") is first
    assert machine.asked == asked


def test_a33_what_an_automaton_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grammar_backends.contract.automata.MAX_STATES", 10)

    class Counter(Words):
        def follow(self, state: str, character: str | None) -> str | None:
            return state + "a" if character == "a" else None

    automaton = Automaton(Counter("a"))
    state = automaton.walk(automaton.start, b"a" * 1000)
    assert state is not None
    assert state.parsed == "a" * 1000
    assert len(automaton._states) <= 10
    reached, ahead = 0, [automaton.start, state]
    while ahead:
        reached += 1
        ahead += [each for each in ahead.pop().next.values() if each is not None]
    assert reached <= 12


def test_a12_rows_hold_every_legal_token_and_the_stop_tokens_exactly_at_the_end() -> None:
    artifact = AutomatonArtifact(Words("日日"), BYTES, TokenTree(BYTES))
    matcher = artifact.new_matcher()
    bitmask = Bitmask(np.full((1, BYTES.words), -1, dtype=np.int32))
    rows = []
    for token in (0xE6, 0x97, 256, 0x97, 0xA5):
        matcher.fill_row(bitmask.rows[0])
        rows.append(unpack_ids(bitmask.array[0]))
        assert matcher.consume([token]) == 1
    assert rows == [[0xE6], [0x97], [0xA5, 256], [0x97], [0xA5]]
    matcher.fill_row(bitmask.rows[0])
    assert unpack_ids(bitmask.array[0]) == [257]
    assert matcher.consume([257]) == 0


def test_a24_threads_share_an_artifact() -> None:
    pattern = [*map("".join, itertools.product("abé", repeat=6))]
    artifact = AutomatonArtifact(Words(*pattern), BYTES, TokenTree(BYTES))
    failures: list[str] = []

    def walk(texts: Sequence[str]) -> None:
        for text in texts:
            matcher = artifact.new_matcher()
            if matcher.consume(list(text.encode())) != len(text.encode()) or not matcher.is_accepting():
                failures.append(text)

    threads = [threading.Thread(target=walk, args=(pattern[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(re.fullmatch("[abé]*", str(state)) for state, _ in artifact.automaton._states)
