"""Writes a plugin project: names are checked first, then the template is copied with another name in it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from grammar_backends.errors import GrammarBackendsError
from grammar_backends.plugins import PluginHost

__all__ = ["NewPluginError", "check_name", "generate"]

TEMPLATE = Path(__file__).parent / "template"
NAME_IN_TEMPLATE = "toy"

PLACES = {"gitignore": ".gitignore", "github": ".github"}
"""Names that files of the template have only once they are generated: with a dot, build tools would act on them."""

RESERVED = frozenset(("auto", "none"))
"""Names that mean something else wherever a backend is named."""


class NewPluginError(GrammarBackendsError, ValueError):
    """A project cannot be generated with this name or in this place. The caller is at fault."""


def check_name(name: str, host: PluginHost) -> None:
    """Whether a backend can have this name.

    Raises:
        NewPluginError: it is no lower-case words joined by "-" (with the nearest name that is), it is reserved, or
            an installed backend or package has it.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise NewPluginError(f"the name {name!r} is not lower-case words joined by '-'", hint=_suggestion(name))
    if name in RESERVED:
        raise NewPluginError(f"the name {name!r} is reserved", hint=f"Try {name}-engine")
    for record in host.backends:
        if record.spec.name.replace("_", "-") == name.replace("_", "-"):
            owner = record.spec.distribution or record.plugin
            raise NewPluginError(f"{owner} has a backend named {record.spec.name!r}", hint=f"Try {name}-2 or another")
    if importlib.util.find_spec(package_of(name)) is not None:
        raise NewPluginError(f"there is a package named {package_of(name)} already", hint="Choose another name")


def _suggestion(name: str) -> str:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "-", name)
    words = re.sub(r"^[-0-9]+|-+$", "", spaced).lower()
    return f"Did you mean {words!r}?" if words.isascii() and words else "It starts with a letter"


def package_of(name: str) -> str:
    """The import package of a backend's plugin."""
    return f"{name.replace('-', '_')}_backend"


def generate(name: str, directory: Path) -> list[Path]:
    """Write a project; `check_name` must have let the name pass.

    Args:
        name: the backend's.
        directory: where to; made when it does not exist.

    Returns:
        The files, relative to the directory.

    Raises:
        NewPluginError: the directory is not empty, or cannot be written to.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NewPluginError(f"{directory} is {'not empty' if directory.is_dir() else 'a file'}")
    written = []
    try:
        for source in _sources():
            target = _renamed_path(source.relative_to(TEMPLATE), name)
            (directory / target).parent.mkdir(parents=True, exist_ok=True)
            (directory / target).write_text(_renamed(source.read_text("utf-8"), name), "utf-8")
            written.append(target)
    except OSError as error:
        raise NewPluginError(f"cannot write to {directory}: {error.strerror}") from error
    return written


def _sources() -> Iterator[Path]:
    for path in sorted(TEMPLATE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _renamed_path(path: Path, name: str) -> Path:
    return Path(*(PLACES.get(part, _renamed(part, name)) for part in path.parts))


def _renamed(text: str, name: str) -> str:
    pattern = rf"\b{NAME_IN_TEMPLATE}(_backend)?\b"
    return re.sub(pattern, lambda match: package_of(name) if match[1] else name, text)
