"""Inputs for the front end, each made from a seed and a number alone: random ones, and cases of the suite, broken.

What is made is a request as a client sends it: a constructor of `GrammarSpec` by name, with its arguments.
"""

from __future__ import annotations

import copy
import functools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grammar_backends_conformance.corpora.reading import read_suite

__all__ = ["KINDS", "Input", "make_input"]


@dataclass(frozen=True)
class Input:
    """One call of a constructor of `GrammarSpec`.

    Attributes:
        constructor: its name.
        content: the positional arguments.
        more: the other ones; "options" are the arguments of a `GrammarOptions`.
    """

    constructor: str
    content: tuple[Any, ...]
    more: dict[str, Any]


KEYWORDS = (
    *("type", "properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
    *("minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies"),
    *("unevaluatedProperties", "items", "prefixItems", "additionalItems", "contains", "minContains"),
    *("maxContains", "minItems", "maxItems", "uniqueItems", "unevaluatedItems", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "divisibleBy", "minLength", "maxLength", "pattern"),
    *("format", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$defs"),
    *("definitions", "$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$schema"),
    *("title", "default", "examples", "description", "disallow", "extends", "x-guidance"),
)
NAMES = ("a", "b", "", "a/b", "~", "é", "\x00", "$ref", "properties", "type", "0", "a" * 300)
NUMBERS = (0, 1, -1, 2, 3, 0.5, -0.0, 1.0, 2.5, 1e308, -1e308, 1e-320, 2**31, 2**53 + 1, 2**63, 10**30)
TEXTS = (
    *("", "a", "b", "é", "\U0001f600", "\x7f", "\\", '"', "\n", "^a$", "a|b", "#", "x" * 5_000, r"\p{L}", r"\d+"),
    *("(a*)*b", "((a{9}){9}){9}", "^(?=a)", "date-time", "email", "uuid", "nope", "null"),
)
ODD = (
    *("\x00", "\ud800", "[", "(a", "#/", "#a", "#/$defs/a", "#/properties/a", "#/anyOf/0", "http://x/y", "http://["),
    *("%ff", "//", "#/%zz", "(?i)a", r"\1", float("nan"), float("-inf"), b"x", (1,), {1}, {2: 3}, ..., 10**400, True),
)
"""What hardly any schema may hold."""
TYPES = ("string", "integer", "number", "object", "array", "boolean", "null", "any")
DRAFTS = tuple(f"http://json-schema.org/draft-0{draft}/schema#" for draft in (3, 4, 6, 7))
PIECES = (
    *("(", ")", "[", "]", "{", "}", "|", "*", "+", "?", "^", "$", ".", "-", ",", "\\", "/", "<", ">", '"', "'", "#"),
    *("::=", ":", "\n", " ", "\t", "\x00", "\ud800", "é", "\U0001f600", "0", "9", "{2,3}", "{,5}", "{9999999999}"),
    *("(?:", "(?P<n>", "(?<n>", "(?=", "(?<!", "(?i)", "(?>", r"\1", r"\b", r"\d", r"\w", r"\s", r"\S", r"\p{Lu}"),
    *(r"\x41", r"\u0041", r"\u{41}", r"\ud800", r"\cA", r"\0", r"\Q", "[^", "[a-z]", "[z-a]", "[[:alpha:]]", "a", "b"),
    *(
        "root",
        "start",
        "x",
        "A",
        "%import",
        "%ignore",
        "%json {",
        "%lark",
        "->",
        "..",
        "~",
        "!",
        "?x",
        "=",
        "(=",
        "EOF",
    ),
    *("TagDispatch(", "<[1-5]>", "<|x|>", '"a"i', "/a/", "/(?i:a)/s", "//", "{1}", "[lazy]", "x{y}", ".1", "root ::= "),
)


def make_input(seed: int, number: int) -> Input:
    """The input of this number: the same one in every process."""
    source = random.Random(f"{seed}/{number}")
    kind = source.choice(KINDS)
    made = _KINDS[kind](source)
    if "options" not in made.more and source.random() < 0.2:
        made.more["options"] = _options(source)
    return made


# -- JSON ----------------------------------------------------------------------------------------------------


def junk(source: random.Random, depth: int = 2) -> Any:
    """Any value that JSON, or a careless caller, may hold."""
    pick = source.randrange(14 if depth else 8)
    if source.random() < 0.02:
        return source.choice(ODD)
    if pick < 3:
        return source.choice(TEXTS)
    if pick < 6:
        return source.choice(NUMBERS)
    if pick < 8:
        return source.choice((None, True, False))
    if pick < 11:
        return [junk(source, depth - 1) for _ in range(source.randrange(4))]
    return {source.choice(NAMES): junk(source, depth - 1) for _ in range(source.randrange(4))}


def schema(source: random.Random, depth: int) -> Any:
    """A schema that is one for the most part."""
    if depth <= 0 or source.random() < 0.05:
        return source.choice((True, True, False, {}, {"type": source.choice(TYPES)}, {"$ref": "#/$defs/a"}))
    made = {"type": source.choice(TYPES[:7])} if source.random() < 0.5 else {}
    keywords = source.sample(KEYWORDS, source.randrange(1, 5))
    return made | {keyword: _keyword_value(source, keyword, depth - 1) for keyword in keywords}


def _keyword_value(source: random.Random, keyword: str, depth: int) -> Any:
    if source.random() < 0.01:
        return junk(source)
    return _VALUES[keyword](source, depth)


def _schemas(source: random.Random, depth: int) -> list[Any]:
    return [schema(source, depth) for _ in range(source.randrange(4))]


def _schema_map(source: random.Random, depth: int) -> dict[str, Any]:
    names = source.sample(NAMES, source.randrange(4))
    return {name: schema(source, depth) for name in names}


def _patterns(source: random.Random, depth: int) -> dict[str, Any]:
    return {regex(source): schema(source, depth) for _ in range(source.randrange(3))}


def _count(source: random.Random, depth: int) -> Any:
    return source.choice((0, 1, 2, 2.0, 3, 10, 10**9, 2**64, 1e300))


def _reference(source: random.Random, depth: int) -> str:
    path = [source.choice(("$defs", "properties", "anyOf", "items", "0", "a", "b", "~0", "%25")) for _ in range(2)]
    return source.choice(("#", "#/$defs/a", "#/$defs/b", "#/" + "/".join(path), "#a", "http://x/y"))


def _strings(source: random.Random, depth: int) -> list[str]:
    return [source.choice(NAMES) for _ in range(source.randrange(3))]


_Make = Callable[[random.Random, int], Any]

_VALUES: dict[str, _Make] = {
    **dict.fromkeys(("properties", "$defs", "definitions", "dependentSchemas", "dependencies"), _schema_map),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _schemas),
    **dict.fromkeys(
        (
            *("additionalProperties", "propertyNames", "unevaluatedProperties", "items", "additionalItems", "contains"),
            *("unevaluatedItems", "not", "if", "then", "else"),
        ),
        schema,
    ),
    **dict.fromkeys(
        (
            *("minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength"),
            *("minContains", "maxContains"),
        ),
        _count,
    ),
    "$ref": _reference,
    "$dynamicRef": _reference,
    "$schema": lambda source, depth: source.choice((*DRAFTS, "x")),
    "dependentRequired": lambda source, depth: {name: _strings(source, depth) for name in source.sample(NAMES, 2)},
    "enum": lambda source, depth: [junk(source, 1) for _ in range(source.randrange(4))],
    "const": lambda source, depth: junk(source, 1),
    "format": lambda source, depth: source.choice(("date", "time", "ipv4", "uri", "iri", "regex", "hostname", "x")),
    "pattern": lambda source, depth: regex(source),
    "patternProperties": _patterns,
    "required": _strings,
    "type": lambda source, depth: source.choice((source.choice(TYPES[:7]), source.sample(TYPES[:7], 2))),
    "uniqueItems": lambda source, depth: source.choice((True, False)),
    **dict.fromkeys(("minimum", "maximum"), lambda source, depth: source.choice(NUMBERS)),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), lambda source, depth: source.choice((*NUMBERS, True))),
    **dict.fromkeys(
        ("multipleOf", "divisibleBy"), lambda source, depth: source.choice((1, 2, 0.5, 0.1, 3, 1e-320, 10**30))
    ),
    **dict.fromkeys(("title", "description", "$anchor", "$dynamicAnchor"), lambda source, depth: source.choice(TEXTS)),
    **dict.fromkeys(("$id", "id"), lambda source, depth: source.choice(("http://x/y", "z", "#a", "http://[", "a b"))),
    **dict.fromkeys(("default", "examples", "disallow", "x-guidance"), lambda source, depth: junk(source)),
    "extends": schema,
    "$recursiveRef": lambda source, depth: "#",
}


