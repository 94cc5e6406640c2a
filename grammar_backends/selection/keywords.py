"""The keywords of JSON Schema, and one place in a schema as a support table looks at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grammar_backends.contract.spec import JSON, STANDARD_FORMATS, GrammarOptions
from grammar_backends.selection.findings import Finding
from grammar_backends.selection.schema import (
    ANY,
    TYPE_BITS,
    SchemaWalk,
    Site,
)

__all__ = [
    "ASSERTIONS",
    "COMBINATORS",
    "GROUPS",
    "GROUP_BITS",
    "View",
    "asserts_nothing",
    "declared",
]

TYPE_KEYWORDS: Mapping[str, Sequence[str]] = {
    "string": ("format", "maxLength", "minLength", "pattern"),
    "number": ("divisibleBy", "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"),
    "array": (
        "additionalItems",
        "contains",
        "items",
        "maxContains",
        "maxItems",
        "minContains",
        "minItems",
        "prefixItems",
        "unevaluatedItems",
        "uniqueItems",
    ),
    "object": (
        "additionalProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "maxProperties",
        "minProperties",
        "patternProperties",
        "properties",
        "propertyNames",
        "required",
        "unevaluatedProperties",
    ),
}
"""The assertions that only concern values of one type, of every draft."""


COMBINATORS = ("$ref", "allOf", "anyOf", "const", "enum", "oneOf")
"""The assertions whose siblings matter to engines."""


ANY_KEYWORDS = ("$dynamicRef", "$recursiveRef", "disallow", "else", "extends", "if", "not", "then", "type")
"""The other assertions that concern values of every type."""


GROUPS: Mapping[str, str] = {keyword: name for name, keywords in TYPE_KEYWORDS.items() for keyword in keywords}


GROUP_BITS = {name: TYPE_BITS[name] for name in TYPE_KEYWORDS}


ASSERTIONS = frozenset((*GROUPS, *COMBINATORS, *ANY_KEYWORDS))


class View:
    """One site under judgement."""

    __slots__ = ("bits", "options", "schema", "site", "sites")

    def __init__(self, site: Site, sites: SchemaWalk, options: GrammarOptions) -> None:
        self.site = site
        self.sites = sites
        self.options = options
        self.schema: Mapping[str, JSON] = site.schema if isinstance(site.schema, dict) else {}
        self.bits = declared(self.schema)

    def finding(self, keyword: str, reason: str, hint: str | None = None) -> Finding:
        pointer = f"{self.site.pointer}/{keyword}" if keyword in self.schema else self.site.pointer
        return Finding(reason, pointer=pointer, keyword=keyword, hint=hint)

    def number(self, keyword: str) -> float | None:
        value = self.schema.get(keyword)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def declared(schema: Mapping[str, JSON]) -> int:
    """The kinds of value that `type` allows; every kind without one."""
    names = schema.get("type")
    if names is None:
        return ANY
    bits = 0
    for name in names if isinstance(names, list) else [names]:
        bits |= TYPE_BITS.get(name, 0) if isinstance(name, str) else 0
    return bits


_NOTHING: Mapping[str, Sequence[JSON]] = {
    "additionalItems": (True,),
    "additionalProperties": (True,),
    "allOf": ([],),
    "dependencies": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "exclusiveMaximum": (False,),
    "exclusiveMinimum": (False,),
    "items": (True,),
    "minItems": (0,),
    "minLength": (0,),
    "minProperties": (0,),
    "not": (False,),
    "patternProperties": ({},),
    "prefixItems": ([],),
    "properties": ({},),
    "propertyNames": (True,),
    "required": ([],),
    "unevaluatedItems": (True,),
    "unevaluatedProperties": (True,),
    "uniqueItems": (False,),
}


def asserts_nothing(view: View, keyword: str) -> bool:
    """True when a keyword could be left out without changing what is valid."""
    schema = view.schema
    group = GROUPS.get(keyword)
    if group is not None and not view.bits & GROUP_BITS[group]:
        return True
    value = schema[keyword]
    if any(value is empty or (value == empty and type(value) is type(empty)) for empty in _NOTHING.get(keyword, ())):
        return True
    if keyword in ("maxContains", "minContains"):
        return "contains" not in schema
    if keyword == "contains":
        return schema.get("minContains") == 0 and "maxContains" not in schema
    if keyword in ("dependencies", "dependentRequired"):
        return isinstance(value, dict) and all(below == [] or below is True for below in value.values())
    if keyword == "if":
        return "then" not in schema and "else" not in schema
    if keyword in ("then", "else"):
        return "if" not in schema
    if keyword == "additionalItems":
        return not isinstance(schema.get("items"), list)
    if keyword == "format":
        return value not in STANDARD_FORMATS
    if keyword == "unevaluatedProperties":
        return "additionalProperties" in schema
    return keyword == "unevaluatedItems" and isinstance(schema.get("items"), (dict, bool))
