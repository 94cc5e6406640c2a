"""Runs tasks in worker processes, and keeps one bad task from spoiling the run.

A worker serves one lane (a backend with its vocabulary) and is started once, not per task: forking for each would
inflate the time to the first mask tenfold. One that exceeds its time or memory, or dies, is replaced; only the task
it worked on is charged.
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Generic, Literal, Protocol, TypeVar, cast

from grammar_backends.errors import VocabularyError

__all__ = ["Lane", "Limits", "Pool", "Result", "Task", "Trouble"]

POLL_SECONDS = 0.05
"""How often limits are looked at."""
RESTARTS = 3
"""Failed starts in a row before a lane that did work is given up."""
LOG_TAIL = 4096


Trouble = Literal["crash", "timeout", "error"]
"""What becomes of a task that its worker could not answer."""


class Task(Protocol):
    """What a worker is given."""

    @property
    def id(self) -> str:
        """Unique in its lane."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, with the id."""
        ...


class Result(Protocol):
    """What a worker answers."""

    id: str
    seconds: float

    @property
    def outcome(self) -> str:
        """One word."""
        ...


T = TypeVar("T", bound=Task)
R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Lane(Generic[T]):
    """Tasks that one kind of worker serves.

    Attributes:
        name: unique in its pool.
        command: the worker: a module that calls `running.process.serve`, and its arguments.
        tasks: what to run.
    """

    name: str
    command: tuple[str, ...]
    tasks: tuple[T, ...] = ()


@dataclass(frozen=True)
class Limits:
    """What one worker may use.

    Attributes:
        seconds: wall time of one task.
        megabytes: growth of the resident memory during one task.
        start_seconds: wall time to load the vocabulary and the backend and to warm up.
    """

    seconds: float = 15.0
    megabytes: float = 4096.0
    start_seconds: float = 180.0


@dataclass(frozen=True)
class Charge(Generic[T]):
    """The task a worker is busy with."""

    task: T
    started: float
    memory: int


class Worker(Generic[T]):
    """One process and its two pipes.

    Attributes:
        lane: name of the lane it serves.
        ready: whether it has told that it is warmed up.
        charge: what it is busy with.
    """

    def __init__(self, lane: Lane[T]) -> None:
        self.lane = lane.name
        self.ready = False
        self.charge: Charge[T] | None = None
        self.started = time.monotonic()
        self.memory_when_ready = 0
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115  # lives as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", *lane.command],
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

    def send(self, task: T) -> bool:
        """Give it a task; False when it is gone."""
        self.charge = Charge(task, time.monotonic(), self.memory())
        try:
            self._input.write(json.dumps(task.to_dict()).encode() + b"\n")
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
class _Lane(Generic[T, R]):
    """A lane on its way."""

    lane: Lane[T]
    queue: deque[T]
    results: dict[str, R] = field(default_factory=dict)
    ready: dict[str, Any] | None = None
    failed_starts: int = 0
    unavailable: str = ""


