"""The vocabulary's own invariants, on hand-made token lists."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError

TOKENS = [b"<s>", b"a", b"b", b"ab", b"", b"\xe6\x97", b"\xa5", b"</s>", b"ab"]


def make(**changes: Any) -> Vocabulary:
    given: dict[str, Any] = {"special_ids": [0], "stop_ids": [7], **changes}
    return Vocabulary(given.pop("tokens", TOKENS), **given)


def letters(text: str) -> list[int]:
    """An encoder that loses what it does not know."""
    return [{"a": 1, "b": 2}[character] for character in text if character in "ab"]


def test_a29_special_stop_and_empty_tokens_have_no_text() -> None:
    vocabulary = make()
    assert vocabulary.special_ids == {0, 4, 7}
    assert vocabulary.text_tokens == (b"", b"a", b"b", b"ab", b"", b"\xe6\x97", b"\xa5", b"", b"ab")
    assert vocabulary.decode([0, 1, 7, 2, 4, 5, 6, 99, -1]) == "ab日".encode()


def test_a29_a_stop_id_is_special_even_when_it_is_a_text_token() -> None:
    vocabulary = make(stop_ids=[2, 1, 2])
    assert vocabulary.stop_ids == (2, 1)
    assert vocabulary.stop_set == {1, 2}
    assert vocabulary.special_names[2] == "b"
    assert vocabulary.text_tokens[2] == b""


def test_a29_special_names_are_the_given_ones_else_the_tokens_text() -> None:
    vocabulary = make(special_names={7: "<end>"})
    assert vocabulary.special_names == {0: "<s>", 4: "<|token_4|>", 7: "<end>"}
    assert vocabulary.token_bytes(4) == b"<|token_4|>"


def test_b6_padded_ids_have_no_bytes_and_others_are_errors() -> None:
    vocabulary = make(width=40)
    assert (vocabulary.size, vocabulary.width, vocabulary.words, len(vocabulary)) == (9, 40, 2, 9)
    assert vocabulary.token_bytes(39) == b""
    for id_ in (-1, 40):
        with pytest.raises(VocabularyError, match=r"is outside 0\.\.39"):
            vocabulary.token_bytes(id_)


def test_b6_another_width_leaves_the_rest_alone() -> None:
    narrow = make(encode=letters)
    assert len(narrow.fingerprint) == 64
    wide = narrow.with_width(65)
    assert (narrow.width, narrow.words, wide.width, wide.words) == (9, 1, 65, 3)
    assert wide.fingerprint == make(width=65).fingerprint != narrow.fingerprint
    assert wide.encode("ab") == [1, 2]
    with pytest.raises(VocabularyError, match="width 8 is below the number of tokens, 9"):
        narrow.with_width(8)


def test_b6_of_ids_with_the_same_bytes_the_tokenizers_own_spells_a_text() -> None:
    assert make().encode("ab") == [3]
    own = make(encode=lambda text: {"ab": [8], "a": [1], "b": [2]}.get(text, []))
    assert own.encode("abba") == [8, 2, 1], "the encoder does not know the whole text"

    def broken(text: str) -> list[int]:
        raise VocabularyError("no library")

    with pytest.raises(VocabularyError, match="no library"):
        make(encode=broken).encode("ab")
    assert make(encode=broken).usual_id == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokens": []}, "at least one token"),
        ({"tokens": [b"a", "b"]}, "token 1 is of type str, not bytes"),
        ({"tokens": [3]}, "token 0 is of type int, not bytes"),
        ({"width": 8}, "width 8 is below the number of tokens, 9"),
        ({"stop_ids": []}, "no stop token is known"),
        ({"stop_ids": [9]}, r"id 9 is outside 0\.\.8"),
        ({"special_ids": [-1]}, r"id -1 is outside 0\.\.8"),
    ],
)
def test_b6_a_vocabulary_checks_itself(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(VocabularyError, match=reason):
        make(**changes)


def test_b3_equal_content_has_an_equal_fingerprint() -> None:
    assert make().fingerprint == make(name="another", encode=letters, source=object()).fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": [*TOKENS[:8], b"ba"]},
        {"tokens": [*TOKENS, b"c"]},
        {"tokens": [b"<s>", b"aa", b"", b"ab", b"", b"\xe6\x97", b"\xa5", b"</s>", b"ab"]},
        {"special_ids": [0, 1]},
        {"special_names": {0: "<bos>"}},
        {"stop_ids": [7, 0]},
        {"width": 10},
    ],
)
def test_b3_other_content_has_another_fingerprint(changes: dict[str, Any]) -> None:
    assert make(**changes).fingerprint != make().fingerprint


def test_b6_without_an_encoder_the_longest_tokens_spell_a_text() -> None:
    vocabulary = make()
    assert not vocabulary.canonical
    assert vocabulary.encode("aab日b") == [1, 3, 5, 6, 2]
    assert vocabulary.encode("") == []


def test_b6_spelling_goes_back_where_the_longest_token_leads_nowhere() -> None:
    vocabulary = make(tokens=[b"</s>", b"ab", b"abc", b"cd", b"a", b"bcde"], stop_ids=[0])
    assert vocabulary.encode("abcd") == [1, 3]
    assert vocabulary.encode("abcde") == [4, 5]
    assert vocabulary.encode("abc" * 400 + "abcd") == [2] * 400 + [1, 3]


def test_b6_an_encoder_that_changes_the_text_is_not_believed() -> None:
    vocabulary = make(encode=letters)
    assert vocabulary.canonical
    assert vocabulary.encode("ab") == [1, 2]
    assert vocabulary.encode("a日") == [1, 5, 6]


@pytest.mark.parametrize("encode", [None, letters])
@pytest.mark.parametrize(
    ("text", "reason"),
    [("abc", "no token for byte 0x63 at offset 2"), ("</s>", "byte 0x3c at offset 0"), ("a\ud800", "lone surrogate")],
)
def test_b6_a_text_that_cannot_be_spelled_is_an_error(
    encode: Callable[[str], list[int]] | None, text: str, reason: str
) -> None:
    with pytest.raises(VocabularyError, match=reason):
        make(encode=encode).encode(text)


def test_b6_it_survives_pickling_without_its_tables() -> None:
    vocabulary = make(encode=letters, width=40)
    before = len(pickle.dumps(vocabulary))
    vocabulary.encode("a日")
    data = pickle.dumps(vocabulary)
    assert len(data) == before
    copy = pickle.loads(data)
    assert copy.fingerprint == vocabulary.fingerprint
    assert copy.text_tokens == vocabulary.text_tokens
    assert copy.encode("ab") == [1, 2]
    assert repr(copy) == "<Vocabulary vocabulary: 9 tokens, width 40, stop ids [7]>"


def test_b6_from_bytes_takes_what_the_class_takes() -> None:
    vocabulary = Vocabulary.from_bytes(TOKENS, [0], [7], 40, name="mine", special_names={0: "<bos>"})
    assert vocabulary.fingerprint == make(width=40, special_names={0: "<bos>"}).fingerprint
    assert vocabulary.name == "mine"
