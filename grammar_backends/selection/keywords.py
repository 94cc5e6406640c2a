"""The keywords of JSON Schema: which assert something, and about values of which type.

Plain data of every draft. How one schema uses them is seen through `grammar_backends.selection.view`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grammar_backends.selection.schema import TYPE_BITS

__all__ = ["ASSERTIONS", "COMBINATORS", "GROUPS", "GROUP_BITS"]

_TYPE_KEYWORDS: Mapping[str, Sequence[str]] = {
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

_ANY_KEYWORDS = ("$dynamicRef", "$recursiveRef", "disallow", "else", "extends", "if", "not", "then", "type")
"""The other assertions that concern values of every type."""

GROUPS: Mapping[str, str] = {keyword: name for name, keywords in _TYPE_KEYWORDS.items() for keyword in keywords}
"""The one type whose values an assertion concerns."""

GROUP_BITS: Mapping[str, int] = {name: TYPE_BITS[name] for name in _TYPE_KEYWORDS}
"""The kinds of value of such a type."""

ASSERTIONS = frozenset((*GROUPS, *COMBINATORS, *_ANY_KEYWORDS))
