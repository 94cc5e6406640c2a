"""The named checks and costs that a support table switches on: what no list of keywords can say.

Each is written once here for every engine. A table names those that apply to its engine and gives each its settings,
`{}` where there are none or the defaults are meant::

    check                      finding for                                  settings
    -------------------------  -------------------------------------------  --------------------------------------------
    allof-branches             allOf with many branches                     most: branches that are merged
    boolean-bounds             exclusiveMinimum or Maximum true (draft 4)
    bounds                     bounds of integers and numbers               whole: fractions for integers are refused
                                                                            below: what integers must be smaller than
                                                                            bits: what integers must fit
                                                                            numbers_below: as below, for numbers
                                                                            digits: those that a fraction may have
                                                                            exclusive_below: what fractions must be
                                                                            smaller than to be excluded
    closed                     arrays and bare objects, when the option
                               additional_properties is "closed"
    closed-shapes              free JSON, arrays without items, objects
                               that are open or empty
    counted-properties         minProperties or maxProperties beside
                               optional properties
    crossed-counts             more items, characters or properties at
                               least than at most
    depth                      nesting                                      most: levels that are read
    enum-containers            objects and arrays in enum and const, but
                               for compact white space
    enum-integers              integers in enum and const                   below: what all must be smaller than
    enum-numbers               fractions in enum and const                  digits: only those with more digits
    enum-type-conflict         members that other keywords forbid
    false-schema               the schema `false`                           allowed: who may hold it ("" is the root)
    keywords-beside            pairs of keywords                            per keyword, those it is lost beside
    large-counts               lengths and numbers of items or properties   length, items, properties: what each must be
                               that an engine cannot count to               below
    list-items                 items as a list (before 2020-12)
    merged-recursion           references that lead back to themselves,
                               beside what they would be merged with
    merged-patterns            patterns that may both match a name, one in
                               patternProperties here, one where $ref, allOf,
                               anyOf or oneOf leads
    number-bounds              a whole number that is excluded, beside a
                               fraction of the same whole part
    oneof-disjoint             oneOf with branches that may both match
    open-names                 names of properties beyond printable         printable: only control characters in names
                               ASCII, quotes and backslashes in them,
                               in objects that are left open
    pattern                    patterns                                     the settings for patterns
    pattern-properties         patternProperties                            the settings for patterns, and
                                                                            closed: only in closed objects
                                                                            apart: not on names in properties
    prefix-items               booleans in prefixItems, shorter maxItems
    property-names             propertyNames                                the settings for patterns, and
                                                                            allowed: keywords below it (default: all),
                                                                            one at a time
                                                                            not_beside: keywords it is lost beside
                                                                            closed: in closed objects too
    refs                       references that leave the schema             pointers_only: only #/... of the root
                                                                            recursion: false where it is refused
    required-needs-properties  required names that properties lacks
    root-boolean               a boolean as the whole schema
    steps                      multipleOf                                   whole: only whole numbers
                                                                            alone: not beside bounds
                                                                            most: what it may be, without its point
                                                                            decimals: digits behind that
                                                                            short_fractions: only 0.1, 0.05, 2.5, ...
    typeless-constraints       constraints without type                     naming: keywords that are taken for a type,
                                                                            even where they say nothing
    unevaluated                unevaluatedItems, unevaluatedProperties      not: per keyword, values that are not
                               beside combinators                           enforced anywhere
    whole-counts               counts spelled with a fraction (2.0)

    settings for patterns      finding for
    -------------------------  -----------------------------------------------------------------------------------------
    no_looks                   look-around, back-references, word boundaries, empty and POSIX classes
    dialect                    what is outside of the layer's own dialect
    anchored                   patterns that do not span the whole string
    options_apart              alternatives that begin alike
    outer_anchors              anchors that are not at the very ends
    plain                      what may match a quote, a backslash or a control character; "keys" lets `.` and negated
                               classes pass

    cost                       reason                                       settings
    -------------------------  -------------------------------------------  --------------------------------------------
    open-properties            listed properties of open objects            most: properties that are quick enough
    plain-names                names by pattern have no escapes             -
    short-decimals             bounded numbers have few decimals            most: decimals
    unicode-categories         patterns with `\\p`                          -
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from grammar_backends.contract.spec import JSON
from grammar_backends.errors import shown
from grammar_backends.selection.disjoint import excludes, members_of, required_of, texts_of
from grammar_backends.selection.findings import Finding
from grammar_backends.selection.keywords import ASSERTIONS, COMBINATORS, GROUP_BITS, GROUPS
from grammar_backends.selection.languages import may_overlap, work_on
from grammar_backends.selection.patterns import (
    anchored,
    cannot_match,
    has_inner_anchors,
    needs_escapes,
    options_overlap,
    tree_of,
)
from grammar_backends.selection.schema import ARRAY, FRACTION, INT, OBJECT, STRING, Site, number_bounds
from grammar_backends.selection.view import View, asserts_nothing

__all__ = ["CHECKS", "COSTS", "TIMES", "Check", "NamedCheck", "Settings"]

Settings = Mapping[str, JSON]

Check = Callable[[View, Settings], Iterator[Finding]]


def _typeless(view: View, settings: Settings) -> Iterator[Finding]:
    """Without `type` an engine guesses one, or enforces nothing."""
    for keyword in view.schema:
        if keyword in settings.get("naming", ()) or (keyword in GROUPS and not asserts_nothing(view, keyword)):
            yield view.finding(keyword, f"{keyword} is not enforced without type", f'Add "type": "{GROUPS[keyword]}"')
            return


def _ref(view: View, settings: Settings) -> Iterator[Finding]:
    """References that leave the document, or that an engine resolves otherwise."""
    reference = view.schema["$ref"]
    if view.site.target is None:
        yield view.finding(
            "$ref", f"{shown(reference)} is not in the schema and nothing is fetched", "Put it into $defs"
        )
    elif settings.get("pointers_only") and (
        (not str(reference).startswith("#/") and reference != "#") or view.site.base
    ):
        yield view.finding("$ref", f"{shown(reference)} is not resolved", "Write it as #/$defs/...")
    elif settings.get("recursion") is False and view.site in view.sites.recursive:
        yield view.finding("$ref", "recursion is cut off at some depth")


def _branches(view: View, settings: Settings) -> Iterator[Finding]:
    """More branches of allOf than an engine merges."""
    if len(view.site.group("allOf")) > settings["most"]:
        yield view.finding("allOf", f"more than {settings['most']} branches are not merged", "Merge the branches")


def _one_of(view: View, settings: Settings) -> Iterator[Finding]:
    """`oneOf` read as `anyOf`: right only when no value is valid under two branches."""
    pair = view.comparison.exclusive(view.site)
    if pair is not None:
        yield view.finding(
            "oneOf",
            f"the branches {pair[0].pointer} and {pair[1].pointer} may both match, which is not ruled out",
            "Use anyOf, or give the branches a required property with different constants",
        )


def _false_schema(view: View, settings: Settings) -> Iterator[Finding]:
    """Engines that refuse a schema for a `false` in it, though it only forbids one thing."""
    if view.site.schema is False and view.site.keyword not in settings.get("allowed", ()):
        yield view.finding(view.site.keyword, "the schema `false` is refused here")


def _enum_type_conflict(view: View, settings: Settings) -> Iterator[Finding]:
    """Members that the siblings of `enum` or `const` forbid, but the engine allows."""
    schema = view.schema
    for keyword in ("enum", "const"):
        members = members_of(schema, keyword)
        others = {name: value for name, value in schema.items() if name != keyword}
        if members is not None and any(excludes(others, member) for member in members):
            yield view.finding(keyword, f"a value of {keyword} that other keywords forbid is allowed", "Remove it")


def _enum_containers(view: View, settings: Settings) -> Iterator[Finding]:
    """Objects and arrays of which only the compact spelling is allowed."""
    if view.options.whitespace == "compact":
        return
    for keyword in ("enum", "const"):
        if any(isinstance(member, (dict, list)) and member for member in members_of(view.schema, keyword) or ()):
            yield view.finding(keyword, f"an object or array in {keyword} is allowed without white space only")


def _enum_integers(view: View, settings: Settings) -> Iterator[Finding]:
    """Integers that an engine keeps as doubles, and so turns into others."""
    for keyword in ("enum", "const"):
        for value in _scalars(members_of(view.schema, keyword) or ()):
            if isinstance(value, int) and abs(value) >= settings["below"]:
                yield view.finding(keyword, f"{value} is too large to be kept exactly", "Write it as a string")
                break


def _enum_numbers(view: View, settings: Settings) -> Iterator[Finding]:
    """Fractions whose spelling an engine does not know, or that it turns into others."""
    for keyword in ("enum", "const"):
        members = members_of(view.schema, keyword) or ()
        if "digits" not in settings:
            if any(isinstance(member, float) for member in members):
                yield view.finding(keyword, f"a fraction in {keyword} may be spelled in a way that is refused")
        elif any(_has_digits(value, settings["digits"]) for value in _scalars(members)):
            yield view.finding(keyword, "a number with so many digits is not kept exactly", "Write it as a string")


def _scalars(members: Sequence[JSON]) -> Iterator[JSON]:
    """Members that are no containers, and what is in those that are."""
    pending = list(members)
    while pending:
        value = pending.pop()
        if isinstance(value, (dict, list)):
            pending += value.values() if isinstance(value, dict) else value
        else:
            yield value


def _has_digits(value: JSON, most: float) -> bool:
    """Whether a value is a fraction with more digits than these."""
    return isinstance(value, float) and len(Decimal(str(value)).normalize().as_tuple().digits) > most


def _whole_counts(view: View, settings: Settings) -> Iterator[Finding]:
    """`minLength: 2.0`: valid JSON Schema, refused by engines."""
    for keyword in _COUNTS:
        if isinstance(view.schema.get(keyword), float):
            yield view.finding(keyword, f"{keyword} must be written without a fraction", "Write 2 for 2.0")


def _large_counts(view: View, settings: Settings) -> Iterator[Finding]:
    """Counts beyond the integers of an engine, which cut them off or forget them."""
    for kind, unit in _UNITS:
        below = settings.get(unit.lower(), math.inf)
        for keyword in (f"min{unit}", f"max{unit}"):
            if view.bits & kind and (view.number(keyword) or 0) >= below:
                yield view.finding(keyword, f"{keyword} is too large to be enforced")


_UNITS = ((ARRAY, "Items"), (STRING, "Length"), (OBJECT, "Properties"))
"""Kinds of values that have a count, and how its keywords end."""
_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")

_BOUNDS = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")


def _bounds(view: View, settings: Settings) -> Iterator[Finding]:
    """Bounds of integers, and of numbers, that an engine cannot express."""
    if not view.bits & 12:
        return
    integers = view.bits & 12 == INT
    below = settings.get("below" if integers else "numbers_below", math.inf)
    for keyword in _BOUNDS:
        value = view.number(keyword)
        if value is None:
            continue
        if integers and settings.get("whole") and value != int(value):
            yield view.finding(keyword, f"{keyword} of an integer must be a whole number", "Round it")
        is_inexact = integers and isinstance(value, float) and abs(value) >= 2**53
        if "digits" in settings and (is_inexact or _has_digits(value, settings["digits"])):
            yield view.finding(keyword, f"{keyword} has more digits than are kept exactly")
        is_open_fraction = keyword.startswith("exclusive") and value != int(value)
        if is_open_fraction and abs(value) >= settings.get("exclusive_below", math.inf):
            yield view.finding(keyword, f"{keyword} is a fraction too large to be excluded")
        if abs(value) >= below or (integers and "bits" in settings and not _fits(value, settings["bits"])):
            yield view.finding(keyword, f"{keyword} is too large to be enforced")


def _fits(value: float, bits: int) -> bool:
    """Whether a value is in the range of signed integers of so many bits."""
    return -(1 << bits - 1) <= value < 1 << bits - 1


def _number_bounds(view: View, settings: Settings) -> Iterator[Finding]:
    """Between 1, which is excluded, and 1.5: an engine that goes by the decimals allows the 1 without any."""
    low, low_open, high, high_open = number_bounds(view.schema)
    above = low_open and low >= 0 and low == int(low) and (low < high < low + 1 or low in view.sites.fractions)
    below = high_open and high < 0 and high == int(high) and (high - 1 < low < high or high - 1 in view.sites.fractions)
    if view.bits & FRACTION and (above or below):
        keyword = "exclusiveMinimum" if above else "exclusiveMaximum"
        yield view.finding(keyword, "a whole number is not excluded where the other bound is less than 1 away")


def _boolean_bounds(view: View, settings: Settings) -> Iterator[Finding]:
    """`exclusiveMinimum: true`, as draft 4 has it."""
    for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
        if view.schema.get(keyword) is True and view.bits & 12:
            yield view.finding(keyword, f"{keyword} must be a number, as in the later drafts", "Give the bound itself")


def _steps(view: View, settings: Settings) -> Iterator[Finding]:
    """`multipleOf` that is not a whole number, is a large one, or stands beside bounds."""
    step = view.number("multipleOf")
    if step is None or not view.bits & 12:
        return
    if view.bits & 12 == INT and step <= 1 and (1 / step).is_integer():
        return  # every whole number is a multiple
    digits, decimals = _digits(step)
    if digits > settings.get("most", math.inf) or decimals > settings.get("decimals", math.inf):
        yield view.finding("multipleOf", "multipleOf is too large, or has too many digits, to be enforced")
    elif settings.get("whole") and step != int(step):
        yield view.finding("multipleOf", "only whole numbers are enforced")
    elif settings.get("alone") and any(view.number(keyword) is not None for keyword in _BOUNDS):
        yield view.finding("multipleOf", "multipleOf is not enforced beside bounds")
    elif settings.get("short_fractions") and view.bits & 8 and not _is_short(step):
        yield view.finding("multipleOf", "multiples with fewer decimals than the step are lost")


def _pattern(view: View, settings: Settings) -> Iterator[Finding]:
    """Patterns that an engine reads in another way."""
    if not view.bits & STRING:
        return
    yield from _judged_pattern(view, "pattern", str(view.schema["pattern"]), settings)


def _digits(step: float) -> tuple[int, int]:
    """A step without its decimal point, and how many digits are behind that: 125 and 2 for 1.25."""
    number = Decimal(str(step))
    decimals = max(0, -int(number.normalize().as_tuple().exponent))
    return int(number.scaleb(decimals)), decimals


def _is_short(step: float) -> bool:
    """True for whole numbers, one decimal, or a 1, 2 or 5 in the last decimal."""
    if step == int(step):
        return True
    decimals = f"{step:.15f}".rstrip("0").partition(".")[2]
    return len(decimals) < 2 or (step < 1 and decimals.lstrip("0") in ("1", "2", "5"))


_LOOKS = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?<?[=!]|\\[1-9]|\\k<|\\[bBAZzG]|\[\^?\]|\[:\^?\w+:\])")


def _judged_pattern(view: View, keyword: str, pattern: str, settings: Settings) -> Iterator[Finding]:
    if settings.get("no_looks") and _LOOKS.search(pattern):
        yield view.finding(
            keyword, "look-around, back-references, word boundaries, empty and POSIX classes are not enforced"
        )
    # The cheap test stands before the reading, unless it would hide the better reason.
    elif settings.get("anchored") and not anchored(pattern) and not _LOOKS.search(pattern):
        yield view.finding(
            keyword, "a pattern without ^ and $ is taken to match the whole string", "Write ^.*(...).*$ to search"
        )
    elif settings.get("dialect") and tree_of(pattern) is None:
        yield view.finding(keyword, f"the pattern {shown(pattern)} is outside of what is enforced")
    elif settings.get("options_apart") and options_overlap(pattern):
        yield view.finding(
            keyword, "alternatives that begin alike are not told apart", "Write what they begin with once, as in a(b|c)"
        )
    elif settings.get("outer_anchors") and has_inner_anchors(pattern):
        yield view.finding(keyword, "anchors inside of a pattern are refused", "Write ^(a|b)$ for ^a$|^b$")
    elif settings.get("plain") and needs_escapes(pattern, settings["plain"] == "keys"):
        yield view.finding(
            keyword,
            "a pattern that can match a quote, a backslash or a control character is not read as JSON",
            "Name the allowed characters instead, as in ^[A-Za-z0-9 ]*$",
        )


def _required_properties(view: View, settings: Settings) -> Iterator[Finding]:
    """Required names that `properties` does not list."""
    if view.bits & OBJECT and any(("properties", name) not in view.site.children for name in required_of(view.schema)):
        yield view.finding("required", "a required property must be listed in properties", "List it in properties")


def _pattern_properties(view: View, settings: Settings) -> Iterator[Finding]:
    """`patternProperties` beside what an engine does not combine it with."""
    if not view.bits & OBJECT:
        return
    patterns = [str(name) for keyword, name in view.site.children if keyword == "patternProperties"]
    for pattern in patterns:
        yield from _judged_pattern(view, "patternProperties", pattern, settings)
    if settings.get("closed") and not _is_closed(view) and patterns:
        yield view.finding("patternProperties", "the object must be closed", 'Add "additionalProperties": false')
    if len(patterns) > 1 and not _exclude_one_another(view, patterns):
        yield view.finding("patternProperties", "two patterns may match one name")
    names = [str(name) for keyword, name in view.site.children if keyword == "properties"]
    if settings.get("apart") and not _are_apart(view, patterns, names):
        yield view.finding("patternProperties", "a pattern may match a name in properties")


def _merged_patterns(view: View, settings: Settings) -> Iterator[Finding]:
    """Patterns of names that only meet where an engine merges the schemas that hold them."""
    if "patternProperties" not in view.sites.keywords or not view.bits & OBJECT:
        return
    parts = view.comparison.conjuncts(view.site)
    branches = [branch for part in parts for keyword in ("anyOf", "oneOf") for branch in part.group(keyword)]
    for beside in ((), *map(view.comparison.conjuncts, branches)):
        found = [list(part.schema.get("patternProperties", ())) for part in (*parts, *beside)]
        patterns = list(dict.fromkeys(itertools.chain(*found)))
        if len(patterns) > max(map(len, found)) and not _exclude_one_another(view, patterns):
            keyword = next(name for name in _MERGING if name in view.schema)
            yield view.finding(keyword, "patterns that may match one name are not merged", "List them in one schema")
            return


_MERGING = ("allOf", "$ref", "anyOf", "oneOf")
"""Keywords whose schemas an engine merges with what stands beside them."""


def _merged_recursion(view: View, settings: Settings) -> Iterator[Finding]:
    """References that lead back to themselves, beside what an engine would merge them with."""
    is_beside = len(ASSERTIONS.intersection(view.schema)) > 1
    for keyword in _MERGING if view.sites.recursive else ():
        branches = [view.site] if keyword == "$ref" and keyword in view.schema else view.site.group(keyword)
        if (is_beside or len(branches) > 1) and any(_leads_back(view, branch) for branch in branches):
            yield view.finding(keyword, "what leads back to itself is not merged with what stands beside it")
            return


def _leads_back(view: View, site: Site) -> bool:
    branches = (branch for keyword in ("allOf", "anyOf", "oneOf") for branch in site.group(keyword))
    return site in view.sites.recursive or any(_leads_back(view, branch) for branch in branches)


def _exclude_one_another(view: View, patterns: Sequence[str]) -> bool:
    """True when it is certain that no name matches two of the patterns."""
    steps = work_on(*patterns) * len(patterns)
    return view.comparison.is_certain((may_overlap, *patterns), steps, lambda: not may_overlap(patterns))


def _are_apart(view: View, patterns: Sequence[str], names: Sequence[str]) -> bool:
    def answer() -> bool:
        return all(cannot_match(pattern, name) for pattern in patterns for name in names)

    return view.comparison.is_certain((view.site, "names"), 10 * len(patterns) * len(names), answer)


def _is_closed(view: View) -> bool:
    schema = view.schema
    if "additionalProperties" in schema:
        return schema["additionalProperties"] is False
    return view.options.additional_properties == "closed" or schema.get("unevaluatedProperties") is False


def _property_names(view: View, settings: Settings) -> Iterator[Finding]:
    """`propertyNames` beside what it does not reach, or with a subschema that is not read in full."""
    names = view.site.children.get(("propertyNames", None))
    if names is None or not view.bits & OBJECT or names.schema is True:
        return
    for keyword in settings.get("not_beside", ()):
        if keyword in view.schema and not asserts_nothing(view, keyword):
            yield view.finding("propertyNames", f"propertyNames is not enforced beside {keyword}")
            return
    if view.schema.get("additionalProperties") is False and not settings.get("closed"):
        yield view.finding("propertyNames", "propertyNames opens an object that additionalProperties closes")
        return
    inner = View(names, view.sites, view.options, view.comparison)
    assertions = [
        key for key in inner.schema if key in ASSERTIONS and key != "type" and not asserts_nothing(inner, key)
    ]
    if (
        names.schema is False
        or len(assertions) > 1
        or any(key not in settings.get("allowed", assertions) for key in assertions)
    ):
        yield view.finding("propertyNames", "only one simple constraint on the names is enforced")
    elif not inner.bits & STRING or (inner.bits & STRING != inner.bits and "type" in inner.schema):
        yield view.finding("propertyNames", "the type of names is not enforced")
    elif "pattern" in inner.schema:
        yield from _judged_pattern(inner, "pattern", str(inner.schema["pattern"]), settings)
    elif any(not isinstance(member, str) for member in texts_of(inner.schema) or ()):
        yield view.finding("propertyNames", "a name that is no string is not ruled out")


def _list_items(view: View, settings: Settings) -> Iterator[Finding]:
    """`items` as a list, as the drafts before 2020-12 have it."""
    if isinstance(view.schema["items"], list) and view.bits & ARRAY:
        yield view.finding("items", "a list in items is refused", "Use prefixItems")


def _crossed_counts(view: View, settings: Settings) -> Iterator[Finding]:
    """`minItems` above `maxItems` and its like, which no value satisfies, and an engine takes for the empty one."""
    for kind, unit in _UNITS:
        least, most = view.number(f"min{unit}"), view.number(f"max{unit}")
        if view.bits & kind and least is not None and most is not None and least > most:
            yield view.finding(f"min{unit}", f"min{unit} is not enforced above max{unit}")


def _prefix_items(view: View, settings: Settings) -> Iterator[Finding]:
    """Shapes of `prefixItems` that an engine refuses."""
    if view.bits & ARRAY and any(isinstance(item.schema, bool) for item in view.site.group("prefixItems")):
        yield view.finding("prefixItems", "a boolean in prefixItems is refused", "Write {} for true")
    most = view.number("maxItems")
    if view.bits & ARRAY and most is not None and most < len(view.site.group("prefixItems")):
        yield view.finding("maxItems", "fewer items than prefixItems lists is refused", "Shorten prefixItems")


def _unevaluated(view: View, settings: Settings) -> Iterator[Finding]:
    """`unevaluatedProperties` and `unevaluatedItems` look into combinators; engines look only beside themselves."""
    for keyword in ("unevaluatedItems", "unevaluatedProperties"):
        if keyword not in view.schema or asserts_nothing(view, keyword):
            continue
        around = [key for key in ("$ref", "allOf", "anyOf", "contains", "if", "not", "oneOf") if key in view.schema]
        if around or view.schema[keyword] in settings.get("not", {}).get(keyword, ()):
            yield view.finding(keyword, f"{keyword} is not enforced as written", "Use additionalProperties or items")


def _closed(view: View, settings: Settings) -> Iterator[Finding]:
    """An engine's own idea of "closed": arrays with listed or counted items too, but not bare objects."""
    if view.options.additional_properties != "closed":
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


