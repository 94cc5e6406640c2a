"""Writes what a run leaves behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["write_text"]


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing: a reader never sees half of one.

    What is there already and is no plain file (a pipe, a device, a link) is written to, never replaced.

    Raises:
        OSError: it cannot be written.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        # A lone surrogate, which an engine's words may hold, must not cost the whole report.
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
