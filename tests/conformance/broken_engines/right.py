"""An engine that keeps every rule, made of parts that can be replaced one by one by a faulty one.

It enforces what the suite's own recogniser knows, so that it is as right as that one. There are two ways through it:
`Matching` is what an adapter usually writes, under the layer's own semantics; `Grammar` has all semantics itself, so
that each of them can be got wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import index
from typing import Any

from grammar_backends.contract import (
    Bitmask,
    BitmaskRow,
    BitmaskTensor,
    GrammarKind,
    GrammarOptions,
    GrammarSpec,
    Vocabulary,
    pack_ids,
)
from grammar_backends.contract.bitmask import check_rows
from grammar_backends.errors import DeadEnd, GrammarError, SpecError, UnsupportedFeature
from grammar_backends_conformance.oracles import Recogniser, State, allowed_ids, recogniser_of

__all__ = ["Engine", "Grammar", "Language", "Matching"]


class Part:
    """Something of which an engine can be made with the rest as it should be."""

    name = ""

    @classmethod
    def engine(cls, vocabulary: Vocabulary, options: Mapping[str, Any]) -> Engine:
        """The factory of a backend with this part."""
        return Engine(vocabulary, **{cls.name: cls})


class Language(Part):
    """A compiled spec in terms of one vocabulary; immutable but for what it remembers."""

    name = "language"

    def __init__(self, recogniser: Recogniser, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.start: Any = recogniser.start()
        self._moves: dict[tuple[Any, int], Any] = {}
        self._allowed: dict[Any, frozenset[int]] = {}
        self._forced: dict[Any, bytes] = {}

    def follow(self, state: Any, token: int) -> Any:
        """The state after a token; None when it is illegal as text."""
        key = state, token
        if key not in self._moves:
            data = self.text(token)
            self._moves[key] = self.walk(state, data) if data else None
        return self._moves[key]

    def text(self, token: int) -> bytes:
        """What a token spells; nothing for control tokens and for ids that are none."""
        return self.vocabulary.text_tokens[token] if 0 <= token < self.vocabulary.size else b""

    def walk(self, state: State, data: bytes) -> Any:
        return state.walk(data)

    def allowed(self, state: Any) -> frozenset[int]:
        """The text tokens that may come next."""
        if state not in self._allowed:
            self._allowed[state] = frozenset(allowed_ids(state, self.vocabulary))
        return self._allowed[state]

    def accepting(self, state: Any) -> bool:
        return bool(state.accepting)

    def forced(self, state: Any) -> bytes:
        """The bytes that every text goes on with."""
        if state not in self._forced:
            self._forced[state] = bytes(self._only_ways(state))
        return self._forced[state]

    def _only_ways(self, state: State) -> Iterator[int]:
        while not state.accepting:
            ways = [(byte, after) for byte in range(256) if (after := state.step(byte)) is not None]
            if len(ways) != 1:
                return
            byte, state = ways[0]
            yield byte

    def forced_tokens(self, state: Any) -> list[int]:
        """Those of the tokenizer's own tokens for the forced bytes that no longer text could spell otherwise (I3)."""
        forced = self.forced(state)
        tokens = self.vocabulary.encode(forced.decode(errors="ignore"))
        if not self.allowed(self.walk(state, forced)):
            return tokens
        for count in range(len(tokens)):
            rest = forced[len(self.vocabulary.decode(tokens[:count])) :]
            if any(len(other) > len(rest) and other.startswith(rest) for other in self.vocabulary.text_tokens):
                return tokens[:count]
        return tokens


