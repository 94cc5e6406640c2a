"""A JSON schema as a graph of sites, and what is wrong with a schema whatever engine compiles it.

`walk` finds every subschema that takes part in validation by keyword position, resolves local references and
bounds size and depth; `check_schema` refuses malformed and unsatisfiable schemas (B12, C2.2, D4, D6, D9). Which
engine enforces which keyword is not judged here: see `grammar_backends.selection.support`.
"""

from __future__ import annotations

import functools
import json
import math
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard
from urllib.parse import unquote, urldefrag, urljoin

from grammar_backends.contract.spec import JSON, json_type
from grammar_backends.errors import SpecError, shown
from grammar_backends.selection.patterns import searched

__all__ = ["FORMAT_LENGTHS", "SchemaWalk", "Site", "at", "check_schema", "escape", "put", "unescape", "walk"]

MAX_DEPTH = 64
"""Levels of subschemas in subschemas (D9)."""
MAX_JSON_DEPTH = 200
"""Levels of objects and arrays, counting those that are no schemas (`properties`, `enum`, `default`)."""
MAX_REF_CHAIN = 256
"""References that lead on to one another. llguidance 1.9.1 dies of a stack overflow at about 1,200."""
MAX_SITES = 50_000
"""Subschemas in one schema."""
MAX_TRIALS = 20_000
"""Patterns that are tried on the names of required properties in one schema; past that, any may match."""

SCHEMA, SCHEMAS, SCHEMA_MAP, ITEMS, DEPENDENCIES = "schema", "schemas", "map", "items", "dependencies"

APPLICATORS: Mapping[str, str] = {
    "additionalItems": SCHEMA,
    "additionalProperties": SCHEMA,
    "allOf": SCHEMAS,
    "anyOf": SCHEMAS,
    "contains": SCHEMA,
    "dependencies": DEPENDENCIES,
    "dependentSchemas": SCHEMA_MAP,
    "else": SCHEMA,
    "if": SCHEMA,
    "items": ITEMS,
    "not": SCHEMA,
    "oneOf": SCHEMAS,
    "patternProperties": SCHEMA_MAP,
    "prefixItems": SCHEMAS,
    "properties": SCHEMA_MAP,
    "propertyNames": SCHEMA,
    "then": SCHEMA,
    "unevaluatedItems": SCHEMA,
    "unevaluatedProperties": SCHEMA,
}
"""The keywords that hold subschemas, and how. `$defs` and `definitions` only matter through a reference."""

FORMAT_LENGTHS: Mapping[str, tuple[int, int | None]] = {
    "date": (10, 10),
    "date-time": (20, None),
    "time": (9, None),
    "uuid": (36, 36),
    "ipv4": (7, 15),
    "ipv6": (2, 45),
    "email": (3, None),
    "duration": (3, None),
}
"""Shortest and longest string of a format, where the format itself says so."""


@dataclass(slots=True, eq=False)
class Site:
    """One subschema in use.

    Attributes:
        pointer: JSON pointer from the root of the document.
        schema: the subschema, an object or a boolean.
        keyword: the applicator that holds it; "" for the root, "$ref" for what only a reference reaches.
        children: the subschemas below, by `(keyword, name or index)`; name is None for a single subschema.
        target: where `$ref` leads; None without one, and for one that leaves the document.
        base: pointer of the schema resource that `#` means here: "" unless an enclosing schema has its own `$id`.
        bits: the kinds of value that `type` allows; all of them for a boolean.
    """

    pointer: str
    schema: JSON
    keyword: str
    depth: int
    base: str
    base_uri: str
    bits: int
    children: dict[tuple[str, str | int | None], Site] = field(default_factory=dict)
    target: Site | None = None

    def group(self, keyword: str) -> list[Site]:
        """The subschemas under one keyword, in document order."""
        if not isinstance(self.schema, dict) or keyword not in self.schema:
            return []
        return [child for (name, _), child in self.children.items() if name == keyword]


