"""What an engine enforces of JSON Schema, as data, and the reading of a schema against it (C2.5, C3).

A support table is an allow-list: what it does not name the engine would ignore or refuse, so that a schema that uses
it gets a finding with the place. What no list can say (two keywords that break one another, branches that must
exclude each other) are named checks, written once here and switched on by name in the data.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grammar_backends.contract.regex import Alternatives, CharacterSet, Node, Ranges, Repetition, Series, parse_regex
from grammar_backends.contract.spec import JSON, GrammarOptions
from grammar_backends.errors import PluginError, SpecError
from grammar_backends.selection.findings import Finding
from grammar_backends.selection.schema import (
    ANY,
    ARRAY,
    FORMAT_LENGTHS,
    INT,
    OBJECT,
    STRING,
    TYPE_BITS,
    SchemaWalk,
    Site,
    in_range,
    kind_of,
    number_bounds,
    walk,
)

__all__ = ["CHECKS", "Finding", "SchemaSupport", "simplify"]

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

_GROUPS: Mapping[str, str] = {keyword: name for name, keywords in TYPE_KEYWORDS.items() for keyword in keywords}
_GROUP_BITS = {name: TYPE_BITS[name] for name in TYPE_KEYWORDS}
_ASSERTIONS = frozenset((*_GROUPS, *COMBINATORS, *ANY_KEYWORDS))

STANDARD_FORMATS = frozenset(
    (
        *("date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri"),
        *("iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference"),
        *("uri-template", "uuid", "host-name", "ip-address"),
    )
)
"""The formats of the JSON Schema specification. Any other name is an annotation."""


@dataclass(frozen=True, slots=True)
class SchemaSupport:
    """What one engine enforces, in the versions it was measured for.

    Attributes:
        engine: its name, for messages.
        measured: the version that was measured.
        versions: the versions the table is used for, as a PEP 440 specifier.
        types: per JSON type, the keywords that are enforced for values of it; "any" for the keywords of every type.
        combinators: the combinators that are enforced, each with the assertions that may stand beside it; "*" is all.
        formats: the formats that are enforced.
        unknown_formats: a format outside the specification is taken for the annotation that it is.
        noops: keywords that assert nothing here (`minLength: 0`) are harmless; False for an engine that refuses them.
        checks: the named checks that apply, each with its settings.
    """

    engine: str
    measured: str
    versions: str
    types: Mapping[str, frozenset[str]]
    combinators: Mapping[str, frozenset[str]]
    formats: frozenset[str]
    unknown_formats: bool
    noops: bool
    checks: Mapping[str, Mapping[str, JSON]]
    _triggered: Mapping[str, Sequence[str]] = field(repr=False, compare=False, default_factory=dict)

    @classmethod
    def from_mapping(cls, data: Mapping[str, JSON]) -> SchemaSupport:
        """Read a support table, as `json.load` returns it.

        Raises:
            PluginError: something is missing, or an unknown check is named.
        """
        try:
            checks = {name: dict(settings) for name, settings in data["checks"].items()}
            unknown = sorted(set(checks) - set(CHECKS))
            if unknown:
                raise PluginError(f"support data of {data['engine']}: unknown checks {', '.join(unknown)}")
            triggered: dict[str, list[str]] = {}
            for name in checks:
                for keyword in CHECKS[name][0]:
                    triggered.setdefault(keyword, []).append(name)
            return cls(
                engine=data["engine"],
                measured=data["measured"],
                versions=data["versions"],
                types={name: frozenset(keywords) for name, keywords in data["types"].items()},
                combinators={name: frozenset(siblings) for name, siblings in data["combinators"].items()},
                formats=frozenset(data["formats"]),
                unknown_formats=data["unknown_formats"],
                noops=data["noops"],
                checks=checks,
                _triggered=triggered,
            )
        except (KeyError, AttributeError, TypeError) as error:
            raise PluginError(f"support data is malformed: {error!r}") from error

    def findings(self, schema: JSON | SchemaWalk, options: GrammarOptions) -> list[Finding]:
        """Each place where this engine would not enforce the schema exactly; empty when it enforces all of it.

        Exactly means: no invalid document is accepted, and no valid one is lost but by the documented policies
        (order of properties, white space, one spelling of a number in `enum` and `const`).

        Raises:
            SpecError: not a schema at some position, or too deep or large.
        """
        sites = schema if isinstance(schema, SchemaWalk) else walk(schema)
        found: list[Finding] = []
        for site in sites:
            if site.keyword != "propertyNames" or "property-names" not in self.checks:
                found.extend(self._site(_View(site, sites, options, self)))
        return found

    def _site(self, view: _View) -> Iterator[Finding]:
        ran: set[str] = set()
        for keyword in ("", *view.schema) if view.schema else ("",):
            for name in self._triggered.get(keyword, ()):
                if name not in ran:
                    ran.add(name)
                    yield from CHECKS[name][1](view, self.checks[name])
            if keyword in _ASSERTIONS and not (self.noops and _asserts_nothing(view, keyword)):
                yield from self._keyword(view, keyword)

    def _keyword(self, view: _View, keyword: str) -> Iterator[Finding]:
        group = _GROUPS.get(keyword)
        if group is not None:
            concerned = view.bits & _GROUP_BITS[group]
            names = [name for name in _TYPE_NAMES[concerned] if keyword not in self.types.get(name, ())]
            if names and not (keyword == "format" and concerned):
                yield view.finding(keyword, f"{keyword} is not enforced for type {' and '.join(names)}")
            elif keyword == "format" and concerned:
                yield from self._format(view)
        elif keyword in COMBINATORS:
            yield from self._combinator(view, keyword)
        elif keyword not in self.types["any"]:
            yield view.finding(keyword, f"{keyword} is not enforced")

    def _format(self, view: _View) -> Iterator[Finding]:
        name = view.schema["format"]
        if name in self.formats or (self.unknown_formats and name not in STANDARD_FORMATS):
            return
        yield view.finding("format", f"the format {name!r} is not enforced", "Use a pattern instead")

    def _combinator(self, view: _View, keyword: str) -> Iterator[Finding]:
        allowed = self.combinators.get(keyword)
        if allowed is None:
            yield view.finding(keyword, f"{keyword} is not enforced")
            return
        if "*" in allowed or (keyword == "$ref" and view.sites.legacy_refs):
            return
        for sibling in view.schema:
            if sibling == keyword or sibling in allowed or sibling not in _ASSERTIONS:
                continue
            if _asserts_nothing(view, sibling) or _is_implied(view, sibling, keyword):
                continue
            yield view.finding(
                sibling,
                f"{sibling} is not enforced beside {keyword}",
                f"Move it into the {'definition' if keyword == '$ref' else 'branches'}",
            )


_TYPE_NAMES: Mapping[int, Sequence[str]] = {
    bits: [
        name
        for name, bit in (("string", 16), ("integer", 4), ("number", 8), ("array", 32), ("object", 64))
        if bits & bit
    ]
    for bits in range(128)
}
"""The types whose keyword lists apply, by kinds of value: a `number` is judged by both lists."""


class _View:
    """One site under judgement."""

    __slots__ = ("bits", "options", "schema", "site", "sites", "support")

    def __init__(self, site: Site, sites: SchemaWalk, options: GrammarOptions, support: SchemaSupport) -> None:
        self.site = site
        self.sites = sites
        self.options = options
        self.support = support
        self.schema: Mapping[str, JSON] = site.schema if isinstance(site.schema, dict) else {}
        self.bits = declared(self.schema)

    def finding(self, keyword: str, reason: str, hint: str | None = None) -> Finding:
        pointer = f"{self.site.pointer}/{keyword}" if keyword in self.schema else self.site.pointer
        return Finding(f"{self.support.engine}: {reason}", pointer=pointer, keyword=keyword, hint=hint)

    def number(self, keyword: str) -> float | None:
        value = self.schema.get(keyword)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# -- reading a schema ----------------------------------------------------------------------------------------


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


def _asserts_nothing(view: _View, keyword: str) -> bool:
    """True when a keyword could be left out without changing what is valid."""
    schema = view.schema
    group = _GROUPS.get(keyword)
    if group is not None and not view.bits & _GROUP_BITS[group]:
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


def _is_implied(view: _View, sibling: str, keyword: str) -> bool:
    """True for a `type` that the combinator beside it implies already."""
    if sibling != "type":
        return False
    if keyword in ("enum", "const"):
        return True  # judged by the members, see _enum_type_conflict
    return not possible(view.site, without_type=True) & ~view.bits


def possible(site: Site, depth: int = 8, *, without_type: bool = False) -> int:
    """The kinds of value that a site may admit: never too few."""
    schema = site.schema
    if isinstance(schema, bool):
        return ANY if schema else 0
    bits = ANY if without_type else declared(schema)
    if not depth:
        return bits
    for keyword in ("enum", "const"):
        members = _members(schema, keyword)
        if members is not None:
            bits &= functools.reduce(lambda union, member: union | kind_of(member), members, 0)
    if site.target is not None:
        bits &= possible(site.target, depth - 1)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            branches = site.group(keyword)
            bits &= functools.reduce(lambda union, branch: union | possible(branch, depth - 1), branches, 0)
    for branch in site.group("allOf"):
        bits &= possible(branch, depth - 1)
    return bits


def _members(schema: Mapping[str, JSON], keyword: str) -> list[JSON] | None:
    if keyword not in schema:
        return None
    members = schema[keyword] if keyword == "enum" else [schema[keyword]]
    return members if isinstance(members, list) else None


def _texts(schema: Mapping[str, JSON]) -> list[JSON] | None:
    """The members of `const` or else `enum`; None without either."""
    members = _members(schema, "const")
    return members if members is not None else _members(schema, "enum")


def disjoint(left: Site, right: Site, depth: int = 6) -> bool:
    """True when it is certain that no value is valid under both sites."""
    if not possible(left) & possible(right):
        return True
    if not depth or isinstance(left.schema, bool) or isinstance(right.schema, bool):
        return False
    for one, other in ((left, right), (right, left)):
        if one.target is not None and disjoint(one.target, other, depth - 1):
            return True
        if any(disjoint(branch, other, depth - 1) for branch in one.group("allOf")):
            return True
        for keyword in ("anyOf", "oneOf"):
            branches = one.group(keyword)
            if branches and all(disjoint(branch, other, depth - 1) for branch in branches):
                return True
        members = _texts(one.schema)
        if members is not None and all(_excludes(other.schema, member) for member in members):
            return True
    return all(
        _disjoint_kinds(left, right, bit, depth)
        for bit in (1, 2, 4, 8, 16, 32, 64)
        if possible(left) & possible(right) & bit
    )


def _excludes(schema: Mapping[str, JSON], value: JSON) -> bool:
    """True when it is certain that a value is not valid under a schema, from the keywords beside one another alone."""
    if not kind_of(value) & declared(schema) or not in_range(schema, value):
        return True
    members = _texts(schema)
    if members is not None and not any(_equal(value, member) for member in members):
        return True
    if isinstance(value, dict):
        required = schema.get("required")
        return isinstance(required, list) and any(isinstance(name, str) and name not in value for name in required)
    if isinstance(value, str) and isinstance(schema.get("pattern"), str):
        return _cannot_match(schema["pattern"], value)
    return False


@functools.lru_cache(maxsize=1024)
def _cannot_match(pattern: str, text: str) -> bool:
    if len(text) > 100 or not text.isascii() or re.search(r"\\[^dDwWsS.\-/\\^$|()\[\]{}*+?]|\(\?[^:]", pattern):
        return False
    try:
        return re.search(pattern, text) is None
    except re.error:
        return False


def _equal(left: JSON, right: JSON) -> bool:
    """Equality of JSON values: 1 equals 1.0 but not true."""
    return kind_of(left) == kind_of(right) and bool(left == right)


def _disjoint_kinds(left: Site, right: Site, bit: int, depth: int) -> bool:
    if bit & (INT | 8):
        return _disjoint_numbers(left.schema, right.schema)
    if bit & STRING:
        return _disjoint_strings(left.schema, right.schema)
    return bool(bit & OBJECT) and _disjoint_objects(left, right, depth)


def _disjoint_numbers(left: Mapping[str, JSON], right: Mapping[str, JSON]) -> bool:
    for one, other in ((left, right), (right, left)):
        _, _, high, high_open = number_bounds(one)
        low, low_open, _, _ = number_bounds(other)
        if high < low or (high == low and (high_open or low_open)):
            return True
    return False


def _disjoint_strings(left: Mapping[str, JSON], right: Mapping[str, JSON]) -> bool:
    for one, other in ((left, right), (right, left)):
        if _length(one, "maxLength", 1) < _length(other, "minLength", 0):
            return True
    return False


def _length(schema: Mapping[str, JSON], keyword: str, end: int) -> float:
    value = schema.get(keyword)
    bound: float = value if isinstance(value, (int, float)) else (0, math.inf)[end]
    known = schema.get("format")
    by_format = FORMAT_LENGTHS.get(known, (0, None))[end] if isinstance(known, str) else None
    if by_format is None:
        return bound
    return max(bound, by_format) if end == 0 else min(bound, by_format)


def _disjoint_objects(left: Site, right: Site, depth: int) -> bool:
    needed = {name for site in (left, right) for name in _required(site.schema)}
    for name in needed:
        one, other = left.children.get(("properties", name)), right.children.get(("properties", name))
        if one is not None and other is not None and disjoint(one, other, depth - 1):
            return True
    return any(_forbids(one, name) for one, other in ((left, right), (right, left)) for name in _required(other.schema))


def _required(schema: Mapping[str, JSON]) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _forbids(site: Site, name: str) -> bool:
    schema = site.schema
    own = site.children.get(("properties", name))
    if own is not None:
        return own.schema is False
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


# -- the same meaning in plainer words -----------------------------------------------------------------------


def simplify(schema: JSON) -> JSON:
    """A schema with the very same valid documents that more engines can read; the schema itself is not changed.

    Left out: keywords that assert nothing (`uniqueItems: false`, `minLength: 0`, `then` without `if`, a format that is
    an annotation), members of `enum` that other keywords forbid, siblings of `$ref` in the drafts that ignore them,
    engine options hidden in the schema. Rewritten: `oneOf` as `anyOf` where its branches exclude one another,
    `2.0` as `2` in counts, `exclusiveMinimum: true` as the number, `true` as `{}`.
    """
    if isinstance(schema, bool):
        return {} if schema else False
    plain = copy.deepcopy(schema)
    sites = walk(plain)
    plain.pop("x-guidance", None)
    referenced = {str(site.schema["$ref"]) for site in sites if site.target is not None}
    renaming = not any("/oneOf/" in reference for reference in referenced)
    unevaluated = any(name.startswith("unevaluated") for site in sites for name, _ in site.children)
    for site in sites:
        if isinstance(site.schema, dict):
            _simplify_site(_View(site, sites, GrammarOptions(), _NO_SUPPORT), renaming, unevaluated)
    return plain


_DROPPABLE = frozenset(
    (
        *("dependencies", "dependentRequired", "dependentSchemas", "else", "exclusiveMaximum", "exclusiveMinimum"),
        *(
            "format",
            "if",
            "maxContains",
            "maxItems",
            "maxLength",
            "maxProperties",
            "maximum",
            "minContains",
            "minItems",
        ),
        *("minLength", "minProperties", "minimum", "multipleOf", "pattern", "patternProperties", "propertyNames"),
        *("required", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"),
    )
)
"""What may go when it asserts nothing. `additionalProperties: true` must stay: it says something to "closed"."""


def _simplify_site(view: _View, renaming: bool, unevaluated: bool) -> None:
    schema = view.site.schema
    for keyword in [key for key in schema if key in _DROPPABLE and _asserts_nothing(view, key)]:
        # A reference may lead into the subschemas, and outer unevaluated keywords count what these have seen.
        if not any(name == keyword for name, _ in view.site.children) or (
            not unevaluated and schema[keyword] in (True, {})
        ):
            del schema[keyword]
    if "$ref" in schema and view.sites.legacy_refs:
        for keyword in [key for key in schema if key in _ASSERTIONS and key != "$ref"]:
            if not any(name == keyword for name, _ in view.site.children):
                del schema[keyword]
        return
    for keyword in _COUNTS:
        if isinstance(schema.get(keyword), float):
            schema[keyword] = int(schema[keyword])
    _simplify_bounds(schema)
    members = schema.get("enum")
    if isinstance(members, list):
        schema["enum"] = [member for member in members if not _excludes(schema, member)] or members
    if renaming and "oneOf" in schema and "anyOf" not in schema and exclusive(view.site.group("oneOf")) is None:
        # In place, so that properties keep their order.
        items = [("anyOf" if key == "oneOf" else key, value) for key, value in schema.items()]
        schema.clear()
        schema.update(items)


def _simplify_bounds(schema: dict[str, JSON]) -> None:
    for exclusive_name, name in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if schema.get(exclusive_name) is True:
            if name in schema:
                schema[exclusive_name] = schema.pop(name)
            else:
                del schema[exclusive_name]


MAX_BRANCHES = 64
"""Branches of one `oneOf` that are compared pair by pair."""


def exclusive(branches: Sequence[Site]) -> tuple[Site, Site] | None:
    """The first two branches that may both match; None when it is certain that no two can."""
    if len(branches) > MAX_BRANCHES:
        return branches[0], branches[1]
    return next((pair for pair in itertools.combinations(branches, 2) if not disjoint(*pair)), None)


# -- patterns ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def anchored(pattern: str) -> bool:
    """True when every alternative of a pattern spans the whole string, be it by `^` and `$` or by `.*`."""
    depth, in_class, skip = 0, False, False
    parts, start = [], 0
    for index, character in enumerate(pattern):
        if skip:
            skip = False
        elif character == "\\":
            skip = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and not depth:
            parts.append(pattern[start:index])
            start = index + 1
    parts.append(pattern[start:])
    return all(_is_anchored(part) for part in parts)


def _is_anchored(part: str) -> bool:
    while len(part) > 2 and part[0] == "(" and part[-1] == ")" and _closes_last(part):
        part = re.sub(r"^\((\?:)?", "", part)[:-1]
        if "|" in part:
            return anchored(part)
    # Where anything may precede or follow, it makes no difference whether the match must reach the end.
    return part.startswith(("^", ".*")) and re.search(r"(?<!\\)(?:\\\\)*(?:\$|\.\*)$", part) is not None


def _closes_last(part: str) -> bool:
    """True when the group that opens a part is the one that ends it."""
    depth, skip, in_class = 0, False, False
    for index, character in enumerate(part):
        if skip:
            skip = False
        elif character == "\\":
            skip = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
            if not depth:
                return index == len(part) - 1
    return False


@functools.lru_cache(maxsize=4096)
def _tree(pattern: str) -> Node | None:
    """A pattern in the layer's own dialect; None when it is outside of it."""
    try:
        return parse_regex(pattern).root
    except SpecError:
        return None


