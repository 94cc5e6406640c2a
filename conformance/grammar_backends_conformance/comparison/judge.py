"""Decides one case on one backend, through the layer's public calls only, and takes the times.

A text counts as accepted when each of its tokens, in the tokenizer's own encoding, is both allowed by the mask and
accepted, and at its end the grammar is accepting and a stop token is allowed. Times are taken over the tokens of
valid texts, as MaskBench does; the time to the first mask is compile, new grammar and first fill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TypeAlias

import torch

from grammar_backends import CompiledGrammar, GrammarSpec, Vocabulary, allocate_bitmask
from grammar_backends.contract import StructuredOutputGrammar
from grammar_backends.errors import DeadEnd, GrammarBackendsError, GrammarError, SpecError, UnsupportedFeature
from grammar_backends.workers import one_line, out_of_memory
from grammar_backends_conformance.comparison.outcome import FAILURE_LIMIT, CaseResult, Outcome, TextFailure
from grammar_backends_conformance.corpora.reading import Case, CaseText, case_spec

__all__ = ["Compile", "judge", "warm_up"]

REQUEST = "compare"


Compile: TypeAlias = Callable[[GrammarSpec], CompiledGrammar]
"""How a spec becomes a compiled grammar: a backend's `compile_grammar`, or the automatic choice before it."""


class EngineFailureError(GrammarBackendsError):
    """The engine failed while a text was judged: neither accepted nor refused."""


@dataclass
class Times:
    """Raw times in µs over the tokens of valid texts."""

    fills: list[float] = field(default_factory=list)
    accepts: list[float] = field(default_factory=list)


def judge(case: Case, compile_: Compile, vocabulary: Vocabulary) -> CaseResult:
    """Compile a case's spec and judge its texts. Anything but exhausted memory becomes an outcome."""
    row = allocate_bitmask(1, vocabulary.width)
    try:
        spec = case_spec(case)
        compiled, first_mask_ms = _first_mask(spec, compile_, row)
        result = _judge_texts(case, compiled, vocabulary, row)
        result.first_mask_ms = first_mask_ms
        result.chosen = compiled.backend.name
        return result
    except SpecError as error:
        return _refused(case, error)
    except Exception as error:
        if out_of_memory(error):
            raise MemoryError from error
        return CaseResult(case.id, "error", one_line(error))


def _refused(case: Case, error: SpecError) -> CaseResult:
    if not isinstance(error, UnsupportedFeature) and not any(test.valid for test in case.tests):
        # Nothing satisfies this spec, and the backend said so.
        return CaseResult(case.id, "pass", f"refused: {error}", error.pointer)
    return CaseResult(case.id, "unsupported", str(error), error.pointer)


def _first_mask(spec: GrammarSpec, compile_: Compile, row: torch.Tensor) -> tuple[CompiledGrammar, float]:
    start = perf_counter_ns()
    compiled = compile_(spec)
    compiled.new_grammar().fill_bitmask(row, 0)
    return compiled, (perf_counter_ns() - start) / 1e6


def _judge_texts(case: Case, compiled: CompiledGrammar, vocabulary: Vocabulary, row: torch.Tensor) -> CaseResult:
    times, failures = Times(), []
    wrong_accept = wrong_reject = False
    for index, test in enumerate(case.tests):
        walk = _Walk(compiled.new_grammar(), vocabulary, row, times if test.valid else Times())
        refusal = walk.run(test)
        if (refusal is None) == test.valid:
            continue
        wrong_accept |= not test.valid
        wrong_reject |= test.valid
        what = refusal or "accepted, though it is not valid"
        failures.append(TextFailure(index, walk.position, what))
    outcome: Outcome = "wrong-accept" if wrong_accept else "wrong-reject" if wrong_reject else "pass"
    detail = "" if not failures else f"{len(failures)} of {len(case.tests)} texts judged wrongly"
    return CaseResult(
        case.id,
        outcome,
        detail,
        failures=failures[:FAILURE_LIMIT],
        fills_us=times.fills,
        accepts_us=times.accepts,
    )


class _Walk:
    """One text on its way through one grammar.

    Attributes:
        position: how many bytes were accepted so far.
    """

    def __init__(
        self, grammar: StructuredOutputGrammar, vocabulary: Vocabulary, row: torch.Tensor, times: Times
    ) -> None:
        self._grammar = grammar
        self._vocabulary = vocabulary
        self._row = row
        self._times = times
        self.position = 0

    def run(self, test: CaseText) -> str | None:
        """Why the text is refused, or None when it is accepted."""
        for token in self._vocabulary.encode(test.text):
            refusal = self._step(token)
            if refusal is not None:
                return refusal
            self.position += len(self._vocabulary.token_bytes(token))
        return self._end()

    def _step(self, token: int) -> str | None:
        grammar, row = self._grammar, self._row
        start = perf_counter_ns()
        dead_end = _fills(grammar, row)
        filled = perf_counter_ns()
        if dead_end is not None:
            return dead_end
        allowed = _bit(row, token)
        middle = perf_counter_ns()
        accepted = grammar.accept_tokens(REQUEST, [token])
        end = perf_counter_ns()
        self._times.fills.append(round((filled - start) / 1e3, 1))
        self._times.accepts.append(round((end - middle) / 1e3, 1))
        if grammar.error is not None and not isinstance(grammar.error, DeadEnd):
            raise EngineFailureError(f"{grammar.error} at byte {self.position}")
        return None if allowed and accepted else self._disagreement(token, allowed, accepted)

    def _disagreement(self, token: int, allowed: bool, accepted: bool) -> str:
        spelled = f"token {token} {self._vocabulary.token_bytes(token)!r}"
        if allowed:
            return f"the mask allows {spelled}, but it is not accepted"
        if accepted:
            return f"the mask forbids {spelled}, though it is accepted"
        return f"{spelled} is refused"

    def _end(self) -> str | None:
        dead_end = _fills(self._grammar, self._row)
        if dead_end is not None:
            return dead_end
        accepting = self._grammar.is_accepting()
        stops = any(_bit(self._row, id_) for id_ in self._vocabulary.stop_ids)
        if accepting != stops:
            return "accepting, but no stop token is allowed" if accepting else "a stop token is allowed too early"
        return None if accepting else "the end of the text is refused"


def _fills(grammar: StructuredOutputGrammar, row: torch.Tensor) -> str | None:
    """Fill the row; why nothing may follow, or None."""
    try:
        grammar.fill_bitmask(row, 0)
    except DeadEnd as error:
        return str(error)
    except GrammarError as error:
        raise EngineFailureError(str(error)) from error
    return None


def _bit(row: torch.Tensor, token: int) -> bool:
    return bool((int(row[0, token >> 5]) >> (token & 31)) & 1)


def warm_up(compile_: Compile, vocabulary: Vocabulary) -> None:
    """Compile and walk a few small specs, so that no case pays for what is done once per process."""
    schema = {"type": "object", "properties": {"warm": {"type": "string"}}, "required": ["warm"]}
    for case in (
        Case("warm-up", "json_schema", {**schema, "additionalProperties": False}, (CaseText(True, '{"warm": "up"}'),)),
        Case("warm-up", "regex", "warm [a-z]+", (CaseText(True, "warm up"),)),
        Case("warm-up", "choice", ["warm", "up"], (CaseText(True, "warm"),)),
        Case("warm-up", "grammar", 'root ::= "warm" | "up"', (CaseText(True, "warm"),), {"syntax": "ebnf"}),
    ):
        judge(case, compile_, vocabulary)
