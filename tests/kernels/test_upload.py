"""Uploads: on a CPU nothing is copied; on a device that works in any order which its streams and events allow, no step
ever sees another step's masks.

The device here is a simulation: its streams are queues, dice choose which of them goes on, and a copy or a kernel
happens when it is its turn. That is the freedom which CUDA has, and which a GPU at rest does not show.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from grammar_backends.contract import allocate_bitmask
from grammar_backends.errors import BitmaskError
from grammar_backends.kernels import UploadBuffers, apply_token_bitmask, upload
from grammar_backends.kernels.upload import StepMasks

ROWS, WIDTH = 5, 100
MODULE = sys.modules[UploadBuffers.__module__]  # the package has a function of the module's name


class Stream:
    """A queue of things to do, each with a condition."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device
        self.queue: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()
        device.streams.append(self)

    @property
    def can_go_on(self) -> bool:
        return bool(self.queue) and self.queue[0][0]()

    def put(self, what: Callable[[], None], when: Callable[[], bool] = lambda: True) -> None:
        self.queue.append((when, what))

    def wait_event(self, event: Event) -> None:
        reached = event.reached  # as it was recorded last, not as it may be recorded later
        self.put(lambda: None, lambda: all(reached))

    def wait_stream(self, other: Stream) -> None:
        event = Event(self.device)
        event.record(other)
        self.wait_event(event)


class Event:
    """A place in a stream's queue; reached at once as long as it was not recorded."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device
        self.reached: list[bool] = []

    def record(self, stream: Stream) -> None:
        reached = self.reached = [False]
        stream.put(lambda: reached.__setitem__(0, True))

    def synchronize(self) -> None:
        while not all(self.reached):
            self.device.go_on()


class SimulatedDevice(TorchFunctionMode):
    """Stands where `torch.cuda` would; while it is on, copies wait for their turn."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dice = random.Random(seed)
        self.streams: list[Stream] = []
        self.current = Stream(self)

    def Stream(self, device: torch.device) -> Stream:  # noqa: N802  # torch's own name
        return Stream(self)

    def Event(self) -> Event:  # noqa: N802  # torch's own name
        return Event(self)

    def current_stream(self, device: torch.device) -> Stream:
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def go_on(self) -> None:
        able = [stream for stream in self.streams if stream.can_go_on]
        assert able, "every stream waits for another"
        _, what = self.dice.choice(able).queue.popleft()
        what()

    def perhaps_go_on(self) -> None:
        for _ in range(self.dice.randrange(4)):
            if any(stream.can_go_on for stream in self.streams):
                self.go_on()

    def finish(self) -> None:
        while any(stream.queue for stream in self.streams):
            self.go_on()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.copy_:
            target, source = args[0].numpy(), args[1].numpy()
            self.current.put(lambda: np.copyto(target, source))
            return args[0]
        return func(*args, **(kwargs or {}))


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimulatedDevice:
    device = SimulatedDevice(getattr(request, "param", 0))
    monkeypatch.setattr(MODULE, "_streams_of", lambda _: device)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    return device


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("device", range(30), indirect=True)
def test_h4_no_step_sees_the_masks_of_another(device: SimulatedDevice, depth: int) -> None:
    filled, seen = [], []
    with device:
        buffers = UploadBuffers(ROWS, WIDTH, "cpu", depth=depth)
    for step in range(12):
        masks = buffers.next()
        rows = device.dice.randint(1, ROWS)
        masks.bitmask[:rows], masks.indices[:rows] = step, -step
        filled.append(([step] * rows, [-step] * rows))
        device.perhaps_go_on()
        with device, masks.on_device(rows) as (bitmask, indices):
            device.current.put(lambda masks=bitmask, rows=indices: seen.append((masks[:, -1].tolist(), rows.tolist())))
        device.perhaps_go_on()
    device.finish()
    assert seen == filled


def test_h4_the_first_copy_waits_for_what_may_still_read_the_new_memory(device: SimulatedDevice) -> None:
    done: list[str] = []
    device.current.put(lambda: done.append("kernel before"))
    with device:
        masks = UploadBuffers(ROWS, WIDTH, "cpu").next()
    masks.bitmask[0] = 7
    with device, masks.on_device(1) as (bitmask, _):
        while not (bitmask == 7).any():
            device.go_on()
    assert done == ["kernel before"]


