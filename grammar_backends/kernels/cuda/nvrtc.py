"""The kernel's source to images that a driver loads, by NVRTC: no GPU, no driver and no toolkit is needed for it.

An image for the very device comes first. Where NVRTC does not know the device, or the driver does not take the image,
PTX follows, for the driver to compile. Drivers refuse PTX of a newer language version than they know, whatever is in
it; the kernel needs nothing new, so its header is lowered to the driver's version.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from grammar_backends.errors import KernelError

__all__ = ["SOURCE", "Compiled", "Nvrtc", "images", "lowered"]

SOURCE = Path(__file__).with_name("apply_bitmask.cu")

WHEELS = ("nvidia/cu*/lib", "nvidia/cuda_nvrtc/lib")
"""Where the wheels of NVRTC, which torch depends on, keep its library: since CUDA 13, and before."""

PTX_VERSIONS = {
    12000: (8, 0), 12010: (8, 1), 12020: (8, 2), 12030: (8, 3), 12040: (8, 4), 12050: (8, 5), 12070: (8, 6),
    12080: (8, 7), 12090: (8, 8), 13000: (9, 0),
}  # fmt: skip
"""The versions of the PTX language, by the CUDA that brought them."""


class Compiled(NamedTuple):
    """What a compilation gives.

    Attributes:
        image: what a driver loads.
        log: for machine code, the registers and the spilled bytes of every entry point.
    """

    image: bytes
    log: str


class Nvrtc:
    """NVRTC's library.

    Attributes:
        version: of the CUDA that it belongs to.
        architectures: what it compiles for, as 10 * major + minor of the compute capability, ascending.
    """

    def __init__(self, library: str | None = None) -> None:
        path = library or _find()
        try:
            # Some wheels do not find their own second library, which the first then finds when it is loaded already.
            for second in sorted(Path(path).parent.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(second), mode=ctypes.RTLD_GLOBAL)
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise KernelError(f"NVRTC cannot be loaded: {error}", hint="pip install nvidia-cuda-nvrtc") from error
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        architectures = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", architectures)
        self.architectures = sorted(architectures)

    def compile(self, architecture: int, *, ptx: bool) -> Compiled:
        """The kernel for an architecture: machine code, or PTX text.

        Raises:
            KernelError: NVRTC refuses; the message holds its log.
        """
        program = ctypes.c_void_p()
        target = f"--gpu-architecture={'compute' if ptx else 'sm'}_{architecture}"
        options = (ctypes.c_char_p * 3)(target.encode(), b"--std=c++17", b"--ptxas-options=-v")
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), SOURCE.read_bytes(), SOURCE.name.encode(), 0, None, None
        )
        try:
            result = self._library.nvrtcCompileProgram(program, len(options), options)
            log = self._output(program, "ProgramLog").rstrip(b"\0").decode()
            if result:
                raise KernelError(f"NVRTC refuses the kernel: {log}", code=result)
            return Compiled(self._output(program, "PTX" if ptx else "CUBIN"), log)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _output(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        output = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, output)
        return output.raw

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise KernelError(f"{name} failed: {self._library.nvrtcGetErrorString(result).decode()}", code=result)


def images(capability: tuple[int, int], driver_version: int) -> Iterator[bytes]:
    """Images of the kernel for a device, the best first.

    Raises:
        KernelError: there is no NVRTC, or it refuses; on taking the image in question.
    """
    nvrtc = Nvrtc()
    architecture = capability[0] * 10 + capability[1]
    if architecture in nvrtc.architectures:
        yield nvrtc.compile(architecture, ptx=False).image
    known = [each for each in nvrtc.architectures if each <= architecture]
    if not known:
        raise KernelError(f"NVRTC {nvrtc.version} no longer compiles for a device of capability {capability}")
    yield lowered(nvrtc.compile(known[-1], ptx=True).image, driver_version)


def lowered(ptx: bytes, driver_version: int) -> bytes:
    """PTX with a version in its header that the driver knows, and without hints that came later."""
    known = [version for cuda, version in PTX_VERSIONS.items() if cuda <= driver_version]
    header = re.search(rb"^\.version (\d+)\.(\d+)", ptx, flags=re.MULTILINE)
    if not known or header is None or (int(header[1]), int(header[2])) <= max(known):
        return ptx
    text = re.sub(rb'^\s*\.pragma "used_bytes_mask.*\n', b"", ptx, flags=re.MULTILINE)
    return text.replace(header[0], b".version %d.%d" % max(known), 1)


def _find() -> str:
    """NVRTC's library from its wheel, of torch's CUDA if there are several; otherwise the name the loader may know."""
    major = str(torch.version.cuda).partition(".")[0]
    folders = [Path(folder) for folder in sys.path if folder]
    found = [path for folder in folders for wheel in WHEELS for path in sorted(folder.glob(f"{wheel}/libnvrtc.so.*"))]
    return str(max(found, key=lambda path: (path.suffix == f".{major}", path.suffix), default=f"libnvrtc.so.{major}"))