class Matching(Part):
    """The primitives, for the layer's own semantics."""

    name = "matcher"
    fills_stop_tokens = True

    def __init__(self, language: Language) -> None:
        self.language = language
        self.states = [language.start]
        self.limit: int | None = None

    @property
    def state(self) -> Any:
        return self.states[-1]

    def consume(self, tokens: Sequence[int]) -> int:
        if self.limit is not None:
            del self.states[: -self.limit - 1]
        for count, token in enumerate(tokens):
            state = self.language.follow(self.state, token)
            if state is None:
                return count
            self.states.append(state)
        return len(tokens)

    def rollback(self, n: int) -> None:
        del self.states[len(self.states) - n :]

    def legal(self) -> frozenset[int]:
        """What a row holds."""
        text, stops = self.language.allowed(self.state), self.language.vocabulary.stop_set
        return text | stops if self.is_accepting() else text - stops

    def fill_row(self, row: BitmaskRow) -> None:
        row.array[:] = pack_ids(self.legal(), self.language.vocabulary.width)

    def is_accepting(self) -> bool:
        return self.language.accepting(self.state)

    def fork(self) -> Matching:
        copy = type(self)(self.language)
        copy.states, copy.limit = self.states.copy(), self.limit
        return copy

    def limit_rollback(self, num_tokens: int) -> None:
        self.limit = num_tokens

    def forced_bytes(self) -> bytes:
        return self.language.forced(self.state)

    def forced_tokens(self) -> list[int]:
        return self.language.forced_tokens(self.state)


class Grammar(Part):
    """All semantics of `StructuredOutputGrammar`, by nothing but a list of states.

    Attributes:
        states: after each text token, from the earliest that a rollback can still reach.
        forgotten: how many states before those there were.
        floor: the earliest step that a rollback can reach.
    """

    name = "grammar"

    def __init__(self, language: Language, stops: frozenset[int], max_rollback: int | None) -> None:
        self.language = language
        self.vocabulary = language.vocabulary
        self.stops = stops
        self.max_rollback = max_rollback
        self.reset()

    def reset(self) -> None:
        self.states = [self.language.start]
        self.forgotten = self.floor = 0
        self.terminated = False
        self.error: GrammarError | None = None

    @property
    def state(self) -> Any:
        return self.states[-1]

    @property
    def num_accepted(self) -> int:
        return self.forgotten + len(self.states) - 1 + self.terminated

    def is_terminated(self) -> bool:
        return self.terminated

    def is_accepting(self) -> bool:
        return not self.terminated and self.error is None and self.language.accepting(self.state)

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        if self.terminated:
            return True
        if self.error is not None:
            return False
        states, stopped = self.walk(tokens)
        if len(states) < len(tokens) and not stopped:
            return False
        self.advance(states, stopped)
        return True

    def walk(self, tokens: Sequence[int]) -> tuple[list[Any], bool]:
        """The states after the legal text tokens, and whether a legal stop token follows them."""
        states = [self.state]
        for token in map(index, tokens):
            if token in self.stops:
                return states[1:], self.language.accepting(states[-1])
            state = self.follow(states[-1], token)
            if state is None:
                break
            states.append(state)
        return states[1:], False

    def follow(self, state: Any, token: int) -> Any:
        # The vocabulary's own stop tokens are never text, also where the request brings others (A10).
        return None if token in self.vocabulary.stop_set else self.language.follow(state, token)

    def advance(self, states: Sequence[Any], stopped: bool) -> None:
        self.states += states
        self.terminated = stopped
        if self.max_rollback is not None:
            self.floor = max(self.floor, self.num_accepted - self.max_rollback)
            self.forget()

    def forget(self) -> None:
        """Drop the states that no rollback can reach (A33)."""
        old = min(self.floor - self.forgotten, len(self.states) - 1)
        del self.states[:old]
        self.forgotten += old

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        if self.terminated or self.error is not None:
            return []
        states, stopped = self.walk(tokens)
        return [*map(index, tokens[: len(states) + stopped])]

    def rollback(self, num_tokens: int) -> None:
        if not 0 <= num_tokens <= self.num_accepted - self.floor:
            raise ValueError(f"cannot roll back {num_tokens} of {self.num_accepted} tokens")
        if num_tokens:
            text = num_tokens - self.terminated
            del self.states[len(self.states) - text :]
            self.terminated = False
            self.error = None

    def legal(self) -> frozenset[int]:
        """What a row holds."""
        if self.terminated:
            return self.stops
        text = self.language.allowed(self.state) - self.stops - self.vocabulary.stop_set
        return text | self.stops if self.is_accepting() else text

    def fill_bitmask(self, bitmask: BitmaskTensor, row: int) -> bool:
        view = Bitmask.of(bitmask)
        check_rows(view, (row,), self.vocabulary.words)
        if self.error is not None:
            raise self.error
        legal = self.legal()
        if not legal:
            self.error = DeadEnd("no token is legal")
            raise self.error
        return self.write(view, row, legal)

    def write(self, view: Bitmask, row: int, legal: frozenset[int]) -> bool:
        """Write a row, and say whether it masks anything."""
        array = view.rows[row].array
        array[:] = pack_ids(legal, self.vocabulary.width)
        return bool((array != -1).any())

    def fork(self) -> Grammar:
        copy = type(self)(self.language, self.stops, self.max_rollback)
        vars(copy).update(vars(self))
        copy.states = self.states.copy()
        return copy

    def forced_bytes(self) -> bytes:
        return b"" if self.terminated or self.error is not None else self.language.forced(self.state)

    def forced_tokens(self) -> list[int]:
        return [] if self.terminated or self.error is not None else self.language.forced_tokens(self.state)


