"""JSON schemas by `jsonschema`: the truth of texts, with exact numbers and with formats that are checked.

A text is valid when it is JSON by the letter (no NaN, no trailing comma), its white space is as the options say,
and the value satisfies the schema under the draft that `$schema` names (2020-12 without one). Three things are
stricter than in `jsonschema` itself: numbers are exact decimals, formats are assertions, and `pattern` has the
layer's dialect, where `$` is the very end and `d` classes are ASCII.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any

import jsonschema
import referencing.exceptions

from grammar_backends import GrammarOptions
from grammar_backends_conformance.oracles.formats import FORMATS
from grammar_backends_conformance.oracles.patterns import Uncovered, regex_search

__all__ = ["json_valid", "schema_valid"]

_SPACES = re.compile(r"[ \t\r\n]+")
_STRINGS = re.compile(r'"(?:\\.|[^"\\])*"')
DEFAULTS = GrammarOptions()
DIGITS = 1_000
"""Enough to divide the largest number of double precision by the smallest."""


def schema_valid(schema: Any, text: str, options: GrammarOptions = DEFAULTS) -> bool:
    """Whether a text is JSON that a schema allows.

    Raises:
        Uncovered: an object with one name twice, on which JSON Schema is silent; a pattern outside the dialect; a
            reference that leads nowhere or only to itself.
    """
    if not json_valid(text, options):
        return False
    exact = _loads(json.dumps(schema))
    base = jsonschema.validators.validator_for(exact, default=jsonschema.Draft202012Validator)
    validator = _strict(base, options.additional_properties == "closed")
    try:
        with localcontext() as context:
            context.prec = DIGITS
            valid: bool = validator(exact, format_checker=_checker()).is_valid(_loads(text))
    except (referencing.exceptions.Unresolvable, RecursionError, re.error) as error:
        raise Uncovered(f"jsonschema: {error}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what compiled code makes of a RecursionError; no Exception
            raise
        raise Uncovered("jsonschema: nested too deep") from None
    return valid


def json_valid(text: str, options: GrammarOptions = DEFAULTS) -> bool:
    """Whether a text is one JSON value, without blanks around it, and with those inside that the options allow.

    Raises:
        Uncovered: as `schema_valid`.
    """
    try:
        _loads(text)
    except json.JSONDecodeError:
        return False
    bare = _STRINGS.sub('""', text)
    if bare != bare.strip():
        return False
    longest = max(map(len, _SPACES.findall(bare)), default=0)
    if options.whitespace == "compact":
        return longest == 0
    return options.max_whitespace is None or longest <= options.max_whitespace


def _loads(text: str) -> Any:
    """JSON to Python, numbers with a fraction or an exponent as decimals."""

    def refuse(name: str) -> Any:
        raise json.JSONDecodeError(f"{name} is no JSON", text, 0)

    return json.loads(text, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise Uncovered("an object with one name twice")
    return value


@functools.cache
def _strict(base: Any, closed: bool) -> Any:
    """A draft's validator with exact integers and the layer's patterns; `closed`: an absent word means closed."""
    types = base.TYPE_CHECKER.redefine("integer", _is_integer)
    checks = {
        "additionalProperties": _additional_properties,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
    }
    if closed:
        checks["properties"] = _closed_properties(base.VALIDATORS["properties"])
    return jsonschema.validators.extend(base, validators=checks, type_checker=types)


def _is_integer(_checker: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "string") and not regex_search(pattern, value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, value: Any, _schema: Any) -> Iterator[Any]:
    for name in value if validator.is_type(value, "object") else ():
        for pattern, schema in patterns.items():
            if regex_search(pattern, name):
                yield from validator.descend(value[name], schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, additional: Any, value: Any, schema: Any) -> Iterator[Any]:
    patterns = schema.get("patternProperties", {})
    for name in value if validator.is_type(value, "object") else ():
        if name not in schema.get("properties", {}) and not any(regex_search(pattern, name) for pattern in patterns):
            yield from validator.descend(value[name], additional, path=name)


def _closed_properties(properties: Any) -> Any:
    def check(validator: Any, known: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        yield from properties(validator, known, value, schema)
        if validator.is_type(value, "object") and "additionalProperties" not in schema and set(value) - set(known):
            yield jsonschema.ValidationError("a property that is not listed")

    return check


@functools.cache
def _checker() -> jsonschema.FormatChecker:
    checker = jsonschema.FormatChecker(formats=())
    for name, check in FORMATS.items():
        checker.checks(name)(_for_strings(check))
    return checker


def _for_strings(check: Any) -> Any:
    return lambda value: not isinstance(value, str) or check(value)
