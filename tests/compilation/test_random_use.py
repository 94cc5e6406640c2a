"""Random use of one manager by several threads and event loops at once: every ticket ends, and nothing is left (K4)."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from grammar_backends import GrammarSpec
from grammar_backends.compilation import ArtifactStore, GrammarManager, GrammarTicket
from grammar_backends.contract import CompiledGrammar

REQUESTS = 60
THREADS = 3
RAISED = ("fail", "panic", "leave", "interrupt", "exhaust", "empty", "malformed", "refuse")
KILLED = ("hang", "abort", "quit", "eat", "burst")


class Client:
    """Submits at random, and does with its tickets what clients may do; `called` counts their callbacks."""

    def __init__(self, manager: GrammarManager, seed: int, troubles: tuple[str, ...]) -> None:
        self.manager = manager
        self.seed = seed
        self.troubles = troubles
        self.tickets: list[GrammarTicket] = []
        self.called: Counter[str] = Counter()

    def run(self) -> None:
        rng = random.Random(self.seed)
        for number in range(REQUESTS):
            trouble = rng.random() < 0.12
            texts = [rng.choice(self.troubles), str(rng.randrange(3))] if trouble else [f"t{rng.randrange(25)}"]
            name = (
                "serial" if trouble else rng.choice(["serial", "serial", "late", "garbled", "auto", "none", "unknown"])
            )
            artifact = rng.randbytes(50) if rng.random() < 0.1 else None
            ticket = self.manager.submit(f"{self.seed}/{number}", GrammarSpec.choice(texts), name, artifact=artifact)
            self.tickets.append(ticket)
            ticket.add_done_callback(self.call_back)
            rng.choice([ticket.cancel, ticket.defer, ticket.done, ticket.done, ticket.done])()

    def call_back(self, ticket: GrammarTicket) -> None:
        """Enter the manager again, or raise."""
        self.called[ticket.request_id] += 1
        match self.called.total() % 5:
            case 0:
                raise SystemExit
            case 1:
                self.manager.submit("another", GrammarSpec.choice(["another"])).cancel()
            case 2:
                ticket.cancel()

    async def watch(self) -> None:
        """Await every ticket, and give up half of it at once."""
        for ticket in self.tickets:
            impatient, patient = (asyncio.ensure_future(outcome_of(ticket)) for _ in range(2))
            await asyncio.sleep(0)
            impatient.cancel()
            assert await patient is ticket.outcome


async def outcome_of(ticket: GrammarTicket) -> object:
    return await ticket


@pytest.mark.parametrize("shut_down", [False, True], ids=["to its end", "cut short"])
@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("seed", range(2))
def test_k4_e5_whatever_is_asked_for_at_random_every_ticket_ends_and_nothing_is_left(
    make_manager: Any, choice: Callable[..., GrammarSpec], tmp_path: Any, isolation: str, seed: int, shut_down: bool
) -> None:
    before = (set(threading.enumerate()), set(os.listdir("/proc/self/fd")))
    manager = make_manager(
        isolation=isolation,
        store=ArtifactStore(tmp_path / "store", max_bytes=20_000),
        compile_seconds=1.0,
        compile_megabytes=150.0,
        defer_seconds=0.0,
        cached_entries=5,
        cached_failures=5,
    )
    troubles = RAISED if isolation == "thread" else RAISED + KILLED
    clients = [Client(manager, THREADS * seed + number, troubles) for number in range(THREADS)]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    if shut_down:
        manager.wait_finished(REQUESTS, 60.0)
        assert manager.shutdown(60.0)
    for thread in threads:
        thread.join()
    loops = [threading.Thread(target=lambda client=client: asyncio.run(client.watch())) for client in clients]
    for loop in loops:
        loop.start()
    bystanders = [] if shut_down else [manager.submit("bystander", choice(f"b{n}")) for n in range(100)]
    for ticket in [ticket for client in clients for ticket in client.tickets] + bystanders:
        assert ticket.wait(120.0), ticket
    assert all(isinstance(ticket.outcome, CompiledGrammar) for ticket in bystanders)
    for loop in loops:
        loop.join()
    assert manager.shutdown(60.0)
    assert (manager.state.pending, manager.state.threads.queued) == (0, 0)
    for client in clients:
        assert client.called == Counter(ticket.request_id for ticket in client.tickets), "each is called once"
    assert (set(threading.enumerate()), set(os.listdir("/proc/self/fd"))) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
