"""The adapter: turns specs into llguidance grammars and drives its matcher.

llguidance never raises: a matcher that met a problem stays in an error state whose mask looks like a finished text.
The adapter therefore asks for that state wherever it can arise, and raises (A19).
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, StructTag

from grammar_backends.contract import Bitmask, BitmaskRow, GrammarKind, GrammarSpec, Matcher, Vocabulary
from grammar_backends.contract.grammar_text import ebnf_to_lark, lark_for, syntax_of
from grammar_backends.contract.regex import regex_of_texts, translate
from grammar_backends.errors import DeadEnd, GrammarError, SpecError, UnsupportedFeature, VocabularyError
from grammar_backends_guidance import DIALECT
from grammar_backends_guidance.schemas import rewritten

__all__ = ["GuidanceEngine"]


NOT_IMPLEMENTED = re.compile(
    r"unimplemented|(not|only) (currently )?supported|unsupported|unknown format|not (yet )?implemented"
    r"|constraints are not|too (complex|large|many|big|deep)|limit|fuel exhausted",
    re.IGNORECASE,
)

SLICES = [*LLTokenizer.json_slices(), "[a-zA-Z0-9]{1,10}", "[a-zA-Z0-9]+"]
"""Sets of tokens that llguidance looks at as one where a grammar allows all of them: its own for the inside of JSON
strings, and two for narrow patterns, which take a third off the slowest masks of MaskBench's schemas."""

FREE_TOKENS = '%llguidance {"no_forcing": true}'
"""Makes a row show every legal token.

Of text that must come next, llguidance else shows one token alone, of a cut that the text behind it may change: of
"explore" and "exploit", which are `expl`, `ore` and `ex`, `plo`, `it` to a tokenizer, only `ex` (A12).
"""

NO_TOKEN = "NoExtensionBias"
"""llguidance's word for a dead end."""


