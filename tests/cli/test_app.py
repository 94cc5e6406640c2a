"""The group itself: cheap to start, finds commands of others, one line and the right exit code for every error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from grammar_backends.cli.app import CommandGroup
from grammar_backends.cli.exits import ExitCode, of_error
from grammar_backends.errors import (
    BackendUnavailable,
    CompileError,
    DeadEnd,
    PluginError,
    SpecError,
    UnsupportedFeature,
    VocabularyError,
)


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from grammar_backends.cli import gb
try:
    gb.main(["--help"], prog_name="gb")
except SystemExit:
    pass
heavy = {"numpy", "torch", "pluggy", "rich", "jsonschema", "grammar_backends.plugins", "grammar_backends.contract"}
print("loaded:", sorted(heavy & sys.modules.keys()))
"""
    done = python(code)
    assert "loaded: []" in done.stdout, done.stderr
    assert "explain" in done.stdout


def test_help_lists_core_commands_and_survives_a_broken_one(invoke: Any) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for name in ("list", "explain", "check", "inspect"):
        assert f"  {name} " in result.stdout
    assert "(cannot be loaded: RuntimeError: this" in result.stdout


def test_a_broken_command_says_why_when_it_is_named(invoke: Any) -> None:
    result = invoke("broken", "--any", "thing")
    assert result.exit_code == ExitCode.USAGE
    assert "cannot be loaded: RuntimeError: this plugin is broken" in result.stderr


def test_a_command_that_a_plugin_registers_by_its_hook_runs(invoke: Any) -> None:
    result = invoke("hello")
    assert (result.exit_code, result.stdout) == (0, "hello from a hook\n")


def test_an_unknown_command_is_a_usage_error_that_names_the_nearest(invoke: Any) -> None:
    result = invoke("explian")
    assert result.exit_code == ExitCode.USAGE
    assert "There is no command 'explian', did you mean 'explain'?" in result.stderr
    listed = result.stderr.partition("Commands: ")[2].strip().rstrip(".").split(", ")
    assert set(listed) >= {"check", "explain", "inspect", "list"}


def test_an_unknown_option_is_a_usage_error(invoke: Any) -> None:
    result = invoke("list", "--fast")
    assert result.exit_code == ExitCode.USAGE
    assert "--fast" in result.stderr
    assert result.stdout == ""


def test_no_command_shows_the_help_as_a_usage_error(invoke: Any) -> None:
    result = invoke()
    assert result.exit_code == ExitCode.USAGE
    assert "Commands:" in result.stderr


def test_every_command_has_help_with_an_example(invoke: Any) -> None:
    for name in ("list", "explain", "check", "inspect"):
        result = invoke(name, "--help")
        assert result.exit_code == 0
        assert f"Example: gb {name}" in result.stdout


def test_the_version_is_shown(invoke: Any) -> None:
    assert invoke("--version").stdout.startswith("grammar-backends, version ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("x"), 4),
        (click.FileError("x"), 4),
        (SpecError("x"), 4),
        (VocabularyError("x"), 4),
        (UnsupportedFeature("x"), 1),
        (CompileError("x", backend="b"), 1),
        (DeadEnd("x"), 1),
        (BackendUnavailable("x"), 6),
        (PluginError("x"), 6),
        (ZeroDivisionError("x"), 3),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert of_error(error) == code


def raising(error: BaseException) -> CommandGroup:
    def fail() -> None:
        raise error

    return CommandGroup("gb", invoke_without_command=True, callback=fail)


def test_an_internal_error_is_no_traceback_but_how_to_get_one() -> None:
    result = CliRunner().invoke(raising(ZeroDivisionError("oh")), [])
    assert result.exit_code == ExitCode.INTERNAL_ERROR
    assert result.stderr.splitlines()[0] == "Internal error: ZeroDivisionError: oh"
    assert "GRAMMAR_BACKENDS_DEBUG=1" in result.stderr


def test_the_traceback_is_shown_to_who_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAMMAR_BACKENDS_DEBUG", "1")
    result = CliRunner().invoke(raising(ZeroDivisionError("oh")), [])
    assert result.exit_code == ExitCode.INTERNAL_ERROR
    assert "Traceback" in result.stderr


def test_an_interruption_is_exit_code_2() -> None:
    result = CliRunner().invoke(raising(KeyboardInterrupt()), [])
    assert result.exit_code == ExitCode.INTERRUPTED


def test_a_return_value_is_not_an_exit_code() -> None:
    group = CommandGroup("gb", invoke_without_command=True, callback=lambda: 7)
    assert CliRunner().invoke(group, []).exit_code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [("gb ex", "explain"), ("gb explain --wh", "--whitespace"), ("gb check --syntax l", "lark")],
)
def test_shell_completion_works(words: str, expected: str) -> None:
    code = 'from grammar_backends.cli import gb\ngb.main(prog_name="gb")'
    position = str(len(words.split()) - 1)
    done = python(code, _GB_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=position)
    assert f"plain,{expected}" in done.stdout.splitlines()


def test_a_closed_pipe_ends_quietly() -> None:
    code = 'from grammar_backends.cli import gb\ngb.main(["list"], prog_name="gb")'
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()


def test_output_of_a_pipe_is_json(invoke: Any) -> None:
    assert isinstance(json.loads(invoke("list").stdout), dict)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "arguments", [["list"], ["--help"], ["inspect", "--regex", "a", "--backend", "xgrammar", "--tokenizer", "byte"]]
)
def test_a_full_disk_is_no_bug(arguments: list[str]) -> None:
    code = f'from grammar_backends.cli import gb\ngb.main({arguments!r}, prog_name="gb")'
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith("Error: cannot write the output: No space left")
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_stdout_is_no_bug() -> None:
    code = 'from grammar_backends.cli import gb\ngb.main(["list"], prog_name="gb")'
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" >&-', sys.executable, code], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