def _closed_shapes(view: View, settings: Settings) -> Iterator[Finding]:
    """Engines that write a schema out in full: no free JSON, no open objects, no recursion."""
    schema = view.schema
    if view.site.schema is False:  # what it rules out is judged where it stands
        return
    if "type" not in schema and not any(keyword in schema for keyword in COMBINATORS):
        yield view.finding("type", "any JSON value cannot be expressed", "Give a type")
    elif "type" in schema and not any(keyword in schema for keyword in ("const", "enum")):
        if view.bits & ARRAY and "items" not in schema:
            yield view.finding("type", "an array without items cannot be expressed", "Give items")
        if view.bits & OBJECT and not (schema.get("properties") and _is_closed(view)):
            yield view.finding("type", "an open object cannot be expressed", 'Add "additionalProperties": false')


def _counted_properties(view: View, settings: Settings) -> Iterator[Finding]:
    """`minProperties` and `maxProperties` beside optional properties."""
    if not view.bits & OBJECT:
        return
    names = {name for keyword, name in view.site.children if keyword == "properties"}
    if names <= set(required_of(view.schema)):
        return
    counts = (view.number("minProperties"), view.number("maxProperties"))
    if {*counts} <= {None, 1} and _is_closed(view):
        return
    for keyword in ("minProperties", "maxProperties"):
        if view.number(keyword) is not None:
            yield view.finding(keyword, f"{keyword} is not enforced beside optional properties")
            return


