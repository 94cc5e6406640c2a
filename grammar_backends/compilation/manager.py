"""The manager: from a request's spec to its compiled grammar, off the path that schedules, whatever the spec is (E).

Here are tickets, what is in flight, and what is remembered. How something is compiled is in `compiler`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from grammar_backends.compilation.caches import FailureCache, GrammarCache
from grammar_backends.compilation.compiler import AUTO, Compilation, Compiler
from grammar_backends.compilation.isolation import Isolation
from grammar_backends.compilation.limits import ManagerLimits
from grammar_backends.compilation.outcome import CompilationFailure, FailureKind
from grammar_backends.compilation.store import ArtifactStore
from grammar_backends.compilation.threads import CompileThreads, ThreadState
from grammar_backends.compilation.ticket import GrammarTicket, Provenance
from grammar_backends.contract import CompiledGrammar, GrammarSpec, Vocabulary
from grammar_backends.errors import BackendUnavailable, CompileError, UnsupportedFeature
from grammar_backends.plugins import PluginHost, default_host
from grammar_backends.selection import Policy, Trace
from grammar_backends.statistics import EngineStatistics, FailureLog
from grammar_backends.workers import PoolState

__all__ = ["GrammarManager", "ManagerState"]

logger = logging.getLogger(__name__)

NONE = "none"

Key = tuple[str, GrammarSpec]
"""Who is asked for what. Everything else that an artifact depends on is the same for all of one manager."""


class _Choice(NamedTuple):
    """What the automatic choice came to."""

    backend: str
    trace: Trace | None


@dataclass(eq=False, slots=True)
class _Flight:
    """One compilation on its way, and who waits for it (E8).

    Attributes:
        key: who is asked for what.
        work: what is known of it.
        submitted: when, for the time in the queue.
        tickets: who waits, the first one first.
        begun: whether a worker has it.
        landed: whether its tickets are done.
        queue_seconds: how long it waited for a worker.
    """

    key: Key
    work: Compilation
    submitted: float
    tickets: list[GrammarTicket] = field(default_factory=list)
    begun: bool = False
    landed: bool = False
    queue_seconds: float = 0.0

    def board(self, ticket: GrammarTicket) -> None:
        """One more waits."""
        ticket._flight = self
        self.tickets.append(ticket)

    def provenance(self, ticket: GrammarTicket) -> Provenance:
        """Where the outcome of one of its tickets comes from."""
        work = self.work
        source = work.source if ticket is self.tickets[0] else "joined"
        trace = work.trace if ticket.backend == AUTO else None
        return Provenance(work.backend, source, work.isolation, self.queue_seconds, work.seconds, trace)


@dataclass(frozen=True)
class ManagerState:
    """How a manager is (K2).

    Attributes:
        pending: compilations on their way, queued ones included.
        threads: the threads that compile, or wait for a process; None with backend "none".
        processes: the workers; None when no backend needs any.
        cached_entries, cached_bytes, evictions: the compiled grammars in memory.
        cached_failures: failures that are remembered.
    """

    pending: int
    threads: ThreadState | None
    processes: PoolState | None
    cached_entries: int
    cached_bytes: int
    evictions: int
    cached_failures: int


class GrammarManager:
    """Compiles grammars in the background. Thread-safe; a context manager that shuts down at its end.

    Its workers and backends begin to load at once, in the background.

    Args:
        vocabulary: whose rows the grammars fill; may be None with ``backend="none"`` (E19).
        backend: who is asked unless a request names another one: "auto", a backend's name, or "none" for an engine
            that takes no constrained requests (E14).
        host: where backends are looked up; None for every installed plugin.
        policy: how the automatic choice goes about; or the word for it, as in `select_backend`.
        options: each backend's own options, by its name.
        isolation: where backends compile: one level for all, or by name; for the others see `isolation_of`.
        limits: budgets, workers and sizes of caches.
        store: artifacts on disk, shared with other processes and kept over restarts; None for none.
        synchronous: compile in the thread that submits, and give out tickets that are done: for launchers whose ranks
            run in lock step (E4). Failures are the same values as ever, and what hangs in a process is killed as ever.
        clock: seconds, for the deferral budget and the age of failures.

    Attributes:
        limits: its limits.

    Raises:
        BackendUnavailable: the backend does not exist or cannot be used.
        VocabularyError: the vocabulary cannot be sent to the processes that compile.
        ValueError: no vocabulary, or no such policy or level of isolation.
    """

    def __init__(
        self,
        vocabulary: Vocabulary | None,
        *,
        backend: str = AUTO,
        host: PluginHost | None = None,
        policy: Policy | str | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        isolation: Isolation | Mapping[str, Isolation] | None = None,
        limits: ManagerLimits | None = None,
        store: ArtifactStore | None = None,
        synchronous: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits = limits or ManagerLimits()
        self._backend = backend
        self._synchronous = synchronous
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._finished = 0
        self._closed = False
        self._flights: dict[Key, _Flight] = {}
        self._choices: OrderedDict[GrammarSpec, _Choice] = OrderedDict()
        self._grammars = GrammarCache(limits.cached_entries, limits.cached_bytes)
        self._failures = FailureCache(
            limits.cached_failures, limits.failure_seconds, limits.transient_failure_seconds, clock
        )
        self._failure_log = FailureLog(logger)
        self._compiler: Compiler | None = None
        if backend == NONE:
            return
        if vocabulary is None:
            raise ValueError('a vocabulary is needed, but for backend="none"')
        self._compiler = Compiler(
            vocabulary, host or default_host(), backend, policy, options or {}, isolation, limits, store, self._recall
        )
        self._threads = CompileThreads(limits.threads, limits.stuck_threads)
        for name in self._compiler.usual:
            self._threads.submit(functools.partial(self._compiler.load, name), lambda: None)

    def submit(self, request_id: str, spec: GrammarSpec, backend: str | None = None) -> GrammarTicket:
        """A ticket for the grammar of a request; returns at once, unless the manager is synchronous.

        One key that is submitted many times is compiled once, by one worker (E8); what is in memory is ready at once,
        and what is known to fail has failed at once (E9, E10). Whatever is wrong with the spec or with a backend is
        told by the ticket: nothing is raised for it (E5).

        Args:
            request_id: the engine's own; used in messages only.
            spec: what to compile.
            backend: who is asked, when not the manager's usual one: "auto" or a backend's name.

        Raises:
            TypeError: `spec` is no `GrammarSpec`.
        """
        if not isinstance(spec, GrammarSpec):
            raise TypeError(f"a GrammarSpec is needed, not {type(spec).__name__}")
        ticket = GrammarTicket(self, request_id, spec, backend or self._backend)
        with self._lock:
            flight = self._board(ticket)
        if flight is not None:
            self._launch(flight)
        if self._synchronous:
            ticket.wait()
        return ticket

    @property
    def finished(self) -> int:
        """How many tickets are done, so far."""
        return self._finished

    def wait_finished(self, after: int, seconds: float | None = None) -> int:
        """Sleep until more tickets are done than `after`; how many are (E3).

        For an engine that has nothing else to do: it reads `finished`, looks at its tickets, and sleeps from there, so
        that none is missed.
        """
        self._wait_for(lambda: self._finished > after, seconds)
        return self._finished

    def wait_warm(self, seconds: float | None = None) -> bool:
        """Wait until the processes are warm; whether they are. Nothing needs this but a measurement."""
        return self._compiler is None or self._compiler.wait_warm(seconds)

    @property
    def state(self) -> ManagerState:
        """How it is now."""
        compiler, grammars = self._compiler, self._grammars
        threads = self._threads.state if compiler else None
        processes = compiler.processes if compiler else None
        with self._lock:
            counts = len(grammars), grammars.nbytes, grammars.evictions, len(self._failures)
            return ManagerState(len(self._flights), threads, processes, *counts)

    def show(self, statistics: EngineStatistics) -> None:
        """Have the statistics of an engine show how this manager is (K2)."""
        for name, (documentation, read) in _WATCHED.items():
            statistics.watch(name, documentation, functools.partial(_read, self, read))

    def shutdown(self, seconds: float | None = None) -> bool:
        """Take no more requests, fail all that are pending, end the workers, release the backends (E16).

        What runs is abandoned: processes are killed, threads are waited for.

        Args:
            seconds: how long to wait; None for the limit.

        Returns:
            Whether everything has ended. If not, a thread is stuck in an engine: its backend is not released (B13),
            but the process can end.
        """
        deadline = time.monotonic() + (self.limits.shutdown_seconds if seconds is None else seconds)
        with self._lock:
            self._closed = True
            flights = list(self._flights.values())
        for flight in flights:
            self._land(flight, _SHUT_DOWN)
        if self._compiler is None:
            return True
        ended = self._compiler.close(max(0.0, deadline - time.monotonic()))
        ended = self._threads.close(max(0.0, deadline - time.monotonic())) and ended
        if ended:
            self._compiler.destroy()
        with self._lock:
            self._grammars.clear()
        return ended

    def __enter__(self) -> GrammarManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    # From here on: what a ticket goes through. Methods that need the lock say so.

    def _board(self, ticket: GrammarTicket) -> _Flight | None:
        """Finish a ticket from memory, or let it wait; the flight that is to be launched for it. Under the lock."""
        if self._closed:
            self._finish([ticket], _SHUT_DOWN)
            return None
        if self._compiler is None or ticket.backend == NONE:
            self._finish([ticket], _DISABLED)
            return None
        try:
            self._compiler.check_name(ticket.backend)
        except BackendUnavailable as error:  # here, so that no name that clients make up is remembered anywhere
            self._finish([ticket], CompilationFailure.of(error, ticket.backend))
            return None
        key, trace = self._key(ticket)
        compiled = self._grammars.get(key)
        if compiled is not None:
            self._finish([ticket], compiled, lambda _: Provenance(key[0], "memory", trace=trace))
            return None
        flight = self._flights.get(key)
        if flight is not None:
            flight.board(ticket)
            return None
        failure = self._failures.get(key)
        if failure is not None:
            told = trace or getattr(failure.error, "trace", None)
            self._finish([ticket], failure, lambda _: Provenance(key[0], "failed before", trace=told))
            return None
        work = Compilation(*key, contextlib.nullcontext, trace=trace)
        flight = self._flights[key] = _Flight(key, work, time.monotonic())
        flight.board(ticket)
        return flight

    def _key(self, ticket: GrammarTicket) -> tuple[Key, Trace | None]:
        """What is to be compiled: where the automatic choice was made before, by the backend that it came to."""
        choice = self._choices.get(ticket.spec) if ticket.backend == AUTO else None
        if choice is None:
            return (ticket.backend, ticket.spec), None
        self._choices.move_to_end(ticket.spec)
        return (choice.backend, ticket.spec), choice.trace

    def _launch(self, flight: _Flight) -> None:
        """Have a flight compiled: here, or by the next thread that is free."""
        if self._synchronous or self._is_inline(*flight.key):
            self._run(flight)
            return
        flight.work.watch = lambda seconds: self._threads.limited(
            seconds, functools.partial(self._give_up, flight, seconds)
        )
        self._threads.submit(functools.partial(self._run, flight), functools.partial(self._land, flight, _STUCK))

    def _is_inline(self, name: str, spec: GrammarSpec) -> bool:
        return self._compiler is not None and name != AUTO and self._compiler.isolation(name, spec.kind) == "inline"

    def _run(self, flight: _Flight) -> None:
        """Compile, in whichever thread this is. Raises nothing but what stops the program."""
        with self._lock:
            if flight.landed or self._compiler is None:  # cancelled, or shut down
                return
            flight.begun = True
            flight.queue_seconds = time.monotonic() - flight.submitted
        outcome: CompiledGrammar | CompilationFailure
        try:
            outcome = self._compiler.compile(flight.work)
        except BaseException as error:  # an engine's panic is no Exception
            outcome = CompilationFailure.of(error, flight.work.backend)
            if isinstance(error, KeyboardInterrupt):
                self._land(flight, _CANCELLED)
                raise
        self._land(flight, outcome)

    def _give_up(self, flight: _Flight, seconds: float) -> None:
        """A call into an engine does not come back."""
        work = flight.work
        message = f"{work.backend}: not done after {seconds:.3g} s"
        self._land(flight, CompilationFailure(FailureKind.TIMEOUT, CompileError(message, backend=work.backend)))

    def _land(self, flight: _Flight, outcome: CompiledGrammar | CompilationFailure) -> None:
        """Remember an outcome, and finish who waits for it. A second outcome may only replace a failure (E9)."""
        with self._lock:
            first = not flight.landed
            if not first and isinstance(outcome, CompilationFailure):
                return
            flight.landed = True
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
            self._remember(flight, outcome)
            tickets = list(flight.tickets) if first else []
            self._finish(tickets, outcome, flight.provenance)
        if isinstance(outcome, CompilationFailure) and not self._closed:
            self._failure_log.report(
                outcome.error,
                spec=flight.key[1],
                backend=flight.work.backend,
                request_id=tickets[0].request_id if tickets else "(gone)",
            )
        for ticket in tickets:
            ticket._call_back()

    def _remember(self, flight: _Flight, outcome: CompiledGrammar | CompilationFailure) -> None:
        """Under the lock."""
        if self._closed:
            return
        if isinstance(outcome, CompilationFailure):
            self._failures.put(flight.key, outcome)
            return
        self._failures.forget(flight.key)
        work = flight.work
        self._grammars.put((work.backend, work.spec), outcome)
        if work.asked == AUTO:
            self._choices[work.spec] = _Choice(work.backend, work.trace)
            if len(self._choices) > self.limits.cached_entries:
                self._choices.popitem(last=False)

    def _finish(
        self,
        tickets: Sequence[GrammarTicket],
        outcome: CompiledGrammar | CompilationFailure,
        provenance: Callable[[GrammarTicket], Provenance | None] = lambda _: None,
    ) -> None:
        """Under the lock."""
        for ticket in tickets:
            ticket._finish(outcome, provenance(ticket))
        self._finished += len(tickets)
        self._changed.notify_all()

    def _recall(self, name: str, spec: GrammarSpec) -> CompiledGrammar | None:
        with self._lock:
            return self._grammars.get((name, spec))

    # What tickets ask of their manager.

    def _cancel(self, ticket: GrammarTicket) -> bool:
        return self._leave(ticket, _CANCELLED)

    def _expire(self, ticket: GrammarTicket, message: str) -> None:
        error = CompileError(message, backend=ticket.backend)
        self._leave(ticket, CompilationFailure(FailureKind.TIMEOUT, error))

    def _leave(self, ticket: GrammarTicket, failure: CompilationFailure) -> bool:
        """One ticket fails on its own account; whether it was pending. A flight without tickets that has not begun is
        dropped (E7)."""
        with self._lock:
            flight = ticket._flight
            if flight is None or ticket.outcome is not None:
                return False
            flight.tickets.remove(ticket)
            if not flight.tickets and not flight.begun:
                flight.landed = True
                del self._flights[flight.key]
            self._finish([ticket], failure)
        ticket._call_back()
        return True

    def _keep_callback(self, ticket: GrammarTicket, callback: Callable[[GrammarTicket], None]) -> bool:
        """Keep a callback for later; False when the ticket is done."""
        with self._lock:
            if ticket.outcome is None:
                ticket._callbacks.append(callback)
            return ticket.outcome is None

    def _wait_for(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, seconds)


def _read(manager: GrammarManager, read: Callable[[ManagerState], float]) -> float:
    return read(manager.state)


_WATCHED: dict[str, tuple[str, Callable[[ManagerState], float]]] = {
    "compilations_pending": ("Compilations on their way.", lambda state: state.pending),
    "compile_threads_busy": ("Threads that compile.", lambda state: state.threads.busy if state.threads else 0),
    "compile_threads_stuck": (
        "Threads that never came back from an engine.",
        lambda state: state.threads.stuck if state.threads else 0,
    ),
    "compile_processes_busy": (
        "Worker processes that compile.",
        lambda state: state.processes.busy if state.processes else 0,
    ),
    "compile_processes_idle": (
        "Worker processes that wait for work.",
        lambda state: state.processes.idle if state.processes else 0,
    ),
    "cached_grammars": ("Compiled grammars in memory.", lambda state: state.cached_entries),
    "cached_bytes": ("Memory that they hold.", lambda state: state.cached_bytes),
    "cached_failures": ("Failures that are remembered.", lambda state: state.cached_failures),
}
"""Gauges, by name."""


def _failure(kind: FailureKind, message: str) -> CompilationFailure:
    return CompilationFailure(kind, CompileError(message, backend=""))


_CANCELLED = _failure(FailureKind.CANCELLED, "the request was cancelled")
_SHUT_DOWN = _failure(FailureKind.SHUTDOWN, "the engine is shutting down")
_STUCK = _failure(FailureKind.STUCK, "every thread that compiles is stuck")
_DISABLED = CompilationFailure(
    FailureKind.DISABLED, UnsupportedFeature('constrained requests are switched off here (backend "none")')
)
