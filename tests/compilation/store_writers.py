"""Processes that write to one store, for tests: run as ``python store_writers.py TASK DIRECTORY``.

The bytes of an entry follow from its key, so that any reader can tell whether they are right.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from grammar_backends.compilation.store import ArtifactStore

KEYS = [f"{number:064x}" for number in range(24)]
KILLS = 200
MAX_BYTES = 1 << 20


def data_of(key: str) -> bytes:
    """Up to 100 kB that do not compress, and are right for this key only."""
    rng = random.Random(key)
    return rng.randbytes(rng.randrange(100_000))


def check_all(store: ArtifactStore) -> int:
    """Read every key, and return how many are there."""
    found = 0
    for key in KEYS:
        data = store.get(key)
        if data is not None and data != data_of(key):
            raise AssertionError(f"{key} holds {len(data)} wrong bytes")
        found += data is not None
    return found


def write_for_ever(store: ArtifactStore, rng: random.Random) -> None:
    while True:
        key = rng.choice(KEYS)
        store.put(key, data_of(key))


def report(*figures: int) -> None:
    sys.stdout.write(" ".join(str(int(figure)) for figure in figures))


def kill_writers(directory: Path) -> None:
    """Kill a writer in the midst of its work, again and again; report how often it left an unfinished file."""
    store, rng, unfinished = ArtifactStore(directory), random.Random(0), 0
    for number in range(KILLS):
        pid = os.fork()
        if not pid:
            write_for_ever(ArtifactStore(directory), random.Random(number))
        time.sleep(rng.uniform(0, 0.01))  # any moment will do
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        left = list(directory.glob(".*.writing"))
        unfinished += bool(left)
        for path in left:
            path.unlink()
        check_all(store)
    report(unfinished, check_all(store), store.damaged)


def work_at_once(directory: Path) -> None:
    """Write, read and remove in a store that is too small for everything, beside others that do the same."""
    rng, store = random.Random(os.getpid()), ArtifactStore(directory, max_bytes=MAX_BYTES)
    for _ in range(300):
        key = rng.choice(KEYS)
        task = rng.random()
        if task < 0.5:
            store.put(key, data_of(key))
        elif task < 0.9:
            data = store.get(key)
            if data is not None and data != data_of(key):
                raise AssertionError(f"{key} holds {len(data)} wrong bytes")
        else:
            store.remove(key)
    report(store.evictions, check_all(store), store.damaged)


def fill_disk(directory: Path) -> None:
    """Write where no file may be longer than a page, for which Python ignores the signal that comes with it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    no_room(directory)


def no_room(directory: Path) -> None:
    """Write what is too large for where it is written to, beside what is not."""
    store = ArtifactStore(directory)
    small, large = KEYS[:2]
    store.put(small, b"small")
    kept = 0
    for _ in range(10):
        store.put(large, os.urandom(100_000))
        kept += store.get(large) is not None
    report(kept, int(store.get(small) == b"small"), len(list(directory.iterdir())))


def read_only(directory: Path) -> None:
    """Read and write where only reading is allowed, which root does not notice."""
    told: list[logging.LogRecord] = []
    logging.getLogger("grammar_backends.compilation.store").addFilter(lambda record: not told.append(record))
    with tempfile.TemporaryDirectory() as place:
        cache = Path(place) / "cache"
        clock = iter(range(1_000_000_000, 2_000_000_000, 1_000))
        ArtifactStore(cache).put(KEYS[0], b"old")
        if not os.geteuid():
            for path in (Path(place), cache, *cache.iterdir()):
                os.chown(path, 65534, 65534)
            os.seteuid(65534)
        cache.chmod(0o500)
        store = ArtifactStore(cache, clock=lambda: next(clock))
        for _ in range(5):
            store.put(KEYS[1], b"new")
        report(store.get(KEYS[0]) == b"old", store.get(KEYS[1]) is not None, len(told))
        cache.chmod(0o700)
        os.seteuid(os.getuid())


TASKS = (kill_writers, work_at_once, fill_disk, no_room, read_only)

if __name__ == "__main__":
    {task.__name__: task for task in TASKS}[sys.argv[1]](Path(sys.argv[2]))