def _depth(view: View, settings: Settings) -> Iterator[Finding]:
    """Nesting that an engine's parser or grammar cannot carry."""
    if view.site.depth > settings["most"]:
        yield Finding(f"nested more than {settings['most']} levels deep", pointer=view.site.pointer)


def _root_boolean(view: View, settings: Settings) -> Iterator[Finding]:
    if isinstance(view.site.schema, bool) and not view.site.pointer:
        yield view.finding("", "a boolean is refused as the whole schema", "Write {} for true")


def _beside(view: View, settings: Settings) -> Iterator[Finding]:
    """Pairs of keywords that break one another, which one that asserts nothing does too: `minLength: 0`."""
    for keyword, others in settings.items():
        for pair in ((keyword, other) for other in others):
            if all(_is_about(view, each) for each in pair) and not all(asserts_nothing(view, each) for each in pair):
                yield view.finding(keyword, f"{pair[0]} is not enforced beside {pair[1]}")


def _is_about(view: View, keyword: str) -> bool:
    """Whether a keyword concerns any value of the types that the schema allows."""
    group = GROUPS.get(keyword)
    return group is None or view.bits & GROUP_BITS[group] != 0


def _open_properties(views: Sequence[View], settings: Settings) -> Finding | None:
    """Listed properties of objects that stay open: each makes some engines write out all the names it is not."""
    found = [view for view in views if view.schema.get("properties") and _is_open(view)]
    count = sum(len(view.schema["properties"]) for view in found)
    if count <= settings["most"]:
        return None
    reason = f"properties of objects that are left open are slow to compile, and there are {count}"
    return found[0].finding("additionalProperties", reason, 'Write "additionalProperties": false')


