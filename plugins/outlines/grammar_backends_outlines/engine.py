"""The adapter: turns specs into regular expressions, indexes them with outlines-core, and walks the index.

outlines-core's own `Guide` copies no state and forgets history beyond a limit; walking the shared `Index` by state
number needs neither, and lets every request on the same artifact share the rows that were computed once.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from outlines_core import Guide, Index
from outlines_core import Vocabulary as NativeVocabulary
from outlines_core.json_schema import build_regex_from_schema

from grammar_backends.contract import (
    Artifact,
    BitmaskRow,
    GrammarKind,
    GrammarOptions,
    GrammarSpec,
    Vocabulary,
    count_allowed,
    pack_ids,
    unpack_ids,
)
from grammar_backends.contract.references import lone_references, with_patterns
from grammar_backends.contract.regex import parse_regex, regex_of_texts, translate
from grammar_backends.errors import SpecError, UnsupportedFeature, VocabularyError
from grammar_backends_outlines import DIALECT

__all__ = ["OutlinesEngine"]

SPARE_STATES = 64
"""States beyond twice the rollback limit that pile up before old ones are dropped, so that dropping is rare (A33)."""

PRIVATE_USE = range(0xE000, 0xF900)
"""Characters of which a text hardly ever has all."""

MAX_POSITIONS = 5_000
"""Characters of a schema's pattern once its counts are written out. Of MaskBench's schemas those with up to 2,500 are
compiled in 7 seconds at most, and those with 6,500 and more not in 15."""

MOST_BEGINNINGS = 512
"""Tokens that can be the beginning of one and the same text: as many as the longest one has bytes, and their twins."""

ROW_CACHE_BYTES = 16 << 20
"""Memory for computed rows that one artifact may keep."""


class OutlinesEngine:
    """`Engine` over `outlines_core.Index`.

    Args:
        vocabulary: any.
        options: none are known.
    """

    version = importlib.metadata.version("outlines-core")
    serial_format = "binary-1"

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self._stop_row = pack_ids(vocabulary.stop_ids, vocabulary.width)
        self._tokens = vocabulary.text_tokens
        self._lead = _lead(vocabulary)
        self._lead_pattern = re.escape(vocabulary.text_tokens[self._lead].decode())
        ids: dict[bytes, list[int]] = {}
        for id_, token in enumerate(vocabulary.text_tokens):
            if token:
                ids.setdefault(token, []).append(id_)
        try:
            self._vocabulary = NativeVocabulary(vocabulary.stop_ids[0], ids)
        except Exception as error:
            raise VocabularyError(f"outlines-core cannot use {vocabulary.name}: {error}") from error

    def compile(self, spec: GrammarSpec) -> OutlinesArtifact:
        pattern = self._pattern(spec)
        try:
            index = Index(self._lead_pattern + pattern, self._vocabulary)
        except Exception as error:
            raise _spec_error(spec, str(error)) from error
        artifact = self._artifact(index)
        if spec.kind is GrammarKind.JSON_SCHEMA and index.is_final_state(artifact.start):
            # Such a schema allows nothing ("enum": []), and outlines-core makes the empty text of it.
            raise SpecError("json_schema: no JSON text satisfies it")
        return artifact

    def _artifact(self, index: Index) -> OutlinesArtifact:
        return OutlinesArtifact(index, self._lead, self._stop_row, self._tokens)

    def dump_artifact(self, artifact: Artifact) -> bytes:
        """`ArtifactSerializer.dump_artifact`: the index in outlines-core's own binary form."""
        if not isinstance(artifact, OutlinesArtifact):
            raise TypeError(f"{type(artifact).__name__} is no artifact of outlines-core")
        # The only way to these bytes; pickle would wrap them, and is not used.
        _, (data,) = artifact.index.__reduce__()
        return bytes(data)

    def load_artifact(self, data: bytes) -> OutlinesArtifact:
        """`ArtifactSerializer.load_artifact`."""
        return self._artifact(Index.from_binary(data))

    def check(self, spec: GrammarSpec) -> None:
        """`SpecChecker.check`: everything but the index."""
        self._pattern(spec)

    def _pattern(self, spec: GrammarSpec) -> str:
        if spec.kind is GrammarKind.REGEX:
            return translate(spec.text, DIALECT)
        if spec.kind is GrammarKind.CHOICE:
            return translate(regex_of_texts(spec.value), DIALECT)
        schema = json.dumps(with_patterns(lone_references(spec.value), _ascii_pattern), ensure_ascii=False)
        # outlines-core leaves no space before the commas of arrays (B5), so that it is put in afterwards.
        mark = next(mark for mark in map(chr, PRIVATE_USE) if mark not in schema)
        try:
            pattern = build_regex_from_schema(schema, mark)
        except Exception as error:
            raise _spec_error(spec, str(error)) from error
        spaced = re.sub(f"{mark}?,{mark}", f"{mark},{mark}", pattern).replace(mark, _space(spec.options))
        _check_size(spec, spaced)
        return rf"(?:{spaced}){DIALECT.end}"


def _check_size(spec: GrammarSpec, pattern: str) -> None:
    """Refuse what would take minutes and gigabytes: each character in a string may be any of most tokens."""
    try:
        positions = parse_regex(pattern).positions
    except SpecError as error:
        raise UnsupportedFeature(f"{spec.kind}: outlines cannot carry its pattern", engine_text=str(error)) from error
    if positions > MAX_POSITIONS:
        raise UnsupportedFeature(
            f"{spec.kind}: {positions} characters with all counts written out, more than the {MAX_POSITIONS} that "
            "outlines can carry"
        )


