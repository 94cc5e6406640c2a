"""Forced text as tokens: only such as the tokenizer itself would make of the whole text, whatever follows (I3).

Engines say which bytes must come next. Cut into tokens on its own, that text would end in tokens which the tokenizer
had merged with what follows, and start with ones that it had merged with what came before; a model that is fed such
tokens sees texts as it never saw them in training.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import DeadEnd, VocabularyError

if TYPE_CHECKING:
    from grammar_backends.contract.grammar import StructuredOutputGrammar

__all__ = ["Continuation", "canonical_continuation"]

WINDOW = 16
"""Tokens before the forced text that are encoded together with it."""

LOOK_BACK = 4
"""Last tokens of the forced text that are held against what may follow: a token that reaches further is rare."""

PROBES = 16
"""Tokens that may follow, with which the forced text is encoded again, to see whether its own tokens stay."""


class Continuation(NamedTuple):
    """Tokens that the forced text becomes.

    Attributes:
        tokens: to append.
        num_replaced: how many of the last tokens of the output to take back first: together with the forced text the
            tokenizer would have cut that text in another way.
    """

    tokens: list[int]
    num_replaced: int = 0


NOTHING = Continuation([])


def canonical_continuation(
    vocabulary: Vocabulary,
    grammar: StructuredOutputGrammar,
    forced: bytes,
    output: Sequence[int] = (),
    min_tokens: int = 1,
) -> Continuation:
    """The tokens for `forced` that stay the tokenizer's own, whichever legal text follows.

    ::

        the last tokens of the output and the forced text are encoded together
        what that has in common with the output stays, the rest of the output is replaced
        last tokens are dropped while some token of the vocabulary begins in them, reaches beyond the forced text,
            and what it adds is legal there

    Args:
        vocabulary: nothing is offered unless it is `canonical`.
        grammar: in the state in which `forced` is forced; it is not changed.
        forced: what `StructuredOutputGrammar.forced_bytes` said.
        output: the tokens so far, of which only the last ones are looked at.
        min_tokens: nothing is offered by which the output would not grow so much.
    """
    if not vocabulary.canonical or not forced:
        return NOTHING
    known = _window(vocabulary, output)
    try:
        text = _whole_characters(vocabulary.decode(known) + forced)
        ids = vocabulary.encode(text)
    except (UnicodeDecodeError, VocabularyError):
        return NOTHING
    shared, enough = _shared(known, ids), len(known) + min_tokens
    if len(ids) < enough:
        return NOTHING
    ahead = _ahead(grammar, len(known) - shared, ids[shared:])
    if ahead is None:
        return NOTHING
    try:
        kept = _stable(vocabulary, ahead, text, ids)
    except DeadEnd:
        return NOTHING
    return NOTHING if kept < enough else Continuation(ids[shared:kept], len(known) - shared)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens two sequences have in common."""
    differing = (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differing, min(len(one), len(other)))


def _window(vocabulary: Vocabulary, output: Sequence[int]) -> list[int]:
    """The last tokens of the output, from a whole character on and without control tokens."""
    tokens = vocabulary.text_tokens
    window: list[int] = []
    for token in reversed(output):
        data = tokens[token] if 0 <= token < vocabulary.size else b""
        if not data:
            break
        window.append(token)
        if len(window) >= WINDOW and data[0] & 0xC0 != 0x80:
            break
    return window[::-1]


def _whole_characters(data: bytes) -> str:
    """The text without the character that has only begun."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            raise
        return data[: error.start].decode()


def _ahead(
    grammar: StructuredOutputGrammar, num_replaced: int, tokens: Sequence[int]
) -> StructuredOutputGrammar | None:
    """A grammar that is where these tokens lead; None when it cannot get there."""
    ahead = grammar.fork()
    try:
        for _ in range(num_replaced):
            ahead.rollback(1)
            if not getattr(ahead, "is_open", True):  # what opened a gate stays in the tokens in which it was found
                return None
    except ValueError:  # that is longer ago than it remembers
        return None
    return ahead if ahead.accept_tokens("forced", tokens) and not ahead.is_terminated() else None


def _stable(vocabulary: Vocabulary, ahead: StructuredOutputGrammar, text: str, ids: Sequence[int]) -> int:
    """How many of the tokens of a text stay as they are, whatever legal text follows; `ahead` is at its end."""
    row = np.empty((1, vocabulary.words), dtype=np.int32)
    ahead.fill_bitmask(row, 0)
    beginnings = _first_bytes(vocabulary)
    allowed = np.unpackbits(row.view(np.uint8), bitorder="little")[: vocabulary.size].view(bool)
    following = np.flatnonzero(allowed & (beginnings >= 0))
    first_bytes = frozenset(np.flatnonzero(np.bincount(beginnings[following], minlength=256)).tolist())
    tail = vocabulary.decode(ids[-LOOK_BACK:])
    start = next(
        (at for at in range(len(tail)) if _may_go_on(vocabulary, ahead, tail[at:], first_bytes)),
        len(tail),
    )
    kept, end = len(ids), len(tail)
    while end > start and kept:
        kept -= 1
        end -= len(vocabulary.text_tokens[ids[kept]])
    for other in _encodings(vocabulary, text, following):
        kept = _shared(ids[:kept], other)
    return kept


def _may_go_on(
    vocabulary: Vocabulary, ahead: StructuredOutputGrammar, suffix: bytes, first_bytes: frozenset[int]
) -> bool:
    """Whether some token begins with `suffix`, where the text ends, and goes on with what is legal there."""
    for id_ in vocabulary.starting_with(suffix):
        more = vocabulary.text_tokens[id_][len(suffix) :]
        if more and more[0] in first_bytes:
            tokens = vocabulary.spell(more)
            if ahead.validate_tokens(tokens) == tokens:
                return True
    return False


def _encodings(vocabulary: Vocabulary, text: str, following: NDArray[np.intp]) -> Iterator[list[int]]:
    """How the tokenizer cuts the text with each of some tokens behind it."""
    for id_ in following[:: max(1, len(following) // PROBES)].tolist():
        try:
            yield vocabulary.encode(text + vocabulary.text_tokens[id_].decode())
        except UnicodeDecodeError:
            continue


@functools.lru_cache(maxsize=8)
def _first_bytes(vocabulary: Vocabulary) -> NDArray[np.int16]:
    """The first byte of each text token, -1 for others; int16 ``[size]``."""
    return np.fromiter((token[0] if token else -1 for token in vocabulary.text_tokens), np.int16, vocabulary.size)
