"""Right or wrong, on the machine at hand: what the launcher and the kernel promise, each as one check."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from grammar_backends.kernels.apply import apply_token_bitmask
from grammar_backends.kernels.call import prepare
from grammar_backends.kernels.fuzz import NARROW, WIDE, difference, random_case
from grammar_backends.kernels.mapping import RowMapping
from grammar_backends.kernels.verify.machine import Machine

__all__ = ["CHECKS", "Check", "CheckFailure", "Limits", "Skip", "Verdict", "run_checks"]

VOCABULARY = 128_256
BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")


class Limits(NamedTuple):
    """How much to do.

    Attributes:
        cases: random cases.
        seconds: how long the random cases may take.
        conformance_seconds: how long the conformance suite may take; 0 leaves it out.
    """

    cases: int = 20_000
    seconds: float = 60.0
    conformance_seconds: float = 150.0


class CheckFailure(Exception):
    """A check found what must not be."""


class Skip(Exception):
    """A check cannot be done on this machine."""


class Verdict(NamedTuple):
    """What came of a check.

    Attributes:
        name: the check.
        outcome: "pass", "fail" or "skip".
        detail: what was done, what is wrong, or why it was left out.
        seconds: how long it took.
    """

    name: str
    outcome: str
    detail: str
    seconds: float


Check = Callable[[Machine, Limits], str]
"""Does something, and says what; raises `CheckFailure` or `Skip`."""


def run_checks(machine: Machine, limits: Limits) -> Iterator[Verdict]:
    """Every check, one after the other; none ends the run."""
    for name, check in CHECKS.items():
        begin = time.monotonic()
        try:
            outcome, detail = "pass", check(machine, limits)
        except Skip as reason:
            outcome, detail = "skip", str(reason)
        except CheckFailure as failure:
            outcome, detail = "fail", str(failure)
        except Exception:
            outcome, detail = "fail", traceback.format_exc(limit=-4)
        yield Verdict(name, outcome, detail, round(time.monotonic() - begin, 1))


def _demand(condition: bool, failure: str) -> None:
    if not condition:
        raise CheckFailure(failure)


def _random_cases(machine: Machine, limits: Limits) -> str:
    end = time.monotonic() + limits.seconds
    for number in range(limits.cases):
        if time.monotonic() > end:
            break
        case = random_case(number, WIDE if number % 200 == 0 else NARROW)
        found = difference(machine.implementation, case, case.expected())
        _demand(found is None, f"case {number}: {found}")
    return f"{number + 1} random cases are bit for bit what the reference gives"


def _pieces(machine: Machine, limits: Limits) -> str:
    for small in (True, False):
        implementation = machine.implementation._replace(run=machine.pieces(small=small))
        for number in range(min(limits.cases, 500)):
            case = random_case(number, WIDE if number % 100 == 0 else NARROW)
            found = difference(implementation, case, case.expected())
            _demand(found is None, f"case {number}, {small=}: {found}")
    return "calls cut into small and into large pieces give the same"


def _wide_offsets(machine: Machine, limits: Limits) -> str:
    if machine.is_rehearsal:
        raise Skip("a test of its own does this on the host, in memory of which little exists")
    rows = 2**31 // VOCABULARY + 2
    logits = torch.zeros((rows, VOCABULARY), dtype=torch.bfloat16, device=machine.device)
    mask = torch.full((1, VOCABULARY // 32), -2, dtype=torch.int32, device=machine.device)
    apply_token_bitmask(logits, mask, indices=torch.tensor([rows - 1], dtype=torch.int32, device=machine.device))
    _demand(bool(logits[rows - 1, ::32].isinf().all()), "the last row is not masked")
    _demand(int(logits.isinf().sum()) == VOCABULARY // 32, "other logits are masked")
    return f"a row that begins at element {(rows - 1) * VOCABULARY:,}"


def _many_rows(machine: Machine, limits: Limits) -> str:
    logits = torch.zeros((70_001, 64), dtype=torch.float16, device=machine.device)
    machine.implementation.run(prepare(logits, torch.zeros((70_001, 2), dtype=torch.int32, device=machine.device)))
    _demand(bool(logits.isinf().all()), "not all rows are masked")
    return "70,001 rows, more than a grid has rows of blocks"


def _graph(machine: Machine, limits: Limits) -> str:
    _need_gpu(machine)
    logits = torch.zeros((8, VOCABULARY), dtype=torch.bfloat16, device=machine.device)
    mask = torch.full((8, VOCABULARY // 32), -1, dtype=torch.int32, device=machine.device)
    indices = torch.full((8,), -1, dtype=torch.int32, device=machine.device)
    enabled = torch.ones(8, dtype=torch.bool, device=machine.device)
    mapping = RowMapping.by_index(indices, enabled=enabled)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        apply_token_bitmask(logits, mask, rows=mapping)
    graph.replay()
    _demand(not bool(logits.isinf().any()), "a replay with no rows masks some")
    mask[:3] = 0
    indices[:3] = torch.tensor([5, 2, 7], device=machine.device)
    enabled[1] = False
    graph.replay()
    masked = logits.isinf().all(1).nonzero().flatten().tolist()
    _demand(masked == [5, 7], f"a replay with other masks and rows masks {masked}, not [5, 7]")
    _demand(int(logits.isinf().sum()) == 2 * VOCABULARY, "a replay masks parts of other rows")
    return "captured once, replayed with other masks, rows and switches"


def _streams(machine: Machine, limits: Limits) -> str:
    _need_gpu(machine)
    logits = torch.empty((4, VOCABULARY), device=machine.device)
    mask = torch.zeros((4, VOCABULARY // 32), dtype=torch.int32, device=machine.device)
    torch.cuda.synchronize()
    other, urgent = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]  # torch's
    for stream in (other, urgent, torch.cuda.default_stream()):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]  # torch's
            logits.zero_()  # undoes what runs before it, on any other stream
            apply_token_bitmask(logits, mask)
        stream.synchronize()
        _demand(bool(logits.isinf().all()), "a launch did not wait for its own stream")
    return "launches keep the order of the stream that is current"


def _threads(machine: Machine, limits: Limits) -> str:
    wrong: list[BaseException | str] = []

    def apply() -> None:
        try:
            logits = torch.zeros((2, 4096), device=machine.device)
            mask = torch.zeros((2, 128), dtype=torch.int32, device=machine.device)
            for _ in range(50):
                machine.implementation.run(prepare(logits, mask))
            machine.synchronize()
            if not logits.isinf().all():
                wrong.append("logits are not masked")
        except BaseException as error:  # told by the thread that waits
            wrong.append(error)

    threads = [threading.Thread(target=apply) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _demand(not wrong, f"in a thread: {wrong[:1]}")
    return "8 threads, 50 launches each"


def _devices(machine: Machine, limits: Limits) -> str:
    _need_gpu(machine)
    count = torch.cuda.device_count()
    if count < 2:
        raise Skip("there is one device")
    for index in reversed(range(count)):
        logits = torch.zeros((2, 4096), device=f"cuda:{index}")
        apply_token_bitmask(logits, torch.zeros((2, 128), dtype=torch.int32, device=f"cuda:{index}"))
        _demand(bool(logits.isinf().all()), f"device {index} is not masked")
        _demand(torch.cuda.current_device() == 0, "the current device changed")
    return f"{count} devices, from one thread"


def _conformance(machine: Machine, limits: Limits) -> str:
    """The suite's law on masks that are applied to rows in any order, of every backend, with all implementations."""
    if not limits.conformance_seconds:
        raise Skip("left out")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, "-m", "grammar_backends.cli", "conformance", "run", *BACKENDS, "--only", "H8/*"]
        command += ["--out", str(out), "--time-limit", "60"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limits.conformance_seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise Skip(f"the suite takes more than {limits.conformance_seconds:.0f} s here") from None
        if not out.exists():
            raise Skip(f"the suite does not run here: {done.stderr[-300:]}")
        backends = json.loads(out.read_text())["header"]["backends"]
    _demand(done.returncode == 0, f"the suite fails: {done.stderr[-1000:]}")
    names = {name for facts in backends.values() for name in facts["applied_by"]}
    _demand(machine.implementation.name in names, f"the suite applied masks by {sorted(names)} alone")
    return f"masks of {', '.join(backends)}, applied by {', '.join(sorted(names))}"


def _need_gpu(machine: Machine) -> None:
    if machine.is_rehearsal:
        raise Skip("needs a GPU")


CHECKS: dict[str, Check] = {
    "random cases": _random_cases,
    "small and large pieces": _pieces,
    "offsets beyond 2^31": _wide_offsets,
    "many rows": _many_rows,
    "graph capture and replay": _graph,
    "streams": _streams,
    "threads": _threads,
    "devices": _devices,
    "conformance": _conformance,
}
