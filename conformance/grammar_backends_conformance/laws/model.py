"""What a grammar must do: a model over known languages, against which lives of grammars are compared.

A `Truth` knows a language state by state, with vocabulary and all; a `Model` adds to it what the contract says about
stop tokens, histories, limits and dead ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from grammar_backends.contract import GrammarSpec, unpack_ids
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.samples import Sample
from grammar_backends_conformance.oracles import allowed_ids, recogniser_of

__all__ = ["NOWHERE", "Model", "Truth", "truth_of", "truth_of_spec"]

NOWHERE = -1


class Language(Protocol):
    """States of a language over tokens."""

    def start(self) -> Hashable: ...

    def follow(self, state: Any, token: int) -> Hashable | None:
        """The state after a text token; None when it is illegal."""
        ...

    def allowed(self, state: Any) -> frozenset[int]:
        """The text tokens that a row allows."""
        ...

    def accepting(self, state: Any) -> bool: ...


class Truth:
    """A language with numbered states, each looked at only once.

    Attributes:
        exact: rows hold exactly `allowed`; otherwise they may leave out other spellings (A12).
    """

    def __init__(self, language: Language, size: int, exact: bool) -> None:
        self.exact = exact
        self._size = size
        self._language = language
        self._numbers: dict[Hashable, int] = {}
        self._states: list[Hashable] = []
        self._moves: dict[tuple[int, int], int] = {}
        self._allowed: dict[int, frozenset[int]] = {}
        self._accepting: dict[int, bool] = {}
        self.start = self._number(language.start())

    def _number(self, state: Hashable) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def follow(self, state: int, token: int) -> int:
        """The state after a token; `NOWHERE` when it is illegal as text."""
        if not 0 <= token < self._size:
            return NOWHERE
        key = state, token
        if key not in self._moves:
            following = self._language.follow(self._states[state], token)
            self._moves[key] = NOWHERE if following is None else self._number(following)
        return self._moves[key]

    def allowed(self, state: int) -> frozenset[int]:
        """The text tokens that may come next."""
        if state not in self._allowed:
            self._allowed[state] = self._language.allowed(self._states[state])
        return self._allowed[state]

    def accepting(self, state: int) -> bool:
        """Whether the text so far is complete."""
        if state not in self._accepting:
            self._accepting[state] = self._language.accepting(self._states[state])
        return self._accepting[state]


class _Recognised:
    """A language as an oracle knows it, which shares no code with any backend."""

    def __init__(self, recogniser: Any, lab: Lab) -> None:
        self._recogniser = recogniser
        self._vocabulary = lab.vocabulary
        self._tokens = lab.vocabulary.text_tokens

    def start(self) -> Hashable:
        start: Hashable = self._recogniser.start()
        return start

    def follow(self, state: Any, token: int) -> Hashable | None:
        data = self._tokens[token]
        for byte in data:
            state = state.step(byte)
            if state is None:
                return None
        return state if data else None

    def allowed(self, state: Any) -> frozenset[int]:
        return frozenset(allowed_ids(state, self._vocabulary))

    def accepting(self, state: Any) -> bool:
        return bool(state.accepting)


class _Replayed:
    """A language that no oracle knows, as the backend itself has it when each token is fed to a new grammar, once
    and straight on: whatever a longer life does must agree with that."""

    def __init__(self, spec: GrammarSpec, lab: Lab) -> None:
        self._compiled = lab.compile(spec)
        self._vocabulary = lab.vocabulary

    def start(self) -> Hashable:
        return ()

    def _at(self, history: tuple[int, ...]) -> Any:
        grammar = self._compiled.new_grammar()
        for token in history:
            grammar.accept_tokens("replay", [token])
        return grammar

    def follow(self, state: tuple[int, ...], token: int) -> Hashable | None:
        if token in self._vocabulary.stop_set:
            return None
        return (*state, token) if self._at(state).accept_tokens("replay", [token]) else None

    def allowed(self, state: tuple[int, ...]) -> frozenset[int]:
        bitmask = np.empty((1, self._vocabulary.words), dtype=np.int32)
        self._at(state).fill_bitmask(bitmask, 0)
        return frozenset(unpack_ids(bitmask[0])) - self._vocabulary.stop_set

    def accepting(self, state: tuple[int, ...]) -> bool:
        return bool(self._at(state).is_accepting())


def truth_of(lab: Lab, sample: Sample) -> Truth:
    """The truth about a sample: an oracle's where one knows the language, else the backend's own, replayed."""
    patterns = [] if sample.language.truth is None else [GrammarSpec.regex(sample.language.truth)]
    for spec in (*patterns, sample.spec):
        truth = truth_of_spec(lab, spec)
        if truth is not None:
            return truth
    return Truth(_Replayed(sample.spec, lab), lab.vocabulary.size, True)


def truth_of_spec(lab: Lab, spec: GrammarSpec) -> Truth | None:
    """What an oracle knows of a spec; None when it does not cover it."""
    recogniser = recogniser_of(spec)
    if recogniser is None:
        return None
    return Truth(_Recognised(recogniser, lab), lab.vocabulary.size, lab.full or _one_spelling(lab))


def _one_spelling(lab: Lab) -> bool:
    """Whether every text has one spelling, so that a canonical mask is a full one."""
    tokens = [token for token in lab.vocabulary.text_tokens if token]
    return len(set(tokens)) == len(tokens) and max(map(len, tokens)) == 1


class Model:
    """What one grammar must do, over the states that it went through.

    Attributes:
        terminated, dead: whether it is at its end, or at a dead end that a fill has met.
    """

    def __init__(self, truth: Truth, stops: frozenset[int], limit: int | None) -> None:
        self._truth = truth
        self._stops = stops
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        self._states = [self._truth.start]
        self._floor = 0
        self.terminated = False
        self.dead = False

    def copy(self) -> Model:
        other = Model(self._truth, self._stops, self._limit)
        other._states = [*self._states]
        other._floor, other.terminated, other.dead = self._floor, self.terminated, self.dead
        return other

    @property
    def length(self) -> int:
        """What `num_accepted` must be."""
        return len(self._states) - 1 + self.terminated

    @property
    def accepting(self) -> bool:
        return not self.terminated and not self.dead and self._truth.accepting(self._states[-1])

    @property
    def allowed(self) -> frozenset[int]:
        """What a row must hold; nothing at a dead end."""
        if self.terminated:
            return self._stops
        state = self._states[-1]
        text = self._truth.allowed(state) - self._stops
        return text | self._stops if self._truth.accepting(state) else text

    @property
    def place(self) -> tuple[int, bool, frozenset[int]]:
        """What `allowed` depends on."""
        return self._states[-1], self.terminated, self._stops

    def validate(self, tokens: Sequence[int]) -> list[int]:
        """What `validate_tokens` must give."""
        return [] if self.terminated or self.dead else self._legal(tokens)[0]

    def _legal(self, tokens: Sequence[int]) -> tuple[list[int], list[int], bool]:
        """The longest legal prefix, the states after each of its text tokens, and whether it terminates."""
        states = [self._states[-1]]
        for index, token in enumerate(tokens):
            if token in self._stops:
                stopped = self._truth.accepting(states[-1])
                return list(tokens[: index + stopped]), states[1:], stopped
            following = self._truth.follow(states[-1], token)
            if following == NOWHERE:
                return list(tokens[:index]), states[1:], False
            states.append(following)
        return list(tokens), states[1:], False

    def accept(self, tokens: Sequence[int]) -> bool:
        """What `accept_tokens` must return; goes on if it is True."""
        if self.terminated or self.dead:
            return self.terminated
        prefix, states, stopped = self._legal(tokens)
        if len(prefix) != len(tokens) and not stopped:
            return False
        self._states += states
        self.terminated = stopped
        if self._limit is not None:
            self._floor = max(self._floor, self.length - self._limit)
        return True

    def rollback(self, steps: int) -> bool:
        """Go back, or return False where that must be refused."""
        if not 0 <= steps <= self.length - self._floor:
            return False
        if steps:
            text = steps - self.terminated
            del self._states[len(self._states) - text :]
            self.terminated = self.dead = False
        return True
