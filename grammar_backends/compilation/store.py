"""Artifacts on disk, shared by processes and by restarts: a directory with one file for each.

Files and not a database, since a rename is all the safety that is needed: whoever reads sees a whole file or none, at
whatever moment a writer dies; damage costs one entry and not all; nobody waits for a lock; and it works on every file
system. Nothing is synced to the disk: what a power failure leaves half written does not fit its checksum.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import operator
import os
import re
import secrets
import stat
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from grammar_backends.compilation.arguments import expect
from grammar_backends.workers import watch_forks

__all__ = ["ArtifactStore"]

logger = logging.getLogger(__name__)

MAGIC = b"GBSTORE1"
LENGTH = struct.Struct("<Q")
DIGEST_BYTES = 32
HEADER_BYTES = len(MAGIC) + DIGEST_BYTES + LENGTH.size

ENTRY = re.compile(r"([0-9a-f]{16,128})\.artifact")
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.writing")

RESCAN = 1 / 20
"""After writing this part of `max_bytes`, a process looks again at what all of them have written."""

KEPT = 9 / 10
"""The part of `max_bytes` that is kept when something has to go, so that it need not go one by one."""

ABANDONED_SECONDS = 3600.0
"""Older files that were never finished belong to writers that were killed."""

PAUSE_SECONDS = 60.0
"""How long nothing is written after a write has failed: a full disk is not tried again for each request."""

SKEW_SECONDS = 60.0
"""Entries that were used further in the future than this were written by a clock that was wrong."""


class _File(NamedTuple):
    path: str
    used: float
    nbytes: int


class ArtifactStore:
    """Bytes by key, in a directory. Thread-safe, and safe with any number of processes on one directory.

    No method raises for what the disk or the clock does: what cannot be read is not there, and what cannot be written
    is not kept, with a line in the log for each new reason.

    Engines trust what they read, and some read in native code. So a directory is left alone that belongs to anybody
    but this user or root, or that others may write to; and so is each file, wherever the directory has gone meanwhile.

    Args:
        directory: made if need be, for its owner alone; made again when it is deleted.
        max_bytes: what the entries may take together. Those that were not used for longest go first. A process looks
            after the sum when it has written a twentieth of it, so that several may exceed it by that much each.
        shared: trust whoever owns the directory, and its group, for a cache that several users share: the directory is
            made for them, and so are its files. What everybody may write to is never trusted.
        clock: the time in seconds since the epoch.

    Attributes:
        evictions: entries that had to go.
        damaged: entries that were removed since they could not be read.

    Raises:
        TypeError: an argument is not what it has to be.
        ValueError: an empty path, or `max_bytes` is negative.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_bytes: int = 1 << 30,
        shared: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        expect("directory", directory, (str, os.PathLike), "the path of a directory")
        expect("max_bytes", max_bytes, int, "a number of bytes")
        expect("shared", shared, bool, "True or False")
        expect("clock", clock, Callable, "a function that gives seconds")  # type: ignore[arg-type]  # callable() as a class
        if max_bytes < 0 or not os.fspath(directory):
            raise ValueError("a path is needed, and max_bytes must be at least 0")
        self.evictions = 0
        self.damaged = 0
        self._directory = Path(directory)
        self._max_bytes = max_bytes
        self._shared = shared
        self._clock = clock
        self._lock = threading.Lock()
        self._unseen = float("inf")  # bytes written since the last look at all entries
        self._paused_until = float("-inf")
        self._complaints: set[str] = set()
        try:
            self._usable = self._prepare()
        except OSError as error:
            self._usable = False
            self._complain(f"no artifacts are kept in {self._directory}: {error.strerror}")
        watch_forks(self)

    def after_fork(self) -> None:
        """`Forkable.after_fork`: nothing is shared but the disk."""
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """The bytes that were put under this key; None where there are none, or none that are whole.

        Raises:
            ValueError: the key is no digest.
        """
        path = self._path(key)
        if not self._usable:
            return None
        try:
            content = self._read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain(f"artifacts in {self._directory} cannot be read: {error.strerror}")
            return None
        data = _unpack(key, content)
        if data is None:
            logger.warning("artifact %s is damaged or foreign, and is removed", key)
            with self._lock:
                self.damaged += 1
            self.remove(key)
            return None
        self._stamp(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, instead of what was there.

        Raises:
            ValueError: the key is no digest.
        """
        path = self._path(key)
        content = _pack(key, data)
        if not self._usable or len(content) > self._max_bytes or self._is_paused():
            return
        try:
            if not self._write(path, content):
                return
        except OSError as error:
            self._paused_until = self._clock() + PAUSE_SECONDS
            self._complain(
                f"artifacts cannot be written to {self._directory}: {error.strerror}; it is tried again every "
                f"{PAUSE_SECONDS:g} s"
            )
            return
        self._complaints.clear()
        self._bound(len(content))

    def remove(self, key: str) -> None:
        """Forget a key, which need not be there.

        Raises:
            ValueError: the key is no digest.
        """
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    @property
    def nbytes(self) -> int:
        """What the entries of all processes take together; looks at each."""
        return sum(file.nbytes for file in self._files(ENTRY))

    def __len__(self) -> int:
        """How many entries there are; looks at each."""
        return sum(1 for _ in self._files(ENTRY))

    def _path(self, key: str) -> Path:
        name = f"{key}.artifact"
        if not ENTRY.fullmatch(name):
            raise ValueError(f"{key!r} is no digest in lower-case hexadecimal")
        return self._directory / name

    def _complain(self, text: str) -> None:
        """Warn, but not again and again of the same; until something could be written."""
        logger.log(logging.DEBUG if text in self._complaints else logging.WARNING, "%s", text)
        self._complaints.add(text)

    def _is_paused(self) -> bool:
        return self._clock() < self._paused_until <= self._clock() + PAUSE_SECONDS  # the clock may have been set back

    def _prepare(self) -> bool:
        """Make the directory; whether it can be trusted.

        Raises:
            OSError: it cannot be made.
        """
        if not self._directory.is_dir():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._shared:
                self._directory.chmod(0o2770)  # files get the group of the directory
        mistrust = self._mistrust(self._directory.stat())
        if mistrust:
            self._complain(f"no artifacts are kept in {self._directory}: {mistrust}")
        return not mistrust

    def _mistrust(self, status: os.stat_result) -> str:
        """Why a directory or file is not trusted; "" when it is."""
        if not hasattr(os, "geteuid"):  # Windows has other rights than these
            return ""
        if status.st_mode & stat.S_IWOTH:
            return "everybody may write to it"
        if self._shared:
            return ""
        if status.st_uid not in (0, os.geteuid()):
            return f"it belongs to another user ({status.st_uid}), whom ArtifactStore(shared=True) would trust"
        if status.st_mode & stat.S_IWGRP:
            return "its group may write to it, whom ArtifactStore(shared=True) would trust; chmod g-w takes that away"
        return ""

    def _read(self, path: Path) -> bytes:
        """What a file holds that can be trusted.

        Raises:
            OSError: there is none.
        """
        # A link would lead out of the directory, and a pipe would have to be waited for.
        flags = ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")
        descriptor = os.open(
            path, functools.reduce(operator.or_, (getattr(os, name, 0) for name in flags), os.O_RDONLY)
        )
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            mistrust = self._mistrust(status)
            if mistrust or not stat.S_ISREG(status.st_mode):
                raise PermissionError(0, mistrust or "it is no file")
            return file.read(self._max_bytes + 1)  # what is longer than all may be is cut off, and so is damaged

    def _write(self, path: Path, content: bytes) -> bool:
        """Write a file; False when its directory is gone, and another one cannot be used."""
        try:
            self._write_at_once(path, content)
        except FileNotFoundError:
            self._usable = self._prepare()
            if not self._usable:
                return False
            self._write_at_once(path, content)
        return True

    def _write_at_once(self, path: Path, content: bytes) -> None:
        """A file that is there with all its content, or not at all."""
        temporary = self._directory / f".{secrets.token_hex(16)}.writing"
        try:
            with open(temporary, "xb", opener=_open_private) as file:
                if self._shared:
                    os.chmod(temporary, 0o660)
                file.write(content)
            self._stamp(temporary)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def _stamp(self, path: Path) -> None:
        """Note that a file is used now; one of somebody else, or that can only be read, serves all the same."""
        with contextlib.suppress(OSError, OverflowError, ValueError):
            os.utime(path, (self._clock(),) * 2)

    def _bound(self, nbytes: int) -> None:
        """Make room, where this process has written enough since it looked last."""
        with self._lock:
            self._unseen += nbytes
            if self._unseen < self._max_bytes * RESCAN:
                return
            self._unseen = 0.0
        now = self._clock()
        for file in self._files(TEMPORARY):
            if abs(now - file.used) > ABANDONED_SECONDS:
                _unlink(file.path)
        # What a wrong clock has put into the future would never go.
        files = sorted(self._files(ENTRY), key=lambda file: (file.used <= now + SKEW_SECONDS, file.used))
        total = sum(file.nbytes for file in files)
        if total <= self._max_bytes:
            return
        evictions = 0
        for file in files:
            if total <= self._max_bytes * KEPT:
                break
            total -= file.nbytes
            evictions += _unlink(file.path)
        with self._lock:
            self.evictions += evictions

    def _files(self, names: re.Pattern[str]) -> Iterator[_File]:
        """The files with such names; one that goes meanwhile is left out."""
        with contextlib.suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                if names.fullmatch(entry.name):
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        yield _File(entry.path, status.st_mtime, status.st_size)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _unlink(path: str) -> bool:
    """Remove a file, and say whether this call did."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _pack(key: str, data: bytes) -> bytes:
    """A file: magic, digest of all that follows and of the key, length of the data, the data compressed."""
    body = LENGTH.pack(len(data)) + zlib.compress(data, 1)
    return MAGIC + _digest(key, body) + body


def _unpack(key: str, content: bytes) -> bytes | None:
    """The data of a file; None when it is not one of this version, not of this key, or not whole."""
    view = memoryview(content)
    start = len(MAGIC) + DIGEST_BYTES
    if (
        len(view) < HEADER_BYTES
        or view[: len(MAGIC)] != MAGIC
        or view[len(MAGIC) : start] != _digest(key, view[start:])
    ):
        return None
    (length,) = LENGTH.unpack(view[start:HEADER_BYTES])
    return zlib.decompress(view[HEADER_BYTES:], bufsize=max(1, length))


def _digest(key: str, body: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(key.encode(), digest_size=DIGEST_BYTES)
    digest.update(body)
    return digest.digest()
