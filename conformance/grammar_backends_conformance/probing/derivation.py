"""From verdicts to a support table: what is enforced is listed, the rest is refused by the mildest setting that does.

The steps are those of a table: keywords by type, formats, what asserts nothing, combinators and their siblings, named
checks, and last pairs of keywords that break one another. Each asks only the probes about it, and of these only those
that the table, as far as it stands, would let pass. A probe that is not enforced and still passes at the end takes the
keyword that it is about with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grammar_backends import GrammarOptions
from grammar_backends.errors import SpecError
from grammar_backends.selection.schema import SchemaWalk, walk
from grammar_backends.selection.support import SchemaSupport
from grammar_backends_conformance.corpora.reading import case_spec
from grammar_backends_conformance.probing.checks import ALWAYS, CHOICES, LADDERS, Choice
from grammar_backends_conformance.probing.keywords import FRAGMENTS
from grammar_backends_conformance.probing.probe import Probe, Verdict
from grammar_backends_conformance.probing.probes import combinations, single_probes

__all__ = ["DECLARED", "Derived", "askable", "derive", "is_enforced"]

Table = dict[str, Any]

DECLARED = ("engine", "measured", "versions", "depth", "costs")
"""What is not derived. How slow is too slow is for people to say, and time is no measure that comes out the same twice:
`costs`, and the nesting beyond which an engine takes too long, are kept as they are declared."""


def is_enforced(verdict: Verdict) -> bool:
    """Whether a spec with this verdict may be given to the engine."""
    return verdict in ("enforced", "within policy")


@dataclass
class Derived:
    """A table, and how it fares.

    Attributes:
        table: as it is to be written.
        unexplained: probes that no check accounts for, so that a keyword was left out for them.
        overcautious: probes that the engine enforces and the table refuses.
    """

    table: Table
    unexplained: list[str] = field(default_factory=list)
    overcautious: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Answer:
    """A probe's answer, with its schema as the front end reads it."""

    probe: Probe
    verdict: Verdict
    sites: SchemaWalk
    options: GrammarOptions

    @property
    def good(self) -> bool:
        return is_enforced(self.verdict)

    @property
    def harmful(self) -> bool:
        """Whether the engine gets it wrong without a word."""
        return self.verdict in ("wrong", "over-constrains")


def derive(verdicts: Mapping[str, Verdict], probes: Iterable[Probe], declared: Table) -> Derived:
    """The table that the verdicts demand; the same for the same verdicts, byte for byte.

    Args:
        verdicts: by the id of a probe's case; probes that are not in it were not asked.
        probes: all of them.
        declared: `DECLARED`, of which `depth` and `costs` may be absent.
    """
    answers = [answer for probe in probes if (answer := _answer(probe, verdicts)) is not None]
    derivation = _Derivation(answers, declared)
    derivation.run()
    return derivation.result


def askable(verdicts: Mapping[str, Verdict]) -> list[Probe]:
    """The combinations whose keywords are all enforced by themselves, so that it matters whether they are together."""
    answers = [answer for probe in single_probes() if (answer := _answer(probe, verdicts)) is not None]
    derivation = _Derivation(answers, {"engine": "", "measured": "", "versions": ""})
    support = _support(derivation.singles())
    asked: dict[str, Verdict] = {probe.case.id: "enforced" for probe in combinations()}
    return [answer.probe for probe in combinations() if (answer := _answer(probe, asked)) and _passes(support, answer)]


def _answer(probe: Probe, verdicts: Mapping[str, Verdict]) -> _Answer | None:
    verdict = verdicts.get(probe.case.id)
    if verdict is None or probe.case.kind != "json_schema":
        return None
    try:
        sites = walk(probe.case.spec)
    except SpecError:
        return None  # the front end refuses it, whatever the engine
    return _Answer(probe, verdict, sites, case_spec(probe.case).options)


MAX_ROUNDS = 3

_LISTED = frozenset(keyword for keywords in FRAGMENTS.values() for keyword in keywords)