def _open_names(view: View, settings: Settings) -> Iterator[Finding]:
    """Names that an engine does not recognise as listed ones when it reads an additional property."""
    if _is_open(view):
        for name in view.schema["properties"]:
            if not (_PRINTABLE_NAME if settings.get("printable") else _PLAIN_NAME).fullmatch(name):
                yield view.finding(
                    "properties",
                    f"the name {shown(name)} is not told from additional properties",
                    'Write "additionalProperties": false',
                )
                return


_PLAIN_NAME = re.compile(r"[ !#-\[\]-~]*")
_PRINTABLE_NAME = re.compile(r"[^\x00-\x1f\x7f]*")


def _is_open(view: View) -> bool:
    if not view.bits & OBJECT:
        return False
    if "additionalProperties" in view.schema:
        return view.schema["additionalProperties"] is not False
    # Beside nothing else, `unevaluatedProperties: false` is no less slow.
    closed_by_option = view.options.additional_properties == "closed"
    return not closed_by_option or view.schema.get("unevaluatedProperties", False) is not False


def _short_decimals(views: Sequence[View], settings: Settings) -> Finding | None:
    """Numbers with a bound, of which an engine allows some decimals only: 37.7749295 is not among those up to 90."""
    for view in views:
        keyword = next((key for key in _BOUNDS if view.bits & FRACTION and view.number(key) is not None), None)
        if keyword is not None:
            reason = f"numbers beside a bound are allowed {settings['most']} decimals at most"
            return view.finding(keyword, reason, 'Write "type": "integer" where whole numbers are meant')
    return None


