"""What a request holds while its grammar is compiled, and afterwards: a ticket (E1)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from grammar_backends.compilation.outcome import CompilationFailure, FailureKind
from grammar_backends.contract import CompiledGrammar, GrammarSpec, StructuredOutputGrammar
from grammar_backends.errors import GrammarError
from grammar_backends.selection import Trace
from grammar_backends.statistics import CompileStatistics, GrammarSource, SkippedBackend

if TYPE_CHECKING:
    from grammar_backends.compilation.manager import GrammarManager

__all__ = ["GrammarTicket", "Provenance", "TicketState", "stops_program"]

logger = logging.getLogger(__name__)

TicketState = Literal["pending", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the outcome of a ticket comes from (K1).

    Attributes:
        backend: the backend that compiled it, or that failed; "auto" when none was chosen.
        source: "compiled" for this ticket; "joined" a compilation that was on its way (E8); from "memory"; from "disk";
            from the "artifact" that was handed in (E19); or known to have "failed before" (E9).
        isolation: where it was compiled: "process", "thread" or "inline"; "" when it was not.
        queue_seconds: how long it waited for a worker.
        compile_seconds: how long engines worked on it.
        trace: the automatic choice; None when the backend was named.
    """

    backend: str
    source: GrammarSource
    isolation: str = ""
    queue_seconds: float = 0.0
    compile_seconds: float = 0.0
    trace: Trace | None = None


