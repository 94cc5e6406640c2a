"""What a backend is: the plain data that registers it, and what an engine's adapter must offer.

Three lifetimes are kept apart (B2): an `Engine` lives as long as the inference engine, an `Artifact` as long as
somebody caches it, a `Matcher` as long as one request. `GrammarBackend` and `CompiledGrammar` are what callers see:
they add, once for every engine, the checks and the semantics that no adapter has to write.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from grammar_backends.contract.grammar import Artifact, BatchFiller, Grammar, GrammarMaker, StructuredOutputGrammar
from grammar_backends.contract.regex import RegexDialect
from grammar_backends.contract.serial import ArtifactSerializer, identity_key, seal, unseal
from grammar_backends.contract.spec import GrammarKind, GrammarSpec
from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import (
    ArtifactError,
    CompileError,
    DeadEnd,
    GrammarBackendsError,
    GrammarError,
    PluginError,
    SpecError,
    UnsupportedFeature,
    VocabularyError,
    trim,
)
from grammar_backends.installation import installed_version

__all__ = [
    "API_VERSION",
    "BackendSpec",
    "Capabilities",
    "CompiledGrammar",
    "Engine",
    "GrammarBackend",
    "GrammarSupport",
    "SpecChecker",
]

API_VERSION = 1
"""The version of the plugin interface; a plugin made for another one is recorded as incompatible."""

Answer = TypeVar("Answer")
TagForm = Literal["legacy", "format"]

_version_of = functools.cache(installed_version)


@dataclass(frozen=True, slots=True)
class GrammarSupport:
    """What an engine does with grammars. Plain data, one value per engine.

    Attributes:
        ebnf_extensions: xgrammar's constructs that the engine enforces, such as "TagDispatch"; "*" for all.
        lazy_terminals: lazy repetitions in Lark terminals end a terminal as early as they can.
        foreign_terminals: Lark terminals outside the layer's regex dialect are enforced, or refused loudly.
        lark_attributes: rule attributes (`x[max_tokens=3]`) that change the language and are enforced.
        lark_directives: embedded `%json`, `%regex` and the like that are fully enforced.
    """

    ebnf_extensions: frozenset[str] = frozenset()
    lazy_terminals: bool = True
    foreign_terminals: bool = True
    lark_attributes: frozenset[str] = frozenset()
    lark_directives: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine enforces, as plain data. What is not declared is refused before the engine sees it.

    Attributes:
        kinds: the kinds of constraint.
        syntaxes: how a grammar may be written: "ebnf", "lark", "gbnf".
        structural_tags: which forms of structural tag: "legacy" (structures and triggers), "format".
        mask: "full" when a row has exactly the tokens that validate accepts; "canonical" when it may leave out
            other spellings of forced text (A12).
        forced_tokens, forced_bytes: whether forced continuations can be asked for (I1); who knows the bytes knows the
            tokens, which the layer makes of them.
        compact_whitespace: whether ``whitespace="compact"`` is enforced (B5).
        closed_objects: whether ``additional_properties="closed"`` is enforced.
        regex: how the engine wants patterns written and what it cannot do (C3); None when it reads the layer's
            dialect as it stands and refuses the rest.
        grammar: what the engine does with grammars that another reads differently; None when it refuses whatever it
            would not enforce.
        support: measured tables of what the engine enforces inside schemas, as ``package:file.json``; None when the
            engine itself refuses whatever it would not enforce.
        costs: measured model of what specs cost, as ``package:file.json``; None when there is none, and a choice by
            speed then asks the backend last.
        safe_in_threads: kinds that the engine compiles, first mask included, without ever hanging, crashing or taking
            much memory, whatever the spec. All others are compiled in a process that can be killed (E6).
        options: names of the options that the factory takes, others are refused (B14); None when it checks them itself.
            `compile_threads`, the threads inside one compilation, is set by whoever counts threads (E2); artifacts
            are the same with any number of them.
    """

    kinds: frozenset[GrammarKind]
    syntaxes: frozenset[str] = frozenset()
    structural_tags: frozenset[TagForm] = frozenset()
    mask: Literal["full", "canonical"] = "full"
    forced_tokens: bool = False
    forced_bytes: bool = False
    compact_whitespace: bool = False
    closed_objects: bool = False
    regex: RegexDialect | None = None
    grammar: GrammarSupport | None = None
    support: str | None = None
    costs: str | None = None
    safe_in_threads: frozenset[GrammarKind] = frozenset()
    options: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """How a plugin registers a backend: frozen data; making one imports no engine.

    Attributes:
        name: unique, lower case, words joined by "-".
        factory: ``"package.module:attribute"`` of a callable ``(vocabulary, options) -> Engine``, imported when
            the backend is first used.
        api_version: the `API_VERSION` that the plugin was written for.
        capabilities: what it enforces.
        priority: place in the automatic chain, lower first; None: never chosen automatically (C2.8).
        distribution: the distribution whose version is shown, for messages about the plugin.
        engine: the distribution of the engine below, for its version; `distribution` when absent.
    """

    name: str
    factory: str
    api_version: int
    capabilities: Capabilities
    priority: int | None = None
    distribution: str = ""
    engine: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+([-_][a-z0-9]+)*", self.name):
            raise PluginError(f"backend name {self.name!r} is not lower-case words joined by '-'")
        if not re.fullmatch(r"[\w.]+:[\w.]+", self.factory):
            raise PluginError(f"factory {self.factory!r} of backend {self.name} is not 'package.module:attribute'")
        if not isinstance(self.capabilities, Capabilities):
            raise PluginError(f"capabilities of backend {self.name} are {self.capabilities!r}, not Capabilities")
        if self.priority is not None and (not isinstance(self.priority, int) or isinstance(self.priority, bool)):
            raise PluginError(f"priority {self.priority!r} of backend {self.name} is neither an integer nor None")


