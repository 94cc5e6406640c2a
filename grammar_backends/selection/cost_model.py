"""What a spec is predicted to cost on each engine: time to the first mask, and time between masks.

A plugin keeps the model of its engine as data, fitted on measured runs: for each kind of spec a constant and a weight
for each feature, in milliseconds and in microseconds. Features count what is in a spec and hold nothing of its text,
so that a model says the same of every spec of one shape. It only orders backends that enforce a spec alike.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from grammar_backends.contract import JSON, GrammarKind, GrammarSpec
from grammar_backends.errors import PluginError
from grammar_backends.selection.disjoint import members_of, required_of
from grammar_backends.selection.keywords import COMBINATORS, GROUPS
from grammar_backends.selection.schema import ANY, FRACTION, INT, OBJECT, STRING, Site, walk_of
from grammar_backends.selection.tags import inner_specs

__all__ = ["FEATURES", "Cost", "CostModel", "features_of", "predicted"]

EXPECTED_MASKS = 20
"""Masks that count for as much as the wait for the first one: most are computed while the model is busy anyway."""

FEATURES: Mapping[str, str] = {
    "subschemas": "schemas in use, with what references reach",
    "strings": "1 where some string is free: no enum, const, pattern or format",
    "bounded strings": "strings with minLength or maxLength",
    "patterns": "patterns, of values and of names, and formats",
    "numbers": "1 where a number is free",
    "members": "members of enum and const",
    "properties": "listed properties",
    "optional properties": "those of them that need not be there",
    "open objects": "objects with additional properties",
    "open properties": "listed properties of these",
    "anything": "schemas that take any JSON value",
    "branches": "branches of anyOf and oneOf",
    "recursive": "1 where the schema refers to itself",
    "characters": "hundreds of characters of a pattern, grammar or list of choices",
}
"""What is counted, and in what words."""

Features = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """A prediction for one spec on one engine.

    Attributes:
        first_mask_ms: from the compiled spec's absence to its first row.
        mask_us: a row after that, on average.
    """

    first_mask_ms: float
    mask_us: float

    @property
    def total_ms(self) -> float:
        """By what backends are ordered."""
        return self.first_mask_ms + EXPECTED_MASKS * self.mask_us / 1000

    def __str__(self) -> str:
        return f"first mask {self.first_mask_ms:.1f} ms, then {self.mask_us:.0f} µs each"


@dataclass(frozen=True, slots=True)
class CostModel:
    """One engine's weights.

    Attributes:
        engine: its name, for messages.
        measured: the version that was measured, and with what vocabulary.
        kinds: by kind of spec, "first_mask_ms" and "mask_us": the constant "" and a weight for each feature.
    """

    engine: str
    measured: str
    kinds: Mapping[str, Mapping[str, Features]]

    @classmethod
    def from_mapping(cls, data: Mapping[str, JSON]) -> CostModel:
        """Read a model, as `json.load` returns it.

        Raises:
            PluginError: something is missing or no number, or an unknown feature is named.
        """
        try:
            kinds = {
                kind: {
                    time: {feature: float(weight) for feature, weight in times[time].items()}
                    for time in ("first_mask_ms", "mask_us")
                }
                for kind, times in data["kinds"].items()
            }
            model = cls(data["engine"], data["measured"], kinds)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise PluginError(f"cost data is malformed: {error!r}") from error
        unknown = {feature for times in kinds.values() for weights in times.values() for feature in weights}
        if unknown := unknown - {"", *FEATURES}:
            raise PluginError(f"cost data of {model.engine}: unknown features {', '.join(sorted(unknown))}")
        return model

    def predict(self, kind: GrammarKind, features: Features) -> Cost | None:
        """The cost of a spec with these features; None for a kind that was not measured."""
        times = self.kinds.get(kind.value)
        if times is None:
            return None
        first, mask = (_weighed(times[time], features) for time in ("first_mask_ms", "mask_us"))
        return Cost(round(first, 3), round(mask, 3))


def _weighed(weights: Features, features: Features) -> float:
    return weights.get("", 0.0) + sum(weights.get(name, 0.0) * value for name, value in features.items())


@functools.lru_cache(maxsize=256)
def predicted(spec: GrammarSpec, resource: str | None) -> Cost | None:
    """What a spec costs by the model at ``package:file.json``; None without one, or where it does not say."""
    model = _model(resource) if resource else None
    return model.predict(spec.kind, features_of(spec)) if model else None


@functools.cache
def _model(resource: str) -> CostModel:
    package, _, name = resource.partition(":")
    try:
        data = json.loads(importlib.resources.files(package).joinpath(name).read_text("utf-8"))
    except (OSError, ValueError, ModuleNotFoundError) as error:
        raise PluginError(f"cost data {resource} cannot be read: {error}") from error
    return CostModel.from_mapping(data)


@functools.lru_cache(maxsize=256)
def features_of(spec: GrammarSpec) -> Features:
    """What a valid spec is made of, by the names in `FEATURES`; what is not there is left out."""
    if spec.kind is GrammarKind.JSON_SCHEMA:
        return _schema_features(spec)
    if spec.kind is GrammarKind.STRUCTURAL_TAG:
        total: dict[str, float] = {"characters": len(spec.text) / 100}
        for _, inner in inner_specs(spec):
            for name, value in features_of(inner).items():
                total[name] = total.get(name, 0.0) + value
        return total
    return {"characters": len(spec.text) / 100}


def _schema_features(spec: GrammarSpec) -> Features:
    sites = walk_of(spec.text)
    refers = any(site.target is not None for site in sites)
    total = defaultdict(float, {"subschemas": len(sites), "recursive": float(refers and bool(sites.recursive))})
    for site in sites:
        _add_features(site, total)
    for name in ("strings", "numbers"):
        total[name] = min(total[name], 1.0)
    return {name: value for name, value in total.items() if value}


_ABOUT = frozenset((*GROUPS, *COMBINATORS))
"""Without any of these, and without `type`, a schema takes any value."""


def _add_features(site: Site, total: dict[str, float]) -> None:
    schema = site.schema
    if isinstance(schema, bool):
        total["anything"] += schema
        return
    if "type" not in schema and _ABOUT.isdisjoint(schema):
        total["anything"] += 1
        return
    members = 0
    if "enum" in schema or "const" in schema:
        members = sum(len(members_of(schema, keyword) or ()) for keyword in ("enum", "const"))
        total["members"] += members
    if "anyOf" in schema or "oneOf" in schema:
        total["branches"] += len(site.group("anyOf")) + len(site.group("oneOf"))
    kinds = site.bits if "type" in schema and not members else 0
    if kinds & STRING:
        total["patterns" if "pattern" in schema or "format" in schema else "strings"] += 1
        total["bounded strings"] += "minLength" in schema or "maxLength" in schema
    if kinds != ANY and kinds & (INT | FRACTION):
        total["numbers"] += 1
    if kinds & OBJECT or "properties" in schema:
        listed = schema.get("properties", ())
        is_open = schema.get("additionalProperties") is not False
        total["patterns"] += len(schema.get("patternProperties", ()))
        total["properties"] += len(listed)
        total["optional properties"] += len(listed) - sum(name in listed for name in required_of(schema))
        total["open objects"] += is_open
        total["open properties"] += is_open * len(listed)