class SchemaWalk:
    """Every site of a schema, outer ones first, with what references reach. Make one with `walk`."""

    def __init__(self, schema: JSON) -> None:
        self.schema = schema
        self.draft = draft = _draft(schema)
        """3 to 7 for the old drafts, 8 for 2019-09, 9 for all later ones."""
        self.legacy_refs = draft < 8
        """True when siblings of `$ref` are ignored (drafts before 2019-09); the sites then do not show them."""
        self.legacy_bounds = draft < 6
        """True when `exclusiveMinimum` and its like are booleans (drafts before 6)."""
        self.sites: dict[str, Site] = {}
        self.keywords: set[str] = set()
        """Every keyword that some site has, also those that mean nothing."""
        self._resources: _Resources | None = None
        self._pending: list[Site] = []
        self.root = self._site("", schema, "", 0, "", "")
        self._run()
        if sum(site.target is not None for site in self) > MAX_REF_CHAIN:  # fewer make no longer chain
            _check_chains(self.root)

    def __iter__(self) -> Iterator[Site]:
        return iter(self.sites.values())

    def __len__(self) -> int:
        return len(self.sites)

    @functools.cached_property
    def recursive(self) -> frozenset[Site]:
        """The sites whose reference leads back to them."""
        referring = [(site, site.target) for site in self if site.target is not None]
        leads: dict[Site, list[Site]] = {target: [] for _, target in referring}
        above = {child: site for site in self for child in site.children.values()} if leads else {}
        holders: dict[Site, list[Site]] = {}
        for site, target in referring:
            path = [site]
            while path[-1] in above:
                path.append(above[path[-1]])
            holders[site] = [holder for holder in path if holder in leads]
            for holder in holders[site]:
                leads[holder].append(target)
        component = _components(leads)
        return frozenset(
            site for site, target in referring if any(component[target] == component[each] for each in holders[site])
        )

    @functools.cached_property
    def fractions(self) -> frozenset[int]:
        """The whole parts, rounded down, of fractional bounds that may be merged with others; empty where no schemas
        are combined."""
        if not any(site.target is not None or site.keyword in ("allOf", "anyOf", "oneOf") for site in self):
            return frozenset()
        bounds = (bound for site in self if isinstance(site.schema, dict) for bound in number_bounds(site.schema)[::2])
        return frozenset(
            math.floor(bound) for bound in bounds if isinstance(bound, float) and math.isfinite(bound) and bound % 1
        )

    def _site(self, pointer: str, schema: JSON, keyword: str, depth: int, base: str, base_uri: str) -> Site:
        known = self.sites.get(pointer)
        if known is not None:
            return known
        if not isinstance(schema, (dict, bool)):
            raise _malformed(pointer, keyword, f"a schema is an object or a boolean, not {json_type(schema)}")
        if depth > MAX_DEPTH:
            raise SpecError(f"json_schema: nested too deep (more than {MAX_DEPTH} levels)", pointer=pointer)
        if len(self.sites) >= MAX_SITES:
            raise SpecError(f"json_schema: too large (more than {MAX_SITES} subschemas)", pointer=pointer)
        bits = ANY
        if isinstance(schema, dict):
            own_uri = _own_uri(schema, self.legacy_refs) if "$id" in schema or "id" in schema else ""
            if own_uri:
                base_uri, base = _joined(base_uri, own_uri, pointer, "$id"), pointer
            if self.legacy_refs and "$ref" in schema:
                schema = {"$ref": schema["$ref"]}
            if "type" in schema:
                bits = declared(schema)
            self.keywords.update(schema)
        site = Site(pointer, schema, keyword, depth, base, base_uri, bits)
        self.sites[pointer] = site
        self._pending.append(site)
        return site

    def _run(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            for site in batch:
                if isinstance(site.schema, dict):
                    self._expand(site)

    def _expand(self, site: Site) -> None:
        for keyword, value in site.schema.items():
            shape = APPLICATORS.get(keyword)
            if shape is not None:
                self._children(site, keyword, value, shape)
        reference = site.schema.get("$ref")
        if reference is not None:
            site.target = self._resolve(site, reference)

    def _children(self, site: Site, keyword: str, value: JSON, shape: str) -> None:
        pointer, depth, base, uri = f"{site.pointer}/{keyword}", site.depth + 1, site.base, site.base_uri
        if shape == ITEMS:
            shape = SCHEMAS if isinstance(value, list) else SCHEMA
        if shape == SCHEMA:
            site.children[keyword, None] = self._site(pointer, value, keyword, depth, base, uri)
        elif shape == SCHEMAS:
            if not isinstance(value, list):
                raise _malformed(site.pointer, keyword, f"must be a list of schemas, not {json_type(value)}")
            for index, item in enumerate(value):
                site.children[keyword, index] = self._site(f"{pointer}/{index}", item, keyword, depth, base, uri)
        elif not isinstance(value, dict):
            raise _malformed(site.pointer, keyword, f"must be an object, not {json_type(value)}")
        else:
            for name, item in value.items():
                if not (shape == DEPENDENCIES and isinstance(item, (list, str))):
                    child = self._site(f"{pointer}/{escape(name)}", item, keyword, depth, base, uri)
                    site.children[keyword, name] = child

    def _resolve(self, site: Site, reference: JSON) -> Site | None:
        if not isinstance(reference, str):
            raise _malformed(site.pointer, "$ref", f"must be a string, not {json_type(reference)}")
        if reference.startswith("#/") or reference in ("#", ""):
            return self._follow(site, site.base + unquote(reference[1:]), reference)
        if self._resources is None:
            self._resources = _Resources(self.schema, self.legacy_refs)
        uri, fragment = urldefrag(_joined(site.base_uri, reference, site.pointer, "$ref"))
        fragment = unquote(fragment)
        base = self._resources.bases.get(uri)
        if base is None:
            return None
        if fragment and not fragment.startswith("/"):
            anchored = self._resources.anchors.get((uri, fragment))
            if anchored is None:
                raise _unresolved(site, reference)
            return self._follow(site, anchored, reference)
        return self._follow(site, base + fragment, reference)

    def anchored(self, reference: JSON) -> str | None:
        """Where a reference within the document leads; None where there is no such anchor, or other resources."""
        if not isinstance(reference, str):
            return None
        try:
            resources = self._resources = self._resources or _Resources(self.schema, self.legacy_refs)
            uri, fragment = urldefrag(urljoin(self.root.base_uri, reference))
        except (SpecError, ValueError):  # some name is no URI
            return None
        if any(resources.bases.values()) or uri not in resources.bases:
            return None
        fragment = unquote(fragment)
        return fragment if fragment[:1] in ("", "/") else resources.anchors.get((uri, fragment))

    def _follow(self, site: Site, pointer: str, reference: str) -> Site:
        known = self.sites.get(pointer)
        if known is not None:
            return known
        node: JSON = self.schema
        walked, base, uri = "", "", self.root.base_uri
        parts = pointer.split("/")[1:]
        for index, part in enumerate(parts, 1):
            node, segment = _step(node, part, site, reference)
            walked = f"{walked}/{segment}"
            own = _own_uri(node, self.legacy_refs) if isinstance(node, dict) and index < len(parts) else ""
            if own:
                base, uri = walked, _joined(uri, own, walked, "$id")
        if not isinstance(node, (dict, bool)):
            raise _malformed(site.pointer, "$ref", f"leads to {json_type(node)}, which is no schema", reference)
        return self._site(walked, node, "$ref", 0, base, uri)


class _Resources:
    """The `$id`s and anchors of a document, definitions included; made only for a reference that needs it."""

    def __init__(self, schema: JSON, legacy: bool) -> None:
        self.bases: dict[str, str] = {"": ""}
        self.anchors: dict[tuple[str, str], str] = {}
        stack: list[tuple[JSON, str, str]] = [(schema, "", "")]
        while stack:
            node, pointer, uri = stack.pop()
            if isinstance(node, dict):
                uri = self._register(node, pointer, uri, legacy)
                stack.extend(
                    (value, f"{pointer}/{escape(key)}", uri)
                    for key, value in node.items()
                    if key not in ("enum", "const", "default", "examples")
                )
            elif isinstance(node, list):
                stack.extend((value, f"{pointer}/{index}", uri) for index, value in enumerate(node))

    def _register(self, node: dict[str, JSON], pointer: str, uri: str, legacy: bool) -> str:
        own = _own_uri(node, legacy)
        if own:
            uri = _joined(uri, own, pointer, "$id")
            self.bases.setdefault(urldefrag(uri)[0], pointer)
        bare = urldefrag(uri)[0]
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(keyword), str):
                self.anchors.setdefault((bare, node[keyword]), pointer)
        for keyword in ("$id", "id"):
            name = node.get(keyword)
            if isinstance(name, str) and name.startswith("#") and not name.startswith("#/"):
                self.anchors.setdefault((bare, name[1:]), pointer)
        return bare


