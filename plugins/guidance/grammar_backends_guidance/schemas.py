"""JSON schemas written anew for llguidance, so that it enforces what they mean.

Everything here was measured on the engine: what it refuses without need, and where it takes texts that a schema
forbids. What it cannot be made to enforce is refused by the front end, from the data in `support.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

from grammar_backends.contract.formats import FORMAT_PATTERNS
from grammar_backends.contract.references import DATA_KEYWORDS, lone_references
from grammar_backends.contract.regex import CharacterSet, complement, parse_regex, render_set, union
from grammar_backends.contract.spec import STANDARD_FORMATS
from grammar_backends.errors import SpecError
from grammar_backends_guidance import DIALECT

__all__ = ["rewritten"]

BY_NAME = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose value holds schemas by name."""
HOLDERS = frozenset({"$defs", "$id", "$schema", "definitions"})
"""Keywords that say nothing about a value, and where or what a schema is."""
KEYWORDS = frozenset(
    (
        *(*HOLDERS, *BY_NAME, "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "$ref"),
        *("additionalItems", "additionalProperties", "allOf", "anyOf", "const", "contains", "dependencies"),
        *("dependentRequired", "disallow", "divisibleBy", "else", "enum", "exclusiveMaximum", "exclusiveMinimum"),
        *("extends", "format", "id", "if", "items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum"),
        *("minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern"),
        *("prefixItems", "propertyNames", "required", "then", "type", "unevaluatedItems", "unevaluatedProperties"),
        "uniqueItems",
    )
)
"""The keywords that llguidance may see: all but annotations."""
IDS = ("$id", "id")
DRAFTS = {
    **{f"draft-0{number}": f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7)},
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
}
"""By what tells a draft in `$schema`, its name as llguidance knows it, which refuses every other spelling. The latest
draft needs none."""
BRANCHES = frozenset({"allOf", "anyOf", "oneOf"})
COMBINATORS = BRANCHES | {"$ref"}
URI_CHARACTERS = "!#$%&'()*+,/:;=?@[]~"
"""What may stand in a reference as it is, beside letters and digits; llguidance refuses all else."""
MERGING = frozenset({"dependentSchemas", "else", "if", "not", "then"})

_LETTER, _INNER = "[A-Za-z0-9]", "[A-Za-z0-9-]"
_LABEL = (
    rf"{_LETTER}(?:{_INNER}?{_LETTER}|{_INNER}(?:{_LETTER}{_LETTER}|-{_LETTER}"
    rf"|(?:{_LETTER}{_INNER}|-{_LETTER}){_INNER}{{0,58}}{_LETTER}))?"
)
EXACT_FORMATS = {
    **{name: FORMAT_PATTERNS[name] for name in ("date", "time", "date-time", "ipv6")},
    "hostname": rf"^{_LABEL}(?:\.{_LABEL})*$",
}
"""Formats of which llguidance takes too much: the 29th of February of any year, the second 60 of any minute, labels
that claim to be Punycode and are not; or too little: IPv6 addresses that end in IPv4's notation. Here that second is
taken where it is certain to be one, at the end of a day in UTC, and no label has hyphens in both its third and its
fourth place."""
MAX_HOSTNAME = 253

_BLANKS = r"\t-\r\x20\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF"
ECMA = {r"\s": f"[{_BLANKS}]", r"\S": rf"[^{_BLANKS}]"}
"""Classes that hold other characters in ECMA 262 than for llguidance."""
ANY_NAME = "^(?s:.)*$"
MOST_OF_NAMES = 2_000
"""Characters of listed names that a pattern may leave out."""
CONTROLS = (0x00, 0x1F)
"""A class that holds all of these is taken for one that also holds the quote and the backslash, as escapes."""
ESCAPE = re.compile(r"\\.", re.DOTALL)
SET_SYNTAX = re.compile(r"\[|&&|--|~~")
"""What is a class in a class, or an operator on classes, for llguidance only."""
CLASS = re.compile(r"\\.|(\[\^?\]?(?:\\.|[^\]\\])*\])", re.DOTALL)


