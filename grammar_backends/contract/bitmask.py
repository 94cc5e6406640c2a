"""The packed row layout that every backend writes and every kernel reads (F1).

A bitmask is a CPU int32 tensor of shape ``[rows, ceil(width / 32)]``. Bit ``t % 32`` of word ``t // 32`` is 1 when
token ``t`` is allowed; a row of all ones constrains nothing. This module allocates, packs and unpacks such tensors,
and gives adapters a cheap view of one row's memory; it knows nothing of grammars.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grammar_backends.errors import BitmaskError

if TYPE_CHECKING:
    import torch

__all__ = [
    "Bitmask",
    "BitmaskRow",
    "BitmaskTensor",
    "allocate_bitmask",
    "count_allowed",
    "pack_ids",
    "reset_bitmask",
    "row_words",
    "unpack_ids",
]

BitmaskTensor: TypeAlias = "torch.Tensor | NDArray[np.int32]"


def row_words(width: int) -> int:
    """int32 words in a row for `width` token ids."""
    return (width + 31) // 32


def allocate_bitmask(rows: int, width: int) -> torch.Tensor:
    """A bitmask that constrains nothing.

    Args:
        rows: how many rows.
        width: token ids a row covers: `Vocabulary.width`.

    Returns:
        CPU int32 tensor of shape ``[rows, ceil(width / 32)]``, all ones (-1), pinned where CUDA is in use and
        memory can be pinned.

    Raises:
        BitmaskError: a negative number of rows or a width below 1.
    """
    if rows < 0 or width < 1:
        raise BitmaskError(f"a bitmask needs rows >= 0 and width >= 1, not {rows} and {width}")
    return host_tensor((rows, row_words(width)), -1)


def host_tensor(shape: tuple[int, ...], value: int) -> torch.Tensor:
    """An int32 tensor in host memory, pinned where CUDA is in use and memory can be pinned (H4)."""
    import torch  # lazy: importing the contract must not load torch

    if torch.cuda.is_available():
        try:
            return torch.full(shape, value, dtype=torch.int32, pin_memory=True)
        except RuntimeError:  # limits on locked memory, or a fork after CUDA was started
            pass
    return torch.full(shape, value, dtype=torch.int32)


def reset_bitmask(bitmask: BitmaskTensor) -> None:
    """Set every row to all ones, so that it constrains nothing (F2)."""
    bitmask[...] = -1


def pack_ids(ids: Iterable[int], width: int) -> NDArray[np.int32]:
    """One row, int32 ``[ceil(width / 32)]``, that allows exactly these token ids."""
    bits = np.zeros(row_words(width) * 32, dtype=bool)
    bits[np.fromiter(ids, dtype=np.int64)] = True
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32, copy=False)


def unpack_ids(row: BitmaskTensor) -> list[int]:
    """The token ids that a row, int32 ``[words]``, allows, in increasing order."""
    words = np.ascontiguousarray(np.asarray(row), dtype="<i4")
    ids: list[int] = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
    return ids


def count_allowed(row: BitmaskTensor) -> int:
    """How many token ids a row, int32 ``[words]``, allows."""
    words = np.ascontiguousarray(np.asarray(row), dtype="<i4")
    return int(np.unpackbits(words.view(np.uint8)).sum())


class BitmaskRow:
    """One row's memory in the forms that engines take.

    Attributes:
        bitmask: the bitmask that the row belongs to.
        index: which row.
        address: address of its first word.
        nbytes: its size in bytes.
        array: int32 ``[words]`` numpy view.
        memory: the same memory as 8-byte (or, for an odd number of words, 4-byte) integers.
        handles: an adapter may keep its engine's own handle for this memory here, under its name.
    """

    __slots__ = ("address", "array", "bitmask", "handles", "index", "memory", "nbytes")

    def __init__(self, bitmask: Bitmask, index: int) -> None:
        self.bitmask = bitmask
        self.index = index
        self.array = bitmask.array[index]
        self.nbytes = self.array.nbytes
        self.address = bitmask.address + index * self.nbytes
        self.memory: memoryview[int] = memoryview(self.array).cast("B").cast("q" if self.nbytes % 8 == 0 else "i")
        self.handles: dict[str, Any] = {}

    def allows_nothing(self) -> bool:
        """Whether no bit is set (A14)."""
        # In this order memory is compared, up to the first difference; in the other Python compares number by number.
        return self.bitmask._zeros == self.memory


class Bitmask:
    """A checked view of a bitmask tensor, shared by all who fill the same tensor. Use it while the tensor lives.

    Attributes:
        array: int32 ``[rows, words]`` numpy view of the tensor's memory.
        address: address of its first word.
        num_rows, words: its shape.
        rows: a `BitmaskRow` for each row number.
        handles: as `BitmaskRow.handles`, for the whole tensor.
    """

    __slots__ = ("__weakref__", "_zeros", "address", "array", "handles", "num_rows", "rows", "words")

    def __init__(self, tensor: BitmaskTensor) -> None:
        self.array = _checked_array(tensor)
        self.address: int = self.array.ctypes.data
        self.num_rows, self.words = self.array.shape
        self._zeros = bytearray(self.words * 4)
        self.handles: dict[str, Any] = {}
        self.rows = {index: BitmaskRow(self, index) for index in range(self.num_rows)}

    @classmethod
    def of(cls, tensor: BitmaskTensor) -> Bitmask:
        """The view of `tensor`, made on first use and kept as long as the tensor lives.

        Raises:
            BitmaskError: not a contiguous CPU int32 tensor or array with two dimensions (A20).
        """
        view = _views.get(id(tensor))
        if view is not None and view.address == _address(tensor):
            return view
        view = cls(tensor)
        _views[id(tensor)] = view
        weakref.finalize(tensor, _forget, id(tensor), weakref.ref(view)).atexit = False
        return view


_views: dict[int, Bitmask] = {}
"""By the identity of tensors that are alive: an entry goes with its tensor."""


def _forget(key: int, view: weakref.ref[Bitmask]) -> None:
    if _views.get(key) is view():
        _views.pop(key, None)


def _address(tensor: BitmaskTensor) -> int:
    # A tensor's storage can be exchanged under the same object (share_memory_, set_), so that it is asked each time.
    address: int = tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr()
    return address


def _checked_array(tensor: BitmaskTensor) -> NDArray[np.int32]:
    device = getattr(tensor, "device", "cpu")
    if str(getattr(device, "type", device)) != "cpu":
        raise BitmaskError(f"a bitmask is filled on the CPU, not on {device}")
    try:
        array = tensor if isinstance(tensor, np.ndarray) else tensor.numpy()  # torch: without the tensor object
    except (AttributeError, TypeError, RuntimeError) as error:
        raise BitmaskError(f"a bitmask is an int32 torch tensor or numpy array, not {type(tensor).__name__}") from error
    if array.ndim != 2 or array.dtype != np.int32:
        raise BitmaskError(f"a bitmask is int32 with two dimensions, not {array.dtype} with shape {array.shape}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise BitmaskError("a bitmask is contiguous and writable; use allocate_bitmask, and slice rows only")
    return _borrowed(array) if array is tensor else array


def _borrowed(array: NDArray[np.int32]) -> NDArray[np.int32]:
    # A view that held the array itself would keep it alive, and with it its own entry in `_views`, for ever.
    memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    borrowed: NDArray[np.int32] = np.ndarray(array.shape, np.int32, buffer=memoryview(memory))
    return borrowed


def check_rows(bitmask: Bitmask, rows: Sequence[int], words: int) -> None:
    """Raise `BitmaskError` unless every index names a row and the rows have `words` words (A20)."""
    if bitmask.words != words:
        raise BitmaskError(
            f"rows of {words} words are needed, these have {bitmask.words}", hint="Allocate with Vocabulary.width"
        )
    for row in rows:
        if row not in bitmask.rows:
            raise BitmaskError(f"row {row} is outside a bitmask of {bitmask.num_rows} rows")