def walk(schema: JSON) -> SchemaWalk:
    """The sites of a schema, by keyword position (C2.5), with local references resolved.

    Raises:
        SpecError: no schema at some position, an unresolvable local `$ref`, or too deep or large (D9, D10).
    """
    _check_json_depth(schema)
    return SchemaWalk(schema)


@functools.lru_cache(maxsize=4)
def walk_of(text: str) -> SchemaWalk:
    """`walk` of a schema in its JSON text; the latest few are kept, since every backend's judgement needs one."""
    return walk(json.loads(text))


def at(document: JSON, pointer: str) -> JSON:
    """The value at a JSON pointer, inside of a document that has one there."""
    for part in pointer.split("/")[1:]:
        document = document[int(part) if isinstance(document, list) else unescape(part)]
    return document


def put(document: JSON, pointer: str, value: JSON) -> None:
    """Set the value at a JSON pointer that is not the root, inside of a document that has one there."""
    above, _, last = pointer.rpartition("/")
    holder = at(document, above)
    holder[int(last) if isinstance(holder, list) else unescape(last)] = value


def escape(name: str) -> str:
    """A property name as a JSON pointer's segment."""
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


def unescape(segment: str) -> str:
    """The property name that a JSON pointer's segment stands for."""
    return segment.replace("~1", "/").replace("~0", "~")


