r"""The one regex dialect of this layer: parser, tree, and the rendering that gives every engine the same meaning.

A pattern is read once into a tree of character sets, sequences, alternatives and repetitions; what an engine is
handed is written anew from that tree, in the few constructs that all engines read alike. An adapter calls
`translate(pattern, DIALECT)` with a `RegexDialect` of its own that says how its engine wants them written.

The dialect (C3):

* The whole text must match. `^`, `\A` at the very start and `$`, `\z`, `\Z` at the very end (of every alternative
  too) are allowed and change nothing; elsewhere they are refused.
* `.` is any character but newline. A character is a Unicode scalar value; no normalisation, no case folding.
* `\d`, `\w`, `\s` are ASCII: `[0-9]`, `[0-9A-Za-z_]`, `[ \t\n\r\f\v]`; `\D`, `\W`, `\S` are everything else. The
  engines disagree beyond ASCII, so that no other meaning can be had everywhere.
* `\p{..}` and `\P{..}` take general categories (`\p{Lu}`, `\pL`, `\p{Letter}`), `Any`, `ASCII` and `Assigned`, after
  Python's own Unicode tables; scripts and other properties are refused.
* Escapes: `\n \t \r \f \v \a \e`, `\xHH`, `\uHHHH` (surrogate pairs join), `\u{H..}`, `\x{H..}`, `\UHHHHHHHH`,
  `\cX`, `\0`, `\b` inside a class, and a backslash before anything but an ASCII letter or digit.
* `*`, `+`, `?`, `{m}`, `{m,}`, `{,n}`, `{m,n}`; a lazy `?` after one is dropped, since it cannot change a full
  match. A brace that starts no count is literal, as in Python and ECMAScript.
* Groups `(..)`, `(?:..)`, `(?P<name>..)`, `(?<name>..)` only group.
* `(?i)` and `(?s)` at the very start, or both in one: a character stands for its other case too, where that is one
  character; `.` is any character.
* Refused as unsupported: other flags, and flags elsewhere, look-around, back-references, word boundaries, possessive
  and atomic groups, conditionals, recursion, comments, POSIX classes.
* Refused as wrong: a raw NUL (D6; the escape `\x00` is fine), bad syntax, what exceeds a limit, and a pattern that no
  text can match (B12).
"""

from __future__ import annotations

import bisect
import functools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeAlias, TypeVar

from grammar_backends.errors import SHOWN_LIMIT, SpecError, UnsupportedFeature, shown

__all__ = [
    "Alternatives",
    "CharacterSet",
    "Node",
    "Ranges",
    "Regex",
    "RegexDialect",
    "Repetition",
    "Series",
    "check_regex",
    "complement",
    "intersection",
    "parse_pattern",
    "parse_regex",
    "parse_terminal",
    "regex_of_texts",
    "render",
    "render_set",
    "split_empty",
    "translate",
    "union",
]

MAX_LENGTH = 65_536
"""Characters of a pattern (D10)."""
MAX_NESTING = 200
"""Groups inside one another (D9)."""
MAX_REPEAT = 100_000
"""The largest count in braces."""
MAX_POSITIONS = 100_000_000
"""Characters of the pattern once its counts are written out: the bound on counts inside counts (D10)."""
MAX_RENDERED = 4_000_000
"""Characters of a pattern as an engine gets it."""

Ranges: TypeAlias = "tuple[tuple[int, int], ...]"
_T = TypeVar("_T")

_SCALARS: Ranges = ((0, 0xD7FF), (0xE000, sys.maxunicode))


# ---------------------------------------------------------------------------------------------- character sets


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    out: list[tuple[int, int]] = []
    for low, high in left:
        for index in range(max(0, bisect.bisect(right, (low,)) - 1), len(right)):
            if right[index][0] > high:
                break
            if right[index][1] >= low:
                out.append((max(low, right[index][0]), min(high, right[index][1])))
    return tuple(out)


def complement(ranges: Ranges) -> Ranges:
    """Every Unicode scalar value that is not in the ranges."""
    out: list[tuple[int, int]] = []
    start = 0
    for low, high in union((*ranges, (0xD800, 0xDFFF))):
        if start < low:
            out.append((start, low - 1))
        start = high + 1
    if start <= sys.maxunicode:
        out.append((start, sys.maxunicode))
    return tuple(out)


DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20))
NOT_NEWLINE: Ranges = complement(((0x0A, 0x0A),))
_SHORTHANDS: dict[str, Ranges] = {
    "d": DIGITS,
    "D": complement(DIGITS),
    "w": WORD,
    "W": complement(WORD),
    "s": SPACE,
    "S": complement(SPACE),
    ".": NOT_NEWLINE,
}
_Classes: TypeAlias = "tuple[Callable[[str], Ranges], Callable[[str], Ranges]]"
"""What shorthands stand for, and what they stand for inside of `[^...]`."""
_CATEGORY_NAMES = {
    "letter": "L", "casedletter": "LC", "l&": "LC", "uppercaseletter": "Lu", "lowercaseletter": "Ll",
    "titlecaseletter": "Lt", "modifierletter": "Lm", "otherletter": "Lo", "mark": "M", "combiningmark": "M",
    "nonspacingmark": "Mn", "spacingmark": "Mc", "enclosingmark": "Me", "number": "N", "decimalnumber": "Nd",
    "digit": "Nd", "letternumber": "Nl", "othernumber": "No", "punctuation": "P", "punct": "P",
    "connectorpunctuation": "Pc", "dashpunctuation": "Pd", "openpunctuation": "Ps", "closepunctuation": "Pe",
    "initialpunctuation": "Pi", "finalpunctuation": "Pf", "otherpunctuation": "Po", "symbol": "S",
    "mathsymbol": "Sm", "currencysymbol": "Sc", "modifiersymbol": "Sk", "othersymbol": "So", "separator": "Z",
    "spaceseparator": "Zs", "lineseparator": "Zl", "paragraphseparator": "Zp", "other": "C", "control": "Cc",
    "cntrl": "Cc", "format": "Cf", "privateuse": "Co", "unassigned": "Cn",
}  # fmt: skip