def _plain_names(views: Sequence[View], settings: Settings) -> Finding | None:
    """Names by pattern or length, of which an engine allows those that JSON writes without escapes."""
    for view in views:
        names = view.site.children.get(("propertyNames", None))
        own = names.schema if names is not None and isinstance(names.schema, dict) else {}
        patterns = [*view.schema.get("patternProperties", ()), *([own["pattern"]] if "pattern" in own else ())]
        if view.bits & OBJECT and (
            own.keys() & {"maxLength", "minLength"} or any(needs_escapes(pattern, False) for pattern in patterns)
        ):
            keyword = "propertyNames" if own else "patternProperties"
            return view.finding(keyword, "names with a quote, a backslash or a control character are not allowed")
    return None


def _unicode_categories(views: Sequence[View], settings: Settings) -> Finding | None:
    """Categories of Unicode, which some engines write out as hundreds of ranges, as often as a count says."""
    for view in views:
        own = [view.schema["pattern"]] if view.bits & STRING and "pattern" in view.schema else []
        if any(_CATEGORY.search(pattern) for pattern in (*own, *view.schema.get("patternProperties", ()))):
            keyword = "pattern" if own else "patternProperties"
            return view.finding(keyword, "categories of Unicode are slow to compile", "Name ranges of characters")
    return None