def _nodes(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Series):
            stack.extend(node.items)
        elif isinstance(node, Alternatives):
            stack.extend(node.options)
        elif isinstance(node, Repetition):
            stack.append(node.item)


ESCAPED: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
"""The characters that JSON text cannot hold unescaped."""


@functools.lru_cache(maxsize=4096)
def _needs_escapes(pattern: str, named_only: bool) -> bool:
    """True when a pattern can match a character that JSON text has to escape.

    With `named_only`, `.` and negated ASCII classes may: xgrammar then takes the escaped characters out of them, and
    what is lost are strange property names.
    """
    root = _tree(pattern)
    if root is None:
        return True
    for node in _nodes(root):
        if not isinstance(node, CharacterSet) or (named_only and pattern.isascii() and _is_cofinite(node.ranges)):
            continue
        if any(low <= last and first <= high for low, high in node.ranges for first, last in ESCAPED):
            return True
    return False


def _is_cofinite(ranges: Ranges) -> bool:
    return ranges[-1][1] > 0x10FFF0


@functools.lru_cache(maxsize=4096)
def _prefix(pattern: str) -> str:
    """The literal text that everything a pattern matches starts with."""
    root = _tree(pattern) if pattern.startswith("^") and anchored(pattern) else None
    if root is None:
        # Unanchored at the end is as good, as long as no alternative can start otherwise.
        root = _tree(pattern) if pattern.startswith("^") and "|" not in pattern else None
    items = root.items if isinstance(root, Series) else (root,) if root is not None else ()
    prefix = ""
    for item in items:
        if not (isinstance(item, CharacterSet) and len(item.ranges) == 1 and item.ranges[0][0] == item.ranges[0][1]):
            break
        prefix += chr(item.ranges[0][0])
    return prefix