def mutated(source: random.Random, value: Any) -> Any:
    """A copy with a few changes anywhere in it."""
    value = copy.deepcopy(value)
    for _ in range(source.randrange(1, 5)):
        holder, key = _place(source, value)
        if holder is None:
            return source.choice((junk(source), value, [value], {"anyOf": [value]}))
        _change(source, holder, key)
    return value


def _place(source: random.Random, value: Any) -> tuple[Any, Any]:
    """Some container inside of a value, and a key of it."""
    places: list[tuple[Any, Any]] = []
    pending = [value]
    while pending and len(places) < 500:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        places += [(node, key) for key in keys]
        pending += [node[key] for key in keys]
    return source.choice(places) if places else (None, None)


def _change(source: random.Random, holder: Any, key: Any) -> None:
    what = source.randrange(7)
    if what == 0:
        holder[key] = junk(source)
    elif what == 1:
        holder[key] = schema(source, 2)
    elif what == 2:
        del holder[key]
    elif what == 3 and isinstance(holder, dict):
        holder[source.choice(KEYWORDS)] = holder.pop(key)
    elif what == 4:
        holder[key] = _nested(source, holder[key])
    elif what == 5 and isinstance(holder[key], str):
        holder[key] = text_mutated(source, holder[key])
    elif isinstance(holder, dict):
        keyword = source.choice(KEYWORDS)
        holder[keyword] = _keyword_value(source, keyword, 1)
    else:
        holder.append(holder[key])


