"""Reports go where they are sent, whatever is there."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from grammar_backends_conformance.running.files import write_text


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    for text in ("long enough", "new", "\ud800"):
        write_text(target, text)
    assert target.read_text("utf-8") == "\\ud800"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "there", tmp_path / "here"
    link.symlink_to(target)
    write_text(link, "text")
    assert link.is_symlink()
    assert target.read_text("utf-8") == "text"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text("utf-8")))
    reader.start()
    write_text(pipe, "text")
    reader.join()
    assert read == ["text"]
    assert pipe.is_fifo()
