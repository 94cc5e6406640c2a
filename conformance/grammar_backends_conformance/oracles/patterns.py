r"""Regular expressions by Python's own `re`: the truth of the regex dialect, and the way of a pattern into terms.

A pattern is written in Python's syntax first (`\p{Lu}`, `\u{1F600}`, `\cA`, `\z` and the like have none there),
then read by Python alone, with ASCII meaning of `\d`, `\w` and `\s`.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from grammar_backends_conformance.oracles.reference import (
    EMPTY,
    Alternatives,
    Repetition,
    Series,
    Term,
    characters,
    complement,
)

if sys.version_info >= (3, 11):
    from re import _parser as sre
else:
    import sre_parse as sre

__all__ = ["Uncovered", "python_regex", "regex_fullmatch", "regex_search", "regex_term"]

Ranges: TypeAlias = "list[tuple[int, int]]"

ASCII_CLASSES: dict[str, Ranges] = {
    "CATEGORY_DIGIT": [(0x30, 0x39)],
    "CATEGORY_WORD": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
    "CATEGORY_SPACE": [(0x09, 0x0D), (0x20, 0x20)],
}


class Uncovered(ValueError):
    """An oracle does not know the meaning of this; what is wrong with it, if anything, is not its business."""


# ------------------------------------------------------------------------------------------- into Python's syntax

_PIECE = re.compile(
    r"""\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})
      | \\[xu]\{(?P<hex>[0-9a-fA-F]+)\}
      | \\(?P<sign>[pP])(?:\{(?P<name>\^?[^{}]+)\}|(?P<letter>[A-Z]))
      | \\c(?P<control>[A-Za-z])
      | \\(?P<escaped>.)
      | (?P<group>\(\?<(?![=!]))
      | (?P<opening>\[\^?)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"e": r"\x1b", "z": r"\Z", "0": r"\x00", "/": "/"}


def python_regex(pattern: str) -> str:
    """A pattern of the layer's dialect as Python reads it.

    Raises:
        Uncovered: a property that is no general category.
    """
    out: list[str] = []
    in_class = False
    for match in _PIECE.finditer(pattern):
        out.append(_python_piece(match, in_class))
        if match["opening"]:
            in_class = True
        elif match["other"] == "]":
            in_class = False
    return "".join(out)


def _python_piece(match: re.Match[str], in_class: bool) -> str:
    if match["high"]:
        return _escaped(0x10000 + ((int(match["high"], 16) - 0xD800) << 10) + int(match["low"], 16) - 0xDC00)
    if match["hex"] or match["control"]:
        return _escaped(int(match["hex"], 16) if match["hex"] else ord(match["control"]) & 0x1F)
    if match["sign"]:
        inner = _category(match["name"] or match["letter"], negated=match["sign"] == "P")
        return inner if in_class else f"[{inner}]"
    if match["group"]:
        return "(?P<"
    if match["escaped"]:
        return _ESCAPES.get(match["escaped"], match[0])
    if in_class and match[0] in ("[", "&", "|", "~"):
        return "\\" + match[0]
    # Python's own dollar also matches before a final newline.
    return r"\Z" if match[0] == "$" and not in_class else match[0]


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


@functools.lru_cache(maxsize=32)
def _category(name: str, *, negated: bool) -> str:
    """The characters of a general category, as the inside of a class."""
    negated ^= name.startswith("^")
    name = name.lstrip("^")
    if not any(name in category for category in _CATEGORIES):
        raise Uncovered(f"property {name}")
    codes = (code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)
    members = [code for code in codes if unicodedata.category(chr(code)).startswith(name) != negated]
    return "".join(f"{_escaped(low)}-{_escaped(high)}" for low, high in _runs(members))


_CATEGORIES = (
    *("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe"),
    *("Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Co", "Cn"),
)


def _runs(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = -2
    for code in codes:
        if code != last + 1:
            if last >= 0:
                yield first, last
            first = code
        last = code
    if last >= 0:
        yield first, last


# ------------------------------------------------------------------------------------------------- by Python's engine


def regex_fullmatch(pattern: str, text: str) -> bool:
    """Whether the whole text matches a pattern of the layer's dialect.

    Raises:
        Uncovered: the pattern is outside the dialect as far as this oracle knows it, or Python cannot read it.
    """
    return _compiled(pattern).fullmatch(text) is not None


def regex_search(pattern: str, text: str) -> bool:
    """Whether a pattern matches anywhere in the text, as `pattern` in a JSON schema does.

    Raises:
        Uncovered: as `regex_fullmatch`, except that anchors may stand anywhere.
    """
    return _compiled(pattern, anchors_anywhere=True).search(text) is not None


@functools.lru_cache(maxsize=512)
def _compiled(pattern: str, *, anchors_anywhere: bool = False) -> re.Pattern[str]:
    if not anchors_anywhere:
        regex_term(pattern)  # for its judgement of the dialect
    try:
        return re.compile(python_regex(pattern), re.ASCII)
    except re.error as error:
        raise Uncovered(f"Python: {error}") from None


# --------------------------------------------------------------------------------------------------------- into terms


def regex_term(pattern: str, *, ignore_case: bool = False, dot_all: bool = False) -> Term:
    """The texts that a pattern matches as a whole. The two flags are those of Lark's terminals, or at its very start.

    Raises:
        Uncovered: as `regex_fullmatch`.
    """
    if flags := re.match(r"\(\?([is]+)\)", pattern):
        ignore_case, dot_all, pattern = "i" in flags[1], "s" in flags[1], pattern[flags.end() :]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python announces that it will read this otherwise one day
            tree = sre.parse(python_regex(pattern), re.ASCII)
    except (re.error, OverflowError, Warning) as error:
        raise Uncovered(f"Python: {error}") from None
    if tree.state.flags != re.ASCII:
        raise Uncovered("flags")
    return _Reader(ignore_case, dot_all).series(_items(tree), at_start=True, at_end=True)


_Node: TypeAlias = "tuple[Any, Any]"
"""A node of Python's syntax tree: (operation, what it works on)."""


def _items(tree: Any) -> list[_Node]:
    return list(tree)


class _Reader:
    """Turns Python's syntax tree into terms."""

    def __init__(self, ignore_case: bool, dot_all: bool) -> None:
        self._ignore_case = ignore_case
        self._dot = complement([] if dot_all else [(0x0A, 0x0A)])

    def series(self, nodes: Sequence[_Node], *, at_start: bool, at_end: bool) -> Term:
        texts = [index for index, (kind, _) in enumerate(nodes) if str(kind) != "AT"] or [len(nodes)]
        terms = (
            self._term(str(kind), value, at_start=at_start and at <= texts[0], at_end=at_end and at >= texts[-1])
            for at, (kind, value) in enumerate(nodes)
        )
        return Series(tuple(terms))

    def _term(self, operation: str, value: Any, *, at_start: bool, at_end: bool) -> Term:
        if operation in ("LITERAL", "NOT_LITERAL"):
            one = self._cased([(value, value)])
            return characters(one if operation == "LITERAL" else complement(one))
        if operation == "ANY":
            return characters(self._dot)
        if operation == "IN":
            return characters(self._class(value))
        if operation == "BRANCH":
            return Alternatives(tuple(self.series(_items(o), at_start=at_start, at_end=at_end) for o in value[1]))
        if operation == "SUBPATTERN" and not value[1] and not value[2]:
            return self.series(_items(value[3]), at_start=at_start, at_end=at_end)
        if operation in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, item = value
            inner = self.series(_items(item), at_start=False, at_end=False)
            return Repetition(inner, least, None if most == sre.MAXREPEAT else most)
        if operation == "AT" and _is_outer_anchor(str(value), at_start, at_end):
            return EMPTY
        raise Uncovered(operation.lower())

    def _class(self, items: Sequence[_Node]) -> Ranges:
        ranges: Ranges = []
        negated = False
        for operation, value in items:
            kind = str(operation)
            if kind == "NEGATE":
                negated = True
            elif kind == "CATEGORY":
                ranges.extend(_shorthand(str(value)))
            else:
                ranges.append((value, value) if kind == "LITERAL" else value)
        ranges = self._cased(ranges)
        return complement(ranges) if negated else ranges

    def _cased(self, ranges: Ranges) -> Ranges:
        if not self._ignore_case:
            return ranges
        texts = [chr(code) for low, high in ranges for code in range(low, high + 1)]
        return [
            (ord(case), ord(case)) for text in texts for case in {text, text.lower(), text.upper()} if len(case) == 1
        ]


def _is_outer_anchor(anchor: str, at_start: bool, at_end: bool) -> bool:
    starts = anchor in ("AT_BEGINNING", "AT_BEGINNING_STRING") and at_start
    return starts or (anchor in ("AT_END", "AT_END_STRING") and at_end)


def _shorthand(category: str) -> Ranges:
    positive = category.replace("_NOT_", "_")
    return ASCII_CLASSES[positive] if positive == category else complement(ASCII_CLASSES[positive])
