"""Applies bitmasks in host memory by compiled code, where the package was installed with it; never required.

The library is a plain shared one, built from ``apply_cpu.c`` when the package is installed on a machine with a C
compiler, and called through ctypes: it knows neither Python nor torch, so that one binary serves every version of them.
"""

from __future__ import annotations

import ctypes
import hashlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch

from grammar_backends.errors import KernelError
from grammar_backends.kernels.call import LAYOUT, LIMIT, MINUS_INFINITY, NOT_GIVEN, Call, packed_arguments
from grammar_backends.kernels.mapping import Integers, are_bools

__all__ = ["apply_at_once", "apply_compiled", "why_not_compiled"]

FOLDER = Path(__file__).parent
SOURCE, LIBRARY, NOTE = FOLDER / "apply_cpu.c", FOLDER / "_apply_cpu.so", FOLDER / "_apply_cpu.txt"

LONG = 1 << 20
"""Bytes of logits from which on a call gives the GIL up. To get it back from a busy thread can take 5 ms."""

WIDEST_VECTORS = 64

Function: TypeAlias = Callable[[bytes, int, int], int]


class Library:
    """A shared library that was built from ``apply_cpu.c``.

    Attributes:
        source_digest: SHA-256 of the source that it was built from.
    """

    def __init__(self, path: Path) -> None:
        holding, releasing = ctypes.PyDLL(str(path)), ctypes.CDLL(str(path))
        self._apply = _function(holding.apply_bitmask), _function(releasing.apply_bitmask)
        self._apply_checked = _function(holding.apply_checked), _function(releasing.apply_checked)
        text = ctypes.c_char_p(ctypes.addressof(ctypes.c_char.in_dll(holding, "source_digest")))
        self.source_digest = (text.value or b"").decode()

    def apply(self, call: Call, *, threads: int | None = None, vector_bytes: int = WIDEST_VECTORS) -> None:
        """Apply a `Call` whose tensors lie in host memory.

        Args:
            call: what to do.
            threads: how many to use at most; None leaves it to torch's setting.
            vector_bytes: the widest vectors to use of those that the processor has: 16, 32 or 64.
        """
        size = call.jobs * call.logits.shape[1] * call.logits.element_size()
        self._apply[size >= LONG](packed_arguments(call), threads or torch.get_num_threads(), vector_bytes)

    def apply_at_once(self, logits: torch.Tensor, bitmask: torch.Tensor, indices: Integers | None) -> bool:
        """Apply, in host memory, what is plainly right, in a fraction of the time that a `Call` takes to make.

        Returns:
            Whether it was plainly right. If not, nothing was done: `prepare` is to say what is wrong, if anything.
        """
        if not (isinstance(logits, torch.Tensor) and isinstance(bitmask, torch.Tensor)):
            return False
        minus_infinity = MINUS_INFINITY.get(logits.dtype)
        if minus_infinity is None or bitmask.dtype is not torch.int32 or not (logits.is_cpu and bitmask.is_cpu):
            return False
        shape, mask_shape, strides = logits.shape, bitmask.shape, logits.stride()
        if len(shape) != 2 or len(mask_shape) != 2 or 0 in shape or 0 in mask_shape:
            return False
        (rows, columns), (jobs, words) = shape, mask_shape
        if strides[1] != 1 or strides[0] < columns:
            return False
        address, count, memory = (0, rows, None) if indices is None else _index_memory(indices)
        if count != jobs or max(rows, columns, 32 * words) >= LIMIT:
            return False
        size = logits.element_size()
        if logits.data_ptr() % size:
            return False
        arguments = LAYOUT.pack(
            *(logits.data_ptr(), bitmask.data_ptr(), address, 0, 0, 0, 0, 0),
            *strides,
            *bitmask.stride(),
            *(jobs, rows, columns, jobs, 32 * words, 0, NOT_GIVEN, NOT_GIVEN, 0, 1, 0, size, minus_infinity, 0),
        )
        apply = self._apply_checked[jobs * columns * size >= LONG]
        is_applied = apply(arguments, torch.get_num_threads(), WIDEST_VECTORS) != 0
        del memory  # it had to live until here
        return is_applied


def _function(function: Any) -> Function:
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32), ctypes.c_int32
    typed: Function = function
    return typed


def _index_memory(indices: Integers) -> tuple[int, int, object]:
    """Address and number of int32 indices, and what keeps them there; -1 of them where they are of another kind."""
    if isinstance(indices, torch.Tensor):
        if indices.dtype is torch.int32 and indices.is_cpu and indices.dim() == 1 and indices.is_contiguous():
            return indices.data_ptr(), indices.shape[0], indices
    elif isinstance(indices, (list, tuple, range)) and not are_bools(indices):
        try:
            entries = array("i", indices)
        except (TypeError, OverflowError):
            return 0, -1, None
        return (*entries.buffer_info(), entries)
    return 0, -1, None


def load(library: Path = LIBRARY, source: Path = SOURCE, note: Path = NOTE) -> Library | str:
    """The library, or why there is none that could be used."""
    if not library.exists():
        return note.read_text("utf-8").strip() if note.exists() else "the package was not built where it lies"
    try:
        loaded = Library(library)
    except (OSError, AttributeError, ValueError) as error:
        return f"the compiled library cannot be loaded: {error}"
    if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != loaded.source_digest:
        return "the compiled library was built from another version of its source; install the package again"
    return loaded


_library = load()


def why_not_compiled() -> str | None:
    """Why there is no compiled implementation here; None when there is."""
    return _library if isinstance(_library, str) else None


def apply_compiled(call: Call) -> None:
    """Apply by the compiled library.

    Raises:
        KernelError: there is none.
    """
    if isinstance(_library, str):
        raise KernelError(_library)
    _library.apply(call)


def apply_at_once(logits: torch.Tensor, bitmask: torch.Tensor, indices: Integers | None) -> bool:
    """As `Library.apply_at_once`, where there is a library."""
    return not isinstance(_library, str) and _library.apply_at_once(logits, bitmask, indices)
