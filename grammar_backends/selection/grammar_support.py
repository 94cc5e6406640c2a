"""What each engine would get wrong about a grammar: data measured per engine, and the walk that finds it in a text.

A finding names the place and the construct, so that the backend that would silently do something else is refused
(C2.5, C3). What an engine refuses by itself, loudly, is not listed here: its own error is as good.
"""

from __future__ import annotations

from collections.abc import Iterator

from grammar_backends.contract import GrammarSupport
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
from grammar_backends.selection.findings import Finding

__all__ = ["grammar_findings"]


LANGUAGE_ATTRIBUTES = frozenset({"lazy", "max_tokens", "stop", "stop_capture", "suffix"})
"""Attributes of Lark rules that change which texts match; `capture` and `temperature` do not."""


def grammar_findings(text: str, syntax: Syntax, support: GrammarSupport) -> list[Finding]:
    """What of this grammar an engine would silently get wrong, in the order of the text.

    Raises:
        SpecError: the grammar cannot be read at all.
    """
    found = _lark_findings(text, support) if syntax == "lark" else _ebnf_findings(text, syntax, support)
    return sorted(found, key=lambda finding: (finding.line or 0, finding.column or 0))


def _finding(text: str, offset: int, keyword: str, reason: str) -> Finding:
    line, column = position(text, offset)
    return Finding(reason, line=line, column=column, keyword=keyword)


def _ebnf_findings(text: str, syntax: Syntax, support: GrammarSupport) -> Iterator[Finding]:
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


def _lark_findings(text: str, support: GrammarSupport) -> Iterator[Finding]:
    tokens = tokens_of(text, "lark")
    for token in tokens:
        yield from _terminal_findings(text, token, support)
        directive = token.text.split("{")[0].strip() if token.kind == "directive" else ""
        if directive in ("%json", "%regex") and directive not in support.lark_directives:
            yield _finding(text, token.offset, directive, f"not everything in {directive} is enforced")
    for token in _attributes(tokens):
        if token.text in LANGUAGE_ATTRIBUTES and token.text not in support.lark_attributes:
            yield _finding(text, token.offset, token.text, f"the attribute {token.text} is not fully enforced")


def _terminal_findings(text: str, token: Token, support: GrammarSupport) -> Iterator[Finding]:
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