@runtime_checkable
class Engine(Protocol):
    """What a plugin's factory returns: compiles, without policy. Thread-safe."""

    version: str
    """The version of the engine below."""

    def compile(self, spec: GrammarSpec) -> Artifact:
        """Compile a spec that the declared capabilities cover; slow, called from any thread.

        Raises:
            SpecError: the engine finds the spec malformed or unsatisfiable.
            UnsupportedFeature: the engine would not enforce all of it.
        """
        ...


@runtime_checkable
class SpecChecker(Protocol):
    """Optional for an `Engine`: says quickly whether it would compile a spec."""

    def check(self, spec: GrammarSpec) -> None:
        """Raise what `Engine.compile` would raise, as far as a few milliseconds can tell.

        The automatic choice asks this before it settles on a backend.
        """
        ...


class CompiledGrammar:
    """A compiled spec: immutable, cacheable, shared by requests and threads (B2).

    Attributes:
        spec: what was asked for; the engine may have got another form of it (`GrammarBackend.judge`).
        backend: the backend that compiled it.
    """

    __slots__ = ("_artifact", "_filler", "_make", "_open_rows", "_vocabulary", "backend", "spec")

    def __init__(self, spec: GrammarSpec, backend: GrammarBackend, artifact: Artifact) -> None:
        self.spec = spec
        self.backend = backend
        self._artifact = artifact
        self._make = artifact.new_grammar if isinstance(artifact, GrammarMaker) else None
        self._vocabulary = vocabulary = backend.vocabulary
        # Padded ids are never legal, and control tokens only by rules that name them (A29).
        names_tokens = spec.kind in (GrammarKind.GRAMMAR, GrammarKind.STRUCTURAL_TAG)
        full_words = vocabulary.size == 32 * vocabulary.words
        self._open_rows = full_words and (names_tokens or not vocabulary.has_control_tokens)
        self._filler = backend.engine if isinstance(backend.engine, BatchFiller) else None

    @property
    def nbytes(self) -> int | None:
        """Memory it holds, in bytes; None where the engine does not say."""
        nbytes: int | None = getattr(self._artifact, "nbytes", None)
        return nbytes

    def new_grammar(
        self, stop_token_ids: Sequence[int] | None = None, max_rollback: int | None = None
    ) -> StructuredOutputGrammar:
        """A grammar in its initial state for one request, in microseconds (A23).

        Args:
            stop_token_ids: replaces the vocabulary's stop ids for this request (A10); None or empty keeps them.
            max_rollback: steps that can be taken back; None is unbounded. For speculation at least one more than
                the number of draft tokens (A27).

        Raises:
            VocabularyError: a stop id outside the vocabulary.
            ValueError: a negative `max_rollback`.
            TypeError: a stop id or `max_rollback` is no integer.
        """
        vocabulary = self._vocabulary
        stops = vocabulary.stop_set
        if stop_token_ids is not None and len(stop_token_ids):
            stops = frozenset(map(index, stop_token_ids))
            for id_ in stops:
                if not 0 <= id_ < vocabulary.size:
                    raise VocabularyError(f"stop id {id_} is outside 0..{vocabulary.size - 1}")
        if max_rollback is not None and index(max_rollback) < 0:
            raise ValueError(f"max_rollback must be at least 0, not {max_rollback}")
        if self._make is not None:
            return self._make(stops, max_rollback)
        return Grammar(self._artifact, vocabulary, stops, max_rollback, self._filler, self._open_rows)

    def __repr__(self) -> str:
        return f"<CompiledGrammar {self.spec} by {self.backend.name}>"


