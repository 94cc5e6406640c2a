"""What became of one case on one backend: the outcome, its details, and the raw times."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

__all__ = ["OUTCOMES", "CaseResult", "Outcome", "TextFailure"]

Outcome = Literal["pass", "wrong-accept", "wrong-reject", "unsupported", "crash", "timeout", "error"]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""Every outcome, best first as reports list them."""

FAILURE_LIMIT = 20
"""Wrongly judged texts that one case keeps."""


@dataclass(frozen=True)
class TextFailure:
    """One text that was judged wrongly.

    Attributes:
        test: its index in the case.
        position: how many bytes of it were accepted.
        what: what happened there, in words.
    """

    test: int
    position: int
    what: str


@dataclass
class CaseResult:
    """What became of one case on one backend.

    Attributes:
        id: the case's.
        outcome: see `OUTCOMES`.
        detail: why, for every outcome but pass.
        pointer: where in the spec, for a refusal that knows it.
        chosen: the backend that did it, where the choice was automatic.
        failures: the texts that were judged wrongly, at most `FAILURE_LIMIT`.
        first_mask_ms: compile, new grammar and first fill together.
        fills_us, accepts_us: the time of every fill and accept over the tokens of the valid texts.
        seconds: the whole case, as the parent saw it.
    """

    id: str
    outcome: Outcome
    detail: str = ""
    pointer: str | None = None
    chosen: str | None = None
    failures: list[TextFailure] = field(default_factory=list)
    first_mask_ms: float | None = None
    fills_us: list[float] = field(default_factory=list)
    accepts_us: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "", [])}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CaseResult:
        """The inverse of `to_dict`; unknown fields are ignored."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known["failures"] = [TextFailure(**failure) for failure in known.get("failures", [])]
        return cls(**known)
