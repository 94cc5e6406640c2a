"""The queue of requests that wait: order, bounds, and nobody left behind, over random histories (E12)."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar_backends import GrammarSpec, load_vocabulary
from grammar_backends.compilation import GrammarManager, Verdict, WaitingQueue, WaitingRequest

SPEC = GrammarSpec.regex("a")


@dataclass
class Switch:
    """A ticket that is done when somebody says so, and counts how often it was asked."""

    spec: GrammarSpec = SPEC
    failure: str | None = None
    is_done: bool = False
    asked: int = 0

    def done(self) -> bool:
        self.asked += 1
        return self.is_done


def popped(queue: WaitingQueue[str]) -> list[str]:
    """Everything that is ready."""
    found = []
    while (waiting := queue.pop()) is not None:
        found.append(waiting.request)
    return found


def filled(count: int, scan_limit: int = 1024) -> tuple[WaitingQueue[str], list[Switch]]:
    """A queue of pending requests named by their numbers."""
    queue: WaitingQueue[str] = WaitingQueue(scan_limit=scan_limit)
    tickets = [Switch() for _ in range(count)]
    for number, ticket in enumerate(tickets):
        queue.add(str(number), str(number), ticket)
    return queue, tickets


def test_e12_a_pending_request_is_passed_over_and_keeps_its_place() -> None:
    queue, tickets = filled(3)
    queue.add("free", "free")
    tickets[1].is_done = True
    assert queue.poll() == []
    assert popped(queue) == ["1", "free"]
    tickets[0].is_done = tickets[2].is_done = True
    queue.add("late", "late")
    queue.poll()
    assert popped(queue) == ["0", "2", "late"]
    assert len(queue) == 0


def test_e12_what_was_popped_and_not_started_returns_to_its_place() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    for name in "abc":
        queue.add(name, name)
    first, second = queue.pop(), queue.pop()
    assert first is not None
    assert second is not None
    queue.put_back(second)
    queue.put_back(first)
    assert popped(queue) == ["a", "b", "c"]


def test_e12_what_failed_is_returned_once_with_its_reason_and_in_order() -> None:
    queue, tickets = filled(4)
    for number in (3, 1):
        tickets[number].is_done, tickets[number].failure = True, f"broken {number}"
    failed = queue.poll()
    assert [(each.waiting.request, each.reason) for each in failed] == [("1", "broken 1"), ("3", "broken 3")]
    assert queue.poll() == []
    assert len(queue) == 2


def test_e13_a_failure_on_another_rank_fails_what_is_pending_or_ready_here() -> None:
    queue: WaitingQueue[str] = WaitingQueue(
        lambda ready, failed: Verdict({}, {"0": "there", "1": "there", "9": "there"})
    )
    tickets = [Switch(is_done=True), Switch(), Switch()]
    for number, ticket in enumerate(tickets):
        queue.add(str(number), str(number), ticket)
    assert [failed.waiting.ticket for failed in queue.poll()] == tickets[:2]
    assert popped(queue) == []
    assert queue.num_pending == 1


def test_e12_a_pass_asks_a_bounded_number_of_tickets_and_each_in_its_turn() -> None:
    queue, tickets = filled(1000, scan_limit=7)
    for turn in range(1, 1000):
        queue.poll()
        assert sum(ticket.asked for ticket in tickets) == 7 * turn
        counts = [ticket.asked for ticket in tickets]
        assert max(counts) - min(counts) <= 1


def test_e12_a_ticket_that_is_done_is_seen_within_a_round_however_many_wait() -> None:
    queue, tickets = filled(1000, scan_limit=7)
    for last in (999, 0, 500):
        tickets[last].is_done = True
        rounds = 0
        while not (found := popped(queue)):
            queue.poll()
            rounds += 1
        assert found == [str(last)]
        assert rounds <= 1000 // 7 + 2


def held() -> int:
    """Requests that something still holds."""
    return sum(type(thing) is WaitingRequest for thing in gc.get_objects())


@pytest.mark.parametrize("ready", [False, True])
def test_e7_what_is_removed_is_held_by_nothing_while_the_first_one_waits_for_ever(ready: bool) -> None:
    before = held()
    queue, _ = filled(1)
    queue.add("first", "first")
    for number in range(1000):
        queue.add("gone", f"gone {number}", Switch(is_done=ready))
        queue.poll()
        assert queue.remove("gone") is not None
        first = queue.pop()
        assert first is not None
        queue.put_back(first)
    assert len(queue) == 2
    assert held() <= before + 4
    assert len(queue._order) <= 4


def test_e7_a_queue_that_is_emptied_by_removing_holds_nothing() -> None:
    before = held()
    queue, _ = filled(1000)
    for number in range(1000):
        queue.remove(str(number))
    assert queue.poll() == []
    assert held() == before


@pytest.mark.parametrize("wrong", [{"consensus": "local"}, {"scan_limit": "all"}, {"scan_limit": 0}])
def test_e12_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        WaitingQueue(**wrong)


def test_e7_what_is_removed_is_gone_pending_or_ready_and_may_come_again() -> None:
    queue, tickets = filled(3)
    tickets[1].is_done = True
    queue.poll()
    assert [queue.remove(id_).request for id_ in "01"] == ["0", "1"]  # type: ignore[union-attr]  # both are there
    assert [queue.remove(id_) for id_ in ("0", "1", "never")] == [None, None, None]
    assert (len(queue), queue.num_ready, popped(queue)) == (1, 0, [])
    again = Switch()
    queue.add("0", "again", again)
    tickets[0].is_done = True
    queue.poll()
    assert popped(queue) == [], "the ticket of the one that was removed counted for the one that came again"
    again.is_done = True
    queue.poll()
    assert popped(queue) == ["again"]


def test_a33_requests_that_come_and_go_leave_nothing_behind() -> None:
    queue, _ = filled(1, scan_limit=1)
    for _ in range(1000):
        queue.add("r", "r", Switch())
        queue.remove("r")
        queue.add("free", "free")
        queue.remove("free")
        queue.poll()
        queue.poll()
        assert queue.pop() is None
    assert (len(queue), len(queue._unfinished), len(queue._ready), len(queue._order)) == (1, 1, 0, 0)


def test_e12_misuse_is_an_error() -> None:
    queue, _ = filled(1)
    with pytest.raises(ValueError, match="waits already"):
        queue.add("0", "0", Switch())
    with pytest.raises(ValueError, match="scan_limit"):
        WaitingQueue(scan_limit=0)


def test_e12_tickets_of_a_manager_are_promoted_in_order_and_fail_with_their_reason() -> None:
    queue: WaitingQueue[str] = WaitingQueue(scan_limit=3)
    started, failed = [], {}
    with GrammarManager(load_vocabulary("byte"), backend="guidance") as manager:
        for number in range(20):
            spec = GrammarSpec.regex(f"[a-z]{{{number + 1}}}" if number % 5 else "(")
            queue.add(str(number), str(number), manager.submit(str(number), spec))
        cancelled = queue.remove("7")
        assert cancelled is not None
        cancelled.ticket.cancel()  # type: ignore[union-attr]  # it is a GrammarTicket
        while len(queue):
            seen = manager.finished
            failed |= {each.waiting.request: each.reason for each in queue.poll()}
            started += popped(queue)
            manager.wait_finished(seen, 0.05)
    assert failed.keys() == {"0", "5", "10", "15"}
    assert all(reason.startswith("spec: ") for reason in failed.values())
    assert sorted(started, key=int) == [str(number) for number in range(20) if number % 5 and number != 7]


@dataclass
class Model:
    """A list that does what the queue must, by looking at everything."""

    waiting: list[tuple[str, Switch | None]] = field(default_factory=list)

    def ready(self) -> list[str]:
        return [name for name, ticket in self.waiting if ticket is None or (ticket.is_done and not ticket.failure)]

    def failed(self) -> list[str]:
        return [name for name, ticket in self.waiting if ticket is not None and ticket.is_done and ticket.failure]

    def drop(self, names: list[str]) -> None:
        self.waiting = [(name, ticket) for name, ticket in self.waiting if name not in names]


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_e12_any_history_starts_in_order_of_arrival_and_ends_empty(data: st.DataObject) -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    model = Model()
    for number in range(data.draw(st.integers(1, 25))):
        task = data.draw(st.sampled_from(["add", "free", "finish", "fail", "remove", "pass", "pass"]))
        pending = [(name, ticket) for name, ticket in model.waiting if ticket is not None and not ticket.is_done]
        if task in ("add", "free"):
            ticket = Switch() if task == "add" else None
            queue.add(str(number), str(number), ticket)
            model.waiting.append((str(number), ticket))
        elif task in ("finish", "fail") and pending:
            _, ticket = data.draw(st.sampled_from(pending))
            ticket.failure = "broken" if task == "fail" else None
            ticket.is_done = True
        elif task == "remove" and model.waiting:
            name, _ = data.draw(st.sampled_from(model.waiting))
            removed = queue.remove(name)
            assert removed is not None
            assert removed.request == name
            model.drop([name])
        elif task == "pass":
            failed = [each.waiting.request for each in queue.poll()]
            assert failed == model.failed()
            room = data.draw(st.integers(0, 3))
            taken = [waiting for waiting in (queue.pop() for _ in range(room)) if waiting is not None]
            assert [waiting.request for waiting in taken] == model.ready()[:room]
            back = data.draw(st.integers(0, len(taken)))
            for waiting in taken[len(taken) - back :]:
                queue.put_back(waiting)
            model.drop(failed + [waiting.request for waiting in taken[: len(taken) - back]])
        assert len(queue) == len(model.waiting)
    for _, ticket in model.waiting:
        if ticket is not None:
            ticket.is_done = True
    assert [each.waiting.request for each in queue.poll()] == model.failed()
    assert popped(queue) == model.ready()
    assert len(queue) == 0
