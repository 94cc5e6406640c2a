"""Grammars as text: which syntax it is, whether it can work at all, and how each engine gets the same meaning.

Three syntaxes come in: EBNF (`root ::= ...`, the superset of xgrammar's EBNF and llama.cpp's GBNF), GBNF (the same
without xgrammar's extensions) and Lark (`start: ...`). A tolerant reader turns the text into rules and refuses what
no engine could use: undefined rules, a missing start, a rule that can never finish (B12), sizes on which engines
crash. What it cannot judge it lets pass, for the engine to judge. EBNF is small enough to be understood completely,
so that `ebnf_to_lark` and `ebnf_for_xgrammar` can write it anew for an engine.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeAlias

from grammar_backends.contract.regex import (
    Ranges,
    Regex,
    RegexDialect,
    complement,
    parse_terminal,
    render_set,
    translate,
    union,
)
from grammar_backends.contract.spec import GrammarSpec
from grammar_backends.errors import SpecError, UnsupportedFeature, shown

__all__ = [
    "Grammar",
    "check_grammar",
    "checked_grammar",
    "detect_syntax",
    "ebnf_for_xgrammar",
    "ebnf_literal",
    "ebnf_to_lark",
    "lark_for",
    "named_tokens",
    "opaque_elements",
    "position",
    "read_grammar",
    "syntax_of",
    "terminal_of",
    "tokens_of",
]

Syntax: TypeAlias = Literal["ebnf", "lark", "gbnf"]

MAX_LENGTH = 1_000_000
"""Characters of a grammar (D10)."""
MAX_RULES = 5_000
"""Rules of a grammar (D10)."""
MAX_CHAIN = 500
"""Rules that refer to one another in a row: llguidance crashes near 3,000 and xgrammar near 10,000 (A.3)."""
MAX_NESTING = 100
"""Parentheses inside one another (D9)."""
MAX_COUNTS = 3
"""Repetitions written directly after one another, as in `x*?`: they nest without parentheses."""
MAX_REPEAT = 1_000_000
"""The largest repeat count."""


# ------------------------------------------------------------------------------------------------------- the tree


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Set:
    """One character out of these ranges of code points."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Reference:
    """Whatever the named rule is."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that matches, nobody here knows what: a Lark terminal, an engine's own extension."""

    keyword: str
    offset: int


@dataclass(frozen=True, slots=True)
class Series:
    """The items one after the other; none are the empty text."""

    items: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the options."""

    options: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The item from `least` to `most` times; None is without bound."""

    item: Element
    least: int
    most: int | None


Element: TypeAlias = "Text | Set | Reference | Opaque | Series | Choice | Repeat"


@dataclass(frozen=True, slots=True)
class Rule:
    """A definition and where its name stands in the text."""

    name: str
    offset: int
    body: Element


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a grammar's text: what it is, its characters, and where they start."""

    kind: str
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Grammar:
    """The rules of a grammar in their order.

    Attributes:
        text: what was read.
        syntax: as what.
        rules: name to definition.
        start: the name of the rule that the whole text must match.
        declared: names that are defined elsewhere (Lark imports).
        loose: names cannot be judged (Lark templates and the like).
    """

    text: str
    syntax: Syntax
    rules: dict[str, Rule]
    start: str
    declared: frozenset[str] = frozenset()
    loose: bool = False


def _children(node: Element) -> tuple[Element, ...]:
    if isinstance(node, Series):
        return node.items
    if isinstance(node, Choice):
        return node.options
    return (node.item,) if isinstance(node, Repeat) else ()


def _walk(node: Element) -> Iterator[Element]:
    todo = [node]
    while todo:
        at = todo.pop()
        yield at
        todo.extend(reversed(_children(at)))


def _references(node: Element) -> Iterator[Reference]:
    return (at for at in _walk(node) if isinstance(at, Reference))


def opaque_elements(grammar: Grammar) -> list[Opaque]:
    """What the reader could not look into, in the order of the rules."""
    return [node for rule in grammar.rules.values() for node in _walk(rule.body) if isinstance(node, Opaque)]


# --------------------------------------------------------------------------------------------------------- errors


def _fail(text: str, message: str, offset: int, *, keyword: str | None = None, hint: str | None = None) -> NoReturn:
    line, column = position(text, offset)
    raise SpecError(f"grammar: {message}", line=line, column=column, keyword=keyword, hint=hint)


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of a place in a text."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


# -------------------------------------------------------------------------------------------------- token by token

