"""What can be told about a `pattern` of a schema without an engine: whether it is anchored, which texts it excludes,
and whether what it matches must be escaped inside a JSON string."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from grammar_backends.contract.regex import Alternatives, CharacterSet, Node, Ranges, Repetition, Series, parse_regex
from grammar_backends.errors import SpecError

__all__ = ["anchored", "cannot_match", "disjoint_patterns", "needs_escapes", "tree_of"]


@functools.lru_cache(maxsize=1024)
def cannot_match(pattern: str, text: str) -> bool:
    if len(text) > 100 or not text.isascii() or re.search(r"\\[^dDwWsS.\-/\\^$|()\[\]{}*+?]|\(\?[^:]", pattern):
        return False
    try:
        return re.search(pattern, text) is None
    except re.error:
        return False


@functools.lru_cache(maxsize=4096)
def anchored(pattern: str) -> bool:
    """True when every alternative of a pattern spans the whole string, be it by `^` and `$` or by `.*`."""
    depth, in_class, skip = 0, False, False
    parts, start = [], 0
    for index, character in enumerate(pattern):
        if skip:
            skip = False
        elif character == "\\":
            skip = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and not depth:
            parts.append(pattern[start:index])
            start = index + 1
    parts.append(pattern[start:])
    return all(_is_anchored(part) for part in parts)


def _is_anchored(part: str) -> bool:
    while len(part) > 2 and part[0] == "(" and part[-1] == ")" and _closes_last(part):
        part = re.sub(r"^\((\?:)?", "", part)[:-1]
        if "|" in part:
            return anchored(part)
    # Where anything may precede or follow, it makes no difference whether the match must reach the end.
    return part.startswith(("^", ".*")) and re.search(r"(?<!\\)(?:\\\\)*(?:\$|\.\*)$", part) is not None


def _closes_last(part: str) -> bool:
    """True when the group that opens a part is the one that ends it."""
    depth, skip, in_class = 0, False, False
    for index, character in enumerate(part):
        if skip:
            skip = False
        elif character == "\\":
            skip = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
            if not depth:
                return index == len(part) - 1
    return False


@functools.lru_cache(maxsize=4096)
def tree_of(pattern: str) -> Node | None:
    """A pattern in the layer's own dialect; None when it is outside of it."""
    try:
        return parse_regex(pattern).root
    except SpecError:
        return None


def nodes_of(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Series):
            stack.extend(node.items)
        elif isinstance(node, Alternatives):
            stack.extend(node.options)
        elif isinstance(node, Repetition):
            stack.append(node.item)


ESCAPED: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
"""The characters that JSON text cannot hold unescaped."""


@functools.lru_cache(maxsize=4096)
def needs_escapes(pattern: str, named_only: bool) -> bool:
    """True when a pattern can match a character that JSON text has to escape.

    With `named_only`, `.` and negated ASCII classes may: xgrammar then takes the escaped characters out of them, and
    what is lost are strange property names.
    """
    root = tree_of(pattern)
    if root is None:
        return True
    for node in nodes_of(root):
        if not isinstance(node, CharacterSet) or (named_only and pattern.isascii() and is_cofinite(node.ranges)):
            continue
        if any(low <= last and first <= high for low, high in node.ranges for first, last in ESCAPED):
            return True
    return False


def is_cofinite(ranges: Ranges) -> bool:
    return ranges[-1][1] > 0x10FFF0


@functools.lru_cache(maxsize=4096)
def literal_prefix(pattern: str) -> str:
    """The literal text that everything a pattern matches starts with."""
    root = tree_of(pattern) if pattern.startswith("^") and anchored(pattern) else None
    if root is None:
        # Unanchored at the end is as good, as long as no alternative can start otherwise.
        root = tree_of(pattern) if pattern.startswith("^") and "|" not in pattern else None
    items = root.items if isinstance(root, Series) else (root,) if root is not None else ()
    prefix = ""
    for item in items:
        if not (isinstance(item, CharacterSet) and len(item.ranges) == 1 and item.ranges[0][0] == item.ranges[0][1]):
            break
        prefix += chr(item.ranges[0][0])
    return prefix


def disjoint_patterns(left: str, right: str) -> bool:
    one, other = literal_prefix(left), literal_prefix(right)
    return bool(one and other) and not one.startswith(other) and not other.startswith(one)