class GuidanceEngine:
    """`Engine` over `llguidance.LLMatcher`.

    Args:
        vocabulary: any.
        options: llguidance's parser limits, by their names (B14).
    """

    version = importlib.metadata.version("llguidance")
    finds_dead_ends = True

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self._vocabulary = vocabulary
        try:
            self._tokenizer = LLTokenizer(_Tokens(vocabulary), eos_token=list(vocabulary.stop_ids), slices=SLICES)
        except Exception as error:
            raise VocabularyError(f"llguidance cannot use {vocabulary.name}: {error}") from error

        self._limits = LLParserLimits(**options)
        # Compiling is so quick that checking is compiling; whoever then compiles the same spec gets it for nothing.
        self._compiled = functools.lru_cache(maxsize=32)(self._compile)

    def compile(self, spec: GrammarSpec) -> GuidanceArtifact:
        return self._compiled(spec)

    def check(self, spec: GrammarSpec) -> None:
        """`SpecChecker.check`."""
        self._compiled(spec)

    def _compile(self, spec: GrammarSpec) -> GuidanceArtifact:
        try:
            grammar = self._grammar(spec)
        except SpecError:
            raise
        except Exception as error:
            raise _spec_error(spec, str(error)) from error
        is_lark = spec.kind is GrammarKind.GRAMMAR and syntax_of(spec) == "lark"
        artifact = GuidanceArtifact(
            functools.partial(LLMatcher, self._tokenizer, grammar, log_level=0, limits=self._limits),
            self._vocabulary.stop_ids,
            forces=not is_lark,
        )
        if artifact.pristine.is_error():
            raise _spec_error(spec, artifact.pristine.get_error())
        return artifact

    def _grammar(self, spec: GrammarSpec) -> str:
        if spec.kind is GrammarKind.JSON_SCHEMA:
            return _json_grammar(_schema(spec, spec.value))
        if spec.kind is GrammarKind.JSON_OBJECT:
            return _json_grammar(_schema(spec, {"type": "object"} if spec.options.json_object_only else {}))
        if spec.kind is GrammarKind.STRUCTURAL_TAG:
            lark = self._tag_grammar(spec)
        elif spec.kind is GrammarKind.GRAMMAR:
            syntax = syntax_of(spec)
            lark = lark_for(spec.text, DIALECT) if syntax == "lark" else ebnf_to_lark(spec.text, syntax)
        else:
            pattern = spec.text if spec.kind is GrammarKind.REGEX else regex_of_texts(spec.value)
            [regex] = json.loads(LLMatcher.grammar_from_regex(translate(pattern, DIALECT)))["grammars"]
            lark = regex["lark_grammar"]
        return f"{lark}\n{FREE_TOKENS}\n"

    def _tag_grammar(self, spec: GrammarSpec) -> str:
        triggers: list[str] = spec.value["triggers"]
        tags = []
        for index, item in enumerate(spec.value["structures"]):
            for member in ("begin", "end"):
                self._refuse_control_tokens(item[member], f"/structures/{index}/{member}")
            trigger = next(trigger for trigger in triggers if item["begin"].startswith(trigger))
            grammar = _schema(spec, item.get("schema", {}))
            tags.append(StructTag(trigger=trigger, begin=item["begin"], grammar=grammar, end=item["end"]))
        return str(StructTag.to_grammar(tags, assume_special=False))

    def _refuse_control_tokens(self, text: str, pointer: str) -> None:
        # llguidance takes either the token or its name spelled in text, and where it takes the token, the spelled name
        # is free text that nothing constrains.
        for name in self._vocabulary.tag_names:
            if name in text:
                raise UnsupportedFeature(
                    f"structural_tag: llguidance cannot take both the control token {name} and its name in text",
                    pointer=pointer,
                )

    def fill_rows(self, matchers: Sequence[Matcher], bitmask: Bitmask, rows: Sequence[int]) -> None:
        """`BatchFiller.fill_rows` by a loop over pointers, which `LLExecutor` does not beat on few cores."""
        address, nbytes = bitmask.address, bitmask.words * 4
        for matcher, row in zip(matchers, rows, strict=True):
            # By the engine's own object, and asked at once: each further object is one that is not in the caches.
            engine = matcher.matcher  # type: ignore[attr-defined]  # they are GuidanceMatchers
            engine.unsafe_compute_mask_ptr(address + row * nbytes, nbytes)
            if engine.is_error():
                matcher.check()  # type: ignore[attr-defined]  # as above

    def fill_drafts(
        self, matchers: Sequence[Matcher], bitmask: Bitmask, rows: Sequence[int], drafts: Sequence[Sequence[int]]
    ) -> list[int]:
        """`BatchFiller.fill_drafts`, matcher by matcher: `LLExecutor` does not tell which drafts are legal."""
        address, nbytes = bitmask.address, bitmask.words * 4
        return [
            matcher.fill_drafts(address + row * nbytes, nbytes, tokens)  # type: ignore[attr-defined]  # as above
            for matcher, row, tokens in zip(matchers, rows, drafts, strict=True)
        ]


class GuidanceArtifact:
    """A matcher that is only copied, never advanced: building one costs a thousand times more (A23).

    All copies share its lexer, which grows with the texts that it reads. One that has reached a limit of llguidance is
    of no use to any of them, and another one takes its place.

    Attributes:
        pristine: that matcher.
        forces: whether it may be asked for forced bytes.
    """

    __slots__ = ("_build", "_first", "_stops", "forces", "pristine")

    def __init__(self, build: Callable[[], Any], stops: Sequence[int], *, forces: bool) -> None:
        self._build = build
        self._stops = stops
        self.forces = forces
        self.pristine, self._first = self._looked_at(build())

    def new_matcher(self) -> GuidanceMatcher:
        return GuidanceMatcher(self, self.pristine, self.pristine.deep_copy(), [], True)

    def replace_spent(self, pristine: Any) -> bool:
        """Put another matcher in the place of one whose lexer has reached a limit; whether it has.

        Such a lexer refuses everything, without an error.
        """
        if not self._first or pristine.validate_tokens(self._first):
            return False
        if pristine is self.pristine:
            self.pristine, self._first = self._looked_at(self._build())
        return True

    def _looked_at(self, pristine: Any) -> tuple[Any, list[int]]:
        """A matcher that keeps its first row, so that its copies have it for nothing, and a token of that row.

        There is no token where there is only the end.
        """
        copy = pristine.deep_copy()
        row = np.frombuffer(copy.compute_bitmask(), np.uint8).copy()
        if copy.is_error():
            return pristine, []
        for stop in self._stops:
            row[stop >> 3] &= ~np.uint8(1 << (stop & 7))
        place = int(row.argmax())
        return copy, [place * 8 + int(row[place]).bit_length() - 1] if row[place] else []