@functools.cache
def _categories() -> dict[str, Ranges]:
    """General category, one letter or two, to its characters. A third of a second, once, when first needed."""
    found: dict[str, list[tuple[int, int]]] = {}
    start, current = 0, unicodedata.category("\0")
    for code in range(1, sys.maxunicode + 2):
        name = unicodedata.category(chr(code)) if code <= sys.maxunicode else ""
        if name != current:
            found.setdefault(current, []).append((start, code - 1))
            start, current = code, name
    found.pop("Cs", None)
    out = {name: tuple(ranges) for name, ranges in found.items()}
    for major in "LMNPSZC":
        out[major] = union(r for name, ranges in found.items() if name[0] == major for r in ranges)
    out["LC"] = union((*out["Lu"], *out["Ll"], *out["Lt"]))
    return out


def _property(name: str) -> Ranges | None:
    """The characters of a general category or of one of the few universal names; None if it is something else."""
    plain = re.sub(r"[\s_-]", "", name).lower()
    plain = re.sub(r"^(generalcategory|gc)[=:]", "", plain)
    universal: dict[str, Ranges] = {"any": _SCALARS, "ascii": ((0, 0x7F),)}
    if plain in universal:
        return universal[plain]
    if plain == "assigned":
        return complement(_categories()["Cn"])
    known = {key.lower(): key for key in _categories()}
    key = _CATEGORY_NAMES.get(plain) or known.get(plain)
    return _categories()[key] if key else None


