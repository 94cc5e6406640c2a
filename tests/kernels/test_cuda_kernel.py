"""The source of the CUDA kernel, run on the host through the launcher and a stand-in for the driver."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from grammar_backends.errors import BitmaskError, KernelError
from grammar_backends.kernels import stand_in
from grammar_backends.kernels.apply import Implementation, available_implementations
from grammar_backends.kernels.call import Arguments, plain_call, prepare
from grammar_backends.kernels.cuda.driver import Driver
from grammar_backends.kernels.cuda.launcher import Launcher
from grammar_backends.kernels.cuda.nvrtc import SOURCE
from grammar_backends.kernels.stand_in import ANY_IMAGE, apply_by_stand_in

from .conftest import StandIn

VOCABULARY = 128_256
WORDS = VOCABULARY // 32

MAP_NORESERVE = 0x4000
"""Linux's flag for memory that is not set aside; the mmap module names it from Python 3.13 on."""


def aligned(rows: int, columns: int, dtype: torch.dtype, phase: int = 0) -> torch.Tensor:
    """Logits whose first row lies so many elements behind a boundary of 16 bytes."""
    flat = torch.zeros(rows * columns + 16, dtype=dtype)
    start = (-flat.data_ptr() % 16) // flat.element_size() + phase
    return flat[start : start + rows * columns].view(rows, columns)


def mask_of(word: int, rows: int = 1) -> torch.Tensor:
    return aligned(rows, WORDS, torch.float32).view(torch.int32).fill_(word)


def test_h6_the_kernel_on_the_host_is_among_what_the_suite_proves(stand_in_driver: StandIn) -> None:
    assert "CUDA kernel on the host" in [each.name for each in available_implementations()]


def test_h_the_struct_is_laid_out_as_the_kernel_reads_it(stand_in_driver: StandIn) -> None:
    assert stand_in_driver.library.standInArgumentsSize() == ctypes.sizeof(Arguments)


def test_h_the_source_includes_nothing_and_has_no_floating_point() -> None:
    code = [line.split("//")[0] for line in SOURCE.read_text().splitlines()]
    assert not [line for line in code if "#include" in line or "float" in line or "double" in line or "half" in line]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("phase", [0, 1, 3])
def test_h_masked_logits_are_stored_sixteen_bytes_at_a_time_at_any_alignment(
    stand_in_driver: StandIn, dtype: torch.dtype, phase: int
) -> None:
    logits = aligned(1, VOCABULARY, dtype, phase)
    launch = stand_in_driver.apply(logits, mask_of(0))
    lanes = 16 // logits.element_size()
    assert logits.isinf().all()
    assert launch.wide_stores == VOCABULARY // lanes - (phase > 0)
    assert launch.stores == (lanes if phase else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 64])
def test_h_words_of_ones_cost_the_load_of_the_mask_alone(
    stand_in_driver: StandIn, dtype: torch.dtype, rows: int
) -> None:
    logits = aligned(rows, VOCABULARY, dtype)
    launch = stand_in_driver.apply(logits, mask_of(-1, rows))
    assert not logits.any()
    assert launch.stores == launch.wide_stores == 0
    sharers = 32 // (16 // logits.element_size())
    assert launch.loads + 4 * launch.wide_loads == rows * WORDS * sharers


def test_h_many_rows_read_the_mask_sixteen_bytes_at_a_time(stand_in_driver: StandIn) -> None:
    launch = stand_in_driver.apply(aligned(64, VOCABULARY, torch.float32), mask_of(-1, 64))
    assert launch.loads == 0
    assert launch.wide_loads > 0


def test_h_more_rows_than_a_grid_has(stand_in_driver: StandIn) -> None:
    logits, bitmask = torch.zeros((70_001, 32), dtype=torch.float16), torch.zeros((70_001, 1), dtype=torch.int32)
    launch = stand_in_driver.apply(logits, bitmask)
    assert logits.isinf().all()
    assert launch.rows_of_blocks == 65_535
    assert launch.wide_stores == 70_001 * 4