class GuidanceMatcher:
    """`Matcher` over `llguidance.LLMatcher`, by the calls that leave it usable after an illegal token (A.2)."""

    __slots__ = (
        "_artifact",
        "_consume_one",
        "_pristine",
        "_tokens",
        "_trusting",
        "fill_at",
        "is_accepting",
        "is_lost",
        "matcher",
    )

    fills_stop_tokens = True

    def __init__(
        self, artifact: GuidanceArtifact, pristine: Any, matcher: Any, tokens: list[int], trusting: bool
    ) -> None:
        self._artifact = artifact
        self._pristine = pristine
        self._tokens = tokens
        self._trusting = trusting  # no illegal token was met so far
        self._drive(matcher)

    def _drive(self, matcher: Any) -> None:
        self.matcher = matcher
        self._consume_one = matcher.consume_token
        self.fill_at = matcher.unsafe_compute_mask_ptr
        self.is_lost = matcher.is_error
        self.is_accepting = matcher.is_accepting

    def consume(self, tokens: Sequence[int]) -> int:
        if self._trusting and len(tokens) == 1:
            # By far the quickest call, but an illegal token ruins the matcher. Whoever sends one may send more.
            if self._consume_one(tokens[0]):
                self._tokens.append(tokens[0])
                return 1
            self._trusting = False
            self._replay()
        consumed: int = self.matcher.try_consume_tokens(tokens)
        if consumed != len(tokens):
            self.check()
            tokens = tokens[:consumed]
        self._tokens.extend(tokens)
        return consumed

    def validate(self, tokens: Sequence[int]) -> int:
        legal: int = self.matcher.validate_tokens(tokens)
        if legal != len(tokens):
            self.check()
        return legal

    def rollback(self, num_tokens: int) -> None:
        if not self.matcher.rollback(num_tokens):
            self.check()
        del self._tokens[len(self._tokens) - num_tokens :]
        self._forget_later_rows()

    def fill_row(self, row: BitmaskRow) -> None:
        self.fill_at(row.address, row.nbytes)

    def fill_drafts(self, address: int, nbytes: int, tokens: Sequence[int]) -> int:
        """Fill a row, and those behind it for each legal token; how many are legal, or -1 where a fill failed."""
        fill_at, engine = self.fill_at, self.matcher
        legal: int = engine.validate_tokens(tokens) if tokens else 0
        if legal:
            engine.consume_tokens(tokens[:legal])
            # From the last to the first, so that there is no later row to forget.
            for place in range(legal, 0, -1):
                fill_at(address + place * nbytes, nbytes)
                engine.rollback(1)
        fill_at(address, nbytes)
        if self.is_lost():
            self._replay()
            return -1
        return legal

    def fork(self) -> GuidanceMatcher:
        copy = self.matcher.deep_copy()
        return GuidanceMatcher(self._artifact, self._pristine, copy, self._tokens.copy(), self._trusting)

    def forced_bytes(self) -> bytes:
        """What must come next, or the first of it where that is more than llguidance's limits allow.

        Of Lark nothing is said, whose lexer takes the longest match: where a terminal takes what must follow it, as in
        `/a+/ /a/`, llguidance would add one `a` after the other for ever.
        """
        # Of a copy: it reads ahead for good, up to a limit that it does not survive.
        forced = bytes(self.matcher.deep_copy().compute_ff_bytes()) if self._artifact.forces else b""
        self._artifact.replace_spent(self._pristine)
        return forced

    def check(self) -> None:
        """Raise if the matcher is in its error state, whose row allows the stop tokens only, or its lexer is spent."""
        is_spent = self._artifact.replace_spent(self._pristine)
        if not self.is_lost():
            if is_spent:
                raise GrammarError("llguidance: its lexer has reached a limit (initial_lexer_fuel, max_lexer_states)")
            return
        problem = self.matcher.get_error().partition("\n")[0]
        if problem != NO_TOKEN:
            raise GrammarError(f"llguidance: {problem}")
        # Computing the row of a dead end ruins the matcher, but the state itself is sound and can be rolled back.
        self._replay()
        raise DeadEnd(f"no token is legal after {len(self._tokens)} tokens")

    def _forget_later_rows(self) -> None:
        """Make the row of this state the one that llguidance keeps.

        It keeps the last row that it computed, beyond a rollback, and gives it for every state with as many lexemes
        behind it and the same lexemes ahead: after `[["x"` was looked at and taken back, for `[[]` too, where it then
        allows `]]` (A15).
        """
        self.matcher.compute_bitmask()
        if self.is_lost():
            self._replay()

    def _replay(self) -> None:
        """Put a sound matcher in the same state in the place of a ruined one."""
        copy = self._pristine.deep_copy()
        copy.try_consume_tokens(self._tokens)
        self._drive(copy)