# ------------------------------------------------------------------------------------------------------ the tree


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """One character out of sorted, disjoint, inclusive ranges of code points (never surrogates, never no ranges)."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Series:
    """The items one after the other; no items match the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Any one of the options, their order without meaning; no options match nothing at all."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """`item` from `least` to `most` times; None is without bound."""

    item: Node
    least: int
    most: int | None


Node: TypeAlias = "CharacterSet | Series | Alternatives | Repetition"
EMPTY_TEXT: Node = Series(())
NOTHING: Node = Alternatives(())


def series(items: Iterable[Node]) -> Node:
    """`Series`, flat; the item itself when it is the only one."""
    flat: list[Node] = []
    for item in items:
        if item == NOTHING:
            return NOTHING
        flat.extend(item.items if isinstance(item, Series) else (item,))
    return flat[0] if len(flat) == 1 else Series(tuple(flat))


def alternatives(options: Iterable[Node]) -> Node:
    """`Alternatives`, flat, with one set for all single characters; the empty text is said by a `Repetition`."""
    flat: list[Node] = []
    for option in options:
        flat.extend(option.options if isinstance(option, Alternatives) else (option,))
    kept = _merge_sets([option for option in flat if option != EMPTY_TEXT])
    node = kept[0] if len(kept) == 1 else Alternatives(tuple(kept))
    return node if EMPTY_TEXT not in flat else repetition(node, 0, 1)


def _merge_sets(options: list[Node]) -> list[Node]:
    sets = [option for option in options if isinstance(option, CharacterSet)]
    if len(sets) < 2:
        return options
    merged = CharacterSet(union(r for one in sets for r in one.ranges))
    return [merged, *(option for option in options if not isinstance(option, CharacterSet))]


def repetition(item: Node, least: int, most: int | None) -> Node:
    """`Repetition`, or what is simpler and has the same texts."""
    if most is not None and most < least:
        return NOTHING
    if item == NOTHING:
        return EMPTY_TEXT if least == 0 else NOTHING
    if most == 0 or item == EMPTY_TEXT:
        return EMPTY_TEXT
    if least == most == 1:
        return item
    if isinstance(item, Repetition):
        return _repeated_repetition(item, least, most)
    return Repetition(item, least, most)


def _repeated_repetition(item: Repetition, least: int, most: int | None) -> Node:
    """One count instead of two, where the totals have no gap between them: engines choke on counts inside counts.

    k times p to q is kp to kq; the totals of k and k + 1 times touch if kq + 1 >= (k + 1)p, and then for larger k too.
    """
    touching = item.most is None and (least > 0 or item.least <= 1)
    if item.most is not None:
        touching = least * (item.most - item.least) >= item.least - 1
    if not touching:
        return Repetition(item, least, most)
    unbounded = most is None or item.most is None
    return Repetition(item.item, least * item.least, None if unbounded else (most or 0) * (item.most or 0))


def _fold(root: Node, visit: Callable[[Node, Sequence[_T]], _T]) -> _T:
    """Call `visit(node, results of its children)` from the leaves up, without recursion (patterns nest deep)."""
    todo: list[tuple[Node, bool]] = [(root, False)]
    done: list[_T] = []
    while todo:
        node, ready = todo.pop()
        children = _children(node)
        if ready or not children:
            results = done[len(done) - len(children) :]
            del done[len(done) - len(children) :]
            done.append(visit(node, results))
        else:
            todo.append((node, True))
            todo.extend((child, False) for child in reversed(children))
    return done[0]


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Series):
        return node.items
    if isinstance(node, Alternatives):
        return node.options
    return (node.item,) if isinstance(node, Repetition) else ()


@dataclass(frozen=True, slots=True)
class _Facts:
    """What can be told of a language from the leaves up: all exact, since no node of a tree matches nothing."""

    empty: bool
    """The empty text is in it."""
    first: Ranges
    """Characters that some text starts with."""
    single: Ranges
    """Characters that are a whole text."""
    positions: int
    """Character sets once the counts are written out."""


def _facts(node: Node, of: Sequence[_Facts]) -> _Facts:
    if isinstance(node, CharacterSet):
        return _Facts(False, node.ranges, node.ranges, 1)
    if isinstance(node, Repetition):
        item = of[0]
        single = item.single if node.least <= 1 or item.empty else ()
        count = max(node.least, 1) if node.most is None else node.most
        return _Facts(node.least == 0 or item.empty, item.first, single, item.positions * count)
    positions = sum(fact.positions for fact in of)
    if isinstance(node, Alternatives):
        first = union(r for fact in of for r in fact.first)
        return _Facts(any(f.empty for f in of), first, union(r for f in of for r in f.single), positions)
    return _series_facts(of, positions)


def _series_facts(of: Sequence[_Facts], positions: int) -> _Facts:
    first: list[tuple[int, int]] = []
    for fact in of:
        first.extend(fact.first)
        if not fact.empty:
            break
    required = [fact for fact in of if not fact.empty]
    single: Ranges = ()
    if not required:
        single = union(r for fact in of for r in fact.single)
    elif len(required) == 1:
        single = required[0].single
    return _Facts(not required, union(first), single, positions)


@dataclass(frozen=True, slots=True)
class Regex:
    """A parsed pattern.

    Attributes:
        pattern: what was parsed.
        root: its meaning as a tree; never a language without texts.
        lazy: a lazy mark was dropped. No full match depends on it, but a lexer's choice does.
        flags: `i` and `s`, which the tree has in it.
    """

    pattern: str
    root: Node
    lazy: bool = False
    flags: str = ""
    _known: _Facts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", _fold(self.root, _facts))

    @property
    def matches_empty(self) -> bool:
        """Whether the empty text matches."""
        return self._known.empty

    @property
    def first(self) -> Ranges:
        """Characters that some text starts with."""
        return self._known.first

    @property
    def positions(self) -> int:
        """How many character sets the pattern has once its counts are written out: what automata grow with."""
        return self._known.positions

    def without_empty(self) -> Regex | None:
        """The same texts but the empty one; None if nothing is left. For engines that cannot end at the start."""
        if not self.matches_empty:
            return self
        root = _fold(self.root, _nonempty)[1]
        return None if root == NOTHING else Regex(self.pattern, root, self.lazy, self.flags)


def _nonempty(node: Node, of: Sequence[tuple[Node, Node, bool]]) -> tuple[Node, Node, bool]:
    """(node, node without the empty text, whether it had it)."""
    if isinstance(node, CharacterSet):
        return node, node, False
    if isinstance(node, Alternatives):
        return node, alternatives(rest for _, rest, _ in of), any(empty for _, _, empty in of)
    if isinstance(node, Repetition):
        _, rest, empty = of[0]
        least = 1 if empty else max(node.least, 1)
        return node, repetition(rest, least, node.most), empty or node.least == 0
    if not all(empty for _, _, empty in of):
        return node, node, False
    return node, _nonempty_series([item for item, _, _ in of], [rest for _, rest, _ in of]), True


def _nonempty_series(items: list[Node], rests: list[Node]) -> Node:
    """A series of items that may all be empty, without the empty text: by halves, which keeps long ones small."""
    if len(items) < 2:
        return rests[0] if rests else NOTHING
    half = len(items) // 2
    left, right = _nonempty_series(items[:half], rests[:half]), _nonempty_series(items[half:], rests[half:])
    return alternatives((series((left, *items[half:])), right))


# ---------------------------------------------------------------------------------------------------- the parser


@dataclass(slots=True)
class _Item:
    """A node with the positions of the anchors in it, which must end up at the ends of the pattern."""

    node: Node
    start_anchor: int | None = None
    end_anchor: int | None = None
    repeatable: bool = True


@dataclass(slots=True)
class _Frame:
    """A group being read: its finished alternatives and the items of the present one."""

    opened: int
    options: list[_Item] = field(default_factory=list)
    items: list[_Item] = field(default_factory=list)
    has_text: bool = False
    """Some item of the present alternative can match more than the empty text."""
    end_anchor: int | None = None
    """Where the present alternative has its first end anchor."""


_COUNT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}", re.ASCII)
_LOOKAROUND = {"(?=": "look-ahead", "(?!": "look-ahead", "(?<=": "look-behind", "(?<!": "look-behind"}
_REFUSED_GROUPS = {
    "(?>": "atomic group", "(?#": "comment group", "(?(": "conditional", "(?P=": "back-reference",
    "(?P>": "recursion", "(?R": "recursion", "(?&": "recursion", "(?|": "branch reset", "(?C": "callout",
}  # fmt: skip
_CONTROL_ESCAPES = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7, "e": 27}
_REFUSED_ESCAPES = {
    "G": "anchor \\G", "K": "\\K", "R": "line break \\R", "X": "grapheme \\X", "h": "\\h", "H": "\\H",
    "Q": "quoting \\Q", "E": "quoting \\E", "N": "\\N", "k": "back-reference", "g": "back-reference",
}  # fmt: skip


class _Parser:
    """One pass over the pattern with an explicit stack of groups, so that no input can exhaust Python's."""

    def __init__(self, pattern: str, flags: str = "", *, start: int = 0, classes: _Classes | None = None) -> None:
        self.text = pattern
        self.flags = flags
        self.classes, self.negated_classes = classes or (_SHORTHANDS.__getitem__, _SHORTHANDS.__getitem__)
        self.dot = _SCALARS if "s" in flags else self.classes(".")
        self.shorthands: set[str] = set()  # those in the class that is read
        self.lazy = False
        self.at = start
        self.stack = [_Frame(0)]
        self.names: set[str] = set()

    # errors

    def _fields(self, at: int) -> dict[str, int]:
        line_start = self.text.rfind("\n", 0, at) + 1
        return {"line": self.text.count("\n", 0, at) + 1, "column": at - line_start + 1}

    def fail(self, message: str, at: int, *, keyword: str | None = None, hint: str | None = None) -> NoReturn:
        where = self._fields(at)
        raise SpecError(f"regex: {message}", line=where["line"], column=where["column"], keyword=keyword, hint=hint)

    def refuse(self, construct: str, at: int, *, hint: str | None = None) -> NoReturn:
        where = self._fields(at)
        raise UnsupportedFeature(
            f"regex: {construct} is not supported",
            line=where["line"],
            column=where["column"],
            keyword=construct,
            hint=hint,
        )

    # the loop

    def parse(self) -> Node:
        self._check_text()
        while self.at < len(self.text):
            self._step()
        if len(self.stack) > 1:
            self.fail("this group is never closed", self.stack[-1].opened, keyword="(")
        root = self._close_frame(self.stack[0]).node
        if root == NOTHING:
            self.fail("no text can match this pattern", 0)
        return root

    def _check_text(self) -> None:
        if len(self.text) > MAX_LENGTH:
            self.fail(f"the pattern has {len(self.text)} characters, more than {MAX_LENGTH}", 0)
        if "\0" in self.text:
            self.fail("NUL character", self.text.index("\0"), keyword="NUL", hint=r"Write \x00 to match one")
        for index, char in enumerate(self.text):
            if "\ud800" <= char <= "\udfff":
                self.fail(f"lone surrogate {char!r}", index)

    def _step(self) -> None:
        start, char = self.at, self.text[self.at]
        if char == "(":
            self._open_group()
        elif char == ")":
            self._close_group()
        elif char == "|":
            self.at += 1
            self._end_option(self.stack[-1])
        elif char in "*+?" or (char == "{" and self._is_count()):
            self._quantify()
        elif char in "^$":
            self.at += 1
            self._push(_anchor(char == "^", start))
        elif char == "[":
            self._push(_Item(_set(self._read_class())))
        elif char == "\\":
            self._push(self._read_escape())
        else:
            self.at += 1
            self._push(_Item(_set(self.dot if char == "." else self._cased(((ord(char), ord(char)),)))))

    # groups

    def _open_group(self) -> None:
        start = self.at
        if len(self.stack) > MAX_NESTING:
            self.fail(f"groups are nested deeper than {MAX_NESTING}", start, keyword="(")
        self.at += 1
        if self.text.startswith("?", self.at):
            self._read_group_kind(start)
        self.stack.append(_Frame(start))

    def _read_group_kind(self, start: int) -> None:
        if self.text.startswith("(?:", start):
            self.at = start + 3
            return
        for table in (_LOOKAROUND, _REFUSED_GROUPS):
            for prefix, construct in table.items():
                if self.text.startswith(prefix, start):
                    self.refuse(construct, start)
        named = re.compile(r"\(\?(?:P?<([^>)]*)>|'([^')]*)')").match(self.text, start)
        if named:
            self._add_name(named.group(1) if named.group(1) is not None else named.group(2), start)
            self.at = named.end()
            return
        if re.compile(r"\(\?[a-zA-Z^-]*-?[a-zA-Z]*[:)]").match(self.text, start):
            self.refuse("flag", start, hint="Flags are (?i) and (?s), at the very start; spell both cases, as in [aA]")
        if re.compile(r"\(\?[+-]?\d+\)").match(self.text, start):
            self.refuse("recursion", start)
        self.fail("unknown kind of group", start, keyword=self.text[start : start + 4])

    def _add_name(self, name: str, start: int) -> None:
        if not name.isidentifier():
            self.fail(f"bad group name {shown(name)}", start, keyword="(?<")
        if name in self.names:
            self.fail(f"group name {shown(name)} is used twice", start, keyword="(?<")
        self.names.add(name)

    def _close_group(self) -> None:
        if len(self.stack) == 1:
            self.fail("this parenthesis closes nothing", self.at, keyword=")", hint=r"Write \) to match one")
        self.at += 1
        self._push(self._close_frame(self.stack.pop()))

    def _end_option(self, frame: _Frame) -> None:
        items = frame.items
        frame.options.append(
            _Item(
                series(item.node for item in items),
                next((item.start_anchor for item in items if item.start_anchor is not None), None),
                frame.end_anchor,
            )
        )
        frame.items, frame.has_text, frame.end_anchor = [], False, None

    def _close_frame(self, frame: _Frame) -> _Item:
        self._end_option(frame)
        options = frame.options
        return _Item(
            alternatives(option.node for option in options),
            next((option.start_anchor for option in options if option.start_anchor is not None), None),
            next((option.end_anchor for option in options if option.end_anchor is not None), None),
        )

    def _push(self, item: _Item) -> None:
        """Append to the present alternative; an anchor must not end up between characters."""
        frame = self.stack[-1]
        if item.start_anchor is not None and frame.has_text:
            self._refuse_anchor(item.start_anchor)
        if item.node != EMPTY_TEXT:
            if frame.end_anchor is not None:
                self._refuse_anchor(frame.end_anchor)
            frame.has_text = True
        if frame.end_anchor is None:
            frame.end_anchor = item.end_anchor
        frame.items.append(item)

    def _refuse_anchor(self, at: int) -> NoReturn:
        char = self.text[at]
        hint = f"The whole text must match anyway; write \\{char} to match the character" if char in "^$" else None
        self.refuse("anchor inside the pattern", at, hint=hint)

    # repetition

    def _is_count(self) -> bool:
        """Whether this brace starts a count. A literal brace is fine, a count with a mistake in it is not."""
        match = _COUNT.match(self.text, self.at)
        if match and (match[1] or match[3]):
            return True
        if re.compile(r"\{\s*\d|\{,\s*\d").match(self.text, self.at):
            self.fail("bad repeat count", self.at, keyword="{", hint=r"Write \{ to match a brace")
        return False

    def _quantify(self) -> None:
        start = self.at
        least, most = self._read_counts()
        items = self.stack[-1].items
        if not items or not self._can_repeat(items[-1], start):
            self.fail("nothing to repeat", start, keyword=self.text[start], hint="Escape it to match the character")
        self._read_suffix(start)
        item = items.pop()
        anchor = item.start_anchor if item.start_anchor is not None else item.end_anchor
        if anchor is not None and most != 1:
            self.refuse("anchor inside a repetition", anchor)
        node = repetition(item.node, least, most)
        items.append(_Item(node, item.start_anchor, item.end_anchor, repeatable=False))

    def _can_repeat(self, item: _Item, start: int) -> bool:
        if not item.repeatable and item.node != EMPTY_TEXT:
            self.fail("a repetition of a repetition", start, keyword=self.text[start], hint="Group the inner one")
        return item.repeatable

    def _read_counts(self) -> tuple[int, int | None]:
        start, char = self.at, self.text[self.at]
        if char != "{":
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        match = _COUNT.match(self.text, start)
        if match is None:  # _is_count has seen it
            self.fail("bad repeat count", start, keyword="{")
        self.at = match.end()
        least = self._count(match[1] or "0", start)
        most = least if match[2] is None else (self._count(match[3], start) if match[3] else None)
        if most is not None and most < least:
            self.fail(f"no text can match: at least {least} but at most {most} times", start, keyword="{")
        return least, most

    def _count(self, digits: str, start: int) -> int:
        value = int(digits) if len(digits) < 10 else MAX_REPEAT + 1
        if value > MAX_REPEAT:
            self.fail(f"repeat count above {MAX_REPEAT}", start, keyword="{")
        return value

    def _read_suffix(self, start: int) -> None:
        """A lazy mark, dropped; anything more is a mistake or possessive."""
        if self.text.startswith("?", self.at):
            self.at += 1
            self.lazy = True
        elif self.text.startswith("+", self.at):
            self.refuse("possessive repetition", start)

    # characters

    def _read_class(self) -> Ranges:
        start = self.at
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        if self.text.startswith("]", self.at):
            self.fail("a class that starts with ]", start, keyword="[", hint=r"Write \] to put it into a class")
        ranges: list[tuple[int, int]] = []
        self.shorthands.clear()
        if negated:
            self.classes, self.negated_classes = self.negated_classes, self.classes
        while not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                self.fail("this class is never closed", start, keyword="[")
            ranges.extend(self._read_class_item(start))
        if any(
            {letter, letter.upper()} <= self.shorthands for letter in "dws"
        ):  # whatever they are, it is all there is
            ranges = [*_SCALARS]
        if negated:
            self.classes, self.negated_classes = self.negated_classes, self.classes
        self.at += 1
        merged = self._cased(intersection(union(ranges), _SCALARS))
        return complement(merged) if negated else merged

    def _read_class_item(self, opened: int) -> Ranges:
        at = self.at
        low = self._read_class_atom(opened)
        if not self.text.startswith("-", self.at) or self.text.startswith("-]", self.at):
            return low
        if self.at + 1 >= len(self.text):
            self.fail("this class is never closed", opened, keyword="[")
        self.at += 1
        high = self._read_class_atom(opened)
        if not (_is_single(low) and _is_single(high)):
            self.fail("a range needs a character at both ends", at, keyword="-", hint=r"Write \- to match a hyphen")
        if low[0][0] > high[0][0]:
            self.fail(f"bad range {self.text[at : self.at]}", at, keyword="-")
        return ((low[0][0], high[0][0]),)

    def _read_class_atom(self, opened: int) -> Ranges:
        char = self.text[self.at]
        if char == "[" and re.compile(r"\[([:.=])[\w^-]*\1\]").match(self.text, self.at):
            self.refuse("POSIX class", self.at, hint=r"Write the characters, or \[ to match a bracket")
        if char != "\\":
            self.at += 1
            return ((ord(char), ord(char)),)
        return self._read_escape_ranges(in_class=True)

    def _read_escape(self) -> _Item:
        """An escape outside a class: an anchor or a set of characters."""
        start, char = self.at, self.text[self.at + 1 : self.at + 2]
        if char in ("A", "Z", "z"):
            self.at += 2
            return _anchor(char == "A", start)
        if char and char in "bB":
            self.refuse("word boundary", start)
        return _Item(_set(self._cased(self._read_escape_ranges(in_class=False))))

    def _cased(self, ranges: Ranges) -> Ranges:
        return _both_cases(ranges) if "i" in self.flags else ranges

    def _read_escape_ranges(self, *, in_class: bool) -> Ranges:
        start, char = self.at, self.text[self.at + 1 : self.at + 2]
        if not char:
            self.fail("a backslash at the very end", start, keyword="\\")
        self.at += 2
        if char in "dDwWsS":
            self.shorthands.add(char)
            return self.classes(char)
        if char in "pP":
            return self._read_property(start, negated=char == "P")
        code = self._read_code(char, start, in_class)
        return ((code, code),)

    def _read_code(self, char: str, start: int, in_class: bool) -> int:
        if char in _CONTROL_ESCAPES:
            return _CONTROL_ESCAPES[char]
        if char in "xuU":
            return self._read_hex(char, start)
        if char == "c":
            return self._read_control(start)
        if char == "b" and in_class:
            return 8
        if char.isdigit() and char.isascii():
            return self._read_zero(char, start, in_class)
        if char in _REFUSED_ESCAPES:
            self.refuse(_REFUSED_ESCAPES[char], start)
        if char.isascii() and char.isalpha():
            self.fail(f"unknown escape \\{char}", start, keyword="\\" + char)
        return ord(char)

    def _read_zero(self, char: str, start: int, in_class: bool) -> int:
        """`\\0` is NUL; other digits are back-references, or octal, which is read differently everywhere."""
        following = self.text[self.at : self.at + 1]
        if char != "0" and not in_class:
            self.refuse("back-reference", start)
        if char != "0" or (following.isascii() and following.isdigit()):
            self.refuse("octal escape", start, hint=r"Write \xHH")
        return 0

    def _read_control(self, start: int) -> int:
        letter = self.text[self.at : self.at + 1]
        if not (letter.isascii() and letter.isalpha()):
            self.fail("\\c needs a letter", start, keyword="\\c")
        self.at += 1
        return ord(letter) & 0x1F

    def _read_hex(self, kind: str, start: int) -> int:
        code = self._hex_value(kind, start)
        if 0xD800 <= code <= 0xDBFF and self.text.startswith("\\u", self.at):
            self.at += 2
            low = self._hex_value("u", start)
            if not 0xDC00 <= low <= 0xDFFF:
                self.fail("lone surrogate", start, keyword="\\u")
            return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        if 0xD800 <= code <= 0xDFFF:
            self.fail("lone surrogate", start, keyword="\\u")
        if code > sys.maxunicode:
            self.fail("no such code point", start, keyword="\\" + kind)
        return code

    def _hex_value(self, kind: str, start: int) -> int:
        braces = re.compile(r"\{([0-9a-fA-F]{1,8})\}").match(self.text, self.at) if kind != "U" else None
        width = {"x": 2, "u": 4, "U": 8}[kind]
        plain = re.compile(rf"[0-9a-fA-F]{{{width}}}").match(self.text, self.at)
        match = braces or plain
        if match is None:
            self.fail(f"\\{kind} needs {width} hexadecimal digits", start, keyword="\\" + kind)
        self.at = match.end()
        return int(match[1] if braces else match[0], 16)

    def _read_property(self, start: int, *, negated: bool) -> Ranges:
        match = re.compile(r"\{(\^?)([^{}]+)\}|()([A-Za-z])").match(self.text, self.at)
        if match is None:
            self.fail(r"\p needs a property name in braces", start, keyword=r"\p")
        self.at = match.end()
        name = match[2] or match[4]
        ranges = _property(name)
        if ranges is None:
            self.refuse(
                rf"property \p{{{name[:SHOWN_LIMIT]}}}",
                start,
                hint="General categories such as Lu or Letter are supported",
            )
        return complement(ranges) if negated != bool(match[1]) else ranges


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def _both_cases(ranges: Ranges) -> Ranges:
    """With the upper and lower case of every character, where that is one character too; huge ranges as they are."""
    others = (
        ord(other)
        for low, high in ranges
        if high - low < _MAX_CASED
        for code in range(low, high + 1)
        for other in (chr(code).lower(), chr(code).upper())
        if len(other) == 1
    )
    return union((*ranges, *((code, code) for code in others)))