def _disjoint_patterns(left: str, right: str) -> bool:
    one, other = _prefix(left), _prefix(right)
    return bool(one and other) and not one.startswith(other) and not other.startswith(one)


# -- named checks --------------------------------------------------------------------------------------------

Settings = Mapping[str, JSON]
Check = Callable[[_View, Settings], Iterator[Finding]]


def _typeless(view: _View, settings: Settings) -> Iterator[Finding]:
    """Without `type` an engine guesses one, or enforces nothing."""
    if "type" in view.schema or any(keyword in view.schema for keyword in COMBINATORS):
        return
    for keyword in view.schema:
        if keyword in _GROUPS and not _asserts_nothing(view, keyword):
            yield view.finding(keyword, f"{keyword} is not enforced without type", f'Add "type": "{_GROUPS[keyword]}"')
            return


def _ref(view: _View, settings: Settings) -> Iterator[Finding]:
    """References that leave the document, or that an engine resolves otherwise."""
    reference = view.schema["$ref"]
    if view.site.target is None:
        yield view.finding("$ref", f"{reference!r} is not in the schema and nothing is fetched", "Put it into $defs")
    elif settings.get("pointers_only") and (
        (not str(reference).startswith("#/") and reference != "#") or view.site.base
    ):
        yield view.finding("$ref", f"{reference!r} is not resolved", "Write it as #/$defs/...")
    elif settings.get("recursion") is False and _is_recursive(view.site):
        yield view.finding("$ref", "recursion is cut off at some depth")


