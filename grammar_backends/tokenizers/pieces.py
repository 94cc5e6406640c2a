"""How tokenizers write bytes as text: GPT-2's alphabet, and SentencePiece's ``▁`` and ``<0xXX>``."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

__all__ = ["from_byte_level", "from_piece"]

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

METASPACE = (("▁", " "),)


def from_byte_level(text: str) -> bytes:
    """The bytes of a token that is written in GPT-2's alphabet."""
    try:
        return bytes(map(_byte_alphabet().__getitem__, text))
    except KeyError:
        return text.encode()  # an added token may hold other characters; decoders leave it as it is


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's names for bytes: printable Latin-1 as itself, the others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def from_piece(text: str, *, byte_tokens: bool, replaced: Iterable[tuple[str, str]] = METASPACE) -> bytes:
    """The bytes of a token in SentencePiece's style, in the middle of a text.

    Args:
        text: what the tokenizer calls the token.
        byte_tokens: whether ``<0xXX>`` stands for a byte.
        replaced: texts and what they stand for.
    """
    if byte_tokens and (match := BYTE_TOKEN.fullmatch(text)):
        return bytes.fromhex(match[1])
    for old, new in replaced:
        text = text.replace(old, new)
    return text.encode()