_MAX_CASED = 10_000


def _set(ranges: Ranges) -> Node:
    return CharacterSet(ranges) if ranges else NOTHING


def _anchor(is_start: bool, at: int) -> _Item:
    return _Item(EMPTY_TEXT, at if is_start else None, None if is_start else at, repeatable=False)


@functools.lru_cache(maxsize=256)
def parse_regex(pattern: str) -> Regex:
    """Read a pattern of the layer's dialect.

    Raises:
        UnsupportedFeature: well formed elsewhere, but outside the dialect: look-around, word boundaries, ...
        SpecError: bad syntax, above a limit, or a pattern that no text matches (B12); with line and column.
    """
    if not isinstance(pattern, str):
        raise SpecError(f"regex: text is needed, not {type(pattern).__name__}")
    flags = re.match(r"\(\?([is]+)\)", pattern)
    return _parse(_Parser(pattern, flags[1], start=flags.end()) if flags else _Parser(pattern))


def parse_terminal(pattern: str, flags: str = "") -> Regex:
    """A regular expression inside a grammar, with Lark's flags `i` (ignore case), `s` (dot is anything) and `u`.

    Raises:
        UnsupportedFeature, SpecError: as `parse_regex`; positions count from the start of the pattern.
    """
    if set(flags) - set("isu"):
        raise UnsupportedFeature(f"regex: flags {shown(flags)} are not supported", line=1, column=1, keyword="flag")
    return _parse(_Parser(pattern, flags))