def _ascii_pattern(pattern: str) -> str:
    """outlines-core knows more digits and letters than ASCII (C3)."""
    return f"^{PATTERN.group}{translate(pattern, PATTERN)})$"


PATTERN = replace(DIALECT, end="")
"""A pattern inside a schema: outlines-core puts it between the quotes."""


def _lead(vocabulary: Vocabulary) -> int:
    """A token to put before every text: outlines-core cannot accept the empty text, but can accept it after one."""
    tokens = [(len(token), id_) for id_, token in enumerate(vocabulary.text_tokens) if token.isascii() and token]
    if not tokens:
        raise VocabularyError(f"outlines-core cannot use {vocabulary.name}: it has no ASCII token")
    return min(tokens)[1]


def _space(options: GrammarOptions) -> str:
    """What may stand between JSON tokens."""
    if options.whitespace == "compact":
        return ""
    bound = options.max_whitespace
    return r"[ \n\r\t]" + ("*" if bound is None else f"{{0,{bound}}}")


class OutlinesArtifact:
    """An index, and the most recently computed rows of its states, stop bits included."""

    __slots__ = ("_capacity", "_lead", "_only", "_rows", "_stop_row", "_tokens", "arrivals", "index", "start")

    def __init__(self, index: Any, lead: int, stop_row: NDArray[np.int32], tokens: Sequence[bytes]) -> None:
        self.index = index
        self.start: int = index.get_next_state(index.get_initial_state(), lead)
        self.arrivals: dict[int, tuple[int, int]] = {}
        """For each state seen, one (state before it, token): how a `Guide` can be led there."""
        self._only: dict[int, tuple[bytes, int] | None] = {}
        self._tokens = tokens
        self._lead = lead
        self._stop_row = stop_row
        self._capacity = max(1, ROW_CACHE_BYTES // stop_row.nbytes)
        self._rows: OrderedDict[int, NDArray[np.int32]] = OrderedDict()

    def new_matcher(self) -> OutlinesMatcher:
        return OutlinesMatcher(self, [self.start])

    def row(self, state: int) -> NDArray[np.int32]:
        """Which tokens may follow in `state`, int32 ``[words]``."""
        row = self._rows.get(state)
        if row is None:
            row = np.empty_like(self._stop_row)
            self._guide_at(state).write_mask_into(row.ctypes.data, row.size, 4)
            if self.index.is_final_state(state):
                row |= self._stop_row
            self._rows[state] = row
            if len(self._rows) > self._capacity:
                self._rows.popitem(last=False)
        return row

    def only_way(self, state: int) -> tuple[bytes, int] | None:
        """Bytes with which every text goes on, and the state behind them; None where texts differ or may end."""
        if state not in self._only:
            self._only[state] = self._find_only_way(state)
        return self._only[state]

    def _find_only_way(self, state: int) -> tuple[bytes, int] | None:
        row = self.row(state)
        if self.index.is_final_state(state) or count_allowed(row) > MOST_BEGINNINGS:
            return None
        ids = unpack_ids(row)
        shortest = min(ids, key=lambda id_: len(self._tokens[id_]))
        data = self._tokens[shortest]
        if not all(self._tokens[id_].startswith(data) for id_ in ids):
            return None
        following = self.index.get_next_state(state, shortest)
        self.arrivals.setdefault(following, (state, shortest))
        return data, following

    def _guide_at(self, state: int) -> Guide:
        # Only a Guide writes rows natively (forty times faster than listing tokens), and it starts at the beginning.
        tokens: list[int] = []
        while state != self.start:
            state, token = self.arrivals[state]
            tokens.append(token)
        guide = Guide(self.index)
        for token in (self._lead, *reversed(tokens)):
            guide.advance(token, False)
        return guide


class OutlinesMatcher:
    """`Matcher` as a list of visited index states, the current one last."""

    __slots__ = ("_artifact", "_follow", "_limit", "_states")

    fills_stop_tokens = True

    def __init__(self, artifact: OutlinesArtifact, states: list[int], limit: int | None = None) -> None:
        self._artifact = artifact
        self._follow = artifact.index.get_next_state
        self._states = states
        self._limit = limit

    def limit_rollback(self, num_tokens: int) -> None:
        self._limit = num_tokens

    def consume(self, tokens: Sequence[int]) -> int:
        states, follow, arrivals = self._states, self._follow, self._artifact.arrivals
        if self._limit is not None and len(states) > 2 * self._limit + SPARE_STATES:
            del states[: -self._limit - 1]
        consumed = 0
        for token in tokens:
            before = states[-1]
            state = follow(before, token)
            if state is None:
                break
            if state not in arrivals:
                arrivals[state] = (before, token)
            states.append(state)
            consumed += 1
        return consumed

    def rollback(self, num_tokens: int) -> None:
        del self._states[len(self._states) - num_tokens :]

    def fill_row(self, row: BitmaskRow) -> None:
        row.array[:] = self._artifact.row(self._states[-1])

    def is_accepting(self) -> bool:
        return bool(self._artifact.index.is_final_state(self._states[-1]))

    def forced_bytes(self) -> bytes:
        forced, state = b"", self._states[-1]
        while (only := self._artifact.only_way(state)) is not None:
            data, state = only
            forced += data
        return forced

    def fork(self) -> OutlinesMatcher:
        return OutlinesMatcher(self._artifact, self._states.copy(), self._limit)


NOT_SUPPORTED = re.compile(r"not supported|unsupported|failed to build dfa|supported by outlines", re.IGNORECASE)


def _spec_error(spec: GrammarSpec, text: str) -> SpecError:
    kind = UnsupportedFeature if NOT_SUPPORTED.search(text) else SpecError
    return kind(f"{spec.kind}: outlines-core cannot compile it", engine_text=text)