def test_h_offsets_beyond_32_bits(stand_in_driver: StandIn) -> None:
    row = 17_001
    assert row * VOCABULARY > 2**31
    # Memory of which only the touched pages exist.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    pages = mmap.mmap(-1, (row + 1) * VOCABULARY * 4, flags=flags)
    logits = torch.from_numpy(np.frombuffer(pages, np.float32)).view(row + 1, VOCABULARY)
    apply_by_stand_in(prepare(logits, mask_of(-2), indices=[row]))
    assert logits[row].isinf().nonzero().flatten().tolist() == list(range(0, VOCABULARY, 32))


def between_floats(columns: int) -> torch.Tensor:
    """Logits at an address that no float may have."""
    memory = np.zeros(4 * columns + 8, dtype=np.uint8)
    start = -memory.ctypes.data % 4 + 2
    return torch.from_numpy(memory[start : start + 4 * columns].view(np.float32))[None]


def test_h5_logits_between_two_places_are_refused() -> None:
    with pytest.raises(BitmaskError, match="not a multiple of their size"):
        prepare(between_floats(64), torch.zeros((1, 2), dtype=torch.int32))


def test_h_a_fault_on_the_device_is_a_kernel_error(stand_in_driver: StandIn) -> None:
    logits = between_floats(64)
    call = prepare(torch.zeros(1, 64), torch.zeros((1, 2), dtype=torch.int32))._replace(logits=logits)
    with pytest.raises(KernelError, match=r"a store of 16 bytes beside the logits .* by thread") as fault:
        stand_in_driver.launcher().launch(call, 0, 0)
    assert fault.value.code == 700
    assert not logits.any()


def test_h_the_launch_goes_to_the_device_and_stream_of_the_logits(stand_in_driver: StandIn) -> None:
    launcher, call = stand_in_driver.launcher(), prepare(torch.zeros(1, 8), mask_of(0))
    for device, stream in ((1, 0x1234), (0, 0x5678), (1, 0)):
        launcher.launch(call, device, stream)
        launch = stand_in_driver.last_launch()
        assert (launch.device, launch.stream or 0) == (device, stream)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cut", [0, 3])
def test_h_a_plain_call_is_packed_and_launched_as_any_other(
    stand_in_driver: StandIn, dtype: torch.dtype, cut: int
) -> None:
    memory = torch.randn(6, 200 + cut).to(dtype)
    masks = torch.randint(-(2**31), 2**31, (4, 8), dtype=torch.int32)
    for indices in (None, torch.tensor([5, -1, 0, 2], dtype=torch.int32), [3, 0, -1, 5]):
        logits, expected = memory.clone()[:, cut:], memory.clone()[:, cut:]
        bitmask = masks[:, 1:] if indices is not None else masks.repeat(2, 1)[:6, 1:]
        plain, call = plain_call(logits, bitmask, indices), prepare(expected, bitmask, indices=indices)
        if plain is None:
            raise AssertionError(indices)
        launcher = stand_in_driver.launcher()
        launcher.launch_plain(plain, 1, 0x77)
        assert stand_in_driver.last_launch().stream == 0x77
        launcher.launch(call, 0, 0)
        assert torch.equal(logits.view(torch.uint8), expected.view(torch.uint8))


def test_h_what_is_not_plain_is_left_to_be_looked_at() -> None:
    logits, masks = torch.zeros(2, 64), torch.zeros((2, 2), dtype=torch.int32)
    assert plain_call(logits, masks, None) is not None
    assert plain_call(logits, masks, torch.tensor([1, 0], dtype=torch.int32)) is not None
    for other in (logits[0], logits.double(), logits.T, logits[:1], logits[:, ::2], logits.to("meta"), [[0.0]]):
        assert plain_call(other, masks, None) is None  # type: ignore[arg-type]  # some are none at all
    for other in (masks[0], masks.long(), masks[:, ::2], masks[:, :0], masks.to("meta")):
        assert plain_call(logits, other, None) is None
    for indices in ([1], [0, 1.5], [True, False], torch.tensor([0, 1]), torch.tensor([[0, 1]], dtype=torch.int32)):
        assert plain_call(logits, masks, indices) is None  # type: ignore[arg-type]  # some are no indices