def parse_pattern(pattern: str, *, wide: bool) -> Node:
    """Read a pattern whose shorthands (`.`, `\\d`, `\\w`, `\\s`) dialects read in different ways.

    Args:
        pattern: in the layer's dialect otherwise.
        wide: True for all that one of the readings matches, ECMA 262's, Unicode's or the layer's own; False for what
            each of them matches.

    Raises:
        UnsupportedFeature, SpecError: as `parse_regex`.
    """
    classes = functools.partial(_reading, wide), functools.partial(_reading, not wide)
    return _parse(_Parser(pattern, classes=classes)).root


@functools.cache
def _reading(wide: bool, shorthand: str) -> Ranges:
    """What a shorthand matches in some reading, or in every one."""
    if shorthand in "DWS":
        return complement(_reading(not wide, shorthand.lower()))
    if not wide:
        return complement(_LINE_ENDS) if shorthand == "." else _SHORTHANDS[shorthand]
    if shorthand in "s.":
        return _BLANKS if shorthand == "s" else NOT_NEWLINE
    names = ("Nd",) if shorthand == "d" else ("L", "M", "N", "Pc", "So")  # some symbols are letters in circles
    return union((*_WORDLY[shorthand], *(r for name in names for r in _categories()[name])))


_BLANKS = union((
    *SPACE, (0x1C, 0x1F), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A),
    (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
))  # fmt: skip
_WORDLY: dict[str, Ranges] = {"d": DIGITS, "w": (*WORD, (0x200C, 0x200D))}
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


