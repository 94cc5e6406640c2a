"""What a lenient policy leaves out of a schema: what is named, and only where the whole then allows more."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from grammar_backends.contract.spec import JSON, GrammarOptions
from grammar_backends.errors import SpecError, shown
from grammar_backends.selection.disjoint import Comparison
from grammar_backends.selection.findings import Finding
from grammar_backends.selection.keywords import ASSERTIONS
from grammar_backends.selection.schema import SchemaWalk, Site, walk
from grammar_backends.selection.support import SchemaSupport

__all__ = ["IGNORABLE", "check_ignorable", "without"]

MAX_ROUNDS = 8
"""Times a schema is read anew after something was left out."""

IGNORABLE = ASSERTIONS - frozenset(
    (
        *("$dynamicRef", "$recursiveRef", "$ref", "additionalItems", "additionalProperties", "disallow", "else"),
        *("extends", "items", "minContains", "patternProperties", "prefixItems", "properties", "then", "type"),
        *("unevaluatedItems", "unevaluatedProperties"),
    )
)
"""The keywords without which a schema allows more, or the same. Others give their siblings a meaning."""
_TOGETHER = {"contains": ("maxContains", "minContains"), "if": ("else", "then")}
"""What goes with a keyword that is left out."""
_TURNING = frozenset(("contains", "if", "not", "propertyNames"))
"""Below these a schema that allows more may make the whole allow less, or is not judged by itself."""
_SEES_SIBLINGS = frozenset(("unevaluatedItems", "unevaluatedProperties"))


def check_ignorable(ignore: Iterable[str]) -> None:
    """Raise unless each name is a keyword that may be ignored, `format:NAME`, or a JSON pointer to such a keyword.

    Raises:
        ValueError: it is none of these; the message says what there is.
    """
    for name in ignore:
        keyword = name.rpartition("/")[2] if name.startswith("/") else "format" if name.startswith("format:") else name
        if keyword not in IGNORABLE:
            raise ValueError(
                f"{shown(name)} cannot be ignored; what can be: {', '.join(sorted(IGNORABLE))}, format:NAME"
            )


def without(
    schema: JSON, support: SchemaSupport, options: GrammarOptions, ignore: frozenset[str]
) -> tuple[JSON, tuple[Finding, ...]]:
    """A schema without what an engine does not enforce and may ignore, and what that was.

    The schema as it is, where references lead into what would be left out, or there is always more of it.
    """
    original, schema = schema, copy.deepcopy(schema)
    ignored: dict[str, Finding] = {}
    for _ in range(MAX_ROUNDS):
        try:
            sites = walk(schema)
        except SpecError:
            break
        turned = _turned(sites)
        found = [finding for finding in support.findings(sites, options) if _may_go(finding, sites, ignore)]
        if any(_site_of(finding, sites) in turned for finding in (*found, *ignored.values())):
            return original, ()
        if not found:
            return schema, tuple(ignored.values())
        for finding in found:
            _leave_out(finding, sites)
            ignored[finding.pointer or ""] = finding
    return original, ()


def _turned(sites: SchemaWalk) -> set[Site]:
    """The sites that cannot allow more without a risk that the whole allows less."""
    comparison = Comparison()
    pending = [site for site in sites if site.keyword in _TURNING]
    for site in sites:
        if not isinstance(site.schema, dict):
            continue
        if site.schema.keys() & _SEES_SIBLINGS:
            pending.append(site)
        if "oneOf" in site.schema and comparison.exclusive(site) is not None:
            pending += site.group("oneOf")
    turned: set[Site] = set()
    while pending:
        site = pending.pop()
        if site not in turned:
            turned.add(site)
            pending += [*site.children.values(), *([site.target] if site.target is not None else [])]
    return turned


def _site_of(finding: Finding, sites: SchemaWalk) -> Site | None:
    return sites.sites.get((finding.pointer or "").removesuffix(f"/{finding.keyword}"))


def _may_go(finding: Finding, sites: SchemaWalk, ignore: frozenset[str]) -> bool:
    keyword, site = finding.keyword, _site_of(finding, sites)
    if keyword not in IGNORABLE or site is None or not isinstance(site.schema, dict) or keyword not in site.schema:
        return False
    named = {keyword, finding.pointer}
    if keyword == "format":
        named.add(f"format:{site.schema['format']}")
    return bool(named & ignore)


def _leave_out(finding: Finding, sites: SchemaWalk) -> None:
    site = _site_of(finding, sites)
    for gone in (finding.keyword, *_TOGETHER.get(finding.keyword or "", ())):
        if site is not None:
            site.schema.pop(gone, None)
