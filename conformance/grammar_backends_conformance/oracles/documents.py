"""Small JSON schemas into terms, so that masks of schemas too can be compared bit for bit.

Only what has one spelling, or whose spellings every backend of this layer allows: literals, booleans, null, closed
objects with their properties in the order of the schema, arrays, unions and references. Strings and numbers beyond
literals are not here, since backends may differ in which of their spellings a model may use.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grammar_backends import GrammarOptions
from grammar_backends_conformance.oracles.patterns import Uncovered
from grammar_backends_conformance.oracles.reference import (
    EMPTY,
    Alternatives,
    Grammar,
    Repetition,
    Rule,
    Series,
    Term,
    characters,
    literal,
)

__all__ = ["schema_grammar"]

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$schema", "$comment", "$defs", "definitions"})
_BLANKS = Repetition(characters([(0x20, 0x20), (0x09, 0x0A), (0x0D, 0x0D)]))


def schema_grammar(schema: Any, options: GrammarOptions) -> Grammar:
    """The texts that a schema allows.

    Raises:
        Uncovered: a keyword or a type that has more than one spelling.
    """
    writer = _Writer(schema, options)
    start = writer.value(schema)
    return Grammar(start, writer.rules)


class _Writer:
    def __init__(self, root: Any, options: GrammarOptions) -> None:
        self._root = root
        self.rules: dict[str, Term] = {}
        self._gap: Term = _BLANKS
        if options.whitespace == "compact":
            self._gap = EMPTY
        elif options.max_whitespace is not None:
            self._gap = Repetition(_BLANKS.item, 0, options.max_whitespace)
        self._compact = options.whitespace == "compact"
        self._closed = options.additional_properties == "closed"

    def value(self, schema: Any) -> Term:
        if not isinstance(schema, Mapping):
            raise Uncovered("a boolean schema")
        keywords = set(schema) - _ANNOTATIONS
        if keywords == {"$ref"}:
            return self._reference(schema["$ref"])
        if keywords == {"anyOf"}:
            return Alternatives(tuple(self.value(option) for option in schema["anyOf"]))
        if keywords <= {"enum", "const"} and len(keywords) == 1:
            return Alternatives(tuple(map(self._literal, schema.get("enum", [schema.get("const")]))))
        kind = schema.get("type")
        if kind in ("null", "boolean") and keywords == {"type"}:
            return Alternatives(tuple(map(self._literal, [None] if kind == "null" else [True, False])))
        if kind == "object" and keywords <= {"type", "properties", "required", "additionalProperties"}:
            return self._object(schema)
        if kind == "array" and keywords <= {"type", "items", "minItems", "maxItems"} and "items" in keywords:
            return self._array(schema)
        raise Uncovered(f"schema with {', '.join(sorted(keywords)) or 'nothing'}")

    def _literal(self, value: Any) -> Term:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, float) or "\\" in text or (isinstance(value, (dict, list)) and not self._compact):
            raise Uncovered("a literal with several spellings")
        return literal(text)

    def _reference(self, pointer: str) -> Term:
        if pointer != "#" and not pointer.startswith("#/"):
            raise Uncovered("a reference that is no pointer")
        if pointer not in self.rules:
            self.rules[pointer] = EMPTY  # known before what it is: it may refer to itself
            self.rules[pointer] = self.value(self._target(pointer))
        return Rule(pointer)

    def _target(self, pointer: str) -> Any:
        target = self._root
        for part in pointer.lstrip("#").split("/")[1:]:
            name = urllib.parse.unquote(part).replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or name not in target:
                raise Uncovered(f"reference to {pointer}")
            target = target[name]
        return target

    def _object(self, schema: Mapping[str, Any]) -> Term:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("additionalProperties", not self._closed) is not False or not set(required) <= set(properties):
            raise Uncovered("an open object")
        members = [
            (self._spaced(self._literal(name), literal(":"), self.value(inner)), name in required)
            for name, inner in properties.items()
        ]
        return self._bracketed("{", self._members(members), "}")

    def _members(self, members: Sequence[tuple[Term, bool]]) -> Term:
        """Members in their order, those that are not required perhaps left out, with commas between."""
        options: list[Term] = []
        for index, (member, is_required) in enumerate(members):
            options.append(Series((member, self._more(members[index + 1 :]))))
            if is_required:
                break
        else:
            options.append(EMPTY)
        return Alternatives(tuple(options))

    def _more(self, members: Sequence[tuple[Term, bool]]) -> Term:
        """Members after another one."""
        terms: list[Term] = []
        for member, is_required in members:
            term = Series((self._gap, literal(","), self._gap, member))
            terms.append(term if is_required else Repetition(term, 0, 1))
        return Series(tuple(terms))

    def _array(self, schema: Mapping[str, Any]) -> Term:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        item = self.value(schema["items"])
        if most == 0:
            return self._bracketed("[", EMPTY, "]")
        more = Series((self._gap, literal(","), self._gap, item))
        items: Term = Series((item, Repetition(more, max(least - 1, 0), None if most is None else most - 1)))
        return self._bracketed("[", items if least else Alternatives((items, EMPTY)), "]")

    def _bracketed(self, opening: str, inner: Term, closing: str) -> Term:
        return self._spaced(literal(opening), inner, literal(closing))

    def _spaced(self, *terms: Term) -> Term:
        """The terms with white space between them."""
        between: Iterable[Term] = (part for term in terms for part in (self._gap, term))
        return Series(tuple(between)[1:])
