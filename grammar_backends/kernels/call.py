"""One application of bitmasks to logits, validated: the form that every implementation takes.

`prepare` makes a `Call` of what a caller gives, or raises; the numpy and the torch implementation work on it. Native
ones, the CUDA kernel and compiled code on the host, take it as `Arguments`, one C struct.
"""

from __future__ import annotations

import ctypes
import math
import struct
from array import array
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch

from grammar_backends.errors import BitmaskError
from grammar_backends.kernels.mapping import (
    ARRAYS,
    Integers,
    RowMapping,
    are_bools,
    check_memory,
    integer,
    integers,
    to_device,
)

__all__ = ["Arguments", "Call", "PlainCall", "Tail", "packed_arguments", "plain_call", "prepare", "resolve_rows"]

Tail: TypeAlias = Literal["mask", "keep"]

MINUS_INFINITY = {torch.float32: 0xFF800000, torch.float16: 0xFC00, torch.bfloat16: 0xFF80}
"""The bits of -inf for each type of logits."""

LIMIT = 2**30
"""Sizes and ids lie below it, so that sums of two fit 32 bits. Offsets into the tensors have 64."""

NOT_GIVEN = -1
"""The size of an array that is not given, where an empty one means something else."""

ONE_TO_ONE = RowMapping()


class Call(NamedTuple):
    """What is to be done, with nothing left to check. All tensors lie on one device.

    Attributes:
        logits: float32, float16 or bfloat16 ``[rows, columns]``.
        bitmask: int32 ``[mask rows, words]``.
        rows: the row mapping.
        jobs: how many pairs of rows it gives.
        mask_bits: how many ids the mask speaks of; ids beyond are the tail.
        column_offset: the id of column 0.
        d2t: int32, what to add to an id to get the one that the mask knows; None adds nothing.
        keep_tail: whether columns without a bit in the mask stay as they are.
    """

    logits: torch.Tensor
    bitmask: torch.Tensor
    rows: RowMapping
    jobs: int
    mask_bits: int
    column_offset: int
    d2t: torch.Tensor | None
    keep_tail: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.jobs and self.bitmask.shape[0] and self.logits.numel())


class PlainCall(NamedTuple):
    """A call without anything out of the ordinary, packed in a fraction of the time that a `Call` takes to make.

    Attributes:
        arguments: the `Arguments`.
        jobs, columns: its sizes.
        element_size: bytes of a logit.
        memory: what must live until it is done.
    """

    arguments: bytes
    jobs: int
    columns: int
    element_size: int
    memory: object


class Arguments(ctypes.Structure):
    """A `Call` as the C struct that the kernel takes by value and compiled host code by address.

    Strides count elements. An array that is not given is a null pointer. The rules that turn a job into a pair of
    rows, and a column into a bit of the mask, are those of `resolve_rows` and `apply_token_bitmask`.
    """

    _fields_ = (
        ("logits", ctypes.c_void_p),  # of row 0, column 0
        ("bitmask", ctypes.c_void_p),  # uint32, of row 0, word 0
        ("logits_rows", ctypes.c_void_p),  # int32 [jobs]
        ("mask_rows", ctypes.c_void_p),  # int32 [jobs]
        ("enabled", ctypes.c_void_p),  # uint8 [jobs]
        ("first_rows", ctypes.c_void_p),  # int32 [first_rows_size]
        ("slots", ctypes.c_void_p),  # int32 [jobs]
        ("d2t", ctypes.c_void_p),  # int32 [d2t_size]
        ("logits_row_stride", ctypes.c_int64),
        ("logits_column_stride", ctypes.c_int64),
        ("bitmask_row_stride", ctypes.c_int64),
        ("bitmask_word_stride", ctypes.c_int64),
        ("jobs", ctypes.c_int32),
        ("row_count", ctypes.c_int32),  # rows of the logits
        ("column_count", ctypes.c_int32),  # columns of the logits
        ("mask_row_count", ctypes.c_int32),  # rows of the bitmask
        ("mask_bits", ctypes.c_int32),
        ("column_offset", ctypes.c_int32),
        ("d2t_size", ctypes.c_int32),  # -1: not given; 0 may be given, with a null pointer
        ("first_rows_size", ctypes.c_int32),  # likewise
        ("step", ctypes.c_int32),
        ("positions_per_request", ctypes.c_int32),
        ("keep_tail", ctypes.c_int32),  # 0 or 1
        ("element_size", ctypes.c_int32),  # bytes of a logit: 4 or 2
        ("minus_infinity", ctypes.c_uint32),  # its bits, in the low bytes
        ("unused", ctypes.c_uint32),  # makes the size a multiple of 8
    )


