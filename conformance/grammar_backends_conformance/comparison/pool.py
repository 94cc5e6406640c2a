"""Runs every (backend, case) in worker processes, and keeps one bad case from spoiling the run.

A worker serves one backend and is started once, not per case: forking for each case would inflate the time to the
first mask tenfold. One that exceeds its time or memory, or dies, is replaced; only the case it worked on is charged.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, cast

from grammar_backends.errors import VocabularyError
from grammar_backends_conformance.comparison.corpus import Case
from grammar_backends_conformance.comparison.outcome import CaseResult

__all__ = ["Limits", "Pool"]

WORKER = "grammar_backends_conformance.comparison.worker"
POLL_SECONDS = 0.05
"""How often limits are looked at."""
RESTARTS = 3
"""Failed starts in a row before a backend that did work is given up."""
LOG_TAIL = 4096


@dataclass(frozen=True)
class Limits:
    """What one worker may use.

    Attributes:
        seconds: wall time of one case.
        megabytes: growth of the resident memory during one case.
        start_seconds: wall time to load the vocabulary and the backend and to warm up.
    """

    seconds: float = 15.0
    megabytes: float = 4096.0
    start_seconds: float = 180.0


class Charge(NamedTuple):
    """The case a worker is busy with."""

    case: Case
    started: float
    memory: int


class Worker:
    """One process and its two pipes.

    Attributes:
        backend: whom it serves.
        ready: whether it has told that it is warmed up.
        charge: what it is busy with.
    """

    def __init__(self, backend: str, tokenizer: str) -> None:
        self.backend = backend
        self.ready = False
        self.charge: Charge | None = None
        self.started = time.monotonic()
        self.memory_when_ready = 0
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115  # lives as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", WORKER, backend, tokenizer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # so that Ctrl-C reaches the parent alone, and its children die with it
            env={**os.environ, "PYTHONSAFEPATH": "1"},  # no module in the current folder shadows anything
        )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self._buffer = b""
        os.set_blocking(self.fileno(), False)

    def fileno(self) -> int:
        """The pipe to wait on."""
        return self._output.fileno()

    def send(self, case: Case) -> bool:
        """Give it a case; False when it is gone."""
        self.charge = Charge(case, time.monotonic(), self.memory())
        try:
            self._input.write(json.dumps(case.to_dict()).encode() + b"\n")
            self._input.flush()
        except OSError:
            self.charge = None
            return False
        return True

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages that have arrived, and whether it is gone."""
        gone = False
        while True:
            try:
                data = os.read(self.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not data:
                gone = True
                break
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        # A process can be dead while a child of it still holds the pipe.
        return [json.loads(line) for line in lines], gone or (not lines and self._process.poll() is not None)

    def memory(self) -> int:
        """Resident memory in bytes; 0 where it cannot be told."""
        try:
            with open(f"/proc/{self._process.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        except (OSError, IndexError):
            return 0

    def kill(self) -> int:
        """End it and everything it started; its exit status, negative for a signal."""
        status = self._process.poll()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._input, self._output, self._log):
            with contextlib.suppress(OSError):
                pipe.close()
        return self._process.returncode if status is None else status

    def wait(self, seconds: float) -> None:
        """Let it end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def last_words(self) -> str:
        """The last line it wrote to stderr."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_TAIL))
        lines = [line.strip() for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""

    def forget_log(self) -> None:
        """Empty the log, so that an engine that talks much fills no disk and old words explain no new crash."""
        self._log.truncate(0)


@dataclass
class _Backend:
    name: str
    queue: deque[Case]
    results: dict[str, CaseResult] = field(default_factory=dict)
    ready: dict[str, Any] | None = None
    failed_starts: int = 0
    unavailable: str = ""


class Pool:
    """A run over backends and cases. Its attributes hold what is known so far, also after an interruption.

    Args:
        backends: whom to run; "auto" chooses a backend per case.
        cases: what to run on each.
        tokenizer: as `load_vocabulary` takes it.
        jobs: worker processes at a time.
        limits: what one case may use.
        on_result: told of every result.
    """

    def __init__(
        self,
        backends: Sequence[str],
        cases: Sequence[Case],
        *,
        tokenizer: str,
        jobs: int,
        limits: Limits,
        on_result: Callable[[str, CaseResult], None] = lambda _backend, _result: None,
    ) -> None:
        self._backends = {name: _Backend(name, deque(cases)) for name in backends}
        self._tokenizer = tokenizer
        self._jobs = jobs
        self._limits = limits
        self._on_result = on_result
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()

    @property
    def results(self) -> dict[str, dict[str, CaseResult]]:
        """Results by backend and case id."""
        return {backend.name: backend.results for backend in self._backends.values() if not backend.unavailable}

    @property
    def unavailable(self) -> dict[str, str]:
        """Backends that could not start, with the reason."""
        return {backend.name: backend.unavailable for backend in self._backends.values() if backend.unavailable}

    @property
    def ready(self) -> dict[str, dict[str, Any]]:
        """What each backend's first worker told about itself: its version and its vocabulary."""
        return {backend.name: backend.ready for backend in self._backends.values() if backend.ready}

    def run(self) -> None:
        """Run to the end. However it ends, no worker survives.

        Raises:
            VocabularyError: the tokenizer cannot be read.
        """
        try:
            while True:
                self._hand_out()
                if not self._workers:
                    return
                for key, _ in self._selector.select(POLL_SECONDS):
                    self._hear(key.data)
                for worker in list(self._workers):
                    self._enforce_limits(worker)
        finally:
            for worker in list(self._workers):
                self._dismiss(worker)
            self._selector.close()

    def _hand_out(self) -> None:
        """Give idle workers cases, end those that have none left, and start new ones while there is room."""
        for worker in list(self._workers):
            if worker.ready and worker.charge is None:
                self._next_case(worker)
        while len(self._workers) < self._jobs:
            backend = self._neediest()
            if backend is None:
                return
            worker = Worker(backend.name, self._tokenizer)
            self._workers.append(worker)
            self._selector.register(worker, selectors.EVENT_READ, worker)

    def _neediest(self) -> _Backend | None:
        """The backend with most cases for each of its workers, among those that have more cases than workers."""
        serving = {name: sum(w.backend == name for w in self._workers) for name in self._backends}
        # A backend that has not started once gets one worker: if it cannot start, one attempt is enough.
        waiting = [
            backend
            for backend in self._backends.values()
            if len(backend.queue) > sum(w.backend == backend.name and not w.ready for w in self._workers)
            and (backend.ready or not serving[backend.name])
        ]
        return max(waiting, key=lambda b: len(b.queue) / (1 + serving[b.name]), default=None)

    def _next_case(self, worker: Worker) -> None:
        backend = self._backends[worker.backend]
        bloated = worker.memory() - worker.memory_when_ready > self._limits.megabytes * 2**20 / 2
        if not backend.queue or bloated:
            self._dismiss(worker)
            return
        worker.forget_log()
        case = backend.queue.popleft()
        if not worker.send(case):
            backend.queue.appendleft(case)
            self._lost(worker)

    def _hear(self, worker: Worker) -> None:
        messages, gone = worker.receive()
        for message in messages:
            self._handle(worker, message)
        if gone and worker in self._workers:
            worker.wait(5.0)
            self._lost(worker)

    def _handle(self, worker: Worker, message: dict[str, Any]) -> None:
        backend = self._backends[worker.backend]
        if "ready" in message:
            worker.ready = True
            worker.memory_when_ready = worker.memory()
            backend.ready = backend.ready or message["ready"]
        elif "result" in message:
            self._record(worker, CaseResult.from_dict(message["result"]))
            if message.get("spent"):
                self._dismiss(worker)
        elif message["failed"]["stage"] == "tokenizer":
            raise VocabularyError(message["failed"]["message"])
        else:
            self._dismiss(worker)
            self._cannot_start(backend, message["failed"]["message"])

    def _record(self, worker: Worker, result: CaseResult) -> None:
        charge = worker.charge
        if charge is None:
            return
        worker.charge = None
        result.seconds = round(time.monotonic() - charge.started, 3)
        backend = self._backends[worker.backend]
        backend.results[charge.case.id] = result
        backend.failed_starts = 0
        self._on_result(worker.backend, result)

    def _enforce_limits(self, worker: Worker) -> None:
        now, charge = time.monotonic(), worker.charge
        if not worker.ready:
            if now - worker.started > self._limits.start_seconds:
                self._dismiss(worker)
                reason = f"not ready after {self._limits.start_seconds:g} s"
                self._cannot_start(self._backends[worker.backend], reason)
        elif charge is not None and now - charge.started > self._limits.seconds:
            self._charge(worker, CaseResult(charge.case.id, "timeout", f"not done after {self._limits.seconds:g} s"))
        elif charge is not None:
            growth = (worker.memory() - charge.memory) / 2**20
            if growth > self._limits.megabytes:
                detail = f"out of memory: grew beyond {self._limits.megabytes:g} MB"
                self._charge(worker, CaseResult(charge.case.id, "crash", detail))

    def _charge(self, worker: Worker, result: CaseResult) -> None:
        """Record what a worker's case did to it, and end the worker."""
        self._record(worker, result)
        self._dismiss(worker)

    def _lost(self, worker: Worker) -> None:
        """A worker died: its case crashed, or it could not start."""
        words = worker.last_words()
        status = self._dismiss(worker)
        how = _death(status) + (f": {words}" if words else "")
        if worker.charge is not None:
            self._record(worker, CaseResult(worker.charge.case.id, "crash", how))
        else:
            self._cannot_start(self._backends[worker.backend], f"its process ended with {how}")

    def _cannot_start(self, backend: _Backend, reason: str) -> None:
        backend.failed_starts += 1
        if backend.ready is None:
            backend.unavailable = reason
            backend.queue.clear()
        elif backend.failed_starts >= RESTARTS:
            while backend.queue:
                case = backend.queue.popleft()
                result = CaseResult(case.id, "error", f"its worker could not be started again: {reason}")
                backend.results[case.id] = result
                self._on_result(backend.name, result)

    def _dismiss(self, worker: Worker) -> int:
        self._workers.remove(worker)
        self._selector.unregister(worker)
        return worker.kill()


def _death(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"{name} (out of memory?)" if name == "SIGKILL" else name
