"""The compiled CPU path: the reference's logits with every width of vectors and in threads, and nothing beside them
touched; and what happens where it is missing, stale or broken."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from grammar_backends.contract import allocate_bitmask, pack_ids
from grammar_backends.errors import BitmaskError
from grammar_backends.kernels import apply, apply_token_bitmask, compiled, fuzz
from grammar_backends.kernels.apply import Implementation, available_implementations, missing_implementations
from grammar_backends.kernels.call import prepare

IN_THREADS = ("-DBYTES_PER_THREAD=1", "-DWORDS_PER_STRIPE=1")
"""Flags under which the smallest call is divided among threads."""

SANITIZERS = {
    "asan": ("-fsanitize=address,undefined", {"ASAN_OPTIONS": "detect_leaks=0"}),
    "tsan": ("-fsanitize=thread", {"TSAN_OPTIONS": "exitcode=66"}),
}

UNDER_A_SANITIZER = """
import sys
from pathlib import Path
from grammar_backends.kernels.apply import Implementation
from grammar_backends.kernels.compiled import Library
from grammar_backends.kernels.fuzz import difference, random_case

library = Library(Path(sys.argv[1]))

def cut(layout, buffer):
    # To the memory that the matrix spans, so that a byte too far is a byte beyond.
    span = 1 + sum(max(0, size - 1) * stride for size, stride in zip(layout.shape, layout.strides))
    return layout._replace(offset=0, size=span), buffer[layout.offset : layout.offset + span].clone()

for seed in range(int(sys.argv[2])):
    case = random_case(seed)
    logits, buffer = cut(case.logits, case.buffer)
    bitmask, mask_buffer = cut(case.bitmask, case.mask_buffer)
    case = case._replace(logits=logits, buffer=buffer, bitmask=bitmask, mask_buffer=mask_buffer)
    for vector_bytes in (16, 32, 64):
        run = lambda call: library.apply(call, threads=3, vector_bytes=vector_bytes)
        found = difference(Implementation("sanitized", "cpu", run), case, case.expected())
        if found:
            sys.exit(found)
print("clean")
"""

FORKED = """
import os, sys
from pathlib import Path
import torch
from grammar_backends.kernels.call import prepare
from grammar_backends.kernels.compiled import Library

library = Library(Path(sys.argv[1]))

def is_right():
    logits, bitmask = torch.zeros(4, 70), torch.zeros((4, 3), dtype=torch.int32)
    library.apply(prepare(logits, bitmask), threads=3)
    return bool((logits == float("-inf")).all())

assert is_right()
child = os.fork()
if not child:
    os._exit(0 if is_right() else 1)