def _step(node: JSON, part: str, site: Site, reference: str) -> tuple[JSON, str]:
    key = unescape(part)
    if isinstance(node, dict) and key in node:
        return node[key], escape(key)
    if isinstance(node, list) and key.isascii() and key.isdigit() and int(key) < len(node):
        return node[int(key)], key
    raise _unresolved(site, reference)


def _joined(base: str, uri: str, pointer: str, keyword: str) -> str:
    try:
        return urljoin(base, uri)
    except ValueError:
        raise _malformed(pointer, keyword, "is no URI reference", uri) from None


def _own_uri(schema: Mapping[str, JSON], legacy: bool) -> str:
    uri = schema.get("$id")
    if not isinstance(uri, str):
        uri = schema.get("id") if legacy and "$schema" in schema else None
    # In older drafts "#name" is an anchor, and siblings of $ref do not exist.
    if not isinstance(uri, str) or uri.startswith("#") or (legacy and "$ref" in schema):
        return ""
    return uri


def _draft(schema: JSON) -> int:
    """The dialect as a number: 3 to 7 for the old drafts, 8 for 2019-09, 9 for later ones and where none is named."""
    name = schema.get("$schema") if isinstance(schema, dict) else None
    found = re.search(r"draft-0?([3-7])\b", name) if isinstance(name, str) else None
    if found:
        return int(found[1])
    return 8 if isinstance(name, str) and "2019-09" in name else 9


def _check_json_depth(schema: JSON) -> None:
    level = [schema] if type(schema) in (dict, list) else []
    depth = 0
    while level:
        if depth > MAX_JSON_DEPTH:
            raise SpecError(f"json_schema: nested too deep (more than {MAX_JSON_DEPTH} JSON levels)")
        below = (value for node in level for value in (node.values() if type(node) is dict else node))
        level, depth = [value for value in below if type(value) in (dict, list)], depth + 1


def _check_chains(root: Site) -> None:
    """Bound how many references a depth-first reader has open at one time."""
    seen = {root.pointer}
    stack: list[tuple[Iterator[tuple[Site, int]], int]] = [(_edges(root), 0)]
    while stack:
        edges, hops = stack[-1]
        step = next(edges, None)
        if step is None:
            stack.pop()
            continue
        site, cost = step
        if site.pointer in seen:
            continue
        seen.add(site.pointer)
        if hops + cost > MAX_REF_CHAIN:
            raise SpecError(
                f"json_schema: nested too deep (a chain of more than {MAX_REF_CHAIN} references)",
                pointer=site.pointer,
                keyword="$ref",
            )
        stack.append((_edges(site), hops + cost))


def _edges(site: Site) -> Iterator[tuple[Site, int]]:
    for child in site.children.values():
        yield child, 0
    if site.target is not None:
        yield site.target, 1


def _components(leads: Mapping[Site, Sequence[Site]]) -> dict[Site, int]:
    """Sites by strongly connected component (Tarjan's algorithm): two share one when each leads to the other."""
    order: dict[Site, int] = {}
    lowest: dict[Site, int] = {}
    components: dict[Site, int] = {}
    trail: list[Site] = []
    for root in leads:
        stack = [(root, iter(leads[root]))] if root not in order else []
        while stack:
            site, edges = stack[-1]
            if site not in order:
                order[site] = lowest[site] = len(order)
                trail.append(site)
            below = next(edges, None)
            if below is not None:
                if below not in order:
                    stack.append((below, iter(leads[below])))
                elif below not in components:
                    lowest[site] = min(lowest[site], order[below])
                continue
            stack.pop()
            if stack:
                above = stack[-1][0]
                lowest[above] = min(lowest[above], lowest[site])
            while lowest[site] == order[site] and site not in components:
                components[trail.pop()] = order[site]
    return components


# -- malformed keyword values --------------------------------------------------------------------------------


TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def _is_number(value: JSON) -> TypeGuard[float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: JSON) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_strings(value: JSON) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_types(value: JSON) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


def _is_string_lists(value: JSON) -> bool:
    return isinstance(value, dict) and all(_is_strings(item) for item in value.values())


