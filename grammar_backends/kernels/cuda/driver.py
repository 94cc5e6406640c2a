"""The functions of the CUDA driver that the launcher needs, as Python calls that raise `KernelError`.

Through ctypes, because the driver's library is wherever its GPU is, with no package to depend on. A context is left
current only where a thread had none, as torch does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from grammar_backends.errors import KernelError

__all__ = ["Driver", "Kernel"]

Kernel = ctypes.c_void_p
Pointers = ctypes.c_char_p * 1

COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR, MULTIPROCESSOR_COUNT = 75, 76, 16
"""Attributes of a device, by the driver's numbers."""


class Driver:
    """The CUDA driver, or a library that stands in for it.

    Attributes:
        version: the newest CUDA that it knows, as 1000 * major + 10 * minor.
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        try:
            self._library = ctypes.CDLL(library)
            self._launch = self._library.cuLaunchKernel
            self._get_context = self._library.cuCtxGetCurrent
            self._load = self._library.cuLibraryLoadData
        except (OSError, AttributeError) as error:
            raise KernelError(f"there is no CUDA driver of version 12 or later: {error}") from error
        self._launch.argtypes = [Kernel, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
        self._contexts: dict[int, int] = {}
        self._images: list[bytes] = []  # kept, since the driver may read an image again for another device
        self._call("cuInit", 0)
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.version = version.value

    def capability(self, device: int) -> tuple[int, int]:
        """The compute capability of a device."""
        return self._attribute(COMPUTE_CAPABILITY_MAJOR, device), self._attribute(COMPUTE_CAPABILITY_MINOR, device)

    def multiprocessors(self, device: int) -> int:
        """How many multiprocessors a device has."""
        return self._attribute(MULTIPROCESSOR_COUNT, device)

    def load(self, image: bytes, names: Sequence[str]) -> dict[str, Kernel]:
        """The entry points of an image, for every device that it fits.

        Raises:
            KernelError: the driver refuses the image; or it has no such entry point.
        """
        library = ctypes.c_void_p()
        self._images.append(image)
        self._check("cuLibraryLoadData", self._load(ctypes.byref(library), image, None, None, 0, None, None, 0))
        kernels = {name: Kernel() for name in names}
        for name, kernel in kernels.items():
            self._call("cuLibraryGetKernel", ctypes.byref(kernel), library, name.encode())
        return kernels

    def launch(
        self, kernel: Kernel, blocks: int, rows_of_blocks: int, threads: int, argument: bytes, device: int, stream: int
    ) -> None:
        """Launch a kernel that takes one struct, given as its bytes, on a stream of a device.

        Raises:
            KernelError: the driver refuses the launch, or reports the failure of an earlier one.
        """
        pointers = Pointers(argument)
        context = self._contexts.get(device) or self._retain_context(device)
        current = ctypes.c_void_p()
        self._get_context(ctypes.byref(current))
        if current.value is None:
            self._call("cuCtxSetCurrent", ctypes.c_void_p(context))
        elif current.value != context:
            self._call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
        try:
            result = self._launch(kernel, blocks, rows_of_blocks, 1, threads, 1, 1, 0, stream, pointers, None)
        finally:
            if current.value not in (None, context):
                self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        if result:
            self._check("cuLaunchKernel", result)

    def _retain_context(self, device: int) -> int:
        """The primary context of a device, which is torch's too; kept for the life of the process."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(device))
        return self._contexts.setdefault(device, context.value or 0)

    def _attribute(self, attribute: int, device: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device(device))
        return value.value

    def _device(self, ordinal: int) -> int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device.value

    def _call(self, name: str, *arguments: object) -> None:
        self._check(name, getattr(self._library, name)(*arguments))

    def _check(self, name: str, result: int) -> None:
        if result:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(result, ctypes.byref(text))
            words = text.value.decode() if text.value else "unknown error"
            raise KernelError(f"{name} failed: {words} ({result})", code=result)
