"""``gb explain``: the answer, every candidate with its reason, and how the first one could be had."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from grammar_backends.cli import gb

MIXED = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "pattern": "x", "minLength": 2},
        "b": {"type": "array", "uniqueItems": True},
    },
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(gb, ["explain", *arguments], prog_name="gb")


def explained(schema: Any, *more: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run("--json-schema", json.dumps(schema), "--format", "json", *more).stdout)
    return result


def test_every_candidate_has_a_verdict_and_a_place_for_each_reason() -> None:
    data = explained(MIXED)
    assert data["chosen"] is None
    assert [step["backend"] for step in data["steps"]] == ["xgrammar", "guidance", "outlines"]
    for step in data["steps"]:
        assert step["verdict"] == "refused"
        assert all(finding["pointer"] and finding["reason"] for finding in step["findings"])


def test_what_to_change_for_the_first_choice_is_said_once_a_place_hints_before_omissions() -> None:
    first = explained(MIXED)["first_choice"]
    assert first["backend"] == "xgrammar"
    changes = [(change["where"], change["change"]) for change in first["changes"]]
    assert ("/properties/b/uniqueItems", "Leave uniqueItems out") in changes
    assert ("/properties/a/minLength", "Use a pattern instead") in changes
    assert ("/properties/a/minLength", "Leave minLength out") not in changes
    assert len(changes) == len(set(changes))


def test_the_changes_make_the_first_choice_work() -> None:
    slow = {"type": "object", "properties": {"a": {"type": "integer"}}}
    data = explained(slow)
    assert (data["chosen"], data["first_choice"]["backend"]) == ("guidance", "xgrammar")
    assert data["first_choice"]["changes"] == [{"where": "the root", "change": 'Write "additionalProperties": false'}]
    data = explained({**slow, "additionalProperties": False})
    assert (data["chosen"], data["first_choice"]) == ("xgrammar", None)


def test_a_table_shows_it_at_a_glance() -> None:
    text = run("--json-schema", json.dumps(MIXED), "--format", "table").stdout
    assert "no backend enforces all of it" in text.splitlines()[0]
    assert "For xgrammar, the first choice, which does not enforce it as it is:" in text
    assert "Leave uniqueItems out" in text


def test_a_long_list_is_cut_in_the_table_and_whole_as_data() -> None:
    schema = {"anyOf": [{"type": "array", "uniqueItems": True, "minItems": number} for number in range(20)]}
    text = run("--json-schema", json.dumps(schema), "--format", "table").stdout
    assert "and 14 more" in text
    assert len(explained(schema)["steps"][0]["findings"]) == 20


def test_a_lenient_choice_shows_what_it_ignores() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    text = run("--json-schema", json.dumps(schema), "--format", "table", "--ignore", "uniqueItems").stdout
    assert "chosen: xgrammar" in text
    assert "ignored: uniqueItems is not enforced for type array" in text


def test_a_choice_by_speed_shows_the_predictions() -> None:
    schema = {"type": "string"}
    text = run("--json-schema", json.dumps(schema), "--format", "table", "--policy", "fast").stdout
    assert text.count("predicted: first mask") == 3
    assert explained(schema, "--policy", "fast")["steps"][0]["cost"]["first_mask_ms"] > 0
