"""One place in a schema as the checks of a support table look at it: its keywords, types and the options in force.

Whether a keyword asserts anything at that place is answered here too, since it depends on its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping

from grammar_backends.contract.spec import JSON, STANDARD_FORMATS, GrammarOptions
from grammar_backends.selection.disjoint import Comparison
from grammar_backends.selection.findings import Finding
from grammar_backends.selection.keywords import GROUP_BITS, GROUPS
from grammar_backends.selection.schema import SchemaWalk, Site

__all__ = ["View", "asserts_nothing"]


class View:
    """One site under judgement.

    Attributes:
        site: the site.
        sites: the schema that it is of.
        options: how the schema is to be read.
        comparison: what is known about pairs of sites, shared by every view of one schema.
        schema: the site's schema as an object; empty for a boolean.
        keywords: its keywords, in their order.
        bits: the kinds of value that its `type` allows.
    """

    __slots__ = ("bits", "comparison", "keywords", "options", "schema", "site", "sites")

    def __init__(self, site: Site, sites: SchemaWalk, options: GrammarOptions, comparison: Comparison) -> None:
        self.site = site
        self.sites = sites
        self.options = options
        self.comparison = comparison
        self.schema: Mapping[str, JSON] = site.schema if isinstance(site.schema, dict) else {}
        self.keywords = tuple(self.schema)
        self.bits = site.bits

    def finding(self, keyword: str, reason: str, hint: str | None = None) -> Finding:
        """A finding at this keyword, or at the site when the keyword is not written there."""
        pointer = f"{self.site.pointer}/{keyword}" if keyword in self.schema else self.site.pointer
        return Finding(reason, pointer=pointer, keyword=keyword, hint=hint)

    def number(self, keyword: str) -> float | None:
        """The value of a keyword, where it is a number."""
        value = self.schema.get(keyword)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


_NOTHING: Mapping[str, JSON] = {
    "additionalItems": True,
    "additionalProperties": True,
    "allOf": [],
    "dependencies": {},
    "dependentRequired": {},
    "dependentSchemas": {},
    "exclusiveMaximum": False,
    "exclusiveMinimum": False,
    "items": True,
    "minItems": 0,
    "minLength": 0,
    "minProperties": 0,
    "not": False,
    "patternProperties": {},
    "prefixItems": [],
    "properties": {},
    "propertyNames": True,
    "required": [],
    "unevaluatedItems": True,
    "unevaluatedProperties": True,
    "uniqueItems": False,
}


def asserts_nothing(view: View, keyword: str) -> bool:
    """True when a keyword could be left out without changing what is valid."""
    schema = view.schema
    group = GROUPS.get(keyword)
    if group is not None and not view.bits & GROUP_BITS[group]:
        return True
    value = schema[keyword]
    empty = _NOTHING.get(keyword)
    if empty is not None and type(value) is type(empty) and value == empty:  # null is a value of `const`
        return True
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