def _parse(parser: _Parser) -> Regex:
    regex = Regex(parser.text, parser.parse(), parser.lazy, parser.flags)
    if regex.positions > MAX_POSITIONS:
        parser.fail(f"the repeat counts multiply to {regex.positions} characters, more than {MAX_POSITIONS}", 0)
    return regex


def regex_of_texts(texts: Iterable[str]) -> Regex:
    """A regex that matches exactly these texts, whatever characters they have: a choice, for engines without one (D14).

    Raises:
        SpecError: there are no texts, or one has a lone surrogate.
    """
    listed = list(texts)
    if not listed:
        raise SpecError("regex: no texts, so that no text would be allowed")
    for text in listed:
        if re.search("[\ud800-\udfff]", text):
            raise SpecError(f"regex: lone surrogate in {shown(text)}")
    options = (series(CharacterSet(((ord(char), ord(char)),)) for char in text) for text in listed)
    return Regex(f"{len(listed)} texts", alternatives(options))


def check_regex(pattern: str) -> None:
    """Judge a pattern without an engine: `parse_regex` for its errors (D6, D7, D11)."""
    parse_regex(pattern)


# ------------------------------------------------------------------------------------------------- the rendering


@dataclass(frozen=True, slots=True)
class RegexDialect:
    """How one engine wants a pattern written, and what it cannot do. Plain data, declared by the engine's plugin.

    Attributes:
        name: the engine, for messages.
        group: what opens a group that captures nothing.
        escape: how a character that cannot be printed is written, as a format of its code point.
        end: appended to the grouped pattern, for engines whose matches are not anchored at the end of themselves.
        empty: what the engine does with patterns that match the empty text: "exact"; "first" when it loses every
            text whose first byte alone is no match; "never" when an adapter must treat the empty text itself
            (see `split_empty`).
        max_repeat: the largest count the engine takes, if there is a limit.
        max_positions: the largest number of positions the engine can carry, if there is a limit.
        max_depth: how deep its parser lets groups, series, alternatives and repetitions nest, if there is a limit.
        negate: a set that reaches to the end of Unicode is written as `[^...]`, by what is not in it: for engines
            that list every character of a class.
        anything: with `negate`, how the set of all characters is written.
        max_class: the most characters that a class, as it is written, may list, if there is a limit.
    """

    name: str
    group: str = "(?:"
    escape: str = r"\u{{{:X}}}"
    end: str = ""
    empty: Literal["exact", "first", "never"] = "exact"
    max_repeat: int | None = None
    max_positions: int | None = None
    max_depth: int | None = None
    negate: bool = False
    anything: str = "[^]"
    max_class: int | None = None


