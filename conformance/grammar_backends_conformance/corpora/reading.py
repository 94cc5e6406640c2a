"""Cases to run: what they are and how they are read, so that one corrupt line costs one case.

A line is ``{"id": str, "kind": str, "spec": ..., "options"?: {...}, "tests": [{"valid": bool, "data": any} |
{"valid": bool, "text": str}], "source"?: str}``; other members are for readers of the file. MaskBench and the
JSON-Schema-Test-Suite are read too (see `foreign`).
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from grammar_backends_conformance.corpora.foreign import lines_of, why_left_out

if TYPE_CHECKING:
    from grammar_backends import GrammarSpec

__all__ = ["SUITES", "Case", "CaseText", "Corpus", "case_spec", "read_corpus", "read_suite"]

SUITES = ("smoke", "full")

KINDS = ("json_schema", "json_object", "regex", "choice", "grammar", "structural_tag")
OPTIONS = ("syntax", "whitespace", "max_whitespace", "additional_properties", "json_object_only")


@dataclass(frozen=True)
class CaseText:
    """One text, and whether the spec allows it."""

    valid: bool
    text: str


@dataclass(frozen=True)
class Case:
    """One spec with its texts.

    Attributes:
        id: unique in its corpus.
        kind: one of `KINDS`.
        spec: the content, as the constructor of that kind takes it.
        options: what changes the meaning: `OPTIONS`.
        tests: the texts to judge.
        source: where it comes from.
    """

    id: str
    kind: str
    spec: Any
    tests: tuple[CaseText, ...]
    options: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def digest(self) -> str:
        """Names the content, so that runs of different corpora are not mistaken for each other."""
        tests = [[test.valid, test.text] for test in self.tests]
        content = json.dumps([self.kind, self.spec, self.options, tests], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """As a corpus line that `parse_case` reads back."""
        tests = [{"valid": test.valid, "text": test.text} for test in self.tests]
        return {"id": self.id, "kind": self.kind, "spec": self.spec, "options": self.options, "tests": tests}


@dataclass(frozen=True)
class Corpus:
    """Cases, and what was wrong with the rest.

    Attributes:
        name: what reports call it.
        cases: those that can run.
        problems: one line for each corrupt line, ``file:line: reason``.
        notices: one line for each thing that was put right.
    """

    name: str
    cases: tuple[Case, ...]
    problems: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


class LineError(ValueError):
    """A corpus line cannot be used; the message says why."""


def read_suite(name: str) -> Corpus:
    """A corpus of this distribution: "smoke", a first impression of every kind, or "full", all cases there are."""
    folder = importlib.resources.files("grammar_backends_conformance") / "cases"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".jsonl")), key=lambda file: file.name)
    chosen = [file for file in files if name in ("full", file.name.removesuffix(".jsonl"))]
    return _collect(name, (entry for file in chosen for entry in _lines(file.name, file.read_bytes())))


def read_corpus(path: Path) -> Corpus:
    """A corpus file, or all of a folder: JSON lines in `*.jsonl`, one document in each `*.json`.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_dir():
        return _collect(str(path), _file(path, str(path), path.stem))
    files = sorted(file for file in path.rglob("*") if file.suffix in (".json", ".jsonl") and file.is_file())
    names = [file.relative_to(path) for file in files]
    entries = (
        entry
        for file, name in zip(files, names, strict=True)
        for entry in _file(file, str(name), name.with_suffix("").as_posix())
    )
    return _collect(str(path), entries)


def read_lines(name: str, lines: Iterable[bytes]) -> Corpus:
    """A corpus from its lines; blank ones are skipped."""
    return _collect(name, _lines(name, b"\n".join(lines)))


_Entry: TypeAlias = "tuple[str, Any]"
"""Where something stands, and what: a decoded line, or the `LineError` that it is."""


def _file(file: Path, name: str, id_: str) -> Iterator[_Entry]:
    data = file.read_bytes()
    return _document(name, id_, data) if file.suffix == ".json" else _lines(name, data)