class _Tokens:
    """A vocabulary in the shape that `LLTokenizer` reads."""

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.stop_ids[0]
        self.bos_token_id = None
        self.special_token_ids = sorted(vocabulary.special_ids)
        names = vocabulary.special_names
        self.tokens = [names[id_].encode() if id_ in names else t for id_, t in enumerate(vocabulary.text_tokens)]
        # The width of rows is taken from this list alone; a token without bytes is never allowed.
        self.tokens += [b""] * (vocabulary.width - vocabulary.size)

    def __call__(self, text: str | bytes) -> list[int]:
        return []  # never asked: only to force tokens


def _json_grammar(schema: dict[str, Any]) -> str:
    # Options stand in Lark only, where a second grammar may give them. In front, its places would be those of errors.
    options = {"name": "options", "lark_grammar": f'start: ""\n{FREE_TOKENS}'}
    return json.dumps({"grammars": [{"json_schema": schema}, options]})


def _schema(spec: GrammarSpec, schema: Any) -> dict[str, Any]:
    """A schema as llguidance takes it, with the options of the request inside."""
    if schema is False:
        raise SpecError(f"{spec.kind}: the schema false allows no text")
    options: dict[str, Any] = {
        "whitespace_flexible": spec.options.whitespace == "any",
        # Read as anyOf: only schemas whose branches exclude each other come here. llguidance itself sees that of few.
        "coerce_one_of": True,
        "lenient": False,
    }
    if spec.options.whitespace == "any" and spec.options.max_whitespace is not None:
        options["whitespace_pattern"] = rf"[\x20\x0A\x0D\x09]{{1,{spec.options.max_whitespace}}}"
    return {**(rewritten(schema) if isinstance(schema, dict) else {}), "x-guidance": options}


def _spec_error(spec: GrammarSpec, text: str) -> SpecError:
    kind = UnsupportedFeature if NOT_IMPLEMENTED.search(text) else SpecError
    found = re.search(r"\bat (?:line )?(\d+)(?:\(| column |, column |:)(\d+)", text) or re.search(
        r"^(\d+)\((\d+)\):", text
    )
    line, column = (int(found[1]), int(found[2])) if found else (None, None)
    return kind(f"{spec.kind}: llguidance cannot compile it", line=line, column=column, engine_text=text)
