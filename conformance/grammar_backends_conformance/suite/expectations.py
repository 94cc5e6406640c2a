"""Known deviations of a backend, as a file: each is a strict expected failure.

::

    [[expected]]
    id = "A12/mask-agrees@tekken:*"      # a check, or a glob over checks
    reason = "the engine masks only canonical tokens"
    link = "https://…"                   # optional: where it is reported
    versions = ">=1.2,<2"                # optional: engine versions that have it
    backend = "name"                     # optional: in a file that serves several backends

Strict: a check that passes although it is expected to fail, and an entry that no check matches, are errors. So the
file shrinks as engines get better, and never grows stale.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from grammar_backends.contract import BackendSpec
from grammar_backends.errors import GrammarBackendsError
from grammar_backends_conformance.laws.check import Check
from grammar_backends_conformance.reports.report import Line
from grammar_backends_conformance.suite.plan import every_check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "UNKNOWN",
    "Expectation",
    "ExpectationsError",
    "apply",
    "dumps",
    "mark",
    "of_backend",
    "own_file",
    "read",
    "strays",
    "updated",
]

UNKNOWN = "unknown: say why"
"""The reason of an entry that nobody has written one for."""

HEADER = "# Known deviations, kept by `gb conformance update-expectations`. Every entry needs a reason.\n"


class ExpectationsError(GrammarBackendsError, ValueError):
    """An expectations file cannot be used. Its author is at fault."""


@dataclass(frozen=True)
class Expectation:
    """One entry.

    Attributes:
        id: a check's id, or a glob over ids.
        reason: why the checks fail.
        link: where it is reported.
        versions: of the engine, as a specifier; "" for every one.
        backend: whom it is about; "" for whoever the file is used with.
    """

    id: str
    reason: str
    link: str = ""
    versions: str = ""
    backend: str = ""

    def matches(self, id_: str) -> bool:
        """Whether it is about a check."""
        return fnmatch.fnmatchcase(id_, self.id)

    def concerns(self, backend: str, version: str) -> bool:
        """Whether it is about a backend with this version of its engine."""
        if self.backend not in ("", backend):
            return False
        if not self.versions:
            return True
        try:
            return SpecifierSet(self.versions).contains(Version(version), prereleases=True)
        except InvalidVersion:
            return False

    def to_toml(self) -> str:
        """As it stands in a file."""
        fields = {name: value for name, value in vars(self).items() if value}
        return "[[expected]]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in fields.items())


def _toml(text: str) -> str:
    # JSON's escapes are TOML's, but for surrogates (no ASCII) and DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read(path: Path) -> list[Expectation]:
    """The entries of a file.

    Raises:
        ExpectationsError: it cannot be read, or an entry is malformed.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ExpectationsError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # of the syntax, or of UTF-8
        raise ExpectationsError(f"{path}: {error}") from None
    entries = data.pop("expected", [])
    if data or not isinstance(entries, list):
        raise ExpectationsError(
            f"{path} holds something else than [[expected]] tables: {', '.join(data) or 'expected'}"
        )
    return [_entry(entry, f"{path}, entry {number}") for number, entry in enumerate(entries, start=1)]


def _entry(data: Any, where: str) -> Expectation:
    names = Expectation.__dataclass_fields__
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise ExpectationsError(f"{where}: must be a table of texts")
    if unknown := sorted(data.keys() - names.keys()):
        raise ExpectationsError(f"{where}: unknown {', '.join(unknown)}", hint=f"It may have {', '.join(names)}")
    if not data.get("id") or not data.get("reason"):
        raise ExpectationsError(f"{where}: needs an id and a reason")
    try:
        SpecifierSet(data.get("versions", ""))
    except InvalidSpecifier as error:
        raise ExpectationsError(f"{where}: {error}") from None
    return Expectation(**data)


def own_file(spec: BackendSpec) -> Path | None:
    """Where a plugin keeps its expectations: next to its package; None where it has no package."""
    package = spec.factory.partition(":")[0].partition(".")[0]
    try:
        found = importlib.util.find_spec(package)
    except ValueError:  # a module that was made in this process has no spec
        return None
    folders = found.submodule_search_locations if found else None
    return Path(folders[0]) / "expectations.toml" if folders else None


