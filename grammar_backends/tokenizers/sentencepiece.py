"""Reads SentencePiece models: a `SentencePieceProcessor`, or a ``.model`` file.

Pieces become the bytes that they stand for inside a text: ``▁`` is a space, also where decoding would strip it from
the start of a text, and a byte piece is its byte.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError, trim
from grammar_backends.tokenizers.files import import_library
from grammar_backends.tokenizers.pieces import from_piece
from grammar_backends.tokenizers.stops import CHAT_STOP_NAMES, find_stop_ids

__all__ = ["SentencePieceEncoder", "read_sentencepiece"]

METHODS = ("id_to_piece", "is_control", "is_byte", "get_piece_size", "serialized_model_proto")


def read_sentencepiece(
    processor: Any, *, width: int | None = None, stop_ids: Collection[int] | None = None, name: str | None = None
) -> Vocabulary:
    """The vocabulary of a SentencePiece model (B6).

    Control, unknown and unused pieces become special ids (A29); user-defined pieces are text, save those that end a
    turn of a chat. `Vocabulary.encode` adds no leading space and does not normalise, whatever the model does to a
    prompt: a constrained text continues one.

    Args:
        processor: a `SentencePieceProcessor`, or the path of a model file.
        width: the model's vocabulary size when it is padded beyond the tokenizer's.
        stop_ids: end-of-sequence ids. When absent: the model's own, and well-known ends of a turn.
        name: what messages call the vocabulary.

    Raises:
        VocabularyError: the package sentencepiece is missing, the file is no SentencePiece model, or no stop id is
            known.
    """
    if isinstance(processor, (str, os.PathLike)):
        path = Path(os.fsdecode(processor))
        return read_sentencepiece(_open(path), width=width, stop_ids=stop_ids, name=name or str(path))
    if not all(hasattr(processor, needed) for needed in METHODS):
        hint = "Give a SentencePieceProcessor or the path of a model file"
        raise VocabularyError(f"{type(processor).__name__} is not a SentencePiece tokenizer", hint=hint)
    pieces = [processor.id_to_piece(id_) for id_ in range(processor.get_piece_size())]
    special = {id_: piece for id_, piece in enumerate(pieces) if _is_special(processor, id_, piece)}
    ends = [id_] if (id_ := processor.eos_id()) >= 0 else []
    return Vocabulary(
        [from_piece(piece, byte_tokens=processor.is_byte(id_)) for id_, piece in enumerate(pieces)],
        special_ids=special,
        stop_ids=find_stop_ids(special, ends) if stop_ids is None else stop_ids,
        width=width,
        special_names=special,
        encode=SentencePieceEncoder(processor),
        name=name or "sentencepiece",
        source=processor,
    )


def _open(path: Path) -> Any:
    library = import_library("sentencepiece", str(path), "sentencepiece")
    if not path.is_file():
        raise VocabularyError(f"there is no file {path}")
    try:
        return library.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise VocabularyError(f"{path} is not a SentencePiece model: {trim(str(error))}") from error


def _is_special(processor: Any, id_: int, piece: str) -> bool:
    if processor.is_control(id_) or processor.is_unknown(id_) or processor.is_unused(id_):
        return True
    return piece in CHAT_STOP_NAMES


class SentencePieceEncoder:
    """Plain text through a model's own algorithm: no leading space, no normalisation, control names are text.

    Encoding is done by a second processor, made on first use, so that the caller's is never changed.
    """

    PLAIN = bytes([0x1A, 6, 0x12, 0, 0x18, 0, 0x20, 0])
    """A normalizer_spec with an empty precompiled_charsmap, and without add_dummy_prefix and
    remove_extra_whitespaces: appended to a serialised model, its fields replace the model's own."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def __reduce__(self) -> tuple[object, ...]:
        return SentencePieceEncoder, (self._processor,)

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text)
        return ids

    @functools.cached_property
    def _plain(self) -> Any:
        return type(self._processor)(model_proto=self._processor.serialized_model_proto() + self.PLAIN)
