"""The choice by predicted speed: features, models as data, and the order that follows from them (B14)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import GrammarSpec, PluginHost, Vocabulary, default_host, explain, load_vocabulary, select_backend
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.errors import PluginError
from grammar_backends.plugins import hookimpl
from grammar_backends.selection import Policy
from grammar_backends.selection.cost_model import FEATURES, CostModel, features_of, predicted
from grammar_backends_conformance.benchmarks.cost_model import fit, samples
from grammar_backends_conformance.corpora.reading import read_suite

LISTED = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "y"]}},
    "required": ["a"],
    "additionalProperties": False,
}
FREE = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


@pytest.fixture(scope="module")
def host() -> PluginHost:
    return default_host()


def features(schema: Any) -> dict[str, float]:
    return dict(features_of(GrammarSpec.json_schema(schema)))


def test_features_count_what_is_there_and_hold_no_text() -> None:
    assert features(LISTED) == {"subschemas": 3, "members": 2, "properties": 1}
    assert features(FREE) == {"subschemas": 3, "strings": 1, "properties": 1, "optional properties": 1}
    assert features({"type": "object", "properties": {"a": {}, "b": {"type": "number"}}, "required": ["b"]}) == {
        "subschemas": 3,
        "numbers": 1,
        "properties": 2,
        "optional properties": 1,
        "open objects": 1,
        "open properties": 2,
        "anything": 1,
    }
    assert features({"anyOf": [{"type": "string", "pattern": "a", "maxLength": 3}, {"type": "null"}]}) == {
        "subschemas": 3,
        "branches": 2,
        "patterns": 1,
        "bounded strings": 1,
    }
    assert features({"items": {"$ref": "#"}})["recursive"] == 1


def test_names_of_properties_do_not_matter() -> None:
    other = json.loads(json.dumps(FREE).replace('"a"', '"properties"'))
    assert features(other) == features(FREE)


def test_a_tag_has_the_features_of_what_is_inside() -> None:
    tag = {"structures": [{"begin": "<f>", "schema": FREE, "end": ""}], "triggers": ["<f>"]}
    found = features_of(GrammarSpec.structural_tag(tag))
    assert (found["properties"], found["characters"] > 0) == (1, True)


@pytest.mark.parametrize("name", ["xgrammar", "guidance", "outlines"])
def test_every_backend_of_the_chain_has_a_model_of_the_kinds_that_it_takes(name: str, host: PluginHost) -> None:
    capabilities = host.backend(name).capabilities
    specs = [GrammarSpec.json_schema(FREE), GrammarSpec.choice(["a"])]
    assert all(predicted(spec, capabilities.costs) for spec in specs)


def test_a_model_that_is_malformed_is_the_plugin_s_fault() -> None:
    good = {
        "engine": "e",
        "measured": "1",
        "kinds": {"regex": {"first_mask_ms": {"": 1}, "mask_us": {"characters": 2}}},
    }
    cost = CostModel.from_mapping(good).predict(GrammarKind.REGEX, {"characters": 3})
    assert cost is not None
    assert (cost.first_mask_ms, cost.mask_us) == (1, 6)
    assert CostModel.from_mapping(good).predict(GrammarKind.CHOICE, {}) is None
    for bad in (
        {},
        {**good, "kinds": {"regex": {"first_mask_ms": {}}}},
        {**good, "kinds": {"regex": {"first_mask_ms": {"": "x"}, "mask_us": {}}}},
        {**good, "kinds": {"regex": {"first_mask_ms": {"beauty": 1}, "mask_us": {}}}},
    ):
        with pytest.raises(PluginError, match="cost data"):
            CostModel.from_mapping(bad)


def test_fast_takes_whom_it_predicts_to_be_the_quickest_and_shows_the_predictions(host: PluginHost) -> None:
    """Words and numbers from a list compile at once on xgrammar; a free string costs it the whole vocabulary."""
    listed, free = (explain(GrammarSpec.json_schema(schema), host=host, policy="fast") for schema in (LISTED, FREE))
    assert (listed.chosen, free.chosen) == ("xgrammar", "guidance")
    for trace in (listed, free):
        costs = [step.cost for step in trace.steps]
        assert all(costs)
        assert [cost.total_ms for cost in costs if cost] == sorted(cost.total_ms for cost in costs if cost)
        assert "predicted" not in str(trace)
        assert f"{trace.chosen}: chosen (first mask" in str(trace)
    assert explain(GrammarSpec.json_schema(FREE), host=host).steps[0].cost is None


def test_fast_never_takes_one_that_does_not_enforce_the_spec(host: PluginHost) -> None:
    spec = GrammarSpec.json_schema({"type": "integer", "multipleOf": 2, "minimum": 0})
    trace = explain(spec, host=host, policy="fast")
    assert (trace.steps[0].backend, trace.steps[0].verdict) == ("xgrammar", "refused")
    assert trace.chosen == "guidance"


def test_fast_judges_nobody_who_would_be_slower(host: PluginHost) -> None:
    trace = explain(GrammarSpec.json_schema({"type": "array", "items": {"type": "string"}}), host=host, policy="fast")
    assert [(step.verdict, bool(step.findings)) for step in trace.steps] == [
        ("chosen", False),
        *[("not tried", False)] * 2,
    ]


def test_fast_is_not_put_off_by_what_is_slow_only_in_general(host: PluginHost) -> None:
    spec = GrammarSpec.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
    trace = explain(spec, host=host, policy=Policy(order=("xgrammar",), prefer="speed"))
    assert (trace.steps[0].verdict, trace.steps[0].findings) == ("chosen", ())


def test_a_backend_without_a_model_is_asked_last() -> None:
    class Unmeasured:
        @hookimpl
        def grammar_backends_register_backends(self) -> list[BackendSpec]:
            kinds = Capabilities(kinds=frozenset(GrammarKind))
            return [BackendSpec("unmeasured", "a:b", API_VERSION, kinds, priority=1)]

    host = PluginHost(plugins={"unmeasured": Unmeasured()})
    spec = GrammarSpec.choice(["a"])
    assert explain(spec, host=host).steps[0].backend == "unmeasured"
    assert explain(spec, host=host, policy="fast").steps[-1].backend == "unmeasured"


def test_the_choice_and_its_explanation_agree(host: PluginHost) -> None:
    vocabulary: Vocabulary = load_vocabulary("byte")
    for schema in (LISTED, FREE):
        spec = GrammarSpec.json_schema(schema)
        chosen = select_backend(spec, vocabulary, host=host, policy="fast").backend.name
        assert chosen == explain(spec, host=host, policy="fast").chosen


def test_policies_go_by_words_or_are_refused() -> None:
    assert Policy.of(None) == Policy.of("default") == Policy()
    assert Policy.of("fast") == Policy(prefer="speed")
    with pytest.raises(ValueError, match="there is no policy 'quick'; there are: default, fast"):
        Policy.of("quick")
    with pytest.raises(ValueError, match="prefer must be"):
        Policy(prefer="cheap")  # type: ignore[arg-type]


def test_a_fit_finds_the_weights_again() -> None:
    rows = [{"strings": float(index % 2), "members": float(index)} for index in range(40)]
    times = [2 + 30 * row["strings"] + 0.5 * row["members"] for row in rows]
    weights = fit(rows, times)
    assert weights[""] == pytest.approx(2, rel=0.05)
    assert weights["strings"] == pytest.approx(30, rel=0.05)
    assert weights["members"] == pytest.approx(0.5, rel=0.05)
    assert weights.keys() <= {"", *FEATURES}


def test_a_fit_reads_what_passed_only(tmp_path: Path) -> None:
    corpus = read_suite("smoke")
    first, second = corpus.cases[:2]
    passed = {"outcome": "pass", "first_mask_ms": 3.0, "fills_us": [1.0, 9.0, 2.0]}
    found = list(samples(corpus, {first.id: passed, second.id: {"outcome": "unsupported"}}))
    assert [(kind, first_mask, mask) for kind, _, first_mask, mask in found] == [(first.kind, 3.0, 2.0)]
