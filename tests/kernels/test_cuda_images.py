"""What NVRTC makes of the CUDA kernel, and which image a driver gets: no GPU is needed for either."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from grammar_backends.errors import KernelError
from grammar_backends.kernels.call import prepare
from grammar_backends.kernels.cuda.driver import Driver
from grammar_backends.kernels.cuda.launcher import ENTRY_POINTS, Launcher
from grammar_backends.kernels.cuda.nvrtc import Nvrtc, images, lowered

from .conftest import StandIn

ARCHITECTURES = (80, 90, 100, 120)


def entries_of(ptx: str) -> dict[str, str]:
    parts = re.split(r"^\.visible \.entry (\w+)\(", ptx, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_h_every_entry_point_compiles_without_spilling(nvrtc: Nvrtc, architecture: int) -> None:
    compiled = nvrtc.compile(architecture, ptx=False)
    assert compiled.image.startswith(b"\x7fELF")
    assert set(re.findall(r"Compiling entry function '(\w+)'", compiled.log)) == set(ENTRY_POINTS)
    reports = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", compiled.log)
    assert reports == [("0", "0", "0")] * len(ENTRY_POINTS)
    # 64 registers let four blocks of 256 threads be resident.
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", compiled.log)]
    assert len(registers) == len(ENTRY_POINTS)
    assert max(registers) <= 64


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_h_the_ptx_stores_sixteen_bytes_and_loads_no_logits(nvrtc: Nvrtc, architecture: int) -> None:
    entries = entries_of(nvrtc.compile(architecture, ptx=True).image.decode())
    assert set(entries) == set(ENTRY_POINTS)
    for name, body in entries.items():
        words = 4 if name.endswith("4_words") else 1
        bits = 32 if "_4_bytes" in name else 16
        lanes = 128 // bits
        assert body.count("st.global.v4.b32") == words, name
        assert len(re.findall(rf"st\.global\.[ub]{bits}\b", body)) == words * lanes, name
        assert len(re.findall(r"st\.global", body)) == words * (lanes + 1), name
        assert body.count("ld.global.v4") == (1 if words == 4 else 0), name
        assert not re.search(r"ld\.global\S*\.[ub]16|\.local|\.shared|\.f16|\.f32|bar\.sync", body), name


def test_h_ptx_is_lowered_to_what_the_driver_knows(nvrtc: Nvrtc) -> None:
    ptx = nvrtc.compile(90, ptx=True).image
    for driver, version in ((12000, b"8.0"), (12040, b"8.4"), (12060, b"8.5"), (12090, b"8.8"), (13010, b"9.0")):
        assert re.search(rb"^\.version (\S+)", lowered(ptx, driver), re.MULTILINE)[1] == version
    assert b"used_bytes_mask" not in lowered(ptx, 12000)
    assert lowered(b".version 7.8\n", 12000) == b".version 7.8\n"
    assert lowered(ptx, 11080) == ptx  # such a driver takes none


@pytest.mark.parametrize(("driver", "architecture"), [(12000, 80), (12000, 90), (12080, 100), (12080, 120)])
def test_h_lowered_ptx_can_be_assembled(nvrtc: Nvrtc, tmp_path: Path, driver: int, architecture: int) -> None:
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("there is no ptxas on the path")
    text = tmp_path / "kernel.ptx"
    text.write_bytes(lowered(nvrtc.compile(architecture, ptx=True).image, driver).rstrip(b"\0"))
    command = [ptxas, f"-arch=sm_{architecture}", "-o", str(tmp_path / "kernel.cubin"), str(text)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("version", "ptx", "capability", "machine_code"),
    [
        (13000, 90, 90, True),
        (12040, 84, 90, False),  # refuses machine code of a newer CUDA, and PTX until it is lowered
        (12000, 80, 80, False),
        (13000, 90, 999, True),  # newer than NVRTC knows: PTX of the newest that it knows
    ],
)
def test_h_a_driver_gets_an_image_that_it_takes(
    nvrtc: Nvrtc, stand_in_driver: StandIn, version: int, ptx: int, capability: int, machine_code: bool
) -> None:
    stand_in_driver.pretend(version, ptx, capability, machine_code)
    logits = torch.zeros(1, 70)
    launcher = Launcher(Driver(str(stand_in_driver.path)), images)
    launcher.launch(prepare(logits, torch.zeros((1, 3), dtype=torch.int32)), 0, 0)
    assert logits.isinf().all()


def test_h_a_driver_that_takes_no_image_is_a_kernel_error_that_says_why(nvrtc: Nvrtc, stand_in_driver: StandIn) -> None:
    stand_in_driver.pretend(12000, 78, 90, False)
    launcher = Launcher(Driver(str(stand_in_driver.path)), images)
    call = prepare(torch.zeros(1, 8), torch.zeros((1, 1), dtype=torch.int32))
    with pytest.raises(KernelError, match=r"image is invalid \(200\); .* unsupported toolchain \(222\)"):
        launcher.launch(call, 0, 0)


def test_h_a_device_that_nvrtc_has_dropped_is_a_kernel_error(nvrtc: Nvrtc) -> None:
    with pytest.raises(KernelError, match="no longer compiles"):
        next(images((3, 0), 13000))


def test_h_no_nvrtc_is_a_kernel_error_that_says_what_to_install() -> None:
    with pytest.raises(KernelError, match="pip install nvidia-cuda-nvrtc"):
        Nvrtc("libthere-is-none.so")