class Artifact:
    """A language, and what one request's part in it is made of."""

    def __init__(self, spec: GrammarSpec, language: Language, matcher: type[Matching]) -> None:
        self.spec = spec
        self.language = language
        self.matcher = matcher

    def new_matcher(self) -> Matching:
        return self.matcher(self.language)


class OwnArtifact(Artifact):
    """One whose grammars have all semantics themselves."""

    def __init__(self, spec: GrammarSpec, language: Language, grammar: type[Grammar]) -> None:
        super().__init__(spec, language, Matching)
        self.grammar = grammar

    def new_grammar(self, stop_token_ids: frozenset[int], max_rollback: int | None) -> Grammar:
        return self.grammar(self.language, stop_token_ids, max_rollback)


class Engine(Part):
    """Compiles what the recogniser knows.

    Args:
        vocabulary: the model's tokens.
        language, matcher, grammar: the parts; with a grammar its semantics are used, else the layer's.
    """

    name = "engine"
    version = "1.0"
    serial_format = "spec"

    def __init__(
        self,
        vocabulary: Vocabulary,
        language: type[Language] = Language,
        matcher: type[Matching] = Matching,
        grammar: type[Grammar] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self._language = language
        self._matcher = matcher
        self._grammar = grammar

    @classmethod
    def engine(cls, vocabulary: Vocabulary, options: Mapping[str, Any]) -> Engine:
        return cls(vocabulary)

    def compile(self, spec: GrammarSpec) -> Artifact:
        language = self._language(self.recogniser(spec), self.vocabulary)
        if self._grammar is not None:
            return OwnArtifact(spec, language, self._grammar)
        return Artifact(spec, language, self._matcher)

    def dump_artifact(self, artifact: Artifact) -> bytes:
        spec = artifact.spec
        return json.dumps([spec.kind.value, spec.text, spec.syntax, asdict(spec.options)]).encode()

    def load_artifact(self, data: bytes) -> Artifact:
        kind, text, syntax, options = json.loads(data)
        return self.compile(GrammarSpec(GrammarKind(kind), text, syntax, GrammarOptions(**options)))

    def recogniser(self, spec: GrammarSpec) -> Recogniser:
        recogniser = recogniser_of(spec)
        if recogniser is None:
            raise UnsupportedFeature(f"the recogniser does not know this {spec.kind}")
        if recogniser.is_empty:
            raise SpecError(f"no text satisfies this {spec.kind}")
        return recogniser

    def fill_rows(self, matchers: Sequence[Matching], bitmask: Bitmask, rows: Sequence[int]) -> None:
        for matcher, row in zip(matchers, rows, strict=True):
            matcher.fill_row(bitmask.rows[row])
