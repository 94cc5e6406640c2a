"""The built-in vocabulary `byte`: every byte is a token, followed by a few control tokens.

It needs no download and no tokenizer library, its masks can be read by eye, and every text can be spelled with it.

======  =============================  ====================
id      token                          role
======  =============================  ====================
0..255  the byte with that value       text
256     ``<eos>``                      special, the stop id
257     ``<pad>``                      special
258     ``<bos>``                      special
259     ``<think>``                    special
260     ``</think>``                   special
261     ``<tool_call>``                special
262     ``</tool_call>``               special
======  =============================  ====================
"""

from __future__ import annotations

from grammar_backends.contract.vocabulary import Vocabulary

__all__ = ["SPECIAL_NAMES", "byte_vocabulary"]

SPECIAL_NAMES = ("<eos>", "<pad>", "<bos>", "<think>", "</think>", "<tool_call>", "</tool_call>")
"""The control tokens, from id 256 on. Ids are stable: append only."""


def byte_vocabulary(*, width: int | None = None) -> Vocabulary:
    """The vocabulary `byte`.

    Raises:
        VocabularyError: a width below its size.
    """
    special = {256 + index: name for index, name in enumerate(SPECIAL_NAMES)}
    return Vocabulary(
        [bytes([value]) for value in range(256)] + [name.encode() for name in SPECIAL_NAMES],
        special_ids=special,
        stop_ids=[256],
        width=width,
        special_names=special,
        encode=_encode,
        name="byte",
    )


def _encode(text: str) -> list[int]:
    return list(text.encode())