assert os.waitpid(child, 0)[1] == 0 and is_right()
print("both")
"""


def test_h6_every_width_of_vectors_and_threads_give_the_logits_of_the_reference(build_library):
    installed, divided = compiled.Library(build_library()), compiled.Library(build_library(*IN_THREADS))
    implementations = [
        Implementation(f"{vector_bytes} bytes", "cpu", partial(library.apply, threads=3, vector_bytes=vector_bytes))
        for vector_bytes in (16, 32, 64)
        for library in (installed, divided)
    ]
    assert list(fuzz.differences(800, 0, implementations)) == []


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_h6_no_byte_is_touched_but_those_of_logits_mask_and_mapping(build_library, sanitizer):
    flag, variables = SANITIZERS[sanitizer]
    library = build_library(*IN_THREADS, "-O1", "-g", flag, "-fno-sanitize-recover=all")
    compiler = os.environ.get("CC", "cc")
    runtime = Path(subprocess.check_output([compiler, f"-print-file-name=lib{sanitizer}.so"], text=True).strip())
    if not runtime.is_absolute():
        pytest.skip(f"the compiler has no shared runtime of {sanitizer}")
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_SANITIZER, library, "250"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **variables, "LD_PRELOAD": str(runtime)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "clean\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_h6_threads_of_a_call_are_no_trouble_for_a_fork(build_library):
    library = build_library(*IN_THREADS)
    assert subprocess.check_output([sys.executable, "-c", FORKED, library], text=True, timeout=60) == "both\n"


def test_h5_more_logits_than_a_thread_takes_are_masked_by_several(build_library):
    library = compiled.Library(build_library())
    rows, columns = 40, 128_256
    logits, bitmask = torch.zeros(rows, columns, dtype=torch.float32), allocate_bitmask(rows, columns)
    for row in range(rows):
        bitmask[row] = torch.from_numpy(pack_ids(range(row, columns, 997), columns))
    expected = logits.clone()
    library.apply(prepare(logits, bitmask), threads=4)
    library.apply(prepare(expected, bitmask), threads=1)
    assert torch.equal(logits, expected)
    assert torch.isfinite(logits).sum().item() == sum(len(range(row, columns, 997)) for row in range(rows))


def test_h8_allowed_logits_keep_every_bit_of_nan_and_infinity(build_library):
    library = compiled.Library(build_library())
    for dtype, integer in fuzz.INTEGERS.items():
        size = torch.iinfo(integer)
        logits = torch.linspace(size.min, size.max, 40_000).to(integer).view(dtype)[None]
        assert torch.isnan(logits).any()
        before = logits.clone()
        allowed = torch.arange(0, 40_000, 3)
        bitmask = torch.from_numpy(pack_ids(allowed.tolist(), 40_000))[None]
        library.apply(prepare(logits, bitmask))
        assert torch.equal(logits.view(integer)[0, allowed], before.view(integer)[0, allowed])
        assert torch.isneginf(logits).sum().item() >= 40_000 - len(allowed)


def test_a20_a_library_that_is_absent_stale_or_broken_is_not_used_and_says_why(build_library, tmp_path):
    absent, note = tmp_path / "absent.so", tmp_path / "note.txt"
    assert compiled.load(absent, note=note) == "the package was not built where it lies"
    note.write_text("no C compiler was found\n")
    assert compiled.load(absent, note=note) == "no C compiler was found"
    other = tmp_path / "apply_cpu.c"
    other.write_bytes(compiled.SOURCE.read_bytes() + b"\n")
    assert "another version of its source" in compiled.load(build_library(), source=other)
    broken = tmp_path / "broken.so"
    broken.write_text("not a library")
    assert "cannot be loaded" in compiled.load(broken)
    assert isinstance(compiled.load(build_library()), compiled.Library)


def test_h6_what_is_missing_is_listed_with_its_reason_and_what_works_is_listed_without():
    names = [implementation.name for implementation in available_implementations()]
    assert ("compiled" in names) == ("compiled" not in missing_implementations())
    assert ("CUDA kernel" in names) == ("CUDA kernel" not in missing_implementations())
    assert {"numpy", "torch on cpu"} <= set(names)


def outcome(rows: int, masks: int, columns: int, words: int, indices: object) -> object:
    """What becomes of logits of these sizes, or the error."""
    generator = torch.Generator().manual_seed(rows * columns)
    logits = torch.randn((rows, columns), generator=generator)
    bitmask = torch.randint(-(2**31), 2**31, (masks, words), generator=generator).to(torch.int32)
    try:
        apply_token_bitmask(logits, bitmask, indices=indices)
    except BitmaskError as error:
        return str(error), logits.tolist()
    return logits.tolist()


def test_a20_plain_calls_have_the_outcome_that_they_have_without_the_library(build_library, monkeypatch):
    library = compiled.Library(build_library())
    monkeypatch.setattr(apply, "_implementation_for", apply._implementation_for.__wrapped__)  # what it remembers stays
    dice = random.Random(5)
    kinds = (list, tuple, np.array, torch.tensor, lambda values: torch.tensor(values, dtype=torch.int32))
    raised = 0
    for _ in range(400):
        rows, masks = dice.choice((3, 5)), dice.choice((1, 2, 3))
        right = dice.sample(range(-1, rows), masks)
        wrong = [dice.randint(-1, rows) for _ in range(dice.choice((masks, 0, 4)))]
        values = dice.choice((right, right, right, wrong))
        indices = dice.choice((None, [0.5] * masks, [2**40] * masks, *(kind(values) for kind in kinds * 2)))
        sizes = rows, masks, dice.choice((0, 1, 31, 100)), dice.choice((0, 1, 3, 4))
        monkeypatch.setattr(compiled, "_library", library)
        found = outcome(*sizes, indices)
        monkeypatch.setattr(compiled, "_library", "not built")
        assert found == outcome(*sizes, indices), (sizes, indices)
        raised += isinstance(found, tuple)
    assert 100 < raised < 300


@pytest.mark.parametrize("is_built", [False, True])
def test_h6_masks_on_cpus_go_the_compiled_way_or_numpys(build_library, monkeypatch, is_built):
    monkeypatch.setattr(compiled, "_library", compiled.Library(build_library()) if is_built else "not built")
    monkeypatch.setattr(apply, "_implementation_for", apply._implementation_for.__wrapped__)  # what it remembers stays
    monkeypatch.setattr(apply, "apply_by_numpy" if is_built else "apply_compiled", None)
    logits, bitmask = torch.zeros(2, 40), torch.tensor([[5, 0], [-1, 1]], dtype=torch.int32)
    apply_token_bitmask(logits, bitmask, indices=[1, 0])
    assert [torch.nonzero(row == 0).flatten().tolist() for row in logits] == [[*range(32), 32], [0, 2]]


def not_in_memory(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same values in tensors that are not what lies at their address."""
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(tensor)
    nested = torch.nested.nested_tensor([*tensor], dtype=tensor.dtype)
    return {"sparse": tensor.to_sparse(), "csr": tensor.to_sparse_csr(), "fake": fake, "nested": nested}


@pytest.mark.filterwarnings(
    "ignore:Sparse CSR", "ignore:The PyTorch API of nested", "ignore:Accessing the data pointer"
)
@pytest.mark.parametrize("is_built", [False, True])
def test_a20_tensors_that_are_not_what_lies_in_their_memory_are_refused(build_library, monkeypatch, is_built):
    monkeypatch.setattr(compiled, "_library", compiled.Library(build_library()) if is_built else "not built")
    monkeypatch.setattr(apply, "_implementation_for", apply._implementation_for.__wrapped__)  # what it remembers stays
    logits, bitmask = torch.randn(3, 64), torch.zeros((3, 2), dtype=torch.int32)
    indices = torch.tensor([2, 1, 0], dtype=torch.int32)
    before = logits.clone()
    for wrong in (*not_in_memory(logits).values(), torch._neg_view(logits)):
        with pytest.raises(BitmaskError, match="logits"):
            apply_token_bitmask(wrong, bitmask)
    for wrong in not_in_memory(bitmask).values():
        with pytest.raises(BitmaskError, match="bitmask"):
            apply_token_bitmask(logits, wrong)
    for wrong in (not_in_memory(indices[None])["fake"][0], indices.to_sparse()):
        with pytest.raises(BitmaskError, match="logits_rows"):
            apply_token_bitmask(logits, bitmask, indices=wrong)
    assert torch.equal(logits, before)
