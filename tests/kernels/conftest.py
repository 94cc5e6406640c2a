"""The CUDA kernel on the host: built once, for the tests of this folder."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from grammar_backends.errors import KernelError
from grammar_backends.kernels import stand_in
from grammar_backends.kernels.call import native_arguments, prepare
from grammar_backends.kernels.cuda.driver import Driver
from grammar_backends.kernels.cuda.launcher import Launcher


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

    def last_launch(self) -> Launch:
        launch = Launch()
        self.library.standInLastLaunch(ctypes.byref(launch))
        return launch

    def apply(self, logits: torch.Tensor, bitmask: torch.Tensor, device: int = 0, stream: int = 0) -> Launch:
        """Apply through a launcher, and what was launched."""
        self.launcher().launch(native_arguments(prepare(logits, bitmask)), device, stream)
        return self.last_launch()


@pytest.fixture(scope="session")
def stand_in_driver() -> StandIn:
    try:
        path = stand_in.build()
    except KernelError as error:
        pytest.skip(str(error))
    return StandIn(path, ctypes.CDLL(str(path)))
