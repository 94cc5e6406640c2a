"""Rewrites of JSON schemas: another schema with the very same meaning, which an engine enforces although it would not
enforce the one that was asked for.

Each rewrite is one function, which looks at one site and returns what may stand in its place, or None where it does not
apply or would not be exact. `rewrite` applies them where a support table has findings, outer sites first, until nothing
is found any more. Where that does not come about, the schema stays as it is, with its findings.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from grammar_backends.contract.spec import JSON, GrammarOptions
from grammar_backends.errors import SpecError
from grammar_backends.selection import string_rules
from grammar_backends.selection.complement import Alternatives, Complement, product, union
from grammar_backends.selection.disjoint import Comparison, members_of, required_of
from grammar_backends.selection.drafts import deciding
from grammar_backends.selection.evaluation import Evaluation
from grammar_backends.selection.findings import Rewrite
from grammar_backends.selection.keywords import ASSERTIONS, COMBINATORS, GROUP_BITS, GROUPS
from grammar_backends.selection.merging import annotating, asserting, bare, conjoin, dead, names_of, rests_on, size_of
from grammar_backends.selection.patterns import searched
from grammar_backends.selection.places import UNEVALUATED, is_plain, written_plain
from grammar_backends.selection.schema import ANY, ARRAY, INT, SchemaWalk, Site, declared, escape, unescape, walk
from grammar_backends.selection.support import Judged, SchemaSupport
from grammar_backends.selection.view import View, asserts_nothing

__all__ = ["MAX_FINDINGS", "RULES", "Round", "Rule", "rewrite"]

MAX_ROUNDS = 8
MAX_SITES = 4_000
"""Subschemas of a schema that is rewritten: reading one of that size takes some 20 ms, and every round reads it."""
MAX_FINDINGS = 32
"""Sites with findings: more are a schema that is not for this engine."""
MAX_WORK = 30_000
"""Steps of comparing and evaluating in one round; see `Comparison`."""
ENDLESS = 2**31
"""Characters, items or properties that no text has: most as many are as many as there may be."""
MAX_COPIED = 400
"""Values in the schemas that one rewrite writes out in full."""


def rewrite(
    schema: JSON | SchemaWalk, support: SchemaSupport, options: GrammarOptions, judged: Iterable[Judged] | None = None
) -> tuple[JSON, tuple[Rewrite, ...]] | None:
    """The schema in a form that an engine enforces all of, and how it came about; None when there is none.

    With `additional_properties="closed"` there is none: what a rewrite adds would be closed too.

    Args:
        schema: what to rewrite.
        support: what the engine enforces.
        options: how the schema is to be read.
        judged: `SchemaSupport.judged` of it, where that is known already.

    Raises:
        SpecError: not a schema at some position, or too deep or large.
    """
    if options.additional_properties == "closed":
        return None
    sites = schema if isinstance(schema, SchemaWalk) else walk(schema)
    applied: list[Rewrite] = []
    for _ in range(MAX_ROUNDS):
        if len(sites) > MAX_SITES:
            return None
        round_ = Round(sites, options, support.judged(sites, options) if judged is None else judged)
        if not round_.judged:
            return (sites.schema, tuple(applied)) if applied else None
        judged, written = None, round_.write() if is_plain(sites) else written_plain(sites)
        if written is None:
            return None
        applied += written[1]
        try:
            sites = SchemaWalk(written[0])  # what is written adds no level that is not a subschema's
        except SpecError:  # too deep or too large by now
            return None
    return None


@dataclass(frozen=True, slots=True)
class _Written:
    pointer: str
    schema: JSON
    rewrite: Rewrite


class Round:
    """One reading of a schema, and what is rewritten in it."""

    def __init__(self, sites: SchemaWalk, options: GrammarOptions, judged: Iterable[Judged]) -> None:
        self.sites = sites
        self.legacy = sites.legacy_refs
        self.options = options
        self.judged: list[tuple[View, set[str]]] = []
        """The sites with findings, and the keywords that are at fault."""
        self.is_hopeful = True
        """False when some finding is beyond every rule; the sites after it are then not looked at."""
        for view, found in judged:
            keywords = {finding.keyword or "" for finding in found}
            self.judged.append((view, keywords))
            self.is_hopeful = len(self.judged) <= MAX_FINDINGS and _is_hopeful(view, keywords)
            if not self.is_hopeful:
                break
        self.comparison = Comparison(MAX_WORK)
        self.evaluation = Evaluation(self.comparison)

    @functools.cached_property
    def targets(self) -> frozenset[str]:
        """Where references lead."""
        return frozenset(site.target.pointer for site in self.sites if site.target is not None)

    @functools.cached_property
    def deciding(self) -> frozenset[Site]:
        """The sites where to match less is to let more pass."""
        return frozenset(deciding(self.sites))

    def complement_at(self, site: Site) -> Complement:
        """Complements for the keywords of a site: of patterns only exact ones, where less would not do."""
        return Complement(self.sites, self.comparison, exact=site in self.deciding)

    def write(self) -> tuple[JSON, list[Rewrite]] | None:
        """The schema after one rewrite at each place that can have one; None when there is no such place."""
        if not self.is_hopeful:
            return None
        written: dict[str, JSON] = {}
        applied: list[Rewrite] = []
        for view, keywords in self.judged:
            found = self._rewritten(view, keywords, written)
            if found is not None:
                written[found.pointer] = found.schema
                applied.append(found.rewrite)
            elif not _is_inside(view.site.pointer) and not _overlaps(view.site.pointer, written):
                return None  # nothing else could help this one
        if not written:
            return None
        return _with(self.sites.schema, written), applied

    def _rewritten(self, view: View, keywords: set[str], written: Mapping[str, JSON]) -> _Written | None:
        for place in _enclosing(view, self.sites):
            if _overlaps(place.site.pointer, written):
                continue
            rules = RULES if place is view else RULES[:1]
            for rule in rules:
                touched = keywords if rule.keywords is None else keywords & rule.keywords & {*place.schema, ""}
                schema = rule.write(self, place) if touched else None
                if schema is None or (schema is False and not place.site.pointer):
                    continue
                if self.keeps_targets(place.site, schema):
                    keyword = next((key for key in place.schema if key in touched), min(touched))
                    return _Written(place.site.pointer, schema, Rewrite(keyword, place.site.pointer, rule.what))
        return None

    def keeps_targets(self, site: Site, schema: JSON) -> bool:
        """True when every reference into a site still leads to the same schema."""
        inside = [pointer for pointer in self.targets if pointer.startswith(f"{site.pointer}/")]
        return all(_is_kept(site.schema, schema, pointer[len(site.pointer) + 1 :].split("/")) for pointer in inside)

    def written_out(self, site: Site, unfold: bool = False) -> JSON:
        """What a site refers to, where it is a reference and nothing else; the site itself otherwise."""
        is_lone = site.target is not None and len(asserting(site.schema)) == 1
        target = self.referred(site, unfold) if is_lone else None
        return bare(site.schema) if target is None else target

    def referred(self, site: Site, unfold: bool) -> JSON:
        """What a reference leads to; None where that leads back, unless it is to be unfolded once.

        In that copy, references stand in for the places that have findings: they may be the site itself.
        """
        if site.target is None or site.target is site:
            return None
        if site not in self.sites.recursive:
            return bare(site.target.schema)
        if not unfold:
            return None
        places = {
            view.site.pointer: {"$ref": f"#{quote(view.site.pointer, safe=_IN_FRAGMENTS)}"} for view, _ in self.judged
        }
        places.pop(site.target.pointer, None)
        return bare(_with(site.target.schema, places, site.target.pointer))

    # -- what rules write ---------------------------------------------------------------------------------

    def replace(self, view: View, gone: Sequence[str], alternatives: Alternatives) -> JSON:
        """The site without some keywords, and with one of the alternatives; None where that cannot be said."""
        if alternatives is None:
            return None
        rest = {keyword: value for keyword, value in view.schema.items() if keyword not in gone}
        alternatives = [schema for schema in alternatives if not dead(conjoin(_typed(rest), schema, self.legacy))]
        whole = product([asserting(rest)], alternatives, self.legacy)
        if whole is not None and not any(map(_is_merged, whole)) and (len(whole) == 1 or size_of(whole) <= MAX_COPIED):
            schema = union(whole)
            merged = schema if schema is False else {**annotating(rest), **(schema if schema is not True else {})}
            if self.keeps_targets(view.site, merged):
                return merged
        return _beside(rest, union(alternatives))


def _beside(rest: Mapping[str, JSON], schema: JSON) -> JSON:
    """A schema beside the keywords of another one, which stay where they are."""
    if isinstance(schema, bool):
        return dict(rest) if schema else False
    if schema.keys() == {"anyOf"} and "anyOf" not in rest:
        return {**rest, **schema}
    return {**rest, "allOf": [*rest.get("allOf", []), schema]}


def _is_merged(schema: JSON) -> bool:
    return isinstance(schema, dict) and schema.keys() == {"allOf"} and len(schema["allOf"]) == 2


def _typed(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    return {"type": schema["type"]} if "type" in schema else {}


def _enclosing(view: View, sites: SchemaWalk) -> Iterator[View]:
    """The sites that judge the same value and list what it may be, outermost first, and then the site itself."""
    parts = view.site.pointer.split("/")
    above: list[View] = []
    for end in range(len(parts) - 1, 0, -1):
        if parts[end].isdigit():
            continue
        if parts[end] not in _IN_PLACE:
            break
        site = sites.sites.get("/".join(parts[:end]))
        if site is None:
            break
        above.append(View(site, sites, view.options, view.comparison))
    yield from reversed(above)
    yield view


_IN_PLACE = frozenset(("allOf", "anyOf", "else", "if", "not", "oneOf", "then"))


def _is_inside(pointer: str) -> bool:
    """True for a place that may be in a schema which is rewritten as a whole."""
    return any(part in _IN_PLACE for part in pointer.split("/"))


def _overlaps(pointer: str, written: Mapping[str, JSON]) -> bool:
    """True for a place that holds a rewritten one, or is in one."""
    return any(
        pointer == other or pointer.startswith(f"{other}/") or other.startswith(f"{pointer}/") for other in written
    )


def _is_kept(before: JSON, after: JSON, path: Sequence[str]) -> bool:
    for part in path:
        key = unescape(part)
        index: str | int = int(key) if isinstance(before, list) else key
        try:
            before, after = before[index], after[index]
        except (KeyError, IndexError, TypeError):
            return False
    return before is after


def _is_hopeful(view: View, keywords: set[str]) -> bool:
    """False where no rule could do away with a finding: a quick answer for most schemas."""
    if view.schema.keys() & _MERGED or _is_inside(view.site.pointer):
        return True
    typeless = "type" not in view.schema
    return all(
        keyword in _SPECIFIC or (typeless and keyword in GROUPS) or (keyword in view.schema and _is_idle(view, keyword))
        for keyword in keywords
    )


def _with(schema: JSON, written: Mapping[str, JSON], pointer: str = "") -> JSON:
    """A schema with other values at some places; what holds none of them is shared."""
    if pointer in written:
        return written[pointer]
    if not any(place.startswith(f"{pointer}/") for place in written):
        return schema
    if isinstance(schema, dict):
        return {key: _with(value, written, f"{pointer}/{escape(key)}") for key, value in schema.items()}
    return [_with(value, written, f"{pointer}/{index}") for index, value in enumerate(schema)]


_MERGED = frozenset(COMBINATORS)
_HOLDING = ("$ref", "allOf", "anyOf", "oneOf")
"""The combinators that hold schemas, in the order in which they are merged."""
_IN_FRAGMENTS = "/~!$&'()*+,;=:@"
"""What stands for itself in the fragment of a URI."""


# -- the rules -----------------------------------------------------------------------------------------------


def _filter_members(round_: Round, view: View) -> JSON:
    """`enum` beside anything that can be told of its members: those that are valid, and nothing else."""
    holders = [view.site, *view.site.group("allOf")]
    listed = [(site, key) for site in holders if isinstance(site.schema, dict) for key in _LISTS if key in site.schema]
    if not listed or (listed[0][0] is view.site and len(view.schema.keys() & ASSERTIONS) == 1):
        return None
    members = members_of(listed[0][0].schema, listed[0][1]) or []
    verdicts = [round_.evaluation.admits(view.site, member) for member in members]
    if None in verdicts or not members:
        return None
    valid = [member for member, verdict in zip(members, verdicts, strict=True) if verdict]
    return {**annotating(view.schema), "enum": valid} if valid else False


_LISTS = ("enum", "const")


def _drop(round_: Round, view: View) -> JSON:
    """Keywords that say nothing at their place."""
    rest = {key: value for key, value in view.schema.items() if key not in ASSERTIONS or not _is_idle(view, key)}
    return rest if len(rest) < len(view.schema) else None


def _is_idle(view: View, keyword: str) -> bool:
    schema = view.schema
    if keyword in ("minContains", "maxContains"):
        return "contains" not in schema or asserts_nothing(view, "contains")
    if keyword == "type" and any(key in schema for key in _HOLDING):
        return not view.comparison.possible_without_type(view.site) & ~view.bits
    if keyword == "uniqueItems":
        most = schema.get("maxItems")
        return asserts_nothing(view, keyword) or (isinstance(most, (int, float)) and most <= 1)
    if keyword in ("maxItems", "maxLength", "maxProperties"):
        return schema[keyword] >= ENDLESS or asserts_nothing(view, keyword)
    if keyword == "minProperties":
        return asserts_nothing(view, keyword) or schema[keyword] <= len({*required_of(schema)})
    if keyword == "not":
        return not view.comparison.possible(view.site) & view.comparison.possible(view.site.children["not", None])
    return asserts_nothing(view, keyword)


def _not(round_: Round, view: View) -> JSON:
    """`not`: what it forbids, turned into what is allowed."""
    excluded = view.site.children["not", None]
    return round_.replace(
        view, ("not",), round_.complement_at(view.site).of(excluded, view.comparison.possible(view.site))
    )


def _if(round_: Round, view: View) -> JSON:
    """`if`: the condition and `then`, or its complement and `else`."""
    condition = view.site.children.get(("if", None))
    if condition is None:
        return None
    otherwise = round_.complement_at(view.site).of(condition, view.comparison.possible(view.site))
    holds = product([condition.schema], [view.schema.get("then", True)], round_.legacy)
    fails = product(otherwise, [view.schema.get("else", True)], round_.legacy)
    if holds is None or fails is None:
        return None
    return round_.replace(view, ("if", "then", "else"), [*holds, *fails])


def _dependencies(round_: Round, view: View) -> JSON:
    """What a property asks for: the property is absent, or all of it is there."""
    alternatives: Alternatives = [{}]
    gone = [keyword for keyword in _DEPENDENT if keyword in view.schema]
    for keyword in gone:
        for name, needed in view.schema[keyword].items():
            alternatives = product(alternatives, _dependency(name, needed, round_.legacy), round_.legacy)
    return round_.replace(view, gone, alternatives)


_DEPENDENT = ("dependencies", "dependentRequired", "dependentSchemas")


def _dependency(name: str, needed: JSON, legacy: bool) -> Alternatives:
    if needed is True or needed in ({}, []):
        return [{}]
    absent: JSON = {"properties": {name: False}}
    if needed is False:
        return [absent]
    if isinstance(needed, (list, str)):
        names = [*([needed] if isinstance(needed, str) else needed), name]
        return [absent, {"required": list(dict.fromkeys(names))}]
    return [absent, *(product([{"required": [name]}], [needed], legacy) or [])]


def _one_of(round_: Round, view: View) -> JSON:
    """`oneOf`: first no kinds that two branches take whole, then each branch without what others allow too."""
    branches = view.site.group("oneOf")
    within = view.comparison.possible(view.site)
    once = twice = 0
    for branch in branches:
        whole = _kinds_taken_whole(round_.written_out(branch))
        once, twice = once | whole, twice | once & whole
    names = names_of(within & ~twice)
    if within & twice and names is not None:
        return {**view.schema, "type": names} if names else False
    found: list[JSON] = []
    for branch in branches:
        alone: Alternatives = [branch.schema]
        for other in branches:
            if other is not branch and not round_.comparison.disjoint_within(view.site, branch, other):
                beside = branch.target or branch
                alone = product(alone, round_.complement_at(view.site).of(other, within, beside), round_.legacy)
        if alone is None:
            return None
        found += alone
    return round_.replace(view, ("oneOf",), found)


def _kinds_taken_whole(schema: JSON) -> int:
    """Kinds of which a schema takes every value: those that none of its keywords is about."""
    if isinstance(schema, bool):
        return ANY if schema else 0
    kinds = declared(schema)
    for keyword in rests_on(schema):
        if keyword != "type":
            kinds &= ~GROUP_BITS[GROUPS[keyword]] if keyword in GROUPS else 0
    return kinds


def _flatten(round_: Round, view: View) -> JSON:
    """Combinators and what stands beside them, merged into one schema or one list of alternatives."""
    merged = _merged(round_, view, unfold=False)
    return _merged(round_, view, unfold=True) if merged is None and round_.sites.recursive else merged


def _merged(round_: Round, view: View, unfold: bool) -> JSON:
    gone = [keyword for keyword in _HOLDING if keyword in view.schema]
    rest = {keyword: value for keyword, value in view.schema.items() if keyword not in gone}
    whole: Alternatives = [asserting(rest)]
    for keyword in gone:
        whole = product(whole, _branches_of(round_, view, keyword, unfold), round_.legacy)
    if not gone or whole is None or any(map(_is_merged, whole)) or size_of(whole) > MAX_COPIED:
        return None
    if not unfold and any("$ref" in each and len(rests_on(each)) > 1 for each in whole if each is not True):
        return None
    schema = union(whole)
    if isinstance(schema, bool):
        return annotating(rest) if schema else False
    written = {**annotating(rest), **schema}
    return written if written != view.schema else None


def _branches_of(round_: Round, view: View, keyword: str, unfold: bool) -> Alternatives:
    site = view.site
    if keyword == "$ref":
        target = round_.referred(site, unfold)
        return None if target is None else [target]
    if keyword == "oneOf" and view.comparison.exclusive(site) is not None:
        return None
    branches = [round_.written_out(branch, unfold) for branch in site.group(keyword)]
    if keyword != "allOf":
        return branches
    whole: Alternatives = [{}]
    for branch in branches:
        whole = product(whole, [branch], round_.legacy)
    return whole


def _split_types(round_: Round, view: View) -> JSON:
    """Constraints without `type`: one alternative for the values of each type that they are about."""
    schema = view.schema
    if "type" in schema or any(keyword in schema for keyword in COMBINATORS):
        return None
    concerned = list(dict.fromkeys(GROUPS[key] for key in schema if key in GROUPS and not asserts_nothing(view, key)))
    others = [keyword for keyword in schema if keyword in ASSERTIONS and keyword not in GROUPS]
    if not concerned or others:
        return None
    rest = ANY
    alternatives: list[JSON] = []
    for name in concerned:
        rest &= ~GROUP_BITS[name]
        alternatives.append({"type": name, **{key: schema[key] for key in schema if GROUPS.get(key) == name}})
    if rest:
        alternatives.append({"type": names_of(rest)})
    return {**annotating(schema), "anyOf": alternatives}


def _list_required(round_: Round, view: View) -> JSON:
    """Required properties that `properties` does not list: listed there, as what they are already."""
    listed = view.schema.get("properties", {})
    added: dict[str, JSON] = {}
    for name in required_of(view.schema):
        if name not in listed:
            found = [searched(pattern, name) for pattern in view.schema.get("patternProperties", ())]
            if None in found:
                return None
            added[name] = {} if True in found else view.schema.get("additionalProperties", {})
    if not added or False in added.values() or "unevaluatedProperties" in view.schema:
        return None
    return {**view.schema, "properties": {**listed, **added}}


def _whole_numbers(round_: Round, view: View) -> JSON:
    """Counts and bounds spelled with a fraction: as whole numbers, where only whole numbers are counted or bounded."""
    written = dict(view.schema)
    for keyword, value in view.schema.items():
        if isinstance(value, float) and keyword in _COUNTS and value == int(value):
            written[keyword] = int(value)
    if view.bits & 12 == INT and not any(isinstance(view.schema.get(keyword), bool) for keyword in _BOUNDS):
        _round_bounds(written)
    return written if [*map(type, written.values())] != [*map(type, view.schema.values())] else None


_COUNTS = frozenset(
    ("maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties")
)
_EXCLUSIVE = frozenset(("exclusiveMaximum", "exclusiveMinimum"))
_BOUNDS = _EXCLUSIVE | {"maximum", "minimum"}


def _round_bounds(schema: dict[str, JSON]) -> None:
    for plain, whole, choose in (("minimum", math.ceil, max), ("maximum", math.floor, min)):
        exclusive = f"exclusive{plain.capitalize()}"
        value = schema.get(exclusive)
        if isinstance(value, float) and value.is_integer():
            schema[exclusive] = int(value)
        elif isinstance(value, float):
            bound = whole(schema.pop(exclusive))
            schema[plain] = choose(bound, schema.get(plain, bound))
        if isinstance(schema.get(plain), float):
            schema[plain] = whole(schema[plain])


def _numeric_bounds(round_: Round, view: View) -> JSON:
    """`exclusiveMinimum: true`, as draft 4 has it: the bound itself."""
    written = dict(view.schema)
    for keyword in ("minimum", "maximum"):
        exclusive = f"exclusive{keyword.capitalize()}"
        if written.get(exclusive) is True:
            del written[exclusive]
            if keyword in written:
                written[exclusive] = written.pop(keyword)
    return written if written != view.schema else None


def _contains(round_: Round, view: View) -> JSON:
    """`contains` where it asks for any item, or for none that matches."""
    if not view.bits & ARRAY or "contains" not in view.schema or "unevaluatedItems" in view.schema:
        return None
    item = view.site.children["contains", None]
    least, most = view.schema.get("minContains", 1), view.schema.get("maxContains")
    gone = ("contains", "minContains", "maxContains")
    kinds = view.comparison.possible(view.site)
    if item.schema in (True, {}) and item.schema is not False:
        bounds = {"minItems": least} if most is None else {"minItems": least, "maxItems": most}
        return round_.replace(view, gone, [bounds])
    if item.schema is False and least > 0:
        names = names_of(kinds & ~ARRAY)
        return None if names is None else round_.replace(view, gone, [{"type": names}] if names else [])
    if least == 0 and most == 0:
        other = round_.complement_at(view.site).of(item)
        return None if other is None else round_.replace(view, gone, [{"items": union(other)}])
    return None


def _unevaluated(round_: Round, view: View) -> JSON:
    """`unevaluatedProperties` and `unevaluatedItems`: they are about all the rest."""
    written = dict(view.schema)  # there is nothing to look into: see is_plain
    properties = written.pop("unevaluatedProperties", None)
    if properties is not None:
        written.setdefault("additionalProperties", properties)
    items = written.pop("unevaluatedItems", None)
    if items is not None:
        written.setdefault("additionalItems" if isinstance(written.get("items"), list) else "items", items)
    return written


def _boolean_root(round_: Round, view: View) -> JSON:
    return {} if view.site.schema is True and not view.site.pointer else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite.

    Attributes:
        name: unique.
        keywords: findings at these keywords bring it on; None for any.
        write: what stands in a site's place; None where the rule does not apply or would not be exact.
        what: what it does, in words.
    """

    name: str
    keywords: frozenset[str] | None
    write: Callable[[Round, View], JSON]
    what: str