def stops_program(error: BaseException) -> bool:
    """Whether somebody has pressed Ctrl-C. In any other thread than the main one it is just something raised."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


class GrammarTicket:
    """One request's grammar on its way: pending, then ready or failed, once and for all. Made by `GrammarManager`.

    Thread-safe. ``await ticket`` gives its `outcome`.

    Attributes:
        request_id: the engine's own; used in messages only.
        spec: what was asked for.
        backend: who was asked: a backend's name, or "auto".
        outcome: None while pending; then the compiled grammar, or a `CompilationFailure`.
        provenance: where the outcome comes from; None while pending, and of a ticket that failed on its own account.
    """

    __slots__ = (
        "_callbacks",
        "_deferred",
        "_flight",
        "_manager",
        "backend",
        "outcome",
        "provenance",
        "request_id",
        "spec",
    )

    def __init__(self, manager: GrammarManager, request_id: str, spec: GrammarSpec, backend: str) -> None:
        self.request_id = request_id
        self.spec = spec
        self.backend = backend
        self.outcome: CompiledGrammar | CompilationFailure | None = None
        self.provenance: Provenance | None = None
        self._manager = manager
        self._flight: Any = None
        self._callbacks: list[Callable[[GrammarTicket], None]] = []
        self._deferred: float | None = None

    def done(self) -> bool:
        """Whether it is ready or failed. Never waits (E3)."""
        return self.outcome is not None

    @property
    def state(self) -> TicketState:
        """ "pending", "ready" or "failed"."""
        if self.outcome is None:
            return "pending"
        return "failed" if isinstance(self.outcome, CompilationFailure) else "ready"

    @property
    def failure(self) -> CompilationFailure | None:
        """Why it failed; None otherwise."""
        return self.outcome if isinstance(self.outcome, CompilationFailure) else None

    @property
    def trace(self) -> Trace | None:
        """The automatic choice, with the reasons for each backend that was passed over (K1)."""
        return None if self.provenance is None else self.provenance.trace

    @property
    def statistics(self) -> CompileStatistics | None:
        """How the request got its grammar, for a `RequestRecorder` (K1); None as long as `provenance` is."""
        known = self.provenance
        if known is None:
            return None
        passed_over = ("refused", "skipped", "deferred")
        return CompileStatistics.of(
            self.spec,
            "" if known.backend == "auto" else known.backend,
            known.source,
            queue_seconds=known.queue_seconds,
            compile_seconds=known.compile_seconds,
            timeouts=int(self.failure is not None and self.failure.kind is FailureKind.TIMEOUT),
            skipped=[
                SkippedBackend(step.backend, str(step.findings[0]), step.findings[0].keyword or "")
                for step in (known.trace.steps if known.trace else ())
                if step.verdict in passed_over and step.findings
            ],
        )

    def compiled(self) -> CompiledGrammar:
        """The compiled grammar.

        Raises:
            GrammarBackendsError: it failed; a copy of the failure's error.
            GrammarError: it is still pending.
        """
        if isinstance(self.outcome, CompilationFailure):
            raise self.outcome.new_error()
        if self.outcome is None:
            raise GrammarError(f"the grammar of request {self.request_id} is still being compiled")
        return self.outcome

    def new_grammar(
        self, stop_token_ids: Sequence[int] | None = None, max_rollback: int | None = None
    ) -> StructuredOutputGrammar:
        """A grammar in its initial state, as `CompiledGrammar.new_grammar` makes it; each call makes another one (E10).

        Raises:
            GrammarBackendsError: as `compiled`, or as `CompiledGrammar.new_grammar`.
        """
        return self.compiled().new_grammar(stop_token_ids, max_rollback)

    def attach(
        self, stop_token_ids: Sequence[int] | None = None, max_rollback: int | None = None
    ) -> StructuredOutputGrammar:
        """`new_grammar` for an engine that can go on no longer without: waits, but only for its budget (E6).

        Raises:
            GrammarBackendsError: as `new_grammar`; a ticket that is pending when the budget is used up fails.
        """
        seconds = self._manager.limits.attach_seconds
        if not self.wait(seconds):
            self._manager._expire(self, f"not compiled after waiting {seconds:g} s to attach it")
        return self.new_grammar(stop_token_ids, max_rollback)

    def defer(self) -> bool:
        """Tell that the scheduler has to pass over this request once more; whether it is to be asked again later.

        The budget runs from the first call, so that compiling beside other work costs nothing of it; a ticket that is
        pending when it is used up fails (E6).
        """
        if self.outcome is not None:
            return False
        now, limit = self._manager._clock(), self._manager.limits.defer_seconds
        if self._deferred is None:
            self._deferred = now
        if now - self._deferred < limit:
            return True
        self._manager._expire(self, f"not compiled {limit:g} s after the request could first have run")
        return False

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is done; whether it is."""
        return self.outcome is not None or self._manager._wait_for(self.done, seconds)

    def cancel(self) -> bool:
        """The request is gone: fail, unless done (E7); whether it was pending.

        A compilation that nobody waits for any more is not begun; one that runs goes on, and is kept for the next
        request.
        """
        return self._manager._cancel(self)

    def add_done_callback(self, callback: Callable[[GrammarTicket], None]) -> None:
        """Call it with this ticket once it is done: at once if it is, else in the thread that finishes it.

        What a callback raises is logged, and changes nothing.
        """
        if not self._manager._keep_callback(self, callback):
            self._call(callback)

    def _finish(self, outcome: CompiledGrammar | CompilationFailure, provenance: Provenance | None) -> None:
        """Under the manager's lock."""
        self._flight = None
        self.provenance = provenance
        self.outcome = outcome  # last: whoever sees it sees the rest

    def _call_back(self) -> None:
        """Outside of the manager's lock, once it is done."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[GrammarTicket], None]) -> None:
        try:
            callback(self)
        except BaseException as error:  # a CancelledError is no Exception, and must not end a thread that compiles
            if stops_program(error):
                raise
            logger.exception("a callback of request %s failed", self.request_id)

    def __await__(self) -> Generator[Any, None, CompiledGrammar | CompilationFailure]:
        if self.outcome is None:
            loop = asyncio.get_running_loop()
            arrived = loop.create_future()

            def arrive() -> None:
                if not arrived.done():  # whoever awaited may have been cancelled
                    arrived.set_result(None)

            def call_loop(_: GrammarTicket) -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(arrive)

            self.add_done_callback(call_loop)
            yield from arrived
        return cast("CompiledGrammar | CompilationFailure", self.outcome)

    def __repr__(self) -> str:
        return f"<GrammarTicket {self.request_id}: {self.spec} by {self.backend}, {self.state}>"