def test_h_a_thread_keeps_the_context_it_had_and_gets_one_where_it_had_none(stand_in_driver: StandIn) -> None:
    context = stand_in_driver.library.standInCurrentContext
    context.restype = ctypes.c_void_p
    launcher, call = stand_in_driver.launcher(), prepare(torch.zeros(1, 8), mask_of(0))
    seen: list[tuple[int, int, int]] = []

    def launches() -> None:
        before = context()
        launcher.launch(call, 1, 0)
        first = context()
        launcher.launch(call, 0, 0)
        seen.append((before, first, context()))

    threads = [threading.Thread(target=launches) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    for before, first, last in seen:
        assert before is None
        assert first is not None
        assert last == first


def test_h_an_unknown_device_and_an_image_that_is_none_are_kernel_errors(stand_in_driver: StandIn) -> None:
    call = prepare(torch.zeros(1, 8), mask_of(0))
    with pytest.raises(KernelError, match="invalid device ordinal") as unknown:
        stand_in_driver.launcher().launch(call, 7, 0)
    assert unknown.value.code == 101
    broken = Launcher(Driver(str(stand_in_driver.path)), lambda capability, version: [b"not an image"])
    with pytest.raises(KernelError, match="takes no image of the kernel: cuLibraryLoadData failed"):
        broken.launch(call, 0, 0)


def test_h_an_image_that_the_driver_refuses_gives_way_to_the_next(stand_in_driver: StandIn) -> None:
    launcher = Launcher(Driver(str(stand_in_driver.path)), lambda capability, version: [b"not an image", ANY_IMAGE])
    logits = torch.zeros(1, 8)
    launcher.launch(prepare(logits, mask_of(0)), 0, 0)
    assert logits.isinf().all()


def test_h_no_driver_is_a_kernel_error() -> None:
    with pytest.raises(KernelError, match="no CUDA driver"):
        Driver("libthere-is-none.so")


UNDER_SANITIZERS = """
import sys
from grammar_backends.kernels.apply import Implementation
from grammar_backends.kernels.cuda.driver import Driver
from grammar_backends.kernels.cuda.launcher import Launcher
from grammar_backends.kernels.fuzz import difference, random_case
from grammar_backends.kernels.stand_in import ANY_IMAGE, CUT_NOTHING

launcher = Launcher(Driver(sys.argv[1]), lambda capability, version: [ANY_IMAGE], CUT_NOTHING)
sanitized = Implementation("sanitized", "cpu", lambda call: launcher.launch(call, 0, 0))
for seed in range(200):
    case = random_case(seed)
    found = difference(sanitized, case, case.expected())
    if found:
        sys.exit(found)
print("clean")
"""


def test_h_sanitizers_find_nothing_in_the_kernel(stand_in_driver: StandIn) -> None:
    library = stand_in.build(flags=["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1"])
    runtime = Path(subprocess.check_output(["c++", "-print-file-name=libasan.so"], text=True).strip())
    if not runtime.is_absolute():
        pytest.skip("the compiler has no shared runtime of its sanitizers")
    done = subprocess.run(
        [sys.executable, "-c", UNDER_SANITIZERS, library],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": str(runtime)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "clean\n", "")


def test_h6_implementations_are_named_once() -> None:
    names = [each.name for each in available_implementations()]
    assert len(set(names)) == len(names)
    assert all(isinstance(each, Implementation) for each in available_implementations())