def rewritten(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema in the form that llguidance enforces.

    - Options inside it go: they would loosen what the request's own options say (B5).
    - The draft is named as llguidance knows it, or not at all where it is the latest or another one.
    - Names of schemas go that no reference uses: llguidance refuses those that are no URIs, or have a fragment.
    - Annotations go: beside a reference that leads back to itself, llguidance refuses all that it does not know.
    - What stands beside a `$ref` goes in the drafts that ignore it, since llguidance would not.
    - Formats that JSON Schema does not define go: they are annotations, which llguidance would refuse.
    - Dates, times and host names are written as patterns, which know the calendar and the limits.
    - `\\s` and `\\S` in patterns are those of ECMA 262.
    - A class in a pattern keeps out the quote and the backslash when it excludes them, and is no set of sets: `[[a]`.
    - References have their escapes, as a URI must: `#/$defs/%C3%A9`.
    - Keywords that are read together stand together, with no combinator between them.
    - The name of an additional property cannot be a listed name in escapes (`"\\u0061"` for `a`).
    """
    references = [*_references(schema)]
    if all(reference.startswith("#/") or reference == "#" for reference in references):
        schema = {key: value for key, value in schema.items() if key not in IDS}
    schema = lone_references(_asserting(schema, " ".join(references)))
    prepared: dict[str, Any] = _Writer(closes_names=_references_stand_alone(schema)).write(schema, alone=True)
    return prepared


def _asserting(schema: Any, references: str, are_names: bool = False) -> Any:
    """A schema without annotations, but for those that a reference leads into."""
    if isinstance(schema, list):
        return [_asserting(item, references) for item in schema]
    if not isinstance(schema, dict):
        return schema
    written: dict[str, Any] = {}
    for key, value in schema.items():
        if are_names:
            written[key] = _asserting(value, references)
        elif key in DATA_KEYWORDS & KEYWORDS:
            written[key] = value
        elif key == "$schema":
            draft = next((draft for name, draft in DRAFTS.items() if name in str(value)), None)
            if draft is not None:
                written[key] = draft
        elif key in IDS and (not references or (str(value).startswith("#") and str(value) not in references)):
            continue
        elif key in KEYWORDS or f"/{key}" in references:
            written[key] = _asserting(value, references, key in BY_NAME or key == "dependencies")
    return written


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        yield unquote(schema["$ref"]).replace("~1", "/").replace("~0", "~")
    for below in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _references(below)


class _Writer:
    """Writes schemas anew.

    Args:
        closes_names: whether the names of additional properties may be written as a pattern.
    """

    def __init__(self, closes_names: bool) -> None:
        self._closes_names = closes_names

    def write(self, schema: Any, alone: bool) -> Any:
        """One schema; `alone` when the engine will not merge it with another one."""
        if isinstance(schema, list):
            return [self.write(item, alone) for item in schema]
        if not isinstance(schema, dict):
            return schema
        written: dict[str, Any] = {}
        for key, value in schema.items():
            if key in DATA_KEYWORDS:
                written[key] = value
            elif key == "$ref" and isinstance(value, str):
                written[key] = quote(value, safe=URI_CHARACTERS)
            elif key in BY_NAME and isinstance(value, dict):
                names = {name: self.write(below, _stays_alone(schema, key, alone)) for name, below in value.items()}
                written[key] = {_pattern(name): below for name, below in names.items()} if "pattern" in key else names
            elif key == "format" and isinstance(value, str) and value in EXACT_FORMATS:
                continue
            elif key == "pattern" and isinstance(value, str):
                written[key] = _pattern(value)
            elif key != "format" or not isinstance(value, str) or value in STANDARD_FORMATS:
                written[key] = self.write(value, _stays_alone(schema, key, alone))
        _write_format(schema, written)
        if alone and self._closes_names:
            _close_names(written)
        return _in_one_run(written)


def _in_one_run(schema: dict[str, Any]) -> dict[str, Any]:
    """The same keywords without a combinator between those that are read together.

    llguidance goes through them in their order and reads what stands between two combinators as a schema of its own,
    in which `additionalProperties` sees no `properties` that stand elsewhere. Properties of combinators keep their
    place before or after those of the schema itself.
    """
    keywords = list(schema)
    is_listing = any(below is not False for below in schema.get("properties", {}).values())
    naming = "properties" if is_listing else "required"
    place = keywords.index(naming) if naming in schema else 0
    before = [keyword for keyword in keywords[:place] if keyword in COMBINATORS]
    after = [keyword for keyword in keywords[place:] if keyword in COMBINATORS]
    if not (before or after):
        return schema
    together = [keyword for keyword in keywords if keyword not in COMBINATORS]
    return {keyword: schema[keyword] for keyword in (*before, *together, *after)}


def _write_format(schema: dict[str, Any], written: dict[str, Any]) -> None:
    name = schema.get("format")
    exact = EXACT_FORMATS.get(name) if isinstance(name, str) else None
    if exact is None:
        return
    if "pattern" in written:
        written["allOf"] = [*written.get("allOf", ()), {"pattern": exact}]
    else:
        written["pattern"] = exact
    if name == "hostname":
        written["maxLength"] = min(schema.get("maxLength", MAX_HOSTNAME), MAX_HOSTNAME)


def _stays_alone(schema: dict[str, Any], key: str, alone: bool) -> bool:
    """Whether what a keyword holds is not merged with anything else."""
    if key in MERGING:
        return False
    if key in BRANCHES:
        single = key != "allOf" or (isinstance(schema[key], list) and len(schema[key]) == 1)
        return alone and single and not schema.keys() - HOLDERS - {key}
    return alone


def _references_stand_alone(schema: Any, alone: bool = True) -> bool:
    """Whether no reference is merged with anything, so that its target is not either."""
    if isinstance(schema, list):
        return all(_references_stand_alone(item, alone) for item in schema)
    if not isinstance(schema, dict):
        return True
    if "$ref" in schema and (not alone or schema.keys() - HOLDERS - {"$ref"}):
        return False
    return all(
        _references_stand_alone(list(value.values()) if key in BY_NAME and isinstance(value, dict) else value, below)
        for key, value in schema.items()
        if key not in DATA_KEYWORDS
        for below in [_stays_alone(schema, key, alone)]
    )


def _close_names(schema: dict[str, Any]) -> None:
    # llguidance takes any spelling of a string as the name of an additional property, but one spelling of each
    # character where the name has a pattern; both spellings of a control character.
    if not schema.get("properties") or schema.get("patternProperties") or schema.get("additionalProperties") is False:
        return
    if schema.keys() & {"maxProperties", "minProperties", "unevaluatedProperties"}:
        return
    additional = schema.get("additionalProperties", True)
    names = list(schema["properties"])
    # A pattern speaks of listed names too, which matters unless it allows them everything.
    are_among_others = additional in (True, {}) and all(map(str.isprintable, names))
    if not are_among_others and max(map(len, names)) * len(names) > MOST_OF_NAMES:
        return
    schema["patternProperties"] = {ANY_NAME if are_among_others else f"^{_other_than(names)}$": additional}
    schema["additionalProperties"] = False


def _other_than(names: list[str]) -> str:
    """A pattern for every text but these."""
    rests: dict[str, list[str]] = {}
    for name in names:
        if name:
            rests.setdefault(name[0], []).append(name[1:])
    ranges = union((ord(first), ord(first)) for first in rests)
    others = complement(union([*ranges, (0, 0)]))  # without NUL, as in `_class`
    options = [f"{render_set(others, DIALECT)}(?s:.)*"]
    options += [f"{render_set(((ord(first),) * 2,), DIALECT)}{_other_than(below)}" for first, below in rests.items()]
    return f"(?:{'|'.join(options)})" + ("" if "" in names else "?")


def _pattern(pattern: str) -> str:
    return CLASS.sub(lambda found: _class(found[1]) if found[1] else ECMA.get(found[0], found[0]), pattern)


def _class(text: str) -> str:
    """A class that llguidance reads rightly inside a JSON string."""
    try:
        node = parse_regex(text).root
    except SpecError:
        return text
    if not isinstance(node, CharacterSet):
        return text
    is_plain = not SET_SYNTAX.search(ESCAPE.sub("", text[1:]))
    has_escapes = _holds(node, ord('"'), ord('"')) and _holds(node, ord("\\"), ord("\\"))
    if has_escapes or not _holds(node, *CONTROLS):
        return text if is_plain else render_set(node.ranges, DIALECT)
    if is_plain and text.startswith("[^"):
        return rf"[^\x00{text[2:]}"
    return render_set(tuple((max(low, 1), high) for low, high in node.ranges if high), DIALECT)


def _holds(node: CharacterSet, first: int, last: int) -> bool:
    return any(low <= first and last <= high for low, high in node.ranges)
