"""Draft trees: several continuations of one request, checked in one step (G8). A chain is a tree without branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import index

__all__ = ["DraftTree"]


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Drafts as a tree. Node 0 is the root: the last committed token, whose row says what may follow it.

    Attributes:
        tokens: the token of each node; the root's is not looked at, and a negative one is padding.
        parents: the parent of each node, in any order; -1 for the root alone.
        walk: the nodes with their depth, the root's being 0; each before its children, and each subtree in one piece.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    walk: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size = len(self.tokens)
        if len(self.parents) != size or not size or self.parents[0] != -1:
            raise ValueError("a draft tree has a parent for each token, and node 0 is its root, with parent -1")
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < size:
                raise ValueError(f"node {node} of the draft tree has no parent {parent}")
        object.__setattr__(self, "walk", self._walk())
        if len(self.walk) != size:
            raise ValueError("some nodes of the draft tree do not hang on its root")

    def _walk(self) -> tuple[tuple[int, int], ...]:
        children: list[list[int]] = [[] for _ in self.parents]
        for node in range(len(self.parents) - 1, 0, -1):
            children[self.parents[node]].append(node)
        walked: list[tuple[int, int]] = []
        ahead = [(0, 0)]
        while ahead:
            node, depth = ahead.pop()
            walked.append((node, depth))
            ahead += [(child, depth + 1) for child in children[node]]
        return tuple(walked)

    def __len__(self) -> int:
        """How many drafts there are: every node but the root."""
        return len(self.tokens) - 1

    @classmethod
    def from_parents(cls, tokens: Sequence[int], parents: Sequence[int]) -> DraftTree:
        """A tree from each node's parent; both lists include the root.

        Raises:
            ValueError: node 0 is not the root, or a node does not hang on it.
            TypeError: something is no integer.
        """
        return cls(tuple(map(index, tokens)), tuple(map(index, parents)))

    @classmethod
    def from_links(cls, tokens: Sequence[int], first_child: Sequence[int], next_sibling: Sequence[int]) -> DraftTree:
        """A tree from each node's first child and next sibling, -1 where there is none.

        Raises:
            ValueError: the lengths differ, a link leads nowhere, the root has a sibling, or a node is linked twice or
                never.
            TypeError: something is no integer.
        """
        size = len(tokens)
        if not len(first_child) == len(next_sibling) == size:
            raise ValueError("a draft tree has a first child and a next sibling for each token")
        parents = [-1] * size
        open_links = [(0, index(first_child[0]))] if size and index(next_sibling[0]) == -1 else []
        linked = len(open_links)
        while open_links:
            parent, node = open_links.pop()
            if node == -1:
                continue
            if not 0 < node < size or parents[node] != -1:
                raise ValueError(f"a link of the draft tree leads to {node}, which is no node or linked twice")
            parents[node] = parent
            linked += 1
            open_links += (parent, index(next_sibling[node])), (node, index(first_child[node]))
        if linked != size:
            raise ValueError("some nodes of the draft tree do not hang on its root, or the root has a sibling")
        return cls.from_parents(tokens, parents)

    @classmethod
    def chain(cls, drafts: Sequence[int]) -> DraftTree:
        """The tree without branches that a list of drafts is."""
        return cls((-1, *map(index, drafts)), tuple(range(-1, len(drafts))))

    @property
    def depth(self) -> int:
        """The most drafts on one path."""
        return max(depth for _, depth in self.walk)

    def padding(self) -> list[int]:
        """Nodes whose token, or one above it, is negative."""
        padded = [False] * len(self.tokens)
        for node, _ in self.walk[1:]:
            padded[node] = self.tokens[node] < 0 or padded[self.parents[node]]
        return [node for node, is_padded in enumerate(padded) if is_padded]

    def links(self, linked: Callable[[int], bool]) -> tuple[list[int], list[int]]:
        """First child and next sibling of each node, -1 where there is none, without nodes whose token is not `linked`.

        What hangs on such a node cannot be reached by these links.
        """
        first_child, next_sibling = [-1] * len(self.tokens), [-1] * len(self.tokens)
        for node in range(len(self.tokens) - 1, 0, -1):
            if linked(self.tokens[node]):
                parent = self.parents[node]
                next_sibling[node], first_child[parent] = first_child[parent], node
        return first_child, next_sibling
