"""What a law is, what breaking one looks like, and the list of all laws.

A law is one sentence of the contract made executable: a function that works with one backend and one vocabulary (a
`Lab`) and raises `Violation` when the backend breaks it. Modules of this package register theirs with `law`; how
laws are run, isolated and reported lives in `grammar_backends_conformance.suite`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EVERY_VOCABULARY", "LAWS", "SMALL_VOCABULARIES", "Counts", "Law", "Unsupported", "Violation", "law"]

SMALL_VOCABULARIES = ("byte", "adversarial")
EVERY_VOCABULARY = (*SMALL_VOCABULARIES, "tekken", "sentencepiece", "tiktoken", "huggingface", "gguf")
"""For laws whose answers depend on how tokens spell texts."""


@dataclass
class Counts:
    """How much was compared.

    Attributes:
        checks: single comparisons of an answer with what the contract demands.
        states: states of grammars that were looked at.
        masks: whole rows that were compared, bit for bit.
    """

    checks: int = 0
    states: int = 0
    masks: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.checks + other.checks, self.states + other.states, self.masks + other.masks)


class Violation(Exception):  # it is a verdict
    """A backend breaks a law.

    Attributes:
        message: what is wrong, in one sentence.
        expected: what the contract demands.
        got: what the backend did.
        spec: the constraint, as `str(GrammarSpec)` and its text.
        tokens: ids accepted or offered so far.
        token_bytes: the same as bytes.
        step: index of the token at which it showed; None where that means nothing.
        calls: the calls made on the grammar, as lines of Python that reproduce it.
    """

    def __init__(
        self,
        message: str,
        *,
        expected: Any = None,
        got: Any = None,
        spec: str = "",
        tokens: Sequence[int] = (),
        token_bytes: Sequence[bytes] = (),
        step: int | None = None,
        calls: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.got = got
        self.spec = spec
        self.tokens = list(tokens)
        self.token_bytes = list(token_bytes)
        self.step = step
        self.calls = list(calls)


class Unsupported(Exception):  # it is a verdict
    """The backend does not declare what a law is about, and refuses it as it must."""


@dataclass(frozen=True)
class Law:
    """One executable rule.

    Attributes:
        id: stable, ``RULE/claim``: "A1/atomic-accept".
        rule: the rule of the catalogue, "A1".
        profile: "core", or the capability that it is about: "json_schema", "rollback", "structural_tag", ...
        statement: what must hold, in one sentence.
        check: ``check(lab)``, or ``check(lab, sample)`` when `per_sample`; raises `Violation` or `Unsupported`. It
            starts the lab's journal anew.
        per_sample: run once for each sample constraint that the backend declares.
        vocabularies: names of the vocabularies it runs with.
    """

    id: str
    rule: str
    profile: str
    statement: str
    check: Callable[..., None] = field(repr=False)
    per_sample: bool
    vocabularies: tuple[str, ...]


LAWS: dict[str, Law] = {}
"""All laws by id, in the order of the catalogue; filled by importing `grammar_backends_conformance.laws`."""


def law(
    rule: str, claim: str, *, profile: str = "core", vocabularies: Sequence[str] = SMALL_VOCABULARIES
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a law; the first paragraph of its docstring is the statement.

    A parameter named `sample` makes it run once for each sample constraint.
    """

    def register(check: Callable[..., None]) -> Callable[..., None]:
        id_ = f"{rule}/{claim}"
        if id_ in LAWS:
            raise ValueError(f"there are two laws {id_}")
        statement = " ".join((inspect.getdoc(check) or "").partition("\n\n")[0].split())
        if not statement:
            raise ValueError(f"law {id_} has no statement")
        per_sample = "sample" in inspect.signature(check).parameters

        @functools.wraps(check)
        def begun(lab: Any, *arguments: Any) -> None:
            lab.begin()
            try:
                check(lab, *arguments)
            except Exception as error:
                if error is not lab.journal.raised:
                    raise
                # A grammar raised what it may raise at times, where the law leaves it no reason.
                message = f"unexpected {type(error).__name__}: {error}"
                raise lab.violation(message, "success", error) from error

        LAWS[id_] = Law(id_, rule, profile, statement, begun, per_sample, tuple(vocabularies))
        return check

    return register
