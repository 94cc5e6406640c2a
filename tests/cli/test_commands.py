"""list, explain, check and inspect over the toys: what they print, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import load_vocabulary
from grammar_backends.cli.exits import ExitCode
from grammar_backends.cli.output import Table, emit, printable

TOY = ("--backend", "toy", "--tokenizer", "byte")


def test_list_shows_every_plugin_and_backend_with_state_and_reason(invoke: Any) -> None:
    data = json.loads(invoke("list").stdout)
    backends = {(backend["name"], backend["state"]): backend for backend in data["backends"]}
    assert backends["toy", "loaded"]["engine_version"] == "1.0"
    assert backends["toy", "loaded"]["capabilities"]["kinds"] == ["choice"]
    assert "registers a name that toy-engines has registered" in backends["toy", "failed"]["reason"]
    assert "made for plugin API" in backends["toy-old", "incompatible"]["reason"]
    plugins = {plugin["name"]: plugin for plugin in data["plugins"]}
    assert plugins["toys-broken"]["state"] == "failed"
    assert "this plugin is broken" in plugins["toys-broken"]["reason"]
    assert plugins["toys"]["distribution"] == "toy-engines"


@pytest.mark.parametrize("format_", ["table", "markdown"])
def test_list_reads_well_for_people_too(invoke: Any, format_: str) -> None:
    out = invoke("list", "--format", format_).stdout
    for word in ("toy-lenient", "incompatible", "failed", "toy-engines 1.0"):
        assert word in out


def test_without_a_backend_list_says_how_to_get_one(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAMMAR_BACKENDS_AUTOLOAD", "0")
    result = invoke("list", "--format", "table")
    assert result.exit_code == 0
    assert "pip install" in result.stdout


def test_k6_doctor_tells_what_a_report_of_a_fault_needs(invoke: Any) -> None:
    data = json.loads(invoke("doctor", "--tokenizer", "byte").stdout)
    assert {"torch", "python"} <= set(data["installation"])
    assert ("toy", "loaded") in {(backend["name"], backend["state"]) for backend in data["backends"]}
    assert data["tokenizer"]["fingerprint"] == load_vocabulary("byte").fingerprint
    assert data["masks"]["numpy"] == "works on cpu"
    assert data["manager_limits"]["compile_seconds"] > 0
    table = invoke("doctor", "--tokenizer", "byte", "--format", "table").stdout
    for word in ("toy-lenient", "failed", data["tokenizer"]["fingerprint"], "compile_seconds"):
        assert word in table


def test_explain_shows_every_candidate_and_exits_with_0_when_one_is_chosen(invoke: Any) -> None:
    result = invoke("explain", "--choice", "a,b", "--backend", "toy")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data["chosen"] == "toy"
    table = invoke("explain", "--choice", "a,b", "--backend", "toy", "--format", "table").stdout
    assert "chosen: toy" in table


def test_explain_exits_with_1_when_nobody_enforces_it_and_says_why(invoke: Any) -> None:
    result = invoke("explain", "--regex", "a+", "--backend", "toy", "--format", "table")
    assert result.exit_code == ExitCode.FAILURES
    assert "no backend enforces all of it" in result.stdout
    assert "refused" in result.stdout
    assert "regex" in result.stdout


def test_c2_5_explain_shows_what_is_ignored_and_refuses_what_cannot_be(invoke: Any) -> None:
    schema = '{"type": "string", "format": "idn-email"}'
    result = invoke("explain", "--json-schema", schema, "--ignore", "properties")
    assert result.exit_code == ExitCode.USAGE
    assert "--ignore: 'properties' cannot be ignored" in result.stderr
    assert invoke("check", "--json-schema", schema, "--ignore", "properties").exit_code == ExitCode.USAGE


def test_explain_names_the_nearest_backend(invoke: Any) -> None:
    result = invoke("explain", "--choice", "a", "--backend", "toi")
    assert result.exit_code == ExitCode.BACKEND_UNAVAILABLE
    assert "did you mean 'toy'" in result.stderr


def test_check_compiles_and_times(invoke: Any) -> None:
    result = invoke("check", "--choice", "a,b", *TOY)
    assert result.exit_code == 0
    (verdict,) = json.loads(result.stdout)["results"]
    assert (verdict["backend"], verdict["version"], verdict["verdict"]) == ("toy", "1.0", "ok")
    assert verdict["compile_ms"] >= 0


def test_check_of_every_backend_reports_each_and_exits_with_1_on_a_failure(invoke: Any) -> None:
    result = invoke("check", "--choice", "fail", "--backend", "all", "--tokenizer", "byte")
    assert result.exit_code == ExitCode.FAILURES
    verdicts = {v["backend"]: v for v in json.loads(result.stdout)["results"]}
    assert verdicts["toy"]["verdict"] == "ok"
    assert verdicts["toy-trouble"]["verdict"] == "failed"
    assert "the toy broke" in verdicts["toy-trouble"]["reason"]
    assert "the toy will not start" in verdicts["toy-cannot-start"]["reason"]


def test_check_shows_a_refusal_with_its_position(invoke: Any) -> None:
    result = invoke("check", "--choice", "refuse", "--backend", "toy-trouble", "--tokenizer", "byte")
    assert result.exit_code == ExitCode.FAILURES
    (verdict,) = json.loads(result.stdout)["results"]
    assert (verdict["verdict"], verdict["where"]) == ("refused", "/0")


def test_check_without_a_backend_is_exit_code_5(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAMMAR_BACKENDS_AUTOLOAD", "0")
    assert invoke("check", "--choice", "a", "--backend", "all").exit_code == ExitCode.NOTHING_RAN


def test_inspect_shows_what_may_follow(invoke: Any) -> None:
    result = invoke("inspect", "--choice", "yes,year,no", "--prefix", "ye", *TOY)
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert (data["accepting"], data["may_stop"], data["allowed"]) == (False, False, 2)
    assert data["first_bytes"] == ["a", "s"]
    assert [item["text"] for item in data["sample"]] == ["'a'", "'s'"]
    assert data["forced"] == ""


def test_inspect_shows_forced_text_and_that_the_text_may_end(invoke: Any) -> None:
    data = json.loads(invoke("inspect", "--choice", "no,nobody", "--prefix", "no", *TOY).stdout)
    assert (data["accepting"], data["may_stop"]) == (True, True)
    data = json.loads(invoke("inspect", "--choice", "no,nobody", "--prefix", "nob", *TOY).stdout)
    assert data["forced"] == "ody"


def test_inspect_of_a_wrong_prefix_exits_with_1_and_shows_how_far_it_was_right(invoke: Any) -> None:
    arguments = ["inspect", "--choice", "straße", "--prefix", "straßx", *TOY]
    result = invoke(*arguments)
    assert result.exit_code == ExitCode.FAILURES
    data = json.loads(result.stdout)
    assert (data["legal_prefix"], data["legal_bytes"], data["forced"]) == ("straß", 6, "e")
    table = invoke(*arguments, "--format", "table").stdout
    assert "right up to byte 6, after 'straß'" in table


def test_inspect_goes_on_inside_a_refused_token(invoke: Any) -> None:
    # "ß" and "ü" begin with the same byte: the legal prefix ends inside the character.
    data = json.loads(invoke("inspect", "--choice", "ß", "--prefix", "ü", *TOY).stdout)
    assert data["legal_bytes"] == 1
    assert data["legal_prefix"] == "\\xc3"


def test_inspect_shows_runs_of_first_bytes_as_ranges(invoke: Any) -> None:
    data = json.loads(invoke("inspect", "--choice", "0,1,2,a,b,c,d,x,\t", *TOY).stdout)
    assert data["first_bytes"] == ["0x09", "0-2", "a-d", "x"]


def test_inspect_limits_the_sample(invoke: Any) -> None:
    data = json.loads(invoke("inspect", "--choice", "a,b,c", "--limit", "1", *TOY).stdout)
    assert (data["allowed"], len(data["sample"])) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "given: none"),
        (["--regex", "a", "--json-object"], "given: --regex, --json-object"),
        (["--regex", "a", "--syntax", "lark"], "--syntax goes with --grammar"),
        (["--json-schema", "missing.json"], "--json-schema: cannot read 'missing.json': No such file or directory"),
        (["--json-schema", "{oops"], "not JSON"),
        (["--json-schema", "[]"], "a schema is an object or a boolean, not an array"),
        (["--json-schema", ' "a"'], "a schema is an object or a boolean, not a string"),
        (["--json-schema", "null"], "a schema is an object or a boolean, not null"),
        (["--json-schema", "false"], "json_schema"),
        (["--json-schema", '{"a": "\\ud800"}'], "lone surrogate"),
        (["--choice", '["a"'], "must be a JSON list"),
        (["--choice", "[1]"], "a string is needed, not a number at /0"),
        (["--regex", "a("], "at 1:2"),
        (["--grammar", "-"], "blank"),
        (["--json-schema", "{}", "--whitespace", "some"], "--whitespace"),
        (["--choice", "a", "--tokenizer", "missing.json"], "missing.json"),
    ],
)
def test_bad_input_is_exit_code_4_and_one_clear_line(invoke: Any, arguments: list[str], message: str) -> None:
    result = invoke("check", *arguments, *(() if "--tokenizer" in arguments else TOY), stdin=" ")
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr
    assert result.stdout == ""


def test_a_spec_is_read_from_stdin_or_a_file_and_errors_name_the_source(invoke: Any, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"type":\n oops}', encoding="utf-8-sig")
    from_file = invoke("explain", "--json-schema", str(path))
    assert from_file.stderr.startswith(f"Error: {path}: json_schema: not JSON")
    assert "at 2:2" in from_file.stderr
    from_stdin = invoke("explain", "--json-schema", "-", stdin="[]")
    assert from_stdin.stderr.startswith("Error: stdin: json_schema:")
    assert "is not UTF-8: byte 0" in invoke("explain", "--grammar", "-", stdin=b"\xff").stderr


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["--choice", "a,k"], ["a", "k"]),
        (["--choice", "a", "--choice", "k,x"], ["a", "k", "x"]),
        (["--choice", '["a,b", "x"]'], ["a,b", "x"]),
        (["--choice", ""], [""]),
    ],
)
def test_choices_are_split_repeated_or_listed_as_json(invoke: Any, arguments: list[str], texts: list[str]) -> None:
    data = json.loads(invoke("inspect", *arguments, *TOY).stdout)
    assert data["first_bytes"] == sorted({text[0] for text in texts if text})
    assert data["may_stop"] == ("" in texts)


def test_cells_cannot_break_a_table_or_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("t", ["a"], [["x|y\x1b[2J\n<b>"]])
    emit("markdown", {}, [table])
    assert capsys.readouterr().out.splitlines()[-1] == "| x\\|y\\\\x1b[2J\\\\n&lt;b> |"
    emit("table", {}, [table])
    assert "\x1b" not in capsys.readouterr().out
    assert printable("é\x07") == "é\\x07"


@pytest.mark.parametrize("option", ["--regex", "--json-schema", "--whitespace"])
def test_d1_an_option_that_is_given_twice_is_refused(invoke: Any, option: str) -> None:
    result = invoke("explain", option, "any", option, "any")
    assert result.exit_code == 4
    assert f"{option} is given 2 times" in result.stderr
