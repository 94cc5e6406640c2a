"""The built-in vocabulary of single bytes."""

from __future__ import annotations

import pickle

from grammar_backends.tokenizers.raw_bytes import byte_vocabulary


def test_b6_every_byte_is_its_own_id() -> None:
    vocabulary = byte_vocabulary()
    assert vocabulary.text_tokens[:256] == tuple(bytes([value]) for value in range(256))


def test_a29_control_tokens_follow_at_stable_ids() -> None:
    vocabulary = byte_vocabulary()
    names = ["<eos>", "<pad>", "<bos>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
    assert list(vocabulary.special_names.items()) == list(enumerate(names, start=256))
    assert vocabulary.special_ids == set(range(256, 263))
    assert vocabulary.stop_ids == (256,)


def test_b6_encoding_is_utf8(text: str) -> None:
    vocabulary = byte_vocabulary(width=320)
    assert vocabulary.encode(text) == list(text.encode())
    assert (vocabulary.width, vocabulary.words) == (320, 10)


def test_b6_it_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(byte_vocabulary()))
    assert copy.encode("é") == [0xC3, 0xA9]
    assert copy.fingerprint == byte_vocabulary().fingerprint
