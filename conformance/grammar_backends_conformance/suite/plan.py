"""Which checks there are: laws, each with a vocabulary, and with a sample constraint where it wants one.

Ids are stable: ``A1/atomic-accept@byte``, ``A12/mask-agrees@tekken:record-regex``. What samples there are is the
backend's to say, so that a plan comes in two steps: a survey for each vocabulary, then the laws.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from grammar_backends.errors import GrammarBackendsError
from grammar_backends.plugins.host import did_you_mean
from grammar_backends_conformance.laws.check import SURVEY, Check
from grammar_backends_conformance.laws.law import LAWS, SMALL_VOCABULARIES, Law
from grammar_backends_conformance.laws.samples import sample_names
from grammar_backends_conformance.vocabularies import NAMES

__all__ = ["Plan", "PlanError", "every_check", "parse_check", "profiles"]

FULL = "full"

COMMON_VOCABULARIES = (*SMALL_VOCABULARIES, "tekken")
"""What every profile but full runs with: large enough to be real, small enough for a gate."""


class PlanError(GrammarBackendsError, ValueError):
    """A profile, a vocabulary or a check does not exist. The caller is at fault."""


def parse_check(id_: str) -> Check:
    """A check by its id.

    Raises:
        PlanError: there is no such check.
    """
    law, _, rest = id_.rpartition("@")
    vocabulary, _, subject = rest.partition(":")
    check = Check(law, vocabulary, subject or None)
    if check not in every_check():
        known = [check.id for check in every_check()]
        raise PlanError(f"there is no check {id_!r}{did_you_mean(id_, known)}", hint="See gb conformance list")
    return check


def every_check() -> Iterator[Check]:
    """All checks that any backend can meet, in the order of reports."""
    for vocabulary in NAMES:
        yield Check(SURVEY, vocabulary)
        for law in LAWS.values():
            for subject in sample_names() if law.per_sample else (None,):
                yield Check(law.id, vocabulary, subject)


def profiles() -> list[str]:
    """The names of all profiles, core first."""
    return [*dict.fromkeys(["core", FULL, *(law.profile for law in LAWS.values())])]


@dataclass(frozen=True)
class Plan:
    """Which checks are wanted.

    Attributes:
        profile: "core", a capability, or "full" for every law over every vocabulary that it names.
        vocabularies: these, instead of those that the law and the profile name; empty for those.
        only: globs over check ids, of which one must match; empty for all.
    """

    profile: str = "core"
    vocabularies: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.profile not in profiles():
            known = profiles()
            hint = f"Profiles: {', '.join(known)}"
            raise PlanError(f"there is no profile {self.profile!r}{did_you_mean(self.profile, known)}", hint=hint)
        for name in self.vocabularies:
            if name not in NAMES:
                hint = f"It has {', '.join(NAMES)}"
                raise PlanError(f"the suite has no vocabulary {name!r}{did_you_mean(name, NAMES)}", hint=hint)

    @property
    def laws(self) -> list[Law]:
        """The laws of the profile."""
        return [law for law in LAWS.values() if self.profile in (FULL, law.profile)]

    def vocabularies_of(self, law: Law) -> Sequence[str]:
        """With which vocabularies a law runs."""
        if self.vocabularies:
            # A law that holds with both small vocabularies holds with any; one that names others needs those.
            general = set(SMALL_VOCABULARIES) <= set(law.vocabularies)
            return [name for name in self.vocabularies if general or name in law.vocabularies]
        return [name for name in law.vocabularies if self.profile == FULL or name in COMMON_VOCABULARIES]

    @property
    def surveys(self) -> list[Check]:
        """The first checks: one for each vocabulary that has any others."""
        surveys = [Check(SURVEY, name) for name in NAMES]
        return [check for check in surveys if self.checks(check.vocabulary, sample_names())]

    def checks(self, vocabulary: str, samples: Iterable[str]) -> list[Check]:
        """The checks with a vocabulary, once its samples are known; the survey is not among them."""
        names = tuple(samples)
        found = [
            Check(law.id, vocabulary, subject)
            for law in self.laws
            if vocabulary in self.vocabularies_of(law)
            for subject in (names if law.per_sample else (None,))
        ]
        return [check for check in found if self.wants(check.id)]

    def wants(self, id_: str) -> bool:
        """Whether `only` lets a check through."""
        return not self.only or any(fnmatch.fnmatchcase(id_, pattern) for pattern in self.only)
