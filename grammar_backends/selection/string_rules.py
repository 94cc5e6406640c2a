"""Rewrites of what a schema says about strings and about names of properties, by way of languages (see there).

Each rule is given a round of rewriting and a place, as those in `grammar_backends.selection.rewrites` are. Where
dialects read a pattern in different ways, what is written allows less; where that would let more pass, there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from grammar_backends.contract.formats import FORMAT_PATTERNS, NARROW_FORMATS
from grammar_backends.contract.spec import JSON
from grammar_backends.selection.disjoint import members_of
from grammar_backends.selection.keywords import ASSERTIONS
from grammar_backends.selection.languages import (
    NOTHING,
    Language,
    but,
    common,
    exact_strings_of,
    exactly,
    forbidden_texts,
    keywords_in,
    keywords_of,
    language_of,
    looks_ahead,
    pattern_of,
    patterns_in,
    strings_of,
    texts,
    work_on,
)
from grammar_backends.selection.merging import annotating, bare, both, conjoin
from grammar_backends.selection.schema import OBJECT, STRING, Site, kind_of
from grammar_backends.selection.view import View

if TYPE_CHECKING:
    from grammar_backends.selection.rewrites import Round

__all__ = ["format_pattern", "look_ahead", "name_patterns", "patterns_apart", "strings"]

MAX_PARTS = 8
"""Combinations of overlapping patterns of names."""


def format_pattern(round_: Round, view: View) -> JSON:
    """A format that a pattern can say."""
    name = view.schema["format"]
    pattern = FORMAT_PATTERNS.get(name)
    if pattern is None or (name in NARROW_FORMATS and view.site in round_.deciding):
        return None
    rest = {keyword: value for keyword, value in view.schema.items() if keyword != "format"}
    return both(rest, {"pattern": pattern}, round_.legacy)


def strings(round_: Round, view: View) -> JSON:
    """All that is said of a string, in one pattern."""
    if view.comparison.possible(view.site) != STRING or "type" not in view.schema:
        return None
    schema = _dereferenced(round_, view.site)
    patterns = patterns_in(schema)
    is_negated = any(keyword == "not" for keyword, _ in keywords_in(schema))
    # What one plain pattern says, some engine enforces as it is written.
    if not is_negated and len(patterns) < 2 and not any(map(looks_ahead, patterns)):
        return None
    if not round_.comparison.spend(work_on(*patterns)):
        return None
    language = exact_strings_of(schema) if view.site in round_.deciding else strings_of(schema, wide=False)
    if language is None or language.is_empty:
        return None if language is None else False
    keywords = keywords_of(schema, language)
    return None if keywords is None else {**annotating(view.schema), "type": "string", **keywords}


def _dereferenced(round_: Round, site: Site) -> JSON:
    """A site's schema with what its reference leads to beside it."""
    if site.target is None or site in round_.sites.recursive:
        return site.schema
    rest = {keyword: value for keyword, value in site.schema.items() if keyword != "$ref"}
    return {"type": "string", "allOf": [rest, bare(site.target.schema)]}


def look_ahead(round_: Round, view: View) -> JSON:
    """Patterns with look-ahead: others that match the same, or the names that they forbid."""
    found = _patterns_without_looks(round_, view)
    return _without_forbidden_names(round_, view) if found is None else found


def _patterns_without_looks(round_: Round, view: View) -> JSON:
    if not round_.comparison.spend(work_on(view.schema.get("pattern", ""), *view.schema.get("patternProperties", ()))):
        return None
    written: JSON = dict(view.schema)
    is_deciding = view.site in round_.deciding
    if "pattern" in view.schema and looks_ahead(view.schema["pattern"]):
        is_known = not is_deciding or exactly(view.schema["pattern"]) is not None
        keywords = keywords_of({"pattern": written.pop("pattern")}) if is_known else None
        written = None if keywords is None else conjoin(written, keywords, round_.legacy)
    if written is not None and "patternProperties" in view.schema:
        # A name that a narrower pattern does not match must not be allowed by anything else.
        is_alone = view.schema.get("additionalProperties") is False and not view.schema.get("properties")
        exact = is_deciding or not is_alone or len(view.schema["patternProperties"]) > 1
        patterns = {
            _without_looks(pattern, exact) if looks_ahead(pattern) else pattern: schema
            for pattern, schema in view.schema["patternProperties"].items()
        }
        is_known = None not in patterns and len(patterns) == len(view.schema["patternProperties"])
        written = {**written, "patternProperties": patterns} if is_known else None
    return written if written != view.schema else None


