"""Reads the tokenizers of Hugging Face: `tokenizers.Tokenizer` and the fast tokenizers of transformers.

The bytes of every id are those that the tokenizer's own decoder gives inside a text, read from the decoder's JSON:
byte-level (GPT-2's alphabet) or SentencePiece's style (``▁`` for a space, ``<0xXX>`` for a byte). Any other decoder
is refused by name rather than approximated.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError, trim
from grammar_backends.tokenizers.pieces import from_byte_level, from_piece
from grammar_backends.tokenizers.stops import find_stop_ids

__all__ = ["read_huggingface"]

Part: TypeAlias = dict[str, Any]
"""A normalizer, pre-tokenizer or decoder as `tokenizer.json` writes it."""


def read_huggingface(
    tokenizer: Any, *, width: int | None = None, stop_ids: Collection[int] | None = None, name: str | None = None
) -> Vocabulary:
    """The vocabulary of a `tokenizers.Tokenizer` or of a fast tokenizer of transformers (B6).

    Special added tokens become special ids, other added tokens are text (A29). Ids that no token has are special too.
    `Vocabulary.encode` adds no leading space, whatever the tokenizer does at the start of a prompt: a constrained
    text continues one.

    Args:
        tokenizer: its decoder is byte-level or byte-fallback.
        width: the model's vocabulary size when it is padded beyond the tokenizer's.
        stop_ids: end-of-sequence ids. When absent: the tokenizer's `eos_token_id`, else the special tokens with one
            of `STOP_NAMES`.
        name: what messages call the vocabulary; found from the tokenizer when absent.

    Raises:
        VocabularyError: a slow tokenizer, a decoder that is not known, or no stop id is known.
    """
    backend = _backend(tokenizer)
    added = {token.content: (id_, token) for id_, token in sorted(backend.get_added_tokens_decoder().items())}
    special = {id_: text for text, (id_, token) in added.items() if token.special}
    to_bytes = _decoding(_part(backend.decoder))
    texts = _texts(backend)
    tokens = [special[id_].encode() if id_ in special else to_bytes(text) for id_, text in enumerate(texts)]
    return Vocabulary(
        tokens,
        special_ids=special,
        stop_ids=_stop_ids(tokenizer, special) if stop_ids is None else stop_ids,
        width=width,
        special_names=special,
        encode=_Encoder(backend),
        name=name or getattr(tokenizer, "name_or_path", "") or "huggingface",
        source=tokenizer,
    )


def _backend(tokenizer: Any) -> Any:
    for candidate in (getattr(tokenizer, "backend_tokenizer", None), getattr(tokenizer, "_tokenizer", None), tokenizer):
        if all(hasattr(candidate, needed) for needed in ("get_added_tokens_decoder", "decoder", "id_to_token")):
            return candidate
    kind = type(tokenizer).__name__
    inner = getattr(tokenizer, "tokenizer", tokenizer)  # transformers wraps those of mistral-common
    if any(hasattr(each, name) for each in (tokenizer, inner) for name in ("instruct_tokenizer", "id_to_byte_piece")):
        raise VocabularyError(f"{kind} is a tokenizer of mistral-common", hint="Use Vocabulary.from_mistral")
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        hint = "Load it with AutoTokenizer.from_pretrained(..., use_fast=True), or save a tokenizer.json"
        raise VocabularyError(f"{kind} is a slow tokenizer, which does not say how its tokens decode", hint=hint)
    hint = "Give a tokenizers.Tokenizer or a fast tokenizer of transformers"
    raise VocabularyError(f"{kind} is not a Hugging Face tokenizer", hint=hint)


def _texts(backend: Any) -> list[str]:
    """What the tokenizer calls each id, "" where an id has no token."""
    by_id = {id_: text for text, id_ in backend.get_vocab(with_added_tokens=True).items()}
    by_id.update((id_, token.content) for id_, token in backend.get_added_tokens_decoder().items())
    # The table above is keyed by text: an id whose text another id has too must be asked for.
    return [by_id[id_] if id_ in by_id else backend.id_to_token(id_) or "" for id_ in range(max(by_id, default=-1) + 1)]


def _part(part: Any) -> Part | None:
    # The state for pickling is the part's JSON; writing out the whole tokenizer would take seconds.
    if part is None:
        return None
    try:
        read: Part = json.loads(part.__getstate__())
    except Exception as error:  # the library raises bare exceptions; a part written in Python has no JSON
        kind = type(part).__name__
        raise VocabularyError(f"the tokenizer's {kind} cannot be read: {trim(str(error))}") from error
    return read


def _flat(part: Part | None, children: str) -> list[Part]:
    if part is None:
        return []
    if part.get("type") != "Sequence":
        return [part]
    return [step for child in part[children] for step in _flat(child, children)]


def _decoding(decoder: Part | None) -> Callable[[str], bytes]:
    """How one token, in the middle of a text, becomes bytes."""
    steps = _flat(decoder, "decoders")
    kinds = [str(step.get("type")) for step in steps]
    if [kind for kind in kinds if kind != "Fuse"] == ["ByteLevel"]:
        return from_byte_level
    replaced: list[tuple[str, str]] = []
    for index, step in enumerate(steps):
        pair = _replacement(step)
        if pair is not None and "Fuse" not in kinds[:index]:
            replaced.append(pair)
        elif not (kinds[index] in ("ByteFallback", "Fuse") or (kinds[index] == "Strip" and "Fuse" in kinds[:index])):
            # A Strip after Fuse is harmless: it trims the ends of the whole text, not a token.
            break
    else:
        if steps:
            return functools.partial(from_piece, replaced=replaced, byte_tokens="ByteFallback" in kinds)
    found = " + ".join(kinds) or "none"
    hint = "Byte-level and byte-fallback (SentencePiece's style) are read; for others there is Vocabulary.from_bytes"
    raise VocabularyError(f"the tokenizer's decoder is not supported: {found}", hint=hint)


def _replacement(step: Part) -> tuple[str, str] | None:
    if step["type"] == "Metaspace":
        return step["replacement"], " "
    if step["type"] == "Replace" and "String" in step["pattern"]:
        return step["pattern"]["String"], step["content"]
    return None


def _stop_ids(tokenizer: Any, special: Mapping[int, str]) -> list[int]:
    given = getattr(tokenizer, "eos_token_id", None)
    if given is not None:
        return list(given) if isinstance(given, (list, tuple)) else [given]
    return find_stop_ids(special)


class _Encoder:
    """Encodes plain text as the tokenizer does, without what it does for prompts only.

    The encoding is done by a second tokenizer, made on first use, so that the caller's is never changed: it shares
    the model, but has no special tokens (their names are text, A29), adds no leading space, and does not normalise.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __reduce__(self) -> tuple[object, ...]:
        return _Encoder, (self._tokenizer,)

    def __call__(self, text: str) -> list[int]:
        plain, own_ids = self._plain
        ids = plain.encode(text, add_special_tokens=False).ids
        return [own_ids.get(id_, id_) for id_ in ids]

    @functools.cached_property
    def _plain(self) -> tuple[Any, dict[int, int]]:
        try:
            shell = _shell(_part(self._tokenizer.normalizer), _part(self._tokenizer.pre_tokenizer))
        except VocabularyError:
            return self._tokenizer, {}  # a part written in Python: what it changes, `Vocabulary.encode` will notice
        plain = type(self._tokenizer).from_str(json.dumps(shell))
        plain.model = self._tokenizer.model
        added = [(id_, token) for id_, token in sorted(self._tokenizer.get_added_tokens_decoder().items())]
        text = [(id_, token) for id_, token in added if not token.special]
        plain.add_tokens([token for _, token in text])
        return plain, {plain.token_to_id(token.content): id_ for id_, token in text}


def _shell(normalizer: Part | None, pre_tokenizer: Part | None) -> Part:
    steps = [step for step in _flat(normalizer, "normalizers") if _is_encoding(step)]
    splits = [_without_leading_space(step) for step in _flat(pre_tokenizer, "pretokenizers")]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits} if splits else None,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }


def _is_encoding(normalizer: Part) -> bool:
    """True for a normalizer that spells the text in the model's alphabet; others change the text."""
    if normalizer["type"] == "Replace":
        return bool(normalizer["pattern"].get("String") == " ")
    return bool(normalizer["type"] == "ByteLevel")


def _without_leading_space(pre_tokenizer: Part) -> Part:
    if pre_tokenizer["type"] == "Metaspace":
        return {**pre_tokenizer, "prepend_scheme": "never"}
    if pre_tokenizer["type"] == "ByteLevel":
        return {**pre_tokenizer, "add_prefix_space": False}
    return pre_tokenizer
