"""What a forked child has of its parent's objects: their memory, but neither the threads nor the processes behind it.

Whoever holds locks, threads or workers is told of it in the child, before anything else runs there, so that no call
waits for a thread that is not there, and none reaches into the parent's workers.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

__all__ = ["Forkable", "spawning", "watch_forks"]


class Forkable(Protocol):
    """An object that a fork would leave broken."""

    def after_fork(self) -> None:
        """In the child: make new locks, let go of threads and processes. Neither waits nor raises."""
        ...


spawning = threading.RLock()
"""Held while a worker is started. No fork comes in between: its child would keep the pipe open by which the parent
learns that the worker has begun, and so stop the parent for as long as it lives."""

_objects: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch_forks(thing: Forkable) -> None:
    """Have an object told of every fork, as long as it lives."""
    _objects.add(thing)


def _adapt() -> None:
    spawning.release()
    for thing in list(_objects):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=spawning.acquire, after_in_parent=spawning.release, after_in_child=_adapt)
