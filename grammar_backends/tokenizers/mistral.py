"""Reads Mistral's tekken tokenizers: objects of mistral-common, and their JSON files without mistral-common.

A file is read here rather than by mistral-common because that takes a second longer and only encoding needs it.
Mistral's SentencePiece tokenizers are refused.
"""

from __future__ import annotations

import base64
import binascii
import functools
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError, trim

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
    """The vocabulary of a tekken tokenizer of mistral-common (B8).

    Every id below the number of special tokens is special, under its own name (``[TOOL_CALLS]``), so that no regular
    expression matches one (A29). The stop id is the tokenizer's end of sequence.

    Args:
        tokenizer: a `MistralTokenizer`, an `InstructTokenizer` or a `Tekkenizer`, or transformers' wrapper of one.
        width: the model's vocabulary size when it is padded beyond the tokenizer's.

    Raises:
        VocabularyError: not a tekken tokenizer.
    """
    tekken = _tekkenizer(tokenizer)
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
    data = _read_json(path)
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
    encode = _FileEncoder(path) if importlib.util.find_spec("mistral_common") else None
    return _vocabulary(tokens, names, stop, width, name or str(path), encode, None)


def packaged_tekken() -> Path:
    """The tekken file that mistral-common brings along (131,072 tokens).

    Raises:
        VocabularyError: mistral-common is not installed, or does not hold the file.
    """
    spec = importlib.util.find_spec("mistral_common")  # finds it without importing it
    if spec is None or not spec.submodule_search_locations:
        raise VocabularyError("vocabulary tekken comes with mistral-common, which is not installed", hint=INSTALL_HINT)
    path = Path(spec.submodule_search_locations[0]) / PACKAGED_FILE
    if not path.is_file():
        raise VocabularyError(f"mistral-common does not hold {PACKAGED_FILE}", hint=INSTALL_HINT)
    return path


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


def _tekkenizer(tokenizer: Any) -> Any:
    found = tokenizer
    for _ in range(WRAPPERS + 1):
        if all(hasattr(found, needed) for needed in ("id_to_byte_piece", "special_ids", "n_words", "eos_id")):
            return found
        found = getattr(found, "instruct_tokenizer", None) or getattr(found, "tokenizer", found)
    kind = type(found).__name__
    if "SentencePiece" in kind:
        hint = "Use a model with a tekken tokenizer, or this one's tokenizer.json with Vocabulary.from_huggingface"
        raise VocabularyError(f"{kind} is a SentencePiece tokenizer of Mistral's: not supported yet", hint=hint)
    hint = "Give mistral-common's MistralTokenizer, InstructTokenizer or Tekkenizer"
    raise VocabularyError(f"{kind} is not a tekken tokenizer", hint=hint)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise VocabularyError(f"{path} cannot be read: {trim(str(error))}") from error
    if not isinstance(data, dict):
        raise VocabularyError(f"{path} is not a tekken file: it holds no JSON object")
    return data


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