def translate(pattern: str | Regex, dialect: RegexDialect) -> str:
    """The pattern with the very same meaning in an engine's dialect.

    Raises:
        UnsupportedFeature: this engine would not match exactly the texts of the pattern, or the pattern is outside
            the layer's dialect.
        SpecError: as `parse_regex`.
    """
    regex = parse_regex(pattern) if isinstance(pattern, str) else pattern
    _check_limits(regex, dialect)
    if dialect.empty == "exact" or not regex.matches_empty:
        return _written(regex, dialect)
    rest = _rest_of_empty(regex, dialect)
    # The empty alternative stands last: an engine that prefers earlier ones then still reads on.
    return f"{_written(rest, dialect)}|" if rest else ""


def split_empty(pattern: str | Regex, dialect: RegexDialect) -> tuple[bool, str | None]:
    """Whether the empty text matches, and the translated pattern of all other texts (None if there are no others).

    For adapters of engines that cannot end at the very start: compile the pattern, and add "accepting" to the start
    where the first value says so. Then nothing is lost, whatever `RegexDialect.empty` says.

    Raises:
        UnsupportedFeature, SpecError: as `translate`.
    """
    regex = parse_regex(pattern) if isinstance(pattern, str) else pattern
    _check_limits(regex, dialect)
    rest = regex.without_empty()
    return regex.matches_empty, _written(rest, dialect) if rest else None


def _written(regex: Regex, dialect: RegexDialect) -> str:
    text = render(regex.root, dialect)
    if dialect.end:
        text = f"{dialect.group}{text}){dialect.end}"
    if len(text) > MAX_RENDERED:
        message = f"{len(text)} characters once written for {dialect.name}, more than {MAX_RENDERED}"
        raise _unsupported(message, "size", dialect)
    return text


