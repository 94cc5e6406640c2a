"""The code in the documents runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", [0, 1])
def test_readme_examples_run(number: int) -> None:
    examples = code_blocks(ROOT / "README.md", "python")
    assert len(examples) == 2
    exec(compile(examples[number], "README.md", "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", document.read_text("utf-8")):
        assert (document.parent / target).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"^  - (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