LAYOUT = struct.Struct("@" + "".join(kind._type_ for _, kind in Arguments._fields_))
NO_ARRAYS = (0,) * len(ARRAYS)


def prepare(
    logits: torch.Tensor,
    bitmask: torch.Tensor,
    *,
    indices: Integers | None = None,
    rows: RowMapping | None = None,
    tail: Tail = "mask",
    vocab_size: int | None = None,
    column_offset: int = 0,
    d2t: Integers | None = None,
) -> Call:
    """Validate the arguments of `apply_token_bitmask`.

    Raises:
        BitmaskError: as `apply_token_bitmask`.
    """
    for name, tensor in ("logits", logits), ("bitmask", bitmask):
        if not isinstance(tensor, torch.Tensor):
            hint = "torch.from_numpy takes an array as it is" if isinstance(tensor, np.ndarray) else None
            raise BitmaskError(f"{name} must be a torch tensor, not {type(tensor).__name__}", hint=hint)
        check_memory(tensor, name)
    if logits.dim() == 1:
        logits = logits.unsqueeze(0)
    if bitmask.dim() == 1:
        bitmask = bitmask.unsqueeze(0)
    _check_tensors(logits, bitmask)
    mask_bits = bitmask.shape[1] * 32
    if vocab_size is not None:
        mask_bits = min(mask_bits, integer(vocab_size, "vocab_size", 0))
    if tail not in ("mask", "keep"):
        raise BitmaskError(f"the tail is 'mask' or 'keep', not {tail!r}")
    column_offset = integer(column_offset, "column_offset", 0)
    if column_offset >= LIMIT - logits.shape[1]:
        raise BitmaskError(f"the columns must end below 2**30, which is not so with column_offset {column_offset}")
    if indices is not None:
        if rows is not None:
            raise BitmaskError("rows are mapped twice, by indices and by a RowMapping", hint="Pass one of them")
        rows = RowMapping.by_index(indices)
    elif rows is None:
        rows = ONE_TO_ONE
    elif not isinstance(rows, RowMapping):
        raise BitmaskError(f"rows must be a RowMapping, not {type(rows).__name__}", hint="indices takes row numbers")
    jobs = rows.jobs(bitmask.shape[0])
    _check_sizes(rows, jobs, logits, bitmask)
    if d2t is not None:
        d2t = integers(d2t, "d2t")
        _check_device("d2t", d2t, logits.device)
        d2t = to_device(d2t, logits.device)
    call = Call(logits, bitmask, rows, jobs, mask_bits, column_offset, d2t, tail == "keep")
    return call if rows is ONE_TO_ONE else _with_checked_rows(call)


def plain_call(logits: torch.Tensor, bitmask: torch.Tensor, indices: Integers | None) -> PlainCall | None:
    """The call of rows one to one, or by indices whose values nobody has looked at, when all else is plainly right.

    None means nothing but that `prepare` has to look at it, and to say what is wrong, if anything.
    """
    if not (isinstance(logits, torch.Tensor) and isinstance(bitmask, torch.Tensor)):
        return None
    minus_infinity = MINUS_INFINITY.get(logits.dtype)
    if minus_infinity is None or bitmask.dtype is not torch.int32:
        return None
    if not (logits.is_cpu and bitmask.is_cpu) and logits.device != bitmask.device:
        return None
    try:
        shape, mask_shape, strides, mask_strides = logits.shape, bitmask.shape, logits.stride(), bitmask.stride()
        logits_address, mask_address = logits.data_ptr(), bitmask.data_ptr()
    except RuntimeError:  # of sparse ones
        return None
    if not (logits_address and mask_address) or logits.is_neg():  # no integers are kept so
        return None
    if len(shape) != 2 or len(mask_shape) != 2 or 0 in shape or 0 in mask_shape:
        return None
    (rows, columns), (jobs, words) = shape, mask_shape
    if strides[1] != 1 or strides[0] < columns or mask_strides[1] != 1:
        return None
    address, count, memory = (0, rows, None) if indices is None else _index_memory(indices, logits)
    size = logits.element_size()
    if count != jobs or max(rows, columns, 32 * words) >= LIMIT or logits_address % size:
        return None
    arguments = LAYOUT.pack(
        *(logits_address, mask_address, address, 0, 0, 0, 0, 0),
        *strides,
        *mask_strides,
        *(jobs, rows, columns, jobs, 32 * words, 0, NOT_GIVEN, NOT_GIVEN, 0, 1, 0, size, minus_infinity, 0),
    )
    return PlainCall(arguments, jobs, columns, size, memory)


