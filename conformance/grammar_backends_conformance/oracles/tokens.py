"""Which tokens may come next, from nothing but the recogniser and the tokens' bytes: the truth of a mask."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from grammar_backends import Vocabulary

__all__ = ["StateLike", "allowed_ids"]

_S = TypeVar("_S", bound="StateLike")


class StateLike(Protocol):
    """What is asked of a state of a recogniser."""

    @property
    def accepting(self) -> bool: ...

    def step(self: _S, byte: int) -> _S | None: ...


@dataclass
class _Node:
    """Tokens that begin alike: the ids of those that end here, and the rest by their next byte."""

    ids: list[int] = field(default_factory=list)
    children: dict[int, _Node] = field(default_factory=dict)


def allowed_ids(state: StateLike, vocabulary: Vocabulary) -> set[int]:
    """The ids of the tokens after whose bytes some text of the language can still follow.

    Every token of the vocabulary is tried; tokens that begin alike share the steps. Special tokens match no text
    (A29): whether a stop token is allowed is `state.accepting` (A9).
    """
    allowed: set[int] = set()
    todo = [(state, _tree(vocabulary))]
    while todo:
        reached, node = todo.pop()
        allowed.update(node.ids)
        for byte, child in node.children.items():
            following = reached.step(byte)
            if following is not None:
                todo.append((following, child))
    return allowed


@functools.lru_cache(maxsize=8)
def _tree(vocabulary: Vocabulary) -> _Node:
    root = _Node()
    for id_, token in enumerate(vocabulary.text_tokens):
        node = root
        for byte in token:
            node = node.children.setdefault(byte, _Node())
        if token:
            node.ids.append(id_)
    return root