_CATEGORY = re.compile(r"(?<!\\)(?:\\\\)*\\[pP]")


COSTS: Mapping[str, Callable[[Sequence[View], Settings], Finding | None]] = {
    "open-properties": _open_properties,
    "plain-names": _plain_names,
    "short-decimals": _short_decimals,
    "unicode-categories": _unicode_categories,
}
"""By name, why another engine that enforces a schema is better: this one is slow, or allows less than all valid texts.
None when it does not apply."""
TIMES = frozenset(("open-properties", "unicode-categories"))
"""The costs that are times, of which a model of an engine's times knows better."""


class NamedCheck(NamedTuple):
    """A check, and the schemas that it is for by their keywords.

    Attributes:
        keywords: with any of these a schema is looked at; "" is in every schema, and none at all is a boolean.
        run: what it finds.
        settings_for: the settings as far as they are about a schema with these keywords; None where they are not.
    """

    keywords: Sequence[str]
    run: Check
    settings_for: Callable[[Settings, Collection[str]], Settings | None] = lambda settings, keywords: settings


def _where_untyped(settings: Settings, keywords: Collection[str]) -> Settings | None:
    is_typed = "type" in keywords or any(keyword in keywords for keyword in COMBINATORS)
    return None if is_typed or GROUPS.keys().isdisjoint(keywords) else settings


