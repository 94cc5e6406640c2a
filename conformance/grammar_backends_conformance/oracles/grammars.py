"""Grammars as text into terms: the parts of EBNF, GBNF and Lark whose meaning no engine needs to be asked for.

Character by character, without a lexer: a Lark grammar whose terminals can be cut in more than one way means every
way here, while engines for Lark prefer the longest terminal.
"""

from __future__ import annotations

import abc
import re

from grammar_backends_conformance.oracles.patterns import Uncovered, regex_term
from grammar_backends_conformance.oracles.reference import (
    Alternatives,
    Grammar,
    Repetition,
    Rule,
    Series,
    Term,
    characters,
    complement,
    literal,
)

__all__ = ["ebnf_grammar", "lark_grammar"]

_EBNF_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*) | (?P<define>::=) | (?P<string>"(?:\\.|[^"\\])*") | (?P<class>\[(?:\\.|[^\]\\])*\])
      | (?P<count>\{[\d\s,]+\}|[*+?]) | (?P<name>[A-Za-z_][\w.-]*) | (?P<sign>[()|.])""",
    re.VERBOSE,
)
_LARK_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r]+|(?://|\#)[^\n]*) | (?P<newline>\n) | (?P<string>"(?:\\.|[^"\\])*"i?)
      | (?P<regex>/(?:\\.|[^/\\])+/[a-z]*) | (?P<alias>->\s*\w+) | (?P<count>~\s*\d+(?:\s*\.\.\s*\d+)?|[*+?])
      | (?P<range>\.\.) | (?P<name>\w+(?:\.-?\d+)?) | (?P<sign>[()|:!\[\]])""",
    re.VERBOSE,
)


