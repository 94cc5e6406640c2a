"""The names by which well-known models call the tokens that end a sequence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grammar_backends.errors import VocabularyError

__all__ = ["CHAT_STOP_NAMES", "STOP_NAMES", "find_stop_ids"]

CHAT_STOP_NAMES = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<|return|>",
    "<|call|>",
    "<|eos|>",
    "<|END_OF_TURN_TOKEN|>",
    "[|endofturn|]",
    "<｜end▁of▁sentence｜>",
)
"""Names that nobody would write in a text: such a token is a control token, even where a file calls it text."""

STOP_NAMES = ("</s>", "<eos>", *CHAT_STOP_NAMES, "<EOS_TOKEN>", "[EOS]")
"""All names. The others count for control tokens only; Gemma, for one, has HTML's ``</s>`` as text."""


def find_stop_ids(special: Mapping[int, str], declared: Iterable[int] = ()) -> list[int]:
    """The declared end-of-sequence ids, then the special tokens with one of `STOP_NAMES`.

    All that are present count, since chat models end with any of theirs.

    Raises:
        VocabularyError: there are none.
    """
    ids = {name: id_ for id_, name in special.items()}
    found = list(dict.fromkeys([*declared, *(ids[name] for name in STOP_NAMES if name in ids)]))
    if not found:
        few = ", ".join(list(ids)[:8]) or "none"
        raise VocabularyError(
            f"the tokenizer does not say which token ends a sequence (special tokens: {few})", hint="Give stop_ids"
        )
    return found