_EBNF = re.compile(
    r"""(?P<space>[ \t\r]+) | (?P<newline>\n) | (?P<comment>\#[^\n]*)
      | (?P<string>"(?:\\.|[^"\\\n])*") | (?P<class>\[(?:\\.|[^\]\\\n])*\])
      | (?P<define>::=) | (?P<count>\{\s*\d*\s*(?:,\s*\d*\s*)?\}) | (?P<ahead>\(\s*=) | (?P<token>!?<[^<>\s]*>)
      | (?P<name>[\w.-]*\w[\w.-]*) | (?P<op>[()|*+?.,=])""",
    re.VERBOSE,
)
_LARK = re.compile(
    r"""(?P<space>[ \t\r]+) | (?P<newline>\n) | (?P<comment>(?:\#|//)[^\n]*)
      | (?P<string>"(?:\\.|[^"\\\n])*"i?) | (?P<regex>/(?:\\.|[^/\\])+/[a-z]*)
      | (?P<directive>%[A-Za-z_]\w*) | (?P<token><[^<>\n"]*>) | (?P<define>::=) | (?P<op>->|\.\.|[][():|*+?~{},.!=&@-])
      | (?P<number>\d+(?![\w])) | (?P<name>[^\W\d](?:\w|-(?!>))*)""",
    re.VERBOSE,
)
_SILENT = {"space", "comment"}


def tokens_of(text: str, syntax: Syntax) -> list[Token]:
    """Cut a grammar into strings, classes, regexes, names and signs; comments and blanks are left out.

    Raises:
        SpecError: something that is none of these, such as a quote without its partner (line:column).
    """
    pattern = _LARK if syntax == "lark" else _EBNF
    out: list[Token] = []
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None:
            _fail_at(text, at, syntax)
        kind = str(match.lastgroup)
        end = match.end()
        if kind == "directive" and match[0] in ("%json", "%regex", "%llguidance"):
            end = _end_of_json(text, end)
        if kind not in _SILENT:
            out.append(Token(kind, text[at:end], at))
        at = end
    return out


def _fail_at(text: str, at: int, syntax: Syntax) -> NoReturn:
    char = text[at]
    if char == '"':
        _fail(text, "this string is never closed on its line", at, keyword='"')
    if char == "[" and syntax != "lark":
        _fail(text, "this class is never closed on its line", at, keyword="[")
    if char == "/" and syntax == "lark":
        _fail(text, "this regular expression is never closed", at, keyword="/")
    hint = "Strings take double quotes" if char == "'" else None
    if char == "/" and syntax != "lark":
        hint = "Comments start with #"
    if char == "{":
        hint = "A repeat count is {m}, {m,} or {m,n}"
    _fail(text, f"unexpected character {char!r}", at, keyword=char, hint=hint)


def _end_of_json(text: str, at: int) -> int:
    """Where the JSON value after a directive ends; engines complain about anything else, so nothing is skipped then."""
    start = at + len(text[at:]) - len(text[at:].lstrip())
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return at


# ------------------------------------------------------------------------------------------------------ which syntax

_LEADING = re.compile(r"(?:\s+|#[^\n]*|//[^\n]*)*")
_EBNF_START = re.compile(r"[\w.-]+\s*::=")
_LARK_START = re.compile(r"%[A-Za-z]|[?!]*[A-Za-z_]\w*\s*(?:\[[^\]\n]*\]|\{[^}\n]*\}|\.-?\d+)?\s*:(?!:?=)")


def detect_syntax(text: str) -> Syntax:
    """Which syntax a grammar is written in: by its first definition, so that no string, regex or comment can mislead.

    "ebnf" stands for the whole family with `::=`; "gbnf" is never guessed, since it is a part of that (B9).

    Raises:
        SpecError: nothing but comments, or the text starts with no definition.
    """
    leading = _LEADING.match(text)
    start = leading.end() if leading else 0
    if start == len(text):
        _fail(text, "nothing but comments and blanks", 0)
    if _EBNF_START.match(text, start):
        return "ebnf"
    if _LARK_START.match(text, start):
        return "lark"
    hint = 'EBNF starts with a definition as in root ::= "a", Lark with one as in start: "a"'
    _fail(text, "the syntax cannot be told from the first definition", start, hint=hint)


def syntax_of(spec: GrammarSpec) -> Syntax:
    """The syntax that a grammar's spec gives, detected where it leaves that open (B9)."""
    return detect_syntax(spec.text) if spec.syntax == "auto" else spec.syntax


# -------------------------------------------------------------------------------------------------- a list of tokens


@dataclass(slots=True)
class _Frame:
    """A group being read: its finished options and the items of the present one."""

    opened: Token | None
    options: list[Element] = field(default_factory=list)
    items: list[Element] = field(default_factory=list)
    counts: int = 0
    """Counts in a row after the last item."""

    def end_option(self) -> None:
        self.options.append(self.items[0] if len(self.items) == 1 else Series(tuple(self.items)))
        self.items = []

    def close(self) -> Element:
        self.end_option()
        return self.options[0] if len(self.options) == 1 else Choice(tuple(self.options))


