"""What readers of files share: JSON objects, files that installed packages hold, and optional libraries.

Everything that goes wrong becomes a `VocabularyError` that names the file, or what to install.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from grammar_backends.errors import VocabularyError, trim

__all__ = ["find_in_package", "import_library", "is_installed", "read_bytes", "read_json_object"]


def is_installed(package: str) -> bool:
    """Whether a top-level package can be imported, found out without importing it."""
    return importlib.util.find_spec(package) is not None


def import_library(package: str, needed_by: str, extra: str) -> Any:
    """An optional library, imported on first use.

    Raises:
        VocabularyError: it is not installed; the hint names the extra that brings it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        hint = f"Install it: pip install 'grammar-backends[{extra}]'"
        raise VocabularyError(f"{needed_by} needs the package {package}", hint=hint) from error


def find_in_package(package: str, file: str, *, hint: str) -> Path:
    """A file that an installed package holds, found without importing the package.

    Raises:
        VocabularyError: the package is not installed, or does not hold the file.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise VocabularyError(f"{file} comes with the package {package}, which is not installed", hint=hint)
    path = Path(spec.submodule_search_locations[0]) / file
    if not path.is_file():
        raise VocabularyError(f"the package {package} does not hold {file}", hint=hint)
    return path


def read_bytes(path: Path) -> bytes:
    """A file's content.

    Raises:
        VocabularyError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise VocabularyError(f"{path} cannot be read: {trim(str(error))}") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        VocabularyError: the file cannot be read, or holds something else.
    """
    data = read_bytes(path)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise VocabularyError(f"{path} cannot be read: {trim(str(error))}") from error
    if not isinstance(value, dict):
        raise VocabularyError(f"{path} cannot be read: it holds no JSON object")
    return value
