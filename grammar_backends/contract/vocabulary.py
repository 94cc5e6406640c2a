"""A model's vocabulary as grammar engines need it: token id to bytes, special ids, stop ids, row width.

One `Vocabulary` serves every backend of an engine, so that all rows have one width and special tokens never match
text on any of them (A29, B6, B7). The readers for real tokenizers live in `grammar_backends.tokenizers`.
"""

from __future__ import annotations

import bisect
import copy
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from grammar_backends.contract.bitmask import row_words
from grammar_backends.errors import VocabularyError

__all__ = ["Vocabulary"]


class Vocabulary:
    """Token ids and their bytes. Immutable; share one object between backends, threads and (by pickle) processes.

    Attributes:
        size: ids that the tokenizer knows: 0 .. size - 1.
        width: ids that a row covers: the model's padded vocabulary size, at least `size`. Padded ids are never
            allowed.
        words: int32 words in a row, ``ceil(width / 32)``.
        special_ids: control tokens, and ids without bytes. They never match text; a grammar must name one to allow
            it (A29).
        stop_ids: end-of-sequence ids, in order; a request may bring its own (A10). Always special.
        stop_set: the same as a set.
        special_names: the text by which a grammar can name a special token, by id: the tokenizer's own spelling.
        name: what messages call it.
        canonical: True when `encode` gives the model's own tokenisation; forced tokens are offered only then (I1).
        source: the tokenizer it was read from, for a backend that has its own way to read that; None otherwise.

    Raises:
        VocabularyError: no tokens, a token that is not bytes, a width below the number of tokens, no stop id, or an id
            outside the vocabulary.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        *,
        special_ids: Collection[int],
        stop_ids: Collection[int],
        width: int | None = None,
        special_names: Mapping[int, str] | None = None,
        encode: Callable[[str], list[int]] | None = None,
        name: str = "vocabulary",
        source: Any = None,
    ) -> None:
        self._tokens = _checked_tokens(tokens)
        self.size = len(self._tokens)
        self.width = self.size if width is None else width
        self.stop_ids = tuple(dict.fromkeys(int(id_) for id_ in stop_ids))
        self.stop_set = frozenset(self.stop_ids)
        without_bytes = (id_ for id_, token in enumerate(self._tokens) if not token)
        self.special_ids = frozenset((*map(int, special_ids), *self.stop_ids, *without_bytes))
        self.words = row_words(self.width)
        self.name = name
        self.canonical = encode is not None
        self.source = source
        self._check()
        self.special_names = {
            id_: (special_names or {}).get(id_) or self._tokens[id_].decode("utf-8", "replace") or f"<|token_{id_}|>"
            for id_ in sorted(self.special_ids)
        }
        self._encode = encode

    def _check(self) -> None:
        if not self._tokens:
            raise VocabularyError("a vocabulary needs at least one token")
        if self.width < self.size:
            raise VocabularyError(f"width {self.width} is below the number of tokens, {self.size}")
        if not self.stop_ids:
            raise VocabularyError("no stop token is known", hint="Give stop_ids: without one no request could end")
        for id_ in self.special_ids:
            if not 0 <= id_ < self.size:
                raise VocabularyError(f"special or stop id {id_} is outside 0..{self.size - 1}")

    def __repr__(self) -> str:
        return f"<Vocabulary {self.name}: {self.size} tokens, width {self.width}, stop ids {list(self.stop_ids)}>"

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, Any]:
        # Tables that are quick to rebuild stay behind; the tokenizer itself travels, if it can be pickled.
        tables = ("text_tokens", "_ids_by_bytes", "_longest", "_sorted_tokens")
        return {name: value for name, value in self.__dict__.items() if name not in tables}

    def with_width(self, width: int) -> Vocabulary:
        """The same vocabulary with rows that cover `width` ids, for a model that pads its vocabulary (B6).

        Raises:
            VocabularyError: the width is below the number of tokens.
        """
        other = copy.copy(self)
        other.__dict__.pop("fingerprint", None)
        other.width, other.words = width, row_words(width)
        other._check()
        return other

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; of a special token, the bytes of its name.

        Raises:
            VocabularyError: the id is outside ``0 .. width - 1``.
        """
        if 0 <= token_id < self.size:
            return self._tokens[token_id] or self.special_names.get(token_id, "").encode()
        if 0 <= token_id < self.width:
            return b""
        raise VocabularyError(f"token id {token_id} is outside 0..{self.width - 1}")

    def decode(self, token_ids: Iterable[int]) -> bytes:
        """The text that tokens stand for: special tokens contribute nothing."""
        tokens = self.text_tokens
        return b"".join(tokens[id_] for id_ in token_ids if 0 <= id_ < self.size)

    def encode(self, text: str) -> list[int]:
        """The tokenizer's own encoding of plain text: special names inside it are text, nothing is added around it.

        ``decode(encode(text)) == text.encode()`` always holds. Where the tokenizer would change the text (it folds
        case, say, or cannot tell ``▁`` from a space), the text is spelled with the longest tokens that fit instead.

        Raises:
            VocabularyError: the text cannot be spelled with this vocabulary.
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise VocabularyError(f"no token spells a lone surrogate (character {error.start} of the text)") from error
        if self._encode is not None:
            ids = list(self._encode(text))
            if self.decode(ids) == data:
                return ids
        return self.spell(data)

    @functools.cached_property
    def text_tokens(self) -> tuple[bytes, ...]:
        """The bytes by which each id matches text, for ids ``0 .. size - 1``: empty for special tokens."""
        return tuple(b"" if id_ in self.special_ids else token for id_, token in enumerate(self._tokens))

    @functools.cached_property
    def tag_names(self) -> dict[str, int]:
        """The control tokens that the text of a structural tag can mean, by name: none that stops (A29, B10).

        Markup is never shorter than three characters; a shorter name is text like any other.
        """
        return {name: id_ for id_, name in self.special_names.items() if id_ not in self.stop_set and len(name) >= 3}

    @functools.cached_property
    def has_control_tokens(self) -> bool:
        """Whether some special token does not stop: only rules that name such a token allow it (A29)."""
        return not self.special_ids <= self.stop_set

    @functools.cached_property
    def usual_id(self) -> int:
        """An id near which most constraints allow some token: that of a quotation mark, among the ASCII characters.

        Whether a row allows anything at all is seen by looking there first.
        """
        return self._ids_by_bytes.get(b'"', 0)

    @functools.cached_property
    def usual_ids(self) -> range:
        """Ids among which nearly every row that allows any text has a bit: from the first to the last of the tokens of
        single ASCII characters. Just `usual_id` where those lie far apart.
        """
        ids = [self._ids_by_bytes[bytes([byte])] for byte in range(32, 127) if bytes([byte]) in self._ids_by_bytes]
        near = range(min(ids, default=0), max(ids, default=0) + 1)
        return near if len(near) <= 512 else range(self.usual_id, self.usual_id + 1)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of everything a compiled grammar depends on (B3, B6): equal content, equal fingerprint."""
        head = (self.width, self.size, sorted(self.special_names.items()), self.stop_ids)
        digest = hashlib.sha256(repr(head).encode())
        tokens = self.text_tokens
        digest.update(np.fromiter(map(len, tokens), dtype="<u4", count=len(tokens)).tobytes())
        digest.update(b"".join(tokens))
        return digest.hexdigest()

    def starting_with(self, prefix: bytes) -> list[int]:
        """The text tokens whose bytes begin with `prefix`, which is not empty."""
        tokens, ids = self._sorted_tokens
        first = bisect.bisect_left(tokens, prefix)
        below = prefix.rstrip(b"\xff")  # what comes behind all of them ends with a larger byte
        end = bisect.bisect_left(tokens, below[:-1] + bytes([below[-1] + 1]), first) if below else len(tokens)
        return ids[first:end]

    @functools.cached_property
    def _sorted_tokens(self) -> tuple[list[bytes], list[int]]:
        ids = sorted((id_ for id_, token in enumerate(self.text_tokens) if token), key=self.text_tokens.__getitem__)
        return [self.text_tokens[id_] for id_ in ids], ids

    @functools.cached_property
    def _longest(self) -> int:
        return max(map(len, self.text_tokens), default=0)

    @functools.cached_property
    def _ids_by_bytes(self) -> dict[bytes, int]:
        table: dict[bytes, int] = {}
        doubtful = {
            token for id_, token in enumerate(self.text_tokens) if token and table.setdefault(token, id_) != id_
        }
        return {**table, **{token: self._own_id(token, table[token]) for token in doubtful}}

    def _own_id(self, token: bytes, first: int) -> int:
        """Of several ids with the same bytes, the one that the tokenizer itself uses; the first where it does not say.

        SentencePiece has letters twice, say: as pieces, which it uses, and as bytes.
        """
        try:
            ids = self._encode(token.decode()) if self._encode else []
        except (UnicodeDecodeError, VocabularyError):
            return first
        return ids[0] if len(ids) == 1 and self.text_tokens[ids[0]] == token else first

    def spell(self, data: bytes) -> list[int]:
        """Text tokens that stand for any bytes, also for a part of a character: the longest that fit, from the left.

        This is not how the tokenizer would cut a text; `encode` is.

        Raises:
            VocabularyError: the bytes cannot be spelled with this vocabulary.
        """
        # `dead` are the positions from which the rest cannot be spelled.
        table, cuts, dead = self._ids_by_bytes, [0], set[int]()
        longest = self._longest
        while (start := cuts[-1]) < len(data):
            for end in range(min(len(data), start + longest), start, -1):
                if end not in dead and data[start:end] in table:
                    cuts.append(end)
                    break
            else:
                dead.add(cuts.pop())
                if not cuts:
                    last = max(dead)
                    raise VocabularyError(f"{self.name} has no token for byte {data[last]:#04x} at offset {last}")
        return [table[data[start:end]] for start, end in itertools.pairwise(cuts)]

    # The readers sit in a layer above; importing them here, on use, keeps one obvious place for a constructor.

    @classmethod
    def from_bytes(
        cls,
        tokens: Sequence[bytes],
        special_ids: Collection[int],
        stop_ids: Collection[int],
        width: int | None = None,
        **more: Any,
    ) -> Vocabulary:
        """A vocabulary from a list of byte strings, indexed by token id; `more` as for the class."""
        return cls(tokens, special_ids=special_ids, stop_ids=stop_ids, width=width, **more)

    @classmethod
    def from_huggingface(
        cls, tokenizer: Any, *, width: int | None = None, stop_ids: Collection[int] | None = None
    ) -> Vocabulary:
        """A `tokenizers.Tokenizer` or a fast tokenizer of transformers.

        Args:
            tokenizer: byte-level or byte-fallback; its own decoding is reproduced for every id.
            width: the model's vocabulary size when it is padded beyond the tokenizer's.
            stop_ids: end-of-sequence ids; found from the tokenizer when absent.

        Raises:
            VocabularyError: a slow tokenizer, or a decoder that is not known.
        """
        from grammar_backends.tokenizers.huggingface import read_huggingface

        return read_huggingface(tokenizer, width=width, stop_ids=stop_ids)

    @classmethod
    def from_tiktoken(
        cls, encoding: Any, *, width: int | None = None, stop_ids: Collection[int] | None = None
    ) -> Vocabulary:
        """A `tiktoken.Encoding`, or a tokenizer object that holds one; for a file there is `load_vocabulary`.

        Args:
            encoding: its special tokens become special ids.
            width: the model's vocabulary size when it is padded beyond the tokenizer's.
            stop_ids: end-of-sequence ids; found from the special tokens' names when absent.

        Raises:
            VocabularyError: not an encoding, or no stop id is known.
        """
        from grammar_backends.tokenizers.tiktoken import read_tiktoken

        return read_tiktoken(encoding, width=width, stop_ids=stop_ids)

    @classmethod
    def from_sentencepiece(
        cls, processor: Any, *, width: int | None = None, stop_ids: Collection[int] | None = None
    ) -> Vocabulary:
        """A `SentencePieceProcessor`, or the path of a SentencePiece model.

        Args:
            processor: byte pieces become bytes, ``▁`` a space; control pieces become special ids.
            width: the model's vocabulary size when it is padded beyond the tokenizer's.
            stop_ids: end-of-sequence ids; the model's own and well-known ends of a turn when absent.

        Raises:
            VocabularyError: the package sentencepiece is missing, or the file is no SentencePiece model.
        """
        from grammar_backends.tokenizers.sentencepiece import read_sentencepiece

        return read_sentencepiece(processor, width=width, stop_ids=stop_ids)

    @classmethod
    def from_mistral(cls, tokenizer: Any, *, width: int | None = None) -> Vocabulary:
        """A tokenizer of mistral-common: tekken or SentencePiece, alone or in a `MistralTokenizer`.

        Raises:
            VocabularyError: not a tokenizer of mistral-common.
        """
        from grammar_backends.tokenizers.mistral import read_mistral

        return read_mistral(tokenizer, width=width)

    @classmethod
    def from_gguf(
        cls,
        path: str | os.PathLike[str],
        *,
        width: int | None = None,
        stop_ids: Collection[int] | None = None,
    ) -> Vocabulary:
        """The tokenizer inside a GGUF file, byte-level BPE or SentencePiece's BPE.

        Args:
            path: the file; its tensors are not read.
            width: the model's vocabulary size; found from the embedding's shape when absent.
            stop_ids: end-of-sequence ids; those that the file declares and well-known ends of a turn when absent.

        Raises:
            VocabularyError: not a GGUF file, or one without a tokenizer of these kinds.
        """
        from grammar_backends.tokenizers.gguf import read_gguf

        return read_gguf(path, width=width, stop_ids=stop_ids)


def _checked_tokens(tokens: Sequence[bytes]) -> tuple[bytes, ...]:
    for id_, token in enumerate(tokens):
        # bytes(3) would be three zero bytes, and bytes("a") a TypeError.
        if not isinstance(token, (bytes, bytearray, memoryview)):
            raise VocabularyError(f"token {id_} is of type {type(token).__name__}, not bytes")
    return tuple(bytes(token) for token in tokens)
