"""The manager: from a request's spec to its compiled grammar, off the path that schedules, whatever the spec is (E).

Here are tickets, what is in flight, and what is remembered. How something is compiled is in `compiler`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from grammar_backends.compilation.arguments import expect
from grammar_backends.compilation.caches import FailureCache, GrammarCache, Key
from grammar_backends.compilation.compiler import AUTO, Compilation, Compiler, Watch
from grammar_backends.compilation.isolation import Isolation
from grammar_backends.compilation.limits import ManagerLimits
from grammar_backends.compilation.outcome import CompilationFailure, FailureKind
from grammar_backends.compilation.store import ArtifactStore
from grammar_backends.compilation.threads import CompileThreads, Job, ThreadState
from grammar_backends.compilation.ticket import GrammarTicket, Provenance, stops_program
from grammar_backends.contract import CompiledGrammar, GrammarSpec, Vocabulary
from grammar_backends.contract.serial import sealed_identity
from grammar_backends.errors import ArtifactError, BackendUnavailable, CompileError, UnsupportedFeature
from grammar_backends.plugins import PluginHost, default_host
from grammar_backends.selection import Policy, Trace
from grammar_backends.statistics import EngineStatistics, FailureLog
from grammar_backends.workers import PoolState, watch_forks

__all__ = ["GrammarManager", "ManagerState"]

logger = logging.getLogger(__name__)

NONE = "none"

END_SECONDS = 2.0
"""How long the end of a program waits for the workers of a manager that was not shut down."""


class _Choice(NamedTuple):
    """What the automatic choice came to."""

    backend: str
    trace: Trace | None


class _Works(NamedTuple):
    """What compiles for a manager. It knows nothing of the manager, so that it can end when nobody holds that."""

    compiler: Compiler
    threads: CompileThreads

    def close(self, seconds: float) -> bool:
        """Kill the processes and wait for the threads; whether all are gone."""
        deadline = time.monotonic() + seconds
        gone = self.compiler.close(max(0.0, seconds))
        return self.threads.close(max(0.0, deadline - time.monotonic())) and gone


@dataclass(eq=False, slots=True)
class _Flight:
    """One compilation on its way, and who waits for it (E8).

    Attributes:
        key: who is asked for what.
        work: what is known of it.
        submitted: when, for the time in the queue.
        tickets: who waits, in order.
        job: what is queued for it, as long as it is.
        begun: whether a worker has it.
        landed: whether its tickets are done.
        queue_seconds: how long it waited for a worker.
    """

    key: Key
    work: Compilation
    submitted: float
    tickets: dict[GrammarTicket, None] = field(default_factory=dict)
    job: Job | None = None
    begun: bool = False
    landed: bool = False
    queue_seconds: float = 0.0

    @property
    def route(self) -> tuple[Key, bytes | None]:
        """What flights are told apart by: what is read from given bytes is nobody else's (E19)."""
        return self.key, self.work.artifact

    def board(self, ticket: GrammarTicket) -> None:
        """One more waits."""
        ticket._flight = self
        self.tickets[ticket] = None

    def provenance(self, ticket: GrammarTicket, *, first: bool) -> Provenance:
        """Where the outcome of one of its tickets comes from."""
        work = self.work
        source = work.source if first else "joined"
        trace = work.trace if ticket.backend == AUTO else None
        return Provenance(work.backend, source, work.isolation, self.queue_seconds, work.seconds, trace)