def _without_forbidden_names(round_: Round, view: View) -> JSON:
    """The names that the look-ahead of a closed object's only pattern forbids, as properties that are never there.

    A pattern without the look-ahead has a part for each of their characters, and soon is too large.
    """
    patterns = view.schema.get("patternProperties", {})
    if len(patterns) != 1 or view.schema.get("additionalProperties") is not False:
        return None
    [(pattern, schema)] = patterns.items()
    found = forbidden_texts(pattern) if round_.comparison.spend(len(pattern)) else None
    if found is None or any(view.schema.get("properties", {}).get(name, False) is not False for name in found[0]):
        return None
    return {**_forbidding(view.schema, found[0]), "patternProperties": {found[1]: schema}}


def _forbidding(schema: JSON, names: Sequence[str]) -> dict[str, JSON]:
    """A schema of objects in which some names never stand."""
    return {**schema, "properties": {**schema.get("properties", {}), **dict.fromkeys(names, False)}}


def _without_looks(pattern: str, exact: bool) -> str | None:
    """A pattern without look-ahead; None where there is none, or with `exact` where not every dialect agrees on it."""
    language = exactly(pattern) if exact else language_of(pattern, wide=False)
    return None if language is None or language.is_empty else pattern_of(language)


def patterns_apart(round_: Round, view: View) -> JSON:
    """`patternProperties` of which several may match one name: each combination of them as one pattern."""
    patterns = view.schema["patternProperties"]
    if not round_.comparison.spend(work_on(*patterns) * len(patterns)):
        return None
    parts: list[tuple[Language, JSON]] = []
    is_apart = True
    for pattern, schema in patterns.items():
        language = exactly(pattern)
        if language is None or len(parts) > MAX_PARTS:
            return None
        inside = [(common([part, language]), both(known, schema, round_.legacy)) for part, known in parts]
        outside = [(but(part, [language]), known) for part, known in parts]
        alone = (but(language, [part for part, _ in parts]), schema)
        is_apart = is_apart and all(part == NOTHING for part, _ in inside)
        if None in (part for part, _ in (*inside, *outside, alone)):
            return None
        parts = [(part, schema) for part, schema in (*outside, *inside, alone) if part and not part.is_empty]
    written = {pattern_of(part): schema for part, schema in parts}
    return None if is_apart or None in written else {**view.schema, "patternProperties": written}


def name_patterns(round_: Round, view: View) -> JSON:
    """`propertyNames`: the names as a pattern of `patternProperties`, and no others; or those that it forbids."""
    if "unevaluatedProperties" in view.schema or view.bits & OBJECT == 0:
        return None
    found = _names_written(round_, view)
    return _names_forbidden(round_, view) if found is None else found


def _names_forbidden(round_: Round, view: View) -> JSON:
    """Listed names that `propertyNames` forbids, as properties that are never there, and what else it says."""
    names = round_.written_out(view.site.children["propertyNames", None])
    if not isinstance(names, dict) or not round_.comparison.spend(len(names.get("pattern", ""))):
        return None
    rest = dict(names)
    excluded, found = rest.get("not"), forbidden_texts(rest.get("pattern", ""))
    if found is not None:
        forbidden, rest["pattern"] = found
    elif isinstance(excluded, dict) and len(excluded) == 1 and ("enum" in excluded or "const" in excluded):
        [keyword] = rest.pop("not")
        forbidden = [member for member in members_of(excluded, keyword) or [] if kind_of(member) == STRING]
    else:
        return None
    return {**_forbidding(view.schema, forbidden), "propertyNames": rest}