def _is_dependencies(value: JSON) -> bool:
    """The subschemas among them are judged by themselves."""
    return isinstance(value, dict) and all(_is_strings(item) for item in value.values() if isinstance(item, list))


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _is_bool(value: JSON) -> bool:
    return isinstance(value, bool)


def _is_list(value: JSON) -> bool:
    return isinstance(value, list)


_COUNT = (_is_count, "must be a whole number, 0 or more")
_NUMBER = (_is_number, "must be a number")
_BOUND = (lambda value: _is_bool(value) or _is_number(value), "must be a number")
_BOOL = (_is_bool, "must be a boolean")
_TEXT = (_is_text, "must be a string")

VALUES: Mapping[str, tuple[Callable[[JSON], bool], str]] = {
    "$anchor": _TEXT,
    "$dynamicRef": _TEXT,
    "$id": _TEXT,
    "dependencies": (_is_dependencies, "must be an object of schemas and lists of property names"),
    "dependentRequired": (_is_string_lists, "must be an object of lists of property names"),
    "enum": (_is_list, "must be a list"),
    "exclusiveMaximum": _BOUND,
    "exclusiveMinimum": _BOUND,
    "format": _TEXT,
    "maxContains": _COUNT,
    "maxItems": _COUNT,
    "maxLength": _COUNT,
    "maxProperties": _COUNT,
    "maximum": _NUMBER,
    "minContains": _COUNT,
    "minItems": _COUNT,
    "minLength": _COUNT,
    "minProperties": _COUNT,
    "minimum": _NUMBER,
    "multipleOf": (lambda value: _is_number(value) and value > 0, "must be a number greater than 0"),
    "pattern": _TEXT,
    "required": (_is_strings, "must be a list of property names"),
    "type": (_is_types, f"must be one of {', '.join(TYPES)}, or a list of these"),
    "uniqueItems": _BOOL,
}
"""What the value of a keyword must be, and the words for one that is not. Annotations are not checked."""


def check_schema(schema: JSON | SchemaWalk) -> None:
    """Refuse a schema that is malformed or that no document can satisfy, whatever the engine (B12, D4, D6, D9).

    Only what is certain is refused: a satisfiable schema is never called unsatisfiable, and an unsatisfiable
    property that need not be present is none of our business.

    Raises:
        SpecError: with the JSON pointer and keyword at fault.
    """
    sites = schema if isinstance(schema, SchemaWalk) else walk(schema)
    for site in sites:
        if isinstance(site.schema, dict):
            _check_values(site)
    _check_satisfiable(sites)


def _check_values(site: Site) -> None:
    for keyword, value in site.schema.items():
        rule = VALUES.get(keyword)
        if rule is None:
            continue
        if not rule[0](value):
            raise _malformed(site.pointer, keyword, f"{rule[1]}, not {shown(value)}")
        if keyword == "pattern":
            _check_pattern(f"{site.pointer}/pattern", value)
    for keyword, name in site.children if "patternProperties" in site.schema else ():
        if keyword == "patternProperties":
            _check_pattern(f"{site.pointer}/patternProperties/{escape(str(name))}", str(name))


def _check_pattern(pointer: str, pattern: str) -> None:
    keyword = "patternProperties" if "/patternProperties/" in pointer else "pattern"
    if "\0" in pattern:
        raise SpecError(f"json_schema: {keyword} holds a NUL character", pointer=pointer, keyword=keyword)
    fault = pattern_fault(pattern)
    if fault:
        raise SpecError(
            f"json_schema: {keyword} is not a valid regular expression ({fault})", pointer=pointer, keyword=keyword
        )


_ECMA: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\\[pP]\{[^}]*\}"), r"\\w"),
    (re.compile(r"\\u\{[0-9a-fA-F]+\}"), "x"),
    (re.compile(r"\(\?<(?=[A-Za-z_$])"), "(?P<"),
    (re.compile(r"\\k<([^>]*)>"), r"(?P=\1)"),
    (re.compile(r"\\c[A-Za-z]"), "x"),
    (re.compile(r"\[\^\]"), r"[\\s\\S]"),
    (re.compile(r"\[\]"), "(?!)"),
    (re.compile(r"\\[zZ]"), "$"),
    (re.compile(r"\\(?=[^\W\dbBdDsSwWfnrtvxuU0-9AZ])"), ""),
)
"""What ECMA 262 (or an engine's own dialect) allows and Python does not, in Python's words: only to judge validity."""


@functools.lru_cache(maxsize=4096)
def pattern_fault(pattern: str) -> str:
    """Why a pattern is no regular expression in ECMA 262's or Python's dialect; "" when it is one."""
    fault = _python_fault(pattern)
    if not fault:
        return ""
    for construct, python in _ECMA:
        pattern = construct.sub(python, pattern)
    return fault if _python_fault(pattern) else ""


