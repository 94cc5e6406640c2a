"""Reads tiktoken's tokenizers: a `tiktoken.Encoding`, and files of base64 tokens with their ranks.

A file holds neither the pattern that cuts a text into words nor the special tokens. For the files of well-known
models both are looked up by the file's digest; of any other file, special tokens come from the model's configuration
beside it, and its vocabulary is not canonical.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError, trim
from grammar_backends.tokenizers.files import import_library, is_installed, read_bytes
from grammar_backends.tokenizers.stops import find_stop_ids
from grammar_backends.tokenizers.tiktoken_families import FAMILIES

__all__ = ["read_tiktoken", "read_tiktoken_file"]

LARGEST_ID = 1 << 24
"""Far above every real vocabulary: a file with a larger rank is broken, and would fill the memory."""

WRAPPERS = ("model", "tokenizer", "_tokenizer")
"""Attributes under which models' own tokenizer classes (Llama's, Qwen's) keep their encoding."""


def read_tiktoken(
    encoding: Any, *, width: int | None = None, stop_ids: Collection[int] | None = None, name: str | None = None
) -> Vocabulary:
    """The vocabulary of a `tiktoken.Encoding` (B6).

    Its special tokens become special ids (A29), and so do ids that no token has.

    Args:
        encoding: a `tiktoken.Encoding`, or a tokenizer object that holds one.
        width: the model's vocabulary size when it is padded beyond the tokenizer's.
        stop_ids: end-of-sequence ids. When absent: the special tokens with a well-known name, ``<|endoftext|>``, say.
        name: what messages call the vocabulary; the encoding's own name when absent.

    Raises:
        VocabularyError: not an encoding, or no stop id is known.
    """
    found = _encoding(encoding)
    special = {id_: text for text, id_ in found._special_tokens.items()}
    tokens = _table(found._mergeable_ranks, special, found.name)
    return Vocabulary(
        tokens,
        special_ids=special,
        stop_ids=find_stop_ids(special) if stop_ids is None else stop_ids,
        width=width,
        special_names=special,
        encode=found.encode_ordinary,
        name=name or found.name,
        source=encoding,
    )


def read_tiktoken_file(
    path: Path,
    *,
    special: Mapping[int, str] | None = None,
    width: int | None = None,
    stop_ids: Collection[int] | None = None,
    name: str | None = None,
) -> Vocabulary:
    """The vocabulary of a file of base64 tokens and ranks (``*.tiktoken``, or Llama's ``tokenizer.model``).

    The package tiktoken is needed for `Vocabulary.encode` alone and is loaded by its first call.

    Args:
        path: the file.
        special: special tokens by id, added to those of a well-known file.
        width: the model's vocabulary size when it is padded beyond the tokenizer's.
        stop_ids: end-of-sequence ids; found by name when absent.
        name: what messages call the vocabulary.

    Raises:
        VocabularyError: the file cannot be read, is not of this kind, or no stop id is known for it.
    """
    data = read_bytes(path)
    ranks = _ranks(data, path)
    family = FAMILIES.get(hashlib.sha256(data).hexdigest())
    names = {**(family.special if family else {}), **(special or {})}
    if not names and not stop_ids:
        hint = "Make a tiktoken.Encoding with the model's pattern and special tokens, and use Vocabulary.from_tiktoken"
        raise VocabularyError(f"{path} is of no known model, and a tiktoken file holds no special tokens", hint=hint)
    canonical = family is not None and is_installed("tiktoken")
    return Vocabulary(
        _table(ranks, names, str(path), stop_ids or ()),
        special_ids=names,
        stop_ids=stop_ids or find_stop_ids(names),
        width=width,
        special_names=names,
        encode=_FileEncoder(family.pattern, ranks) if family and canonical else None,
        name=name or str(path),
    )


def _encoding(found: Any) -> Any:
    kind = type(found).__name__
    for candidate in (found, *(getattr(found, name, None) for name in WRAPPERS)):
        if all(hasattr(candidate, needed) for needed in ("_mergeable_ranks", "_special_tokens", "encode_ordinary")):
            return candidate
    hint = "Give a tiktoken.Encoding: tiktoken.get_encoding(...) for one of tiktoken's own; load_vocabulary for a file"
    raise VocabularyError(f"{kind} is not a tiktoken encoding", hint=hint)


def _table(
    ranks: Mapping[bytes, int], special: Mapping[int, str], name: str, more: Collection[int] = ()
) -> list[bytes]:
    largest = max((*ranks.values(), *special, *more), default=-1)
    if not 0 <= largest < LARGEST_ID:
        raise VocabularyError(f"{name} has no tokens, or an id that no vocabulary has: {largest}")
    tokens = [b""] * (largest + 1)
    for id_, text in special.items():
        tokens[id_] = text.encode()
    for token, rank in ranks.items():
        if tokens[rank]:
            raise VocabularyError(f"{name} gives rank {rank} to two tokens")
        tokens[rank] = token
    return tokens


def _ranks(data: bytes, path: Path) -> dict[bytes, int]:
    try:
        pairs = [line.split() for line in data.splitlines() if line]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
        if min(ranks.values(), default=-1) < 0:
            raise ValueError("it has no tokens, or a negative rank")
        if len(ranks) < len(pairs):
            raise ValueError("a token occurs twice")
    except (ValueError, binascii.Error) as error:
        raise VocabularyError(f"{path} is not a tiktoken file: {trim(str(error))}") from error
    return ranks


class _FileEncoder:
    """Plain text through a `tiktoken.Encoding` without special tokens, which the first call makes."""

    def __init__(self, pattern: str, ranks: Mapping[bytes, int]) -> None:
        self._pattern = pattern
        self._ranks = ranks

    def __reduce__(self) -> tuple[object, ...]:
        return _FileEncoder, (self._pattern, self._ranks)

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._encoding.encode_ordinary(text)
        return ids

    @functools.cached_property
    def _encoding(self) -> Any:
        library = import_library("tiktoken", "encoding", "tiktoken")
        return library.Encoding("file", pat_str=self._pattern, mergeable_ranks=self._ranks, special_tokens={})