def _index_memory(indices: Integers, logits: torch.Tensor) -> tuple[int, int, object]:
    """Address and number of int32 indices, and what keeps them there; -1 of them where they are of another kind."""
    if isinstance(indices, torch.Tensor):
        if indices.dtype is torch.int32 and indices.dim() == 1 and indices.is_contiguous():
            address, is_there = indices.data_ptr(), indices.device == logits.device
            return address, (indices.shape[0] if address and is_there else -1), indices
    elif logits.is_cpu and isinstance(indices, (list, tuple, range)) and not are_bools(indices):
        try:
            entries = array("i", indices)
        except (TypeError, OverflowError):
            return 0, -1, None
        return (*entries.buffer_info(), entries)
    return 0, -1, None


def packed_arguments(call: Call) -> bytes:
    """The call as `Arguments`, in bytes, since the struct takes several times as long. The call must outlive what reads
    its arrays."""
    logits, bitmask, rows = call.logits, call.bitmask, call.rows
    if rows is ONE_TO_ONE:
        row_arrays, first_rows_size = NO_ARRAYS, NOT_GIVEN
    else:
        arrays = rows.logits_rows, rows.mask_rows, rows.enabled, rows.first_rows, rows.slots
        row_arrays = tuple(map(_address, arrays))
        first_rows_size = NOT_GIVEN if rows.first_rows is None else rows.first_rows.shape[0]
    return LAYOUT.pack(
        logits.data_ptr(),
        bitmask.data_ptr(),
        *row_arrays,
        _address(call.d2t),
        *logits.stride(),
        *bitmask.stride(),
        call.jobs,
        *logits.shape,
        bitmask.shape[0],
        call.mask_bits,
        call.column_offset,
        NOT_GIVEN if call.d2t is None else call.d2t.shape[0],
        first_rows_size,
        rows.step,
        rows.positions_per_request,
        call.keep_tail,
        logits.element_size(),
        MINUS_INFINITY[logits.dtype],
        0,
    )


def resolve_rows(call: Call) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For every job its mask row and its logits row, int64, and whether it counts; rows of others mean nothing.

    Never waits for the device.
    """
    rows, jobs = call.rows, torch.arange(call.jobs, device=call.logits.device)
    mask_rows = jobs if rows.mask_rows is None else rows.mask_rows.to(torch.int64)
    counts = (mask_rows >= 0) & (mask_rows < call.bitmask.shape[0])
    if rows.first_rows is not None:
        logits_rows, ends = _rows_of_requests(rows, rows.first_rows.to(torch.int64), jobs, call.logits.shape[0])
        counts = counts & (logits_rows < ends)
    else:
        logits_rows = jobs if rows.logits_rows is None else rows.logits_rows.to(torch.int64)
    if rows.enabled is not None:
        counts = counts & rows.enabled
    return mask_rows, logits_rows, counts & (logits_rows >= 0) & (logits_rows < call.logits.shape[0])


def _rows_of_requests(
    rows: RowMapping, first_rows: torch.Tensor, jobs: torch.Tensor, row_count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits row of each job, and the row that its request ends before: none where the request is unknown."""
    starts, ends = first_rows, torch.cat((first_rows[1:], first_rows.new_full((1,), row_count)))
    if rows.slots is None:
        requests, positions = jobs, torch.full_like(jobs, rows.step)
    else:
        starts, ends, slots = starts[:-1], ends[:-1], rows.slots.to(torch.int64)
        requests = slots.div(rows.positions_per_request, rounding_mode="floor")
        positions = slots - requests * rows.positions_per_request
    if not starts.shape[0]:
        return jobs, torch.zeros_like(jobs)
    known = (requests >= 0) & (requests < starts.shape[0])
    requests = requests.clamp(0, starts.shape[0] - 1)
    known = known & (starts[requests] >= 0)
    return starts[requests] + positions, torch.where(known, ends[requests], 0)


