"""The front end under random and broken requests: a share of the long run, and what the long run has found."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from grammar_backends import GrammarSpec, PluginHost, default_host, explain, load_vocabulary, validate_spec
from grammar_backends.errors import SpecError
from grammar_backends_conformance.fuzzing import front_end, schemas
from grammar_backends_conformance.fuzzing.front_end import Fault, fuzz, run_input
from grammar_backends_conformance.fuzzing.inputs import KINDS, Input, make_input
from grammar_backends_conformance.fuzzing.schemas import SchemaMaker, fuzz_schemas


@pytest.fixture(scope="module")
def host() -> PluginHost:
    return default_host()


def test_d19_random_and_broken_requests_get_errors_of_the_tree_only() -> None:
    result = fuzz(seed=1, inputs=4_000)
    assert result["faults"] == []
    assert sum(result["outcomes"].values()) == 4_000
    taken = {outcome.partition(":")[0] for outcome in result["outcomes"] if outcome.endswith("enforced")}
    assert taken == {"choice", "from_openai", "grammar", "json_schema", "regex", "structural_tag"}


def test_the_same_number_is_the_same_input() -> None:
    assert len(KINDS) == 10
    assert [repr(make_input(5, number)) for number in range(50)] == [
        repr(make_input(5, number)) for number in range(50)
    ]


def test_a_process_that_dies_is_a_fault_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_end, "_run", lambda *arguments: (front_end._NOTHING, "the process ended with -11"))
    result = fuzz(seed=1, inputs=1, first=7)
    assert [(fault["number"], fault["what"]) for fault in result["faults"]] == [(7, "the process ended with -11")]


def test_another_exception_is_a_fault(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: GrammarSpec, **more: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(front_end, "explain", broken)
    with pytest.raises(Fault, match="KeyError"):
        run_input(Input("regex", ("a",), {}), host)


GROUPS = "(" * 400 + "a|b" + ")" * 400
FOUND: dict[str, Any] = {
    "an id that is no address": {"$id": "http://[", "$ref": "#a"},
    "a reference that is no address": {"$id": "http://x/", "$ref": "http://["},
    "an id in a definition that is no address": {"$ref": "#a", "$defs": {"b": {"$id": "http://["}}},
    "names that are schemas": {"dependencies": {"a": [{"type": "null"}]}, "minProperties": 1},
    "groups in groups around a bar": {"type": "string", "pattern": GROUPS},
    "groups in groups around a bar, for names": {"type": "object", "patternProperties": {GROUPS: {}}},
    "dependencies on a long name": {"dependencies": {"a" * 300: [GROUPS]}, "patternProperties": {GROUPS: False}},
}


@pytest.mark.parametrize("name", FOUND)
def test_d19_what_was_found_once(name: str, host: PluginHost) -> None:
    spec = GrammarSpec.json_schema(FOUND[name])
    try:
        validate_spec(spec)
    except SpecError as error:
        assert error.pointer is not None  # noqa: PT017  # either outcome is right, another exception is not
        return
    assert explain(spec, host=host).steps


@pytest.mark.parametrize("name", ["xgrammar", "guidance", "outlines", "auto"])
def test_c2_no_backend_accepts_what_a_random_schema_refuses(name: str) -> None:
    result = fuzz_schemas(seed=3_400, schemas=60, names=[name], vocabulary=load_vocabulary("byte"))
    assert result["wrong"] == []
    counts = result["counts"][name]
    assert counts["compiled"] + counts["refused"] == 60
    assert min(counts["compiled"], counts["valid accepted"], counts["invalid refused"]) >= 10


def test_c2_a_text_wrongly_accepted_is_found_with_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "schema_valid", lambda schema, text: False)
    result = fuzz_schemas(seed=1, schemas=3, names=["guidance"], vocabulary=load_vocabulary("byte"))
    found = result["wrong"][0]
    assert found["schema"] == SchemaMaker(found["number"]).schema
    assert found["text"] in itertools.islice(SchemaMaker(found["number"]).texts(), schemas.VALUES)