@dataclass(slots=True)
class GrammarBackend:
    """One engine with one vocabulary, behind the layer's checks. Thread-safe.

    Attributes:
        spec: what the plugin registered.
        engine: the plugin's own object.
        vocabulary: whose rows it fills.
        judge: what the engine is to compile for a spec: the spec itself, or one that means the same and that the engine
            enforces. Raises when there is none. Set by whoever loads the backend.
        options: those that the engine was made with; part of what its artifacts depend on.
    """

    spec: BackendSpec
    engine: Engine
    vocabulary: Vocabulary
    judge: Callable[[GrammarSpec], GrammarSpec]
    options: Mapping[str, Any] = field(default_factory=dict)
    _destroyed: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def version(self) -> str:
        return self.engine.version

    @property
    def capabilities(self) -> Capabilities:
        return self.spec.capabilities

    def compile_grammar(self, spec: GrammarSpec) -> CompiledGrammar:
        """Compile a spec; slow, callable from any thread.

        Raises:
            SpecError: malformed, or nothing could ever satisfy it (B12).
            UnsupportedFeature: this engine would not enforce all of it.
            CompileError: the engine failed.
        """
        if self._destroyed:
            raise CompileError(f"backend {self.name} was destroyed", backend=self.name)
        compiled = CompiledGrammar(spec, self, self._ask(self.engine.compile, self.judge(spec)))
        self._check_first_mask(compiled)
        return compiled

    @property
    def serializer(self) -> ArtifactSerializer | None:
        """The engine, when it can write artifacts as bytes and read them; None when its grammars are compiled anew."""
        return self.engine if isinstance(self.engine, ArtifactSerializer) else None

    def artifact_key(self, spec: GrammarSpec) -> str:
        """A digest of all that this spec's artifact depends on: backend and engine with their versions, options,
        vocabulary, and what the engine is to compile (B3). The address of the artifact in a cache.

        Raises:
            SpecError: as `compile_grammar`, as far as the judgement in front of the engine tells.
            ArtifactError: the engine has no serial form.
        """
        return identity_key(self._identity(spec))

    def dump_grammar(self, compiled: CompiledGrammar) -> bytes:
        """A compiled grammar of this backend as bytes, for `load_grammar` in this or another process.

        Raises:
            ArtifactError: the engine has no serial form, or none for this artifact; or another backend compiled it.
            CompileError: the engine failed.
        """
        if compiled.backend is not self:
            raise ArtifactError(f"{compiled} was compiled by another backend object than this {self.name}")
        serializer, identity = self._serializer(), self._identity(compiled.spec)
        try:
            payload = serializer.dump_artifact(compiled._artifact)
        except ArtifactError:
            raise
        except Exception as error:
            raise self._failure(compiled.spec, error) from error
        return seal(identity, payload)

    def load_grammar(self, spec: GrammarSpec, data: bytes) -> CompiledGrammar:
        """The grammar that `compile_grammar(spec)` would give, from the bytes of `dump_grammar`.

        The bytes must be whole, and made by the same backend and engine, in the same versions and with the same
        options but for `compile_threads`, for the same vocabulary and the same spec. The first mask is looked at as
        after compiling (B12).

        Raises:
            SpecError, UnsupportedFeature: as `compile_grammar`.
            ArtifactError: the bytes are damaged or foreign, or the engine has no serial form.
        """
        serializer, payload = self._serializer(), unseal(self._identity(spec), data)
        try:
            compiled = CompiledGrammar(spec, self, serializer.load_artifact(payload))
            self._check_first_mask(compiled)
        except Exception as error:
            raise ArtifactError(
                f"{self.name} {self.version} cannot use the artifact of {spec}: {type(error).__name__}: "
                f"{trim(str(error))}"
            ) from error
        return compiled

    def _serializer(self) -> ArtifactSerializer:
        if self._destroyed:
            raise CompileError(f"backend {self.name} was destroyed", backend=self.name)
        if self.serializer is None:
            raise ArtifactError(f"{self.name} has no serial form of its artifacts")
        return self.serializer

    def _identity(self, spec: GrammarSpec) -> dict[str, str]:
        """What an artifact of this backend depends on."""
        options = {name: value for name, value in self.options.items() if name != "compile_threads"}
        return {
            "backend": self.name,
            "plugin version": _version_of(self.spec.distribution) or "",
            "engine version": self.version,
            "format": self._serializer().serial_format,
            "options": json.dumps(options, sort_keys=True, default=repr),
            "vocabulary": self.vocabulary.fingerprint,
            "spec": self.judge(spec).key,
        }

    def check_spec(self, spec: GrammarSpec) -> None:
        """As `compile_grammar`, as far as can be told within milliseconds."""
        judged = self.judge(spec)
        if isinstance(self.engine, SpecChecker):
            self._ask(self.engine.check, judged)

    def _ask(self, call: Callable[[GrammarSpec], Answer], spec: GrammarSpec) -> Answer:
        try:
            return call(spec)
        except SpecError as error:
            error.backend = error.backend or f"{self.name} {self.version}"
            raise
        except GrammarBackendsError:
            raise
        except Exception as error:
            raise self._failure(spec, error) from error

    def _failure(self, spec: GrammarSpec, error: Exception) -> CompileError:
        """What to raise when the engine fails in its own words."""
        return CompileError(
            f"{self.name} {self.version} failed on {spec}: {type(error).__name__}: {trim(str(error))}",
            backend=self.name,
        )

    def _check_first_mask(self, compiled: CompiledGrammar) -> None:
        """Compile-time satisfiability (B12): the first row must allow something."""
        try:
            compiled.new_grammar().fill_bitmask(np.empty((1, self.vocabulary.words), dtype=np.int32), 0)
        except DeadEnd:
            raise SpecError(
                f"{compiled.spec.kind}: no text of this vocabulary satisfies it", backend=f"{self.name} {self.version}"
            ) from None
        except GrammarError as error:
            raise CompileError(f"{self.name} {self.version}: {error}", backend=self.name) from error

    def destroy(self) -> None:
        """Release native objects; a second call does nothing (B13). Call it after the last compile has ended."""
        if self._destroyed:
            return
        self._destroyed = True
        close = getattr(self.engine, "close", None)
        if close is not None:
            close()


