"""Reads the head of a GGUF file: its key-value pairs and the shapes of its tensors, never the tensors.

Written here rather than asked of a library because the head of a large vocabulary takes the library seconds and this
a tenth of one. Every length is checked against what is left of the file before anything is made of it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from grammar_backends.errors import VocabularyError, trim

__all__ = ["MAGIC", "GgufHeader", "read_header"]

MAGIC = b"GGUF"

VERSIONS = (2, 3)

NUMBERS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "?", 10: "u8", 11: "i8", 12: "f8"}
"""Value types of a fixed size, in numpy's letters."""

STRING, ARRAY = 8, 9

Value: TypeAlias = Any  # bool | int | float | str, or a list of one of them


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says about itself.

    Attributes:
        values: its key-value pairs.
        shapes: the dimensions of each tensor, the fastest first.
    """

    values: dict[str, Value]
    shapes: dict[str, tuple[int, ...]]


def read_header(path: Path) -> GgufHeader:
    """The head of a GGUF file of version 2 or 3, in either byte order.

    Raises:
        VocabularyError: the file cannot be read, is not GGUF, is of another version, or ends too early.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).header()
    except (OSError, ValueError) as error:  # a file without content cannot be mapped: ValueError
        raise VocabularyError(f"{path} cannot be read as GGUF: {trim(str(error))}") from error


class _Reader:
    """A position in a mapped file; what is wrong with it becomes a `ValueError`."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0
        if self._take(4) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        # The version that follows is small, so that the wrong byte order shows.
        self._order = "<" if int.from_bytes(data[4:8], "little") < 1 << 16 else ">"

    def header(self) -> GgufHeader:
        version = self._number("u4")
        if version not in VERSIONS:
            raise ValueError(f"version {version} is not supported")
        tensors, pairs = self._number("u8"), self._number("u8")
        values = {self._string(): self._value(self._number("u4")) for _ in self._counted(pairs, 12)}
        shapes = dict(self._tensor() for _ in self._counted(tensors, 24))
        return GgufHeader(values, shapes)

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError(f"it ends early: {size} bytes are missing at offset {self._at}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _counted(self, count: int, least: int) -> Iterator[int]:
        """`count` turns of a loop, if there can be so many items of at least `least` bytes."""
        if count * least > len(self._data) - self._at:
            raise ValueError(f"it ends early: {count} items are announced at offset {self._at}")
        return iter(range(count))

    def _numbers(self, letters: str, count: int) -> list[Any]:
        kind = np.dtype(self._order + letters)
        found: list[Any] = np.frombuffer(self._take(count * kind.itemsize), dtype=kind).tolist()
        return found

    def _number(self, letters: str) -> Any:
        return self._numbers(letters, 1)[0]

    def _string(self) -> str:
        size = struct.unpack(self._order + "Q", self._take(8))[0]
        return self._take(size).decode()

    def _value(self, kind: int) -> Value:
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            raise ValueError(f"it has a value of unknown type {kind} at offset {self._at}")
        inner, count = self._number("u4"), self._number("u8")
        if inner in NUMBERS:
            return self._numbers(NUMBERS[inner], count)
        if inner != STRING:
            raise ValueError(f"it has an array of unknown type {inner} at offset {self._at}")
        return [self._string() for _ in self._counted(count, 8)]

    def _tensor(self) -> tuple[str, tuple[int, ...]]:
        name, rank = self._string(), self._number("u4")
        shape = tuple(self._numbers("u8", rank))
        self._take(12)  # the tensor's type and where its data are
        return name, shape
