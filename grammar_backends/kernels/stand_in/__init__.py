"""The CUDA kernel without a GPU: its very source, compiled for the host, in a library that stands in for the driver.

A C++ compiler is needed, and nothing else. It is for proofs: every access of the kernel is checked, and so it is slow.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from grammar_backends.errors import KernelError
from grammar_backends.kernels.call import Call
from grammar_backends.kernels.cuda.driver import Driver
from grammar_backends.kernels.cuda.launcher import BLOCKS_PER_MULTIPROCESSOR, Launcher
from grammar_backends.kernels.cuda.nvrtc import SOURCE

__all__ = ["CUT_NOTHING", "apply_by_stand_in", "build", "launcher"]

FOLDER = Path(__file__).parent
FLAGS = ("-std=c++17", "-O2", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")

CUT_NOTHING = 0
"""Blocks per multiprocessor with which a launcher leaves even a single row in large pieces."""

ANY_IMAGE = b"\x7fELF"
"""The stand-in runs the source that it was built from, whatever image it is given."""


def build(source: Path = SOURCE, flags: Sequence[str] = ()) -> Path:
    """Compile a kernel's source into a stand-in; one that was compiled before is used again.

    Raises:
        KernelError: there is no C++ compiler, or it refuses the source.
    """
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise KernelError("there is no C++ compiler to build the stand-in for the CUDA driver")
    options = [*FLAGS, *flags]
    inputs = [source, FOLDER / "shim.h", FOLDER / "driver.cpp"]
    content = b"".join([compiler.encode(), *(option.encode() for option in options), *(p.read_bytes() for p in inputs)])
    library = _cache() / f"{hashlib.sha256(content).hexdigest()[:32]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder) / library.name
            command = [compiler, *options, f'-DKERNEL="{source}"', "-o", str(made), str(FOLDER / "driver.cpp")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise KernelError(f"{compiler} refuses the kernel: {done.stderr}")
            made.replace(library)  # at once, whoever else may be building it
    return library


@functools.cache
def launcher(blocks_per_multiprocessor: int = BLOCKS_PER_MULTIPROCESSOR) -> Launcher:
    """The launcher over the stand-in.

    Raises:
        KernelError: as `build`.
    """
    return Launcher(Driver(str(build())), lambda capability, version: [ANY_IMAGE], blocks_per_multiprocessor)


def apply_by_stand_in(call: Call, blocks_per_multiprocessor: int = BLOCKS_PER_MULTIPROCESSOR) -> None:
    """Apply to tensors in host memory, as `apply_by_cuda` does on a device.

    Raises:
        KernelError: the kernel touched what it must not; or as `build`.
    """
    launcher(blocks_per_multiprocessor).launch(call, 0, 0)


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "grammar_backends" / "stand_in"