def _nested(source: random.Random, value: Any) -> Any:
    wrap = source.choice(("items", "not", "allOf", "anyOf", "properties"))
    for _ in range(source.choice((1, 3, 70, 300))):
        inner: Any = [value] if wrap in ("allOf", "anyOf") else {"a": value} if wrap == "properties" else value
        value = {wrap: inner}
    return value


# -- texts ---------------------------------------------------------------------------------------------------


def text_mutated(source: random.Random, text: str) -> str:
    """A text with pieces put in, left out, repeated or moved."""
    for _ in range(source.randrange(1, 6)):
        at = source.randrange(len(text) + 1)
        end = min(len(text), at + source.randrange(1, 20))
        what = source.randrange(6)
        if what < 3:
            text = text[:at] + source.choice(PIECES) + text[at:]
        elif what == 3:
            text = text[:at] + text[end:]
        elif what == 4:
            text = text[:at] + text[at:end] * source.choice((2, 3, 50)) + text[end:]
        else:
            text = text[end:] + text[:end]
    return text[:100_000]


def _piece(source: random.Random) -> str:
    """Something that belongs somewhere else, now and then."""
    return source.choice(PIECES) if source.random() < 0.2 else "a"


def regex(source: random.Random, depth: int = 3) -> str:
    """A pattern that is one for the most part."""
    if depth <= 0 or source.random() < 0.3:
        return source.choice(("a", "b", ".", "[a-c]", r"\d", r"\w+", "é", "[^x]", r"\.", "", _piece(source)))
    inner = [regex(source, depth - 1) for _ in range(source.randrange(1, 4))]
    shape = source.randrange(6)
    if shape < 2:
        return "".join(inner)
    if shape == 2:
        return "|".join(inner)
    if shape == 3:
        return f"({''.join(inner)}){source.choice(('*', '+', '?', '{2}', '{0,9}', '{999}', '*?', '++', ''))}"
    if shape == 4:
        return f"^{inner[0]}$"
    levels = source.choice((1, 5, 150, 250))
    return "(" * levels + inner[0] + ")" * levels


def _grammar_text(source: random.Random) -> str:
    """A grammar of a few random rules, in one of the syntaxes."""
    lark = source.random() < 0.5
    names = ["start" if lark else "root", "x", "y", "z", "x_y"][: source.randrange(1, 6)]
    lines = [f"{name}{': ' if lark else ' ::= '}{_body(source, names)}" for name in names]
    return "\n".join(lines)


