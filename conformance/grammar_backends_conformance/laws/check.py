"""One check: a law, with a vocabulary, and with a sample constraint where it wants one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from grammar_backends_conformance.laws.law import LAWS

__all__ = ["SURVEY", "Check"]

SURVEY = "samples"
"""Stands for a law in the check that finds out what samples a backend can be judged by."""


@dataclass(frozen=True)
class Check:
    """One line of a report, and the unit of isolation.

    Attributes:
        law: key of `LAWS`, or `SURVEY`.
        vocabulary: a name of the suite's.
        subject: name of a sample constraint, for laws that want one.
    """

    law: str
    vocabulary: str
    subject: str | None = None

    @property
    def id(self) -> str:
        """``LAW@VOCABULARY`` or ``LAW@VOCABULARY:SUBJECT``."""
        return f"{self.law}@{self.vocabulary}" + (f":{self.subject}" if self.subject is not None else "")

    @property
    def rule(self) -> str:
        """The rule that it is about."""
        return LAWS[self.law].rule if self.law in LAWS else ""

    @property
    def statement(self) -> str:
        """What must hold."""
        if self.law == SURVEY:
            return "The backend starts with this vocabulary, and compiles or refuses each sample constraint."
        return LAWS[self.law].statement if self.law in LAWS else ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; `from_dict` reads it back."""
        return {"id": self.id, **asdict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Check:
        """The inverse of `to_dict`."""
        return cls(data["law"], data["vocabulary"], data.get("subject"))
