"""A few workers of one kind, kept warm for the threads of a program.

One thread of its own starts them, so that a task never pays for a start: a worker that was killed is replaced while
the others go on. It also must be one thread that lives as long as they do, since Linux ends a worker whose starting
thread ends.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grammar_backends.workers.forks import watch_forks
from grammar_backends.workers.messages import Message
from grammar_backends.workers.process import POLL_SECONDS, Limits, Worker, WorkerTrouble, describe_exit

__all__ = ["PoolState", "WorkerPool"]

LONGEST_PAUSE = 60.0
"""Seconds between attempts to start a worker, when one after another has failed."""


@dataclass(frozen=True)
class PoolState:
    """How a pool is.

    Attributes:
        idle: warm workers that wait for a task.
        busy: workers with a task.
        starting: workers that warm up.
        lost: workers that died, or were killed or replaced over their task, so far.
        unavailable: why no worker could be started; "" when the latest start went well.
    """

    idle: int
    busy: int
    starting: int
    lost: int
    unavailable: str


class WorkerPool:
    """Warm workers. Thread-safe; starts them at once, in the background. In a forked child it is closed.

    Args:
        command: a module that calls `serve`, and its arguments; with `setup`, the number of a file descriptor to read
            that from is added.
        size: workers to keep, idle and busy ones together.
        limits: what a task may use, and a start.
        setup: what every worker is to read once, as `setup_of` does.
        environment: variables that differ in the workers.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        size: int,
        limits: Limits,
        setup: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._size = size
        self._limits = limits
        self._environment = environment
        self._setup = tempfile.TemporaryFile() if setup else None  # noqa: SIM115  # lives as long as the pool
        self._command = tuple(command)
        if self._setup is not None:
            self._setup.write(setup)
            self._setup.flush()
            self._command += (str(self._setup.fileno()),)
        self._lost = 0
        self._failed_starts = 0
        self._next_start = 0.0
        self._unavailable = ""
        self._closed = False
        self._forget()
        self._keeper = threading.Thread(target=self._keep, name="grammar-backends-worker-keeper", daemon=True)
        self._keeper.start()
        watch_forks(self)

    def _forget(self) -> None:
        """Be without workers."""
        self._changed = threading.Condition()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._starting: list[Worker] = []

    def after_fork(self) -> None:
        """`Forkable.after_fork`: closed, since the workers are the parent's."""
        self._closed = True
        self._forget()

    def run(self, task: Message, *, seconds: float | None = None) -> Message:
        """The answer to a task, from the first worker that is free; waits for one while there is hope.

        Args:
            task: what to answer.
            seconds: its time, when other than that of the limits; waiting for a worker is not part of it.

        Raises:
            WorkerTrouble: there is no answer. Only this task is charged; its worker is replaced.
        """
        seconds = self._limits.seconds if seconds is None else seconds
        worker = self._take()
        while worker.exited():  # while it was idle: no task is charged for that
            self._drop(worker)
            worker = self._take()
        try:
            answer = worker.ask(task, seconds, self._limits.megabytes)
        except WorkerTrouble as trouble:
            self._drop(worker)
            raise WorkerTrouble("closed", "the workers were stopped") if self._closed else trouble from None
        except BaseException:
            self._drop(worker)
            raise
        if not self._give_back(worker):
            self._drop(worker)
        return answer

    @property
    def state(self) -> PoolState:
        """How it is now."""
        with self._changed:
            return PoolState(len(self._idle), len(self._busy), len(self._starting), self._lost, self._unavailable)

    def wait_warm(self, seconds: float | None = None) -> bool:
        """Wait until every worker is warm, or one could not be started; whether they are."""
        with self._changed:
            warm = self._changed.wait_for(
                lambda: len(self._idle) + len(self._busy) >= self._size or self._unavailable or self._closed, seconds
            )
            return bool(warm) and not self._unavailable and not self._closed

    def close(self, seconds: float = 5.0) -> bool:
        """Kill every worker, whatever it does; whether all are gone. Tasks that wait get their trouble at once."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._closed = True
            for worker in self._busy:
                worker.signal_kill()  # whoever waits for its answer sees that, and releases it
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for worker in idle:
            worker.kill()
        self._keeper.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            gone = self._changed.wait_for(lambda: not self._busy, max(0.0, deadline - time.monotonic()))
        if self._setup is not None and not self._keeper.is_alive():
            self._setup.close()
        return gone and not self._keeper.is_alive()

    def _take(self) -> Worker:
        with self._changed:
            self._changed.wait_for(lambda: self._idle or self._closed or self._hopeless())
            if self._closed:
                raise WorkerTrouble("closed", "the workers were stopped")
            if not self._idle:
                raise WorkerTrouble("unavailable", f"no worker could be started: {self._unavailable}")
            worker = self._idle.pop()
            self._busy.add(worker)
            return worker

    def _hopeless(self) -> bool:
        return bool(self._unavailable) and not self._busy and not self._starting

    def _give_back(self, worker: Worker) -> bool:
        """Keep a worker for the next task; False when it is to be dropped: it has grown much, or the pool is closed."""
        grown = worker.memory() - worker.memory_when_ready
        with self._changed:
            if self._closed or grown > self._limits.megabytes * 2**20 / 2:
                return False
            self._busy.discard(worker)
            self._idle.append(worker)
            self._changed.notify_all()
            return True

    def _drop(self, worker: Worker) -> None:
        """Kill a worker that was taken; the keeper starts another one."""
        worker.kill()
        with self._changed:
            self._busy.discard(worker)
            self._lost += 1
            self._changed.notify_all()

    def _keep(self) -> None:
        """The keeper: start what is missing, and take in what is warm."""
        while self._wait_for_work():
            for worker in list(self._starting):
                self._look_at(worker)
        for worker in (*self._starting, *self._idle):  # one may have become ready while the pool was closed
            worker.kill()
        self._starting.clear()
        self._idle.clear()

    def _wait_for_work(self) -> bool:
        """Start missing workers, and wait until there may be something to see; False when the pool is closed."""
        with self._changed:
            while not self._closed:
                pause = self._next_start - time.monotonic()
                missing = self._size - len(self._idle) - len(self._busy) - len(self._starting)
                if missing > 0 and pause <= 0:
                    self._start(missing)
                if self._starting:
                    self._changed.wait(POLL_SECONDS)
                    return not self._closed
                self._changed.wait(max(0.0, pause) if missing > 0 else None)
            return False

    def _start(self, count: int) -> None:
        inherit = () if self._setup is None else (self._setup.fileno(),)
        try:
            for _ in range(count):
                self._starting.append(Worker(self._command, inherit=inherit, environment=self._environment))
        except OSError as error:  # no process, memory or descriptor left
            self._note_failed_start(str(error))

    def _look_at(self, worker: Worker) -> None:
        """Take in a worker that has become ready, or give up one that will not."""
        try:
            trouble = self._start_trouble(worker)
        except Exception as error:  # nothing that a worker says may end the keeper
            trouble = f"its first words cannot be read: {error!r}"
        if worker.ready is None and not trouble:
            return
        if trouble:
            worker.kill()
        with self._changed:
            self._starting.remove(worker)
            if trouble:
                self._note_failed_start(trouble)
                return
            self._idle.append(worker)
            self._failed_starts, self._unavailable = 0, ""
            self._changed.notify_all()

    def _start_trouble(self, worker: Worker) -> str:
        """Why a worker does not start; "" when it has, or still may."""
        messages, gone = worker.receive()
        if messages and "ready" in messages[0].head:
            worker.note_ready(messages[0].head["ready"], self._limits.megabytes)
            return ""
        if messages:
            return str(messages[0].head["failed"]["message"])
        if gone:
            words = worker.last_words()
            return describe_exit(worker.kill()) + (f": {words}" if words else "")
        if time.monotonic() - worker.started > self._limits.start_seconds:
            return f"not ready after {self._limits.start_seconds:g} s"
        return ""

    def _note_failed_start(self, reason: str) -> None:
        self._failed_starts += 1
        self._unavailable = reason
        self._next_start = time.monotonic() + min(LONGEST_PAUSE, 2.0**self._failed_starts)
        self._changed.notify_all()
