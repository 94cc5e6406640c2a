"""Which mask row goes to which row of the logits.

Inference engines lay masks and logits out in different orders. A `RowMapping` says how one order becomes the other,
by arrays that lie where the logits lie, so that nothing is gathered or copied to bring them together (H1, H3).
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from grammar_backends.errors import BitmaskError

__all__ = ["Integers", "RowMapping", "check_memory", "flags", "integer", "integers", "to_device"]

Integers: TypeAlias = "Sequence[int] | NDArray[Any] | torch.Tensor"
"""Integers in one dimension. A contiguous int32 tensor is held as it is; everything else is copied into one."""

ARRAYS = ("logits_rows", "mask_rows", "enabled", "first_rows", "slots")
INT32 = torch.iinfo(torch.int32)


@dataclass(frozen=True, eq=False, slots=True)
class RowMapping:
    """Pairs of a mask row and a logits row; make one by a named constructor.

    ::

        for job in range(jobs):            # one for every entry of the arrays; without arrays, for every mask row
            if enabled is given and not enabled[job]: skip
            mask_row = mask_rows[job], or job where none are given
            logits_row = as the constructor says
            if mask_row or logits_row is -1: skip
            apply bitmask[mask_row] to logits[logits_row]

    Arrays of int32 (`enabled`: bool) on the device of the logits are read in place, when the mask is applied: an
    engine may keep one mapping and rewrite its arrays between two steps, or between two replays of a CUDA graph.
    Others are converted once, here, and arrays in host memory are uploaded whenever the logits are not there.

    Values in host memory are checked: what is neither -1 nor a row raises `BitmaskError`, as does a logits row that
    is listed twice. On a device, where looking at them would stall the host, the former are skipped, and of two masks
    for one row both apply.

    Attributes:
        logits_rows: int32 ``[jobs]``, the logits row of each job.
        mask_rows: int32 ``[jobs]``, the mask row of each job.
        enabled: bool ``[jobs]``, whether the job counts.
        first_rows: int32 ``[requests]`` or ``[requests + 1]``, the first logits row of each request.
        step: the position of every job, where there are no slots.
        slots: int32 ``[jobs]``, request and position of each job in one number.
        positions_per_request: how many slots a request has.
    """

    logits_rows: torch.Tensor | None = None
    mask_rows: torch.Tensor | None = None
    enabled: torch.Tensor | None = None
    first_rows: torch.Tensor | None = None
    step: int = 0
    slots: torch.Tensor | None = None
    positions_per_request: int = 1

    @classmethod
    def by_index(
        cls,
        logits_rows: Integers | None = None,
        *,
        mask_rows: Integers | None = None,
        enabled: Integers | None = None,
    ) -> RowMapping:
        """``logits_row = logits_rows[job]``, or ``job`` where no rows are given.

        Raises:
            BitmaskError: an array is not one of integers in one dimension, or two differ in length.
        """
        return cls._of(logits_rows=logits_rows, mask_rows=mask_rows, enabled=enabled)

    @classmethod
    def by_step(
        cls,
        first_rows: Integers,
        step: int = 0,
        *,
        mask_rows: Integers | None = None,
        enabled: Integers | None = None,
    ) -> RowMapping:
        """Job j is request j's at position `step`: ``logits_row = first_rows[j] + step``.

        A job is skipped when its request has no such row: when that is ``first_rows[j + 1]`` or later, or, for the last
        entry, beyond the logits. So a request without rows has the first row of the next one.

        Raises:
            BitmaskError: as `by_index`; a negative step.
        """
        return cls._of(first_rows=first_rows, step=integer(step, "step", 0), mask_rows=mask_rows, enabled=enabled)

    @classmethod
    def by_slot(
        cls,
        slots: Integers,
        first_rows: Integers,
        positions_per_request: int,
        *,
        mask_rows: Integers | None = None,
        enabled: Integers | None = None,
    ) -> RowMapping:
        """Job j is that of a request's position: ``slots[j] = request * positions_per_request + position``, and
        ``logits_row = first_rows[request] + position``.

        ``first_rows`` are the sums, from 0 on, of how many logits rows the requests before have: one more entry than
        there are requests. A position that its request does not have is skipped, as in `by_step`: drafts may be
        trimmed on the device after the masks were laid out.

        Raises:
            BitmaskError: as `by_index`; fewer than one position per request.
        """
        return cls._of(
            slots=slots,
            first_rows=first_rows,
            positions_per_request=integer(positions_per_request, "positions_per_request", 1),
            mask_rows=mask_rows,
            enabled=enabled,
        )

    @classmethod
    def _of(cls, *, step: int = 0, positions_per_request: int = 1, **arrays: Integers | None) -> RowMapping:
        tensors = {
            name: flags(values) if name == "enabled" else integers(values, name)
            for name, values in arrays.items()
            if values is not None
        }
        per_job = {name: len(tensor) for name, tensor in tensors.items() if name != "first_rows"}
        if len(set(per_job.values())) > 1:
            raise BitmaskError(
                "as many entries as jobs are needed in " + ", ".join(f"{name} ({n})" for name, n in per_job.items())
            )
        return cls(step=step, positions_per_request=positions_per_request, **tensors)

    @property
    def arrays(self) -> dict[str, torch.Tensor]:
        """The arrays that are given, by name."""
        named = {name: getattr(self, name) for name in ARRAYS}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @property
    def is_one_to_one(self) -> bool:
        """Whether every mask row goes to the row of its own number."""
        return not self.arrays

    def to(self, device: torch.device) -> RowMapping:
        """The mapping with its arrays on a device; itself, if they are there."""
        arrays = self.arrays
        if all(tensor.device == device for tensor in arrays.values()):
            return self
        moved = {name: to_device(tensor, device) for name, tensor in arrays.items()}
        return RowMapping(step=self.step, positions_per_request=self.positions_per_request, **moved)

    def jobs(self, mask_rows: int) -> int:
        """How many jobs there are with so many mask rows."""
        for tensor in (self.logits_rows, self.slots, self.mask_rows, self.enabled):
            if tensor is not None:
                return tensor.shape[0]
        return mask_rows


def integer(value: int, name: str, least: int) -> int:
    """The value as an int.

    Raises:
        BitmaskError: it is no integer, less than `least`, or exceeds 32 bits.
    """
    try:
        number = index(value)
    except TypeError as error:
        raise BitmaskError(f"{name} must be an integer, not {value!r}") from error
    if not least <= number <= INT32.max:
        raise BitmaskError(f"{name} must be {least} to {INT32.max}, not {number}")
    return number


def integers(values: Integers, name: str) -> torch.Tensor:
    """The values as a contiguous int32 tensor in one dimension, itself if it is one.

    Raises:
        BitmaskError: they are no integers in one dimension, or (in host memory) exceed 32 bits.
    """
    if are_bools(values):
        raise BitmaskError(f"{name} must be integers, not bool")
    tensor = _tensor(values, name)
    if tensor.dtype == torch.int32:
        return tensor.contiguous()
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise BitmaskError(f"{name} must be integers, not {tensor.dtype}")
    if tensor.device.type == "cpu" and tensor.numel():
        least, most = torch.aminmax(tensor.to(torch.int64))
        if least < INT32.min or most > INT32.max:
            raise BitmaskError(f"{name} must fit 32 bits, not {int(least)} to {int(most)}")
    return tensor.to(torch.int32).contiguous()


def flags(values: Integers) -> torch.Tensor:
    """The values as a contiguous bool tensor in one dimension: on where they are not 0.

    Raises:
        BitmaskError: they have another number of dimensions.
    """
    tensor = _tensor(values, "enabled")
    return (tensor if tensor.dtype == torch.bool else tensor.ne(0)).contiguous()


def are_bools(values: Integers) -> bool:
    """Whether it is a list of what Python takes for the integers 0 and 1, by its first entry."""
    return isinstance(values, (list, tuple)) and bool(values) and isinstance(values[0], bool)


def _tensor(values: Integers, name: str) -> torch.Tensor:
    try:
        if isinstance(values, torch.Tensor):
            tensor = values
        elif isinstance(values, np.ndarray):
            tensor = torch.from_numpy(np.ascontiguousarray(values))
        else:
            if isinstance(values, (bytes, bytearray)):
                values = list(values)  # an array would take them for its memory
            entries = array("i", values)  # refuses what is no integer, and is several times as fast as torch
            tensor = torch.frombuffer(entries, dtype=torch.int32) if entries else torch.empty(0, dtype=torch.int32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise BitmaskError(f"{name} must be integers in one dimension: {error}") from error
    check_memory(tensor, name)
    if tensor.dim() != 1:
        raise BitmaskError(f"{name} has one dimension, not {tensor.dim()}")
    return tensor


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on a device; itself, if it is there. Nothing waits for the copy, where memory can be pinned (H4)."""
    if tensor.is_cpu and device.type != "cpu" and torch.cuda.is_available():
        # torch does not hand pinned memory out again before the copies from it are done, so that nobody need hold it.
        with contextlib.suppress(RuntimeError):  # limits on locked memory
            tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type != "cpu")


def check_memory(tensor: torch.Tensor, name: str) -> None:
    """See that a tensor is what lies in its memory; that of a `DTensor`, say, is another tensor's.

    Raises:
        BitmaskError: it is not.
    """
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise BitmaskError(f"{name} must be a dense tensor, not a nested one or {tensor.layout}")
    if tensor.is_neg():
        raise BitmaskError(f"{name} must not be a negated view", hint="resolve_neg() copies it")
    if not (tensor.is_meta or tensor.data_ptr()) and tensor.numel():
        raise BitmaskError(f"a {type(tensor).__name__} has no memory for {name}", hint="Of a DTensor pass to_local()")