def _is_recursive(site: Site) -> bool:
    seen: set[str] = set()
    stack = [site.target] if site.target else []
    while stack:
        one = stack.pop()
        if one is site:
            return True
        if one.pointer not in seen:
            seen.add(one.pointer)
            stack.extend(one.children.values())
            if one.target is not None:
                stack.append(one.target)
    return False


def _branches(view: _View, settings: Settings) -> Iterator[Finding]:
    """More branches of allOf than an engine merges."""
    if len(view.site.group("allOf")) > settings["most"]:
        yield view.finding("allOf", f"more than {settings['most']} branches are not merged", "Merge the branches")


def _one_of(view: _View, settings: Settings) -> Iterator[Finding]:
    """`oneOf` read as `anyOf`: right only when no value is valid under two branches."""
    pair = exclusive(view.site.group("oneOf"))
    if pair is not None:
        yield view.finding(
            "oneOf",
            f"the branches {pair[0].pointer} and {pair[1].pointer} may both match, which is not ruled out",
            "Use anyOf, or give the branches a required property with different constants",
        )


def _false_schema(view: _View, settings: Settings) -> Iterator[Finding]:
    """Engines that refuse a schema for a `false` in it, though it only forbids one thing."""
    if view.site.schema is False and view.site.keyword not in settings["allowed"]:
        yield view.finding(view.site.keyword, "the schema `false` is refused here")


