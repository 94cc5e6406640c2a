"""What the proof runs on: a GPU with the real driver, or the host with the stand-in for one."""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Callable
from typing import Any

import torch

from grammar_backends.installation import installed_version
from grammar_backends.kernels import stand_in
from grammar_backends.kernels.apply import Implementation
from grammar_backends.kernels.call import Call
from grammar_backends.kernels.cuda import launcher as cuda
from grammar_backends.kernels.cuda.driver import Driver
from grammar_backends.kernels.cuda.nvrtc import Nvrtc, images

__all__ = ["Gpu", "Host", "Machine"]

SMALL_PIECES, LARGE_PIECES = 1 << 20, 0
"""Blocks per multiprocessor with which every call, or none, is cut into small pieces."""

PACKAGES = ("grammar-backends", "torch", "triton", "xgrammar", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


class Machine:
    """Where kernels run.

    Attributes:
        device: torch's name for it.
        is_rehearsal: whether what happens there says nothing about a GPU.
    """

    device = "cpu"
    is_rehearsal = True

    @property
    def implementation(self) -> Implementation:
        """The kernel, as `apply_token_bitmask` launches it."""
        raise NotImplementedError

    def pieces(self, *, small: bool) -> Callable[[Call], None]:
        """The kernel, with every call cut into small or into large pieces."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until everything is done."""

    def microseconds(self, launches: Callable[[], None], count: int) -> float:
        """How long each of the `count` launches takes that a call makes, on the device: the median of several runs."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The machine and its software as JSON-able data."""
        versions = {name: installed_version(name) for name in PACKAGES}
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": {name: version for name, version in versions.items() if version},
        }


class Gpu(Machine):
    """The first CUDA device of this process."""

    device = "cuda:0"
    is_rehearsal = False

    @functools.cached_property
    def implementation(self) -> Implementation:
        return Implementation("CUDA kernel", self.device, cuda.apply_by_cuda)

    def pieces(self, *, small: bool) -> Callable[[Call], None]:
        launcher = cuda.Launcher(Driver(), images, SMALL_PIECES if small else LARGE_PIECES)

        def apply(call: Call) -> None:
            device = call.logits.device.index
            launcher.launch(call, device, torch.cuda.current_stream(device).cuda_stream)

        return apply

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def microseconds(self, launches: Callable[[], None], count: int) -> float:
        graph = torch.cuda.CUDAGraph()
        launches()  # what compiles or loads on first use must not do so while it is captured
        self.synchronize()
        with torch.cuda.graph(graph):
            launches()
        graph.replay()
        times: list[float] = []
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
        for _ in range(7):
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / count)
        return sorted(times)[len(times) // 2]

    def describe(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self.device)
        return {
            **super().describe(),
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_gb": round(properties.total_memory / 2**30, 1),
            "devices": torch.cuda.device_count(),
            "driver_cuda": Driver().version,
            "torch_cuda": torch.version.cuda,
            "nvrtc": ".".join(map(str, Nvrtc().version)),
        }


class Host(Machine):
    """The host, with the kernel's source behind the stand-in for the driver.

    Raises:
        KernelError: on first use, when the stand-in cannot be built.
    """

    @functools.cached_property
    def implementation(self) -> Implementation:
        return Implementation("CUDA kernel on the host", self.device, stand_in.apply_by_stand_in)

    def pieces(self, *, small: bool) -> Callable[[Call], None]:
        blocks = SMALL_PIECES if small else LARGE_PIECES
        return functools.partial(stand_in.apply_by_stand_in, blocks_per_multiprocessor=blocks)

    def microseconds(self, launches: Callable[[], None], count: int) -> float:
        begin = time.perf_counter()
        launches()
        return (time.perf_counter() - begin) * 1e6 / count
