"""Vocabularies of SentencePiece models: mistral-common's real ones, and small ones with other settings."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError
from grammar_backends.tokenizers.files import find_in_package
from grammar_backends.tokenizers.sentencepiece import read_sentencepiece

sentencepiece = pytest.importorskip("sentencepiece")
pytest.importorskip("mistral_common")

PUBLISHED = {
    "v1": "tokenizer.model.v1",
    "v2": "mistral_instruct_tokenizer_240216.model.v2",
    "v3": "mistral_instruct_tokenizer_240323.model.v3",
    "v7": "mistral_instruct_tokenizer_241114.model.v7",
}


def published(version: str) -> Path:
    return find_in_package("mistral_common", f"data/{PUBLISHED[version]}", hint="")


@pytest.fixture(scope="module")
def train(corpus: list[str]) -> Callable[..., Any]:
    """Makes a small model with chat tokens: one that the model calls a control token, two that it calls text."""
    given = {
        "model_type": "bpe",
        "vocab_size": 480,
        "hard_vocab_limit": False,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "control_symbols": ["<|im_start|>"],
        "user_defined_symbols": ["<tool>", "<end_of_turn>", "▁▁▁▁"],
        "minloglevel": 2,
    }

    def trained(**options: Any) -> Any:
        model = io.BytesIO()
        lines = iter("\n".join(corpus).split("\n"))
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **{**given, **options})
        return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    return trained


@pytest.fixture(scope="module")
def small(train: Callable[..., Any]) -> Any:
    return train()


@pytest.fixture(scope="module", params=PUBLISHED)
def processor(request: pytest.FixtureRequest) -> Any:
    return sentencepiece.SentencePieceProcessor(model_file=str(published(request.param)))


@pytest.fixture(scope="module")
def vocabulary(processor: Any) -> Vocabulary:
    return Vocabulary.from_sentencepiece(processor)


def test_b6_every_id_decodes_as_the_tokenizer_decodes_it(
    processor: Any, vocabulary: Vocabulary, check_every_id: Callable[[Any, Callable[[list[int]], str]], None]
) -> None:
    check_every_id(vocabulary, processor.decode)
    assert vocabulary.size == processor.get_piece_size()
    assert vocabulary.source is processor


def test_b6_a_byte_piece_is_its_byte_and_the_mark_is_a_space(processor: Any, vocabulary: Vocabulary) -> None:
    assert [vocabulary.text_tokens[processor.piece_to_id(f"<0x{byte:02X}>")] for byte in range(256)] == [
        bytes([byte]) for byte in range(256)
    ]
    assert vocabulary.text_tokens[processor.piece_to_id("▁the")] == b" the"


def test_b6_encoding_spells_the_text_exactly(vocabulary: Vocabulary, text: str) -> None:
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text.encode()
    assert vocabulary.canonical
    assert not vocabulary.special_ids.intersection(ids)


def test_b6_a_text_that_the_model_cannot_tell_from_another_is_spelled_with_its_pieces(
    processor: Any, vocabulary: Vocabulary
) -> None:
    # Every letter is there twice, as a byte and as a piece; a ▁ can only be spelled in bytes.
    ids = vocabulary.encode("n▁")
    assert ids == [processor.piece_to_id("n"), *(processor.piece_to_id(f"<0x{byte:02X}>") for byte in "▁".encode())]


def test_b6_encoding_is_the_tokenizers_own_after_a_space(processor: Any, vocabulary: Vocabulary, text: str) -> None:
    # The model puts a space before every text: what it does to the text is what it does after a space.
    own = processor.encode(text)
    faithful = processor.decode(own) == text  # not so for a ▁ that becomes a space
    assert faithful or "▁" in text
    assert not text or (vocabulary.encode(" " + text) == own) is faithful


def test_b6_encoding_continues_a_text_and_so_adds_no_leading_space(processor: Any, vocabulary: Vocabulary) -> None:
    assert vocabulary.encode(" the") == [processor.piece_to_id("▁the")]
    assert vocabulary.encode("the") == [processor.piece_to_id("the")]
    assert processor.encode("the") == [processor.piece_to_id("▁the")], "the caller's processor is as it was"


def test_a29_control_pieces_are_special_under_their_own_names(processor: Any, vocabulary: Vocabulary) -> None:
    control = {id_ for id_ in range(processor.get_piece_size()) if processor.is_control(id_)}
    assert vocabulary.special_ids == control | {processor.unk_id()}
    assert vocabulary.special_names[2] == "</s>"
    assert vocabulary.stop_ids == (2,)
    assert not vocabulary.special_ids.intersection(vocabulary.encode("</s>[INST]<unk>"))


def test_a29_user_defined_pieces_are_text_unless_they_end_a_turn(small: Any) -> None:
    vocabulary = read_sentencepiece(small)
    tool, end = small.piece_to_id("<tool>"), small.piece_to_id("<end_of_turn>")
    assert vocabulary.text_tokens[tool] == b"<tool>"
    assert vocabulary.encode("<tool>") == [tool]
    assert vocabulary.text_tokens[small.piece_to_id("▁▁▁▁")] == b"    "
    assert vocabulary.special_names[end] == "<end_of_turn>"
    assert vocabulary.stop_ids == (small.eos_id(), end)
    assert small.piece_to_id("<|im_start|>") in vocabulary.special_ids
    assert vocabulary.decode(vocabulary.encode("<end_of_turn>")) == b"<end_of_turn>"


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def folding(request: pytest.FixtureRequest, train: Callable[..., Any]) -> Vocabulary:
    """Of a model that folds case and composes characters."""
    return read_sentencepiece(train(model_type=request.param, normalization_rule_name="nmt_nfkc_cf"))


def test_b6_a_model_that_normalises_is_read_without_that(folding: Vocabulary, text: str) -> None:
    assert folding.decode(folding.encode(text)) == text.encode()


def test_b6_without_byte_pieces_some_texts_cannot_be_spelled(train: Callable[..., Any]) -> None:
    vocabulary = read_sentencepiece(train(byte_fallback=False, vocab_size=300))
    assert vocabulary.decode(vocabulary.encode("the dog")) == b"the dog"
    with pytest.raises(VocabularyError, match="has no token for byte"):
        vocabulary.encode("ᚠ")


def test_a10_stop_ids_come_from_the_caller_first(small: Any) -> None:
    assert read_sentencepiece(small, stop_ids=[7, 2]).stop_ids == (7, 2)


def test_a10_a_model_without_an_end_needs_stop_ids(train: Callable[..., Any]) -> None:
    model = train(eos_id=-1, user_defined_symbols=[])
    with pytest.raises(VocabularyError, match="does not say which token ends a sequence"):
        read_sentencepiece(model)
    assert read_sentencepiece(model, stop_ids=[1]).stop_ids == (1,)


def test_b6_rows_cover_the_models_padded_vocabulary(small: Any) -> None:
    assert Vocabulary.from_sentencepiece(small, width=512).words == 16
    with pytest.raises(VocabularyError, match="is below the number of tokens"):
        Vocabulary.from_sentencepiece(small, width=100)


def test_b6_it_survives_pickling(vocabulary: Vocabulary) -> None:
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy.fingerprint == vocabulary.fingerprint
    assert copy.encode("The 日本語 [INST]") == vocabulary.encode("The 日本語 [INST]")


@pytest.mark.parametrize("as_path", [str, Path])
def test_b6_a_model_file_is_read_by_its_path(as_path: Any) -> None:
    path = published("v3")
    vocabulary = Vocabulary.from_sentencepiece(as_path(path))
    assert vocabulary.name == str(path)
    assert vocabulary.size == 32768


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x0a\xff\xff\xff\xff\x0f"])
def test_b6_a_file_that_is_no_model_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.model"
    with pytest.raises(VocabularyError, match="there is no file"):
        read_sentencepiece(path)
    path.write_bytes(content)
    with pytest.raises(VocabularyError, match=f"{path} is not a SentencePiece model"):
        read_sentencepiece(path)


@pytest.mark.parametrize("other", [None, 7, object()])
def test_b6_other_objects_are_refused(other: Any) -> None:
    with pytest.raises(VocabularyError, match="is not a SentencePiece tokenizer"):
        read_sentencepiece(other)


def test_b6_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(VocabularyError, match=r"pip install 'grammar-backends\[sentencepiece\]'"):
        read_sentencepiece(published("v1"))
