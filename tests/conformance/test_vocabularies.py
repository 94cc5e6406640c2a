"""The suite's own vocabularies hold what the laws count on."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from grammar_backends.errors import VocabularyError
from grammar_backends_conformance.vocabularies import NAMES, adversarial_vocabulary, suite_vocabulary


def test_every_name_gives_a_vocabulary_which_is_made_once() -> None:
    assert NAMES[:2] == ("byte", "adversarial")
    for name in NAMES:
        vocabulary = suite_vocabulary(name)
        assert vocabulary is suite_vocabulary(name)
        assert vocabulary.decode(vocabulary.encode('{"ü": "日😀"}')) == '{"ü": "日😀"}'.encode()


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        VocabularyError, match=r"no vocabulary 'tekkn', did you mean 'tekken'\? It has byte, adversarial"
    ):
        suite_vocabulary("tekkn")


def test_the_adversarial_vocabulary_has_every_trap() -> None:
    vocabulary = adversarial_vocabulary()
    text, special = vocabulary.text_tokens, vocabulary.special_ids
    times = Counter(token for token in text if token)
    assert {bytes([value]) for value in range(256)} <= set(text)
    assert sorted(times.values())[-1] >= 3
    assert {bytes([value]) for value in b'ab"}0{ \n\xff'} <= {vocabulary.token_bytes(id_) for id_ in special}
    assert sum(name.startswith("<|token_") for name in vocabulary.special_names.values()) == 2
    assert vocabulary.width % 32
    assert vocabulary.width > vocabulary.size + 32
    assert max(special) - min(special) >= len(special)
    assert len(vocabulary.stop_ids) == 2
    assert vocabulary.special_names[vocabulary.stop_ids[1]] == "b"
    assert not vocabulary.canonical


def test_the_adversarial_vocabulary_is_the_same_in_every_process() -> None:
    made, again = adversarial_vocabulary(), adversarial_vocabulary()
    assert made.fingerprint == again.fingerprint == pickle.loads(pickle.dumps(made)).fingerprint