class _Reader:
    """What the readers of both syntaxes share: a place in the tokens, and a stack of groups instead of recursion."""

    syntax: Syntax

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0
        self.rules: dict[str, Rule] = {}
        self.stack: list[_Frame] = []

    def fail(self, message: str, token: Token | None = None, *, hint: str | None = None) -> NoReturn:
        offset = token.offset if token else len(self.text)
        _fail(self.text, message, offset, keyword=token.text[:20] if token else None, hint=hint)

    def peek(self, ahead: int = 0) -> Token:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else Token("end", "", len(self.text))

    def take(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def define(self, name: Token, body: Element) -> None:
        if name.text in self.rules:
            first = position(self.text, self.rules[name.text].offset)
            self.fail(f"rule {shown(name.text)} is defined twice, first at {first[0]}:{first[1]}", name)
        self.rules[name.text] = Rule(name.text, name.offset, body)
        if len(self.rules) > MAX_RULES:
            self.fail(f"more than {MAX_RULES} rules", name)

    def open(self, token: Token) -> None:
        self.stack.append(_Frame(token))
        if len(self.stack) > MAX_NESTING + 1:
            self.fail(f"groups are nested deeper than {MAX_NESTING}", token)

    def close(self, token: Token) -> Element:
        opened = self.stack[-1].opened
        if opened is None:
            self.fail(f"{token.text} closes nothing", token)
        if {"(": ")", "[": "]"}[opened.text[0]] != token.text:
            self.fail(f"{token.text} does not close the {opened.text[0]} at {self._where(opened)}", token)
        return self.stack.pop().close()

    def _where(self, token: Token) -> str:
        line, column = position(self.text, token.offset)
        return f"{line}:{column}"

    def finish_body(self) -> Element:
        if len(self.stack) > 1:
            opened = self.stack[-1].opened
            self.fail("this group is never closed", opened)
        return self.stack.pop().close()

    def push(self, node: Element) -> None:
        self.stack[-1].items.append(node)
        self.stack[-1].counts = 0

    def repeat(self, token: Token, least: int, most: int | None) -> None:
        if not self.stack[-1].items:
            self.fail("nothing to repeat", token)
        if max(least, most or 0) > MAX_REPEAT:
            self.fail(f"repeat count above {MAX_REPEAT}", token)
        if most is not None and most < least:
            self.fail(f"no text can match: at least {least} but at most {most} times", token)
        frame = self.stack[-1]
        if frame.counts >= MAX_COUNTS:
            self.fail("too many repetitions of repetitions", token)
        counts = frame.counts + 1
        self.push(Repeat(frame.items.pop(), least, most))
        frame.counts = counts


_SIMPLE_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def _number(digits: str, otherwise: int) -> int:
    return min(int(digits[:12]), 10**9) if digits.strip() else otherwise


# ------------------------------------------------------------------------------------------------------ EBNF and GBNF

_ESCAPES = {
    "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "e": "\x1b",
    '"': '"', "'": "'", "\\": "\\", "/": "/", "[": "[", "]": "]", "-": "-", "^": "^", "?": "?",
}  # fmt: skip
_HEX_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
ANY: Ranges = complement(())


class _EbnfReader(_Reader):
    syntax: Syntax = "ebnf"

    def __init__(self, text: str, *, extensions: bool) -> None:
        super().__init__(text, [token for token in tokens_of(text, "ebnf") if token.kind != "newline"])
        self.extensions = extensions
        self.names = {
            token.text
            for token, following in zip(self.tokens, self.tokens[1:], strict=False)
            if token.kind == "name" and following.kind == "define"
        }

    def read(self) -> Grammar:
        while self.peek().kind != "end":
            self._read_rule()
        return Grammar(self.text, self.syntax, self.rules, "root")

    def _read_rule(self) -> None:
        name, define = self.take(), self.take()
        if name.kind != "name":
            self.fail(f"a rule's name was expected, not {shown(name.text)}", name)
        if define.kind != "define":
            self.fail("::= was expected after a rule's name", define)
        self.stack = [_Frame(None)]
        while not self._at_end_of_rule():
            self._read_element()
        self.define(name, self.finish_body())

    def _at_end_of_rule(self) -> bool:
        return self.peek().kind == "end" or (self.peek().kind == "name" and self.peek(1).kind == "define")

    def _read_element(self) -> None:
        token = self.take()
        if token.kind == "string":
            self.push(Text(self._unescape(token, 1, len(token.text) - 1)))
        elif token.kind == "class":
            self.push(self._read_class(token))
        elif token.kind == "name":
            self.push(self._read_name(token))
        elif token.kind == "count":
            self.repeat(token, *self._read_count(token))
        elif token.kind == "ahead":
            self._skip_extension(token, "look-ahead")
        elif token.kind == "token":
            self.push(Opaque("token", token.offset))
        elif token.kind == "op":
            self._read_sign(token)
        else:
            self.fail(f"unexpected {shown(token.text)}", token, hint="One definition per line")

    def _read_sign(self, token: Token) -> None:
        sign = token.text
        if sign == "(":
            self.open(token)
        elif sign == ")":
            self.push(self.close(token))
        elif sign == "|":
            self.stack[-1].end_option()
        elif sign == ".":
            self.push(Set(ANY))
        elif sign in _SIMPLE_COUNTS:
            self.repeat(token, *_SIMPLE_COUNTS[sign])
        else:
            self.fail(f"unexpected {sign!r}", token)

    def _read_count(self, token: Token) -> tuple[int, int | None]:
        low, comma, high = token.text.strip("{}").partition(",")
        if not low.strip() and not high.strip():
            self.fail("a repeat count without a number", token)
        least = _number(low.strip(), 0)
        if not comma:
            return least, least
        return least, _number(high.strip(), 0) if high.strip() else None

    def _read_name(self, token: Token) -> Element:
        """A reference, or a call of one of xgrammar's macros such as `TagDispatch(...)`."""
        following = self.peek()
        glued = following.text == "(" and following.offset == token.offset + len(token.text)
        if glued and token.text[0].isupper() and token.text not in self.names:
            self.at += 1
            self._skip_extension(token, token.text)
            return self.stack[-1].items.pop()
        return Reference(token.text, token.offset)

    def _skip_extension(self, token: Token, keyword: str) -> None:
        if not self.extensions:
            self.fail(f"{keyword} is no part of GBNF", token)
        depth = 1
        while depth:
            inner = self.take()
            if inner.kind == "end":
                self.fail("this group is never closed", token)
            depth += (inner.text in ("(", "(=")) - (inner.text == ")")
        self.push(Opaque(keyword, token.offset))

    def _unescape(self, token: Token, start: int, end: int) -> str:
        return "".join(char for char, _ in self._characters(token, start, end))

    def _characters(self, token: Token, start: int, end: int) -> Iterator[tuple[str, bool]]:
        """The characters of a string or class, and whether each was written as an escape."""
        at = start
        while at < end:
            if token.text[at] != "\\":
                yield token.text[at], False
                at += 1
                continue
            match = _HEX_ESCAPE.match(token.text, at)
            if match:
                yield self._code_point(match, token, at), True
                at = match.end()
            elif token.text[at + 1] in _ESCAPES:
                yield _ESCAPES[token.text[at + 1]], True
                at += 2
            else:
                wrong = Token("escape", token.text[at : at + 2], token.offset + at)
                self.fail(f"unknown escape {wrong.text}", wrong)

    def _code_point(self, match: re.Match[str], token: Token, at: int) -> str:
        code = int(match[1] or match[2] or match[3], 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self.fail("no such character", Token("escape", match[0], token.offset + at))
        return chr(code)

    def _read_class(self, token: Token) -> Element:
        negated = token.text.startswith("[^")
        chars = list(self._characters(token, 2 if negated else 1, len(token.text) - 1))
        ranges: list[tuple[int, int]] = []
        at = 0
        while at < len(chars):
            low = high = ord(chars[at][0])
            if at + 2 < len(chars) and chars[at + 1] == ("-", False):
                high = ord(chars[at + 2][0])
                at += 2
            if low > high:
                self.fail(f"bad range {chr(low)}-{chr(high)} in this class", token)
            ranges.append((low, high))
            at += 1
        merged = union(ranges)
        if not merged and not negated:
            self.fail("an empty class matches nothing", token)
        return Set(complement(merged) if negated else merged)


# --------------------------------------------------------------------------------------------------------------- Lark


class _LarkReader(_Reader):
    """Reads only what the checks need: which rule refers to which; terminals and attributes stay opaque."""

    syntax: Syntax = "lark"

    def __init__(self, text: str) -> None:
        super().__init__(text, tokens_of(text, "lark"))
        self.declared: set[str] = set()
        self.loose = False

    def read(self) -> Grammar:
        while self.peek().kind != "end":
            if self.peek().kind == "newline":
                self.at += 1
            elif self.peek().kind == "directive":
                self._read_directive()
            else:
                self._read_rule()
        return Grammar(self.text, "lark", self.rules, "start", frozenset(self.declared), self.loose)

    def _read_directive(self) -> None:
        directive = self.take()
        line = list(self._rest_of_line())
        if directive.text in ("%import", "%declare"):
            self.declared.update(token.text for token in line if token.kind == "name")
        elif directive.text in ("%override", "%extend"):
            self.loose = True

    def _rest_of_line(self) -> Iterator[Token]:
        """To the end of the line, or of the parentheses that are open there."""
        depth = 0
        while self.peek().kind != "end" and (depth > 0 or self.peek().kind != "newline"):
            token = self.take()
            depth += (token.text in ("(", "{")) - (token.text in (")", "}"))
            yield token

    def _read_rule(self) -> None:
        while self.peek().text in ("?", "!"):
            self.at += 1
        name = self.take()
        if name.kind != "name":
            self.fail(f"a rule's name was expected, not {shown(name.text)}", name)
        self._skip_to_colon(name)
        self.stack = [_Frame(None)]
        while not self._at_end_of_rule():
            self._read_element()
        self.define(name, self.finish_body())

    def _skip_to_colon(self, name: Token) -> None:
        """Past attributes, parameters and a priority."""
        depth = 0
        while depth or self.peek().text != ":":
            token = self.take()
            if token.kind == "define":
                self.fail("::= in a Lark grammar", token, hint="Lark rules are defined with a colon")
            if token.kind == "end" or (token.kind == "newline" and not depth):
                self.fail("a colon was expected after a rule's name", name)
            depth += (token.text in ("[", "{")) - (token.text in ("]", "}"))
            self.loose = self.loose or token.text == "{"
        self.at += 1

    def _at_end_of_rule(self) -> bool:
        """A line's end, unless a group is open or the next line goes on with `|`."""
        token = self.peek()
        if token.kind == "end":
            return True
        if token.kind != "newline":
            return False
        ahead = 1
        while self.peek(ahead).kind == "newline":
            ahead += 1
        return len(self.stack) == 1 and self.peek(ahead).text != "|"

    def _read_element(self) -> None:
        token = self.take()
        if token.kind == "name":
            self.push(Reference(token.text, token.offset))
        elif token.kind in ("string", "regex", "token", "number"):
            self.push(Opaque(token.kind, token.offset))
        elif token.kind == "directive":
            self.push(Opaque(token.text.partition(" ")[0], token.offset))
        elif token.kind == "op":
            self._read_sign(token)
        elif token.kind == "define":
            self.fail("::= in a Lark grammar", token, hint="Lark rules are defined with a colon")

    def _read_sign(self, token: Token) -> None:
        sign = token.text
        if sign in ("(", "["):
            self.open(token)
        elif sign in (")", "]"):
            node = self.close(token)
            self.push(Repeat(node, 0, 1) if sign == "]" else node)
        elif sign == "|":
            self.stack[-1].end_option()
        elif sign in _SIMPLE_COUNTS:
            self.repeat(token, *_SIMPLE_COUNTS[sign])
        elif sign == "{":
            self._read_braces(token)
        elif sign == "->":
            self.take()
        elif sign == "~" and self.peek().kind == "number":
            self._read_tilde(token)
        elif sign == "@":
            self.push(Opaque("@", self.take().offset))
        elif sign == ":":
            self.fail("an unexpected colon", token, hint="A new rule starts on a new line, without blanks before it")

    def _read_tilde(self, token: Token) -> None:
        least = most = _number(self.take().text, 0)
        if self.peek().text == ".." and self.peek(1).kind == "number":
            self.at += 1
            most = _number(self.take().text, 0)
        self.repeat(token, least, most)

    def _read_braces(self, token: Token) -> None:
        """A count, or arguments of a template."""
        inner: list[Token] = []
        while self.peek().kind != "end" and self.peek().text != "}":
            inner.append(self.take())
        self.at += 1
        numbers = [_number(part.text, 0) for part in inner if part.kind == "number"]
        if any(part.kind != "number" and part.text != "," for part in inner) or not numbers:
            self.loose = True
            return
        bounded_above = not inner or inner[-1].text != ","
        least = 0 if inner[0].text == "," else numbers[0]
        self.repeat(token, least, numbers[-1] if bounded_above else None)


# ---------------------------------------------------------------------------------------------------------- the checks


@functools.lru_cache(maxsize=64)
def read_grammar(text: str, syntax: Syntax) -> Grammar:
    """Read a grammar's rules.

    Raises:
        SpecError: too long, a NUL or a surrogate, bad syntax, a rule defined twice; with line and column.
    """
    if len(text) > MAX_LENGTH:
        _fail(text, f"the text has {len(text)} characters, more than {MAX_LENGTH}", 0)
    wrong = re.compile("[\0\ud800-\udfff]").search(text)
    if wrong:
        _fail(text, f"character {wrong[0]!r} cannot be in a grammar", wrong.start())
    if syntax == "lark":
        return _LarkReader(text).read()
    return _EbnfReader(text, extensions=syntax == "ebnf").read()


def check_grammar(text: str, syntax: Syntax) -> None:
    """Refuse a grammar that no engine could use, without an engine (B9, B12, D3, D10, D13).

    Raises:
        SpecError: bad syntax, an undefined rule, no start rule, a rule defined twice, a start rule that can never
            finish, too many rules or too long a chain of them; with line and column.
    """
    checked_grammar(text, syntax)


@functools.lru_cache(maxsize=64)
def checked_grammar(text: str, syntax: Syntax) -> Grammar:
    """The rules of a grammar that passes `check_grammar`."""
    grammar = read_grammar(text, syntax)
    if not grammar.rules:
        _fail(text, "there is no rule in it", 0)
    _check_names(grammar)
    _check_start(grammar)
    _check_productive(grammar)
    _check_self(grammar)
    _check_chain(grammar)
    return grammar


def _check_names(grammar: Grammar) -> None:
    if grammar.loose:
        return
    known = grammar.rules.keys() | grammar.declared
    for rule in grammar.rules.values():
        for reference in _references(rule.body):
            if reference.name not in known:
                message = f"rule {shown(reference.name)} is not defined"
                _fail(grammar.text, message, reference.offset, keyword=reference.name, hint=_nearest(reference, known))


def _nearest(reference: Reference, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(reference.name, list(known), n=1)
    return f"Did you mean {shown(close[0])}?" if close else None


def _check_start(grammar: Grammar) -> None:
    if grammar.start in grammar.rules or grammar.start in grammar.declared or grammar.loose:
        return
    names = ", ".join(map(shown, list(grammar.rules)[:5]))
    hint = f"Name the rule that the whole text must match {grammar.start!r}; there are: {names}"
    _fail(grammar.text, f"there is no rule {grammar.start!r}", 0, keyword=grammar.start, hint=hint)


def _check_productive(grammar: Grammar) -> None:
    """Every rule must have a text at all: the least fixpoint of "can finish" (B12).

    Rules beside the start count too: generation that once enters such a rule never ends.
    """
    finishing = finishing_rules(grammar)
    endless = [name for name in grammar.rules if name not in finishing]
    if grammar.loose or not endless:
        return
    name = grammar.start if grammar.start in endless else endless[0]
    message = f"no text can match: rule {shown(name)} can never finish"
    hint = "Every way through it comes back to a rule that cannot finish either; give one a way out"
    _fail(grammar.text, message, grammar.rules[name].offset, keyword=name, hint=hint)


def _check_self(grammar: Grammar) -> None:
    """No rule may be nothing but itself, or itself repeated: that means nothing, and xgrammar crashes on it."""
    only = {rule.name: _only_reference(rule.body) for rule in grammar.rules.values()}
    for name in grammar.rules:
        seen: set[str] = set()
        at: str | None = name
        while at is not None and at not in seen:
            seen.add(at)
            at = only.get(at)
        if at == name:
            message = f"rule {shown(name)} is nothing but itself"
            _fail(grammar.text, message, grammar.rules[name].offset, keyword=name)


def _only_reference(node: Element) -> str | None:
    """The rule that the node is, once or repeated; None if there is anything else to it."""
    while not isinstance(node, Reference):
        children = _children(node)
        if len(children) != 1:
            return None
        node = children[0]
    return node.name


def finishing_rules(grammar: Grammar) -> set[str]:
    """Names of the rules that have at least one finite text; names from elsewhere are taken to have one."""
    users: dict[str, set[str]] = {}
    for rule in grammar.rules.values():
        for reference in _references(rule.body):
            users.setdefault(reference.name, set()).add(rule.name)
    done: set[str] = set()
    todo = list(grammar.rules)
    while todo:
        name = todo.pop()
        if name in done or not _can_finish(grammar.rules[name].body, grammar, done):
            continue
        done.add(name)
        todo.extend(users.get(name, ()))
    return done


def _can_finish(node: Element, grammar: Grammar, done: set[str]) -> bool:
    # Depth is bounded by MAX_NESTING, at three levels a group.
    if isinstance(node, Reference):
        return node.name in done or node.name not in grammar.rules
    if isinstance(node, Series):
        return all(_can_finish(item, grammar, done) for item in node.items)
    if isinstance(node, Choice):
        return any(_can_finish(option, grammar, done) for option in node.options)
    return not isinstance(node, Repeat) or node.least == 0 or _can_finish(node.item, grammar, done)


def _check_chain(grammar: Grammar) -> None:
    length, name = longest_chain(grammar)
    if length > MAX_CHAIN:
        message = f"{length} rules refer to one another in a row, more than {MAX_CHAIN}"
        _fail(grammar.text, message, grammar.rules[name].offset, keyword=name)


def longest_chain(grammar: Grammar) -> tuple[int, str]:
    """The most rules that an engine may have to enter one inside the other, and the first of them.

    Rules that all refer to each other count together, since each may be entered from any other.
    """
    uses = {
        rule.name: list(dict.fromkeys(r.name for r in _references(rule.body) if r.name in grammar.rules))
        for rule in grammar.rules.values()
    }
    length: dict[str, int] = {}
    for component in _components(uses):  # the used come before their users
        below = max((length[to] for name in component for to in uses[name] if to in length), default=0)
        length.update(dict.fromkeys(component, below + len(component)))
    first = max(length, key=lambda name: length[name])
    return length[first], first


def _components(graph: dict[str, list[str]]) -> Iterator[list[str]]:
    """Tarjan's strongly connected components, without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in graph:
        work = [(root, iter(graph[root]))] if root not in index else []
        while work:
            name, following = work[-1]
            if name not in index:
                index[name] = low[name] = len(index)
                stack.append(name)
                on_stack.add(name)
            child = next(following, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    yield _pop_component(stack, on_stack, name)
            elif child not in index:
                work.append((child, iter(graph[child])))
            elif child in on_stack:
                low[name] = min(low[name], index[child])


def _pop_component(stack: list[str], on_stack: set[str], name: str) -> list[str]:
    out: list[str] = []
    while not out or out[-1] != name:
        out.append(stack.pop())
        on_stack.discard(out[-1])
    return out


def named_tokens(text: str, syntax: Syntax) -> set[str]:
    """The special tokens that a Lark grammar names, such as `<think>`, with their brackets (B7, B9).

    Token ids and ranges (`<[12]>`, `<[*]>`) are not names. Other syntaxes name none.
    """
    if syntax != "lark":
        return set()
    return {
        token.text
        for token in tokens_of(text, "lark")
        if token.kind == "token" and not re.match(r"<\[", token.text) and len(token.text) > 2
    }


# ------------------------------------------------------------------------------------------------ writing for engines


def ebnf_literal(text: str) -> str:
    """A string literal of xgrammar's EBNF that matches exactly this text, whatever characters it has (D14)."""
    return f'"{"".join(map(_literal_character, text))}"'


def _literal_character(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else _code_escape(char)


def _code_escape(char: str) -> str:
    # \x would go on reading hexadecimal digits that follow; these two have a fixed width.
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


_CLASS_DIALECT = RegexDialect(name="grammar")


def ebnf_to_lark(text: str, syntax: Syntax = "ebnf") -> str:
    """EBNF or GBNF as a Lark grammar for llguidance, with the very same texts.

    llguidance reads terminals with a lexer that takes the longest match and never comes back, whereas EBNF knows no
    lexer. So a literal is written whole only if no other terminal is a beginning of it, and as single characters
    otherwise: then no terminal is a beginning of another, and there is nothing to choose wrongly.

    Raises:
        UnsupportedFeature: one of xgrammar's extensions.
        SpecError: as `check_grammar`.
    """
    grammar = checked_grammar(text, syntax)
    names = {name: f"r{number}" for number, name in enumerate(grammar.rules)}
    whole = _whole_literals(grammar)
    lines = ["%llguidance {}", f"start: {names[grammar.start]}"]
    for rule in grammar.rules.values():
        lines.append(f"{names[rule.name]}: {_write(rule.body, _LarkWriter(grammar, names, whole))[0]}")
    return "\n".join(lines) + "\n"


def _whole_literals(grammar: Grammar) -> set[str]:
    """The literals that no other terminal is a beginning of, once those that are have been cut into characters."""
    nodes = [node for rule in grammar.rules.values() for node in _walk(rule.body)]
    whole = {node.text for node in nodes if isinstance(node, Text) and len(node.text) > 1}
    singles = union(
        [r for node in nodes if isinstance(node, Set) for r in node.ranges]
        + [(ord(node.text),) * 2 for node in nodes if isinstance(node, Text) and len(node.text) == 1]
    )
    while True:
        lengths = sorted({len(text) for text in whole})
        cut = {text for text in whole if _in(singles, text[0]) or _has_beginning(text, whole, lengths)}
        if not cut:
            return whole
        whole -= cut
        singles = union([*singles, *((ord(char), ord(char)) for text in cut for char in text)])


def _in(ranges: Ranges, char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in ranges)


def _has_beginning(text: str, others: set[str], lengths: list[int]) -> bool:
    return any(text[:length] in others for length in lengths if length < len(text))


@dataclass(frozen=True, slots=True)
class _LarkWriter:
    grammar: Grammar
    names: dict[str, str]
    whole: set[str]
    empty = '""'

    def leaf(self, node: Text | Set | Reference | Opaque) -> tuple[str, bool]:
        """The node as text, and whether it needs parentheses under a repetition."""
        if isinstance(node, Text):
            if len(node.text) <= 1 or node.text in self.whole:
                return _lark_string(node.text), True
            return " ".join(_lark_string(char) for char in node.text), False
        if isinstance(node, Set):
            return f"/{render_set(node.ranges, _CLASS_DIALECT)}/", True
        if isinstance(node, Reference):
            return self.names[node.name], True
        raise _unsupported(self.grammar, node, "guidance")

    def count(self, least: int, most: int | None) -> str:
        return _count(least, most)


def _lark_string(text: str) -> str:
    # JSON leaves DEL as it is, which llguidance does not take.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _count(least: int, most: int | None) -> str:
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    if simple:
        return simple
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def _unsupported(grammar: Grammar, node: Opaque, backend: str) -> UnsupportedFeature:
    line, column = position(grammar.text, node.offset)
    return UnsupportedFeature(
        f"grammar: {node.keyword} is not supported", line=line, column=column, keyword=node.keyword, backend=backend
    )


def lark_for(text: str, dialect: RegexDialect) -> str:
    """A Lark grammar whose terminals mean the same on every engine; everything else stays as it is.

    Regular expressions are written anew in the engine's dialect, and so are literals that ignore case. Those that
    the layer's dialect cannot say, or that are lazy (which a lexer does care about), are left for the engine.
    """
    out: list[str] = []
    at = 0
    for token in tokens_of(text, "lark"):
        written = _terminal_for(token, dialect)
        if written is not None:
            out += [text[at : token.offset], written]
            at = token.offset + len(token.text)
    return "".join([*out, text[at:]])


def _terminal_for(token: Token, dialect: RegexDialect) -> str | None:
    regex = terminal_of(token)
    if regex is None or isinstance(regex, SpecError) or regex.lazy:
        return None
    try:
        # An empty pattern between its slashes would be a comment.
        return f"/{translate(regex, dialect) or '()'}/"
    except UnsupportedFeature:
        return None


def terminal_of(token: Token) -> Regex | SpecError | None:
    """The regular expression that a Lark token is, why it cannot be read, or None if the token is something else."""
    pattern, flags = "", "i"
    if token.kind == "regex":
        pattern, _, flags = token.text[1:].rpartition("/")
    elif token.kind == "string" and token.text.endswith("i"):
        try:
            pattern = re.sub(r"([^\w\s])", r"\\\1", json.loads(token.text[:-1]))
        except ValueError:
            return None
    else:
        return None
    try:
        return parse_terminal(pattern, flags)
    except SpecError as error:
        return error


def ebnf_for_xgrammar(text: str, syntax: Syntax = "ebnf") -> str:
    """EBNF or GBNF in the form that xgrammar reads with the very same meaning.

    Rule names, escapes and classes are written the way xgrammar understands them, and a start rule that refers to
    itself gets a fresh one before it (A12). A grammar with xgrammar's own extensions is handed on as it is.

    Raises:
        UnsupportedFeature: a look-ahead, which xgrammar takes as a hint and does not enforce, or a token.
        SpecError: as `check_grammar`.
    """
    grammar = checked_grammar(text, syntax)
    opaque = opaque_elements(grammar)
    for node in opaque:
        if node.keyword in ("look-ahead", "token"):
            raise _unsupported(grammar, node, "xgrammar")
    if opaque:
        return text
    names = {name: f"r{number}" for number, name in enumerate(grammar.rules)}
    writer = _EbnfWriter(names)
    lines = [f"root ::= {names[grammar.start]}"]
    lines += [f"{names[rule.name]} ::= {_write(rule.body, writer)[0]}" for rule in grammar.rules.values()]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _EbnfWriter:
    names: dict[str, str]
    empty = '""'

    def leaf(self, node: Text | Set | Reference | Opaque) -> tuple[str, bool]:
        if isinstance(node, Text):
            return ebnf_literal(node.text), True
        if isinstance(node, Set):
            return ebnf_class(node.ranges), True
        return self.names[node.name] if isinstance(node, Reference) else "", True


def ebnf_class(ranges: Ranges) -> str:
    """A character class of xgrammar's EBNF."""
    parts = (
        _class_character(low) if low == high else f"{_class_character(low)}-{_class_character(high)}"
        for low, high in ranges
    )
    return f"[{''.join(parts)}]"


def _class_character(code: int) -> str:
    char = chr(code)
    if char.isalnum() and char.isascii():
        return char
    return _code_escape(char)


def _write(node: Element, writer: _LarkWriter | _EbnfWriter) -> tuple[str, bool]:
    """The node as text, and whether it holds together without parentheses."""
    if isinstance(node, Series):
        if not node.items:
            return writer.empty, True
        return " ".join(_write_tight(item, writer, isinstance(item, Choice)) for item in node.items), False
    if isinstance(node, Choice):
        return " | ".join(_write(option, writer)[0] for option in node.options), False
    if isinstance(node, Repeat):
        if node.most == 0:
            return writer.empty, True
        return _write_tight(node.item, writer, isinstance(node.item, Repeat)) + _count(node.least, node.most), True
    return writer.leaf(node)


def _write_tight(node: Element, writer: _LarkWriter | _EbnfWriter, always: bool) -> str:
    text, tight = _write(node, writer)
    return f"({text})" if always or not tight else text
