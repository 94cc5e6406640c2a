"""Chooses the kernel's entry point and grid for a call, and launches it on torch's current stream.

A launch never waits and allocates nothing, so that it can be captured in a CUDA graph, once the device has run one
before: the first call for a device compiles and loads.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from grammar_backends.errors import KernelError
from grammar_backends.kernels.call import Call, PlainCall, packed_arguments
from grammar_backends.kernels.cuda.driver import Driver, Kernel
from grammar_backends.kernels.cuda.nvrtc import images

__all__ = ["Launcher", "apply_at_once_by_cuda", "apply_by_cuda", "launcher"]

THREADS = 256
CHUNK_BYTES = 16
MOST_ROWS_OF_BLOCKS = 65_535

ENTRY_POINTS = (
    "apply_packed_4_bytes_1_word",
    "apply_packed_4_bytes_4_words",
    "apply_packed_2_bytes_1_word",
    "apply_packed_2_bytes_4_words",
    "apply_strided_4_bytes",
    "apply_strided_2_bytes",
)

BLOCKS_PER_MULTIPROCESSOR = 4
"""How many are resident at least: what gives fewer blocks than fill the device so is cut into smaller pieces."""


class Device(NamedTuple):
    """A device that is ready for launches.

    Attributes:
        kernels: the entry points by name.
        few_blocks: a call that gives fewer is cut into smaller pieces.
    """

    kernels: dict[str, Kernel]
    few_blocks: int


class Launcher:
    """Launches the kernel through a driver.

    Args:
        driver: the CUDA driver, or what stands in for it.
        images: images of the kernel for a compute capability and a driver's version, the best first.
        blocks_per_multiprocessor: cut a call into smaller pieces when it would give fewer blocks.
    """

    def __init__(
        self,
        driver: Driver,
        images: Callable[[tuple[int, int], int], Iterable[bytes]],
        blocks_per_multiprocessor: int = BLOCKS_PER_MULTIPROCESSOR,
    ) -> None:
        self._driver = driver
        self._images = images
        self._blocks_per_multiprocessor = blocks_per_multiprocessor
        self._devices: dict[int, Device] = {}
        self._loaded: dict[tuple[int, int], dict[str, Kernel]] = {}
        self._lock = threading.Lock()

    def launch(self, call: Call, device: int, stream: int) -> None:
        """Launch a call that is not empty.

        Raises:
            KernelError: the kernel cannot be compiled or loaded for the device, or be launched.
        """
        logits = call.logits
        is_packed = call.d2t is None and logits.stride(1) == call.bitmask.stride(1) == 1
        arguments = packed_arguments(call)
        self._launch(arguments, logits.shape[1], call.jobs, logits.element_size(), is_packed, device, stream)

    def launch_plain(self, plain: PlainCall, device: int, stream: int) -> None:
        """The same for a call without anything out of the ordinary."""
        self._launch(plain.arguments, plain.columns, plain.jobs, plain.element_size, True, device, stream)

    def _launch(
        self, arguments: bytes, columns: int, jobs: int, size: int, is_packed: bool, device: int, stream: int
    ) -> None:
        ready = self._devices.get(device) or self._make_ready(device)
        name, blocks, rows_of_blocks = _entry_point(columns, jobs, size, is_packed, ready.few_blocks)
        self._driver.launch(ready.kernels[name], blocks, rows_of_blocks, THREADS, arguments, device, stream)

    def _make_ready(self, device: int) -> Device:
        with self._lock:
            capability = self._driver.capability(device)
            if capability not in self._loaded:
                self._loaded[capability] = self._load(capability)
            few_blocks = self._driver.multiprocessors(device) * self._blocks_per_multiprocessor
            self._devices[device] = Device(self._loaded[capability], few_blocks)
            return self._devices[device]

    def _load(self, capability: tuple[int, int]) -> dict[str, Kernel]:
        refusals = []
        for image in self._images(capability, self._driver.version):
            try:
                return self._driver.load(image, ENTRY_POINTS)
            except KernelError as error:
                refusals.append(str(error))
        raise KernelError(f"the driver takes no image of the kernel: {'; '.join(refusals)}")


@functools.lru_cache(maxsize=4096)
def _entry_point(columns: int, jobs: int, size: int, is_packed: bool, few_blocks: int) -> tuple[str, int, int]:
    """The name of the entry point for a call, and how many blocks it gets in both directions."""
    lanes = CHUNK_BYTES // size
    rows_of_blocks = min(jobs, MOST_ROWS_OF_BLOCKS)
    reachable = columns + lanes - 1  # a row may begin anywhere in its first chunk
    block_columns = THREADS * lanes  # with one chunk, and so one word, to a thread
    if not is_packed:
        return f"apply_strided_{size}_bytes", -(-reachable // block_columns), rows_of_blocks
    blocks = -(-reachable // (4 * block_columns))
    if blocks * jobs >= few_blocks:
        return f"apply_packed_{size}_bytes_4_words", blocks, rows_of_blocks
    return f"apply_packed_{size}_bytes_1_word", -(-reachable // block_columns), rows_of_blocks


@functools.cache
def launcher() -> Launcher:
    """The launcher of this process's CUDA driver.

    Raises:
        KernelError: there is no driver that fits.
    """
    return Launcher(Driver(), images)


def apply_by_cuda(call: Call) -> None:
    """Apply on the current stream of the device where the tensors are.

    Raises:
        KernelError: the kernel cannot be compiled, loaded or launched.
    """
    device = call.logits.device.index
    launcher().launch(call, device, _current_stream(device))


def apply_at_once_by_cuda(plain: PlainCall, device: int) -> None:
    """As `apply_by_cuda`."""
    launcher().launch_plain(plain, device, _current_stream(device))


def _current_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream
