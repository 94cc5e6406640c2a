"""Keywords by which a subschema means something else elsewhere, written so that it does not.

`unevaluatedProperties` and `unevaluatedItems` are about what no keyword around them looks at, and `$dynamicRef` leads
where the schemas say that led to it. Where that is certain from the schema alone, the first two become
`additionalProperties` and `items` beside a list of what is looked at, and the last one a `$ref`. Only then can other
rewrites move and merge subschemas.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass, field

from grammar_backends.contract.spec import JSON
from grammar_backends.selection.findings import Rewrite
from grammar_backends.selection.schema import SchemaWalk, Site, at

__all__ = ["UNEVALUATED", "is_plain", "written_plain"]

MAX_DEPTH = 16
"""Combinators and references that are looked into."""

_ANCHORS = frozenset(("$anchor", "$dynamicAnchor", "$recursiveAnchor"))
_DYNAMIC = {8: "$recursiveRef", 9: "$dynamicRef"}
"""By draft, the reference whose target depends on how one came there."""
_NAMED = frozenset(("$id", *_ANCHORS, *_DYNAMIC.values()))
UNEVALUATED = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_LOOKED_INTO = frozenset(
    ("$ref", "allOf", "anyOf", "contains", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then")
)
"""What `unevaluatedProperties` and `unevaluatedItems` look into: then it matters which keyword says a thing."""
_SOMETIMES = ("anyOf", "oneOf", "if", "then", "else", "dependencies", "dependentSchemas")
"""Keywords whose subschemas need not be valid where the schema is that holds them."""


def is_plain(sites: SchemaWalk) -> bool:
    """True when a subschema means the same wherever it stands, and however it says it."""
    if sites.keywords.isdisjoint({*_NAMED, *UNEVALUATED, "id"}):
        return True
    return not any(
        site.base or _is_named(site) or (_has(site, UNEVALUATED) and _has(site, _LOOKED_INTO)) for site in sites
    )


def written_plain(sites: SchemaWalk) -> tuple[JSON, list[Rewrite]] | None:
    """The schema with all its places a step plainer, and what became of them; None where there is no such step."""
    if any(site.base for site in sites):
        return None
    steps = (_with_references, _without_anchors) if any(map(_is_named, sites)) else (_without_unevaluated,)
    for step in steps:
        document = copy.deepcopy(sites.schema)
        applied = step(sites, document)
        if applied is None or applied:
            return None if applied is None else (document, applied)
    return None


def _has(site: Site, keywords: Collection[str]) -> bool:
    return isinstance(site.schema, dict) and not site.schema.keys().isdisjoint(keywords)


def _is_named(site: Site) -> bool:
    """Whether references may lead to a site by name, or from it to somewhere else each time; the root stays put."""
    return _has(site, _NAMED if site.pointer else _DYNAMIC.values())


def _with_references(sites: SchemaWalk, document: JSON) -> list[Rewrite] | None:
    """References by pointer: in a schema of one resource, dynamic ones lead to the one anchor of that name too."""
    applied: list[Rewrite] = []
    dynamic = _DYNAMIC.get(sites.draft)
    for site in sites:
        for keyword in (dynamic, "$ref"):
            if keyword is None or not _has(site, (keyword,)):
                continue
            target = sites.anchored(site.schema[keyword])
            if target is None or (keyword == dynamic and "$ref" in site.schema):
                return None
            if keyword == dynamic or site.schema[keyword].partition("#")[2][:1] not in ("", "/"):
                node = at(document, site.pointer)
                del node[keyword]
                node["$ref"] = "#" + target.replace("%", "%25")
                applied.append(Rewrite(keyword, site.pointer, "a reference by pointer"))
    return applied


def _without_anchors(sites: SchemaWalk, document: JSON) -> list[Rewrite] | None:
    """No anchors, to which nothing refers any more."""
    applied: list[Rewrite] = []
    for site in sites:
        for anchor in sorted(_ANCHORS.intersection(site.schema if isinstance(site.schema, dict) else ())):
            del at(document, site.pointer)[anchor]
            applied.append(Rewrite(anchor, site.pointer, "left out where nothing refers to it"))
    return applied


def _without_unevaluated(sites: SchemaWalk, document: JSON) -> list[Rewrite] | None:
    """`additionalProperties` and `items` for what all that is around does not look at."""
    applied: list[Rewrite] = []
    for site in sorted(sites, key=lambda site: -site.pointer.count("/")):  # inner ones first: what holds them moves
        if _has(site, UNEVALUATED) and _has(site, _LOOKED_INTO):
            looked = _Looked(sites.draft)
            looked.into(site, MAX_DEPTH)
            for keyword, write in (("unevaluatedProperties", _additional), ("unevaluatedItems", _further)):
                if keyword in site.schema:
                    if not looked.is_certain(keyword):
                        return None
                    write(at(document, site.pointer), looked)
                    applied.append(Rewrite(keyword, site.pointer, "additional to all that is looked at around it"))
    return applied[::-1]


def _additional(node: dict[str, JSON], looked: _Looked) -> None:
    rest = node.pop("unevaluatedProperties")
    if looked.all_properties:
        return
    for keyword, found in (("properties", looked.names), ("patternProperties", looked.patterns)):
        own = node.get(keyword, {})
        if found.keys() - own.keys():
            node[keyword] = {**own, **{name: {} for name in found if name not in own}}
    node["additionalProperties"] = rest


def _further(node: dict[str, JSON], looked: _Looked) -> None:
    rest = node.pop("unevaluatedItems")
    if looked.all_items:
        return
    listed, further = ("items", "additionalItems") if looked.draft < 9 else ("prefixItems", "items")
    own = node.get(listed, [])
    if looked.items:
        node[listed] = [*own, *({} for _ in range(looked.items - len(own)))]
    node[further if looked.items or looked.draft >= 9 else "items"] = rest


@dataclass
class _Looked:
    """What a schema looks at by keywords that hold for every value which is valid under it.

    Attributes:
        draft: as `SchemaWalk.draft`.
        names: properties by name.
        patterns: and by pattern.
        all_properties: whatever their names.
        items: as many first items.
        all_items: or all of them.
        perhaps: what is looked at where a value is valid under some subschema.
        is_known: False where a reference leads too far, or in a circle.
        tells_items: False where it depends on an item whether it is looked at.
    """

    draft: int
    names: dict[str, None] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    all_properties: bool = False
    items: int = 0
    all_items: bool = False
    perhaps: list[_Looked] = field(default_factory=list)
    is_known: bool = True
    tells_items: bool = True

    def into(self, site: Site, depth: int, is_inside: bool = False) -> None:
        """Add what a site looks at; `is_inside` for one below, where unevaluated is nothing any more."""
        schema = site.schema
        if not isinstance(schema, dict):
            return
        self.is_known = self.is_known and depth > 0 and not (site.target is None and "$ref" in schema)
        if not self.is_known:
            return
        self.names.update(dict.fromkeys(schema.get("properties", ())))
        self.patterns.update(dict.fromkeys(schema.get("patternProperties", ())))
        self.all_properties |= "additionalProperties" in schema or (is_inside and "unevaluatedProperties" in schema)
        self._items(schema, is_inside)
        for part in (site.target, *site.group("allOf")):
            if part is not None:
                self.into(part, depth - 1, is_inside=True)
        for child in (child for keyword in _SOMETIMES for child in site.group(keyword)):
            self.perhaps.append(_Looked(self.draft))
            self.perhaps[-1].into(child, depth - 1, is_inside=True)

    def _items(self, schema: dict[str, JSON], is_inside: bool) -> None:
        listed = schema.get("items" if self.draft < 9 else "prefixItems")
        first = len(listed) if isinstance(listed, list) else 0
        self.items = max(self.items, first)
        further = "additionalItems" if self.draft < 9 and first else "items"
        self.all_items |= further in schema or (is_inside and "unevaluatedItems" in schema)
        self.tells_items = self.tells_items and "contains" not in schema

    def is_certain(self, keyword: str) -> bool:
        """Whether all values that are valid have the same looked at, as far as a keyword asks for it."""
        parts = [self]
        for part in parts:
            parts += part.perhaps
        if not all(part.is_known for part in parts):
            return False
        if keyword == "unevaluatedItems":
            return self.all_items or all(
                part.tells_items and not part.all_items and part.items <= self.items for part in parts
            )
        return self.all_properties or all(
            not part.all_properties
            and part.names.keys() <= self.names.keys()
            and part.patterns.keys() <= self.patterns.keys()
            for part in parts
        )