def _enum_type_conflict(view: _View, settings: Settings) -> Iterator[Finding]:
    """Members that the siblings of `enum` or `const` forbid, but the engine allows."""
    schema = view.schema
    for keyword in ("enum", "const"):
        members = _members(schema, keyword)
        if members is not None and any(_excludes(schema, member) for member in members):
            yield view.finding(keyword, f"a value of {keyword} that other keywords forbid is allowed", "Remove it")


def _enum_containers(view: _View, settings: Settings) -> Iterator[Finding]:
    """Objects and arrays of which only the compact spelling is allowed."""
    if view.options.whitespace == "compact":
        return
    for keyword in ("enum", "const"):
        if any(isinstance(member, (dict, list)) and member for member in _members(view.schema, keyword) or ()):
            yield view.finding(keyword, f"an object or array in {keyword} is allowed without white space only")


def _enum_numbers(view: _View, settings: Settings) -> Iterator[Finding]:
    for keyword in ("enum", "const"):
        members = _members(view.schema, keyword) or ()
        if any(isinstance(member, float) for member in members):
            yield view.finding(keyword, f"a fraction in {keyword} may be spelled in a way that is refused")


def _whole_counts(view: _View, settings: Settings) -> Iterator[Finding]:
    """`minLength: 2.0`: valid JSON Schema, refused by engines."""
    for keyword in _COUNTS:
        if isinstance(view.schema.get(keyword), float):
            yield view.finding(keyword, f"{keyword} must be written without a fraction", "Write 2 for 2.0")


