"""Reads the tokenizer inside a GGUF file: byte-level BPE (``gpt2``) and SentencePiece's BPE (``llama``).

The bytes of every id need no library. Encoding as the model does takes one that runs the same algorithm, and, for
byte-level BPE, the pattern that cuts a text into words, which a file only names: where either is missing, the
vocabulary is not canonical.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError, trim
from grammar_backends.tokenizers.files import import_library, is_installed
from grammar_backends.tokenizers.gguf_header import GgufHeader, read_header
from grammar_backends.tokenizers.pieces import from_byte_level, from_piece
from grammar_backends.tokenizers.sentencepiece import SentencePieceEncoder
from grammar_backends.tokenizers.splitting import DEEPSEEK_V3, DIGIT, GPT2, LLAMA3, QWEN, TEKKEN
from grammar_backends.tokenizers.stops import CHAT_STOP_NAMES, find_stop_ids

__all__ = ["read_gguf"]

TYPES = range(1, 7)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = TYPES
"""What a token is: GGUF has SentencePiece's numbers."""

NO_TEXT = frozenset({UNKNOWN, CONTROL, UNUSED})

STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")

EMBEDDINGS = ("token_embd.weight", "output.weight")
"""Tensors with one column for each id, padded ones included."""

SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (GPT2,),
    "llama-bpe": (LLAMA3,),
    "llama-v3": (LLAMA3,),
    "llama3": (LLAMA3,),
    "qwen2": (QWEN,),
    "deepseek-r1-qwen": (QWEN,),
    "deepseek-v3": DEEPSEEK_V3,
    "smollm": (DIGIT, GPT2),
    "starcoder": (DIGIT, GPT2),
    "tekken": (TEKKEN,),
}
"""Patterns by the name that a file gives in ``tokenizer.ggml.pre``."""

WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama-v3", "llama3", "tekken"})
"""Those that take a word that is a token as it is, without merging."""


@dataclass(frozen=True)
class _Tokenizer:
    """A file's tokens: what each is called, and what it is.

    Attributes:
        tokens: their texts, by id.
        types: `NORMAL` .. `BYTE`, by id.
        header: everything else that the file says.
    """

    tokens: list[str]
    types: list[int]
    header: GgufHeader

    def get(self, key: str) -> Any:
        return self.header.values.get(f"tokenizer.ggml.{key}")


def read_gguf(
    path: str | os.PathLike[str],
    *,
    width: int | None = None,
    stop_ids: Collection[int] | None = None,
    name: str | None = None,
) -> Vocabulary:
    """The vocabulary of a GGUF file (B6); its tensors are not read.

    Control, unknown and unused tokens become special ids (A29); user-defined ones are text, save those that end a
    turn of a chat.

    Args:
        path: the file; of a model in several files, the first.
        width: the model's vocabulary size. When absent: the rows of the embedding, if the file has it.
        stop_ids: end-of-sequence ids. When absent: those that the file declares, and well-known ends of a turn.
        name: what messages call the vocabulary; the path when absent.

    Raises:
        VocabularyError: the file is not GGUF, holds no tokenizer or one of another kind, or no stop id is known.
    """
    path = Path(path)
    read = _tokenizer(read_header(path), path)
    to_bytes, encoder = KINDS[read.get("model")]
    special = {id_: text for id_, text in enumerate(read.tokens) if _is_special(text, read.types[id_])}
    declared = [id_ for key in STOP_KEYS if isinstance(id_ := read.get(key), int)]
    return Vocabulary(
        [to_bytes(text, kind) for text, kind in zip(read.tokens, read.types, strict=True)],
        special_ids=special,
        stop_ids=find_stop_ids(special, declared) if stop_ids is None else stop_ids,
        width=max(len(read.tokens), _padded_size(read.header)) if width is None else width,
        special_names=special,
        encode=encoder(read),
        name=name or str(path),
    )


def _tokenizer(header: GgufHeader, path: Path) -> _Tokenizer:
    values = header.values
    model, tokens = values.get("tokenizer.ggml.model"), values.get("tokenizer.ggml.tokens")
    types = values.get("tokenizer.ggml.token_type")
    if not isinstance(model, str) or not _are_texts(tokens):
        raise VocabularyError(f"{path} holds no tokenizer", hint="Of a model in several files, give the first")
    if model not in KINDS:
        hint = f"Read are {' and '.join(KINDS)}; a model's tokenizer.json may be readable"
        raise VocabularyError(f"{path} has a tokenizer of kind {model!r}, which is not supported", hint=hint)
    if not isinstance(types, list) or len(types) != len(tokens) or not set(types) <= set(TYPES):
        raise VocabularyError(f"{path} does not say of each token whether it is a control token (token_type)")
    return _Tokenizer(tokens, types, header)


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(text, str) for text in value[:1])  # arrays are of one type