def _names_written(round_: Round, view: View) -> JSON:
    schema, names = view.schema, view.site.children["propertyNames", None]
    written = {keyword: value for keyword, value in schema.items() if keyword != "propertyNames"}
    verdicts = {name: round_.evaluation.admits(names, name) for name in schema.get("properties", ())}
    if None in verdicts.values():
        return None
    if verdicts:
        written["properties"] = {
            name: below if verdicts[name] else False for name, below in schema["properties"].items()
        }
    if schema.get("patternProperties"):
        return _narrowed_patterns(round_, view, round_.written_out(names), written)
    rest = schema.get("additionalProperties", {})
    if rest is not False:
        found = _names_as_patterns(round_.written_out(names), view.site in round_.deciding)
        if found is None:
            return None
        members, patterns = found
        for name in members:
            written.setdefault("properties", {})
            if name not in verdicts:
                written["properties"] = {**written["properties"], name: rest}
        is_for_all = rest in (True, {}) or all(below is False for below in written.get("properties", {}).values())
        if patterns and not is_for_all:  # it is not for listed names
            return _narrowed_patterns(round_, view, round_.written_out(names), written)
        if patterns:
            written["patternProperties"] = dict.fromkeys(patterns, rest)
        written["additionalProperties"] = False
    return written


def _narrowed_patterns(round_: Round, view: View, names: JSON, written: dict[str, JSON]) -> JSON:
    """`propertyNames` beside patterns or other names: each without the names that are not allowed."""
    own = view.schema.get("patternProperties", {})
    if not round_.comparison.spend(work_on(*patterns_in(names), *own)):
        return None
    allowed = exact_strings_of(names)
    languages = {pattern: exactly(pattern) for pattern in own}
    if allowed is None or None in languages.values():
        return None
    known = [language for language in languages.values() if language is not None]
    parts = [(common([allowed, language]), pattern) for language, pattern in zip(known, languages, strict=True)]
    found: dict[str, JSON] = {}
    for language, schema in [
        *((language, own[pattern]) for language, pattern in parts),
        *_additional_names(view, allowed, known),
    ]:
        pattern = pattern_of(language) if language is not None and not language.is_empty else None
        if language is None or (pattern is None and not language.is_empty):
            return None
        if pattern is not None:
            found[pattern] = both(found[pattern], schema, round_.legacy) if pattern in found else schema
    return {**written, "patternProperties": found, "additionalProperties": False}


def _additional_names(
    view: View, allowed: Language, matched: Sequence[Language]
) -> Iterator[tuple[Language | None, JSON]]:
    """The names of additional properties, with what they hold; nothing where they hold nothing."""
    schema = view.schema.get("additionalProperties", True)
    if schema is not False:
        listed = texts(view.schema.get("properties", ()))
        yield None if listed is None else but(allowed, [listed, *matched]), schema


def _names_as_patterns(schema: JSON, exact: bool) -> tuple[list[str], list[str]] | None:
    """Names in full, and patterns, that together are what a schema of names allows."""
    if isinstance(schema, bool):
        return None if schema else ([], [])
    asserting = {key: value for key, value in schema.items() if key in ASSERTIONS}
    if asserting.get("type") == "string":
        del asserting["type"]
    least, most = int(asserting.get("minLength", 0)), asserting.get("maxLength")
    if asserting.keys() <= {"minLength", "maxLength"} and asserting and (most is None or least <= most):
        return [], [rf"^[\s\S]{{{least},{'' if most is None else int(most)}}}$"]
    if asserting.keys() == {"pattern"} and not looks_ahead(asserting["pattern"]):
        return [], [asserting["pattern"]]
    if asserting.keys() == {"format"} and not (exact and asserting["format"] in NARROW_FORMATS):
        pattern = FORMAT_PATTERNS.get(asserting["format"])
        return None if pattern is None else ([], [pattern])
    for keyword in ("enum", "const"):
        if asserting.keys() == {keyword}:
            return [member for member in members_of(asserting, keyword) or [] if kind_of(member) == STRING], []
    language = exact_strings_of(schema) if exact else strings_of(schema, wide=False)
    if language is None or language.is_empty:
        return None if language is None else ([], [])
    pattern = pattern_of(language)
    return None if pattern is None else ([], [pattern])
