"""The parent's end of one worker: a process with two pipes, whose memory can be watched and which can be killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

from grammar_backends.workers.forks import spawning, watch_forks
from grammar_backends.workers.messages import Decoder, Message, encode

__all__ = ["POLL_SECONDS", "Limits", "Trouble", "Worker", "WorkerTrouble"]

POLL_SECONDS = 0.05
"""How often limits are looked at."""
LOG_TAIL = 4096
SEND_SECONDS = 60.0
"""How long a worker may take to read a task."""

Trouble = Literal["timeout", "memory", "crash", "killed", "unavailable", "closed"]
"""Why a task has no answer: over its time; over its memory; its worker died of it; or was killed by somebody else
(the system, out of memory?); none could be started; the pool was closed."""


class WorkerTrouble(Exception):
    """A task has no answer.

    Attributes:
        kind: why.
        detail: the same in words.
    """

    def __init__(self, kind: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.kind: Trouble = kind
        self.detail = detail


@dataclass(frozen=True)
class Limits:
    """What one worker may use.

    Attributes:
        seconds: wall time of one task.
        megabytes: growth of the resident memory during one task.
        start_seconds: wall time to start and warm up.
    """

    seconds: float = 15.0
    megabytes: float = 4096.0
    start_seconds: float = 180.0


class Worker:
    """One process and its two pipes. Used by one thread at a time, but for `signal_kill`.

    In a forked child of its parent it counts as gone, and nothing is done to it.

    It is started anew from the interpreter's executable, never forked, so that threads, locks and devices of the
    parent do not matter, and the parent's main module is not run again.

    Args:
        command: a module that calls `serve`, and its arguments.
        inherit: open file descriptors that it keeps, under their numbers.
        environment: variables that differ from the parent's.

    Attributes:
        ready: what it has told about itself; None until it is warmed up.
        started: when, by the monotonic clock.
        memory_when_ready: resident bytes at that moment.
    """

    def __init__(
        self, command: Sequence[str], *, inherit: Sequence[int] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.ready: dict[str, Any] | None = None
        self.started = time.monotonic()
        self.memory_when_ready = 0
        # None of these is buffered: a forked child would write out what another thread had left in a buffer.
        self._log = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115  # lives as long as the worker
        with spawning:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                pass_fds=inherit,
                start_new_session=True,  # so that Ctrl-C reaches the parent alone, and its children die with it
                # No module in the current folder shadows anything.
                env={**os.environ, "PYTHONSAFEPATH": "1", **(environment or {})},
            )
            watch_forks(self)
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self._decoder = Decoder()
        self._released = False
        for pipe in (self._input, self._output):
            os.set_blocking(pipe.fileno(), False)

    def after_fork(self) -> None:
        """`Forkable.after_fork`: it is the parent's."""
        self._process.returncode = -signal.SIGKILL  # nobody waits for it here
        self._release()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """The pipe to wait on."""
        return self._output.fileno()

    def send(self, message: Message, seconds: float = SEND_SECONDS) -> bool:
        """Give it a task; False when it is gone, or does not take it in this time."""
        data, deadline = memoryview(encode(message)), time.monotonic() + seconds
        if self._released:
            return False
        try:
            while data:
                written = self._input.write(data)  # None while the pipe is full
                data = data[written or 0 :]
                if data and not _wait_for(self._input, select.POLLOUT, deadline - time.monotonic()):
                    return False
        except OSError:
            return False
        return True

    def receive(self) -> tuple[list[Message], bool]:
        """The messages that have arrived, and whether it is gone."""
        gone = self._released
        while not gone:
            try:
                data = os.read(self.fileno(), 1 << 20)
            except BlockingIOError:
                break
            self._decoder.feed(data)
            gone = not data
        messages = self._decoder.take()
        # A process can be dead while a child of it still holds the pipe.
        return messages, gone or (not messages and self.exited())

    def note_ready(self, facts: dict[str, Any], megabytes: float) -> None:
        """It is warmed up: from here on its memory is measured, and bounded (see `bound_memory`)."""
        self.ready = facts
        self.memory_when_ready = self.memory()
        self.bound_memory(megabytes)

    def ask(self, task: Message, seconds: float, megabytes: float) -> Message:
        """Give it a task and wait for the answer.

        Raises:
            WorkerTrouble: there is none, and the worker is to be killed.
        """
        deadline, memory = time.monotonic() + seconds, self.memory()
        self.forget_log()
        gone = not self.send(task, seconds) and time.monotonic() < deadline
        while not gone:
            _wait_for(self._output, select.POLLIN, min(POLL_SECONDS, deadline - time.monotonic()))
            try:
                messages, gone = self.receive()
            except ValueError as error:
                raise WorkerTrouble("crash", f"its answer cannot be read: {error}") from error
            if messages:
                return _answer(messages[0])
            if time.monotonic() >= deadline:
                raise WorkerTrouble("timeout", f"not done after {seconds:.3g} s")
            if (self.memory() - memory) / 2**20 > megabytes:
                raise WorkerTrouble("memory", f"out of memory: grew beyond {megabytes:g} MB")
        self.wait(5.0)
        words = self.last_words()
        status = self.kill()
        kind: Trouble = "killed" if status == -signal.SIGKILL else "crash"
        raise WorkerTrouble(kind, describe_exit(status) + (f": {words}" if words else ""))

    def memory(self) -> int:
        """Resident memory in bytes; 0 where it cannot be told."""
        return self._memory_field(1)

    def _memory_field(self, index: int) -> int:
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[index]) * os.sysconf("SC_PAGESIZE")
        except (OSError, IndexError):
            return 0

    def bound_memory(self, megabytes: float) -> None:
        """Linux: an allocation fails that would go far beyond what a task may use, however quick it is.

        Watching the resident memory comes first: it leaves address space that is only reserved out of account.
        """
        if sys.platform != "linux":
            return
        import resource  # not on every system

        space = self._memory_field(0) + int(2 * megabytes * 2**20) + 2**30
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(self.pid, resource.RLIMIT_AS, (space, space))

    def signal_kill(self) -> None:
        """End it and everything it started, without waiting; from any thread."""
        if not self._released:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def kill(self) -> int:
        """End it and everything it started, and release what it held; its exit status, negative for a signal."""
        if self._released:
            return self._process.returncode
        status = self._process.poll()
        self.signal_kill()
        self._process.wait()
        self._release()
        return self._process.returncode if status is None else status

    def _release(self) -> None:
        self._released = True
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                cast("IO[bytes]", pipe).close()

    def exited(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

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
        self._log.seek(0)  # the worker writes where its parent left off: they share the place in the file
        self._log.truncate()


def _wait_for(pipe: IO[bytes], event: int, seconds: float) -> bool:
    """Wait until a pipe can be used; whether it can, or never will."""
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(1000 * max(0.0, seconds)))


def _answer(message: Message) -> Message:
    if "spent" in message.head:
        raise WorkerTrouble("memory", message.head["spent"])
    return Message(message.head["result"], message.body)


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"{name} (out of memory?)" if name == "SIGKILL" else name
