"""Vocabularies of Mistral's tekken, read from mistral-common's objects and from the file alone."""

from __future__ import annotations

import base64
import importlib.util
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError
from grammar_backends.tokenizers.mistral import OLD_SPECIAL_NAMES, packaged_tekken, read_mistral, read_tekken_file

tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tekken.Tekkenizer.from_file(packaged_tekken())


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return read_tekken_file(packaged_tekken(), name="tekken")


def small_file(path: Path, **changes: Any) -> Path:
    """A tekken file with 256 + 2 tokens and 4 special ones, 5 entries more than are used."""
    tokens = [bytes([value]) for value in range(256)] + [b"ab", b"abc", b"x1", b"x2", b"x3", b"x4", b"x5"]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    names = ["<unk>", "<s>", "</s>", "[THINK]"]
    data = {
        "config": {
            "pattern": r"\w+|\W+",
            "num_vocab_tokens": len(vocab),
            "default_vocab_size": 262,
            "default_num_special_tokens": 4,
            "version": "v11",
        },
        "vocab": vocab,
        "special_tokens": [{"rank": n, "token_str": name, "is_control": True} for n, name in enumerate(names)],
    }
    path.write_text(json.dumps({**data, **changes}))
    return path


def test_b8_every_id_has_the_bytes_that_mistral_common_gives(tokenizer: Any, vocabulary: Vocabulary) -> None:
    keep = tekken.SpecialTokenPolicy.KEEP
    assert vocabulary.size == tokenizer.n_words == 131072
    assert [vocabulary.token_bytes(id_) for id_ in range(vocabulary.size)] == [
        tokenizer.id_to_byte_piece(id_, keep) for id_ in range(tokenizer.n_words)
    ]


def test_b6_every_id_decodes_as_the_tokenizer_decodes_it(
    tokenizer: Any, vocabulary: Vocabulary, check_every_id: Callable[[Any, Callable[[list[int]], str]], None]
) -> None:
    check_every_id(vocabulary, tokenizer.decode)


def test_b8_the_file_alone_gives_what_the_tokenizer_gives(tokenizer: Any, vocabulary: Vocabulary) -> None:
    other = Vocabulary.from_mistral(tokenizer)
    assert other.fingerprint == vocabulary.fingerprint
    assert other.source is tokenizer
    assert vocabulary.source is None


def test_a29_control_tokens_are_special_under_their_own_names(tokenizer: Any, vocabulary: Vocabulary) -> None:
    assert vocabulary.special_ids == tokenizer.special_ids == set(range(1000))
    assert vocabulary.special_names[9] == "[TOOL_CALLS]"
    assert vocabulary.special_names[999] == "<SPECIAL_999>"
    assert not any(vocabulary.text_tokens[:1000])
    assert vocabulary.stop_ids == (tokenizer.eos_id,) == (2,)


def test_b8_names_that_old_files_leave_out_are_mistral_commons() -> None:
    listed = tekken.Tekkenizer.DEPRECATED_SPECIAL_TOKENS
    assert [(entry["rank"], entry["token_str"]) for entry in listed] == list(enumerate(OLD_SPECIAL_NAMES))


def test_b8_encoding_is_the_tokenizers_own_without_bos_and_eos(
    tokenizer: Any, vocabulary: Vocabulary, text: str
) -> None:
    ids = vocabulary.encode(text)
    assert ids == tokenizer.encode(text, bos=False, eos=False)
    assert vocabulary.decode(ids) == text.encode()
    assert not vocabulary.special_ids.intersection(vocabulary.encode("[TOOL_CALLS]</s>"))


def test_b8_every_wrapper_of_a_tekkenizer_is_read(vocabulary: Vocabulary) -> None:
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    whole = MistralTokenizer.from_file(packaged_tekken())
    for tokenizer in (whole, whole.instruct_tokenizer, whole.instruct_tokenizer.tokenizer):
        assert read_mistral(tokenizer).fingerprint == vocabulary.fingerprint