class _Tokens:
    """The tokens of a grammar, and where reading is."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        at = 0
        while at < len(text):
            match = pattern.match(text, at)
            if match is None:
                raise Uncovered(f"grammar: {text[at : at + 20]!r}")
            if match.lastgroup != "skip":
                self._tokens.append((str(match.lastgroup), match[0]))
            at = match.end()

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        index = self._at + ahead
        return self._tokens[index] if index < len(self._tokens) else ("end", "")

    def take(self, kind: str | None = None) -> str:
        found, text = self.peek()
        if kind not in (None, found):
            raise Uncovered(f"grammar: {kind} expected, not {text!r}")
        self._at += 1
        return text


class _Reader(abc.ABC):
    """What EBNF and Lark have in common: rules of alternatives of series of items, each perhaps repeated."""

    def __init__(self, tokens: _Tokens) -> None:
        self.tokens = tokens
        self.rules: dict[str, Term] = {}

    def define(self, name: str, body: Term) -> None:
        if name in self.rules:
            raise Uncovered(f"grammar: rule {name!r} is defined twice")
        self.rules[name] = body

    def alternatives(self) -> Term:
        options = [self._series()]
        while self.tokens.peek() == ("sign", "|"):
            self.tokens.take()
            options.append(self._series())
        return options[0] if len(options) == 1 else Alternatives(tuple(options))

    def _series(self) -> Term:
        items: list[Term] = []
        while not self.at_end_of_series():
            items.append(self._repeated())
        return items[0] if len(items) == 1 else Series(tuple(items))

    def _repeated(self) -> Term:
        item = self.item()
        while self.tokens.peek()[0] == "count":
            item = Repetition(item, *self._count(self.tokens.take()))
        return item

    def _count(self, text: str) -> tuple[int, int | None]:
        if text in _SIGNS:
            return _SIGNS[text]
        numbers = re.findall(r"\d+", text)
        if re.search(r",\s*\}", text):
            return int(numbers[0]), None
        if re.match(r"\{\s*,", text):
            return 0, int(numbers[0])
        return int(numbers[0]), int(numbers[-1])

    def group(self, closing: str) -> Term:
        inner = self.alternatives()
        if self.tokens.take() != closing:
            raise Uncovered(f"grammar: {closing} expected")
        return inner

    @abc.abstractmethod
    def at_end_of_series(self) -> bool:
        """Whether no item follows."""

    @abc.abstractmethod
    def item(self) -> Term:
        """Read one item, without its count."""


_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


# ------------------------------------------------------------------------------------------------------ EBNF and GBNF


def ebnf_grammar(text: str) -> Grammar:
    """Rules ``name ::= ...`` with strings, classes, groups, ``| * + ? {m,n}`` and ``.``; it starts with `root`.

    Raises:
        Uncovered: anything else.
    """
    reader = _EbnfReader(_Tokens(_EBNF_TOKEN, text))
    while reader.tokens.peek()[0] != "end":
        name = reader.tokens.take("name")
        reader.tokens.take("define")
        reader.define(name, reader.alternatives())
    return Grammar(Rule("root"), reader.rules)


class _EbnfReader(_Reader):
    def at_end_of_series(self) -> bool:
        kind, text = self.tokens.peek()
        return kind == "end" or text in ("|", ")") or self.tokens.peek(1)[0] == "define"

    def item(self) -> Term:
        kind, text = self.tokens.peek()
        self.tokens.take()
        if kind == "string":
            return literal("".join(char for char, _ in _unescaped(text[1:-1])))
        if kind == "class":
            return _character_class(text[1:-1])
        if kind == "name":
            return Rule(text)
        if text == "(":
            return self.group(")")
        if text == ".":
            return characters([(0, 0x10FFFF)])
        raise Uncovered(f"grammar: {text!r}")


_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|(.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "b": "\b", "a": "\a", "0": "\0"}


def _unescaped(text: str) -> list[tuple[str, bool]]:
    """The characters, and whether each was escaped."""
    out: list[tuple[str, bool]] = []
    for match in _ESCAPE.finditer(text):
        code = match[1] or match[2] or match[3]
        if code:
            out.append((chr(int(code, 16)), True))
        elif match[4]:
            if match[4].isalnum() and match[4] not in _LETTERS:
                raise Uncovered(f"grammar: escape \\{match[4]}")
            out.append((_LETTERS.get(match[4], match[4]), True))
        else:
            out.append((match[5], False))
    return out


def _character_class(text: str) -> Term:
    members = _unescaped(text[1:] if text.startswith("^") else text)
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < len(members):
        is_range = at + 2 < len(members) and members[at + 1] == ("-", False)
        ranges.append((ord(members[at][0]), ord(members[at + 2 if is_range else at][0])))
        at += 3 if is_range else 1
    return characters(complement(ranges) if text.startswith("^") else ranges)


# --------------------------------------------------------------------------------------------------------------- Lark


def lark_grammar(text: str) -> Grammar:
    """Rules ``name: ...`` with strings, regular expressions, ``"a".."z"``, groups, ``[..]``, ``| * + ?`` and ``~``.

    It starts with `start`. Aliases, priorities and the signs before a name have no meaning for the language.

    Raises:
        Uncovered: directives, templates and whatever else.
    """
    reader = _LarkReader(_Tokens(_LARK_TOKEN, text + "\n"))
    while reader.tokens.peek()[0] != "end":
        if reader.tokens.peek()[0] == "newline" or reader.tokens.peek()[1] in ("?", "!"):
            reader.tokens.take()
            continue
        name = reader.tokens.take("name")
        if reader.tokens.take() != ":":
            raise Uncovered("grammar: ':' expected")
        reader.define(_plain(name), reader.alternatives())
    return Grammar(Rule("start"), reader.rules)


class _LarkReader(_Reader):
    def at_end_of_series(self) -> bool:
        if self.tokens.peek()[0] == "alias":
            self.tokens.take()
        self._skip_breaks()
        kind, text = self.tokens.peek()
        return kind in ("end", "newline") or text in ("|", ")", "]")

    def _skip_breaks(self) -> None:
        """Past the ends of lines after which the rule goes on."""
        ahead = 0
        while self.tokens.peek(ahead)[0] == "newline":
            ahead += 1
        if self.tokens.peek(ahead)[1] in ("|", ")", "]"):
            for _ in range(ahead):
                self.tokens.take()

    def item(self) -> Term:
        kind, text = self.tokens.peek()
        self.tokens.take()
        if kind == "string":
            return self._string(text)
        if kind == "regex":
            body, _, flags = text[1:].rpartition("/")
            if set(flags) - set("isu"):
                raise Uncovered(f"grammar: flags {flags}")
            return regex_term(body, ignore_case="i" in flags, dot_all="s" in flags)
        if kind == "name" and not text[0].isdigit():
            return Rule(_plain(text))
        if text == "(":
            return self.group(")")
        if text == "[":
            return Repetition(self.group("]"), 0, 1)
        raise Uncovered(f"grammar: {text!r}")

    def _string(self, text: str) -> Term:
        value = _string_value(text.rstrip("i"))
        if self.tokens.peek()[0] == "range":
            self.tokens.take()
            return characters([(ord(value), ord(_string_value(self.tokens.take("string"))))])
        if text.endswith("i"):
            return Series(tuple(characters([(ord(c.lower()),) * 2, (ord(c.upper()),) * 2]) for c in value))
        return literal(value)


def _string_value(text: str) -> str:
    return "".join(char for char, _ in _unescaped(text[1:-1]))


def _plain(name: str) -> str:
    """A name without its priority."""
    return name.partition(".")[0]
