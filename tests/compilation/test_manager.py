"""The manager over backends that misbehave: whatever one request asks for, the others do not notice (E)."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import math
import os
import re
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import GrammarSpec
from grammar_backends.compilation import (
    ArtifactStore,
    CompilationFailure,
    FailureKind,
    GrammarManager,
    GrammarTicket,
    ManagerLimits,
    caches,
    limits,
)
from grammar_backends.contract import CompiledGrammar
from grammar_backends.contract.serial import seal, sealed_identity
from grammar_backends.errors import BackendUnavailable, CompileError, GrammarError, SpecError, UnsupportedFeature
from grammar_backends.selection import Limits, Policy
from grammar_backends.statistics import EngineStatistics

Choice = Callable[..., GrammarSpec]

BOTH = pytest.mark.parametrize("isolation", ["thread", "process"])


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def outcome_of(ticket: GrammarTicket) -> CompiledGrammar | CompilationFailure:
    assert ticket.wait(60.0)
    assert ticket.outcome is not None
    return ticket.outcome


def failure_of(ticket: GrammarTicket) -> CompilationFailure:
    outcome = outcome_of(ticket)
    assert isinstance(outcome, CompilationFailure)
    return outcome


# States


@BOTH
def test_e1_a_ticket_is_pending_then_ready_and_makes_a_grammar_per_call(
    make_manager: Any, choice: Choice, diary: Any, isolation: str
) -> None:
    manager = make_manager(isolation=isolation)
    ticket = manager.submit("r", choice("wait", "ab"))
    let_go = diary.wait_until_entered()
    assert (ticket.state, ticket.done(), ticket.outcome, ticket.failure) == ("pending", False, None, None)
    with pytest.raises(GrammarError, match="still being compiled"):
        ticket.new_grammar()
    let_go()
    assert isinstance(outcome_of(ticket), CompiledGrammar)
    assert (ticket.state, ticket.failure) == ("ready", None)
    one, other = ticket.new_grammar(), ticket.new_grammar(max_rollback=1)
    assert one.accept_tokens("r", list(b"ab"))
    assert (one.num_accepted, other.num_accepted, other.max_rollback) == (2, 0, 1)


@BOTH
def test_e5_a_failure_is_a_value_that_is_no_grammar_and_its_error_is_raised_on_use(
    make_manager: Any, choice: Choice, isolation: str
) -> None:
    ticket = make_manager(isolation=isolation).submit("r", choice("malformed"))
    failure = failure_of(ticket)
    assert ticket.state == "failed"
    assert not hasattr(failure, "new_grammar")
    assert failure.kind is FailureKind.SPEC
    assert (failure.kind.is_client_error, failure.status) == (True, 400)
    with pytest.raises(SpecError, match="the toy finds this malformed at /0") as raised:
        ticket.attach()
    assert raised.value.pointer == "/0"
    assert raised.value.backend == "serial 1.0"


def test_e1_await_gives_the_outcome_in_whichever_state_the_ticket_is(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="thread")

    async def main() -> list[Any]:
        slow, bad = manager.submit("a", choice("wait")), manager.submit("b", choice("malformed"))
        both = asyncio.gather(_awaited(slow), _awaited(bad))
        let_go = await asyncio.to_thread(diary.wait_until_entered)
        let_go()
        return [*await both, await slow]

    first, second, again = asyncio.run(main())
    assert isinstance(first, CompiledGrammar)
    assert isinstance(second, CompilationFailure)
    assert again is first


async def _awaited(ticket: GrammarTicket) -> Any:
    return await ticket


def test_e7_an_await_that_is_cancelled_leaves_the_ticket_as_it_is(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    ticket = make_manager(isolation="thread").submit("r", choice("wait"))
    let_go = diary.wait_until_entered()

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_awaited(ticket), 0.01)
        assert ticket.state == "pending"
        let_go()
        await ticket

    asyncio.run(main())
    assert ticket.state == "ready"


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError(), GeneratorExit(), KeyboardInterrupt()])
def test_e3_whatever_a_callback_raises_no_thread_is_lost(
    make_manager: Any, choice: Choice, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(ticket: GrammarTicket) -> None:
        raise raised

    manager = make_manager(isolation="thread", workers=1)
    for text in ("a", "b", "c"):
        ticket = manager.submit(text, choice(text))
        ticket.add_done_callback(fail)
        assert ticket.wait(60.0)
    assert manager.shutdown(60.0)  # callbacks come after finishing
    assert caplog.text.count("a callback of request") == 3


def test_e16_a_callback_of_a_compilation_that_was_given_up_may_shut_the_manager_down(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="thread", compile_seconds=0.1)
    ended: list[bool] = []
    called = threading.Event()
    ticket = manager.submit("r", choice("wait"))
    ticket.add_done_callback(lambda ticket: (ended.append(manager.shutdown(0.1)), called.set()))
    let_go = diary.wait_until_entered()
    assert called.wait(60.0)
    assert ended == [False]  # a thread is stuck
    let_go()


def test_e3_callbacks_are_called_once_and_one_that_raises_disturbs_nobody(
    make_manager: Any, choice: Choice, diary: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = make_manager(isolation="thread").submit("r", choice("wait"))
    let_go = diary.wait_until_entered()
    seen: list[object] = []
    called = threading.Event()
    ticket.add_done_callback(lambda ticket: 1 // 0)
    ticket.add_done_callback(lambda ticket: (seen.append((ticket, ticket.state)), called.set()))
    assert seen == []
    let_go()
    assert called.wait(60.0)
    ticket.add_done_callback(lambda ticket: seen.append("at once"))
    assert seen == [(ticket, "ready"), "at once"]
    assert "a callback of request r failed" in caplog.text


def test_e3_an_idle_engine_sleeps_until_something_is_finished_and_misses_nothing(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="thread")
    seen = manager.finished
    slow = manager.submit("a", choice("wait"))
    let_go = diary.wait_until_entered()
    assert manager.wait_finished(seen, seconds=0.01) == seen
    quick = manager.submit("b", choice("ab"))
    assert manager.wait_finished(seen, seconds=60.0) == seen + 1
    assert (quick.done(), slow.done()) == (True, False)
    let_go()
    assert manager.wait_finished(seen + 1, seconds=60.0) == seen + 2
    assert manager.wait_finished(seen, seconds=0.0) == seen + 2


# Single flight and caches


@BOTH
def test_e8_fifty_submissions_of_one_slow_key_take_one_compile_and_one_worker(
    make_manager: Any, choice: Choice, diary: Any, isolation: str
) -> None:
    manager = make_manager(isolation=isolation)
    slow = [manager.submit(f"slow {n}", choice("wait", "a")) for n in range(50)]
    let_go = diary.wait_until_entered()
    other = manager.submit("other", choice("b"))
    assert isinstance(outcome_of(other), CompiledGrammar)
    assert not any(ticket.done() for ticket in slow)
    assert manager.state.pending == 1
    assert isolation == "thread" or manager.state.processes.busy == 1
    let_go()
    assert len({id(outcome_of(ticket)) for ticket in slow}) == 1
    assert diary() == ["wait", "b"]
    assert [ticket.provenance.source for ticket in slow] == ["compiled", *["joined"] * 49]


@BOTH
def test_e10_a_hit_is_ready_at_once_and_shares_nothing_mutable(
    make_manager: Any, choice: Choice, diary: Any, isolation: str
) -> None:
    manager = make_manager(isolation=isolation)
    first = manager.submit("a", choice("ab"))
    outcome_of(first)
    second = manager.submit("b", choice("ab"))
    assert second.done()
    assert second.outcome is first.outcome
    assert second.provenance.source == "memory"
    grammar = first.new_grammar()
    assert grammar.accept_tokens("a", list(b"ab"))
    assert second.new_grammar().validate_tokens(list(b"ab")) == list(b"ab")
    assert diary() == ["ab"]


def test_e10_the_least_recently_used_grammars_go_first_by_number(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation="thread", cached_entries=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        outcome_of(manager.submit("r", choice(text)))
    assert diary() == ["a", "b", "c", "b"]
    assert (manager.state.cached_entries, manager.state.evictions) == (2, 2)


def test_e10_grammars_are_bounded_by_bytes(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(
        isolation="thread", cached_bytes=(3 << 20) + 1000
    )  # each counts a MiB, as its engine does not say
    for text in ("a", "b", "c", "d"):
        outcome_of(manager.submit("r", choice(text)))
    texts = sum(len(choice(text).text) for text in "bcd")
    assert (manager.state.cached_entries, manager.state.cached_bytes) == (3, (3 << 20) + texts)


@pytest.mark.parametrize(
    ("first", "seconds"), [("fail", 600.0), ("malformed", 600.0), ("refuse", 600.0), ("hang", 60.0)]
)
def test_e9_ten_thousand_submissions_of_a_poisonous_spec_take_one_compile_per_time_to_live(
    make_manager: Any, choice: Choice, diary: Any, first: str, seconds: float
) -> None:
    clock = Clock()
    manager = make_manager(isolation="process", clock=clock, compile_seconds=0.5, compile_megabytes=200.0)
    failure = failure_of(manager.submit("r", choice(first)))
    for _ in range(10_000):
        ticket = manager.submit("r", choice(first))
        assert ticket.outcome is failure
    assert ticket.provenance.source == "failed before"
    assert diary() == [first]
    clock.now += seconds - 0.1
    assert manager.submit("r", choice(first)).done()
    clock.now += 0.2
    assert failure_of(manager.submit("r", choice(first))).message == failure.message
    assert diary() == [first, first]


def test_e9_failures_are_bounded_by_number(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation="thread", cached_failures=2)
    for text in ("x", "y", "z", "x"):
        failure_of(manager.submit("r", choice("fail", text)))
    assert len(diary()) == 4
    assert manager.state.cached_failures == 2


def test_e9_failures_are_bounded_by_the_length_of_their_specs(
    make_manager: Any, choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "FAILURE_CHARACTERS", 10_000)
    manager = make_manager(isolation="thread")
    for number in range(10):
        failure_of(manager.submit("r", choice("fail", f"{number}" * 3_000)))
    assert manager.state.cached_failures == 3
    failure_of(manager.submit("r", choice("fail", "x" * 10_000)))
    assert manager.state.cached_failures == 0, "one that is larger than all may be is not kept"


@BOTH
def test_e9_a_failure_holds_no_frames_however_often_it_is_raised(
    make_manager: Any, choice: Choice, isolation: str
) -> None:
    manager = make_manager(isolation=isolation)
    ticket = manager.submit("a", choice("panic"))
    failure = failure_of(ticket)
    assert manager.shutdown(60.0)  # logging comes after finishing
    depths = []
    for _ in range(3):
        with pytest.raises(CompileError, match="the engine panicked") as raised:
            ticket.new_grammar()
        depths.append(len(list(traceback.walk_tb(raised.value.__traceback__))))
        assert raised.value.__cause__ is failure.error.__cause__
    assert depths == depths[:1] * 3
    error: BaseException | None = failure.error
    while error is not None:
        assert error.__traceback__ is None
        error = error.__cause__ or error.__context__


def test_e10_what_the_automatic_choice_came_to_goes_with_its_grammar(make_manager: Any, choice: Choice) -> None:
    manager = make_manager(isolation="thread", cached_bytes=3 << 20, workers=1, **order("serial", "hostile"))
    for number in range(10):
        outcome_of(manager.submit("a", choice(str(number))))
    outcome_of(manager.submit("a", choice("9"), "hostile"))
    assert {spec.value[0] for spec in manager._choices} == {spec.value[0] for name, spec in manager._grammars._grammars}


def test_e9_running_out_of_memory_and_being_cancelled_say_nothing_about_a_spec(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="thread")
    for _ in range(2):
        failure = failure_of(manager.submit("r", choice("exhaust")))
        assert (failure.kind, failure.status) == (FailureKind.OUT_OF_MEMORY, 503)
    assert diary() == ["exhaust", "exhaust"]
    assert manager.state.cached_failures == 0


def test_e9_a_compilation_that_comes_late_replaces_its_failure(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation="thread", compile_seconds=0.2, stuck_threads=1)
    late = manager.submit("r", choice("wait"))
    let_go = diary.wait_until_entered()
    assert failure_of(late).kind is FailureKind.TIMEOUT
    assert manager.state.threads.stuck == 1
    assert manager.submit("r", choice("wait")).provenance.source == "failed before"
    let_go()
    assert manager._wait_for(lambda: not len(manager._failures), 60.0)  # the thread has come back
    again = manager.submit("r", choice("wait"))
    assert (again.state, again.provenance.source) == ("ready", "memory")
    assert late.state == "failed"


# Budgets


@BOTH
def test_e6_what_exceeds_the_compile_budget_fails_with_kind_and_message(
    make_manager: Any, choice: Choice, diary: Any, isolation: str
) -> None:
    manager = make_manager(isolation=isolation, compile_seconds=0.2)
    failure = failure_of(manager.submit("r", choice("wait")))
    assert (failure.kind, failure.status) == (FailureKind.TIMEOUT, 504)
    assert failure.message == "serial: not done after 0.2 s"
    if isolation == "thread":
        diary.wait_until_entered()()


def test_e6_stuck_threads_are_counted_replaced_up_to_a_cap_and_then_refuse(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="thread", compile_seconds=0.2, workers=1, stuck_threads=1)
    assert failure_of(manager.submit("a", choice("wait", "a"))).kind is FailureKind.TIMEOUT
    assert isinstance(outcome_of(manager.submit("b", choice("b"))), CompiledGrammar)
    stuck = manager.submit("c", choice("wait", "c"))
    queued = manager.submit("d", choice("d"))
    assert failure_of(stuck).kind is FailureKind.TIMEOUT
    assert failure_of(queued).kind is FailureKind.STUCK
    assert failure_of(manager.submit("e", choice("e"))).kind is FailureKind.STUCK
    assert (manager.state.threads.stuck, manager.state.threads.busy) == (2, 0)
    assert manager.submit("b", choice("b")).state == "ready"  # what is in memory needs no thread
    assert not manager.shutdown(0.0)
    diary.wait_until_entered()()
    assert manager.shutdown(60.0)


def test_e6_the_deferral_budget_runs_from_the_first_deferral_and_ends_one_ticket_only(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    clock = Clock()
    manager = make_manager(isolation="thread", clock=clock, defer_seconds=5.0)
    deferred, overlapped = manager.submit("a", choice("wait")), manager.submit("b", choice("wait"))
    let_go = diary.wait_until_entered()
    clock.now += 100.0  # prefill: nobody has asked yet
    assert deferred.defer()
    clock.now += 4.9
    assert deferred.defer()
    clock.now += 0.2
    assert not deferred.defer()
    assert failure_of(deferred).kind is FailureKind.TIMEOUT
    assert overlapped.defer()
    let_go()
    assert isinstance(outcome_of(overlapped), CompiledGrammar)
    assert not overlapped.defer()
    assert overlapped.state == "ready"


def test_e6_attaching_waits_for_its_budget_only(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation="thread", attach_seconds=0.05)
    ticket = manager.submit("a", choice("wait"))
    let_go = diary.wait_until_entered()
    with pytest.raises(CompileError, match="to attach it"):
        ticket.attach()
    assert ticket.state == "failed"
    let_go()
    patient = make_manager(isolation="thread").submit("b", choice("b"))
    assert patient.attach(max_rollback=2).max_rollback == 2


# Cancelling


@BOTH
def test_e7_cancelling_one_of_two_waiters_leaves_the_other(
    make_manager: Any, choice: Choice, diary: Any, isolation: str
) -> None:
    manager = make_manager(isolation=isolation)
    one, other = manager.submit("a", choice("wait")), manager.submit("b", choice("wait"))
    let_go = diary.wait_until_entered()
    called: list[GrammarTicket] = []
    one.add_done_callback(called.append)
    assert one.cancel()
    assert called == [one]
    assert failure_of(one).kind is FailureKind.CANCELLED
    assert not one.cancel()
    assert not other.done()
    let_go()
    assert isinstance(outcome_of(other), CompiledGrammar)
    assert not other.cancel()
    assert one.state == "failed"


def test_e7_what_nobody_waits_for_is_not_begun_and_what_runs_is_kept(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="thread", workers=1)
    running = manager.submit("a", choice("wait"))
    let_go = diary.wait_until_entered()
    queued = [manager.submit("b", choice("b")) for _ in range(2)]
    assert running.cancel()
    assert all(ticket.cancel() for ticket in queued)
    assert manager.state.pending == 1
    let_go()
    outcome_of(manager.submit("c", choice("c")))
    assert manager.submit("d", choice("wait")).provenance.source == "memory"
    assert diary() == ["wait", "c"]


def test_e7_a_key_that_was_cancelled_can_be_asked_for_again(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation="thread", workers=1)
    manager.submit("a", choice("wait"))
    let_go = diary.wait_until_entered()
    assert manager.submit("b", choice("b")).cancel()
    again = manager.submit("c", choice("b"))
    let_go()
    assert isinstance(outcome_of(again), CompiledGrammar)
    assert diary() == ["wait", "b"]


def flights() -> int:
    """Compilations that something still holds."""
    return sum(type(thing).__name__ == "_Flight" for thing in gc.get_objects())


@pytest.mark.parametrize(("give_up", "count"), [("cancel", 100_000), ("defer", 1_000)])
def test_e7_what_was_given_up_before_it_began_is_held_by_nothing(
    make_manager: Any, choice: Choice, diary: Any, give_up: str, count: int
) -> None:
    manager = make_manager(isolation="thread", workers=1, defer_seconds=0.0)
    running = manager.submit("a", choice("wait"))
    let_go = diary.wait_until_entered()
    gc.collect()
    gc.disable()  # what only a collection would free stays, as it might for long
    try:
        before = flights()
        for number in range(count):
            getattr(manager.submit("b", choice(str(number))), give_up)()
        assert flights() == before
    finally:
        gc.enable()
    assert (manager.state.pending, manager.state.threads.queued) == (1, 0)
    let_go()
    assert isinstance(outcome_of(running), CompiledGrammar)
    assert diary() == ["wait"]


def test_e7_what_has_come_to_its_end_is_held_by_nothing(make_manager: Any, choice: Choice) -> None:
    manager = make_manager(isolation="thread", workers=1)
    gc.collect()
    gc.disable()
    try:
        before = flights()
        for number in range(100):
            outcome_of(manager.submit("a", choice(str(number))))
        assert manager.shutdown(60.0)  # the last one is let go of after it is finished
        assert flights() == before
    finally:
        gc.enable()


def test_e7_a_hundred_thousand_waiters_for_one_key_leave_in_any_order(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="thread")
    tickets = [manager.submit("a", choice("wait")) for _ in range(100_000)]
    let_go = diary.wait_until_entered()
    assert all(ticket.cancel() for ticket in reversed(tickets[1:]))  # hours, if each were searched for
    let_go()
    assert isinstance(outcome_of(tickets[0]), CompiledGrammar)


# Grammars that were compiled elsewhere


def dumped(manager: GrammarManager, spec: GrammarSpec, backend: str = "serial") -> bytes:
    compiled = outcome_of(manager.submit("elsewhere", spec, backend))
    assert isinstance(compiled, CompiledGrammar)
    return compiled.backend.dump_grammar(compiled)


@pytest.mark.parametrize("backend", ["serial", "auto"])
def test_e19_an_artifact_from_elsewhere_is_read_and_not_compiled(
    make_manager: Any, choice: Choice, diary: Any, tmp_path: Path, backend: str
) -> None:
    artifact = dumped(make_manager(isolation="thread"), choice("ab"))
    store = ArtifactStore(tmp_path / "store")
    manager = make_manager(isolation="inline" if backend == "serial" else "process", store=store)
    ticket = manager.submit("a", choice("ab"), backend, artifact=artifact)
    assert outcome_of(ticket).new_grammar().accept_tokens("a", list(b"ab"))
    assert (ticket.provenance.source, ticket.statistics.backend) == ("artifact", "serial")
    assert manager.submit("b", choice("ab"), "serial").provenance.source == "memory"
    again = make_manager(isolation="thread", store=store).submit("c", choice("ab"))
    assert (isinstance(outcome_of(again), CompiledGrammar), again.provenance.source) == (True, "disk")
    assert diary() == ["ab"]


def damaged(artifact: bytes) -> bytes:
    return artifact[:-1] + bytes([artifact[-1] ^ 1])


def of_another_spec(artifact: bytes) -> bytes:
    return seal({**sealed_identity(artifact), "spec": "0" * 64}, b"[]")


def of_another_vocabulary(artifact: bytes) -> bytes:
    return seal({**sealed_identity(artifact), "vocabulary": "another"}, b"[]")


def of_another_backend(artifact: bytes) -> bytes:
    return seal({**sealed_identity(artifact), "backend": "hostile"}, b"[]")


def of_nobody(artifact: bytes) -> bytes:
    return seal({**sealed_identity(artifact), "backend": "x" * 10_000}, b"[]")


def that_the_engine_cannot_read(artifact: bytes) -> bytes:
    return seal(sealed_identity(artifact), b"garbled")


def whose_header_is_no_object(artifact: bytes) -> bytes:
    header = b"[" * 100_000
    return b"".join((artifact[:8], len(header).to_bytes(4, "little"), header, hashlib.sha256(header).digest()))


WRONG_ARTIFACTS = {
    damaged: "checksum",
    of_another_spec: "another spec",
    of_another_vocabulary: "another vocabulary",
    of_another_backend: "hostile",
    of_nobody: "no backend 'xxx|another backend: 'xxx",
    that_the_engine_cannot_read: "cannot use the artifact",
    whose_header_is_no_object: "header",
    lambda _: b"": "no artifact",
    lambda artifact: artifact[:50]: "damaged",
}


@pytest.mark.parametrize("backend", ["serial", "auto"])
@pytest.mark.parametrize(("spoil", "words"), WRONG_ARTIFACTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_e19_bytes_that_are_damaged_or_foreign_fail_their_own_ticket_with_the_reason(
    make_manager: Any, choice: Choice, diary: Any, spoil: Callable[[bytes], bytes], words: str, backend: str
) -> None:
    manager = make_manager(isolation="thread")
    artifact = spoil(dumped(make_manager(isolation="thread"), choice("ab")))
    with_artifact = [manager.submit("a", choice("ab"), backend, artifact=artifact) for _ in range(3)]
    without = manager.submit("b", choice("ab"), "serial")
    for ticket in with_artifact:
        failure = failure_of(ticket)
        assert failure.kind in (FailureKind.ARTIFACT, FailureKind.UNAVAILABLE)
        assert re.search(words, failure.message), failure
        assert len(failure.message) < 500
    assert isinstance(outcome_of(without), CompiledGrammar)
    assert manager.state.cached_failures == 0
    assert diary() == ["ab", "ab"]


def test_e19_an_engine_without_a_serial_form_says_so(make_manager: Any, choice: Choice) -> None:
    manager = make_manager(isolation="thread")
    artifact = dumped(manager, choice("ab"))
    ticket = manager.submit("a", choice("ab"), "hostile", artifact=artifact)
    assert "hostile has no serial form" in failure_of(ticket).message
    with pytest.raises(TypeError, match="artifact must be the bytes of `dump_grammar`, not 'text'"):
        manager.submit("a", choice("ab"), artifact="text")


# Modes


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
def test_e4_a_synchronous_manager_gives_out_tickets_that_are_done(
    make_manager: Any, choice: Choice, isolation: str
) -> None:
    manager = make_manager(isolation=isolation, synchronous=True)
    good, bad = manager.submit("a", choice("ab")), manager.submit("b", choice("fail"))
    assert (good.state, bad.state) == ("ready", "failed")
    assert bad.failure.kind is FailureKind.ENGINE
    assert bad.failure.message.endswith("RuntimeError: the toy broke")


def test_e4_what_hangs_in_a_process_is_killed_in_a_synchronous_manager_too(make_manager: Any, choice: Choice) -> None:
    manager = make_manager(isolation="process", synchronous=True, compile_seconds=0.2)
    assert manager.submit("a", choice("hang")).failure.kind is FailureKind.TIMEOUT


def test_e6_inline_compiles_in_the_thread_that_submits(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation={"serial": "inline", "hostile": "thread"})
    assert manager.submit("a", choice("ab")).state == "ready"
    assert manager.submit("a", choice("ab")).provenance.source == "memory"
    slow = manager.submit("b", choice("wait"), "hostile")
    assert slow.state == "pending"
    diary.wait_until_entered()()
    assert manager.state.processes is None


def test_e14_backend_none_fails_at_once_with_a_clear_message(choice: Choice) -> None:
    with GrammarManager(None, backend="none") as manager:
        failure = manager.submit("a", choice("ab")).failure
        assert (failure.kind, failure.status) == (FailureKind.DISABLED, 400)
        assert failure.message == 'constrained requests are switched off here (backend "none")'
    with pytest.raises(ValueError, match="a vocabulary is needed"):
        GrammarManager(None)


def test_e14_one_request_may_be_refused_by_name(make_manager: Any, choice: Choice) -> None:
    assert make_manager(isolation="thread").submit("a", choice("ab"), "none").failure.kind is FailureKind.DISABLED


def test_e5_a_backend_that_does_not_exist_fails_its_request_only(make_manager: Any, choice: Choice) -> None:
    manager = make_manager(isolation="thread")
    failure = failure_of(manager.submit("a", choice("ab"), "hostil"))
    assert (failure.kind, failure.status) == (FailureKind.UNAVAILABLE, 503)
    assert "did you mean 'hostile'?" in failure.message
    assert isinstance(outcome_of(manager.submit("b", choice("ab"))), CompiledGrammar)
    with pytest.raises(BackendUnavailable):
        make_manager(backend="hostil")


@pytest.mark.parametrize("name", ["x" * 100_000, 5, ["hostile"], {"a": 1}], ids=["long", "number", "list", "object"])
def test_e5_k2_what_clients_call_a_backend_fails_at_once_and_is_kept_nowhere(
    make_manager: Any, choice: Choice, name: Any
) -> None:
    manager = make_manager(isolation="thread")
    ticket = manager.submit("a", choice("ab"), name)
    assert ticket.done()
    assert ticket.failure.kind is FailureKind.UNAVAILABLE
    assert len(ticket.failure.message) < 300
    assert (ticket.statistics, manager.state.pending) == (None, 0)


def test_e1_what_is_no_spec_is_the_callers_mistake_and_leaves_nothing_behind(make_manager: Any) -> None:
    manager = make_manager(isolation="thread")
    for wrong in ({"type": "object"}, "a", None):
        with pytest.raises(TypeError, match="GrammarSpec"):
            manager.submit("a", wrong)
    assert manager.state.pending == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"store": "/tmp/store"}, r"store must be ArtifactStore\(directory\) or None, not '/tmp/store'"),
        ({"store": Path("/tmp")}, "store must be ArtifactStore"),
        ({"limits": {"workers": 2}}, "limits must be ManagerLimits"),
        ({"host": "default"}, "host must be a PluginHost"),
        ({"backend": None}, "backend must be"),
        ({"backend": ["serial"]}, "backend must be"),
        ({"options": ["compile_threads"]}, "options must be a mapping"),
        ({"options": {"serial": 4}}, r"options\['serial'\] must be a mapping"),
        ({"options": {"seriall": {}}}, "did you mean 'serial'"),
        ({"isolation": {"seriall": "thread"}}, "did you mean 'serial'"),
        ({"synchronous": "yes"}, "synchronous must be True or False"),
        ({"clock": 5.0}, "clock must be a function"),
        ({"policy": 5}, "policy"),
    ],
)
def test_e1_arguments_that_make_no_sense_are_refused_at_once_and_start_nothing(
    vocabulary: Any, host: Any, wrong: dict[str, Any], words: str
) -> None:
    before = set(threading.enumerate())
    with pytest.raises((TypeError, ValueError, BackendUnavailable), match=words):
        GrammarManager(vocabulary, **{"backend": "serial", "host": host, "isolation": "thread", **wrong})
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("wrong", ["tekken", 5, {"a": 1}])
def test_e1_a_vocabulary_is_loaded_and_not_named(wrong: object) -> None:
    with pytest.raises(TypeError, match=r'vocabulary must be a Vocabulary, such as load_vocabulary\("tekken"\)'):
        GrammarManager(wrong)  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize(
    "wrong", [{"isolation": "proces"}, {"isolation": {"hostile": "tread"}}, {"isolation": 5}, {"policy": "slow"}]
)
def test_e6_a_level_of_isolation_or_a_policy_that_does_not_exist_is_refused(
    make_manager: Any, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"isolation|policy"):
        make_manager(**wrong)


def test_c2_a_policy_may_be_given_by_its_word(make_manager: Any, choice: Choice) -> None:
    assert isinstance(
        outcome_of(make_manager(isolation="thread", policy="fast").submit("a", choice("ab"))), CompiledGrammar
    )


def test_e2_several_backends_live_in_one_manager(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation="thread")
    tickets = [manager.submit("a", choice("ab"), name) for name in ("hostile", "serial", "hostile")]
    assert [outcome_of(ticket).backend.name for ticket in tickets] == ["hostile", "serial", "hostile"]
    assert len(diary()) == 2


def test_e2_an_engine_is_told_how_many_threads_one_compilation_may_use(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="process", backend="threaded", compile_threads=3)
    outcome_of(manager.submit("a", choice("a")))
    assert diary() == ["3/3"]


@pytest.mark.parametrize(
    ("cores", "compile_threads", "workers"), [(1, 1, 2), (8, 1, 4), (8, 2, 2), (16, 2, 4), (192, 1, 8)]
)
def test_e2_workers_and_their_threads_take_half_the_cores_within_bounds(
    monkeypatch: pytest.MonkeyPatch, cores: int, compile_threads: int, workers: int
) -> None:
    monkeypatch.setattr(limits, "available_cores", lambda: cores)
    assert ManagerLimits(compile_threads=compile_threads).threads == workers


@pytest.mark.parametrize(
    "wrong",
    [
        *({"workers": 0}, {"compile_seconds": -1.0}, {"cached_bytes": "1"}, {"workers": True}, {"workers": 2.5}),
        *({name: math.inf} for name in ("compile_seconds", "attach_seconds", "shutdown_seconds", "compile_megabytes")),
        *({"compile_seconds": math.nan}, {"defer_seconds": 1e10}, {"cached_entries": math.nan}),
    ],
)
def test_e6_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ManagerLimits(**wrong)


# The automatic choice


def order(*names: str) -> dict[str, Any]:
    return {"backend": "auto", "policy": Policy(order=names)}


@BOTH
def test_k1_the_ticket_says_why_each_backend_was_passed_over(
    make_manager: Any, choice: Choice, diary: Any, isolation: str
) -> None:
    manager = make_manager(isolation=isolation, **order("late", "broken", "serial", "hostile"))
    ticket = manager.submit("a", choice("ab"))
    assert outcome_of(ticket).backend.name == "serial"
    steps = {step.backend: step for step in ticket.trace.steps}
    assert [step.verdict for step in steps.values()] == ["refused", "skipped", "chosen", "not tried"]
    assert steps["late"].findings[0].reason == "this engine finds out late"
    assert "the engine broke" in steps["broken"].findings[0].reason
    assert ticket.provenance.backend == "serial"
    again = manager.submit("b", choice("ab"))
    assert (again.provenance.source, again.trace) == ("memory", ticket.trace)
    named = manager.submit("c", choice("ab"), "serial")
    assert (named.provenance.source, named.trace) == ("memory", None)
    assert diary() == ["ab", "ab"]  # by the late one and by the one that was chosen


def test_e5_an_engine_that_fails_is_not_the_clients_fault_though_nobody_is_left(
    make_manager: Any, choice: Choice
) -> None:
    manager = make_manager(isolation="thread", **order("late", "broken"))
    ticket = manager.submit("a", choice("ab"))
    assert failure_of(ticket).kind is FailureKind.ENGINE
    assert [step.verdict for step in ticket.trace.steps] == ["refused", "skipped"]


def test_c2_nobody_enforces_it_is_the_clients_error_with_every_reason(make_manager: Any, choice: Choice) -> None:
    ticket = make_manager(isolation="thread", **order("late", "hostile")).submit("a", GrammarSpec.regex("a"))
    failure = failure_of(ticket)
    assert failure.kind is FailureKind.UNSUPPORTED
    assert [step.verdict for step in ticket.trace.steps] == ["refused", "refused"]
    again = make_manager(isolation="thread", **order("late")).submit("a", GrammarSpec.regex("a"))
    assert isinstance(failure_of(again).error, UnsupportedFeature)


def test_e9_what_the_automatic_choice_came_to_is_remembered_too(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation="process", compile_seconds=0.5, **order("hostile", "serial"))
    failure = failure_of(manager.submit("a", choice("hang")))
    assert all(manager.submit("a", choice("hang")).outcome is failure for _ in range(100))
    assert diary() == ["hang"]


def test_k5_what_kills_its_process_is_not_tried_with_the_next_backend(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="process", **order("hostile", "serial"))
    assert failure_of(manager.submit("a", choice("abort"))).kind is FailureKind.CRASH
    assert diary() == ["abort"]


# What a compilation can do to its process

HOSTILE = {
    "hang": (FailureKind.TIMEOUT, "not done after 5 s"),
    "abort": (FailureKind.CRASH, "SIGABRT: toy engine: about to abort"),
    "quit": (FailureKind.CRASH, "exit status 3"),
    "eat": (FailureKind.MEMORY_LIMIT, "grew beyond 200 MB"),
    "burst": (FailureKind.MEMORY_LIMIT, "MemoryError"),
    "exhaust": (FailureKind.MEMORY_LIMIT, "MemoryError"),
    "fail": (FailureKind.ENGINE, "RuntimeError: the toy broke"),
    "panic": (FailureKind.ENGINE, "the engine panicked"),
    "leave": (FailureKind.ENGINE, "SystemExit"),
    "interrupt": (FailureKind.ENGINE, "KeyboardInterrupt"),
    "empty": (FailureKind.SPEC, "no text of this vocabulary satisfies it"),
    "malformed": (FailureKind.SPEC, "the toy finds this malformed"),
    "refuse": (FailureKind.UNSUPPORTED, "this toy does not refuse politely"),
}
SAFE_IN_THREADS = ("exhaust", "fail", "panic", "leave", "interrupt", "empty", "malformed", "refuse")


def resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


@pytest.mark.parametrize("backend", ["hostile", "serial"])
def test_e5_e6_each_trouble_fails_its_own_ticket_while_all_others_finish_and_nothing_is_left_behind(
    make_manager: Any, choice: Choice, backend: str
) -> None:
    before = (set(threading.enumerate()), set(os.listdir("/proc/self/fd")))
    memory = resident_megabytes()
    manager = make_manager(isolation="process", backend=backend, compile_seconds=5.0, compile_megabytes=200.0)
    assert manager.wait_warm(120.0)
    troubles = {name: manager.submit(name, choice(name, "a")) for name in HOSTILE}
    others = [manager.submit("other", choice(f"b{n}")) for n in range(100)]
    for name, (kind, words) in HOSTILE.items():
        failure = failure_of(troubles[name])
        assert (failure.kind, words in failure.message) == (kind, True), failure
    assert all(isinstance(outcome_of(ticket), CompiledGrammar) for ticket in others)
    assert manager.state.processes.lost >= 5
    assert manager.shutdown(60.0)
    assert (set(threading.enumerate()), set(os.listdir("/proc/self/fd"))) == before
    assert resident_megabytes() < memory + 64
    with pytest.raises(ChildProcessError):  # no child, dead or alive
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("name", SAFE_IN_THREADS)
def test_e5_what_an_engine_raises_in_a_thread_fails_its_own_ticket_only(
    make_manager: Any, choice: Choice, name: str
) -> None:
    manager = make_manager(isolation="thread", workers=1)
    expected = FailureKind.OUT_OF_MEMORY if name == "exhaust" else HOSTILE[name][0]
    for text in "abc":  # more often than there are threads: none of them is lost
        assert failure_of(manager.submit("a", choice(name, text))).kind is expected
    assert isinstance(outcome_of(manager.submit("b", choice("ab"))), CompiledGrammar)


def test_e6_what_a_worker_compiled_and_nobody_can_read_is_an_engines_failure(make_manager: Any, choice: Choice) -> None:
    failure = failure_of(make_manager(isolation="process", backend="garbled").submit("a", choice("ab")))
    assert failure.kind is FailureKind.ENGINE
    assert "cannot be read" in failure.message


def test_e6_an_engine_without_a_serial_form_is_tried_in_a_process_and_compiled_again_here(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    ticket = make_manager(isolation="process", backend="hostile").submit("a", choice("ab"))
    assert isinstance(outcome_of(ticket), CompiledGrammar)
    assert diary() == ["ab", "ab"]
    assert ticket.provenance.isolation == "process"


def test_e6_workers_that_cannot_start_fail_requests_and_do_not_hold_them(make_manager: Any, choice: Choice) -> None:
    manager = make_manager(isolation={"aborts-at-start": "process"}, backend="aborts-at-start")
    failure = failure_of(manager.submit("a", choice("ab")))
    assert (failure.kind, failure.status) == (FailureKind.UNAVAILABLE, 503)
    assert "no worker could be started: SIGABRT" in failure.message


# Shutdown


@BOTH
def test_e16_shutdown_fails_all_that_is_pending_within_its_time_and_takes_no_more(
    make_manager: Any, choice: Choice, diary: Any, isolation: str
) -> None:
    manager = make_manager(isolation=isolation, backend="closable", workers=1)
    running, queued = manager.submit("a", choice("wait")), manager.submit("b", choice("b"))
    let_go = diary.wait_until_entered()
    ended = manager.shutdown(0.0 if isolation == "thread" else 60.0)
    assert ended == (isolation == "process")
    for ticket in (running, queued, manager.submit("c", choice("c"))):
        assert failure_of(ticket).kind is FailureKind.SHUTDOWN
    assert ("closed" in diary()) == ended  # an engine is not pulled away from under a call (B13)
    let_go()
    assert manager.shutdown(60.0)
    assert manager.shutdown(60.0)
    assert diary().count("closed") == 1


def test_e16_b13_no_engine_is_released_while_a_thread_that_submits_is_inside_of_it(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="inline", backend="closable")
    submitting = threading.Thread(target=lambda: manager.submit("a", choice("wait")))
    submitting.start()
    let_go = diary.wait_until_entered()
    assert not manager.shutdown(0.0)
    assert diary() == ["wait"]
    let_go()
    assert manager.shutdown(60.0)
    assert diary() == ["wait", "closed"]
    submitting.join()


def test_e6_a_thread_that_cannot_be_replaced_leaves_the_others_at_work(
    make_manager: Any, choice: Choice, diary: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = make_manager(isolation="thread", compile_seconds=0.1, workers=2)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for name in "ab":  # the second one is still given up in time: its watch is alive
        assert failure_of(manager.submit(name, choice("wait", name))).kind is FailureKind.TIMEOUT
    assert failure_of(manager.submit("c", choice("c"))).kind is FailureKind.STUCK
    monkeypatch.undo()
    assert isinstance(outcome_of(manager.submit("d", choice("d"))), CompiledGrammar)
    assert "can't start new thread" in caplog.text
    diary.wait_until_entered()()


def test_e16_b13_an_engine_that_cannot_be_released_keeps_no_other_from_it(
    make_manager: Any, choice: Choice, diary: Any, caplog: pytest.LogCaptureFixture
) -> None:
    manager = make_manager(isolation="thread", backend="unclosable")
    for name in ("unclosable", "closable"):
        outcome_of(manager.submit(name, choice("a"), name))
    assert manager.shutdown(60.0)
    assert "closed" in diary()
    assert "unclosable cannot be released" in caplog.text


def test_k3_logs_hold_a_digest_and_never_the_spec(
    make_manager: Any, choice: Choice, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "grammar_backends")
    manager = make_manager(isolation="thread")
    for first in ("malformed", "fail"):
        manager.submit("r", choice(first, "a secret of the client")).wait()
    assert manager.shutdown(60.0)  # logging comes after finishing
    for first in ("malformed", "fail"):
        assert f"choice {choice(first, 'a secret of the client').key[:12]}" in caplog.text
    assert "secret" not in caplog.text
    levels = {record.levelname for record in caplog.records}
    assert levels == {"INFO", "ERROR", "DEBUG"}


def test_k2_the_state_counts_what_is_there(make_manager: Any, choice: Choice, diary: Any) -> None:
    manager = make_manager(isolation="thread", workers=1)
    slow = manager.submit("a", choice("wait"))
    let_go = diary.wait_until_entered()
    manager.submit("b", choice("b"))
    state = manager.state
    assert (state.pending, state.threads.busy, state.threads.queued, state.processes) == (2, 1, 1, None)
    let_go()
    outcome_of(slow)


def test_e8_submissions_from_many_threads_meet_in_one_compilation(
    make_manager: Any, choice: Choice, diary: Any
) -> None:
    manager = make_manager(isolation="thread", workers=1)
    manager.submit("first", choice("wait"))
    let_go = diary.wait_until_entered()
    start = threading.Barrier(8)
    tickets: list[GrammarTicket] = []

    def submit() -> None:
        start.wait()
        tickets.extend([manager.submit("r", choice("ab", str(n))) for n in range(20)])

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    let_go()
    assert len({id(outcome_of(ticket)) for ticket in tickets}) == 20
    assert len(diary()) == 21


def test_k1_k2_a_ticket_tells_its_statistics_and_a_manager_shows_its_state(make_manager: Any, choice: Choice) -> None:
    manager = make_manager(isolation="thread", **order("late", "serial"))
    engine = EngineStatistics()
    manager.show(engine)
    ticket = manager.submit("a", choice("ab"))
    assert ticket.statistics is None or ticket.done()
    outcome_of(ticket)
    known = ticket.statistics
    assert (known.backend, known.kind, known.source, known.timeouts) == ("serial", "choice", "compiled", 0)
    assert [(skipped.backend, skipped.reason) for skipped in known.skipped] == [("late", "this engine finds out late")]
    assert engine.snapshot().value("cached_grammars") == 1
    assert engine.snapshot().value("compile_threads_stuck") == 0


# Artifacts on disk


@BOTH
def test_e10_what_one_manager_compiled_the_next_one_reads_from_disk(
    make_manager: Any, choice: Choice, diary: Any, tmp_path: Path, isolation: str
) -> None:
    store = ArtifactStore(tmp_path / "store")
    for source in ("compiled", "disk"):
        manager = make_manager(isolation=isolation, store=store)
        ticket = manager.submit("a", choice("ab"))
        assert outcome_of(ticket).new_grammar().accept_tokens("a", list(b"ab"))
        assert ticket.provenance.source == source
        assert manager.shutdown(60.0)
    assert diary() == ["ab"]


def test_e10_what_cannot_be_read_from_disk_is_removed_and_compiled(
    make_manager: Any, choice: Choice, diary: Any, tmp_path: Path
) -> None:
    store = ArtifactStore(tmp_path / "store")
    outcome_of(make_manager(isolation="thread", store=store).submit("a", choice("ab")))
    (entry,) = (tmp_path / "store").glob("**/*.artifact")
    store.put(entry.name.partition(".")[0], b"not an artifact")
    ticket = make_manager(isolation="thread", store=store).submit("a", choice("ab"))
    assert isinstance(outcome_of(ticket), CompiledGrammar)
    assert ticket.provenance.source == "compiled"
    assert diary() == ["ab", "ab"]
    again = make_manager(isolation="thread", store=store).submit("a", choice("ab"))
    assert (isinstance(outcome_of(again), CompiledGrammar), again.provenance.source) == (True, "disk")


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_d9_limits_of_the_policy_hold_wherever_a_backend_compiles(
    make_manager: Any, choice: Choice, isolation: str
) -> None:
    texts = [str(number) for number in range(60_000)]
    refusing = make_manager(isolation=isolation, policy=Policy(limits=Limits(choices=2)))
    failure = failure_of(refusing.submit("over", choice(*"abc")))
    assert (failure.kind, "3" in failure.message) == (FailureKind.SPEC, True), failure
    generous = make_manager(isolation=isolation, policy=Policy(limits=Limits(choices=len(texts))))
    assert isinstance(outcome_of(generous.submit("more than usual", choice(*texts))), CompiledGrammar)
