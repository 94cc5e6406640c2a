"""What a probe is, and the verdict on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grammar_backends import GrammarOptions
from grammar_backends_conformance.comparison.outcome import CaseResult
from grammar_backends_conformance.corpora.reading import Case, CaseText
from grammar_backends_conformance.oracles import Uncovered, schema_valid

__all__ = ["Probe", "Verdict", "about_schema", "verdict_of"]

Verdict = Literal["enforced", "within policy", "over-constrains", "refuses", "wrong"]
"""What an engine makes of a probe: every text is judged rightly; it refuses valid texts, but only spellings that need
not be allowed; it refuses other valid texts too; it refuses the spec, loudly; or it accepts what is not valid, crashes,
hangs or fails."""

_VERDICTS: dict[str, Verdict] = {"pass": "enforced", "wrong-reject": "over-constrains", "unsupported": "refuses"}


@dataclass(frozen=True)
class Probe:
    """One question to an engine.

    Attributes:
        about: the datum that the answer decides, as a path: "types/string/minLength", "checks/pattern/anchored".
        case: a spec with valid and invalid texts; its id is unique.
    """

    about: str
    case: Case


def about_schema(about: str, schemas: Iterable[Any], values: Sequence[Any], **options: Any) -> Iterator[Probe]:
    """Probes about schemas, whose texts are values with the verdict of the oracle.

    A schema that allows none of the values, or all of them, is no question and is left out.

    Args:
        about: the datum; what follows a "#" only tells probes apart.
        schemas: what to ask about.
        values: `Text` stands for itself, any other value is written as JSON.
        options: those of `GrammarOptions` that are not the default.
    """
    for number, schema in enumerate(schemas):
        tests = tuple(labelled(schema, values, GrammarOptions(**options)))
        if any(test.valid for test in tests) and not all(test.valid for test in tests):
            name = f"{about}-{number}" if "#" in about else f"{about}#{number}"
            yield Probe(about.partition("#")[0], Case(name, "json_schema", schema, tests, options))


class Text(str):
    """A text that is not to be written as JSON, since it is JSON already, or is meant not to be."""

    __slots__ = ()


def labelled(schema: Any, values: Iterable[Any], options: GrammarOptions) -> Iterator[CaseText]:
    """The values as texts, each with whether the schema allows it; without those on which JSON Schema is silent."""
    for value in values:
        text = value if isinstance(value, Text) else written(value, options)
        try:
            yield CaseText(schema_valid(schema, text, options), str(text))
        except Uncovered:
            continue


def written(value: Any, options: GrammarOptions) -> str:
    separators = (",", ":") if options.whitespace == "compact" else None
    return json.dumps(value, ensure_ascii=False, separators=separators)


def verdict_of(probe: Probe, result: CaseResult) -> Verdict:
    """The verdict that an outcome means."""
    if probe.case.kind in ("json_schema", "json_object") and result.outcome == "wrong-reject" and result.failures:
        texts = (probe.case.tests[failure.test].text for failure in result.failures)
        return "over-constrains" if any(map(_is_usual, texts)) else "within policy"
    return _VERDICTS.get(result.outcome, "wrong")


def _is_usual(text: str) -> bool:
    """Whether a JSON text is spelled as it usually is, white space aside: strings may be limited in how they are."""
    bare = _BLANKS.sub(lambda found: found[1] or "", text)
    return bare == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


_BLANKS = re.compile(r'("(?:\\.|[^"\\])*")|\s+')
