"""The tutorial for plugins is followed to the letter: its commands run, its files are written, its backend judged."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from grammar_backends_conformance.laws import LAWS
from grammar_backends_conformance.suite.expectations import read

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "plugins.md"
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")


def blocks() -> list[tuple[str, str]]:
    """Language and text of every block of code, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", TUTORIAL.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def blocks_in(language: str) -> list[str]:
    return [text for name, text in blocks() if name == language]


class Reader:
    """Somebody who does what the page says, in a directory of their own and beside this environment, not in it."""

    def __init__(self, directory: Path) -> None:
        self.target = directory / "site"
        self.place = self.start = directory / "work"
        self.start.mkdir()

    def run(self, *command: str | Path) -> None:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        # What is installed stands behind the sources, as for `pip install -e`.
        found = os.pathsep.join((str(self.place), str(self.start), str(self.target), os.environ.get("PYTHONPATH", "")))
        done = subprocess.run(
            command,
            cwd=self.place,
            env={**os.environ, "PATH": path, "PYTHONPATH": found},
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def shell(self, line: str) -> None:
        words = shlex.split(line)
        if words[0] == "cd":
            self.place = self.place / words[1]
        elif words == ["pip", "install", "-e", ".[tests]"]:
            self.run(*PIP, "--target", self.target, ".")
        elif words[:2] == ["pip", "install"]:
            self.run(sys.executable, "-m", "pip", "show", "--quiet", *words[2:])  # they are there: nothing is fetched
        else:
            assert words[0] == "gb", line
            # The whole core profile of a generated project runs in tests/conformance/test_scaffold.py: once is enough.
            self.run(*words, *(("--vocabulary", "byte") if "core" in words else ()))

    def write(self, name: str, text: str) -> None:
        path = Path(name)
        home = self.place if (self.place / path.parent).exists() else self.start
        (home / path).parent.mkdir(exist_ok=True)
        (home / path).write_text(text, "utf-8")


def named_file(text: str) -> str | None:
    """The file that a block says it is."""
    match = re.match(r"# (\w+/\w+\.py)\n", text)
    return match[1] if match else None


def test_the_tutorial_leads_from_nothing_to_a_backend_that_keeps_the_contract(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for language, text in blocks():
        if language == "sh":
            for line in text.splitlines():
                reader.shell(line)
        elif language == "python" and (name := named_file(text)):
            reader.write(name, text)
        elif language == "python":
            reader.run(sys.executable, "-W", "error", "-c", text)
    assert (reader.place / "conformance.html").exists()


class Word:
    """Can only be pushed forward."""

    def __init__(self, word: str) -> None:
        self.rest = word

    def push(self, letter: str) -> bool:
        fits = self.rest.startswith(letter)
        self.rest = self.rest[1:] if fits else self.rest
        return fits


@pytest.fixture
def replay() -> Callable[[], Any]:
    (source,) = [text for text in blocks_in("python") if text.startswith("class ReplayMatcher")]
    names: dict[str, Any] = {}
    exec(compile(source, "ReplayMatcher", "exec"), names)
    return lambda: names["ReplayMatcher"](lambda: Word("abcd"))


def test_the_matcher_that_replays_goes_back_to_every_step(replay: Callable[[], Any]) -> None:
    for steps in range(4):
        matcher = replay()
        assert matcher.consume("abcx") == 3
        matcher.rollback(steps)
        assert matcher.parser.rest == "abcd"[3 - steps :]
        fork = matcher.fork()
        assert fork.consume("abcd"[3 - steps :]) == 1 + steps
        assert matcher.parser.rest == "abcd"[3 - steps :]


def test_the_example_of_expectations_can_be_read(tmp_path: Path) -> None:
    (example,) = blocks_in("toml")
    (tmp_path / "expectations.toml").write_text(example, "utf-8")
    (entry,) = read(tmp_path / "expectations.toml")
    assert entry.id.partition("@")[0] in LAWS


def test_every_law_that_is_named_exists() -> None:
    named = set(re.findall(r"`([A-Z]\d+/[a-z-]+)`", TUTORIAL.read_text("utf-8")))
    assert len(named) > 10
    assert named <= LAWS.keys()


def inputs_given() -> Iterator[set[str]]:
    for text in blocks_in("yaml"):
        for step in yaml.safe_load(text).get("steps", []):
            if "with" in step:
                yield set(step["with"])


def test_the_workflow_gives_the_action_inputs_that_it_has() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    (given,) = inputs_given()
    assert given <= action["inputs"].keys()
