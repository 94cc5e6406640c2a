"""A bounded pool of threads in which a call that does not come back is given up, counted and, up to a cap, replaced.

A native call cannot be stopped, so its thread is lost until it returns. They are daemons: none keeps a process from
ending (E6, E16).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from grammar_backends.workers import watch_forks

__all__ = ["CompileThreads", "Job", "ThreadState"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ThreadState:
    """How a pool of threads is.

    Attributes:
        busy: threads with a job, without the stuck ones.
        stuck: threads in a call that was given up and has not returned.
        queued: jobs that wait.
    """

    busy: int
    stuck: int
    queued: int


@dataclass(frozen=True, eq=False)
class Job:
    """What is to be done: `run`, or `refuse` when no thread is left that could. Neither may raise."""

    run: Callable[[], None]
    refuse: Callable[[], None]


@dataclass(eq=False)
class _Call:
    """A call that is watched."""

    thread: threading.Thread
    deadline: float
    give_up: Callable[[], None]


class CompileThreads:
    """Threads for jobs. Thread-safe.

    Args:
        size: threads that work, without the stuck ones.
        max_stuck: stuck threads that are replaced.
    """

    def __init__(self, size: int, max_stuck: int) -> None:
        self._size = size
        self._max_stuck = max_stuck
        self._closed = False
        self._forget()
        self._watch = threading.Thread(target=self._watch_calls, name="grammar-backends-watch", daemon=True)
        self._watch.start()
        with self._work:
            self._fill_up()
        watch_forks(self)

    def _forget(self) -> None:
        """Be without jobs and threads."""
        lock = threading.Lock()
        self._work = threading.Condition(lock)
        self._watched = threading.Condition(lock)
        self._jobs: OrderedDict[Job, None] = OrderedDict()  # the first one, and any one, leaves at once
        self._calls: set[_Call] = set()
        self._threads: set[threading.Thread] = set()
        self._stuck: set[threading.Thread] = set()
        self._busy = 0

    def after_fork(self) -> None:
        """`Forkable.after_fork`: closed, since the threads are the parent's."""
        self._closed = True
        self._forget()

    def submit(self, job: Job) -> None:
        """Queue a job; one that comes after `close` is dropped."""
        with self._work:
            if self._closed:
                return
            self._fill_up()
            hopeless = len(self._stuck) >= len(self._threads)
            if not hopeless:
                self._jobs[job] = None
                self._work.notify()
        if hopeless:
            job.refuse()

    def withdraw(self, job: Job) -> None:
        """Drop a job that has not begun, with all that it holds."""
        with self._work:
            self._jobs.pop(job, None)

    @contextmanager
    def limited(self, seconds: float, give_up: Callable[[], None]) -> Iterator[None]:
        """Inside a job: around a call that may not come back. When it is late, `give_up` runs in another thread."""
        call = _Call(threading.current_thread(), time.monotonic() + seconds, give_up)
        with self._watched:
            self._calls.add(call)
            self._watched.notify()
        try:
            yield
        finally:
            with self._watched:
                self._calls.discard(call)

    @property
    def state(self) -> ThreadState:
        """How it is now."""
        with self._work:
            return ThreadState(self._busy - len(self._stuck), len(self._stuck), len(self._jobs))

    def close(self, seconds: float) -> bool:
        """Drop what is queued, and wait for what runs; whether every thread has ended."""
        deadline = time.monotonic() + seconds
        with self._work:
            self._closed = True
            self._jobs.clear()
            self._work.notify_all()
            self._watched.notify()
            threads = self._threads - {threading.current_thread()}
        for thread in {*threads, self._watch} - {threading.current_thread()}:  # a callback may close its own pool
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _fill_up(self) -> None:
        """Start threads, so that `size` of them work; for more stuck ones than `max_stuck` there is no replacement."""
        wanted = self._size + min(len(self._stuck), self._max_stuck)
        while not self._closed and len(self._threads) < wanted:
            thread = threading.Thread(target=self._serve, name="grammar-backends-compile", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system has none left now; the next job asks again
                logger.error("only %d of %d threads compile: %s", len(self._threads), wanted, error)
                return
            self._threads.add(thread)

    def _serve(self) -> None:
        thread = threading.current_thread()
        while True:
            with self._work:
                self._work.wait_for(lambda: self._jobs or self._closed)
                if self._closed:
                    break
                job, _ = self._jobs.popitem(last=False)
                self._busy += 1
            job.run()
            del job  # what it holds is not kept until the next one
            with self._work:
                self._busy -= 1
                self._stuck.discard(thread)
                if len(self._threads) > self._size + min(len(self._stuck), self._max_stuck):
                    self._threads.discard(thread)  # it was stuck, and has been replaced
                    break

    def _watch_calls(self) -> None:
        while (late := self._next_late()) is not None:
            late.give_up()
            del late
            self._refuse_hopeless()

    def _refuse_hopeless(self) -> None:
        """Refuse what is queued though no thread is left for it."""
        with self._work:
            if len(self._stuck) < len(self._threads):
                return
            jobs = list(self._jobs)
            self._jobs.clear()
        for job in jobs:
            job.refuse()

    def _next_late(self) -> _Call | None:
        """Wait for a call to be late, and count its thread as stuck; None when the pool is closed."""
        with self._watched:
            while not self._closed:
                call = min(self._calls, key=lambda call: call.deadline, default=None)
                left = None if call is None else call.deadline - time.monotonic()
                if call is not None and left is not None and left <= 0:
                    self._calls.discard(call)
                    self._stuck.add(call.thread)
                    self._fill_up()
                    return call
                del call  # what it holds is not kept while nothing happens
                self._watched.wait(left)
            return None
