"""Where a backend may work on a spec, and the workers that it works in when it must be possible to kill it."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from typing import Any, Literal

from grammar_backends.compilation import worker
from grammar_backends.compilation.limits import ManagerLimits
from grammar_backends.compilation.outcome import CompilationFailure
from grammar_backends.contract import BackendSpec, GrammarKind, GrammarSpec, Vocabulary
from grammar_backends.errors import VocabularyError
from grammar_backends.selection import Policy
from grammar_backends.workers import Limits, PoolState, WorkerPool

__all__ = ["CompileProcesses", "Isolation", "isolation_of"]

Isolation = Literal["inline", "thread", "process"]
"""Where a backend compiles: "inline" in the thread that submits; "thread" in one of the manager's, where a call that
hangs costs that thread; "process" in a worker that is killed when it hangs, crashes or eats memory."""


def isolation_of(backend: BackendSpec, kind: GrammarKind) -> Isolation:
    """Where a backend compiles when nobody says otherwise: in a process, but for what is known to be harmless."""
    return "thread" if kind in backend.capabilities.safe_in_threads else "process"


class CompileProcesses:
    """The workers of a manager.

    Args:
        backends: what they can be asked for.
        warm: those to load at the start.
        vocabulary, options, policy: as for `LiveBackends`.
        limits: the manager's.

    Raises:
        VocabularyError: the vocabulary cannot be sent to another process.
    """

    def __init__(
        self,
        backends: tuple[BackendSpec, ...],
        warm: tuple[str, ...],
        vocabulary: Vocabulary,
        options: Mapping[str, Mapping[str, Any]],
        policy: Policy,
        limits: ManagerLimits,
    ) -> None:
        setup = worker.WorkerSetup(backends, vocabulary, options, policy, warm, tuple(sys.path))
        try:
            data = pickle.dumps(setup)
        except Exception as error:
            raise VocabularyError(
                f"{vocabulary.name} cannot be sent to the processes that compile: {error}",
                hint='Make its `encode` and `source` picklable, or give isolation="thread"',
            ) from error
        self._pool = WorkerPool(
            worker.COMMAND,
            size=limits.threads + 1,  # one to spare, so that nobody waits for the replacement of a killed one
            limits=Limits(limits.compile_seconds, limits.compile_megabytes),
            setup=data,
            environment=_environment(limits.compile_threads),
        )

    def compile(self, backend: str, spec: GrammarSpec, seconds: float) -> tuple[bytes | None, float]:
        """The serialised artifact, and how long the engine took; None for an engine that has no serial form.

        Raises:
            GrammarBackendsError: what `compile_grammar` raised.
            WorkerTrouble: the worker did not answer.
        """
        answer = self._pool.run(worker.task(backend, spec), seconds=seconds)
        if "failure" in answer.head:
            raise CompilationFailure.from_dict(answer.head["failure"]).error
        return answer.body if answer.head["serial"] else None, answer.head["seconds"]

    @property
    def state(self) -> PoolState:
        return self._pool.state

    def wait_warm(self, seconds: float | None) -> bool:
        return self._pool.wait_warm(seconds)

    def close(self, seconds: float) -> bool:
        return self._pool.close(seconds)


def _environment(threads: int) -> dict[str, str]:
    """No devices, and as many threads as the manager counts on (E2)."""
    libraries = ("OMP", "OPENBLAS", "MKL", "RAYON")
    return {"CUDA_VISIBLE_DEVICES": "", **{f"{library}_NUM_THREADS": str(threads) for library in libraries}}
