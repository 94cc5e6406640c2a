"""The requests that a scheduler has not started yet: in the order of their arrival, some without their grammar (E12).

A request whose grammar is still compiled is passed over and keeps its place; one pass looks at a bounded number of
them. The same queue on every rank promotes the same requests in the same passes, with a `Consensus` between them.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from grammar_backends.compilation.arguments import expect
from grammar_backends.compilation.consensus import Consensus, local_consensus
from grammar_backends.contract import GrammarSpec

__all__ = ["FailedRequest", "Ticket", "WaitingQueue", "WaitingRequest"]

Request = TypeVar("Request")


class Ticket(Protocol):
    """What the queue asks of a grammar on its way; a `GrammarTicket` is one."""

    @property
    def spec(self) -> GrammarSpec:
        """What was asked for."""
        ...

    @property
    def failure(self) -> object | None:
        """Why it failed, to be shown with `str`; None when it is ready, or pending."""
        ...

    def done(self) -> bool:
        """Whether it is ready or failed. Never waits (E3)."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class WaitingRequest(Generic[Request]):
    """A request with its place in the queue.

    Attributes:
        place: how many requests came before it.
        request_id: the engine's name for it, the same on every rank.
        request: the engine's own.
        ticket: its grammar; None where it has no constraint.
    """

    place: int
    request_id: str = field(compare=False)
    request: Request = field(compare=False)
    ticket: Ticket | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class FailedRequest(Generic[Request]):
    """A request that will get no grammar.

    Attributes:
        waiting: the request. Its ticket may be pending, or ready, where only another rank failed; cancel it then.
        reason: why, the same on every rank.
    """

    waiting: WaitingRequest[Request]
    reason: str


class WaitingQueue(Generic[Request]):
    """Requests that wait for their turn. Used by one thread, the scheduler's.

    ::

        for failed in queue.poll(): finish the request with an error
        while there is room and (waiting := queue.pop()) is not None: start it, or queue.put_back(waiting) and break

    Ready requests leave in the order of their arrival, whenever they became ready. None starves: every pending ticket
    is looked at again within ``pending / scan_limit`` passes.

    Args:
        consensus: between the ranks, if each schedules for itself. Their queues must get the same requests in the
            same order, and be polled equally often.
        scan_limit: tickets that one pass looks at.

    Raises:
        TypeError: `consensus` cannot be called, or `scan_limit` is no number.
        ValueError: `scan_limit` is not positive.
    """

    def __init__(self, consensus: Consensus = local_consensus, scan_limit: int = 1024) -> None:
        expect("consensus", consensus, Callable, "a Consensus, such as local_consensus")  # type: ignore[arg-type]  # callable() as a class
        expect("scan_limit", scan_limit, int, "a whole number")
        if scan_limit < 1:
            raise ValueError(f"scan_limit must be at least 1, not {scan_limit}")
        self._consensus = consensus
        self._scan_limit = scan_limit
        self._places = itertools.count()
        # Pending requests, by id: in the order in which they are looked at, then done here but maybe not on every rank.
        self._unfinished: OrderedDict[str, WaitingRequest[Request]] = OrderedDict()
        self._done: dict[str, WaitingRequest[Request]] = {}
        self._ready: dict[int, WaitingRequest[Request]] = {}  # by place
        self._order: list[int] = []  # a heap of those places, and of some that were removed

    def add(self, request_id: str, request: Request, ticket: Ticket | None = None) -> None:
        """Put a request at the end; without a ticket it is ready.

        Raises:
            ValueError: a request of this id is pending.
        """
        if self._is_pending(request_id):
            raise ValueError(f"request {request_id} waits already")
        waiting = WaitingRequest(next(self._places), request_id, request, ticket)
        if ticket is None:
            self.put_back(waiting)
        else:
            self._unfinished[request_id] = waiting

    def poll(self) -> list[FailedRequest[Request]]:
        """Look after pending tickets: what is ready can be popped from now on, what failed is returned, in order."""
        if not self.num_pending:
            return []  # and so on every rank: all got the same requests, and came to the same verdicts
        for _ in range(min(self._scan_limit, len(self._unfinished))):
            self._look_at(*self._unfinished.popitem(last=False))
        ready, failed = self._consensus(*self._known())
        for request_id in filter(self._is_pending, ready):
            self.put_back(self._take_pending(request_id))
        gone = [
            FailedRequest(self._take_pending(request_id), reason)
            for request_id, reason in failed.items()
            if self._is_pending(request_id)
        ]
        return sorted(gone, key=lambda failure: failure.waiting)

    def pop(self) -> WaitingRequest[Request] | None:
        """The first request that is ready; None when there is none."""
        while self._order:
            waiting = self._ready.pop(heapq.heappop(self._order), None)
            if waiting is not None:
                return waiting
        return None

    def put_back(self, waiting: WaitingRequest[Request]) -> None:
        """Return a request that was popped and not started, to its old place."""
        self._ready[waiting.place] = waiting
        heapq.heappush(self._order, waiting.place)

    def remove(self, request_id: str) -> WaitingRequest[Request] | None:
        """Take a request out that was given up; None when it is not here. Its ticket is the caller's to cancel (E7)."""
        if self._is_pending(request_id):
            return self._take_pending(request_id)
        for waiting in self._ready.values():
            if waiting.request_id == request_id:
                del self._ready[waiting.place]
                if len(self._order) > 2 * len(self._ready):  # none of them may ever be popped
                    self._order = sorted(self._ready)
                return waiting
        return None

    @property
    def num_pending(self) -> int:
        """Requests whose grammar is not ready on every rank."""
        return len(self._unfinished) + len(self._done)

    @property
    def num_ready(self) -> int:
        """Requests that can be popped."""
        return len(self._ready)

    def __len__(self) -> int:
        return self.num_pending + self.num_ready

    def _is_pending(self, request_id: str) -> bool:
        return request_id in self._unfinished or request_id in self._done

    def _look_at(self, request_id: str, waiting: WaitingRequest[Request]) -> None:
        done = waiting.ticket is None or waiting.ticket.done()
        (self._done if done else self._unfinished)[request_id] = waiting

    def _known(self) -> tuple[dict[str, str], dict[str, str]]:
        """What this rank knows, as arguments of a `Consensus`."""
        ready: dict[str, str] = {}
        failed: dict[str, str] = {}
        for request_id, ticket in self._done_tickets():
            if ticket.failure is None:
                ready[request_id] = ticket.spec.key
            else:
                failed[request_id] = str(ticket.failure)
        return ready, failed

    def _done_tickets(self) -> Iterable[tuple[str, Ticket]]:
        return ((id_, waiting.ticket) for id_, waiting in self._done.items() if waiting.ticket is not None)

    def _take_pending(self, request_id: str) -> WaitingRequest[Request]:
        where = self._done if request_id in self._done else self._unfinished
        return where.pop(request_id)
