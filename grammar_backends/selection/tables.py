"""Which measured table an installed engine is judged by.

A plugin ships one table, or a list of them for several ranges of versions. An engine that none of them is for gets the
nearest older one, with a warning: new versions mostly enforce what older ones did, and `gb probe` tells.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from grammar_backends.contract import JSON, BackendSpec
from grammar_backends.errors import PluginError
from grammar_backends.installation import installed_version
from grammar_backends.selection.support import SchemaSupport

__all__ = ["ChosenTable", "nearest", "table_of"]


@dataclass(frozen=True, slots=True)
class ChosenTable:
    """A table, and whether it was measured for the engine that is there.

    Attributes:
        support: the table.
        warning: why it may not fit; "" when it does.
    """

    support: SchemaSupport
    warning: str = ""


@functools.cache
def table_of(backend: BackendSpec) -> ChosenTable | None:
    """The table for the engine version that is installed; None for a backend without any.

    Raises:
        PluginError: the tables cannot be read.
    """
    resource = backend.capabilities.support
    if resource is None:
        return None
    package, _, name = resource.partition(":")
    try:
        data = json.loads(importlib.resources.files(package).joinpath(name).read_text("utf-8"))
        tables = data if isinstance(data, list) else [data]
        version = installed_version(backend.engine or backend.distribution)
        index, fits = nearest(tables, version)
    except (OSError, ValueError, ModuleNotFoundError, KeyError, TypeError, IndexError) as error:
        raise PluginError(f"support data {resource} cannot be read: {error!r}") from error
    support = SchemaSupport.from_mapping(tables[index])
    if fits:
        return ChosenTable(support)
    warning = f"{backend.name} {version} was not measured; it is judged as {support.measured}"
    return ChosenTable(support, f"{warning} (measure it: gb probe {backend.name})")


def nearest(tables: Sequence[Mapping[str, JSON]], version: str | None) -> tuple[int, bool]:
    """The index of the table for a version, and whether that version is in its range.

    Where there is none: of the tables of older versions the newest, or else the oldest. An unknown version has none.

    Raises:
        ValueError: a version or a range cannot be read.
        IndexError: there is no table.
    """
    try:
        measured = [Version(table["measured"]) for table in tables]
        ranges = [SpecifierSet(table["versions"]) for table in tables]
        order = sorted(range(len(tables)), key=lambda index: measured[index])
        if version is None:
            return order[-1], True
        installed = Version(version)
    except (InvalidVersion, InvalidSpecifier) as error:
        raise ValueError(str(error)) from error
    fitting = [index for index in order if ranges[index].contains(installed, prereleases=True)]
    if fitting:
        return fitting[-1], True
    older = [index for index in order if measured[index] <= installed]
    return (older[-1] if older else order[0]), False