@dataclass(frozen=True)
class ManagerState:
    """How a manager is (K2).

    Attributes:
        pending: compilations on their way, queued ones included.
        threads: the threads that compile, or wait for a process; None with backend "none", and in a forked child that
            has not compiled yet.
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

    Its workers and backends begin to load at once, in the background. After a fork it serves the child too, with
    workers of its own that start with the first compilation; what was pending has failed there.

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
        TypeError: an argument is not what it has to be; the message says what to pass.
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
        _check(vocabulary, backend, host, options, limits, store, synchronous, clock)
        self.limits = limits = limits or ManagerLimits()
        self._backend = backend
        self._synchronous = synchronous
        self._clock = clock
        self._make_locks()
        self._finished = 0
        self._running = 0
        self._closed = False
        self._flights: dict[tuple[Key, bytes | None], _Flight] = {}
        self._choices: dict[GrammarSpec, _Choice] = {}
        self._grammars = GrammarCache(limits.cached_entries, limits.cached_bytes)
        self._failures = FailureCache(
            limits.cached_failures, limits.failure_seconds, limits.transient_failure_seconds, clock
        )
        self._works: _Works | None = None
        self._unattended: weakref.finalize[..., GrammarManager] | None = None
        watch_forks(self)
        if backend == NONE:
            return
        if vocabulary is None:
            raise ValueError('a vocabulary is needed, but for backend="none"')
        self._host = host or default_host()
        self._new_compiler = functools.partial(
            Compiler, vocabulary, self._host, backend, policy, options or {}, isolation, limits, store
        )
        self._works = self._start()

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._starting = threading.Lock()
        self._failure_log = FailureLog(logger)

    def _start(self) -> _Works:
        """Start what compiles, and have the usual backends loaded."""
        compiler = self._new_compiler(recall=functools.partial(_recall, self._lock, self._grammars))
        works = _Works(compiler, CompileThreads(self.limits.threads, self.limits.stuck_threads))
        self._unattended = weakref.finalize(self, _end, works)
        for name in compiler.usual:
            works.threads.submit(Job(functools.partial(compiler.load, name), lambda: None))
        return works

    def _attend(self) -> None:
        """There is nothing any more that would have to be ended with the manager."""
        if self._unattended is not None:
            self._unattended.detach()

    def after_fork(self) -> None:
        """`Forkable.after_fork`: in the child, whose first compilation starts threads and workers of its own.

        What is in memory stays usable. What was pending is compiled in the parent, and has failed here; its callbacks
        are the parent's, since they may belong to an event loop there.
        """
        self._make_locks()
        self._running = 0
        self._works = None
        self._attend()
        flights, self._flights = self._flights, {}
        for flight in flights.values():
            flight.landed = True
            tickets = [ticket for ticket in flight.tickets if ticket.outcome is None]
            for ticket in tickets:
                ticket._callbacks.clear()
            with self._lock:
                self._finish(tickets, _FORKED)

    def submit(
        self, request_id: str, spec: GrammarSpec, backend: str | None = None, *, artifact: bytes | None = None
    ) -> GrammarTicket:
        """A ticket for the grammar of a request; returns at once, unless the manager is synchronous.

        One key that is submitted many times is compiled once, by one worker (E8); what is in memory is ready at once,
        and what is known to fail has failed at once (E9, E10). Whatever is wrong with the spec or with a backend is
        told by the ticket: nothing is raised for it (E5).

        Args:
            request_id: the engine's own; used in messages only.
            spec: what to compile.
            backend: who is asked, when not the manager's usual one: "auto" or a backend's name.
            artifact: the grammar as `GrammarBackend.dump_grammar` wrote it elsewhere, to be read and not compiled
                (E19); "auto" is then the backend that wrote it. Bytes that are damaged, or foreign to this manager,
                fail this ticket alone. Trust them as you trust code: an engine reads them.

        Raises:
            TypeError: `spec` is no `GrammarSpec`, or `artifact` no bytes.
        """
        if not isinstance(spec, GrammarSpec):
            raise TypeError(f"a GrammarSpec is needed, not {type(spec).__name__}")
        if artifact is not None:
            expect("artifact", artifact, bytes, "the bytes of `dump_grammar`")
        ticket = GrammarTicket(self, request_id, spec, backend or self._backend)
        with self._lock:
            flight = self._board(ticket, artifact)
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
        return self._works is None or self._works.compiler.wait_warm(seconds)

    @property
    def state(self) -> ManagerState:
        """How it is now."""
        works, grammars = self._works, self._grammars
        threads = works.threads.state if works else None
        processes = works.compiler.processes if works else None
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
        with self._starting:  # nobody starts anything after this
            works = self._works
        ended = works is None or works.close(deadline - time.monotonic())
        # What compiles in a thread that submits is in none of the manager's.
        ended = self._wait_for(lambda: not self._running, max(0.0, deadline - time.monotonic())) and ended
        if works is not None and ended:
            works.compiler.destroy()
            self._attend()
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

    def _board(self, ticket: GrammarTicket, artifact: bytes | None) -> _Flight | None:
        """Finish a ticket from memory, or let it wait; the flight that is to be launched for it. Under the lock."""
        if self._closed:
            self._finish([ticket], _SHUT_DOWN)
            return None
        if self._backend == NONE or ticket.backend == NONE:
            self._finish([ticket], _DISABLED)
            return None
        try:
            key, trace = self._key(ticket, artifact)
        except (ArtifactError, BackendUnavailable) as error:  # so that no name clients make up is remembered anywhere
            self._finish([ticket], CompilationFailure.of(error, ticket.backend))
            return None
        compiled = self._grammars.get(key)
        if compiled is not None:
            self._finish([ticket], compiled, Provenance(key[0], "memory", trace=trace))
            return None
        flight = self._flights.get((key, artifact))
        if flight is not None:
            flight.board(ticket)
            return None
        failure = self._failures.get(key) if artifact is None else None
        if failure is not None:
            told = trace or getattr(failure.error, "trace", None)
            self._finish([ticket], failure, Provenance(key[0], "failed before", trace=told))
            return None
        work = Compilation(*key, artifact=artifact, trace=trace)
        flight = _Flight(key, work, time.monotonic())
        self._flights[flight.route] = flight
        flight.board(ticket)
        return flight

    def _key(self, ticket: GrammarTicket, artifact: bytes | None) -> tuple[Key, Trace | None]:
        """What is to be compiled: where the automatic choice was made before, by the backend that it came to.

        Raises:
            ArtifactError: nobody can be asked for the artifact.
            BackendUnavailable: there is no such backend.
        """
        name, trace = ticket.backend, None
        if name == AUTO and artifact is not None:
            name = sealed_identity(artifact).get("backend", "")
        if name != AUTO:
            self._host.backend(name)
        elif (choice := self._choices.get(ticket.spec)) is not None:
            name, trace = choice
        return (name, ticket.spec), trace

    def _launch(self, flight: _Flight) -> None:
        """Have a flight compiled: here, or by the next thread that is free."""
        try:
            works = self._started()
        except Exception as error:  # no thread, process or memory left; only a forked child starts so late
            wrapped = BackendUnavailable(f"nothing that compiles can be started: {error}")
            wrapped.__cause__ = error
            self._land(flight, CompilationFailure.of(wrapped, flight.key[0]))
            return
        if works is None:  # shut down meanwhile: it has landed
            return
        if self._synchronous or works.compiler.is_inline(*flight.key):
            self._run(works, flight, contextlib.nullcontext)
            return

        def watch(seconds: float) -> contextlib.AbstractContextManager[None]:
            return works.threads.limited(seconds, functools.partial(self._give_up, flight, seconds))

        job = flight.job = Job(
            functools.partial(self._run, works, flight, watch), functools.partial(self._land, flight, _STUCK)
        )
        works.threads.submit(job)
        if flight.landed:  # cancelled before it was queued
            works.threads.withdraw(job)

    def _started(self) -> _Works | None:
        """What compiles, started now in a forked child; None when nothing is to be started any more."""
        if self._works is None:
            with self._starting:
                if self._works is None and not self._closed:
                    self._works = self._start()
        return self._works

    def _run(self, works: _Works, flight: _Flight, watch: Watch) -> None:
        """Compile, in whichever thread this is. Raises nothing but what stops the program."""
        with self._lock:
            flight.job = None
            if flight.landed:  # cancelled, or shut down
                return
            flight.begun = True
            flight.queue_seconds = time.monotonic() - flight.submitted
            self._running += 1
        outcome: CompiledGrammar | CompilationFailure = _CANCELLED
        try:
            outcome = works.compiler.compile(flight.work, watch)
        except BaseException as error:  # an engine's panic is no Exception
            if stops_program(error):
                raise
            outcome = CompilationFailure.of(error, flight.work.backend)
        finally:
            with self._lock:
                self._running -= 1
                self._changed.notify_all()
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
            self._remember(flight, outcome)
            tickets = list(flight.tickets) if first else []
            for ticket in tickets:
                self._finish([ticket], outcome, flight.provenance(ticket, first=ticket is tickets[0]))
            # Last: a fork between the two finishes what it still finds on its way.
            if self._flights.get(flight.route) is flight:
                del self._flights[flight.route]
        if isinstance(outcome, CompilationFailure) and outcome.kind is not FailureKind.SHUTDOWN:
            self._failure_log.report(
                outcome.error,
                spec=flight.key[1],
                backend=flight.work.backend,
                request_id=tickets[0].request_id if tickets else "(gone)",
            )
            outcome.forget_frames()
        for ticket in tickets:
            ticket._call_back()

    def _remember(self, flight: _Flight, outcome: CompiledGrammar | CompilationFailure) -> None:
        """Under the lock."""
        if self._closed:
            return
        if isinstance(outcome, CompilationFailure):
            if flight.work.artifact is None:
                self._failures.put(flight.key, outcome)
            return
        self._failures.forget(flight.key)
        work = flight.work
        if work.asked == AUTO:
            self._choices[work.spec] = _Choice(work.backend, work.trace)
        for name, spec in self._grammars.put((work.backend, work.spec), outcome):
            choice = self._choices.get(spec)
            if choice is not None and choice.backend == name:  # it is as good as the grammar it leads to
                del self._choices[spec]

    def _finish(
        self,
        tickets: Iterable[GrammarTicket],
        outcome: CompiledGrammar | CompilationFailure,
        provenance: Provenance | None = None,
    ) -> None:
        """Under the lock."""
        for ticket in tickets:
            ticket._finish(outcome, provenance)
            self._finished += 1
        self._changed.notify_all()

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
            flight: _Flight | None = ticket._flight
            if flight is None or ticket.outcome is not None:
                return False
            self._finish([ticket], failure)
            del flight.tickets[ticket]
            job = None
            if not flight.tickets and not flight.begun:
                flight.landed = True
                del self._flights[flight.route]
                job, flight.job = flight.job, None
        if job is not None and self._works is not None:
            self._works.threads.withdraw(job)
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


def _check(
    vocabulary: object,
    backend: object,
    host: object,
    options: object,
    limits: object,
    store: object,
    synchronous: object,
    clock: object,
) -> None:
    """See that the arguments of a manager are what they have to be.

    Raises:
        TypeError: one is not; the message says what to pass.
    """
    maker = 'a Vocabulary, such as load_vocabulary("tekken")'
    expect("vocabulary", vocabulary, (Vocabulary, type(None)), maker)
    expect("backend", backend, str, '"auto", "none" or the name of a backend')
    expect("host", host, (PluginHost, type(None)), "a PluginHost or None")
    expect("limits", limits, (ManagerLimits, type(None)), "ManagerLimits(...) or None")
    expect("store", store, (ArtifactStore, type(None)), "ArtifactStore(directory) or None")
    expect("synchronous", synchronous, bool, "True or False")
    expect("clock", clock, Callable, "a function that gives seconds")  # type: ignore[arg-type]  # callable() as a class
    expect("options", options, (Mapping, type(None)), "a mapping from a backend's name to its options")
    for name, given in options.items() if isinstance(options, Mapping) else ():
        expect(f"options[{name!r}]", given, Mapping, "a mapping of options")


def _recall(lock: threading.Lock, grammars: GrammarCache, name: str, spec: GrammarSpec) -> CompiledGrammar | None:
    with lock:
        return grammars.get((name, spec))


def _end(works: _Works) -> None:
    """End what compiles for a manager that nobody has shut down: it is gone, or the program ends.

    In a thread of its own, since the garbage collector may come upon one that holds a lock of it.
    """
    closing = threading.Thread(target=works.close, args=(END_SECONDS,), name="grammar-backends-end", daemon=True)
    with contextlib.suppress(RuntimeError):  # no thread can be had any more: the workers end with their parent
        closing.start()
        closing.join(END_SECONDS)


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
_FORKED = _failure(FailureKind.FORKED, "this process was forked while its parent compiled the grammar: submit it again")
_STUCK = _failure(FailureKind.STUCK, "every thread that compiles is stuck")
_DISABLED = CompilationFailure(
    FailureKind.DISABLED, UnsupportedFeature('constrained requests are switched off here (backend "none")')
)
