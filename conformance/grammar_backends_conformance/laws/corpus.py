"""Data cases as laws: texts that a spec allows and texts that it does not, and the truth of masks on the way.

Each case of the suite is a law ``case/ID`` in the profile of its kind, so that it can be run, reported and expected
to fail by itself; `check_case` judges any other case.
"""

from __future__ import annotations

from collections.abc import Sequence

from grammar_backends.contract import GrammarSpec
from grammar_backends.errors import SpecError, UnsupportedFeature, VocabularyError
from grammar_backends_conformance.corpora.reading import Case, case_spec, read_suite
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import Unsupported, law
from grammar_backends_conformance.laws.model import NOWHERE, Truth, truth_of_spec

__all__ = ["SUITES", "check_case"]

SUITES = {
    "regex": ("regex",),
    "choice": ("choice",),
    "json_schema": (
        *("json_arrays", "json_combinations", "json_formats", "json_numbers", "json_objects", "json_options"),
        *("json_references", "json_strings", "json_types"),
    ),
    "json_object": ("json_object",),
    "grammar-ebnf": ("ebnf",),
    "grammar-gbnf": ("gbnf",),
    "grammar-lark": ("lark",),
    "structural_tag": ("structural_tag",),
}
"""The files of cases, by the profile that they belong to."""

TRUE_MASKS = 6
"""Places of each text at which the row is compared with the oracle."""


def check_case(lab: Lab, case: Case) -> None:
    """Judge one case.

    Every valid text must be allowed and accepted token by token, with a stop token at its end; every other one must
    be refused on the way. Where an oracle knows the language, rows are compared with it.

    Raises:
        Violation: a text is judged wrongly, or a row is not the oracle's.
        Unsupported: the backend says that it would not enforce the spec.
    """
    lab.begin()
    valid = any(test.valid for test in case.tests)
    try:
        spec = case_spec(case)
    except SpecError as error:
        lab.equal(valid, False, f"{case.id}: no spec can be made of it, and yet it has valid texts: {error}")
        return
    refusal = lab.refusal(spec)
    if isinstance(refusal, UnsupportedFeature):
        raise Unsupported(f"{case.id}: {refusal}")
    if refusal is not None:
        refused = isinstance(refusal, SpecError) and not valid
        lab.demand(refused, f"{case.id} does not compile", "a grammar", refusal)
        return
    truth = truth_of_spec(lab, spec)
    for test in case.tests:
        try:
            tokens = lab.encode(test.text)
        except VocabularyError:
            continue  # these tokens cannot spell it
        lab.begin()
        (_check_valid if test.valid else _check_invalid)(lab, case.id, spec, tokens)
        if truth is not None:
            _check_rows(lab, case.id, spec, tokens, truth)


def _check_valid(lab: Lab, id_: str, spec: GrammarSpec, tokens: Sequence[int]) -> None:
    grammar = lab.new_grammar(spec)
    for token in [*tokens, lab.stop]:
        bytes_ = lab.vocabulary.token_bytes(token)
        lab.demand(token in lab.allowed(grammar), f"{id_}: {bytes_!r} is masked in a valid text", "allowed", "masked")
        lab.equal(grammar.accept_tokens("r", [token]), True, f"{id_}: {bytes_!r} was refused in a valid text")


def _check_invalid(lab: Lab, id_: str, spec: GrammarSpec, tokens: Sequence[int]) -> None:
    grammar = lab.new_grammar(spec)
    for token in [*tokens, lab.stop]:
        if not grammar.accept_tokens("r", [token]):
            masked = token not in lab.allowed(grammar)
            lab.demand(masked, f"{id_}: the row allows a token that is refused", "masked", "allowed")
            return
    raise lab.violation(f"{id_}: a text that is not valid was accepted", "refused", lab.vocabulary.decode(tokens))


def _check_rows(lab: Lab, id_: str, spec: GrammarSpec, tokens: Sequence[int], truth: Truth) -> None:
    grammar, state = lab.new_grammar(spec), truth.start
    looked_at = {len(tokens) * index // TRUE_MASKS for index in range(TRUE_MASKS + 1)}
    for index, token in enumerate([*tokens, lab.stop]):
        if index in looked_at:
            _check_row(lab, id_, lab.allowed(grammar), truth, state)
        state = truth.follow(state, token)
        if token == lab.stop:
            return
        accepted = grammar.accept_tokens("r", [token])
        lab.equal(accepted, state != NOWHERE, f"{id_}: the oracle judges otherwise")
        if not accepted:
            return


def _check_row(lab: Lab, id_: str, row: set[int], truth: Truth, state: int) -> None:
    stops = lab.vocabulary.stop_set
    lab.equal(row & stops, stops if truth.accepting(state) else set(), f"{id_}: stop tokens in the row")
    text = row - stops
    expected = truth.allowed(state)
    lab.demand(
        text <= expected, f"{id_}: the row allows what no text has", "nothing more", sorted(text - expected)[:20]
    )
    if truth.exact:
        missing = sorted(expected - text)[:20]
        lab.demand(not missing, f"{id_}: the row leaves out what texts have", "nothing less", missing)


def _register(case: Case, profile: str) -> None:
    def check(lab: Lab) -> None:
        check_case(lab, case)

    check.__doc__ = f"Every text of the case {case.id} is judged rightly, and every row on the way."
    law("case", case.id, profile=profile)(check)


for _profile, _suites in SUITES.items():
    for _suite in _suites:
        for _case in read_suite(_suite).cases:
            _register(_case, _profile)
