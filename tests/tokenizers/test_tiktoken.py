"""Vocabularies of tiktoken: encodings, and files of well-known and of unknown models."""

from __future__ import annotations

import base64
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grammar_backends import load_vocabulary
from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError
from grammar_backends.tokenizers import tiktoken as reader
from grammar_backends.tokenizers.files import find_in_package, is_installed
from grammar_backends.tokenizers.splitting import CL100K, O200K, R50K
from grammar_backends.tokenizers.stops import find_stop_ids
from grammar_backends.tokenizers.tiktoken import read_tiktoken, read_tiktoken_file
from grammar_backends.tokenizers.tiktoken_families import FAMILIES

tiktoken = pytest.importorskip("tiktoken")


class Published:
    """A model's file, and the model's own code for it."""

    def __init__(self, module: str, file: str) -> None:
        package = module.partition(".")[0]
        self.path = find_in_package(package, file, hint="")
        tokenizer = pytest.importorskip(module)
        if package == "llama_models":
            self.encoding = tokenizer.Tokenizer(self.path).model
        else:
            self.encoding = tokenizer.QwenTokenizer(str(self.path))._tokenizer
        self.vocabulary = read_tiktoken_file(self.path)


PUBLISHED = {
    "llama3": ("llama_models.llama3.tokenizer", "llama3/tokenizer.model"),
    "llama4": ("llama_models.llama4.tokenizer", "llama4/tokenizer.model"),
    "qwen": ("dashscope.tokenizers.qwen_tokenizer", "resources/qwen.tiktoken"),
}


@pytest.fixture(scope="module", params=PUBLISHED)
def published(request: pytest.FixtureRequest) -> Published:
    module, file = PUBLISHED[request.param]
    package = module.partition(".")[0]
    if not is_installed(package):
        pytest.skip(f"the package {package}, which holds the file, is not installed")
    return Published(module, file)


SMALL_RANKS = {**{bytes([value]): value for value in range(256)}, b"ab": 256, b" ab": 257, b"abab": 259}
SMALL_SPECIAL = {"<|endoftext|>": 260, "<|im_end|>": 262}


