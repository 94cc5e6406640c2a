"""The worker's end of a pool: a process that is warmed up once and then answers tasks until its input ends.

It reads a task a line from stdin and answers each with a line on stdout. Whatever an engine prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from grammar_backends.errors import GrammarBackendsError

__all__ = ["NotStarted", "Service", "one_line", "out_of_memory", "serve"]


class NotStarted(Exception):
    """A worker cannot start, and no other of its pool can: what they share is bad. Its cause says why."""


@dataclass(frozen=True)
class Service:
    """A worker that has started.

    Attributes:
        facts: what it tells about itself.
        answer: a task, as decoded, to its result.
    """

    facts: dict[str, Any]
    answer: Callable[[dict[str, Any]], dict[str, Any]]


def serve(start: Callable[[], Service]) -> int:
    """Start, then answer until stdin ends; the exit status: 0 when it did, 1 when it cannot start or is spent."""
    answers = _take_stdout()
    _die_with_parent()
    try:
        service = start()
    except Exception as error:
        everywhere = isinstance(error, NotStarted)
        cause = error.__cause__ or error if everywhere else error
        _send(answers, {"failed": {"message": one_line(cause), "everywhere": everywhere}})
        return 1
    # What was loaded is large and lives on: without this, every full collection during a task would walk it.
    gc.collect()
    gc.freeze()
    _send(answers, {"ready": service.facts})
    return _answer_all(answers, service)


def _answer_all(answers: IO[str], service: Service) -> int:
    for line in sys.stdin:
        task = json.loads(line)
        try:
            result = service.answer(task)
        except MemoryError:
            spent = {"id": task["id"], "outcome": "crash", "detail": "out of memory (MemoryError)"}
            _send(answers, {"result": spent, "spent": True})
            return 1
        _send(answers, {"result": result})
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


def _send(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _take_stdout() -> IO[str]:
    """The real stdout for answers; whatever else writes there, natively too, goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _die_with_parent() -> None:
    """Linux: a worker inside a hanging engine must not outlive a parent that was killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
