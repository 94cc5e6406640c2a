"""One compilation from end to end: choose a backend, look into the store, compile where it may be compiled.

It knows nothing of tickets, waiting or caches in memory.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, get_args

from grammar_backends.compilation.backends import LiveBackends
from grammar_backends.compilation.isolation import CompileProcesses, Isolation, isolation_of
from grammar_backends.compilation.limits import ManagerLimits
from grammar_backends.compilation.store import ArtifactStore
from grammar_backends.contract import BackendSpec, CompiledGrammar, GrammarBackend, GrammarKind, GrammarSpec, Vocabulary
from grammar_backends.errors import ArtifactError, CompileError, GrammarBackendsError, UnsupportedFeature, shown
from grammar_backends.plugins import PluginHost
from grammar_backends.selection import Policy, Trace, choose
from grammar_backends.statistics import GrammarSource
from grammar_backends.workers import PoolState

__all__ = ["AUTO", "Compilation", "Compiler"]

logger = logging.getLogger(__name__)

AUTO = "auto"

LOAD_SECONDS = 180.0
"""How long a backend may take to load: that is no part of a spec's budget."""

Watch = Callable[[float], AbstractContextManager[object]]
"""Makes a context for a call that cannot be stopped, with the seconds it may take."""


@dataclass(slots=True)
class Compilation:
    """What is to be compiled, and what is known of it so far.

    Attributes:
        asked: a backend's name, or "auto".
        spec: the spec.
        artifact: the grammar as bytes, to be read and not compiled; None to compile it.
        backend: who works on it, or did last.
        trace: the automatic choice, once it is made.
        source, isolation, seconds: see `Provenance`.
    """

    asked: str
    spec: GrammarSpec
    artifact: bytes | None = None
    watch: Watch = contextlib.nullcontext
    backend: str = AUTO
    trace: Trace | None = None
    source: GrammarSource = "compiled"
    isolation: str = ""
    seconds: float = 0.0


