"""The plain values that a decision is made of: one finding, one candidate's step, the whole trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from grammar_backends.contract import GrammarSpec
from grammar_backends.errors import SpecError, UnsupportedFeature, place
from grammar_backends.selection.cost_model import Cost

__all__ = ["Finding", "Rewrite", "Step", "Trace", "Verdict"]

Verdict = Literal["chosen", "deferred", "refused", "skipped", "not tried"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in a spec that a backend would not enforce, or one reason why it cannot be used.

    Attributes:
        reason: what is wrong, in words.
        pointer: JSON pointer into a schema or tag; "" is the root.
        line, column: 1-based position in a pattern or grammar.
        keyword: the schema keyword or syntax element.
        hint: what to change, where that is known.
    """

    reason: str
    pointer: str | None = None
    line: int | None = None
    column: int | None = None
    keyword: str | None = None
    hint: str | None = None

    @property
    def where(self) -> str:
        """The position as a person would write it; "" when there is none."""
        return place(self.pointer, self.line, self.column)

    def __str__(self) -> str:
        return self.reason + (f" at {self.where}" if self.where else "")

    def refusal(self, message: str, **fields: Any) -> UnsupportedFeature:
        """The error that refuses a spec for this finding, at its place; `fields` as for `UnsupportedFeature`."""
        place = {"pointer": self.pointer, "line": self.line, "column": self.column}
        return UnsupportedFeature(message, **place, keyword=self.keyword, hint=self.hint, **fields)

    @classmethod
    def of(cls, error: SpecError) -> Finding:
        """What an error says."""
        reason = error.message + (f": {error.engine_text}" if error.engine_text else "")
        return cls(reason, error.pointer, error.line, error.column, error.keyword, error.hint)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One place where the schema that an engine gets is another one, with the same meaning (C2.5).

    Attributes:
        keyword: what was rewritten.
        pointer: where, in the schema as it stood then.
        what: what became of it, in words.
    """

    keyword: str
    pointer: str
    what: str

    def __str__(self) -> str:
        return f"{self.keyword} at {self.pointer or 'the root'}: {self.what}"


@dataclass(frozen=True, slots=True)
class Step:
    """What became of one candidate.

    Attributes:
        backend: its name.
        verdict: "chosen"; "deferred" when it enforces the spec, but slowly or too narrowly, so that others come first;
            "refused" for its findings; "skipped" when it cannot be used here at all; "not tried" when another was
            chosen before.
        findings: why, for "deferred", "refused" and "skipped".
        rewrites: where the engine gets another schema, with the same meaning; for "chosen".
        ignored: what the engine does not enforce, since the policy says that it may be ignored; for "chosen".
        cost: what it is predicted to cost, where the policy asks for the quickest.
    """

    backend: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    ignored: tuple[Finding, ...] = ()
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A decision, step by step (C2.1).

    Attributes:
        spec: what was asked for.
        steps: the candidates in the order in which they were considered.
        warnings: engines of versions that were not measured, and what they are judged as (C3).
    """

    spec: GrammarSpec
    steps: tuple[Step, ...] = field(default=())
    warnings: tuple[str, ...] = ()

    @property
    def chosen(self) -> str | None:
        """The backend that was picked, or None."""
        return next((step.backend for step in self.steps if step.verdict == "chosen"), None)

    @property
    def wanted(self) -> Step | None:
        """The first candidate, where it does not get the spec as it is written: its findings say what it would need."""
        first = self.steps[0] if self.steps else None
        return first if first is not None and first.verdict in ("refused", "deferred") else None

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        """Where and what to change for the candidate that is `wanted`: the hints, and else what to do without."""
        findings = self.wanted.findings if self.wanted else ()
        hinted = {finding.where for finding in findings if finding.hint}
        found = [
            (finding.where, finding.hint or f"Leave {finding.keyword} out")
            for finding in findings
            if finding.hint or (finding.keyword and finding.where not in hinted)
        ]
        return tuple(dict.fromkeys(found))

    def __str__(self) -> str:
        lines = [f"{self.spec}: {self.chosen or 'no backend enforces it'}"]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        for step in self.steps:
            lines.append(f"  {step.backend}: {step.verdict}" + (f" ({step.cost})" if step.cost else ""))
            lines += [f"    {finding}" for finding in step.findings]
            lines += [f"    rewritten: {rewrite}" for rewrite in step.rewrites]
            lines += [f"    ignored: {finding}" for finding in step.ignored]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "kind": self.spec.kind.value,
            "key": self.spec.key,
            "chosen": self.chosen,
            "steps": [asdict(step) for step in self.steps],
            "warnings": list(self.warnings),
            "first_choice": self._first_choice(),
        }

    def _first_choice(self) -> dict[str, Any] | None:
        if self.wanted is None:
            return None
        changes = [{"where": where, "change": change} for where, change in self.changes]
        return {"backend": self.wanted.backend, "changes": changes}


def first_finding(steps: Sequence[Step]) -> Finding | None:
    """The first candidate's first reason: the best thing to tell a client."""
    return next((finding for step in steps for finding in step.findings), None)