def test_b8_a_file_names_its_own_special_tokens(tmp_path: Path) -> None:
    vocabulary = read_tekken_file(small_file(tmp_path / "tekken.json"), width=512)
    assert vocabulary.special_names == {0: "<unk>", 1: "<s>", 2: "</s>", 3: "[THINK]"}
    assert (vocabulary.size, vocabulary.width) == (262, 512)
    assert vocabulary.token_bytes(261) == b"abc"
    assert vocabulary.encode("abc") == [261]


def test_b8_every_wrapper_of_a_sentencepiece_tokenizer_is_read(text: str) -> None:
    pytest.importorskip("sentencepiece")
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    whole = MistralTokenizer.v3()
    inner = whole.instruct_tokenizer.tokenizer
    vocabulary = Vocabulary.from_mistral(whole, width=32800)
    assert (vocabulary.size, vocabulary.width, vocabulary.stop_ids) == (inner.n_words, 32800, (inner.eos_id,))
    assert vocabulary.special_ids == inner.special_ids | {inner.unk_id}
    assert vocabulary.special_names[inner.get_special_token("[TOOL_CALLS]")] == "[TOOL_CALLS]"
    for tokenizer in (whole.instruct_tokenizer, inner):
        assert read_mistral(tokenizer, width=32800).fingerprint == vocabulary.fingerprint
    # The tokenizer puts a space before every text.
    own = inner.encode(text, bos=False, eos=False)
    assert not text or (vocabulary.encode(" " + text) == own) is (inner.decode(own) == text)


@pytest.mark.parametrize("other", [None, "tekken", object()])
def test_b8_other_objects_are_refused(other: Any) -> None:
    with pytest.raises(VocabularyError, match="is not a tokenizer of mistral-common"):
        read_mistral(other)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config": {}}, "default_vocab_size"),
        ({"config": None}, "TypeError"),
        ({"vocab": []}, "IndexError"),
        ({"vocab": [{"rank": 0, "token_bytes": "%%", "token_str": None}] * 300}, "Error"),
        ({"vocab": [{"rank": 5, "token_bytes": "AA==", "token_str": None}] * 300}, "entry 0 has rank 5"),
        ({"special_tokens": None}, "version v11 must list its special tokens"),
        ({"special_tokens": [{"rank": 4, "token_str": "</s>"}]}, "outside 0..3"),
        ({"special_tokens": [{"rank": 0, "token_str": "<s>"}]}, "no special token </s>"),
    ],
)
def test_b8_a_broken_file_is_named_with_the_reason(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    path = small_file(tmp_path / "tekken.json", **changes)
    with pytest.raises(VocabularyError, match=reason) as caught:
        read_tekken_file(path)
    assert str(path) in str(caught.value)


def test_b8_pickling_costs_little_and_keeps_the_encoder(vocabulary: Vocabulary) -> None:
    vocabulary.encode("The tokenizer is loaded now")
    data = pickle.dumps(vocabulary)
    assert len(data) < 3_000_000
    assert pickle.loads(data).encode("日本語 [TOOL_CALLS]") == vocabulary.encode("日本語 [TOOL_CALLS]")


def test_b8_without_mistral_common_a_file_is_read_and_encoded_by_longest_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    vocabulary = read_tekken_file(small_file(tmp_path / "tekken.json"))
    assert not vocabulary.canonical
    assert vocabulary.encode("abcab") == [261, 260]
    with pytest.raises(VocabularyError, match=r"not installed.*grammar-backends\[mistral\]"):
        packaged_tekken()


def test_b8_a_file_that_mistral_common_rejects_says_so_when_encoding(tmp_path: Path) -> None:
    vocabulary = read_tekken_file(small_file(tmp_path / "tekken.json"))
    (tmp_path / "tekken.json").unlink()
    with pytest.raises(VocabularyError, match="mistral-common cannot read"):
        vocabulary.encode("abc")
