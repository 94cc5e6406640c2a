"""Brings masks and row indices to the device of the logits without waiting for it, and without being overtaken (H4).

A copy that nobody waits for is still reading its source when the call returns. `upload` is for what is copied once;
`UploadBuffers` holds the masks of a decode loop, several steps' worth in turn, so that the next step's are filled while
the device still works with the last one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from grammar_backends.contract import row_words
from grammar_backends.contract.bitmask import host_tensor
from grammar_backends.errors import BitmaskError
from grammar_backends.kernels.mapping import Integers, integers, to_device

__all__ = ["StepMasks", "UploadBuffers", "upload"]

ALIGNMENT = 32
"""int32 entries: masks start at a multiple of 128 bytes, which a device reads at once."""


def upload(values: Integers, device: torch.device | str) -> torch.Tensor:
    """Copy to a device, in the order of its current stream, without waiting for it (H2).

    Args:
        values: a tensor, whose memory may be reused at once unless it is pinned; or row indices, which become int32.
        device: where the logits are.

    Returns:
        The tensor on that device; itself when it is there.

    Raises:
        BitmaskError: `values` is no tensor, and not integers in one dimension.
    """
    tensor = values if isinstance(values, torch.Tensor) else integers(values, "indices")
    return to_device(tensor, torch.device(device))


class StepMasks:
    """The memory of one step's masks, on the host and on the device.

    Attributes:
        bitmask: int32 ``[rows, words]`` in host memory, to be filled; it holds what an earlier step left there.
        indices: int32 ``[rows]`` in host memory, to be filled with the logits row of each mask row.
    """

    def __init__(self, rows: int, width: int, device: torch.device, streams: Any, copies: Any) -> None:
        # Indices and masks lie in one piece of memory, so that one copy takes both.
        self._lead, self._words = -(-rows // ALIGNMENT) * ALIGNMENT, row_words(width)
        self._host = host_tensor((self._lead + rows * self._words,), -1)
        self._is_copied = streams is not None or device.type != "cpu"
        self._device = torch.empty_like(self._host, device=device) if self._is_copied else self._host
        self._streams, self._copies = streams, copies
        if streams is not None:
            self._copied, self._applied = streams.Event(), streams.Event()
            self._device.record_stream(copies)
        self.bitmask, self.indices = self._views(self._host, rows)

    def _views(self, memory: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        masks = memory[self._lead : self._lead + rows * self._words]
        return masks.view(rows, self._words), memory[:rows]

    @contextmanager
    def on_device(self, rows: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The first `rows` masks and indices on the device, for what the caller puts on its current stream.

        Raises:
            BitmaskError: more rows than there are.
        """
        if not 0 <= rows <= self.indices.shape[0]:
            raise BitmaskError(f"{rows} rows are more than {self.indices.shape[0]}")
        if self._streams is None:
            self._copy(rows)
            yield self._views(self._device, rows)
            return
        caller = self._streams.current_stream(self._device.device)
        self._device.record_stream(caller)
        with self._streams.stream(self._copies):
            self._copies.wait_event(self._applied)
            self._copy(rows)
            self._copied.record(self._copies)
        caller.wait_event(self._copied)
        try:
            yield self._views(self._device, rows)
        finally:
            self._applied.record(caller)

    def _copy(self, rows: int) -> None:
        if self._is_copied:
            used = self._lead + rows * self._words
            self._device[:used].copy_(self._host[:used], non_blocking=self._streams is not None)

    def _wait_for_copy(self) -> None:
        if self._streams is not None:
            self._copied.synchronize()


class UploadBuffers:
    """The masks of a decode loop, on their way from the host to the device of the logits.

    ::

        buffers = UploadBuffers(rows, vocabulary.width, logits.device)
        for each step:
            masks = buffers.next()                              # may wait for a copy of `depth` steps ago
            fill masks.bitmask and masks.indices, up to row n
            with masks.on_device(n) as (bitmask, indices):
                apply_token_bitmask(logits, bitmask, indices=indices)

    Copies go by a stream of their own. One starts when the kernels are done that read the same memory on the device
    before, the caller's current stream waits for it, and what the caller puts on that stream inside the ``with`` is
    what the next copy into that memory waits for. The host waits for nothing but what `next` says. On a CPU there is
    nothing to copy: what was filled is what is applied. Where memory cannot be pinned or a device has no streams,
    copies are waited for.

    One thread at a time may use an object. The addresses on the device stay the same, `depth` of them in turn.
    """

    def __init__(self, rows: int, width: int, device: torch.device | str, *, depth: int = 2) -> None:
        """Allocate all that is needed.

        Args:
            rows: how many mask rows a step has at most.
            width: token ids a row covers: `Vocabulary.width`.
            device: where the logits are.
            depth: how many steps have memory of their own.

        Raises:
            BitmaskError: rows, width or depth are below 1.
        """
        if min(rows, width, depth) < 1:
            raise BitmaskError(f"rows, width and depth are 1 or more, not {rows}, {width} and {depth}")
        device = torch.device(device)
        streams = _streams_of(device)
        copies: Any = None if streams is None else streams.Stream(device)
        self._steps = [StepMasks(rows, width, device, streams, copies) for _ in range(depth)]
        if streams is not None:
            # The new memory may be what kernels of the current stream are still reading: it was freed, not waited for.
            copies.wait_stream(streams.current_stream(device))
        self._next = 0

    def next(self) -> StepMasks:
        """The memory for the next step's masks, once the last copy from it is done."""
        masks = self._steps[self._next]
        self._next = (self._next + 1) % len(self._steps)
        masks._wait_for_copy()
        return masks


def _streams_of(device: torch.device) -> Any:
    """The part of torch that has the streams and events of a device; None where there are none."""
    module = getattr(torch, device.type, None)
    return module if device.type != "cpu" and hasattr(module, "Stream") and hasattr(module, "Event") else None