def unsupported_kind(spec: GrammarSpec, backend: BackendSpec) -> UnsupportedFeature | None:
    """Why a backend's declared capabilities do not cover the kind of this spec; None when they do (B4, B10)."""
    capabilities = backend.capabilities
    if spec.kind not in capabilities.kinds:
        return UnsupportedFeature(f"{backend.name} does not enforce {spec.kind}", keyword=spec.kind.value)
    if spec.kind is GrammarKind.STRUCTURAL_TAG:
        form: TagForm = "format" if "format" in spec.value else "legacy"
        if form not in capabilities.structural_tags:
            return UnsupportedFeature(
                f"{backend.name} does not enforce structural tags in the {form} form", keyword=form
            )
    json_kind = spec.kind in (GrammarKind.JSON_SCHEMA, GrammarKind.JSON_OBJECT, GrammarKind.STRUCTURAL_TAG)
    if json_kind and spec.options.whitespace == "compact" and not capabilities.compact_whitespace:
        return UnsupportedFeature(f'{backend.name} does not enforce whitespace="compact"', keyword="whitespace")
    if json_kind and spec.options.additional_properties == "closed" and not capabilities.closed_objects:
        return UnsupportedFeature(
            f'{backend.name} does not enforce additional_properties="closed"', keyword="additional_properties"
        )
    return None
