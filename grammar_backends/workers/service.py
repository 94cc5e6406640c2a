"""The worker's end: a process that is warmed up once and then answers tasks until its input ends.

It reads tasks from stdin and writes answers to stdout. Whatever an engine prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from grammar_backends.errors import GrammarBackendsError
from grammar_backends.workers.messages import Message, read_message, write_message

__all__ = ["NotStarted", "Service", "one_line", "out_of_memory", "serve"]


class NotStarted(Exception):
    """A worker cannot start, and no other of its pool can: what they share is bad. Its cause says why."""


@dataclass(frozen=True)
class Service:
    """A worker that has started.

    Attributes:
        facts: what it tells about itself.
        answer: a task to its result.
    """

    facts: dict[str, Any]
    answer: Callable[[Message], Message]


def serve(start: Callable[[], Service]) -> int:
    """Start, then answer until stdin ends; the exit status: 0 when it did, 1 when it cannot start or is spent.

    What it writes has one of these heads: ``{"ready": facts}`` or ``{"failed": {"message", "everywhere"}}`` once, then
    ``{"result": head}`` with the body of the answer for each task, or ``{"spent": why}`` as its last word.
    """
    answers = _take_stdout()
    _die_with_parent()
    _die_first()
    try:
        service = start()
    except Exception as error:
        everywhere = isinstance(error, NotStarted)
        cause = error.__cause__ or error if everywhere else error
        write_message(answers, Message({"failed": {"message": one_line(cause), "everywhere": everywhere}}))
        return 1
    # What was loaded is large and lives on: without this, every full collection during a task would walk it.
    gc.collect()
    gc.freeze()
    write_message(answers, Message({"ready": service.facts}))
    return _answer_all(answers, service)


def _answer_all(answers: IO[bytes], service: Service) -> int:
    while (task := read_message(sys.stdin.buffer)) is not None:
        try:
            result = service.answer(task)
        except MemoryError:
            write_message(answers, Message({"spent": "out of memory (MemoryError)"}))
            return 1
        write_message(answers, Message({"result": result.head}, result.body))
        gc.collect()  # between tasks, so that none pays for its predecessor
    return 0


def out_of_memory(error: BaseException) -> bool:
    """Whether memory is what ran out: the layer wraps what an engine raises."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, MemoryError):
        cause = cause.__cause__
    return cause is not None


def one_line(error: BaseException) -> str:
    """An error's own words where they are this project's, else its type too; without line breaks."""
    text = str(error) if isinstance(error, GrammarBackendsError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:500]


def _take_stdout() -> IO[bytes]:
    """The real stdout for answers; whatever else writes there, natively too, goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _die_with_parent() -> None:
    """Linux: a worker inside a hanging engine must not outlive a parent that was killed.

    The parent is the thread that started it, not only the process: see `WorkerPool`.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _die_first() -> None:
    """Linux: where the machine runs out of memory, a worker goes before whoever it works for."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