def test_h4_an_error_while_masks_are_applied_does_not_leave_their_memory_unguarded(device: SimulatedDevice) -> None:
    seen: list[list[int]] = []

    def apply_and_fail(masks: StepMasks) -> None:
        with masks.on_device(1) as (_, indices):
            device.current.put(lambda: seen.append(indices.tolist()))
            raise KeyError

    with device:
        buffers = UploadBuffers(ROWS, WIDTH, "cpu", depth=1)
        masks = buffers.next()
        masks.indices[0] = 1
        with pytest.raises(KeyError):
            apply_and_fail(masks)
        buffers.next().indices[0] = 2
        with masks.on_device(1):
            copies = device.streams[-1]
            while copies.can_go_on:  # all that may be done before the caller's stream goes on
                copies.queue.popleft()[1]()
    device.finish()
    assert seen == [[1]]


def test_h4_on_a_cpu_what_was_filled_is_what_is_applied() -> None:
    buffers = UploadBuffers(ROWS, WIDTH, "cpu")
    for step in range(5):
        masks = buffers.next()
        masks.bitmask[:2], masks.indices[0], masks.indices[1] = step, 2, 0
        logits = torch.zeros(3, WIDTH)
        with masks.on_device(2) as (bitmask, indices):
            assert bitmask.data_ptr() == masks.bitmask.data_ptr()
            apply_token_bitmask(logits, bitmask, indices=indices)
        expected = torch.zeros(3, WIDTH)
        apply_token_bitmask(expected, torch.full((2, 4), step, dtype=torch.int32), indices=[2, 0])
        assert torch.equal(logits, expected)


def test_h4_a_step_has_the_memory_of_the_step_as_many_before_as_there_are_buffers() -> None:
    buffers = UploadBuffers(ROWS, WIDTH, "cpu", depth=3)
    addresses = [buffers.next().bitmask.data_ptr() for _ in range(7)]
    assert len(set(addresses)) == 3
    assert addresses[3:] == addresses[:4]
    assert all(address % 64 == 0 for address in addresses)


def test_h2_masks_and_indices_are_themselves_where_they_already_are() -> None:
    bitmask = allocate_bitmask(2, WIDTH)
    assert upload(bitmask, "cpu") is bitmask
    assert upload([2, 0], torch.device("cpu")).tolist() == [2, 0]
    assert upload(np.array([1]), "cpu").dtype == torch.int32


def test_h2_what_a_device_is_sent_arrives_in_shape() -> None:
    assert upload(allocate_bitmask(2, WIDTH), "meta").shape == (2, 4)
    assert upload([1, 2, 3], "meta").dtype == torch.int32


def test_h4_where_memory_cannot_be_pinned_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # says so, and then has nothing to pin with
    with pytest.raises(RuntimeError):
        torch.zeros(1, pin_memory=True)
    assert allocate_bitmask(2, WIDTH).tolist() == [[-1] * 4] * 2
    assert UploadBuffers(ROWS, WIDTH, "cpu").next().bitmask.shape == (ROWS, 4)
    assert upload([1], "meta").shape == (1,)


@pytest.mark.parametrize("sizes", [(0, WIDTH, 2), (ROWS, 0, 2), (ROWS, WIDTH, 0), (-1, WIDTH, 2)])
def test_a20_buffers_without_a_row_an_id_or_a_turn_are_refused(sizes: tuple[int, int, int]) -> None:
    rows, width, depth = sizes
    with pytest.raises(BitmaskError, match="1 or more"):
        UploadBuffers(rows, width, "cpu", depth=depth)


@pytest.mark.parametrize("rows", [-1, ROWS + 1])
def test_a20_more_rows_than_there_are_cannot_be_uploaded(rows: int) -> None:
    masks = UploadBuffers(ROWS, WIDTH, "cpu").next()
    with pytest.raises(BitmaskError), masks.on_device(rows):
        pass
    with pytest.raises(BitmaskError, match="one dimension"):
        upload(["a"], "cpu")
