"""The code in the documents runs as it stands there."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_readme_example_runs() -> None:
    (example,) = code_blocks(ROOT / "README.md", "python")
    exec(compile(example, "README.md", "exec"), {})


def test_plugin_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    registration, engine, trial = code_blocks(ROOT / "docs" / "plugins.md", "python")
    for name, source in (("wordlist_backend", registration), ("wordlist_backend.engine", engine)):
        module = types.ModuleType(name)
        exec(compile(source, name, "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile(trial, "docs/plugins.md", "exec"), {"wordlist_backend": sys.modules["wordlist_backend"]})


def test_tokenizer_examples_run() -> None:
    for package in ("mistral_common", "sentencepiece", "tiktoken"):
        pytest.importorskip(package)
    names: dict[str, object] = {}
    for number, source in enumerate(code_blocks(ROOT / "docs" / "tokenizers.md", "python")):
        exec(compile(source, f"docs/tokenizers.md, block {number}", "exec"), names)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", document.read_text("utf-8")):
        assert (document.parent / target).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"^  - (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
