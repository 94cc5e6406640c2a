"""Random lives of grammars against the model: any calls, legal and not, in any order.

`Lives` does one call on a grammar and on its model and compares them in all that can be observed. The law below lets
hypothesis choose the calls, so that a failure shrinks to the shortest list of them; `soak` chooses them at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from numpy.typing import NDArray

from grammar_backends.contract import allocate_bitmask, pack_ids, unpack_ids
from grammar_backends.decoding import fill_bitmasks
from grammar_backends.errors import DeadEnd
from grammar_backends_conformance.laws.journal import RecordingGrammar
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import law
from grammar_backends_conformance.laws.model import Model, Truth, truth_of
from grammar_backends_conformance.laws.samples import Sample

__all__ = ["LIMITS", "MOST", "Lives", "tokens_of"]

MOST = 4
"""Grammars that live at once: one, and forks of it."""

LIMITS = (None, None, 0, 1, 3)
"""Values of `max_rollback`."""


def tokens_of(lab: Lab, sample: Sample) -> list[int]:
    """Tokens that matter to a sample: those of its texts, in every spelling, before those that are never text."""
    texts = [text.encode() for text in (*sample.texts, *sample.partial, *sample.wrong)]
    text_tokens = lab.vocabulary.text_tokens
    near = [id_ for id_, token in enumerate(text_tokens) if token and any(token in text for text in texts)]
    # A constraint with a large alphabet would drown the rest.
    return near[:: max(1, len(near) // 60)]


def odd_tokens(lab: Lab) -> list[int]:
    """Tokens that stop, that no text has, and ids that are none."""
    vocabulary = lab.vocabulary
    controls = sorted(lab.controls)
    return [*vocabulary.stop_ids, *controls[:2], controls[-1], vocabulary.size, vocabulary.width, -1, -5, 2**40]


def stop_sets(lab: Lab, sample: Sample) -> list[tuple[int, ...]]:
    """Stop ids of a request: none of its own, control tokens, and tokens that are text as well."""
    control, text = max(lab.controls), lab.encode(sample.longest)[-1:]
    return [(), (control,), (*lab.vocabulary.stop_ids, control), (*text, control)]


class Lives:
    """A grammar and up to three forks of it, each with its model."""

    def __init__(
        self, lab: Lab, sample: Sample, truth: Truth, stops: Sequence[int] = (), limit: int | None = None
    ) -> None:
        self._lab = lab
        self._exact = truth.exact
        lab.begin()
        grammar = lab.new_grammar(sample.spec, stop_token_ids=list(stops), max_rollback=limit)
        model = Model(truth, frozenset(stops) or lab.vocabulary.stop_set, limit)
        self.pairs: list[tuple[RecordingGrammar, Model]] = [(grammar, model)]
        self._bitmask = allocate_bitmask(MOST + 1, lab.vocabulary.width)
        self._filled: NDArray[np.int32] = self._bitmask.numpy()
        self._rows: dict[Any, NDArray[np.int32]] = {}

    def pick(self, index: int) -> tuple[RecordingGrammar, Model]:
        return self.pairs[index % len(self.pairs)]

    def accept(self, index: int, tokens: Sequence[int]) -> None:
        grammar, model = self.pick(index)
        answer = grammar.accept_tokens("r", list(tokens))
        self._lab.equal(answer, model.accept(tokens), "accept_tokens judges wrongly (A1, A2, A6, A7, A9)")

    def validate(self, index: int, tokens: Sequence[int]) -> None:
        grammar, model = self.pick(index)
        self._lab.equal(grammar.validate_tokens(list(tokens)), model.validate(tokens), "validate_tokens is wrong (A8)")

    def rollback(self, index: int, steps: int) -> None:
        grammar, model = self.pick(index)
        possible = model.rollback(steps)
        try:
            grammar.rollback(steps)
        except ValueError as error:
            self._lab.equal(possible, False, f"a rollback of {steps} steps was refused (A15, A27): {error}")
        else:
            self._lab.equal(possible, True, f"a rollback of {steps} steps was not refused (A17)")

    def fork(self, index: int) -> None:
        """Add a fork, in the place of the last one when there are enough."""
        grammar, model = self.pick(index)
        self.pairs = [*self.pairs[: MOST - 1], (grammar.fork(), model.copy())]

    def reset(self, index: int) -> None:
        grammar, model = self.pick(index)
        grammar.reset()
        model.reset()

    def fill_together(self) -> None:
        """Fill all rows in one call, in reverse order, and compare them (F18)."""
        lab = self._lab
        rows = list(range(len(self.pairs)))[::-1]
        grammars = [grammar for grammar, _ in self.pairs]
        self._filled.fill(-1)
        lab.journal.note("fill_bitmasks({}, {}, {})", grammars, self._bitmask, rows)
        outcomes = fill_bitmasks(grammars, self._bitmask, rows)
        for (_, model), row, outcome in zip(self.pairs, rows, outcomes, strict=True):
            alive = bool(model.allowed) and not model.dead
            lab.equal(outcome is None, alive, "filled together, a grammar fails otherwise than alone")
            model.dead = not alive
            if alive:
                self._compare(self._filled[row], model)
        lab.demand(
            bool((self._filled[-1] == -1).all()), "a batch wrote into a row that is not listed", "kept", "written"
        )

    def check(self) -> None:
        """Compare every grammar with its model, in all that can be observed."""
        lab = self._lab
        for row, (grammar, model) in enumerate(self.pairs):
            got = (grammar.num_accepted, grammar.is_terminated(), grammar.is_accepting())
            lab.equal(got, (model.length, model.terminated, model.accepting), "num_accepted, terminated, accepting")
            self._check_row(grammar, model, row)
            error = grammar.error
            lab.equal(isinstance(error, DeadEnd), model.dead, "a dead end is remembered wrongly (A14)")
            lab.demand(error is None or model.dead, "there is an error where nothing failed (A19)", None, error)
            lab.counts.states += 1

    def _check_row(self, grammar: RecordingGrammar, model: Model, row: int) -> None:
        alive = bool(model.allowed) and not model.dead
        try:
            masked = grammar.fill_bitmask(self._bitmask, row)
        except DeadEnd:
            self._lab.equal(alive, False, "DeadEnd where a token is legal (A14)")
            model.dead = True
        else:
            self._lab.equal(alive, True, "a row was filled at a dead end (A14)")
            self._lab.equal(masked, True, "fill_bitmask says that nothing is masked")
            self._compare(self._filled[row], model)

    def _compare(self, row: NDArray[np.int32], model: Model) -> None:
        lab = self._lab
        lab.counts.masks += 1
        lab.counts.checks += 1
        place = model.place
        if place not in self._rows:
            self._rows[place] = pack_ids(sorted(model.allowed), lab.vocabulary.width)
        expected = self._rows[place]
        if row.tobytes() == expected.tobytes():
            return
        if self._exact or bool((row & ~expected).any()) or not row.any():
            got, wanted = set(unpack_ids(row)), set(unpack_ids(expected))
            lab.equal(got, wanted, "the row does not hold what may come next (A12)")


class _Machine(RuleBasedStateMachine):
    """Hypothesis chooses the calls."""

    lab: Lab
    sample: Sample
    truth: Truth

    @initialize(data=st.data())
    def start(self, data: Any) -> None:
        stops = data.draw(st.sampled_from(stop_sets(self.lab, self.sample)))
        limit = data.draw(st.sampled_from(LIMITS))
        self.lives = Lives(self.lab, self.sample, self.truth, stops, limit)
        near, odd = tokens_of(self.lab, self.sample), odd_tokens(self.lab)
        token = st.one_of(st.sampled_from(near), st.sampled_from(near), st.sampled_from(odd))
        self.blocks = st.lists(token, max_size=6)
        self.texts = [self.lab.encode(text) for text in (*self.sample.texts, *self.sample.partial)]

    def teardown(self) -> None:
        if hasattr(self, "lives"):
            self.lives.check()

    @rule(index=st.integers(0, MOST - 1), data=st.data())
    def accept(self, index: int, data: Any) -> None:
        self.lives.accept(index, data.draw(self.blocks))
        self.lives.check()

    @rule(index=st.integers(0, MOST - 1), data=st.data())
    def accept_legal(self, index: int, data: Any) -> None:
        allowed = sorted(self.lives.pick(index)[1].allowed)
        if allowed:
            self.lives.accept(index, [data.draw(st.sampled_from(allowed))])
            self.lives.check()

    @rule(index=st.integers(0, MOST - 1), data=st.data())
    def accept_text(self, index: int, data: Any) -> None:
        self.lives.accept(index, data.draw(st.sampled_from(self.texts)))
        self.lives.check()

    @rule(index=st.integers(0, MOST - 1), data=st.data())
    def validate(self, index: int, data: Any) -> None:
        self.lives.validate(index, data.draw(self.blocks))
        self.lives.check()

    @rule(index=st.integers(0, MOST - 1), steps=st.integers(-1, 12))
    def rollback(self, index: int, steps: int) -> None:
        self.lives.rollback(index, steps)
        self.lives.check()

    @precondition(lambda self: len(self.lives.pairs) < MOST)
    @rule(index=st.integers(0, MOST - 1))
    def fork(self, index: int) -> None:
        self.lives.fork(index)
        self.lives.check()

    @rule(index=st.integers(0, MOST - 1))
    def reset(self, index: int) -> None:
        self.lives.reset(index)
        self.lives.check()

    @rule()
    def fill_together(self) -> None:
        self.lives.fill_together()


@law("A25", "random-lives")
def random_lives_agree_with_the_model(lab: Lab, sample: Sample) -> None:
    """Whatever calls are made in whatever order, on a grammar and its forks, every answer is the model's.

    The model follows an oracle where one knows the language, and else the backend's own straight way there.
    """
    members = {"lab": lab, "sample": sample, "truth": truth_of(lab, sample)}
    bounds = settings(
        derandomize=True,
        max_examples=25,
        stateful_step_count=20,
        deadline=None,
        database=None,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("RandomLives", (_Machine,), members), settings=bounds)
