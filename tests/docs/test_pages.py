"""The code on these pages runs as it stands there, from the first block to the last."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["decode-loop.md", "decoding.md", "gates.md", "observability.md", "scheduling.md"])
def test_the_code_of_a_page_runs(page: str) -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(code, page, "exec"), names)
