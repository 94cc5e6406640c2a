"""Which table an engine is judged by: the one for its version, or else the nearest older one, with a warning."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import GrammarSpec, PluginHost, explain
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.errors import PluginError
from grammar_backends.plugins import hookimpl
from grammar_backends.selection.tables import nearest, table_of

TABLES = [
    {"measured": "0.3.1", "versions": ">=0.3,<0.4"},
    {"measured": "0.2.9", "versions": ">=0.2.9,<0.3"},
    {"measured": "1.0", "versions": ">=1,<2"},
]
STRINGS = GrammarSpec.json_schema({"type": "string", "minLength": 2})


@pytest.mark.parametrize(
    ("version", "measured", "fits"),
    [
        ("0.2.9", "0.2.9", True),
        ("0.2.14", "0.2.9", True),
        ("0.3.0", "0.3.1", True),
        ("0.3.2.dev1", "0.3.1", True),
        ("0.9", "0.3.1", False),
        ("0.10", "0.3.1", False),
        ("2.0", "1.0", False),
        ("0.1", "0.2.9", False),
        (None, "1.0", True),
    ],
)
def test_c3_an_engine_gets_the_table_of_its_version_or_the_nearest_older(
    version: str | None, measured: str, fits: bool
) -> None:
    index, found = nearest(TABLES, version)
    assert (TABLES[index]["measured"], found) == (measured, fits)


def make_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any, name: str) -> BackendSpec:
    """A backend with these tables, whose engine is a distribution that is here: numpy."""
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "support.json").write_text(content if isinstance(content, str) else json.dumps(content))
    monkeypatch.syspath_prepend(str(tmp_path))
    capabilities = Capabilities(kinds=frozenset(GrammarKind), support=f"{name}:support.json")
    return BackendSpec(name.replace("_", "-"), f"{name}:Engine", API_VERSION, capabilities, priority=1, engine="numpy")


def table(measured: str, versions: str, keywords: list[str]) -> dict[str, Any]:
    types: dict[str, list[str]] = {name: [] for name in ("string", "integer", "number", "array", "object")}
    return {
        "engine": "toy",
        "measured": measured,
        "versions": versions,
        "types": {"any": ["type"], **types, "string": keywords},
        "combinators": {},
        "formats": [],
        "unknown_formats": True,
        "noops": ["*"],
        "checks": {},
    }


class Plugin:
    def __init__(self, spec: BackendSpec) -> None:
        self._spec = spec

    @hookimpl
    def grammar_backends_register_backends(self) -> list[BackendSpec]:
        return [self._spec]


def host_of(spec: BackendSpec) -> PluginHost:
    return PluginHost(autoload=False, plugins={spec.name: Plugin(spec)})


def test_c3_an_unknown_version_is_judged_as_an_older_one_with_a_warning_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = [table("0.1", "==0.1", []), table("0.2", "==0.2", ["minLength"])]
    spec = make_backend(tmp_path, monkeypatch, older, "tables_older")
    trace = explain(STRINGS, host_of(spec))
    version = importlib.metadata.version("numpy")
    (warning,) = trace.warnings
    assert trace.chosen == spec.name
    assert f"{version} was not measured; it is judged as 0.2" in warning
    assert f"warning: {warning}" in str(trace)
    assert trace.to_dict()["warnings"] == [warning]
    assert explain(GrammarSpec.choice(["a"]), host_of(spec)).warnings == ()


def test_c3_a_version_that_was_measured_is_no_reason_to_warn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [table("0.1", "==0.1", ["minLength"]), table("1.0", ">=1", [])]
    spec = make_backend(tmp_path, monkeypatch, tables, "tables_newer")
    trace = explain(STRINGS, host_of(spec))
    assert trace.warnings == ()
    assert trace.steps[0].findings[0].keyword == "minLength"


@pytest.mark.parametrize("content", ["[]", "{", '{"measured": "x", "versions": ">=1"}', '[{"measured": "1"}]'])
def test_malformed_tables_are_an_error_of_the_plugin(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"tables_malformed_{abs(hash(content))}"
    with pytest.raises(PluginError, match="cannot be read"):
        table_of(make_backend(tmp_path, monkeypatch, content, name))
