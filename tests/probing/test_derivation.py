"""From verdicts to a table: the settings that are chosen, the same for the same verdicts, and never a wrong accept."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from grammar_backends.selection.checks import CHECKS
from grammar_backends.selection.support import SchemaSupport
from grammar_backends_conformance.oracles.formats import FORMATS
from grammar_backends_conformance.probing.checks import ALWAYS, CHOICES, LADDERS
from grammar_backends_conformance.probing.derivation import derive
from grammar_backends_conformance.probing.formats import SAMPLES
from grammar_backends_conformance.probing.layout import WIDTH, dumps
from grammar_backends_conformance.probing.probe import Probe, Verdict
from grammar_backends_conformance.probing.probes import combinations, single_probes

DECLARED: Mapping[str, Any] = {"engine": "toy", "measured": "1.0", "versions": ">=1,<2"}
ALL = (*single_probes(), *combinations())


def derived(judge: Callable[[Probe], Verdict]) -> dict[str, Any]:
    return derive({probe.case.id: judge(probe) for probe in ALL}, ALL, dict(DECLARED)).table


def fails_at(about: str, verdict: Verdict = "wrong") -> Callable[[Probe], Verdict]:
    return lambda probe: verdict if probe.about == about else "enforced"


@functools.cache
def perfect() -> dict[str, Any]:
    return derived(lambda probe: "enforced")


def test_c3_an_engine_that_enforces_everything_gets_a_table_without_restrictions() -> None:
    table = perfect()
    assert table["types"]["string"] == ["format", "maxLength", "minLength", "pattern"]
    assert table["combinators"] == {key: ["*"] for key in ("$ref", "allOf", "anyOf", "const", "enum", "oneOf")}
    assert table["formats"] == sorted(SAMPLES)
    assert table["checks"] == {
        "property-names": {"allowed": ["const", "enum", "maxLength", "minLength", "pattern"]},
        "refs": {},
    }


def test_c3_an_engine_that_refuses_everything_gets_an_empty_table() -> None:
    table = derived(lambda probe: "refuses")
    assert not any(table["types"].values())
    assert table["combinators"] == {}
    assert table["formats"] == []
    assert table["noops"] == []


@pytest.mark.parametrize(
    ("about", "check", "settings"),
    [
        ("checks/pattern/anchored", "pattern", {"anchored": True}),
        ("checks/steps", "steps", {"whole": True}),
        ("checks/oneof-disjoint", "oneof-disjoint", {}),
        ("checks/refs/recursion", "refs", {"recursion": False}),
        ("checks/required-needs-properties", "required-needs-properties", {}),
        ("checks/unevaluated/false-properties", "unevaluated", {"not": {"unevaluatedProperties": [False]}}),
    ],
)
def test_c3_a_check_is_switched_on_by_the_probes_that_it_explains(
    about: str, check: str, settings: Mapping[str, Any]
) -> None:
    table = derived(fails_at(about))
    assert table["checks"].pop(check) == settings
    assert table["checks"] == {name: value for name, value in perfect()["checks"].items() if name != check}


def test_c3_the_mildest_setting_that_refuses_what_is_wrong_is_chosen() -> None:
    table = derived(
        lambda probe: "wrong" if str(2**63) in probe.case.id and "enum-integers" in probe.about else "enforced"
    )
    assert table["checks"]["enum-integers"] == {"below": 2**63}


@pytest.mark.parametrize("verdict", ["wrong", "over-constrains", "refuses"])
def test_c3_a_keyword_is_listed_only_if_all_its_probes_are_enforced(verdict: Verdict) -> None:
    table = derived(fails_at("types/array/uniqueItems", verdict))
    assert "uniqueItems" not in table["types"]["array"]
    assert table["types"]["string"] == perfect()["types"]["string"]


def test_c3_a_pair_that_breaks_is_told_apart_from_its_keywords() -> None:
    table = derived(fails_at("pairs/string/maxLength/pattern"))
    assert table["checks"]["keywords-beside"] == {"maxLength": ["pattern"]}
    assert {"maxLength", "pattern"} <= set(table["types"]["string"])


def test_c3_a_sibling_that_is_lost_beside_a_combinator_is_not_allowed_there() -> None:
    table = derived(fails_at("combinators/anyOf/maxLength"))
    assert "maxLength" not in table["combinators"]["anyOf"]
    assert "minLength" in table["combinators"]["anyOf"]
    assert table["combinators"]["allOf"] == ["*"]


def test_c3_what_an_engine_itself_refuses_costs_nothing_that_it_enforces() -> None:
    # One of these open objects is refused and the others are fine: the engine's own refusal is as good as a finding.
    refused = next(probe.case.id for probe in ALL if probe.about == "checks/pattern-properties/closed")
    table = derived(lambda probe: "refuses" if probe.case.id == refused else "enforced")
    assert "pattern-properties" not in table["checks"]


def test_c3_whatever_is_wrong_the_table_lets_none_of_it_pass() -> None:
    for seed in range(6):
        rng = random.Random(seed)
        verdicts: dict[str, Verdict] = {
            probe.case.id: rng.choices(("enforced", "wrong", "over-constrains"), (96, 2, 2))[0] for probe in ALL
        }
        found = derive(verdicts, ALL, dict(DECLARED))
        support = SchemaSupport.from_mapping(found.table)
        wrong = [probe for probe in ALL if verdicts[probe.case.id] != "enforced" and probe.case.kind == "json_schema"]
        passing = {probe.case.id for probe in wrong if passes(support, probe)}
        assert passing <= set(found.unexplained)


def passes(support: SchemaSupport, probe: Probe) -> bool:
    from grammar_backends import GrammarOptions

    return not support.findings(probe.case.spec, GrammarOptions(**probe.case.options))


def test_c3_the_same_verdicts_give_the_same_bytes_in_any_order() -> None:
    rng = random.Random(7)
    verdicts: dict[str, Verdict] = {probe.case.id: rng.choice(("enforced", "wrong", "refuses")) for probe in ALL}
    items = list(verdicts.items())
    rng.shuffle(items)
    first, second = derive(verdicts, ALL, dict(DECLARED)), derive(dict(items), ALL, dict(DECLARED))
    assert dumps(first.table) == dumps(second.table)


def test_c3_what_is_declared_is_kept() -> None:
    declared = {**DECLARED, "depth": 3, "costs": {"open-properties": {"most": 0}}}
    table = derive({probe.case.id: "enforced" for probe in ALL}, ALL, declared).table
    assert table["checks"]["depth"] == {"most": 3}
    assert table["costs"] == declared["costs"]
    assert (table["engine"], table["measured"], table["versions"]) == ("toy", "1.0", ">=1,<2")


def test_c3_every_check_has_probes_and_settings() -> None:
    assert {*LADDERS} == {*CHECKS} - {"keywords-beside"}
    assert {*CHOICES} <= {*LADDERS}
    assert {*ALWAYS} <= {*LADDERS}
    asked = {probe.about for probe in ALL}
    for check, faults in LADDERS.items():
        for fault in faults:
            assert (f"checks/{check}/{fault}" if fault else f"checks/{check}") in asked
        for choice in CHOICES.get(check, ()):
            for keyword in choice.keywords:
                assert f"checks/{check}/{choice.setting}/{keyword}" in asked


def test_every_probe_has_an_id_of_its_own_and_texts_of_both_kinds() -> None:
    ids = [probe.case.id for probe in ALL]
    assert len(ids) == len({*ids})
    for probe in ALL:
        if probe.case.kind == "json_schema":
            assert {test.valid for test in probe.case.tests} == {True, False}, probe.case.id


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_labels_of_formats_are_those_of_the_oracle(name: str) -> None:
    valid, invalid = SAMPLES[name]
    assert [text for text in valid if not FORMATS[name](text)] == []
    assert [text for text in invalid if FORMATS[name](text)] == []


def test_a_table_is_written_in_lines_that_can_be_read() -> None:
    text = dumps(perfect())
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.endswith("}\n")
