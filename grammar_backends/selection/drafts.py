"""Keywords that a schema's draft does not know, where it matters that they assert nothing.

Engines enforce them all the same. That refuses too much at most, except where a subschema decides by what it does not
match: what `not`, `if` or `oneOf` holds would then let values pass that the draft refuses. And some keywords take away
from what others say: `prefixItems` from `items`, `minContains: 0` from `contains`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grammar_backends.errors import SpecError
from grammar_backends.selection.schema import SchemaWalk, Site

__all__ = ["check_drafts", "deciding"]

_FIRST: Mapping[str, int] = {
    **dict.fromkeys(("const", "contains", "propertyNames"), 6),
    **dict.fromkeys(("else", "if", "then"), 7),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "maxContains", "minContains"), 8),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), 8),
    "prefixItems": 9,
}
"""The draft that brought a keyword, numbered as `SchemaWalk.draft`; the others are older."""

_LAST: Mapping[str, int] = {"dependencies": 7}
"""The last draft that has a keyword."""

_LOOSENING: Mapping[str, frozenset[str]] = {
    "minContains": frozenset(("contains",)),
    "prefixItems": frozenset(("additionalItems", "items", "unevaluatedItems")),
}
"""Keywords beside which others say less."""

_DECIDING = ("contains", "if", "not", "oneOf")


def check_drafts(sites: SchemaWalk) -> None:
    """Raise where a keyword that is none in the schema's draft would change what is valid by being one (C2).

    Raises:
        SpecError: such a keyword, with its pointer.
    """
    unknown = {keyword for keyword in sites.keywords if not _is_known(keyword, sites.draft)}
    if not unknown:
        return
    for site in deciding(sites):
        for keyword in site.schema if isinstance(site.schema, dict) else ():
            if keyword in unknown:
                raise _unknown(site, keyword, "below not, if, oneOf or contains")
    for site in sites:
        for keyword in unknown & _LOOSENING.keys():
            if isinstance(site.schema, dict) and keyword in site.schema:
                beside = _LOOSENING[keyword].intersection(site.schema)
                if beside:
                    raise _unknown(site, keyword, f"beside {min(beside)}")


def _is_known(keyword: str, draft: int) -> bool:
    return _FIRST.get(keyword, 0) <= draft <= _LAST.get(keyword, draft)


def _unknown(site: Site, keyword: str, place: str) -> SpecError:
    return SpecError(
        f"json_schema: {keyword} is no keyword of the schema's draft, {place}",
        pointer=f"{site.pointer}/{keyword}",
        keyword=keyword,
        hint="Name the draft in $schema that is meant",
    )


def deciding(sites: SchemaWalk) -> Iterator[Site]:
    """The sites that count by what they do not match, with what they are made of, each once."""
    pending = [site for site in sites if site.keyword in _DECIDING]
    seen = {*pending}
    while pending:
        site = pending.pop()
        yield site
        below = [each for each in (site.target, *site.children.values()) if each is not None and each not in seen]
        seen.update(below)
        pending += below