def _python_fault(pattern: str) -> str:
    try:
        with warnings.catch_warnings():
            # "Possible nested set" is Python's concern, not the schema author's.
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except re.error as error:
        return str(error)
    except RecursionError:
        return "nested too deep"
    except OverflowError:
        return "a repetition is too large"
    return ""


def _malformed(pointer: str, keyword: str, wrong: str, value: str | None = None) -> SpecError:
    subject = f"{keyword} {shown(value)}" if value is not None else keyword or "the schema"
    if wrong.startswith("a schema is"):
        return SpecError(f"json_schema: {wrong}", pointer=pointer, keyword=keyword or None)
    return SpecError(f"json_schema: {subject} {wrong}", pointer=f"{pointer}/{keyword}", keyword=keyword)


def _unresolved(site: Site, reference: str) -> SpecError:
    return SpecError(
        f"json_schema: $ref {shown(reference)} leads nowhere", pointer=f"{site.pointer}/$ref", keyword="$ref"
    )


# -- satisfiability ------------------------------------------------------------------------------------------

NULL, BOOL, INT, FRACTION, STRING, ARRAY, OBJECT = 1, 2, 4, 8, 16, 32, 64
ANY = 127

TYPE_BITS: Mapping[str, int] = {
    "array": ARRAY,
    "boolean": BOOL,
    "integer": INT,
    "null": NULL,
    "number": INT | FRACTION,
    "object": OBJECT,
    "string": STRING,
}


