"""Artifacts on disk, shared by processes and by restarts: a directory with one file for each.

Files and not a database, since a rename is all the safety that is needed: whoever reads sees a whole file or none, at
whatever moment a writer dies; damage costs one entry and not all; nobody waits for a lock; and it works on every file
system. Nothing is synced to the disk: what a power failure leaves half written does not fit its checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
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


class _File(NamedTuple):
    path: str
    used: float
    nbytes: int


class ArtifactStore:
    """Bytes by key, in a directory. Thread-safe, and safe with any number of processes on one directory.

    No method raises for what the disk does: what cannot be read is not there, and what cannot be written is not kept,
    each with a line in the log. A directory that others may write to is not used at all, since engines trust what
    they read.

    Args:
        directory: made if need be, for its owner alone.
        max_bytes: what the entries may take together. Those that were not used for longest go first. A process looks
            after the sum when it has written a twentieth of it, so that several may exceed it by that much each.
        clock: the time in seconds since the epoch.

    Attributes:
        evictions: entries that had to go.
        damaged: entries that were removed since they could not be read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_bytes: int = 1 << 30,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.evictions = 0
        self.damaged = 0
        self._directory = Path(directory)
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._unseen = float("inf")  # bytes written since the last look at all entries
        self._paused_until = float("-inf")
        self._usable = self._prepare()

    def get(self, key: str) -> bytes | None:
        """The bytes that were put under this key; None where there are none, or none that are whole.

        Raises:
            ValueError: the key is no digest.
        """
        path = self._path(key)
        if not self._usable:
            return None
        try:
            content = _read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("artifact %s cannot be read: %s", key, error.strerror)
            return None
        data = _unpack(key, content)
        if data is None:
            logger.warning("artifact %s is damaged or foreign, and is removed", key)
            with self._lock:
                self.damaged += 1
            self.remove(key)
            return None
        with contextlib.suppress(OSError):  # a store that can only be read serves all the same
            os.utime(path, (self._clock(),) * 2)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, instead of what was there.

        Raises:
            ValueError: the key is no digest.
        """
        path = self._path(key)
        content = _pack(key, data)
        if not self._usable or len(content) > self._max_bytes or self._clock() < self._paused_until:
            return
        try:
            self._write(path, content)
        except OSError as error:
            self._paused_until = self._clock() + PAUSE_SECONDS
            logger.warning(
                "artifacts cannot be written to %s: %s; they are not kept for %g s",
                self._directory,
                error.strerror,
                PAUSE_SECONDS,
            )
            return
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

    def _prepare(self) -> bool:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self._directory.stat()
        except OSError as error:
            logger.warning("no artifacts are kept in %s: %s", self._directory, error.strerror)
            return False
        trusted = not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())
        if not trusted or status.st_mode & stat.S_IWOTH:
            logger.warning("no artifacts are kept in %s: other users may write to it", self._directory)
            return False
        return True

    def _write(self, path: Path, content: bytes) -> None:
        temporary = self._directory / f".{secrets.token_hex(16)}.writing"
        try:
            with open(temporary, "xb", opener=_open_private) as file:
                file.write(content)
            os.utime(temporary, (self._clock(),) * 2)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def _bound(self, nbytes: int) -> None:
        """Make room, where this process has written enough since it looked last."""
        with self._lock:
            self._unseen += nbytes
            if self._unseen < self._max_bytes * RESCAN:
                return
            self._unseen = 0.0
        for file in self._files(TEMPORARY):
            if self._clock() - file.used > ABANDONED_SECONDS:
                _unlink(file.path)
        files = sorted(self._files(ENTRY), key=lambda file: file.used)
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


def _read(path: Path) -> bytes:
    # A link would lead out of the directory, whose owner is all that is trusted.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        return file.read()


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
