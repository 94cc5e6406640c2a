"""What a run of the suite leaves behind: a header, a line for each check, a footer; and how a file of it is read.

The schema is versioned, and the footer comes last and counts the lines: a file that was cut off is told from a whole
one, and a reader refuses what it does not know rather than misread it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grammar_backends.cli.support import printable
from grammar_backends.errors import GrammarBackendsError
from grammar_backends_conformance.laws.check import Check
from grammar_backends_conformance.laws.law import Counts
from grammar_backends_conformance.reports.outcome import FAILING, OUTCOMES, CheckResult

__all__ = ["SCHEMA_VERSION", "Line", "ReportError", "SuiteReport"]

SCHEMA_VERSION = 1


class ReportError(GrammarBackendsError, ValueError):
    """A report file cannot be used: cut off, of another version, or no report at all."""


@dataclass(frozen=True)
class Line:
    """One check of one backend.

    Attributes:
        backend: its name.
        check: what was checked.
        rule, statement: of the law, as they were when it ran.
        result: what became of it.
        reason: why it was expected to fail, where it was.
    """

    backend: str
    check: Check
    rule: str
    statement: str
    result: CheckResult
    reason: str = ""

    @classmethod
    def of(cls, backend: str, check: Check, result: CheckResult) -> Line:
        """A result, with what the law says now."""
        return cls(backend, check, check.rule, check.statement, result)

    @property
    def failed(self) -> bool:
        """Whether it makes a run fail."""
        return self.result.outcome in FAILING

    @property
    def command(self) -> str:
        """What reproduces it."""
        return f"gb conformance repro '{self.check.id}' --backend {self.backend}"

    def __str__(self) -> str:
        """Everything about it: what must hold, what happened, and the command that does it again."""
        law = f"{self.rule}: {self.statement}" if self.rule else self.statement
        facts = [("law", law), ("found", self.result.detail)]
        facts += self.result.evidence.facts if self.result.evidence else []
        facts += [("reproduce", self.command)]
        head = f"{self.result.outcome.upper()} {self.backend} {self.check.id}"
        return "\n".join([head, *(f"  {name:<10} {_indented(value)}" for name, value in facts if value)])

    @property
    def in_full(self) -> str:
        """The same, with the calls that lead to it, or the traceback."""
        calls = self.result.evidence.calls if self.result.evidence else []
        return "\n\n".join(filter(None, [str(self), "\n".join(calls), self.result.trace]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        about = {"backend": self.backend, **self.check.to_dict(), "rule": self.rule, "statement": self.statement}
        more = {"reason": self.reason} if self.reason else {}
        return {**about, **self.result.to_dict(), **more}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Line:
        """The inverse of `to_dict`."""
        check = Check.from_dict(data)
        result = CheckResult.from_dict(data)
        return cls(data["backend"], check, data["rule"], data["statement"], result, data.get("reason", ""))


@dataclass(frozen=True)
class SuiteReport:
    """A whole run, of one backend or several.

    Attributes:
        settings: profile, vocabularies, globs, limits.
        environment: see `running.environment.describe_environment`.
        backends: by name: its engine's version, its vocabularies as it was started with them, and the implementations
            that its masks were applied by.
        unavailable: by name: why a backend could not be judged at all.
        lines: the checks, in the order of the plan.
        problems: what is wrong with the expectations, one sentence each.
        complete: False after an interruption.
    """

    settings: dict[str, Any]
    environment: dict[str, Any]
    backends: dict[str, dict[str, Any]]
    unavailable: dict[str, str]
    lines: list[Line]
    problems: list[str] = field(default_factory=list)
    complete: bool = True

    @property
    def ok(self) -> bool:
        """Whether everything ran, and nothing failed that was not expected to."""
        return self.complete and bool(self.lines) and not (self.failures or self.problems or self.unavailable)

    @property
    def failures(self) -> list[Line]:
        """The lines that make the run fail."""
        return [line for line in self.lines if line.failed]

    @property
    def outcomes(self) -> dict[str, Counter[str]]:
        """How often each outcome occurred, by backend."""
        counted: dict[str, Counter[str]] = {name: Counter() for name in self.backends}
        for line in self.lines:
            counted.setdefault(line.backend, Counter())[line.result.outcome] += 1
        return counted

    def counts(self, backend: str | None = None) -> Counts:
        """How much was compared, by one backend or all together."""
        total = Counts()
        for line in self.lines:
            if backend in (None, line.backend):
                total += line.result.counts
        return total

    def seconds(self, backend: str) -> float:
        """The time of a backend's checks together."""
        return sum(line.result.seconds for line in self.lines if line.backend == backend)

    @property
    def summary(self) -> str:
        """The verdict in one sentence, with how much was compared."""
        counts = self.counts()
        failing = len(self.failures)
        verdict = f"{failing} of {len(self.lines)} checks fail" if failing else f"{len(self.lines)} checks, none fails"
        parts = [
            f"{', '.join(self.backends) or 'no backend'}, profile {self.settings['profile']}: {verdict}",
            f"{counts.checks:,} comparisons, {counts.states:,} states, {counts.masks:,} masks" + self._applied_by,
        ]
        if self.problems:
            parts.append(f"{len(self.problems)} expectations do not hold")
        if not self.complete:
            parts.append("interrupted: these are the results so far")
        return "; ".join(parts)

    @property
    def _applied_by(self) -> str:
        names = sorted({name for facts in self.backends.values() for name in facts.get("applied_by", ())})
        return f", applied by {', '.join(names)}" if names else ""

    def __str__(self) -> str:
        unavailable = [f"{name} could not be judged: {reason}" for name, reason in self.unavailable.items()]
        return "\n\n".join([self.summary, *map(str, self.failures), *unavailable, *self.problems])

    @property
    def header(self) -> dict[str, Any]:
        """All but the lines and what is counted."""
        return {
            "settings": self.settings,
            "environment": self.environment,
            "backends": self.backends,
            "unavailable": self.unavailable,
        }

    @property
    def footer(self) -> dict[str, Any]:
        """What is counted."""
        return {
            "checks": len(self.lines),
            "outcomes": {name: {key: by[key] for key in OUTCOMES if by[key]} for name, by in self.outcomes.items()},
            "compared": vars(self.counts()),
            "problems": self.problems,
            "ok": self.ok,
            "complete": self.complete,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        lines = [line.to_dict() for line in self.lines]
        return {"schema_version": SCHEMA_VERSION, "header": self.header, "checks": lines, "footer": self.footer}

    def dumps(self) -> str:
        """As a JSON document with one line for each check and the footer at its end."""
        lines = ",\n".join(json.dumps(line.to_dict()) for line in self.lines)
        head = f'{{"schema_version": {SCHEMA_VERSION},\n"header": {json.dumps(self.header)},\n'
        return f'{head}"checks": [\n{lines}\n],\n"footer": {json.dumps(self.footer)}}}\n'

    @classmethod
    def read(cls, path: Path) -> SuiteReport:
        """A report file.

        Raises:
            ReportError: it cannot be read, is cut off, or is none.
        """
        try:
            return cls.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ReportError(f"cannot read {path}: {error.strerror}") from None
        except (ReportError, UnicodeDecodeError) as error:
            raise ReportError(f"{path}: {error}") from None

    @classmethod
    def loads(cls, text: str) -> SuiteReport:
        """The inverse of `dumps`.

        Raises:
            ReportError: it is cut off, or no report.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            what = "cut off" if text.startswith('{"schema_version"') else "not JSON"
            raise ReportError(f"the report is {what}: {error}") from None
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ReportError(f"the report has schema version {version!r}, this reads {SCHEMA_VERSION}")
        try:
            report = cls._from_dict(data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ReportError(f"not a report: {type(error).__name__}: {error}") from None
        if data["footer"]["checks"] != len(report.lines):
            raise ReportError(f"the report has {len(report.lines)} of its {data['footer']['checks']} checks")
        return report

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> SuiteReport:
        lines = [Line.from_dict(line) for line in data["checks"]]
        footer = data["footer"]
        return cls(**data["header"], lines=lines, problems=footer["problems"], complete=footer["complete"])

    @classmethod
    def merged(cls, reports: Sequence[SuiteReport]) -> SuiteReport:
        """Reports of different backends as one, under the first one's settings and environment.

        Raises:
            ReportError: two of them hold the same backend.
        """
        names = Counter(name for report in reports for name in {*report.backends, *report.unavailable})
        twice = [name for name, times in names.items() if times > 1]
        if twice:
            raise ReportError(f"two reports hold the same backend: {', '.join(twice)}")
        return cls(
            settings=reports[0].settings,
            environment=reports[0].environment,
            backends=_joined(report.backends for report in reports),
            unavailable=_joined(report.unavailable for report in reports),
            lines=[line for report in reports for line in report.lines],
            problems=[problem for report in reports for problem in report.problems],
            complete=all(report.complete for report in reports),
        )


def _indented(value: str) -> str:
    """A value of several lines, such as a grammar, as these lines: a line's end is not a written `\\n`."""
    return "\n".join(map(printable, value.split("\n"))).replace("\n", "\n" + " " * 13)


def _joined(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}
