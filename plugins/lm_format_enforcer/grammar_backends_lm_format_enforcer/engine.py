"""The adapter: the engine's character-level parsers become automata over bytes, and matchers walk those.

The engine's own `TokenEnforcer` is not used: it keeps a state for every prefix it ever saw, takes an unknown prefix
for the start, and answers an exception inside of it with "only the end may follow" (A19, A33, A34).
"""

from __future__ import annotations

import importlib.metadata
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import interegular
import numpy as np
from numpy.typing import NDArray

from grammar_backends.contract import BitmaskRow, GrammarKind, GrammarOptions, GrammarSpec, Vocabulary, pack_ids
from grammar_backends.contract.regex import translate
from grammar_backends.errors import UnsupportedFeature
from grammar_backends_lm_format_enforcer import DIALECT
from grammar_backends_lm_format_enforcer.automaton import Automaton, CharacterMachine, State
from grammar_backends_lm_format_enforcer.characters import ChoiceMachine, RegexMachine
from grammar_backends_lm_format_enforcer.json_parser import JsonMachine
from grammar_backends_lm_format_enforcer.schema import engine_schema

__all__ = ["FormatEnforcerEngine"]

SPARE_STATES = 64
"""States beyond twice the rollback limit that pile up before old ones are dropped, so that dropping is rare (A33)."""

ROW_CACHE_BYTES = 16 << 20
"""Memory for computed rows that one artifact may keep."""


class FormatEnforcerEngine:
    """`Engine` over lm-format-enforcer.

    Args:
        vocabulary: any.
        options: none are known.
    """

    version = importlib.metadata.version("lm-format-enforcer")

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self.vocabulary = vocabulary
        self.tokens = TokenTree(vocabulary.text_tokens)

    def compile(self, spec: GrammarSpec) -> FormatEnforcerArtifact:
        try:
            return FormatEnforcerArtifact(self, Automaton(_machine(spec)))
        except (interegular.Unsupported, interegular.InvalidSyntax, RecursionError) as error:
            raise UnsupportedFeature(f"{spec.kind}: interegular cannot read it", engine_text=repr(error)) from error

    def check(self, spec: GrammarSpec) -> None:
        """`SpecChecker.check`: what can be told without the engine."""
        if spec.kind is GrammarKind.REGEX:
            translate(spec.text, DIALECT)
        elif spec.kind is GrammarKind.JSON_SCHEMA:
            engine_schema(spec.value, spec.options)


def _machine(spec: GrammarSpec) -> CharacterMachine:
    if spec.kind is GrammarKind.REGEX:
        return RegexMachine(translate(spec.text, DIALECT))
    if spec.kind is GrammarKind.CHOICE:
        return ChoiceMachine(spec.value)
    schema = spec.value if spec.kind is GrammarKind.JSON_SCHEMA else _object_schema(spec.options)
    named = sorted({character for character in spec.text if character > "\x7f"})
    return JsonMachine(engine_schema(schema, spec.options), named, _max_blanks(spec.options))


def _object_schema(options: GrammarOptions) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": True} if options.json_object_only else {}


def _max_blanks(options: GrammarOptions) -> int | None:
    return 0 if options.whitespace == "compact" else options.max_whitespace


class TokenTree:
    """The text tokens of a vocabulary by their bytes. Immutable.

    Attributes:
        ids: the tokens that end here.
        children: the longer ones, by their next byte.
    """

    __slots__ = ("children", "ids")

    def __init__(self, tokens: Sequence[bytes] = ()) -> None:
        self.ids: list[int] = []
        self.children: dict[int, TokenTree] = {}
        for id_, token in enumerate(tokens):
            if token:
                self._add(id_, token)

    def _add(self, id_: int, token: bytes) -> None:
        node = self
        for byte in token:
            child = node.children.get(byte)
            if child is None:
                child = node.children[byte] = TokenTree()
            node = child
        node.ids.append(id_)


class FormatEnforcerArtifact:
    """An automaton, and the most recently computed rows of its states, stop bits included."""

    __slots__ = ("_capacity", "_rows", "_tokens", "_vocabulary", "automaton")

    def __init__(self, engine: FormatEnforcerEngine, automaton: Automaton) -> None:
        self.automaton = automaton
        self._vocabulary = engine.vocabulary
        self._tokens = engine.tokens
        self._capacity = max(1, ROW_CACHE_BYTES // (4 * engine.vocabulary.words))
        self._rows: OrderedDict[State, NDArray[np.int32]] = OrderedDict()

    def new_matcher(self) -> FormatEnforcerMatcher:
        return FormatEnforcerMatcher(self, [self.automaton.start])

    def follow(self, state: State, token: int) -> State | None:
        """The state after a token; None when it is illegal."""
        data = self._vocabulary.text_tokens[token]
        return self.automaton.walk(state, data) if data else None

    def row(self, state: State) -> NDArray[np.int32]:
        """Which tokens may follow in `state`, int32 ``[words]``."""
        row = self._rows.get(state)
        if row is None:
            with self.automaton.lock:
                legal = [*self._legal(state), *(self._vocabulary.stop_ids if state.accepting else ())]
                row = self._rows[state] = pack_ids(legal, self._vocabulary.width)
                if len(self._rows) > self._capacity:
                    self._rows.popitem(last=False)
        return row

    def _legal(self, state: State) -> Iterator[int]:
        step = self.automaton.step
        todo = [(self._tokens, state)]
        while todo:
            node, reached = todo.pop()
            for byte, child in node.children.items():
                following = step(reached, byte)
                if following is not None:
                    yield from child.ids
                    todo.append((child, following))


class FormatEnforcerMatcher:
    """`Matcher` as a list of visited states, the current one last."""

    __slots__ = ("_artifact", "_limit", "_states")

    fills_stop_tokens = True

    def __init__(self, artifact: FormatEnforcerArtifact, states: list[State], limit: int | None = None) -> None:
        self._artifact = artifact
        self._states = states
        self._limit = limit

    def limit_rollback(self, num_tokens: int) -> None:
        self._limit = num_tokens

    def consume(self, tokens: Sequence[int]) -> int:
        states = self._states
        if self._limit is not None and len(states) > 2 * self._limit + SPARE_STATES:
            del states[: -self._limit - 1]
        for count, token in enumerate(tokens):
            state = self._artifact.follow(states[-1], token)
            if state is None:
                return count
            states.append(state)
        return len(tokens)

    def rollback(self, num_tokens: int) -> None:
        del self._states[len(self._states) - num_tokens :]

    def fill_row(self, row: BitmaskRow) -> None:
        row.array[:] = self._artifact.row(self._states[-1])

    def is_accepting(self) -> bool:
        return self._states[-1].accepting

    def fork(self) -> FormatEnforcerMatcher:
        return FormatEnforcerMatcher(self._artifact, self._states.copy(), self._limit)