def _is_special(text: str, kind: int) -> bool:
    return kind in NO_TEXT or text in CHAT_STOP_NAMES


def _padded_size(header: GgufHeader) -> int:
    shapes = (header.shapes.get(name, ()) for name in EMBEDDINGS)
    return max((shape[1] for shape in shapes if len(shape) == 2), default=0)


def _byte_level_bytes(text: str, kind: int) -> bytes:
    if kind == NORMAL:
        return from_byte_level(text)
    return from_piece(text, byte_tokens=kind == BYTE, replaced=())


def _sentencepiece_bytes(text: str, kind: int) -> bytes:
    return from_piece(text, byte_tokens=kind == BYTE)


def _byte_level_encoder(read: _Tokenizer) -> Callable[[str], list[int]] | None:
    pre, merges = read.get("pre"), read.get("merges")
    if pre not in SPLITS or not _are_texts(merges) or not is_installed("tokenizers"):
        return None
    # Control tokens stay out, so that none can be taken for a word; the first of two equal texts wins.
    words = {text: id_ for id_, text in reversed(list(enumerate(read.tokens))) if read.types[id_] == NORMAL}
    added = {text: id_ for id_, text in enumerate(read.tokens) if read.types[id_] == USER_DEFINED}
    return _ByteLevelEncoder(words, added, merges, pre)


class _ByteLevelEncoder:
    """Plain text through a `tokenizers.Tokenizer` of the file's tokens and merges, which the first call makes."""

    def __init__(self, words: dict[str, int], added: dict[str, int], merges: list[str], pre: str) -> None:
        self._parts = (words, added, merges, pre)

    def __reduce__(self) -> tuple[object, ...]:
        return _ByteLevelEncoder, self._parts

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    @functools.cached_property
    def _tokenizer(self) -> Any:
        library = import_library("tokenizers", "encoding", "gguf")
        words, added, merges, pre = self._parts
        try:
            pairs = [tuple(merge.split(" ", 1)) for merge in merges]
            model = library.models.BPE({**words, **added}, pairs, ignore_merges=pre in WHOLE_WORDS_FIRST)
        except Exception as error:  # the library raises bare exceptions
            raise VocabularyError(f"the merges do not fit the tokens: {trim(str(error))}") from error
        tokenizer = library.Tokenizer(model)
        splits = [library.pre_tokenizers.Split(library.Regex(pattern), "isolated") for pattern in SPLITS[pre]]
        alphabet = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence([*splits, alphabet])
        tokenizer.add_tokens([library.AddedToken(text, normalized=False) for text in added])
        return tokenizer


def _sentencepiece_encoder(read: _Tokenizer) -> Callable[[str], list[int]] | None:
    scores = read.get("scores")
    # Merges follow the scores: without different ones, the model's own tokenisation cannot be known.
    if not isinstance(scores, list) or len(scores) != len(read.tokens) or len(set(scores)) < 2:
        return None
    if not is_installed("sentencepiece"):
        return None
    library = import_library("sentencepiece", "encoding", "gguf")
    try:
        return SentencePieceEncoder(library.SentencePieceProcessor(model_proto=_serialised(read, scores)))
    except RuntimeError:  # a piece that occurs twice, or no unknown piece: not from SentencePiece
        return None


def _serialised(read: _Tokenizer, scores: Sequence[float]) -> bytes:
    """The SentencePiece model (a protocol buffer) that these tokens came from, as far as encoding needs it."""
    pieces = []
    for text, score, kind in zip(read.tokens, scores, read.types, strict=True):
        piece = text.replace(" ", "▁").encode()  # files have user-defined pieces either way
        body = b"\x0a" + _varint(len(piece)) + piece + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind])
        pieces.append(b"\x0a" + _varint(len(body)) + body)
    trainer = bytes([0x18, 2]) + bytes([0x98, 2, BYTE in read.types])  # model_type: BPE, and byte_fallback
    return b"".join(pieces) + b"\x12" + _varint(len(trainer)) + trainer


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


KINDS = {
    "gpt2": (_byte_level_bytes, _byte_level_encoder),
    "llama": (_sentencepiece_bytes, _sentencepiece_encoder),
}
"""How the tokens of each kind of tokenizer become bytes, and what encodes."""