def _lines(name: str, data: bytes) -> Iterator[_Entry]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield from ((f"{name}:{number}", entry) for entry in _decoded(line, f"{name}:{number}"))


def _document(name: str, id_: str, data: bytes) -> Iterator[_Entry]:
    return ((f"{name}#{index}", entry) for index, entry in enumerate(_decoded(data, id_)))


def _decoded(data: bytes, id_: str) -> list[Any]:
    try:
        return list(lines_of(_parse_json(data), id_))
    except LineError as error:
        return [error]


def _collect(name: str, entries: Iterable[_Entry]) -> Corpus:
    cases: dict[str, Case] = {}
    problems: list[str] = []
    notices: list[str] = []
    for where, entry in entries:
        left_out = why_left_out(entry)
        if left_out:
            notices.append(f"{where}: left out: {left_out}")
            continue
        try:
            case = parse_case(entry)
        except LineError as error:
            problems.append(f"{where}: {error}")
            continue
        unique = _unique(case.id, cases)
        if unique != case.id:
            notices.append(f"{where}: the id {case.id!r} is taken, this case runs as {unique!r}")
        cases[unique] = replace(case, id=unique)
    return Corpus(name, tuple(cases.values()), tuple(problems), tuple(notices))


def _unique(id_: str, taken: dict[str, Case]) -> str:
    number, unique = 1, id_
    while unique in taken:
        number += 1
        unique = f"{id_}#{number}"
    return unique


def _parse_json(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise LineError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise LineError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise LineError("nested too deep") from None
    except ValueError as error:
        raise LineError(f"not JSON: {error}") from None


def parse_case(line: Any) -> Case:
    """One case from a decoded line.

    Raises:
        LineError: it is not a case.
    """
    if isinstance(line, LineError):
        raise line
    if not isinstance(line, dict):
        raise LineError("not an object")
    id_, kind, options, tests = line.get("id"), line.get("kind"), line.get("options") or {}, line.get("tests")
    if not isinstance(id_, str) or not id_:
        raise LineError('"id" must be a text that is not empty')
    if kind not in KINDS:
        raise LineError(f'"kind" must be one of {", ".join(KINDS)}, not {kind!r}')
    if "spec" not in line and kind != "json_object":
        raise LineError('"spec" is missing')
    if not isinstance(options, dict) or not options.keys() <= set(OPTIONS):
        raise LineError(f'"options" must be an object with {", ".join(OPTIONS)}, not {options!r}')
    if not isinstance(tests, list) or not tests:
        raise LineError('"tests" must be a list that is not empty')
    parsed = tuple(_parse_test(index, test) for index, test in enumerate(tests))
    return Case(id_, kind, line.get("spec"), parsed, options, str(line.get("source", "")))


def _parse_test(index: int, test: Any) -> CaseText:
    where = f"test {index}"
    if not isinstance(test, dict) or not isinstance(test.get("valid"), bool):
        raise LineError(f'{where} must be an object with a boolean "valid"')
    if ("data" in test) == ("text" in test):
        raise LineError(f'{where} must have either "data" or "text"')
    text = test["text"] if "text" in test else json.dumps(test["data"], ensure_ascii=False)
    if not isinstance(text, str):
        raise LineError(f'{where}: "text" must be a text')
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LineError(f"{where} has a lone surrogate at character {error.start}") from None
    return CaseText(test["valid"], text)


def case_spec(case: Case) -> GrammarSpec:
    """The spec of a case.

    Raises:
        SpecError: no such spec can be made.
    """
    from grammar_backends import GrammarOptions, GrammarSpec  # lazy: reading a corpus needs no numpy

    settings = {name: value for name, value in case.options.items() if name != "syntax"}
    options = GrammarOptions(**settings)
    if case.kind == "json_object":
        return GrammarSpec.json_object(options=options)
    if case.kind == "grammar":
        return GrammarSpec.grammar(case.spec, case.options.get("syntax", "auto"), options=options)
    make = getattr(GrammarSpec, case.kind)
    spec: GrammarSpec = make(case.spec, options=options)
    return spec