@pytest.fixture
def small() -> Any:
    """An encoding with ids that no token has, and ends of a sequence."""
    return tiktoken.Encoding("small", pat_str=r"\w+|\W+", mergeable_ranks=SMALL_RANKS, special_tokens=SMALL_SPECIAL)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of an unknown model."""
    path = tmp_path / "tiktoken.model"
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in SMALL_RANKS.items()))
    return path


def test_b6_every_id_has_the_bytes_that_tiktoken_gives(published: Published) -> None:
    vocabulary, encoding = published.vocabulary, published.encoding
    assert vocabulary.size == encoding.n_vocab
    known = set(encoding._special_tokens.values())
    for id_, token in enumerate(vocabulary.text_tokens):
        if token or id_ in known:
            assert vocabulary.token_bytes(id_) == encoding.decode_single_token_bytes(id_)
        else:
            with pytest.raises(KeyError):
                encoding.decode_single_token_bytes(id_)


def test_b6_every_id_decodes_as_the_tokenizer_decodes_it(
    published: Published, check_every_id: Callable[[Any, Callable[[list[int]], str]], None]
) -> None:
    check_every_id(published.vocabulary, published.encoding.decode)


def test_b6_a_well_known_file_gives_what_the_models_own_code_gives(published: Published) -> None:
    other = Vocabulary.from_tiktoken(published.encoding)
    assert other.fingerprint == published.vocabulary.fingerprint
    assert other.stop_ids == published.vocabulary.stop_ids
    assert load_vocabulary(published.path).fingerprint == other.fingerprint
    assert published.vocabulary.canonical


def test_b6_encoding_is_the_tokenizers_own(published: Published, text: str) -> None:
    ids = published.vocabulary.encode(text)
    assert ids == published.encoding.encode_ordinary(text)
    assert published.vocabulary.decode(ids) == text.encode()
    assert not published.vocabulary.special_ids.intersection(ids)


def test_a10_well_known_models_end_as_their_own_code_says() -> None:
    ends = {family.name: {family.special[id_] for id_ in find_stop_ids(family.special)} for family in FAMILIES.values()}
    assert ends == {
        "llama3": {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"},
        "llama4": {"<|end_of_text|>", "<|eom|>", "<|eot|>"},
        "qwen": {"<|endoftext|>", "<|im_end|>"},
        "o200k_base": {"<|endoftext|>"},
        "cl100k_base": {"<|endoftext|>"},
        "p50k_base": {"<|endoftext|>"},
        "r50k_base": {"<|endoftext|>"},
    }


@pytest.mark.parametrize(
    ("name", "pattern"), [("o200k_base", O200K), ("cl100k_base", CL100K), ("p50k_base", R50K), ("r50k_base", R50K)]
)
def test_b6_tiktokens_own_encodings_are_known_as_it_defines_them(
    monkeypatch: pytest.MonkeyPatch, name: str, pattern: str
) -> None:
    import tiktoken_ext.openai_public as defined

    digests: list[str] = []

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        digests.append(expected_hash)
        return {}

    monkeypatch.setattr(defined, "load_tiktoken_bpe", load)
    own = getattr(defined, name)()
    family = FAMILIES[digests[0]]
    assert (family.name, family.pattern) == (name, own["pat_str"])
    assert family.pattern == pattern
    assert {text: id_ for id_, text in family.special.items()} == own["special_tokens"]


def test_a29_special_tokens_and_ids_without_a_token_have_no_text(small: Any) -> None:
    vocabulary = read_tiktoken(small)
    assert vocabulary.size == 263
    assert vocabulary.special_ids == {258, 260, 261, 262}
    assert vocabulary.special_names == {
        258: "<|token_258|>", 260: "<|endoftext|>", 261: "<|token_261|>", 262: "<|im_end|>",
    }  # fmt: skip
    assert vocabulary.stop_ids == (260, 262)
    assert vocabulary.encode("<|endoftext|>") == list(b"<|endoftext|>")
    assert vocabulary.encode("abab ab") == [259, 32, 256]
    assert (vocabulary.name, vocabulary.source) == ("small", small)


@pytest.mark.parametrize("attribute", ["model", "tokenizer", "_tokenizer"])
def test_b6_models_own_tokenizers_are_looked_into(small: Any, attribute: str) -> None:
    assert read_tiktoken(SimpleNamespace(**{attribute: small})).size == 263


def test_b6_width_and_stop_ids_come_from_the_caller_first(small: Any) -> None:
    vocabulary = Vocabulary.from_tiktoken(small, width=300, stop_ids=[262])
    assert (vocabulary.width, vocabulary.stop_ids) == (300, (262,))
    assert vocabulary.special_names[260] == "<|endoftext|>"


def test_a10_an_encoding_without_a_known_end_needs_stop_ids() -> None:
    encoding = tiktoken.Encoding("x", pat_str=r"\w+|\W+", mergeable_ranks=SMALL_RANKS, special_tokens={"<pad>": 260})
    with pytest.raises(VocabularyError, match=r"special tokens: <pad>\). Give stop_ids"):
        read_tiktoken(encoding)


@pytest.mark.parametrize("other", [None, "cl100k_base", 7, object()])
def test_b6_other_objects_are_refused(other: Any) -> None:
    with pytest.raises(VocabularyError, match=r"is not a tiktoken encoding. Give a tiktoken\.Encoding"):
        read_tiktoken(other)


def test_b6_an_unknown_file_alone_is_not_guessed_at(file: Path) -> None:
    with pytest.raises(VocabularyError, match=r"of no known model.*use Vocabulary\.from_tiktoken"):
        load_vocabulary(file)


def test_b6_an_unknown_file_takes_special_tokens_from_the_models_configuration_and_is_not_canonical(
    file: Path,
) -> None:
    added = {
        "260": {"content": "<|endoftext|>", "special": True},
        "262": {"content": "<|im_end|>", "special": True},
        "263": {"content": "just text", "special": False},
    }
    (file.parent / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": added, "eos_token": "<|im_end|>"})
    )
    (file.parent / "config.json").write_text(json.dumps({"vocab_size": 320}))
    for path in (file, file.parent):
        vocabulary = load_vocabulary(path)
        assert vocabulary.stop_ids == (260, 262)
        assert (vocabulary.size, vocabulary.width) == (263, 320)
        assert not vocabulary.canonical
        assert vocabulary.encode("abab ab") == [259, 257]
    (file.parent / "generation_config.json").write_text(json.dumps({"eos_token_id": 261}))
    assert load_vocabulary(file).stop_ids == (262, 261, 260)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "it has no tokens"),
        ("YQ== 0\nYg==\n", "not enough values"),
        ("YQ== 0\n%% 1\n", "is not a tiktoken file"),
        ("YQ== 0\nYg== one\n", "invalid literal"),
        ("YQ== 0\nYQ== 1\n", "a token occurs twice"),
        ("YQ== -1\n", "a negative rank"),
        ("YQ== 0\nYg== 0\n", "gives rank 0 to two tokens"),
        ("YQ== 99999999999\n", "an id that no vocabulary has"),
    ],
)
def test_b6_a_broken_file_is_named_with_the_reason(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "broken.tiktoken"
    path.write_text(content)
    with pytest.raises(VocabularyError, match=reason) as caught:
        read_tiktoken_file(path, special={5: "<|endoftext|>"})
    assert str(path) in str(caught.value)


def test_b6_it_survives_pickling(published: Published) -> None:
    vocabulary = published.vocabulary
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy.fingerprint == vocabulary.fingerprint
    assert copy.encode("The 日本語 <|im_end|>") == vocabulary.encode("The 日本語 <|im_end|>")


def test_b6_an_encoding_survives_pickling(small: Any) -> None:
    copy = pickle.loads(pickle.dumps(read_tiktoken(small)))
    assert copy.encode("abab ab") == [259, 32, 256]


def test_b6_without_the_package_a_file_is_read_and_encoded_by_longest_match(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "is_installed", lambda package: False)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    vocabulary = read_tiktoken_file(published.path)
    assert not vocabulary.canonical
    assert vocabulary.fingerprint == published.vocabulary.fingerprint
    assert vocabulary.decode(vocabulary.encode("日本語 text")) == "日本語 text".encode()
