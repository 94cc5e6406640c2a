"""What became of one check: the outcome, how much was compared, and how a law was broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from grammar_backends_conformance.laws.law import Counts, Violation

__all__ = ["FAILING", "OUTCOMES", "CheckResult", "Evidence", "Outcome"]

Outcome = Literal["pass", "expected-fail", "unsupported", "fail", "error", "crash", "timeout"]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""Every outcome, as reports list them.

``pass``: the law holds. ``expected-fail``: it does not, as an expectations file says. ``unsupported``: the backend
does not declare what the law is about, and refuses it as it must. ``fail``: the law is broken. ``error``: the check
could not decide, since something raised what it must not. ``crash``, ``timeout``: the process died, or was killed.
"""

FAILING: tuple[Outcome, ...] = ("fail", "error", "crash", "timeout")

TOKENS_SHOWN = 64
"""Tokens of a failing check that are written out for people, the last ones."""

VALUE_LIMIT = 2000
"""Characters that a report keeps of one value."""


@dataclass(frozen=True)
class Evidence:
    """A `Violation` as text, so that it can leave its process.

    Attributes:
        expected, got: as Python writes them.
        spec: the constraint.
        tokens: ids accepted or offered.
        token_bytes: the same as Python's bytes literals.
        step: index of the token at which it showed.
        calls: lines of Python that reproduce it.
    """

    expected: str
    got: str
    spec: str
    tokens: list[int]
    token_bytes: list[str]
    step: int | None
    calls: list[str]

    @classmethod
    def of(cls, violation: Violation) -> Evidence:
        """What a violation carries."""
        return cls(
            expected=_shown(violation.expected),
            got=_shown(violation.got),
            spec=violation.spec,
            tokens=[int(id_) for id_ in violation.tokens],
            token_bytes=[repr(bytes(token)) for token in violation.token_bytes],
            step=violation.step,
            calls=violation.calls,
        )

    @property
    def facts(self) -> list[tuple[str, str]]:
        """By name, as text."""
        pairs = [f"{id_} {data}" for id_, data in zip(self.tokens, self.token_bytes, strict=True)]
        before = f"{len(pairs) - TOKENS_SHOWN} more, then " if len(pairs) > TOKENS_SHOWN else ""
        return [
            ("grammar", self.spec),
            ("tokens", before + ", ".join(pairs[-TOKENS_SHOWN:])),
            ("step", "" if self.step is None else str(self.step)),
            ("expected", self.expected),
            ("got", self.got),
        ]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= VALUE_LIMIT else text[:VALUE_LIMIT] + "…"


@dataclass
class CheckResult:
    """What became of one check.

    Attributes:
        id: the check's.
        outcome: see `OUTCOMES`.
        detail: why, in one sentence, for every outcome but pass.
        evidence: how the law was broken.
        counts: how much was compared.
        trace: the traceback of an error.
        samples: names of the sample constraints, of a survey.
        seconds: wall time, as the parent saw it.
    """

    id: str
    outcome: Outcome
    detail: str = ""
    evidence: Evidence | None = None
    counts: Counts = field(default_factory=Counts)
    trace: str = ""
    samples: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "", [])}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CheckResult:
        """The inverse of `to_dict`; unknown fields are ignored."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known["counts"] = Counts(**known.get("counts", {}))
        known["evidence"] = Evidence(**known["evidence"]) if "evidence" in known else None
        return cls(**known)
