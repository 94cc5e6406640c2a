"""Reads Mistral's tokenizers: objects of mistral-common, and the JSON files of tekken without mistral-common.

A tekken file is read here rather than by mistral-common because that takes a second longer and only encoding needs
it. Mistral's older tokenizers are SentencePiece models, and are read as such.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from pathlib import Path
from typing import Any

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError, trim
from grammar_backends.tokenizers.files import find_in_package, is_installed, read_json_object
from grammar_backends.tokenizers.sentencepiece import read_sentencepiece

__all__ = ["packaged_tekken", "read_mistral", "read_tekken_file"]

INSTALL_HINT = "Install it: pip install 'grammar-backends[mistral]'"
PACKAGED_FILE = "data/tekken_240911.json"

OLD_SPECIAL_NAMES = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)
"""The first special tokens of files up to version 7, which do not list them (mistral-common fixes them in code)."""

LAST_UNLISTED_VERSION = 7

WRAPPERS = 3
"""Objects around a Tekkenizer: transformers' wrapper, a MistralTokenizer, an InstructTokenizer."""


def read_mistral(tokenizer: Any, *, width: int | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer of mistral-common (B8).

    Every control token is special, under its own name (``[TOOL_CALLS]``), so that no regular expression matches one
    (A29). The stop id is the tokenizer's end of sequence.

    Args:
        tokenizer: a `MistralTokenizer`, an `InstructTokenizer`, a `Tekkenizer` or a `SentencePieceTokenizer`, or
            transformers' wrapper of one.
        width: the model's vocabulary size when it is padded beyond the tokenizer's.

    Raises:
        VocabularyError: not a tokenizer of mistral-common.
    """
    found = _unwrapped(tokenizer)
    if not _is_tekken(found):
        return read_sentencepiece(found.file_path, width=width)
    tekken = found
    names = {id_: tekken.id_to_piece(id_) for id_ in sorted(tekken.special_ids)}
    tokens = [names[id_].encode() if id_ in names else tekken.id_to_byte_piece(id_) for id_ in range(tekken.n_words)]
    return _vocabulary(tokens, names, tekken.eos_id, width, "tekken", _Encoder(tekken), tokenizer)


def read_tekken_file(path: Path, *, width: int | None = None, name: str | None = None) -> Vocabulary:
    """The vocabulary of a tekken JSON file.

    mistral-common is needed for `Vocabulary.encode` alone and is loaded by its first call; where it is not installed,
    the vocabulary is not `canonical`.

    Raises:
        VocabularyError: the file cannot be read, or is not a tekken file.
    """
    data = read_json_object(path)
    try:
        config = data["config"]
        size, specials = int(config["default_vocab_size"]), int(config["default_num_special_tokens"])
        names = _special_names(data, specials)
        tokens = [names[id_].encode() for id_ in range(specials)]
        tokens += [base64.b64decode(_entry(data, rank), validate=True) for rank in range(size - specials)]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, binascii.Error) as error:
        reason = f"{type(error).__name__}: {trim(str(error))}"
        raise VocabularyError(f"{path} is not a tekken file: {reason}") from error
    stop = next((id_ for id_, text in names.items() if text == "</s>"), None)
    if stop is None:
        raise VocabularyError(f"{path} has no special token </s>")
    encode = _FileEncoder(path) if is_installed("mistral_common") else None
    return _vocabulary(tokens, names, stop, width, name or str(path), encode, None)


def packaged_tekken() -> Path:
    """The tekken file that mistral-common brings along (131,072 tokens).

    Raises:
        VocabularyError: mistral-common is not installed, or does not hold the file.
    """
    return find_in_package("mistral_common", PACKAGED_FILE, hint=INSTALL_HINT)


def _vocabulary(
    tokens: list[bytes], names: dict[int, str], stop: int, width: int | None, name: str, encode: Any, source: Any
) -> Vocabulary:
    return Vocabulary(
        tokens,
        special_ids=names,
        stop_ids=[stop],
        width=width,
        special_names=names,
        encode=encode,
        name=name,
        source=source,
    )


def _unwrapped(tokenizer: Any) -> Any:
    found = tokenizer
    for _ in range(WRAPPERS + 1):
        if _is_tekken(found) or _is_sentencepiece(found):
            return found
        found = getattr(found, "instruct_tokenizer", None) or getattr(found, "tokenizer", found)
    hint = "Give mistral-common's MistralTokenizer, InstructTokenizer, Tekkenizer or SentencePieceTokenizer"
    raise VocabularyError(f"{type(found).__name__} is not a tokenizer of mistral-common", hint=hint)


def _is_tekken(tokenizer: Any) -> bool:
    return all(hasattr(tokenizer, needed) for needed in ("id_to_byte_piece", "special_ids", "n_words", "eos_id"))


def _is_sentencepiece(tokenizer: Any) -> bool:
    return type(tokenizer).__name__ == "SentencePieceTokenizer" and hasattr(tokenizer, "file_path")


def _special_names(data: dict[str, Any], count: int) -> dict[int, str]:
    listed = data.get("special_tokens")
    if listed is None:
        version = str(data["config"].get("version"))
        number = re.fullmatch(r"v(\d+)", version)
        if number is None or int(number[1]) > LAST_UNLISTED_VERSION:
            raise ValueError(f"a file of version {version} must list its special tokens")
        listed = [{"rank": rank, "token_str": text} for rank, text in enumerate(OLD_SPECIAL_NAMES)]
    names = {int(entry["rank"]): str(entry["token_str"]) for entry in listed}
    if any(not 0 <= rank < count for rank in names):
        raise ValueError(f"a special token's rank is outside 0..{count - 1}")
    return {rank: names.get(rank, f"<SPECIAL_{rank}>") for rank in range(count)}


def _entry(data: dict[str, Any], rank: int) -> str:
    entry = data["vocab"][rank]
    if entry["rank"] != rank:
        raise ValueError(f"vocab entry {rank} has rank {entry['rank']}")
    return str(entry["token_bytes"])


class _Encoder:
    """Plain text through a Tekkenizer: neither bos nor eos, special names are text."""

    def __init__(self, tekken: Any) -> None:
        self._tekken = tekken

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._tekken.encode(text, bos=False, eos=False)
        return ids


class _FileEncoder:
    """As `_Encoder`, through a Tekkenizer that is loaded from the file by the first call."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return _FileEncoder, (self._path,)

    def __call__(self, text: str) -> list[int]:
        return self._encoder(text)

    @functools.cached_property
    def _encoder(self) -> _Encoder:
        try:
            from mistral_common.tokens.tokenizers.tekken import Tekkenizer  # lazy: half a second, for encoding only

            return _Encoder(Tekkenizer.from_file(self._path))
        except Exception as error:  # the library asserts and raises what comes
            reason = f"{type(error).__name__}: {trim(str(error))}"
            raise VocabularyError(f"mistral-common cannot read {self._path}: {reason}", hint=INSTALL_HINT) from error