def _where_merged(settings: Settings, keywords: Collection[str]) -> Settings | None:
    is_merged = "allOf" in keywords or len(ASSERTIONS.intersection(keywords)) > 1
    return settings if is_merged else None


def _pairs_among(settings: Settings, keywords: Collection[str]) -> Settings | None:
    found = {
        key: [other for other in others if other in keywords] for key, others in settings.items() if key in keywords
    }
    return {keyword: others for keyword, others in found.items() if others} or None


CHECKS: Mapping[str, NamedCheck] = {
    "allof-branches": NamedCheck(("allOf",), _branches),
    "boolean-bounds": NamedCheck(("exclusiveMaximum", "exclusiveMinimum"), _boolean_bounds),
    "closed": NamedCheck(("type",), _closed),
    "closed-shapes": NamedCheck(("",), _closed_shapes),
    "crossed-counts": NamedCheck(("minItems", "minLength", "minProperties"), _crossed_counts),
    "counted-properties": NamedCheck(("maxProperties", "minProperties"), _counted_properties),
    "depth": NamedCheck(("",), _depth),
    "enum-containers": NamedCheck(("const", "enum"), _enum_containers),
    "enum-integers": NamedCheck(("const", "enum"), _enum_integers),
    "enum-numbers": NamedCheck(("const", "enum"), _enum_numbers),
    "enum-type-conflict": NamedCheck(("const", "enum"), _enum_type_conflict),
    "false-schema": NamedCheck((), _false_schema),
    "bounds": NamedCheck(_BOUNDS, _bounds),
    "keywords-beside": NamedCheck(("",), _beside, _pairs_among),
    "large-counts": NamedCheck(_COUNTS, _large_counts),
    "list-items": NamedCheck(("items",), _list_items),
    "merged-recursion": NamedCheck(_MERGING, _merged_recursion, _where_merged),
    "merged-patterns": NamedCheck(_MERGING, _merged_patterns, _where_merged),
    "number-bounds": NamedCheck(("exclusiveMaximum", "exclusiveMinimum"), _number_bounds),
    "oneof-disjoint": NamedCheck(("oneOf",), _one_of),
    "open-names": NamedCheck(("properties",), _open_names),
    "pattern": NamedCheck(("pattern",), _pattern),
    "pattern-properties": NamedCheck(("patternProperties",), _pattern_properties),
    "prefix-items": NamedCheck(("prefixItems",), _prefix_items),
    "property-names": NamedCheck(("propertyNames",), _property_names),
    "refs": NamedCheck(("$ref",), _ref),
    "required-needs-properties": NamedCheck(("required",), _required_properties),
    "root-boolean": NamedCheck((), _root_boolean),
    "steps": NamedCheck(("multipleOf",), _steps),
    "typeless-constraints": NamedCheck(("",), _typeless, _where_untyped),
    "unevaluated": NamedCheck(("unevaluatedItems", "unevaluatedProperties"), _unevaluated),
    "whole-counts": NamedCheck(_COUNTS, _whole_counts),
}
"""The checks by name."""