class Compiler:
    """Compiles with any backend, at the level of isolation that is meant for it. Thread-safe.

    Args:
        vocabulary: whose rows the grammars fill.
        host: where backends are looked up.
        default: who is asked mostly: a backend's name, or "auto"; those backends are kept warm.
        policy, options, isolation, limits: as for `GrammarManager`.
        store: artifacts on disk; None for none.
        recall: a compiled grammar that is in memory, by backend and spec.

    Raises:
        BackendUnavailable: the default does not exist or cannot be used.
        VocabularyError: the vocabulary cannot be sent to the processes that compile.
        ValueError: no such policy or level of isolation.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        host: PluginHost,
        default: str,
        policy: Policy | str | None,
        options: Mapping[str, Mapping[str, Any]],
        isolation: Isolation | Mapping[str, Isolation] | None,
        limits: ManagerLimits,
        store: ArtifactStore | None,
        recall: Callable[[str, GrammarSpec], CompiledGrammar | None],
    ) -> None:
        self._host = host
        self._policy = policy = Policy.of(policy)
        _check_levels(isolation)
        _check_names(host, (*options, *(isolation if isinstance(isolation, Mapping) else ())))
        self._isolation = isolation
        self._limits = limits
        self._store = store
        self._recall = recall
        usable = {record.spec.name: record.spec for record in host.backends if record.state == "loaded"}
        options = {
            name: {
                **(
                    {"compile_threads": limits.compile_threads}
                    if "compile_threads" in (spec.capabilities.options or ())
                    else {}
                ),
                **options.get(name, {}),
            }
            for name, spec in usable.items()
        }
        self.usual = self._usual(default, usable)
        self._backends = LiveBackends(vocabulary, host, options, policy)
        self._new_processes = functools.partial(
            CompileProcesses, tuple(usable.values()), self.usual, vocabulary, options, policy, limits
        )
        self._starting = threading.Lock()
        self._apart: CompileProcesses | None = None
        if any(self.isolation(name, kind) == "process" for name in self.usual for kind in GrammarKind):
            self._processes()

    def _processes(self) -> CompileProcesses:
        """The workers, started now where none of the usual backends needs any."""
        with self._starting:
            if self._apart is None:
                self._apart = self._new_processes()
            return self._apart

    def _usual(self, default: str, usable: Mapping[str, BackendSpec]) -> tuple[str, ...]:
        if default != AUTO:
            return (self._host.backend(default).name,)
        order = self._policy.order
        if order is not None:
            return tuple(self._host.backend(name).name for name in order)
        return tuple(name for name, spec in usable.items() if spec.priority is not None)

    def isolation(self, name: str, kind: GrammarKind) -> Isolation:
        """Where a backend compiles a kind of spec.

        Raises:
            BackendUnavailable: there is no such backend.
        """
        chosen = self._isolation.get(name) if isinstance(self._isolation, Mapping) else self._isolation
        return chosen or isolation_of(self._host.backend(name), kind)

    def is_inline(self, name: str, spec: GrammarSpec) -> bool:
        """Whether a spec is compiled by whoever submits it; the automatic choice never is."""
        return name != AUTO and self.isolation(name, spec.kind) == "inline"

    def load(self, name: str) -> None:
        """Load a backend ahead of its first use; one that cannot be loaded says so when it is used."""
        with contextlib.suppress(GrammarBackendsError):
            self._backends.get(name)

    def wait_warm(self, seconds: float | None) -> bool:
        """Wait until the processes are warm; whether they are."""
        return self._apart is None or self._apart.wait_warm(seconds)

    @property
    def processes(self) -> PoolState | None:
        """The workers; None when none was needed so far."""
        return None if self._apart is None else self._apart.state

    def close(self, seconds: float) -> bool:
        """Kill the processes; whether they are gone."""
        return self._apart is None or self._apart.close(seconds)

    def destroy(self) -> None:
        """Release the backends, after the last compilation has ended (B13)."""
        self._backends.destroy()

    def compile(self, work: Compilation, watch: Watch) -> CompiledGrammar:
        """Compile, and note in `work` how.

        Raises:
            GrammarBackendsError: the spec or the artifact cannot be used, or the engine failed.
            WorkerTrouble: the process it was compiled in did not answer.
        """
        work.watch = watch
        try:
            if work.asked != AUTO:
                return self._compile_with(work.asked, work)
            return self._compile_with_the_first(work)
        finally:
            work.watch = contextlib.nullcontext  # what it holds is not kept as long as `work` is

    def _compile_with_the_first(self, work: Compilation) -> CompiledGrammar:
        """Try one candidate after another, by compiling in earnest: what an engine lets pass at first it may still
        refuse later."""
        made: list[CompiledGrammar] = []
        failures: list[CompileError] = []

        def attempt(name: str) -> None:
            try:
                made.append(self._compile_with(name, work))
            except CompileError as error:
                failures.append(error)
                raise

        try:
            work.trace = choose(work.spec, attempt, self._host, self._policy)
        except UnsupportedFeature as error:
            work.trace = error.trace
            if failures:  # an engine that failed is no reason to tell the client that nobody enforces the spec (E5)
                raise failures[0] from error
            raise
        return made[0]

    def _compile_with(self, name: str, work: Compilation) -> CompiledGrammar:
        work.backend, work.isolation = name, ""
        known = self._recall(name, work.spec)
        if known is not None:
            work.source = "memory"
            return known
        with work.watch(LOAD_SECONDS):
            backend = self._backends.get(name)
        ready = self._stored(backend, work) if work.artifact is None else self._given(backend, work, work.artifact)
        if ready is not None:
            return ready
        work.source, work.isolation = "compiled", self.isolation(name, work.spec.kind)
        data: bytes | None = None
        if work.isolation == "process":
            data, seconds = self._processes().compile(name, work.spec, self._left(work))
            work.seconds += seconds
        if data is None:
            compiled = self._compile_here(backend, work)
        else:
            compiled = self._load(backend, work, data)
        self._keep(backend, compiled, data)
        return compiled

    def _given(self, backend: GrammarBackend, work: Compilation, artifact: bytes) -> CompiledGrammar:
        """What was compiled elsewhere (E19)."""
        work.source = "artifact"
        with work.watch(self._left(work)):
            compiled = backend.load_grammar(work.spec, artifact)
        self._keep(backend, compiled, artifact)
        return compiled

    def _stored(self, backend: GrammarBackend, work: Compilation) -> CompiledGrammar | None:
        """What another process, or an earlier life of this one, has compiled; what cannot be used is removed."""
        if self._store is None or backend.serializer is None:
            return None
        key = backend.artifact_key(work.spec)
        data = self._store.get(key)
        if data is None:
            return None
        try:
            with work.watch(self._left(work)):
                compiled = backend.load_grammar(work.spec, data)
        except ArtifactError as error:
            logger.warning("%s: what was stored for %s is removed: %s", work.spec, backend.name, error)
            self._store.remove(key)
            return None
        work.source = "disk"
        return compiled

    def _keep(self, backend: GrammarBackend, compiled: CompiledGrammar, data: bytes | None) -> None:
        if self._store is None or backend.serializer is None:
            return
        try:
            self._store.put(backend.artifact_key(compiled.spec), data or backend.dump_grammar(compiled))
        except (ArtifactError, CompileError) as error:  # the request has its grammar all the same
            logger.info("%s of %s is not stored: %s", compiled.spec, backend.name, error)

    def _compile_here(self, backend: GrammarBackend, work: Compilation) -> CompiledGrammar:
        started = time.monotonic()
        with work.watch(self._left(work)):
            try:
                return backend.compile_grammar(work.spec)
            finally:
                work.seconds += time.monotonic() - started

    def _load(self, backend: GrammarBackend, work: Compilation, data: bytes) -> CompiledGrammar:
        try:
            with work.watch(self._left(work)):
                return backend.load_grammar(work.spec, data)
        except ArtifactError as error:
            raise CompileError(f"what {backend.name} compiled cannot be read: {error}", backend=backend.name) from error

    def _left(self, work: Compilation) -> float:
        return max(0.0, self._limits.compile_seconds - work.seconds)


def _check_levels(isolation: object) -> None:
    """See that levels of isolation exist.

    Raises:
        ValueError: one does not.
    """
    for level in isolation.values() if isinstance(isolation, Mapping) else (isolation,):
        if level is not None and level not in get_args(Isolation):
            raise ValueError(f"isolation must be one of {', '.join(get_args(Isolation))}, not {shown(level)}")


def _check_names(host: PluginHost, names: Iterable[str]) -> None:
    """See that whoever gives options or a level of isolation to a backend has not misspelt it.

    Raises:
        BackendUnavailable: there is no such backend. One that is there and cannot be used is no mistake.
    """
    there = {record.spec.name for record in host.backends} | {plugin.name for plugin in host.plugins}
    for name in names:
        if name not in there:
            host.backend(name)
