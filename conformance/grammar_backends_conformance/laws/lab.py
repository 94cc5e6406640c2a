"""A lab: one backend with one vocabulary, and what laws do with them.

A lab hands out grammars that keep a journal, looks at their states, and compares answers with what the contract
demands; whatever differs is raised as a `Violation` that can be done again. It names no backend: everything follows
the declared `Capabilities`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grammar_backends.contract import (
    Capabilities,
    CompiledGrammar,
    GrammarBackend,
    GrammarSpec,
    StructuredOutputGrammar,
    Vocabulary,
    pack_ids,
    unpack_ids,
)
from grammar_backends.errors import ArtifactError, CompileError, GrammarError, SpecError, UnsupportedFeature
from grammar_backends.kernels.apply import available_implementations
from grammar_backends.plugins.host import load_attribute
from grammar_backends_conformance.laws.applied import surviving_ids
from grammar_backends_conformance.laws.journal import Journal, RecordingGrammar
from grammar_backends_conformance.laws.law import Counts, Unsupported, Violation
from grammar_backends_conformance.laws.samples import Sample, samples_for

__all__ = ["Lab", "State"]

SMALL_WIDTH = 2_000
"""Up to this width of rows everything is cheap enough to be done for every id and every mask."""

SAMPLED_IDS = 3_000
APPLIED_MASKS = 64
"""Of a wide vocabulary, different masks that are applied to logits."""


@dataclass(frozen=True)
class State:
    """All that can be observed of a grammar.

    Attributes:
        row: the bytes of its row; none in the error state.
        accepting, terminated, num_accepted: its own answers.
        error: the type of its error.
    """

    row: bytes
    accepting: bool
    terminated: bool
    num_accepted: int
    error: str | None

    @property
    def allowed(self) -> list[int]:
        """The ids in its row."""
        return unpack_ids(np.frombuffer(self.row, dtype=np.int32))


class Lab:
    """One backend with one vocabulary.

    Args:
        backend: with the judgement that its users meet in front of the engine.
        vocabulary_name: what the suite calls the vocabulary; its own name when empty.

    Attributes:
        backend, vocabulary, vocabulary_name: as given.
        counts: how much was compared so far.
        journal: what was done with grammars since the last `begin`.
    """

    def __init__(self, backend: GrammarBackend, vocabulary_name: str = "", *, header: Sequence[str] = ()) -> None:
        self.backend = backend
        self.vocabulary: Vocabulary = backend.vocabulary
        self.vocabulary_name = vocabulary_name or backend.vocabulary.name
        self.counts = Counts()
        self.journal = Journal(header or self._header(), self.vocabulary)
        self._compiled: dict[GrammarSpec, CompiledGrammar] = {}
        self._applied: set[int] = set()  # contents of rows whose application was compared

    def _header(self) -> list[str]:
        return [
            "import numpy as np",
            "import torch",
            "from grammar_backends import GrammarKind, GrammarOptions, GrammarSpec, load_backend",
            "from grammar_backends.decoding import fill_bitmasks",
            "from grammar_backends_conformance.laws.lab import Lab",
            "from grammar_backends_conformance.vocabularies import suite_vocabulary",
            f"vocabulary = suite_vocabulary({self.vocabulary_name!r})",
            f"lab = Lab(load_backend({self.name!r}, vocabulary), {self.vocabulary_name!r})",
        ]

    def __repr__(self) -> str:
        return f"<Lab {self.name} with {self.vocabulary_name}>"

    # -- what it works with

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.backend.name

    @property
    def capabilities(self) -> Capabilities:
        return self.backend.capabilities

    @property
    def stop(self) -> int:
        """The first stop id."""
        return self.vocabulary.stop_ids[0]

    @property
    def controls(self) -> frozenset[int]:
        """Special ids that do not stop: legal nowhere but where a grammar names them."""
        return self.vocabulary.special_ids - self.vocabulary.stop_set

    @property
    def is_small(self) -> bool:
        return self.vocabulary.width <= SMALL_WIDTH

    @property
    def full(self) -> bool:
        """Whether rows have exactly the tokens that are accepted (A12)."""
        return self.capabilities.mask == "full"

    @functools.cached_property
    def samples(self) -> list[Sample]:
        """`samples_for` this lab."""
        return samples_for(self)

    def begin(self) -> None:
        """Start a law: a new journal."""
        self.journal.clear()

    def widened(self, width: int) -> Lab:
        """The same engine anew, for rows of `width` ids."""
        return self._sibling(self.vocabulary.with_width(width), f"vocabulary.with_width({width})")

    def with_tokens(self, tokens: Sequence[bytes], special_ids: Collection[int], stop_ids: Collection[int]) -> Lab:
        """The same engine anew, with a vocabulary made of these tokens."""
        vocabulary = Vocabulary.from_bytes(tokens, special_ids, stop_ids, name="made for a law")
        return self._sibling(vocabulary, f"Vocabulary.from_bytes({tokens!r}, {list(special_ids)}, {list(stop_ids)})")

    def _sibling(self, vocabulary: Vocabulary, source: str) -> Lab:
        spec = self.backend.spec
        engine = load_attribute(spec.factory)(vocabulary, {})
        backend = GrammarBackend(spec, engine, vocabulary, self.backend.judge)
        lines = ["from grammar_backends import Vocabulary", f"lab = Lab(load_backend({self.name!r}, {source}))"]
        lab = Lab(backend, self.vocabulary_name, header=[*self.journal.header, *lines])
        lab.counts = self.counts
        return lab

    # -- grammars

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Compiled once for the lab; a refusal is a violation."""
        if spec not in self._compiled:
            self._compiled[spec] = self.compile_anew(spec)
        return self._compiled[spec]

    def compile_anew(self, spec: GrammarSpec) -> CompiledGrammar:
        """As `compile`, by an engine that may have compiled it before."""
        try:
            return self.backend.compile_grammar(spec)
        except (SpecError, CompileError) as error:
            self.journal.note("lab.compile({})", spec)
            self.journal.subject = spec
            raise self.violation(f"the {spec.kind} does not compile", "a grammar", error) from error

    def refusal(self, spec: GrammarSpec) -> SpecError | CompileError | None:
        """The error with which the backend refuses to compile; None when it compiles."""
        self.journal.note("lab.backend.compile_grammar({})", spec)
        self.journal.subject = spec
        try:
            self.backend.compile_grammar(spec)
        except (SpecError, CompileError) as error:
            return error
        except Exception as error:
            raise self.violation(
                "compile_grammar raised what no caller can handle",
                "SpecError, UnsupportedFeature or CompileError",
                error,
            ) from error
        return None

    def require(self, declared: bool, spec: GrammarSpec) -> None:
        """Go on only with what is declared; what is not must be refused by `UnsupportedFeature` (B4).

        Raises:
            Unsupported: it is not declared, and refused as it must be.
            Violation: it is not declared, and yet accepted, or refused by another error.
        """
        if declared:
            return
        error = self.refusal(spec)
        self.demand(
            isinstance(error, UnsupportedFeature),
            f"{spec.kind} is not declared and not refused as unsupported: {spec.text[:200]}",
            "UnsupportedFeature",
            error,
        )
        raise Unsupported(str(error))

    def grammar(self, spec: GrammarSpec, text: str = "", **options: Any) -> RecordingGrammar:
        """A grammar after the tokenizer's own encoding of `text`, which must be legal.

        `options` are those of `CompiledGrammar.new_grammar`.
        """
        return self.advanced(self.new_grammar(spec, **options), text)

    def reload(self, spec: GrammarSpec, times: int = 1) -> CompiledGrammar:
        """The lab's compiled grammar, dumped and loaded that many times, each time by an engine made anew."""
        backend, compiled = self.backend, self.compile(spec)
        try:
            for _ in range(times):
                data = backend.dump_grammar(compiled)
                backend = self.widened(self.vocabulary.width).backend
                compiled = backend.load_grammar(spec, data)
        except (ArtifactError, CompileError) as error:
            self.journal.note("lab.reload({})", spec)
            raise self.violation("an artifact cannot be dumped and loaded", "a grammar", error) from error
        return compiled

    def new_grammar(
        self, spec: GrammarSpec, compiled: CompiledGrammar | None = None, how: str = "compile_anew", **options: Any
    ) -> RecordingGrammar:
        """A grammar in its initial state, of the lab's compiled grammar unless another one is given.

        `how` names the method of the lab that made the other one.
        """
        made = (compiled or self.compile(spec)).new_grammar(**options)
        how = how if compiled is not None else "compile"
        arguments = ", ".join(f"{name}={{}}" for name in options)
        return self.journal.record(made, spec, f"lab.{how}({{}}).new_grammar({arguments})", spec, *options.values())

    def advanced(self, grammar: RecordingGrammar, text: str) -> RecordingGrammar:
        """The same grammar after `text`, which must be legal."""
        tokens = self.encode(text)
        if tokens:
            self.equal(grammar.accept_tokens("lab", tokens), True, f"{text[:80]!r} is legal and was refused")
        return grammar

    def encode(self, text: str) -> list[int]:
        return self.vocabulary.encode(text)

    def token(self, data: bytes) -> int | None:
        """The first text token with these bytes."""
        tokens = self.vocabulary.text_tokens
        return tokens.index(data) if data in tokens else None

    def twins(self, sample: Sample, text: str = "", **options: Any) -> tuple[RecordingGrammar, RecordingGrammar]:
        """Two grammars in the same state: one to be tried, one to compare it with."""
        return self.grammar(sample.spec, text, **options), self.grammar(sample.spec, text, **options)

    # -- what can be seen of a grammar

    def row(self, grammar: StructuredOutputGrammar, stale: int = -1) -> NDArray[np.int32]:
        """The row that a grammar fills, int32 ``[words]``, over words that held `stale`.

        Each different row (of a wide vocabulary, some of them) is applied to logits on the way, which must leave
        exactly the row's tokens (H7).
        """
        bitmask = np.full((1, self.vocabulary.words), stale, dtype=np.int32)
        recorded = isinstance(grammar, RecordingGrammar)
        mark = self.journal.mark()
        grammar.fill_bitmask(bitmask, 0)
        if recorded:
            self.journal.forget(mark)
            self.journal.note(f"lab.row({grammar!r}, {{}})", stale)
        self.counts.masks += 1
        content = hash(bitmask.tobytes())
        if content not in self._applied and (self.is_small or len(self._applied) < APPLIED_MASKS):
            self._apply(bitmask[0])
            self._applied.add(content)
        written: NDArray[np.int32] = bitmask[0]
        return written

    def _apply(self, row: NDArray[np.int32]) -> None:
        expected = np.append(row, np.int32(0))
        for implementation in available_implementations():
            for dtype, words in surviving_ids(implementation, row):
                self.counts.checks += 1
                if not np.array_equal(words, expected):
                    wrong = sorted(set(unpack_ids(words)) ^ set(unpack_ids(expected)))
                    raise self.violation(
                        f"{implementation.name} leaves other {dtype} logits than the mask allows (H7)",
                        "the ids of the mask",
                        f"differs at {wrong[:20]}",
                    )

    def allowed(self, grammar: StructuredOutputGrammar) -> set[int]:
        """The ids that a grammar's row allows."""
        return set(unpack_ids(self.row(grammar)))

    def state(self, grammar: StructuredOutputGrammar) -> State:
        """All that can be observed of a grammar, by calls that must not change it."""
        mark = self.journal.mark()
        error = grammar.error
        try:
            row = b"" if error is not None else self.row(grammar).tobytes()
        except GrammarError as raised:
            row, error = b"", raised
        state = State(
            row,
            grammar.is_accepting(),
            grammar.is_terminated(),
            grammar.num_accepted,
            None if error is None else type(error).__name__,
        )
        if isinstance(grammar, RecordingGrammar):
            self.journal.forget(mark)
            self.journal.note(f"lab.state({grammar!r})")
        self.counts.states += 1
        return state

    def illegal(self, grammar: StructuredOutputGrammar) -> int:
        """A token that is not legal now: text where there is some, else a control token."""
        tokens = self.vocabulary.text_tokens
        some = (id_ for id_ in self.some_ids() if id_ < len(tokens) and tokens[id_])
        for id_ in some:
            if not grammar.validate_tokens([id_]):
                return id_
        return max(self.controls, default=self.vocabulary.size)

    def some_ids(self) -> Sequence[int]:
        """Every id of a row; of a large vocabulary all special ids and 3,000 others, spread evenly."""
        width = self.vocabulary.width
        if self.is_small:
            return range(width)
        return sorted({*self.vocabulary.special_ids, *range(7, width, width // SAMPLED_IDS), width - 1})

    # -- verdicts

    def equal(self, got: Any, expected: Any, message: str) -> None:
        """Compare an answer with what the contract demands."""
        self.counts.checks += 1
        if got != expected:
            raise self.violation(message, *_differences(expected, got))

    def demand(self, condition: bool, message: str, expected: Any = True, got: Any = False) -> None:
        """Demand that something holds."""
        self.counts.checks += 1
        if not condition:
            raise self.violation(message, expected, got)

    def same(self, grammar: StructuredOutputGrammar, expected: State, message: str) -> None:
        """Demand that a grammar is in a state, in all that can be observed."""
        self.equal(self.state(grammar), expected, message)

    def same_future(
        self, grammar: StructuredOutputGrammar, twin: StructuredOutputGrammar, tokens: Sequence[int], message: str
    ) -> None:
        """Demand that two grammars are in one state, now and after each of `tokens`.

        What a grammar hides shows only when it goes on.
        """
        self.same(grammar, self.state(twin), message)
        for token in tokens:
            accepted = twin.accept_tokens("lab", [token])
            self.equal(grammar.accept_tokens("lab", [token]), accepted, message)
            self.same(grammar, self.state(twin), message)

    def raises(self, errors: type[Exception], call: Callable[[], object], message: str) -> Exception:
        """Demand that a call raises one of these errors, and return it."""
        self.counts.checks += 1
        try:
            got = call()
        except errors as error:
            return error
        except Violation as violation:
            violation.message = f"{message}: {violation.message}"
            raise
        raise self.violation(message, errors.__name__, got)

    def violation(self, message: str, expected: Any = None, got: Any = None) -> Violation:
        """A `Violation` about the grammar or spec that was used last, with the journal so far."""
        return self.journal.violation(message, expected, got)

    def pack(self, ids: Iterable[int]) -> NDArray[np.int32]:
        """A row that allows these ids."""
        return pack_ids(sorted(ids), self.vocabulary.width)


def _differences(expected: Any, got: Any) -> tuple[Any, Any]:
    """Both values, with large sets of ids cut down to what differs."""
    if isinstance(expected, State) and isinstance(got, State):
        return _state_differences(expected, got)
    if isinstance(expected, (set, frozenset)) and isinstance(got, (set, frozenset)) and len(expected | got) > 40:
        return f"allowed {sorted(expected - got)[:20]}", f"allowed {sorted(got - expected)[:20]} (only what differs)"
    return expected, got


def _state_differences(expected: State, got: State) -> tuple[dict[str, Any], dict[str, Any]]:
    wanted, found = dict(vars(expected)), dict(vars(got))
    names = [name for name in wanted if wanted[name] != found[name]]
    pair = {name: wanted[name] for name in names}, {name: found[name] for name in names}
    if "row" in names:
        pair[0]["row"], pair[1]["row"] = _differences(set(expected.allowed), set(got.allowed))
    return pair