_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
_BOUNDS = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")


def _integer_bounds(view: _View, settings: Settings) -> Iterator[Finding]:
    """Bounds and steps of integers that an engine cannot express."""
    if not view.bits & INT:
        return
    for keyword in _BOUNDS:
        value = view.number(keyword)
        if value is None:
            continue
        if settings.get("whole") and value != int(value) and view.bits & 12 == INT:
            yield view.finding(keyword, f"{keyword} of an integer must be a whole number", "Round it")
        if abs(value) >= settings.get("below", math.inf):
            yield view.finding(keyword, f"{keyword} is too large to be enforced")


def _boolean_bounds(view: _View, settings: Settings) -> Iterator[Finding]:
    """`exclusiveMinimum: true`, as draft 4 has it."""
    for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
        if view.schema.get(keyword) is True and view.bits & 12:
            yield view.finding(keyword, f"{keyword} must be a number, as in the later drafts", "Give the bound itself")


def _steps(view: _View, settings: Settings) -> Iterator[Finding]:
    """`multipleOf` that is not a whole number, or that stands beside bounds."""
    step = view.number("multipleOf")
    if step is None or not view.bits & 12:
        return
    if view.bits & 12 == INT and (1 / step).is_integer():
        return  # every whole number is a multiple
    if settings.get("whole") and step != int(step):
        yield view.finding("multipleOf", "only whole numbers are enforced")
    elif settings.get("alone") and any(view.number(keyword) is not None for keyword in _BOUNDS):
        yield view.finding("multipleOf", "multipleOf is not enforced beside bounds")
    elif settings.get("short_fractions") and view.bits & 8 and not _is_short(step):
        yield view.finding("multipleOf", "multiples with fewer decimals than the step are lost")


def _pattern(view: _View, settings: Settings) -> Iterator[Finding]:
    """Patterns that an engine reads in another way."""
    if not view.bits & STRING:
        return
    yield from _judged_pattern(view, "pattern", str(view.schema["pattern"]), settings)
    if settings.get("alone"):
        for keyword in ("format", "maxLength", "minLength"):
            if keyword in view.schema and not _asserts_nothing(view, keyword):
                yield view.finding(keyword, f"{keyword} is not enforced beside pattern", "Say it in the pattern")


def _is_short(step: float) -> bool:
    """True for whole numbers, one decimal, or a 1, 2 or 5 in the last decimal."""
    decimals = f"{step:.15f}".rstrip("0").partition(".")[2]
    return len(decimals) < 2 or (step < 1 and decimals.lstrip("0") in ("1", "2", "5"))


_LOOKS = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?<?[=!]|\\[1-9]|\\k<|\\[bBAZzG])")


_OPAQUE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_INNER_ANCHOR = re.compile(r"[\^$]")


def _judged_pattern(view: _View, keyword: str, pattern: str, settings: Settings) -> Iterator[Finding]:
    if settings.get("no_looks") and _LOOKS.search(pattern):
        yield view.finding(keyword, "look-around, back-references and word boundaries are not enforced")
    elif settings.get("dialect") and _tree(pattern) is None:
        yield view.finding(keyword, f"the pattern {pattern!r} is outside of what is enforced")
    elif settings.get("anchored") and not anchored(pattern):
        yield view.finding(
            keyword, "a pattern without ^ and $ is taken to match the whole string", "Write ^.*(...).*$ to search"
        )
    elif settings.get("outer_anchors") and _INNER_ANCHOR.search(_OPAQUE.sub("", pattern)[1:-1]):
        yield view.finding(keyword, "anchors inside of a pattern are refused", "Write ^(a|b)$ for ^a$|^b$")
    elif settings.get("plain") and _needs_escapes(pattern, settings["plain"] == "keys"):
        yield view.finding(
            keyword,
            "a pattern that can match a quote, a backslash or a control character is not read as JSON",
            "Name the allowed characters instead, as in ^[A-Za-z0-9 ]*$",
        )


