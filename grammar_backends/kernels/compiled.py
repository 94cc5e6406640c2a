"""Applies bitmasks in host memory by compiled code, where the package was installed with it; never required.

The library is a plain shared one, built from ``apply_cpu.c`` when the package is installed on a machine with a C
compiler, and called through ctypes: it knows neither Python nor torch, so that one binary serves every version of them.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch

from grammar_backends.errors import KernelError
from grammar_backends.kernels.call import Call, PlainCall, packed_arguments

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

    def apply_at_once(self, plain: PlainCall) -> bool:
        """Apply a call whose tensors lie in host memory.

        Returns:
            Whether its rows are in order. If not, nothing was done: `prepare` is to say what is wrong.
        """
        apply = self._apply_checked[plain.jobs * plain.columns * plain.element_size >= LONG]
        return apply(plain.arguments, torch.get_num_threads(), WIDEST_VECTORS) != 0


def _function(function: Any) -> Function:
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32), ctypes.c_int32
    typed: Function = function
    return typed


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


def apply_at_once(plain: PlainCall) -> bool:
    """As `Library.apply_at_once`, where there is a library."""
    return not isinstance(_library, str) and _library.apply_at_once(plain)