class Pool(Generic[T, R]):
    """A run over lanes. Its attributes hold what is known so far, also after an interruption.

    A context manager: however it is left, no worker survives.

    Args:
        lanes: what to run.
        jobs: worker processes at a time.
        limits: what one task may use.
        read: a worker's answer, as decoded, to a result.
        trouble: makes the result of a task that its worker could not answer: id, outcome, detail.
        on_result: told of every result, with its lane's name.
    """

    def __init__(
        self,
        lanes: Sequence[Lane[T]],
        *,
        jobs: int,
        limits: Limits,
        read: Callable[[dict[str, Any]], R],
        trouble: Callable[[str, Trouble, str], R],
        on_result: Callable[[str, R], None] = lambda _lane, _result: None,
    ) -> None:
        self._lanes: dict[str, _Lane[T, R]] = {lane.name: _Lane(lane, deque(lane.tasks)) for lane in lanes}
        self._jobs = jobs
        self._limits = limits
        self._read = read
        self._trouble = trouble
        self._on_result = on_result
        self._workers: list[Worker[T]] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Pool[T, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def results(self) -> dict[str, dict[str, R]]:
        """Results by lane and task id, of the lanes that could start."""
        return {name: lane.results for name, lane in self._lanes.items() if not lane.unavailable}

    @property
    def unavailable(self) -> dict[str, str]:
        """Lanes that could not start, with the reason."""
        return {name: lane.unavailable for name, lane in self._lanes.items() if lane.unavailable}

    @property
    def ready(self) -> dict[str, dict[str, Any]]:
        """What each lane's first worker told about itself."""
        return {name: lane.ready for name, lane in self._lanes.items() if lane.ready}

    def run(self) -> None:
        """Run every task, then end the workers.

        Raises:
            VocabularyError: what all lanes share cannot be read.
        """
        while True:
            self._hand_out()
            if not self._workers:
                return
            self._turn()

    def add(self, name: str, tasks: Iterable[T]) -> None:
        """More tasks for a lane, also while the pool runs."""
        self._lanes[name].queue.extend(tasks)

    def ask(self, name: str, task: T) -> R:
        """Run one more task in a lane, and keep its worker warm for the next one; `jobs` workers at most stay.

        Raises:
            VocabularyError: what all lanes share cannot be read.
        """
        self.add(name, [task])
        lane = self._lanes[name]
        while task.id not in lane.results:
            if lane.unavailable:
                return self._trouble(task.id, "error", lane.unavailable)
            idle = [w for w in self._workers if w.lane == name and w.ready and w.charge is None]
            if idle and lane.queue:
                self._next_task(idle[0])
            elif lane.queue and not any(w.lane == name for w in self._workers):
                for other in self._workers[: max(0, len(self._workers) - self._jobs + 1)]:
                    self._dismiss(other)  # idle, and longest so
                self._start(lane)
            else:
                self._turn()
        return lane.results[task.id]

    def close(self) -> None:
        """End every worker."""
        for worker in list(self._workers):
            self._dismiss(worker)
        self._selector.close()

    def _turn(self) -> None:
        """Wait a moment for answers, and look at the limits."""
        for key, _ in self._selector.select(POLL_SECONDS):
            self._hear(key.data)
        for worker in list(self._workers):
            self._enforce_limits(worker)

    def _hand_out(self) -> None:
        """Give idle workers tasks, end those that have none left, and start new ones while there is room."""
        for worker in list(self._workers):
            if worker.ready and worker.charge is None:
                self._next_task(worker)
        while len(self._workers) < self._jobs:
            lane = self._neediest()
            if lane is None:
                return
            self._start(lane)

    def _start(self, lane: _Lane[T, R]) -> None:
        worker = Worker(lane.lane)
        self._workers.append(worker)
        self._selector.register(worker, selectors.EVENT_READ, worker)

    def _neediest(self) -> _Lane[T, R] | None:
        """The lane with most tasks for each of its workers, among those that have more tasks than workers."""
        serving = {name: sum(w.lane == name for w in self._workers) for name in self._lanes}
        # A lane that has not started once gets one worker: if it cannot start, one attempt is enough.
        waiting = [
            lane
            for name, lane in self._lanes.items()
            if len(lane.queue) > sum(w.lane == name and not w.ready for w in self._workers)
            and (lane.ready or not serving[name])
        ]
        return max(waiting, key=lambda lane: len(lane.queue) / (1 + serving[lane.lane.name]), default=None)

    def _next_task(self, worker: Worker[T]) -> None:
        lane = self._lanes[worker.lane]
        bloated = worker.memory() - worker.memory_when_ready > self._limits.megabytes * 2**20 / 2
        if not lane.queue or bloated:
            self._dismiss(worker)
            return
        worker.forget_log()
        task = lane.queue.popleft()
        if not worker.send(task):
            lane.queue.appendleft(task)
            self._lost(worker)

    def _hear(self, worker: Worker[T]) -> None:
        messages, gone = worker.receive()
        for message in messages:
            self._handle(worker, message)
        if gone and worker in self._workers:
            worker.wait(5.0)
            self._lost(worker)

    def _handle(self, worker: Worker[T], message: dict[str, Any]) -> None:
        lane = self._lanes[worker.lane]
        if "ready" in message:
            worker.ready = True
            worker.memory_when_ready = worker.memory()
            lane.ready = lane.ready or message["ready"]
        elif "result" in message:
            self._record(worker, self._read(message["result"]))
            if message.get("spent"):
                self._dismiss(worker)
        elif message["failed"]["everywhere"]:
            raise VocabularyError(message["failed"]["message"])
        else:
            self._dismiss(worker)
            self._cannot_start(lane, message["failed"]["message"])

    def _record(self, worker: Worker[T], result: R) -> None:
        charge = worker.charge
        if charge is None:
            return
        worker.charge = None
        result.seconds = round(time.monotonic() - charge.started, 3)
        lane = self._lanes[worker.lane]
        lane.results[charge.task.id] = result
        lane.failed_starts = 0
        self._on_result(worker.lane, result)

    def _enforce_limits(self, worker: Worker[T]) -> None:
        now, charge = time.monotonic(), worker.charge
        if not worker.ready:
            if now - worker.started > self._limits.start_seconds:
                self._dismiss(worker)
                self._cannot_start(self._lanes[worker.lane], f"not ready after {self._limits.start_seconds:g} s")
        elif charge is not None and now - charge.started > self._limits.seconds:
            self._charge(worker, charge, "timeout", f"not done after {self._limits.seconds:g} s")
        elif charge is not None and (worker.memory() - charge.memory) / 2**20 > self._limits.megabytes:
            self._charge(worker, charge, "crash", f"out of memory: grew beyond {self._limits.megabytes:g} MB")

    def _charge(self, worker: Worker[T], charge: Charge[T], trouble: Trouble, detail: str) -> None:
        """Record what a worker's task did to it, and end the worker."""
        self._record(worker, self._trouble(charge.task.id, trouble, detail))
        self._dismiss(worker)

    def _lost(self, worker: Worker[T]) -> None:
        """A worker died: its task crashed, or it could not start."""
        words = worker.last_words()
        status = self._dismiss(worker)
        how = _death(status) + (f": {words}" if words else "")
        if worker.charge is not None:
            self._record(worker, self._trouble(worker.charge.task.id, "crash", how))
        else:
            self._cannot_start(self._lanes[worker.lane], f"its process ended with {how}")

    def _cannot_start(self, lane: _Lane[T, R], reason: str) -> None:
        lane.failed_starts += 1
        if lane.ready is None:
            lane.unavailable = reason
            lane.queue.clear()
        elif lane.failed_starts >= RESTARTS:
            while lane.queue:
                id_ = lane.queue.popleft().id
                lane.results[id_] = self._trouble(id_, "error", f"its worker could not be started again: {reason}")
                self._on_result(lane.lane.name, lane.results[id_])

    def _dismiss(self, worker: Worker[T]) -> int:
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
