"""What can be told about a `pattern` of a schema without an engine: whether it is anchored, which texts it excludes,
and whether what it matches must be escaped inside a JSON string.

Every answer takes time in proportion to the pattern, whatever the pattern: none is left to a backtracking matcher.
Whether a pattern is a regular expression at all is judged in `grammar_backends.selection.schema`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

from grammar_backends.contract.regex import (
    Alternatives,
    CharacterSet,
    Node,
    Ranges,
    Regex,
    Repetition,
    Series,
    intersection,
    parse_regex,
    union,
)
from grammar_backends.errors import SpecError

__all__ = [
    "alternatives_of",
    "anchored",
    "cannot_match",
    "ends_escaped",
    "has_anchors",
    "has_inner_anchors",
    "needs_escapes",
    "options_overlap",
    "searched",
    "share_prefixes",
    "signs",
    "tree_of",
]

MAX_SEARCHED = 200
"""Characters of a text that patterns are tried on."""
MAX_STEPS = 1_000
"""Steps of one such trial; unbounded, counts inside counts would multiply."""
MAX_DEPTH = 100
"""Levels of a pattern that is looked into."""


def cannot_match(pattern: str, text: str) -> bool:
    """True when it is certain that a pattern finds nothing in a text."""
    return searched(pattern, text) is False


@functools.lru_cache(maxsize=4096)
def searched(pattern: str, text: str) -> bool | None:
    """Whether a pattern finds something in a text; None where that is not known.

    Not known are patterns outside of the layer's dialect, and classes on texts beyond ASCII, which dialects read
    differently.
    """
    if len(text) > MAX_SEARCHED or (not text.isascii() and re.search(r"\\[wWdDsSbBpP]|\(\?", pattern)):
        return None
    verdicts = [_part_found(part, text) for part in alternatives_of(pattern)]
    return True if True in verdicts else None if None in verdicts else False


def _part_found(part: str, text: str) -> bool | None:
    root = tree_of(part)
    if root is None or (has_inner_anchors(part) and not anchored(part)) or _ANCHORING.search(part):
        return None
    trial = _Trial(text)
    every = (1 << len(text) + 1) - 1
    begin = 1 if part.startswith("^") else every
    end = 1 << len(text) if part.endswith("$") and not ends_escaped(part) else every
    try:
        return bool(trial.ends(root, begin) & end)
    except _Exhausted:
        return None


class _Exhausted(Exception):
    """A trial has taken more steps than it may."""


class _Trial:
    """A pattern on one text, by sets of positions instead of backtracking. Bit n of a set is the position n."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._steps = 0
        self._matching: dict[Ranges, int] = {}

    def ends(self, node: Node, starts: int, depth: int = 0) -> int:
        """Where a match can end that begins at one of the starts.

        Raises:
            _Exhausted: it takes too long to tell.
        """
        self._steps += 1
        if self._steps > MAX_STEPS or depth > MAX_DEPTH:
            raise _Exhausted
        if not starts:
            return 0
        if isinstance(node, CharacterSet):
            if starts & (starts - 1):
                return (starts & self._positions_of(node.ranges)) << 1
            return starts << 1 if self._is_in(node.ranges, starts.bit_length() - 1) else 0
        if isinstance(node, Alternatives):
            return functools.reduce(lambda found, option: found | self.ends(option, starts, depth + 1), node.options, 0)
        if isinstance(node, Series):
            for item in node.items:
                starts = self.ends(item, starts, depth + 1)
            return starts
        return self._repeated(node, starts, depth + 1)

    def _repeated(self, node: Repetition, starts: int, depth: int) -> int:
        for _ in range(node.least):
            before, starts = starts, self.ends(node.item, starts, depth)
            if starts == before:  # nowhere, or the item can be empty and nothing new is reached
                break
        found = starts
        for _ in itertools.repeat(None) if node.most is None else range(node.most - node.least):
            before, starts = found, self.ends(node.item, starts, depth)
            found |= starts
            if found == before:
                break
        return found

    def _positions_of(self, ranges: Ranges) -> int:
        known = self._matching.get(ranges)
        if known is None:
            known = sum(1 << at for at in range(len(self._text)) if self._is_in(ranges, at))
            self._matching[ranges] = known
        return known

    def _is_in(self, ranges: Ranges, at: int) -> bool:
        return at < len(self._text) and any(low <= ord(self._text[at]) <= high for low, high in ranges)


