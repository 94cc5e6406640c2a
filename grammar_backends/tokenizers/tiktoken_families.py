"""Well-known tiktoken files, by the SHA-256 of their content: what they leave out.

The names and patterns are those of the models' own code, with which the tests compare them where it is at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from grammar_backends.tokenizers.splitting import CL100K, LLAMA3, O200K, QWEN, R50K

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True)
class Family:
    """A tokenizer that is published as a tiktoken file.

    Attributes:
        name: what it is called.
        pattern: cuts a text into words.
        special: its special tokens by id.
    """

    name: str
    pattern: str
    special: dict[int, str]


def _from(first: int, names: Iterable[str]) -> dict[int, str]:
    return dict(enumerate(names, first))


def _reserved(prefix: str, numbers: Iterable[int]) -> list[str]:
    return [f"<|{prefix}reserved_special_token_{number}|>" for number in numbers]


_LLAMA3 = [
    *("<|begin_of_text|>", "<|end_of_text|>", *_reserved("", range(2)), "<|finetune_right_pad_id|>", "<|step_id|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>"),
    *_reserved("", range(2, 246)),
]

_LLAMA4 = [
    *("<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"),
    *_reserved("text_post_train_", range(6)),
    *("<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"),
    *_reserved("text_post_train_", range(8, 69)),
    *("<|image_start|>", "<|image_end|>", *_reserved("vision_", range(2))),
    *("<|tile_x_separator|>", "<|tile_y_separator|>", *_reserved("vision_", range(2, 6))),
    *("<|image|>", *_reserved("vision_", [6]), "<|patch|>", *_reserved("vision_", range(7, 1048))),
    *_reserved("reasoning_", range(8)),
    *("<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"),
    *_reserved("", range(904)),
]

_QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205))]

_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")

FAMILIES = {
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": Family(
        "llama3", LLAMA3, _from(128_000, _LLAMA3)
    ),
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed": Family(
        "llama4", O200K, _from(200_000, _LLAMA4)
    ),
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": Family("qwen", QWEN, _from(151_643, _QWEN)),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": Family(
        "o200k_base", O200K, {199_999: "<|endoftext|>", 200_018: "<|endofprompt|>"}
    ),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": Family(
        "cl100k_base",
        CL100K,
        {**_from(100_257, ("<|endoftext|>", *_FIM)), 100_276: "<|endofprompt|>"},
    ),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": Family(
        "p50k_base", R50K, {50_256: "<|endoftext|>"}
    ),
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": Family(
        "r50k_base", R50K, {50_256: "<|endoftext|>"}
    ),
}