def _rest_of_empty(regex: Regex, dialect: RegexDialect) -> Regex | None:
    facts = regex._known
    lost = intersection(facts.first, complement(intersection(facts.single, ((0, 0x7F),))))
    if dialect.empty == "never" or lost:
        example = f", such as those starting with {chr(lost[0][0])!r}" if lost else ""
        message = f"{dialect.name} loses texts of a pattern that matches the empty text{example}"
        raise _unsupported(message, "empty text", dialect)
    return regex.without_empty()


def _check_limits(regex: Regex, dialect: RegexDialect) -> None:
    counts = (
        ("size", "characters with all counts written out", regex.positions, dialect.max_positions),
        ("{", "as a repeat count", _fold(regex.root, _largest_count), dialect.max_repeat),
        ("(", "levels of nesting", _fold(regex.root, _depth), dialect.max_depth),
        (
            "[",
            "characters in a class",
            _fold(regex.root, functools.partial(_largest_class, dialect)),
            dialect.max_class,
        ),
    )
    for keyword, what, found, limit in counts:
        if limit is not None and found > limit:
            message = f"{found} {what}, more than the {limit} that {dialect.name} can carry"
            raise _unsupported(message, keyword, dialect)


def _unsupported(message: str, keyword: str, dialect: RegexDialect) -> UnsupportedFeature:
    return UnsupportedFeature(f"regex: {message}", line=1, column=1, keyword=keyword, backend=dialect.name)


def _depth(node: Node, of: Sequence[int]) -> int:
    """A group and what is in it, counted from above: never less than what a parser counts."""
    return max(of, default=0) + (1 if isinstance(node, CharacterSet) else 2)


def _largest_count(node: Node, of: Sequence[int]) -> int:
    own = max(node.least, node.most or 0) if isinstance(node, Repetition) else 0
    return max((own, *of))


def _largest_class(dialect: RegexDialect, node: Node, of: Sequence[int]) -> int:
    own = 0
    if isinstance(node, CharacterSet):
        own = sum(high - low + 1 for low, high in _listed(node.ranges, dialect))
    return max((own, *of))


_LOOSE, _TIGHT, _ATOM = 0, 1, 2
"""How tightly a rendered piece holds together: an alternation, a series, something that can be repeated as it is."""


def render(root: Node, dialect: RegexDialect) -> str:
    """A tree as text, whatever the engine's limits."""

    def visit(node: Node, of: Sequence[tuple[str, int]]) -> tuple[str, int]:
        return _render_node(dialect, node, of)

    return _fold(root, visit)[0]


def _render_node(dialect: RegexDialect, node: Node, of: Sequence[tuple[str, int]]) -> tuple[str, int]:
    if isinstance(node, CharacterSet):
        return render_set(node.ranges, dialect), _ATOM
    if isinstance(node, Repetition):
        return _grouped(of[0], _ATOM, dialect) + _render_counts(node), _TIGHT
    if isinstance(node, Alternatives):
        return "|".join(_grouped(part, _TIGHT, dialect) for part in of), _LOOSE
    return "".join(_grouped(part, _TIGHT, dialect) for part in of), _TIGHT


def _grouped(part: tuple[str, int], needed: int, dialect: RegexDialect) -> str:
    text, tightness = part
    return text if tightness >= needed else f"{dialect.group}{text})"


def _render_counts(node: Repetition) -> str:
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.least, node.most))
    if simple:
        return simple
    if node.least == node.most:
        return f"{{{node.least}}}"
    return f"{{{node.least},{'' if node.most is None else node.most}}}"


@functools.lru_cache(maxsize=1024)
def render_set(ranges: Ranges, dialect: RegexDialect) -> str:
    """A set of characters as the engine reads it: one character or a class in brackets."""
    if _is_single(ranges):
        return _render_character(ranges[0][0], dialect)
    listed = _listed(ranges, dialect)
    if not listed:
        return dialect.anything
    sign = "^" if listed is not ranges else ""
    return f"[{sign}{''.join(_render_range(low, high, dialect) for low, high in _in_writing_order(listed))}]"


def _listed(ranges: Ranges, dialect: RegexDialect) -> Ranges:
    """The characters that a class is written with: those of the set, or those that it leaves out."""
    return complement(ranges) if dialect.negate and ranges[-1][1] == sys.maxunicode else ranges


def _in_writing_order(ranges: Ranges) -> list[tuple[int, int]]:
    """Put `^` last, and before it what ends in a control character.

    xgrammar hands a class on without its escapes: a first `^` would negate it, and hexadecimal digits after a
    control character would be read as part of that.
    """
    split: list[tuple[int, int]] = []
    for low, high in ranges:
        split.extend(((_CARET + 1, high), (_CARET, _CARET)) if low == _CARET < high else ((low, high),))
    return sorted(split, key=lambda pair: (pair[0] == _CARET, chr(pair[1]) < " "))


def _render_range(low: int, high: int, dialect: RegexDialect) -> str:
    first = _render_character(low, dialect)
    if low == high:
        return first
    return first + "-" * (high > low + 1) + _render_character(high, dialect)


_CARET = ord("^")
_SYNTAX = frozenset("\\^$.|?*+()[]{}-/")


def _render_character(code: int, dialect: RegexDialect) -> str:
    char = chr(code)
    if char in _SYNTAX:
        return f"\\{char}"
    return char if char.isprintable() else str.format(dialect.escape, code)