class _Derivation:
    def __init__(self, answers: Sequence[_Answer], declared: Table) -> None:
        self._answers = answers
        self._about: dict[str, list[_Answer]] = {}
        for answer in answers:
            self._about.setdefault(answer.probe.about, []).append(answer)
        self.table: Table = {
            "engine": declared["engine"],
            "measured": declared["measured"],
            "versions": declared["versions"],
            "types": {},
            "combinators": {},
            "formats": [],
            "unknown_formats": False,
            "noops": [],
            "checks": {},
            **({"costs": declared["costs"]} if declared.get("costs") else {}),
        }
        self.result = Derived(self.table)
        self._declared_depth: int | None = declared.get("depth")

    def singles(self) -> Table:
        """The table as far as keywords by themselves decide it: everything goes with everything."""
        self._formats()
        self._types()
        self._noops()
        self._combinators()
        return {**self.table, "combinators": {name: ["*"] for name in self.table["combinators"]}}

    def run(self) -> None:
        everything = self.singles()
        for name in self.table["combinators"]:
            self.table["combinators"][name] = self._siblings(name, everything)
        for check in LADDERS:
            self._check(check)
        self._limit_depth()
        self._pairs()
        self._leave_out()
        self.table["checks"] = dict(sorted(self.table["checks"].items()))
        support = _support(self.table)
        self.result.overcautious = [a.probe.case.id for a in self._answers if a.good and not _passes(support, a)]

    # -- what is listed ---------------------------------------------------------------------------------------

    def _asked(self, about: str) -> list[_Answer]:
        return self._about.get(about, [])

    def _below(self, about: str) -> dict[str, list[_Answer]]:
        """The answers about each part of a datum."""
        found: dict[str, list[_Answer]] = {}
        for path, answers in self._about.items():
            if path.startswith(f"{about}/"):
                found.setdefault(path[len(about) + 1 :].partition("/")[0], []).extend(answers)
        return found

    def _enforced(self, about: str) -> list[str]:
        return sorted(part for part, answers in self._below(about).items() if all(answer.good for answer in answers))

    def _formats(self) -> None:
        self.table["formats"] = self._enforced("formats")
        self.table["unknown_formats"] = all(answer.good for answer in self._asked("unknown_formats"))

    def _types(self) -> None:
        types = {
            name: self._enforced(f"types/{name}") for name in ("any", "string", "integer", "number", "array", "object")
        }
        if self.table["formats"]:
            types["string"] = sorted((*types["string"], "format"))
        self.table["types"] = types

    def _noops(self) -> None:
        self.table["noops"] = self._enforced("noops")

    def _combinators(self) -> None:
        for name in sorted(self._below("combinators")):
            alone = self._asked(f"combinators/{name}")
            if alone and all(answer.good for answer in alone):
                self.table["combinators"][name] = []

    def _siblings(self, combinator: str, everything: Table) -> list[str]:
        """What may stand beside a combinator: judged by the probes whose keywords are all enforced by themselves."""
        support = _support(everything)
        asked = {
            sibling: passing
            for sibling, answers in self._below(f"combinators/{combinator}").items()
            if (passing := [answer for answer in answers if _passes(support, answer)])
        }
        allowed = sorted(
            sibling
            for sibling, answers in asked.items()
            if any(answer.good for answer in answers) and not any(answer.harmful for answer in answers)
        )
        return ["*"] if allowed and len(allowed) == len(asked) else allowed

    # -- named checks -----------------------------------------------------------------------------------------

    def _check(self, check: str) -> None:
        if self._is_listed(ALWAYS.get(check, "")):
            self.table["checks"][check] = {}
        for fault, rungs in LADDERS.get(check, {}).items():
            rung = self._needed(check, rungs, self._asked(f"checks/{check}" + (f"/{fault}" if fault else "")))
            if rung is not None:
                self.table["checks"][check] = {**self.table["checks"].get(check, {}), **rung}
        for choice in CHOICES.get(check, ()) if check not in ALWAYS or self._is_listed(ALWAYS[check]) else ():
            chosen = self._chosen(check, choice)
            if chosen is not None:
                self.table["checks"][check] = {**self.table["checks"].get(check, {}), choice.setting: chosen}

    def _is_listed(self, keyword: str) -> bool:
        table = self.table
        return keyword in table["combinators"] or any(keyword in keywords for keywords in table["types"].values())

    def _needed(
        self, check: str, rungs: Sequence[Mapping[str, Any]], answers: Sequence[_Answer]
    ) -> Mapping[str, Any] | None:
        """The mildest setting that refuses what the engine gets wrong, and what it refuses if that costs nothing."""
        bad = self._passing_bad(self.table, answers)
        if not bad:
            return None
        harmful = [answer for answer in bad if answer.harmful]
        mild = next(
            (rung for rung in rungs if not self._passing_bad(self._with_check(check, rung), harmful)), rungs[-1]
        )
        best, left = (mild, len(self._passing_bad(self._with_check(check, mild), bad))) if harmful else (None, len(bad))
        for rung in rungs[rungs.index(mild) :]:
            table = self._with_check(check, rung)
            passing = len(self._passing_bad(table, bad))
            if passing < left and self._loses_nothing(
                check, self._with_check(check, best) if best else self.table, table
            ):
                best, left = rung, passing
        return best

    def _with_check(self, check: str, settings: Mapping[str, Any]) -> Table:
        checks = self.table["checks"]
        return {**self.table, "checks": {**checks, check: {**checks.get(check, {}), **settings}}}

    def _loses_nothing(self, check: str, table: Table, stricter: Table) -> bool:
        before, after = _support(table), _support(stricter)
        asked = [answer for answers in self._below(f"checks/{check}").values() for answer in answers]
        asked += self._asked(f"checks/{check}")
        return not any(answer.good and _passes(before, answer) and not _passes(after, answer) for answer in asked)

    def _chosen(self, check: str, choice: Choice) -> list[str] | None:
        """A setting that is a set of keywords; None where it makes no difference."""
        asked = self._below(f"checks/{check}/{choice.setting}")
        bad = {keyword for keyword in choice.keywords if self._passing_bad(self.table, asked.get(keyword, []))}
        if not bad and not (choice.allowing and check in ALWAYS):
            return None
        if not choice.allowing:
            return sorted(bad)
        return [key for key in choice.keywords if key not in bad and (choice.by_itself or self._is_listed(key))]

    def _passing_bad(self, table: Table, answers: Iterable[_Answer]) -> list[_Answer]:
        bad = [answer for answer in answers if not answer.good]
        support = _support(table) if bad else None
        return [answer for answer in bad if support is not None and _passes(support, answer)]

    def _limit_depth(self) -> None:
        checks, declared = self.table["checks"], self._declared_depth
        if declared is not None:
            checks["depth"] = {"most": min(declared, checks.get("depth", {"most": declared})["most"])}

    # -- what is left -----------------------------------------------------------------------------------------

    def _pairs(self) -> None:
        """What breaks beside what, although each is enforced alone and no check accounts for it."""
        support = _support(self.table)
        beside: dict[str, list[str]] = {}
        for about, answers in sorted(self._about.items()):
            kind, _, rest = about.partition("/")
            passing = [answer for answer in answers if _passes(support, answer)] if kind == "pairs" else []
            if passing and (any(answer.harmful for answer in passing) or not any(answer.good for answer in passing)):
                _, first, second = rest.split("/")
                beside.setdefault(first, []).append(second)
        if beside:
            self.table["checks"]["keywords-beside"] = {key: sorted({*others}) for key, others in sorted(beside.items())}

    def _leave_out(self) -> None:
        """Take away keywords until nothing passes that is harmful."""
        for _ in range(MAX_ROUNDS):
            bad = [answer for answer in self._passing_bad(self.table, self._answers) if answer.harmful]
            if not bad:
                return
            for answer in bad:
                self.result.unexplained.append(answer.probe.case.id)
                self._take_away(answer)

    def _take_away(self, answer: _Answer) -> None:
        """Unlist what a probe is about: its combinator, or else every keyword that it uses."""
        table = self.table
        used = {keyword for site in answer.sites for keyword in _keywords(site.schema)}
        kind, _, rest = answer.probe.about.partition("/")
        if kind == "combinators":
            used = {rest.partition("/")[0]}
        used &= {*_LISTED, *table["combinators"]} - {"type"} or {"type"}
        table["types"] = {name: [key for key in keys if key not in used] for name, keys in table["types"].items()}
        table["combinators"] = {name: keys for name, keys in table["combinators"].items() if name not in used}
        table["noops"] = [keyword for keyword in table["noops"] if keyword not in used]


def _keywords(schema: Any) -> Iterable[str]:
    return schema if isinstance(schema, dict) else ()


def _support(table: Table) -> SchemaSupport:
    return SchemaSupport.from_mapping(table)


def _passes(support: SchemaSupport, answer: _Answer) -> bool:
    return not support.findings(answer.sites, answer.options)