def of_backend(spec: BackendSpec, file: Path | None) -> list[Expectation]:
    """The entries of a file, or without one those that the backend's plugin ships, if it does.

    Raises:
        ExpectationsError: as `read`.
    """
    own = own_file(spec) if file is None else file
    return [] if own is None or (file is None and not own.exists()) else read(own)


def apply(
    entries: Sequence[Expectation], lines: Sequence[Line], backend: str, version: str, *, whole: bool
) -> tuple[list[Line], list[str]]:
    """A backend's lines with what was expected marked so, and what is wrong with the entries, one sentence each.

    `whole` says whether every check of each law and vocabulary that occurs has run: else an entry that no check
    matches may be about one that has not.
    """
    marked = [mark(entries, line, version) for line in lines]
    problems = [problem for _, problem in marked if problem]
    problems += strays(entries, [line.check for line in lines], backend, version, whole=whole)
    return [line for line, _ in marked], problems


def mark(entries: Iterable[Expectation], line: Line, version: str) -> tuple[Line, str | None]:
    """A line, marked if it was expected to fail; and what is wrong with the entry about it."""
    id_ = line.check.id
    entry = next((entry for entry in entries if entry.concerns(line.backend, version) and entry.matches(id_)), None)
    if entry is None:
        return line, None
    if line.failed:
        return replace(line, result=replace(line.result, outcome="expected-fail"), reason=entry.reason), None
    outcome = "is unsupported" if line.result.outcome == "unsupported" else "passes"
    return line, f"{line.backend}: {id_} {outcome}, but is expected to fail ({entry.reason})"


def strays(
    entries: Iterable[Expectation], ran: Sequence[Check], backend: str, version: str, *, whole: bool
) -> list[str]:
    """What is wrong with entries that no check matches, one sentence each; `whole` as for `apply`."""
    found = [_stray(entry, ran, whole=whole) for entry in entries if entry.concerns(backend, version)]
    return [f"{backend}: {problem}" for problem in found if problem]


def _stray(entry: Expectation, ran: Sequence[Check], *, whole: bool) -> str | None:
    """What is wrong with an entry that no check matched; None when checks that did not run could."""
    if any(entry.matches(check.id) for check in ran):
        return None
    others = [check for check in every_check() if entry.matches(check.id)]
    if not others:
        return f"no check is called {entry.id!r}, which is expected to fail ({entry.reason})"
    complete = {(check.law, check.vocabulary) for check in ran}
    if whole and all((check.law, check.vocabulary) in complete for check in others):
        return f"no check matches {entry.id!r}, which is expected to fail ({entry.reason})"
    return None


def updated(
    entries: Sequence[Expectation], lines: Sequence[Line], backend: str, version: str, *, whole: bool
) -> list[Expectation]:
    """The entries as a run without expectations shows them to be needed.

    Entries keep their reasons; those that no longer fail go; checks that fail and have none get one of their own.
    An entry stays as it is when it is about another backend or version, or about checks that did not run.
    """
    ran = [line.check for line in lines]
    failing = {line.check.id for line in lines if line.failed}
    kept, covered = [], set()
    for entry in entries:
        matched = {check.id for check in ran if entry.matches(check.id)}
        if not entry.concerns(backend, version) or (not matched and _stray(entry, ran, whole=whole) is None):
            kept.append(entry)
        elif matched and matched <= failing:
            kept.append(entry)
            covered |= matched
        else:  # too wide by now: one entry for each that still fails
            kept += [replace(entry, id=check) for check in sorted(matched & failing)]
            covered |= matched & failing
    new = sorted(failing - covered)
    return kept + [Expectation(id_, UNKNOWN, backend=backend if _several(entries) else "") for id_ in new]


def _several(entries: Iterable[Expectation]) -> bool:
    return any(entry.backend for entry in entries)


def dumps(entries: Iterable[Expectation]) -> str:
    """A file of these entries."""
    return "\n".join([HEADER, *(entry.to_toml() for entry in entries)])