def _required_properties(view: _View, settings: Settings) -> Iterator[Finding]:
    """Required names that `properties` does not list."""
    if view.bits & OBJECT and any(("properties", name) not in view.site.children for name in _required(view.schema)):
        yield view.finding("required", "a required property must be listed in properties", "List it in properties")


def _pattern_properties(view: _View, settings: Settings) -> Iterator[Finding]:
    """`patternProperties` beside what an engine does not combine it with."""
    if not view.bits & OBJECT:
        return
    patterns = [str(name) for keyword, name in view.site.children if keyword == "patternProperties"]
    for pattern in patterns:
        yield from _judged_pattern(view, "patternProperties", pattern, settings)
    if settings.get("closed") and not _is_closed(view) and patterns:
        yield view.finding("patternProperties", "the object must be closed", 'Add "additionalProperties": false')
    if any(not _disjoint_patterns(one, other) for one, other in itertools.combinations(patterns, 2)):
        yield view.finding("patternProperties", "two patterns may match one name")
    names = [str(name) for keyword, name in view.site.children if keyword == "properties"]
    if settings.get("apart") and any(not _cannot_match(p, name) for p in patterns for name in names):
        yield view.finding("patternProperties", "a pattern may match a name in properties")


def _is_closed(view: _View) -> bool:
    schema = view.schema
    if "additionalProperties" in schema:
        return schema["additionalProperties"] is False
    return view.options.additional_properties == "closed" or schema.get("unevaluatedProperties") is False


def _property_names(view: _View, settings: Settings) -> Iterator[Finding]:
    """`propertyNames` beside what it does not reach, or with a subschema that is not read in full."""
    names = view.site.children.get(("propertyNames", None))
    if names is None or not view.bits & OBJECT or names.schema is True:
        return
    for keyword in settings["not_beside"]:
        if keyword in view.schema and not _asserts_nothing(view, keyword):
            yield view.finding("propertyNames", f"propertyNames is not enforced beside {keyword}")
            return
    if view.schema.get("additionalProperties") is False and not settings.get("closed"):
        yield view.finding("propertyNames", "propertyNames opens an object that additionalProperties closes")
        return
    inner = _View(names, view.sites, view.options, view.support)
    assertions = [
        key for key in inner.schema if key in _ASSERTIONS and key != "type" and not _asserts_nothing(inner, key)
    ]
    if names.schema is False or len(assertions) > 1 or any(key not in settings["allowed"] for key in assertions):
        yield view.finding("propertyNames", "only one simple constraint on the names is enforced")
    elif not inner.bits & STRING or (inner.bits & STRING != inner.bits and "type" in inner.schema):
        yield view.finding("propertyNames", "the type of names is not enforced")
    elif "pattern" in inner.schema:
        yield from _judged_pattern(inner, "pattern", str(inner.schema["pattern"]), settings)
    elif any(not isinstance(member, str) for member in _texts(inner.schema) or ()):
        yield view.finding("propertyNames", "a name that is no string is not ruled out")


def _list_items(view: _View, settings: Settings) -> Iterator[Finding]:
    """`items` as a list, as the drafts before 2020-12 have it."""
    if isinstance(view.schema["items"], list) and view.bits & ARRAY:
        yield view.finding("items", "a list in items is refused", "Use prefixItems")


def _prefix_items(view: _View, settings: Settings) -> Iterator[Finding]:
    """Shapes of `prefixItems` that an engine refuses."""
    if view.bits & ARRAY and any(isinstance(item.schema, bool) for item in view.site.group("prefixItems")):
        yield view.finding("prefixItems", "a boolean in prefixItems is refused", "Write {} for true")
    most = view.number("maxItems")
    if view.bits & ARRAY and most is not None and most < len(view.site.group("prefixItems")):
        yield view.finding("maxItems", "fewer items than prefixItems lists is refused", "Shorten prefixItems")


def _unevaluated(view: _View, settings: Settings) -> Iterator[Finding]:
    """`unevaluatedProperties` and `unevaluatedItems` look into combinators; engines look only beside themselves."""
    for keyword in ("unevaluatedItems", "unevaluatedProperties"):
        if keyword not in view.schema or _asserts_nothing(view, keyword):
            continue
        around = [key for key in ("$ref", "allOf", "anyOf", "contains", "if", "not", "oneOf") if key in view.schema]
        if around or view.schema[keyword] in settings.get("not", {}).get(keyword, ()):
            yield view.finding(keyword, f"{keyword} is not enforced as written", "Use additionalProperties or items")


