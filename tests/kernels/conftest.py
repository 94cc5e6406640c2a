"""Native code built for the tests of this folder: the CUDA kernel on the host, and the CPU path with any flags."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch

from grammar_backends.errors import KernelError
from grammar_backends.kernels import stand_in
from grammar_backends.kernels.call import prepare
from grammar_backends.kernels.compiled import SOURCE
from grammar_backends.kernels.cuda.driver import Driver
from grammar_backends.kernels.cuda.launcher import Launcher
from grammar_backends.kernels.cuda.nvrtc import Nvrtc

ROOT = Path(__file__).resolve().parents[2]

BuildLibrary = Callable[..., Path]


class Launch(ctypes.Structure):
    """What the stand-in tells of a thread's last launch."""

    _fields_ = (
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("blocks", ctypes.c_uint),
        ("rows_of_blocks", ctypes.c_uint),
        ("loads", ctypes.c_uint64),
        ("wide_loads", ctypes.c_uint64),
        ("stores", ctypes.c_uint64),
        ("wide_stores", ctypes.c_uint64),
    )


class StandIn(NamedTuple):
    """The stand-in for the driver, with what no driver has."""

    path: Path
    library: ctypes.CDLL

    def launcher(self) -> Launcher:
        return Launcher(Driver(str(self.path)), lambda capability, version: [stand_in.ANY_IMAGE])

    def pretend(self, version: int, ptx: int, capability: int, machine_code: bool) -> None:
        """Be a driver of that version, for a device of that capability, that takes machine code or does not."""
        self.library.standInPretend(version, ptx, capability, machine_code)

    def last_launch(self) -> Launch:
        launch = Launch()
        self.library.standInLastLaunch(ctypes.byref(launch))
        return launch

    def apply(self, logits: torch.Tensor, bitmask: torch.Tensor, device: int = 0, stream: int = 0) -> Launch:
        """Apply through a launcher, and what was launched."""
        self.launcher().launch(prepare(logits, bitmask), device, stream)
        return self.last_launch()


@pytest.fixture(scope="session")
def built() -> Path:
    try:
        return stand_in.build()
    except KernelError as error:
        pytest.skip(str(error))


@pytest.fixture
def stand_in_driver(built: Path) -> Iterator[StandIn]:
    driver = StandIn(built, ctypes.CDLL(str(built)))
    yield driver
    driver.pretend(13000, 90, 90, True)


@pytest.fixture(scope="session")
def nvrtc() -> Nvrtc:
    try:
        return Nvrtc()
    except KernelError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def build_hook() -> ModuleType:
    """``hatch_build.py``, which no package holds."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def build_library(build_hook: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> BuildLibrary:
    """Compiles ``apply_cpu.c`` with flags, by default as it is installed; skips where there is no compiler for it."""

    def build(*flags: str) -> Path:
        library: Path = tmp_path_factory.mktemp("library") / "library.so"
        try:
            build_hook.compile_library(SOURCE, library, flags)
        except build_hook.CompileFailure as failure:
            pytest.skip(str(failure))
        return library

    return build