def _check_tensors(logits: torch.Tensor, bitmask: torch.Tensor) -> None:
    if logits.dim() != 2 or bitmask.dim() != 2:
        raise BitmaskError(f"two dimensions are needed, not {logits.dim()} (logits) and {bitmask.dim()} (bitmask)")
    if logits.dtype not in MINUS_INFINITY:
        raise BitmaskError(f"logits are float32, float16 or bfloat16, not {logits.dtype}")
    if bitmask.dtype != torch.int32:
        raise BitmaskError(f"a bitmask is int32, not {bitmask.dtype}")
    if logits.device != bitmask.device:
        raise BitmaskError(f"logits are on {logits.device}, the bitmask is on {bitmask.device}")
    if max(*logits.shape, bitmask.shape[0], bitmask.shape[1] * 32) >= LIMIT:
        raise BitmaskError("every dimension must be below 2**30")
    if logits.data_ptr() % logits.element_size():
        raise BitmaskError("the address of the logits is not a multiple of their size")
    (rows, columns), (row_stride, column_stride) = logits.shape, logits.stride()
    if (column_stride != 1 or row_stride < columns) and _overlap(rows, columns, row_stride, column_stride):
        raise BitmaskError("several logits share one place in memory", hint="Pass a copy, not an expanded view")


def _overlap(rows: int, columns: int, row_stride: int, column_stride: int) -> bool:
    """Whether two logits lie in the same place: so many rows further on are just so many columns back."""
    if rows < 2 or columns < 2:
        return (rows > 1 and row_stride == 0) or (columns > 1 and column_stride == 0)
    common = math.gcd(row_stride, column_stride)
    return common == 0 or (column_stride // common < rows and row_stride // common < columns)


def _check_sizes(rows: RowMapping, jobs: int, logits: torch.Tensor, bitmask: torch.Tensor) -> None:
    if rows.mask_rows is None and jobs != bitmask.shape[0]:
        raise BitmaskError(f"{bitmask.shape[0]} mask rows for {jobs} jobs", hint="Pass mask_rows to map them")
    if rows.first_rows is None:
        if rows.logits_rows is None and jobs != logits.shape[0]:
            raise BitmaskError(
                f"{jobs} mask rows for {logits.shape[0]} logits rows", hint="Pass indices or a RowMapping to map them"
            )
    elif rows.slots is None and rows.first_rows.shape[0] < jobs:
        raise BitmaskError(f"{rows.first_rows.shape[0]} first rows for {jobs} requests")


def _with_checked_rows(call: Call) -> Call:
    """The call with its mapping's arrays on the right device, and their values checked where the host sees them."""
    device, arrays = call.logits.device, call.rows.arrays
    for name, tensor in arrays.items():
        _check_device(name, tensor, device)
    if all(tensor.device.type == "cpu" for tensor in arrays.values()):
        _check_values(call, arrays)
    return call._replace(rows=call.rows.to(device))


def _check_device(name: str, array: torch.Tensor, device: torch.device) -> None:
    if array.device != device and array.device.type != "cpu":
        raise BitmaskError(f"{name} is on {array.device}, the logits are on {device}")


def _check_values(call: Call, arrays: dict[str, torch.Tensor]) -> None:
    row_count = call.logits.shape[0]
    ranges = {
        "logits_rows": (-1, row_count),
        "mask_rows": (-1, call.bitmask.shape[0]),
        "first_rows": (0, row_count + 1),
        "slots": (-1, (len(arrays.get("first_rows", ())) - 1) * call.rows.positions_per_request),
    }
    values = {name: tensor.tolist() for name, tensor in arrays.items() if name in ranges}  # numpy is slower for a few
    for name, entries in values.items():
        first, end = ranges[name]
        if entries and (min(entries) < first or max(entries) >= end):
            raise BitmaskError(f"{name} holds {min(entries)} to {max(entries)}, and must hold {first} to {end - 1}")
    listed = values.get("logits_rows", ())
    if len(set(listed)) < len(listed) or "first_rows" in values:
        _, logits_rows, counts = resolve_rows(call)
        if np.bincount(logits_rows[counts].numpy(), minlength=1).max() > 1:
            raise BitmaskError("a logits row is listed twice")


def _address(array: torch.Tensor | None) -> int:
    return 0 if array is None else array.data_ptr()