def _closed(view: _View, settings: Settings) -> Iterator[Finding]:
    """An engine's own idea of "closed": arrays with listed or counted items too, but not bare objects."""
    if view.options.additional_properties != "closed" or "type" not in view.schema:
        return
    schema = view.schema
    if view.bits & ARRAY and not {"items", "unevaluatedItems"} & set(schema):
        for keyword in ("prefixItems", "minItems", "maxItems"):
            if keyword in schema:
                yield view.finding(keyword, "with closed objects, further items are refused too", 'Add "items": true')
                return
    naming = {"properties", "patternProperties", "additionalProperties"} & set(schema)
    if view.bits & OBJECT and not any(schema[keyword] != {} or keyword[0] == "a" for keyword in naming):
        keyword = next((key for key in ("propertyNames", "minProperties", "maxProperties") if key in schema), "type")
        yield view.finding(keyword, "an object without properties stays open", 'Write "additionalProperties": false')


def _closed_shapes(view: _View, settings: Settings) -> Iterator[Finding]:
    """Engines that write a schema out in full: no free JSON, no open objects, no recursion."""
    schema = view.schema
    if "type" not in schema and not any(keyword in schema for keyword in COMBINATORS):
        yield view.finding("type", "any JSON value cannot be expressed", "Give a type")
    elif "type" in schema and not any(keyword in schema for keyword in ("const", "enum")):
        if view.bits & ARRAY and "items" not in schema:
            yield view.finding("type", "an array without items cannot be expressed", "Give items")
        if view.bits & OBJECT and not (schema.get("properties") and schema.get("additionalProperties") is False):
            yield view.finding("type", "an open object cannot be expressed", 'Add "additionalProperties": false')


def _counted_properties(view: _View, settings: Settings) -> Iterator[Finding]:
    """`minProperties` and `maxProperties` beside optional properties."""
    if not view.bits & OBJECT:
        return
    names = {name for keyword, name in view.site.children if keyword == "properties"}
    if names <= set(_required(view.schema)):
        return
    at_least_one = view.number("minProperties") == 1 and view.number("maxProperties") is None and _is_closed(view)
    for keyword in ("minProperties", "maxProperties"):
        if view.number(keyword) is not None and not at_least_one:
            yield view.finding(keyword, f"{keyword} is not enforced beside optional properties")
            return


def _depth(view: _View, settings: Settings) -> Iterator[Finding]:
    """Nesting that an engine's parser or grammar cannot carry."""
    if view.site.depth > settings["most"]:
        yield Finding(
            f"{view.support.engine}: nested more than {settings['most']} levels deep", pointer=view.site.pointer
        )


def _root_boolean(view: _View, settings: Settings) -> Iterator[Finding]:
    if isinstance(view.site.schema, bool) and not view.site.pointer:
        yield view.finding("", "a boolean is refused as the whole schema", "Write {} for true")


def _beside(view: _View, settings: Settings) -> Iterator[Finding]:
    """Pairs of keywords that break one another."""
    for keyword, others in settings.items():
        if keyword in view.schema and not _asserts_nothing(view, keyword):
            for other in others:
                if other in view.schema and not _asserts_nothing(view, other):
                    yield view.finding(keyword, f"{keyword} is not enforced beside {other}")


_NO_SUPPORT = SchemaSupport("", "", "", {}, {}, frozenset(), unknown_formats=False, noops=True, checks={})

CHECKS: Mapping[str, tuple[Sequence[str], Check]] = {
    "allof-branches": (("allOf",), _branches),
    "boolean-bounds": (("exclusiveMaximum", "exclusiveMinimum"), _boolean_bounds),
    "closed": (("",), _closed),
    "closed-shapes": (("",), _closed_shapes),
    "counted-properties": (("maxProperties", "minProperties"), _counted_properties),
    "depth": (("",), _depth),
    "enum-containers": (("const", "enum"), _enum_containers),
    "enum-numbers": (("const", "enum"), _enum_numbers),
    "enum-type-conflict": (("const", "enum"), _enum_type_conflict),
    "false-schema": (("",), _false_schema),
    "integer-bounds": (_BOUNDS, _integer_bounds),
    "keywords-beside": (("",), _beside),
    "list-items": (("items",), _list_items),
    "oneof-disjoint": (("oneOf",), _one_of),
    "pattern": (("pattern",), _pattern),
    "pattern-properties": (("patternProperties",), _pattern_properties),
    "prefix-items": (("prefixItems",), _prefix_items),
    "property-names": (("propertyNames",), _property_names),
    "refs": (("$ref",), _ref),
    "required-needs-properties": (("required",), _required_properties),
    "root-boolean": (("",), _root_boolean),
    "steps": (("multipleOf",), _steps),
    "typeless-constraints": (("",), _typeless),
    "unevaluated": (("unevaluatedItems", "unevaluatedProperties"), _unevaluated),
    "whole-counts": (_COUNTS, _whole_counts),
}
"""By name, the keywords that bring a check on ("" is every schema), and the check."""