def _rule(name: str, keywords: Iterable[str] | None, write: Callable[[Round, View], JSON], what: str) -> Rule:
    return Rule(name, None if keywords is None else frozenset(keywords), write, what)


RULES: Sequence[Rule] = (
    _rule("members", None, _filter_members, "the listed values that all of it allows"),
    _rule("root", ("",), _boolean_root, "an empty schema"),
    _rule("drop", None, _drop, "left out where it says nothing"),
    _rule("whole-numbers", _COUNTS | _BOUNDS, _whole_numbers, "whole numbers"),
    _rule("numeric-bounds", _EXCLUSIVE, _numeric_bounds, "the bound itself, as in later drafts"),
    _rule("format", ("format",), string_rules.format_pattern, "a pattern"),
    _rule("strings", None, string_rules.strings, "one pattern"),
    _rule("look-ahead", ("pattern", "patternProperties"), string_rules.look_ahead, "the same without look-ahead"),
    _rule(
        "patterns", ("patternProperties",), string_rules.patterns_apart, "patterns of which one at most matches a name"
    ),
    _rule("not", ("not",), _not, "what is left, as alternatives"),
    _rule("if", ("else", "if", "then"), _if, "the condition and then, or its complement and else"),
    _rule("dependencies", _DEPENDENT, _dependencies, "the property is absent, or what it needs is present"),
    _rule("one-of", ("oneOf",), _one_of, "anyOf, of branches that exclude one another"),
    _rule("contains", ("contains", "maxContains", "minContains"), _contains, "counts, or items"),
    _rule("property-names", ("propertyNames",), string_rules.name_patterns, "patternProperties, and no others"),
    _rule("unevaluated", UNEVALUATED, _unevaluated, "additional properties or items"),
    _rule("merge", None, _flatten, "merged with what stands beside it"),
    _rule("types", None, _split_types, "one alternative for each type"),
    _rule("required", ("required",), _list_required, "listed in properties too"),
)
"""In the order in which they are tried at a site."""

_SPECIFIC = frozenset(keyword for rule in RULES for keyword in rule.keywords or ())
"""The keywords that have a rule of their own."""
