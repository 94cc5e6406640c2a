"""Runs tasks in worker processes, and keeps one bad task from spoiling the run.

A worker serves one lane (a backend with its vocabulary) and is started once, not per task: forking for each would
inflate the time to the first mask tenfold. One that exceeds its time or memory, or dies, is replaced; only the task
it worked on is charged.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, TypeVar

from grammar_backends.errors import VocabularyError
from grammar_backends.workers import Limits, Message, Worker, describe_exit
from grammar_backends.workers.process import POLL_SECONDS

__all__ = ["Lane", "Pool", "Result", "Task", "Trouble"]

RESTARTS = 3
"""Failed starts in a row before a lane that did work is given up."""


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
        command: the worker: a module that calls `workers.serve`, and its arguments.
        tasks: what to run.
    """

    name: str
    command: tuple[str, ...]
    tasks: tuple[T, ...] = ()


@dataclass(frozen=True)
class Charge(Generic[T]):
    """The task a worker is busy with."""

    task: T
    started: float
    memory: int


class LaneWorker(Worker, Generic[T]):
    """A worker of a lane.

    Attributes:
        lane: name of the lane it serves.
        charge: what it is busy with.
    """

    def __init__(self, lane: Lane[T]) -> None:
        super().__init__(lane.command)
        self.lane = lane.name
        self.charge: Charge[T] | None = None

    def give(self, task: T) -> bool:
        """Give it a task; False when it is gone."""
        self.charge = Charge(task, time.monotonic(), self.memory())
        if not self.send(Message(task.to_dict())):
            self.charge = None
            return False
        return True


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
        self._workers: list[LaneWorker[T]] = []
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
            idle = [w for w in self._workers if w.lane == name and w.ready is not None and w.charge is None]
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
            if worker.ready is not None and worker.charge is None:
                self._next_task(worker)
        while len(self._workers) < self._jobs:
            lane = self._neediest()
            if lane is None:
                return
            self._start(lane)

    def _start(self, lane: _Lane[T, R]) -> None:
        worker = LaneWorker(lane.lane)
        self._workers.append(worker)
        self._selector.register(worker, selectors.EVENT_READ, worker)

    def _neediest(self) -> _Lane[T, R] | None:
        """The lane with most tasks for each of its workers, among those that have more tasks than workers."""
        serving = {name: sum(w.lane == name for w in self._workers) for name in self._lanes}
        # A lane that has not started once gets one worker: if it cannot start, one attempt is enough.
        waiting = [
            lane
            for name, lane in self._lanes.items()
            if len(lane.queue) > sum(w.lane == name and w.ready is None for w in self._workers)
            and (lane.ready or not serving[name])
        ]
        return max(waiting, key=lambda lane: len(lane.queue) / (1 + serving[lane.lane.name]), default=None)

    def _next_task(self, worker: LaneWorker[T]) -> None:
        lane = self._lanes[worker.lane]
        bloated = worker.memory() - worker.memory_when_ready > self._limits.megabytes * 2**20 / 2
        if not lane.queue or bloated:
            self._dismiss(worker)
            return
        worker.forget_log()
        task = lane.queue.popleft()
        if not worker.give(task):
            lane.queue.appendleft(task)
            self._lost(worker)

    def _hear(self, worker: LaneWorker[T]) -> None:
        messages, gone = worker.receive()
        for message in messages:
            self._handle(worker, message.head)
        if gone and worker in self._workers:
            worker.wait(5.0)
            self._lost(worker)

    def _handle(self, worker: LaneWorker[T], head: dict[str, Any]) -> None:
        lane = self._lanes[worker.lane]
        if "ready" in head:
            worker.note_ready(head["ready"], self._limits.megabytes)
            lane.ready = lane.ready or head["ready"]
        elif "result" in head:
            self._record(worker, self._read(head["result"]))
        elif "spent" in head and worker.charge is not None:
            self._charge(worker, worker.charge, "crash", head["spent"])
        elif head["failed"]["everywhere"]:
            raise VocabularyError(head["failed"]["message"])
        else:
            self._dismiss(worker)
            self._cannot_start(lane, head["failed"]["message"])

    def _record(self, worker: LaneWorker[T], result: R) -> None:
        charge = worker.charge
        if charge is None:
            return
        worker.charge = None
        result.seconds = round(time.monotonic() - charge.started, 3)
        lane = self._lanes[worker.lane]
        lane.results[charge.task.id] = result
        lane.failed_starts = 0
        self._on_result(worker.lane, result)

    def _enforce_limits(self, worker: LaneWorker[T]) -> None:
        now, charge = time.monotonic(), worker.charge
        if worker.ready is None:
            if now - worker.started > self._limits.start_seconds:
                self._dismiss(worker)
                self._cannot_start(self._lanes[worker.lane], f"not ready after {self._limits.start_seconds:g} s")
        elif charge is not None and now - charge.started > self._limits.seconds:
            self._charge(worker, charge, "timeout", f"not done after {self._limits.seconds:g} s")
        elif charge is not None and (worker.memory() - charge.memory) / 2**20 > self._limits.megabytes:
            self._charge(worker, charge, "crash", f"out of memory: grew beyond {self._limits.megabytes:g} MB")

    def _charge(self, worker: LaneWorker[T], charge: Charge[T], trouble: Trouble, detail: str) -> None:
        """Record what a worker's task did to it, and end the worker."""
        self._record(worker, self._trouble(charge.task.id, trouble, detail))
        self._dismiss(worker)

    def _lost(self, worker: LaneWorker[T]) -> None:
        """A worker died: its task crashed, or it could not start."""
        words = worker.last_words()
        status = self._dismiss(worker)
        how = describe_exit(status) + (f": {words}" if words else "")
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

    def _dismiss(self, worker: LaneWorker[T]) -> int:
        self._workers.remove(worker)
        self._selector.unregister(worker)
        return worker.kill()
