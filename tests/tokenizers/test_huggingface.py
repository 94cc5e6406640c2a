"""Vocabularies of Hugging Face tokenizers, against the tokenizers' own decoding and encoding."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from grammar_backends import load_vocabulary
from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError
from grammar_backends.tokenizers.huggingface import read_huggingface
from grammar_backends.tokenizers.stops import STOP_NAMES


class FakeFast:
    """What is used of a fast tokenizer of transformers."""

    def __init__(self, backend: Any, eos_token_id: Any) -> None:
        self.backend_tokenizer = backend
        self.eos_token_id = eos_token_id
        self.name_or_path = "org/model"


class SlowTokenizer:
    tokenizer: Any = None

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(id_) for id_ in ids]


def characters(decoder: Any, vocab: dict[str, int]) -> Any:
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    if decoder is not None:
        tokenizer.decoder = decoder
    return tokenizer


def test_b6_every_id_decodes_as_the_tokenizer_decodes_it(
    tokenizer: Any, check_every_id: Callable[[Any, Callable[[list[int]], str]], None]
) -> None:
    vocabulary = read_huggingface(tokenizer)
    check_every_id(vocabulary, lambda ids: tokenizer.decode(ids, skip_special_tokens=False))
    assert vocabulary.size == tokenizer.get_vocab_size(with_added_tokens=True)


def test_b6_every_id_of_a_published_model_decodes_as_the_tokenizer_decodes_it(
    published_model: Any, check_every_id: Callable[[Any, Callable[[list[int]], str]], None], texts: list[str]
) -> None:
    vocabulary = load_vocabulary(published_model.directory)
    own = Tokenizer.from_file(str(published_model.directory / "tokenizer.json"))
    check_every_id(vocabulary, lambda ids: own.decode(ids, skip_special_tokens=False))
    assert all(vocabulary.decode(vocabulary.encode(text)) == text.encode() for text in texts)


def test_b6_encoding_spells_the_text_exactly(tokenizer: Any, text: str) -> None:
    vocabulary = read_huggingface(tokenizer)
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text.encode()
    assert vocabulary.canonical
    assert not vocabulary.special_ids.intersection(ids)


@pytest.mark.parametrize("style", ["byte-level", "gemma"])
def test_b6_encoding_is_the_tokenizers_own_unless_that_changes_the_text(
    styles: dict[str, Any], style: str, text: str
) -> None:
    tokenizer = styles[style]
    own = tokenizer.encode(text, add_special_tokens=False).ids
    faithful = tokenizer.decode(own) == text  # not so for special names, nor for a ▁ that becomes a space
    assert faithful or "<s>" in text or "▁" in text
    assert (read_huggingface(tokenizer).encode(text) == own) is faithful


def test_b6_encoding_continues_a_text_and_so_adds_no_leading_space(tokenizer: Any) -> None:
    vocabulary = read_huggingface(tokenizer)
    assert vocabulary.encode("the") != vocabulary.encode(" the")


def test_a29_special_names_in_a_text_are_text(tokenizer: Any) -> None:
    vocabulary = read_huggingface(tokenizer)
    special = tokenizer.token_to_id("<|im_end|>")
    assert special in tokenizer.encode("a<|im_end|>", add_special_tokens=False).ids
    assert special not in vocabulary.encode("a<|im_end|>")
    # The caller's tokenizer is as it was.
    assert special in tokenizer.encode("a<|im_end|>", add_special_tokens=False).ids
    assert not tokenizer.encode_special_tokens


def test_a29_special_added_tokens_have_no_text_and_keep_their_names(tokenizer: Any) -> None:
    vocabulary = read_huggingface(tokenizer)
    for name in ("<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"):
        id_ = tokenizer.token_to_id(name)
        assert vocabulary.special_names[id_] == name
        assert vocabulary.text_tokens[id_] == b""
        assert vocabulary.token_bytes(id_) == name.encode()
    assert len(vocabulary.special_ids) == 5


def test_a29_other_added_tokens_are_text(tokenizer: Any) -> None:
    vocabulary = read_huggingface(tokenizer)
    for name in ("<tool_call>", "</tool_call>", "two words", "日本語トークン"):
        id_ = tokenizer.token_to_id(name)
        assert id_ not in vocabulary.special_ids
        assert vocabulary.text_tokens[id_] == name.encode()
        assert vocabulary.encode(name) == [id_]


def test_b6_ids_without_a_token_are_special_and_empty() -> None:
    tokenizer = characters(decoders.ByteLevel(), {"a": 0, "b": 3, "</s>": 5})
    tokenizer.add_special_tokens(["</s>"])
    vocabulary = read_huggingface(tokenizer)
    assert vocabulary.size == 6
    assert vocabulary.text_tokens == (b"a", b"", b"", b"b", b"", b"")
    assert vocabulary.special_ids == {1, 2, 4, 5}
    assert vocabulary.special_names[1] == "<|token_1|>"


def test_b6_rows_cover_the_models_padded_vocabulary(styles: dict[str, Any]) -> None:
    tokenizer = styles["byte-level"]
    size = tokenizer.get_vocab_size()
    vocabulary = Vocabulary.from_huggingface(tokenizer, width=size + 100)
    assert (vocabulary.size, vocabulary.width) == (size, size + 100)
    assert vocabulary.token_bytes(size + 99) == b""
    with pytest.raises(VocabularyError, match="is below the number of tokens"):
        Vocabulary.from_huggingface(tokenizer, width=size - 1)


def test_b6_characters_outside_the_byte_alphabet_are_literal() -> None:
    tokenizer = characters(
        decoders.ByteLevel(), {"a": 0, "Ġa": 1, "Ċ": 2, "Ã": 3, "©": 4, "日": 5, "a b": 6, "</s>": 7}
    )
    tokenizer.add_special_tokens(["</s>"])
    expected = (b"a", b" a", b"\n", b"\xc3", b"\xa9", "日".encode(), b"a b", b"")
    assert read_huggingface(tokenizer).text_tokens == expected


def test_b6_byte_names_are_text_where_the_decoder_leaves_them_so() -> None:
    vocab = {"▁a": 0, "<0x0A>": 1, "</s>": 2}
    for decoder, expected in ((decoders.Metaspace(), b"<0x0A>"), (decoders.ByteFallback(), b"\n")):
        tokenizer = characters(decoder, vocab)
        tokenizer.add_special_tokens(["</s>"])
        assert read_huggingface(tokenizer).text_tokens[1] == expected
        assert tokenizer.decode([1]).encode() == expected


@pytest.mark.parametrize(
    ("decoder", "found"),
    [
        (None, "none"),
        (decoders.WordPiece(), "WordPiece"),
        (decoders.CTC(), "CTC"),
        (decoders.BPEDecoder(), "BPEDecoder"),
        (decoders.Sequence([decoders.ByteFallback(), decoders.Strip(" ", 1, 0)]), r"ByteFallback \+ Strip"),
        (decoders.Sequence([decoders.Fuse(), decoders.Replace("▁", " ")]), r"Fuse \+ Replace"),
        (decoders.Sequence([decoders.ByteLevel(), decoders.Replace("a", "b")]), r"ByteLevel \+ Replace"),
    ],
)
def test_b6_other_decoders_are_refused_by_name(decoder: Any, found: str) -> None:
    with pytest.raises(VocabularyError, match=f"decoder is not supported: {found}"):
        read_huggingface(characters(decoder, {"a": 0, "b": 1}), stop_ids=[1])


def test_b6_a_decoder_written_in_python_is_refused() -> None:
    tokenizer = characters(decoders.Decoder.custom(object()), {"a": 0, "b": 1})
    with pytest.raises(VocabularyError, match="cannot be read"):
        read_huggingface(tokenizer, stop_ids=[1])


def test_b6_a_pre_tokenizer_written_in_python_still_encodes() -> None:
    class Whole:
        def pre_tokenize(self, pretokenized: Any) -> None:
            pass

    tokenizer = characters(decoders.Fuse(), {"a": 0, "b": 1, "</s>": 2})
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Whole())
    assert read_huggingface(tokenizer).encode("abba") == [0, 1, 1, 0]


@pytest.mark.parametrize("other", [None, "gpt2", 7, object()])
def test_b6_other_objects_are_refused(other: Any) -> None:
    with pytest.raises(VocabularyError, match="is not a Hugging Face tokenizer"):
        read_huggingface(other)


@pytest.mark.parametrize("wrapped", [False, True])
def test_b8_tokenizers_of_mistral_common_are_sent_to_their_reader(wrapped: bool) -> None:
    tokenizer: Any = SimpleNamespace(instruct_tokenizer=object())
    if wrapped:
        tokenizer = SlowTokenizer()
        tokenizer.tokenizer = SimpleNamespace(instruct_tokenizer=object())
    with pytest.raises(VocabularyError, match=r"Use Vocabulary\.from_mistral"):
        read_huggingface(tokenizer)


def test_b6_slow_tokenizers_are_refused_with_a_hint() -> None:
    with pytest.raises(VocabularyError, match=r"slow tokenizer.*use_fast=True"):
        read_huggingface(SlowTokenizer())


def test_a10_stop_ids_come_from_the_caller_first(styles: dict[str, Any]) -> None:
    fast = FakeFast(styles["byte-level"], 1)
    vocabulary = read_huggingface(fast, stop_ids=[4, 3, 4])
    assert vocabulary.stop_ids == (4, 3)


@pytest.mark.parametrize(("eos", "expected"), [(2, (2,)), ([3, 1], (3, 1)), (None, None)])
def test_a10_stop_ids_come_from_the_tokenizers_eos_next(
    styles: dict[str, Any], eos: Any, expected: tuple[int, ...] | None
) -> None:
    tokenizer = styles["byte-level"]
    vocabulary = read_huggingface(FakeFast(tokenizer, eos))
    well_known = (tokenizer.token_to_id("</s>"), tokenizer.token_to_id("<|im_end|>"))
    assert vocabulary.stop_ids == (expected or well_known)
    assert vocabulary.name == "org/model"


def test_a10_stop_ids_come_from_well_known_special_tokens_last() -> None:
    tokenizer = characters(decoders.Fuse(), {"a": 0, "</s>": 1})
    tokenizer.add_tokens([AddedToken("</s>", special=False)])  # an HTML tag, as in Gemma's vocabulary
    tokenizer.add_special_tokens(["<pad>", "<end_of_turn>", "<eos>"])
    assert read_huggingface(tokenizer).stop_ids == (4, 3)
    assert STOP_NAMES.index("<eos>") < STOP_NAMES.index("<end_of_turn>")


def test_a10_no_stop_id_is_an_error_that_names_the_special_tokens() -> None:
    tokenizer = characters(decoders.Fuse(), {"a": 0})
    tokenizer.add_special_tokens(["<pad>"])
    with pytest.raises(VocabularyError, match=r"special tokens: <pad>\). Give stop_ids"):
        read_huggingface(tokenizer)
    with pytest.raises(VocabularyError, match="no stop token is known"):
        read_huggingface(tokenizer, stop_ids=[])
    with pytest.raises(VocabularyError, match=r"id 9 is outside 0\.\.1"):
        read_huggingface(tokenizer, stop_ids=[9])


def test_b6_reading_does_not_depend_on_padding_and_truncation(fresh_tokenizer: Any) -> None:
    before = read_huggingface(fresh_tokenizer)
    fresh_tokenizer.enable_truncation(2)
    fresh_tokenizer.enable_padding(length=8)
    after = read_huggingface(fresh_tokenizer)
    assert after.encode("The quick brown fox") == before.encode("The quick brown fox")
    assert after.fingerprint == before.fingerprint


def test_b6_it_survives_pickling(tokenizer: Any) -> None:
    vocabulary = read_huggingface(tokenizer)
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy.fingerprint == vocabulary.fingerprint
    assert copy.encode("The 日本語トークン <|im_end|>") == vocabulary.encode("The 日本語トークン <|im_end|>")


def test_b6_transformers_fast_tokenizers_are_read(styles: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=styles["gemma"], eos_token="</s>")
    vocabulary = Vocabulary.from_huggingface(fast)
    assert vocabulary.stop_ids == (styles["gemma"].token_to_id("</s>"),)
    assert vocabulary.text_tokens == read_huggingface(styles["gemma"]).text_tokens
    assert vocabulary.source is fast