_NARROWING = frozenset(
    (
        *("$ref", "allOf", "anyOf", "const", "contains", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxLength"),
        *("maximum", "minItems", "minLength", "minProperties", "minimum", "not", "oneOf", "required"),
    )
)
"""Without any of these a site admits some value of each of its types, whatever else it says."""


@dataclass(frozen=True, slots=True)
class _Blame:
    """Why a site admits nothing: a keyword of its own, and the site below that is at fault, if one is."""

    keyword: str
    reason: str
    below: Site | None = None


class _Productivity:
    """Which kinds of value have at least one finite document at each site: a least fixpoint over the sites.

    Every site starts at "none". A site that stays there has no finite document: its own keywords contradict one
    another, or it needs itself. Only the sites that the root depends on are looked at.
    """

    def __init__(self, sites: SchemaWalk) -> None:
        self.bits: dict[str, int] = {sites.root.pointer: 0}
        self.blame: dict[str, _Blame] = {}
        self.trials = MAX_TRIALS
        parents: dict[str, list[Site]] = {}
        found = [sites.root]
        for site in found:
            for below in _decisive(site):
                if below.pointer not in self.bits:
                    self.bits[below.pointer] = 0
                    found.append(below)
                parents.setdefault(below.pointer, []).append(site)
        # Last found first: below before above, so that most sites are computed once.
        queue = deque(reversed(found))
        waiting = set(self.bits)
        while queue:
            site = queue.popleft()
            waiting.discard(site.pointer)
            bits = self.of(site)
            if bits != self.bits[site.pointer]:
                self.bits[site.pointer] = bits
                for parent in parents.get(site.pointer, ()):
                    if parent.pointer not in waiting:
                        waiting.add(parent.pointer)
                        queue.append(parent)

    def dead(self, site: Site) -> bool:
        """True for a site that decides and has no value as far as is known; the others do not matter."""
        return not self.bits.get(site.pointer, ANY)

    def of(self, site: Site) -> int:
        """The kinds of value that this site admits, as far as is known so far."""
        schema = site.schema
        if isinstance(schema, bool):
            return ANY if schema else self._none(site, "false", "the schema `false` admits nothing")
        if _NARROWING.isdisjoint(schema):
            return site.bits
        bits = self._combined(site, site.bits)
        if bits & (INT | FRACTION):
            bits = self._narrow(site, bits, _numbers(schema), INT | FRACTION, "minimum", "no number is in the range")
        if bits & STRING and not _lengths_fit(schema):
            bits = self._narrow(site, bits, 0, STRING, "minLength", "no string has such a length")
        if bits & ARRAY:
            bits = self._arrays(site, bits)
        if bits & OBJECT:
            bits = self._objects(site, bits)
        return self._members(site, bits) if bits else 0

    def _none(self, site: Site, keyword: str, reason: str, below: Site | None = None) -> int:
        self.blame[site.pointer] = _Blame(keyword, reason, below)
        return 0

    def _narrow(
        self, site: Site, bits: int, keep: int, among: int, keyword: str, reason: str, below: Site | None = None
    ) -> int:
        left = bits & (~among | keep)
        return left if left else self._none(site, keyword, reason, below)

    def _combined(self, site: Site, bits: int) -> int:
        if "$ref" in site.schema and site.target is not None:
            bits = self._both(site, bits, self.bits[site.target.pointer], "$ref", site.target)
        for keyword in ("anyOf", "oneOf"):
            if keyword in site.schema:
                branches = site.group(keyword)
                union = 0
                for branch in branches:
                    union |= self.bits[branch.pointer]
                bits = self._both(site, bits, union, keyword, branches[0] if branches else None)
        for branch in site.group("allOf"):
            bits = self._both(site, bits, self.bits[branch.pointer], "allOf", branch)
        excluded = site.children.get(("not", None))
        if excluded is not None:
            bits = self._both(site, bits, ANY & ~_exactly(excluded.schema), "not", None)
        return bits

    def _both(self, site: Site, bits: int, other: int, keyword: str, below: Site | None) -> int:
        if not bits:
            return 0
        below = below if below is not None and not other else None
        return bits & other or self._none(site, keyword, f"{keyword} leaves nothing that is allowed", below)

    def _arrays(self, site: Site, bits: int) -> int:
        schema = site.schema
        least, most = _count(schema, "minItems", 0), _count(schema, "maxItems", math.inf)
        contains = site.children.get(("contains", None))
        if contains is not None and _count(schema, "minContains", 1) > 0:
            if self.dead(contains):
                return self._narrow(site, bits, 0, ARRAY, "contains", "no item can match", contains)
            least = max(least, _count(schema, "minContains", 1))
        below = None
        for length, item in self._items(site):
            if self.dead(item) and length < most:
                most, below = length, item
        if least <= most:
            return bits
        return self._narrow(site, bits, 0, ARRAY, "minItems", f"an array cannot have {least} items", below)

    def _items(self, site: Site) -> Iterator[tuple[int, Site]]:
        """The subschemas of items with the longest array that none of its items judges."""
        prefix = site.group("prefixItems")
        listed = site.schema.get("items")
        if isinstance(listed, list):
            prefix, rest = site.group("items"), site.children.get(("additionalItems", None))
        else:
            rest = site.children.get(("items", None))
        yield from enumerate(prefix)
        if rest is not None:
            yield len(prefix), rest

    def _objects(self, site: Site, bits: int) -> int:
        schema = site.schema
        least, most = _count(schema, "minProperties", 0), _count(schema, "maxProperties", math.inf)
        required = schema.get("required", ())
        names = set(required) if _is_strings(required) else set()
        patterns = [
            (str(name), child) for (keyword, name), child in site.children.items() if keyword == "patternProperties"
        ]
        for name in names:
            for below in self._judges(site, name, patterns):
                if self.dead(below):
                    reason = f"the required property {shown(name)} can have no value"
                    return self._narrow(site, bits, 0, OBJECT, "required", reason, below)
        least = max(least, len(names))
        rest = site.children.get(("additionalProperties", None))
        if rest is not None and self.dead(rest) and "patternProperties" not in schema:
            most = min(most, sum(not self.dead(child) for child in site.group("properties")))
        naming = site.children.get(("propertyNames", None))
        if naming is not None and not self.bits[naming.pointer] & STRING:
            most = 0
        if least <= most:
            return bits
        return self._narrow(site, bits, 0, OBJECT, "minProperties", f"an object cannot have {least} properties")

    def _judges(self, site: Site, name: str, patterns: Sequence[tuple[str, Site]]) -> Iterator[Site]:
        """The subschemas that a property must satisfy, as far as is known."""
        found = site.children.get(("properties", name))
        if found is not None:
            yield found
        self.trials -= len(patterns)
        for pattern, child in patterns:
            matched = searched(pattern, name) if self.trials >= 0 else None
            if matched:
                yield child
            # A pattern that cannot be judged may match: then additionalProperties does not apply.
            found = found or (child if matched is not False else None)
        rest = site.children.get(("additionalProperties", None))
        if found is None and rest is not None:
            yield rest

    def _members(self, site: Site, bits: int) -> int:
        schema = site.schema
        for keyword in ("enum", "const"):
            if keyword not in schema:
                continue
            members = schema["enum"] if keyword == "enum" else [schema["const"]]
            if not isinstance(members, list):
                continue
            union = 0
            for member in members:
                kind = kind_of(member)
                if kind & bits and in_range(schema, member):
                    union |= kind
            reason = f"no value of {keyword} is allowed by the other keywords" if members else f"{keyword} is empty"
            bits = bits & union or self._none(site, keyword, reason)
            if not bits:
                return 0
        return bits


def _decisive(site: Site) -> Iterator[Site]:
    """The sites below that decide which values there are of a site: not the properties that may be absent."""
    schema = site.schema
    if not isinstance(schema, dict) or _NARROWING.isdisjoint(schema):
        return
    if site.target is not None:
        yield site.target
    required = set(schema.get("required", ()))
    for (keyword, name), below in site.children.items():
        if keyword != "properties" or name in required or "minProperties" in schema:
            yield below


_ENDLESS = "it needs itself, so that no document ever ends"


def _check_satisfiable(sites: SchemaWalk) -> None:
    productivity = _Productivity(sites)
    site = sites.root
    if not productivity.dead(site):
        return
    blame, seen = productivity.blame.get(site.pointer), {site.pointer}
    while blame is not None and blame.below is not None and productivity.dead(blame.below):
        below = blame.below
        if below.pointer in seen:
            raise _unsatisfiable(site, blame.keyword, _ENDLESS)
        seen.add(below.pointer)
        site, blame = below, productivity.blame.get(below.pointer)
    raise _unsatisfiable(site, blame.keyword if blame else "", blame.reason if blame else _ENDLESS)


def _unsatisfiable(site: Site, keyword: str, reason: str) -> SpecError:
    return SpecError(
        f"json_schema: unsatisfiable: {reason}",
        pointer=site.pointer,
        keyword=keyword if isinstance(site.schema, dict) and keyword in site.schema else None,
    )


def declared(schema: Mapping[str, JSON]) -> int:
    """The kinds of value that `type` allows; every kind without one."""
    names = schema.get("type")
    if names is None:
        return ANY
    bits = 0
    for name in names if isinstance(names, list) else [names]:
        bits |= TYPE_BITS.get(name, 0) if isinstance(name, str) else 0
    return bits


def _exactly(schema: JSON) -> int:
    """The kinds of value that a schema admits whole: what `not` then takes away."""
    if isinstance(schema, bool):
        return ANY if schema else 0
    asserting = [key for key in schema if key in VALUES or key in APPLICATORS or key in ("$ref", "const")]
    if not asserting:
        return ANY
    return declared(schema) if asserting == ["type"] else 0


def _count(schema: Mapping[str, JSON], keyword: str, default: float) -> float:
    value = schema.get(keyword)
    return value if _is_number(value) else default


def number_bounds(schema: Mapping[str, JSON]) -> tuple[float, bool, float, bool]:
    """Lowest value, whether it is excluded, highest value, whether it is excluded; both spellings of exclusive."""
    low, high = _count(schema, "minimum", -math.inf), _count(schema, "maximum", math.inf)
    above, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    low_open, high_open = above is True, under is True
    if _is_number(above) and above >= low:
        low, low_open = above, True
    if _is_number(under) and under <= high:
        high, high_open = under, True
    return low, low_open, high, high_open


def _numbers(schema: Mapping[str, JSON]) -> int:
    """INT if a whole number is in the range, FRACTION if another one is."""
    low, low_open, high, high_open = number_bounds(schema)
    if low > high or (low == high and (low_open or high_open)):
        return 0
    bits = INT
    if low != -math.inf and high != math.inf:
        step = schema.get("multipleOf")
        step = int(step) if _is_number(step) and step == int(step) and step >= 1 else 1
        first = -(-math.ceil(low) // step) * step
        if first == low and low_open:
            first += step
        if first > high or (first == high and high_open):
            bits = 0
    return bits | (FRACTION if low < high or low != int(low) else 0)


def _lengths_fit(schema: Mapping[str, JSON]) -> bool:
    least, most = _count(schema, "minLength", 0), _count(schema, "maxLength", math.inf)
    known = schema.get("format")
    shortest, longest = FORMAT_LENGTHS.get(known, (0, None)) if isinstance(known, str) else (0, None)
    return max(least, shortest) <= min(most, math.inf if longest is None else longest)


def in_range(schema: Mapping[str, JSON], value: JSON) -> bool:
    if _is_number(value):
        low, low_open, high, high_open = number_bounds(schema)
        return (low < value or (low == value and not low_open)) and (value < high or (value == high and not high_open))
    if isinstance(value, str):
        return _count(schema, "minLength", 0) <= len(value) <= _count(schema, "maxLength", math.inf)
    return True


def kind_of(value: JSON) -> int:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, (int, float)):
        return INT if value == value // 1 else FRACTION
    return STRING if isinstance(value, str) else ARRAY if isinstance(value, list) else OBJECT
