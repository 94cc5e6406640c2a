"""Requests with one field for each kind of constraint, as vLLM's `structured_outputs` has them, as specs (D1)."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping

from grammar_backends.contract.spec import JSON, GrammarOptions, GrammarSpec, json_type
from grammar_backends.errors import SpecError, shown

__all__ = ["FIELDS", "read_fields"]


def _json_object(value: JSON, options: GrammarOptions) -> GrammarSpec:
    if value is not True:
        hint = "Leave the field out where nothing is to be constrained"
        raise SpecError(f"json_object: true is needed, not {shown(value)}", hint=hint)
    return GrammarSpec.json_object(options=options)


FIELDS: Mapping[str, Callable[[JSON, GrammarOptions], GrammarSpec]] = {
    "choice": lambda value, options: GrammarSpec.choice(value, options=options),
    "grammar": lambda value, options: GrammarSpec.grammar(value, options=options),
    "json": lambda value, options: GrammarSpec.json_schema(value, options=options),
    "json_object": _json_object,
    "regex": lambda value, options: GrammarSpec.regex(value, options=options),
    "structural_tag": lambda value, options: GrammarSpec.structural_tag(value, options=options),
}
"""The fields that hold a constraint."""

SWITCHES: Mapping[str, Mapping[str, JSON]] = {
    "disable_additional_properties": {"additional_properties": "closed"},
    "disable_any_whitespace": {"whitespace": "compact"},
}
"""The fields that change its meaning, and the options that they stand for (D16)."""


def read_fields(fields: Mapping[str, JSON], options: GrammarOptions | None) -> GrammarSpec:
    """`GrammarSpec.from_structured_outputs`."""
    if not isinstance(fields, Mapping):
        raise SpecError(f"structured_outputs: an object is needed, not {json_type(fields)}", pointer="")
    given = {name: value for name, value in fields.items() if value is not None}
    for name in given:
        if name not in FIELDS and name not in SWITCHES:
            raise _unknown(name)
    named = [name for name in FIELDS if name in given]
    if len(named) != 1:
        which = ", ".join(named) or "none"
        hint = f"Constraints: {', '.join(FIELDS)}"
        raise SpecError(f"structured_outputs: exactly one constraint is needed, and there are: {which}", hint=hint)
    switched = _switched(given, options or GrammarOptions())
    try:
        return FIELDS[named[0]](given[named[0]], switched)
    except SpecError as error:
        error.message = f"structured_outputs.{named[0]}:{error.message.partition(':')[2]}"
        raise


def _unknown(name: object) -> SpecError:
    close = difflib.get_close_matches(str(name)[:50], [*FIELDS, *SWITCHES], n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join((*FIELDS, *SWITCHES))}"
    return SpecError(f"structured_outputs: there is no field {shown(name)}", hint=hint)


def _switched(given: Mapping[str, JSON], options: GrammarOptions) -> GrammarOptions:
    for name, meaning in SWITCHES.items():
        value = given.get(name, False)
        if not isinstance(value, bool):
            raise SpecError(f"structured_outputs.{name}: true or false is needed, not {shown(value)}")
        if value:
            options = dataclasses.replace(options, **meaning)
    return options