def ends_escaped(part: str) -> bool:
    """True when the last character of a pattern is escaped."""
    before = part[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


@functools.lru_cache(maxsize=4096)
def anchored(pattern: str) -> bool:
    """True when every alternative of a pattern spans the whole string, be it by `^` and `$` or by `.*`."""
    return _all_anchored(pattern, 0)


def _all_anchored(pattern: str, depth: int) -> bool:
    return depth < MAX_DEPTH and all(_is_anchored(part, depth) for part in alternatives_of(pattern))


def signs(pattern: str) -> Iterator[tuple[int, str]]:
    """The parentheses and bars of a pattern that are neither escaped nor in a class, with their places."""
    skip, in_class = False, False
    for index, character in enumerate(pattern):
        if skip:
            skip = False
        elif character == "\\":
            skip = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()|":
            yield index, character


def alternatives_of(pattern: str) -> list[str]:
    """A pattern, split at each `|` outside of groups."""
    depth, parts, start = 0, [], 0
    for index, sign in signs(pattern):
        if sign != "|":
            depth += 1 if sign == "(" else -1
        elif not depth:
            parts.append(pattern[start:index])
            start = index + 1
    return [*parts, pattern[start:]]


def _is_anchored(part: str, depth: int) -> bool:
    while len(part) > 2 and part[0] == "(" and part[-1] == ")" and _closes_last(part):
        part = re.sub(r"^\((\?:)?", "", part)[:-1]
        depth += 1
        if "|" in part or depth >= MAX_DEPTH:
            return _all_anchored(part, depth)
    # Where anything may precede or follow, it makes no difference whether the match must reach the end.
    return part.startswith(("^", ".*")) and re.search(r"(?<!\\)(?:\\\\)*(?:\$|\.\*)$", part) is not None


def _closes_last(part: str) -> bool:
    """True when the group that opens a part is the one that ends it."""
    depth = 0
    for index, sign in signs(part):
        if sign != "|":
            depth += 1 if sign == "(" else -1
            if not depth:
                return index == len(part) - 1
    return False


@functools.lru_cache(maxsize=4096)
def tree_of(pattern: str) -> Node | None:
    """A pattern in the layer's own dialect, as engines read it; None when it is outside of it, or begins with flags."""
    try:
        regex = parse_regex(pattern)
    except SpecError:
        return None
    return None if regex.flags else regex.root


def _nodes_of(root: Node) -> Iterator[Node]:
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


@functools.lru_cache(maxsize=4096)
def options_overlap(pattern: str) -> bool:
    """True when two alternatives somewhere in a pattern may begin with the same character: `a|a{1,2}`."""
    root = tree_of(pattern)
    if root is None:
        return True
    for node in _nodes_of(root):
        begun: Ranges = ()
        for option in node.options if isinstance(node, Alternatives) else ():
            first = Regex(pattern, option).first
            if intersection(begun, first):
                return True
            begun = union((*begun, *first))
    return False


_ESCAPED: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
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
    for node in _nodes_of(root):
        if not isinstance(node, CharacterSet) or (named_only and pattern.isascii() and _is_cofinite(node.ranges)):
            continue
        if any(low <= last and first <= high for low, high in node.ranges for first, last in _ESCAPED):
            return True
    return False


def _is_cofinite(ranges: Ranges) -> bool:
    return ranges[-1][1] > 0x10FFF0


@functools.lru_cache(maxsize=4096)
def _literal_prefix(pattern: str) -> str:
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


def share_prefixes(patterns: Sequence[str]) -> bool:
    """False when all that one pattern matches begins otherwise than all that another one does."""
    prefixes = sorted(map(_literal_prefix, patterns))
    # Whatever starts with a prefix follows it directly in this order.
    return any(later.startswith(prefix) for prefix, later in itertools.pairwise(prefixes))


def has_inner_anchors(pattern: str) -> bool:
    """True for a `^` or `$` that is neither the first nor the last character of a pattern."""
    return re.search(r"[\^$]", _OPAQUE.sub("", pattern)[1:-1]) is not None


def has_anchors(pattern: str) -> bool:
    """True for any anchor in a pattern."""
    return re.search(r"[\^$]", _OPAQUE.sub("", pattern)) is not None or _ANCHORING.search(pattern) is not None


_ANCHORING = re.compile(r"(?<!\\)(?:\\\\)*\\[AzZ]")
"""Escapes that are anchors in some dialects, and letters in others."""

_OPAQUE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""Escapes and classes: where no character is an anchor."""
