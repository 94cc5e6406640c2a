"""What each engine would get wrong about a grammar: data measured per engine, and the walk that finds it in a text.

A finding names the place and the construct, so that the backend that would silently do something else is refused
(C2.5, C3). What an engine refuses by itself, loudly, is not listed here: its own error is as good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grammar_backends.contract.grammar_text import (
    Opaque,
    Syntax,
    Token,
    opaque_elements,
    position,
    read_grammar,
    terminal_of,
    tokens_of,
)
from grammar_backends.errors import SpecError

__all__ = ["GUIDANCE", "XGRAMMAR", "GrammarFinding", "GrammarSupport", "grammar_findings"]


@dataclass(frozen=True, slots=True)
class GrammarFinding:
    """One construct that an engine would not enforce, where it stands (both from 1), and what would happen."""

    line: int
    column: int
    keyword: str
    reason: str


@dataclass(frozen=True, slots=True)
class GrammarSupport:
    """What an engine does with grammars. Plain data, one value per engine.

    Attributes:
        ebnf_extensions: xgrammar's constructs that the engine enforces, such as "TagDispatch"; "*" for all.
        lazy_terminals: lazy repetitions in Lark terminals end a terminal as early as they can.
        foreign_terminals: Lark terminals outside the layer's regex dialect are enforced, or refused loudly.
        lark_attributes: rule attributes (`x[max_tokens=3]`) that change the language and are enforced.
        lark_directives: embedded `%json`, `%regex` and the like that are fully enforced.
    """

    ebnf_extensions: frozenset[str] = frozenset()
    lazy_terminals: bool = True
    foreign_terminals: bool = True
    lark_attributes: frozenset[str] = frozenset()
    lark_directives: frozenset[str] = frozenset()


LANGUAGE_ATTRIBUTES = frozenset({"lazy", "max_tokens", "stop", "stop_capture", "suffix"})
"""Attributes of Lark rules that change which texts match; `capture` and `temperature` do not."""

XGRAMMAR = GrammarSupport(
    ebnf_extensions=frozenset({"*"}),
    lazy_terminals=False,
    foreign_terminals=False,
    lark_directives=frozenset({"%regex"}),
)
"""xgrammar 0.2.9: drops laziness, reads unknown escapes as letters and nested classes as characters, ignores anchors
in the middle, relaxes `max_tokens`, ends `lazy` and `stop` rules elsewhere than llguidance, whose features they are,
and ignores schema keywords of `%json` as it does those of a JSON schema."""

GUIDANCE = GrammarSupport(
    lark_attributes=LANGUAGE_ATTRIBUTES,
    lark_directives=frozenset({"%json", "%regex", "%llguidance"}),
)
"""llguidance 1.9.1: its terminals are matched by a lexer that takes the longest match, as is usual for Lark."""


def grammar_findings(text: str, syntax: Syntax, support: GrammarSupport) -> list[GrammarFinding]:
    """What of this grammar an engine would silently get wrong, in the order of the text.

    Raises:
        SpecError: the grammar cannot be read at all.
    """
    found = _lark_findings(text, support) if syntax == "lark" else _ebnf_findings(text, syntax, support)
    return sorted(found, key=lambda finding: (finding.line, finding.column))


def _finding(text: str, offset: int, keyword: str, reason: str) -> GrammarFinding:
    line, column = position(text, offset)
    return GrammarFinding(line, column, keyword, reason)


def _ebnf_findings(text: str, syntax: Syntax, support: GrammarSupport) -> Iterator[GrammarFinding]:
    for node in opaque_elements(read_grammar(text, syntax)):
        reason = _ebnf_reason(node, support)
        if reason:
            yield _finding(text, node.offset, node.keyword, reason)


def _ebnf_reason(node: Opaque, support: GrammarSupport) -> str | None:
    if node.keyword == "look-ahead":
        return "a look-ahead is taken as a hint and not enforced"
    if node.keyword == "token":
        return "tokens cannot be named in EBNF"
    known = "*" in support.ebnf_extensions or node.keyword in support.ebnf_extensions
    return None if known else f"{node.keyword} is an extension of xgrammar"


def _lark_findings(text: str, support: GrammarSupport) -> Iterator[GrammarFinding]:
    tokens = tokens_of(text, "lark")
    for token in tokens:
        yield from _terminal_findings(text, token, support)
        directive = token.text.split("{")[0].strip() if token.kind == "directive" else ""
        if directive in ("%json", "%regex") and directive not in support.lark_directives:
            yield _finding(text, token.offset, directive, f"not everything in {directive} is enforced")
    for token in _attributes(tokens):
        if token.text in LANGUAGE_ATTRIBUTES and token.text not in support.lark_attributes:
            yield _finding(text, token.offset, token.text, f"the attribute {token.text} is not fully enforced")


def _terminal_findings(text: str, token: Token, support: GrammarSupport) -> Iterator[GrammarFinding]:
    regex = terminal_of(token)
    if isinstance(regex, SpecError):
        if not support.foreign_terminals:
            yield _finding(text, token.offset, regex.keyword or "terminal", regex.message)
    elif regex is not None and regex.lazy and not support.lazy_terminals:
        yield _finding(text, token.offset, "lazy repetition", "a lazy repetition would be taken as a greedy one")


def _attributes(tokens: list[Token]) -> Iterator[Token]:
    """Names in the brackets between a rule's name, at the start of a line, and its colon."""
    for index, token in enumerate(tokens):
        at_start = index == 0 or tokens[index - 1].kind == "newline" or tokens[index - 1].text in ("?", "!")
        if token.kind == "name" and at_start and index + 1 < len(tokens) and tokens[index + 1].text == "[":
            for inner in tokens[index + 2 :]:
                if inner.text in ("]", ":"):
                    break
                if inner.kind == "name":
                    yield inner