def _body(source: random.Random, names: Sequence[str]) -> str:
    atoms = (*names, '"a"', '"bc"', '("d" | "e")*', '"f"?', '"a"', _piece(source) if source.random() < 0.3 else '"g"')
    parts = [source.choice(atoms) for _ in range(source.randrange(1, 6))]
    return source.choice((" ", " | ")).join(parts) + source.choice(("", ' | "z"'))


# -- the kinds of input --------------------------------------------------------------------------------------


@functools.cache
def _cases(kind: str) -> list[Any]:
    """What the cases of a kind hold."""
    return [case.spec for case in read_suite("full").cases if case.kind == kind]


def _as_text(source: random.Random, value: Any) -> Any:
    """Data, or the JSON text of it, whole or broken."""
    if source.random() < 0.7:
        return value
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return value
    return text if source.random() < 0.3 else text_mutated(source, text)


def _random_schema(source: random.Random) -> Input:
    return Input("json_schema", (_as_text(source, schema(source, source.randrange(1, 6))),), {})


def _broken_schema(source: random.Random) -> Input:
    return Input("json_schema", (_as_text(source, mutated(source, source.choice(_cases("json_schema")))),), {})


def _random_regex(source: random.Random) -> Input:
    return Input("regex", (regex(source),), {})


def _broken_regex(source: random.Random) -> Input:
    return Input("regex", (text_mutated(source, source.choice(_cases("regex"))),), {})


def _random_grammar(source: random.Random) -> Input:
    return Input("grammar", (_grammar_text(source), _syntax(source)), {})


def _broken_grammar(source: random.Random) -> Input:
    return Input("grammar", (text_mutated(source, source.choice(_cases("grammar"))), _syntax(source)), {})


def _syntax(source: random.Random) -> Any:
    return "auto" if source.random() < 0.8 else source.choice(("ebnf", "gbnf", "lark", junk(source, 0)))


def _tag(source: random.Random) -> Input:
    return Input("structural_tag", (_as_text(source, mutated(source, source.choice(_cases("structural_tag")))),), {})


def _choice(source: random.Random) -> Input:
    items: Any = [source.choice((*TEXTS, *NAMES)) for _ in range(source.choice((0, 1, 3, 200, 60_000)))]
    return Input("choice", (items if source.random() < 0.7 else mutated(source, items),), {})


def _response_format(source: random.Random) -> Input:
    holder = {"name": "x", "strict": True, "schema": source.choice(_cases("json_schema"))}
    kinds: list[Any] = [
        {"type": "json_schema", "json_schema": holder},
        {"type": "json_object"},
        {"type": "text"},
        {"type": "structural_tag", **source.choice(_cases("structural_tag"))},
    ]
    return Input("from_openai", (mutated(source, source.choice(kinds)),), {})


def _tools(source: random.Random) -> Input:
    function = {"name": source.choice(NAMES), "parameters": schema(source, 2), "strict": True}
    tools: Any = [{"type": "function", "function": function}, {"type": "function", "function": {"name": "b"}}]
    choices = ("auto", "none", "required", {"type": "function", "function": {"name": "b"}}, junk(source))
    request = {"tools": mutated(source, tools), "tool_choice": source.choice(choices)}
    return Input("from_openai", (), request)


def _options(source: random.Random) -> dict[str, Any]:
    good = {
        "whitespace": source.choice(("any", "compact")),
        "max_whitespace": source.choice((None, 1, 5)),
        "additional_properties": source.choice(("schema", "closed")),
        "json_object_only": source.choice((True, False)),
    }
    return good if source.random() < 0.8 else {name: junk(source, 1) for name in good}


_KINDS: dict[str, Callable[[random.Random], Input]] = {
    "random schema": _random_schema,
    "broken schema": _broken_schema,
    "random regex": _random_regex,
    "broken regex": _broken_regex,
    "random grammar": _random_grammar,
    "broken grammar": _broken_grammar,
    "structural tag": _tag,
    "choice": _choice,
    "response format": _response_format,
    "tools": _tools,
}

KINDS = tuple(_KINDS)
"""What is made."""
