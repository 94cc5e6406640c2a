"""Warm workers that can be killed: what a task does to its worker, and what is left of it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grammar_backends.workers import Limits, Message, WorkerPool, WorkerTrouble
from grammar_backends.workers.process import Worker

HERE = str(Path(__file__).parent)
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])}

MakePool = Callable[..., WorkerPool]


def do(what: str, body: bytes = b"", **more: Any) -> Message:
    return Message({"do": what, **more}, body)


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    """Pools of the echo worker; none leaves a thread, a file descriptor or a child behind."""
    before = (set(threading.enumerate()), set(os.listdir("/proc/self/fd")))
    made: list[WorkerPool] = []

    def make(how: str = "well", *, size: int = 1, environment: dict[str, str] | None = None, **more: Any) -> WorkerPool:
        limits = Limits(**{name: more.pop(name) for name in list(more) if name in Limits.__dataclass_fields__})
        variables = {**ENVIRONMENT, **(environment or {})}
        made.append(WorkerPool(("echo_worker", how), size=size, limits=limits, environment=variables, **more))
        return made[-1]

    yield make
    assert all(pool.close(60.0) for pool in made)
    assert (set(threading.enumerate()), set(os.listdir("/proc/self/fd"))) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def trouble_of(pool: WorkerPool, task: Message, **more: Any) -> WorkerTrouble:
    with pytest.raises(WorkerTrouble) as raised:
        pool.run(task, **more)
    return raised.value


def test_a_worker_is_kept_for_the_next_task_and_gets_bytes_as_they_are(make_pool: MakePool) -> None:
    pool = make_pool()
    body = bytes(range(256)) * 10_000
    first, second = pool.run(do("echo", body)), pool.run(do("echo"))
    assert first.body == body
    assert first.head["pid"] == second.head["pid"]
    assert pool.state.lost == 0


def test_what_all_share_is_read_by_each_and_not_sent_with_tasks(make_pool: MakePool) -> None:
    pool = make_pool(setup=b"the vocabulary", size=2, environment={"ECHO": "heard"})
    assert pool.wait_warm(60.0)
    assert pool.run(do("echo")).head["setup"] == "the vocabulary"
    assert pool.run(do("echo")).head["environment"] == "heard"


def test_what_an_engine_prints_is_no_answer(make_pool: MakePool) -> None:
    pool = make_pool()
    assert "pid" in pool.run(do("print")).head
    assert "pid" in pool.run(do("echo")).head


def test_a_task_over_its_time_is_killed_and_the_next_one_finds_a_worker(make_pool: MakePool) -> None:
    pool = make_pool()
    pool.run(do("echo"))
    trouble = trouble_of(pool, do("hang"), seconds=0.1)
    assert (trouble.kind, trouble.detail) == ("timeout", "not done after 0.1 s")
    assert "pid" in pool.run(do("echo")).head
    assert pool.state.lost == 1


def test_a_task_that_its_worker_does_not_even_read_is_over_its_time(make_pool: MakePool) -> None:
    pool = make_pool()
    os.kill(pool.run(do("echo")).head["pid"], signal.SIGSTOP)
    trouble = trouble_of(pool, do("echo", bytes(1 << 24)), seconds=0.1)  # far more than a pipe holds
    assert (trouble.kind, trouble.detail) == ("timeout", "not done after 0.1 s")
    assert pool.run(do("echo", bytes(1 << 24))).body == bytes(1 << 24)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # it is what is tested
def test_a_forked_child_has_no_workers_and_harms_none(make_pool: MakePool) -> None:
    pool = make_pool(size=2)
    assert pool.wait_warm(60.0)
    first = pool.run(do("echo")).head["pid"]
    workers = list(pool._idle)
    pid = os.fork()
    if not pid:
        try:
            gone = [worker.exited() and not worker.send(do("echo")) and worker.receive()[1] for worker in workers]
            harmless = all(gone) and all(worker.kill() for worker in workers)
            os._exit(0 if harmless and trouble_of(pool, do("echo")).kind == "closed" and pool.close(1.0) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert pool.run(do("echo")).head["pid"] == first
    assert pool.state.lost == 0


def test_a_task_over_its_memory_is_killed(make_pool: MakePool) -> None:
    pool = make_pool(megabytes=64.0)
    assert "pid" in pool.run(do("hoard", bytes=1 << 20)).head
    trouble = trouble_of(pool, do("hang"), seconds=0.1)  # the limit is on growth: what is there does not count
    assert trouble.kind == "timeout"
    assert trouble_of(pool, do("hoard", bytes=1 << 40)).detail == "out of memory (MemoryError)"


def test_a_worker_that_has_grown_over_a_task_is_replaced(make_pool: MakePool) -> None:
    pool = make_pool(megabytes=64.0)
    before = pool.run(do("echo")).head["pid"]
    assert pool.run(do("hoard", bytes=40 << 20)).head["pid"] == before
    assert pool.run(do("echo")).head["pid"] != before


def test_a_worker_that_dies_leaves_its_status_and_its_last_words(make_pool: MakePool) -> None:
    trouble = trouble_of(make_pool(), do("die"))
    assert (trouble.kind, trouble.detail) == ("crash", "exit status 7: echo worker: last words")


def test_last_words_are_those_of_the_task_that_died(make_pool: MakePool) -> None:
    pool = make_pool()
    pool.run(do("print"))
    assert trouble_of(pool, do("die")).detail == "exit status 7: echo worker: last words"


def test_a_worker_that_somebody_else_kills_is_told_apart_from_a_crash(make_pool: MakePool) -> None:
    pool = make_pool()
    pid = pool.run(do("echo")).head["pid"]
    outcome: list[WorkerTrouble] = []
    waiting = threading.Thread(target=lambda: outcome.append(trouble_of(pool, do("hang"), seconds=60.0)))
    waiting.start()
    os.kill(pid, 9)
    waiting.join()
    # Killed before its task arrived, it is simply replaced, and the next worker hangs until its time is up.
    assert outcome[0].kind in ("killed", "timeout")


def test_a_worker_that_died_idle_costs_no_task(make_pool: MakePool) -> None:
    pool = make_pool()
    pid = pool.run(do("echo")).head["pid"]
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert pool.run(do("echo")).head["pid"] != pid


def has_ended(descriptor: int) -> bool:
    """Wait for the end of the process that a descriptor stands for, which need not be a child."""
    try:
        return bool(select.select([descriptor], [], [], 60.0)[0])
    finally:
        os.close(descriptor)


def test_children_of_a_worker_die_with_it(make_pool: MakePool) -> None:
    pool = make_pool()
    pid = pool.run(do("child")).head["pid"]
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    descriptor = os.pidfd_open(int(child))
    assert pool.close(60.0)
    assert has_ended(descriptor)


def test_an_answer_that_cannot_be_read_is_the_workers_crash(make_pool: MakePool) -> None:
    trouble = trouble_of(make_pool(), do("garble"))
    assert trouble.kind == "crash"
    assert trouble.detail.startswith("its answer cannot be read")


def test_each_of_many_threads_gets_its_own_answers_while_workers_die(make_pool: MakePool) -> None:
    pool = make_pool(size=3)
    wrong: list[object] = []

    def use(name: int) -> None:
        for n in range(40):
            body = f"{name}/{n}".encode()
            try:
                answer = pool.run(do("die" if n == 20 else "echo", body), seconds=60.0)
            except WorkerTrouble as trouble:
                if n != 20 or trouble.kind != "crash":
                    wrong.append((name, n, trouble.kind, trouble.detail))
            else:
                if n == 20 or answer.body != body:
                    wrong.append((name, n, answer))

    threads = [threading.Thread(target=use, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.state.lost == 6


@pytest.mark.parametrize(
    ("how", "words"),
    [("fail", "RuntimeError: this worker will not start"), ("abort", "SIGABRT"), ("hang", "not ready")],
)
def test_workers_that_cannot_start_say_why_at_once(make_pool: MakePool, how: str, words: str) -> None:
    pool = make_pool(how, start_seconds=20.0 if how != "hang" else 0.5)
    trouble = trouble_of(pool, do("echo"))
    assert trouble.kind == "unavailable"
    assert words in trouble.detail
    assert words in pool.state.unavailable


def test_closing_ends_what_runs_and_what_waits(make_pool: MakePool) -> None:
    pool = make_pool()
    pool.run(do("echo"))
    troubles: list[WorkerTrouble] = []
    threads = [
        threading.Thread(target=lambda: troubles.append(trouble_of(pool, do("hang"), seconds=600.0))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert pool.close(60.0)
    for thread in threads:
        thread.join()
    assert [trouble.kind for trouble in troubles] == ["closed"] * 3
    assert trouble_of(pool, do("echo")).kind == "closed"
    assert pool.close(60.0)


def test_a_program_may_use_a_pool_from_a_script_without_a_main_guard(tmp_path: Path) -> None:
    """Nothing is forked, and the main module is not run again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import threading\n"
        "from grammar_backends.workers import Limits, Message, WorkerPool\n"
        "lock = threading.Lock()\n"
        "lock.acquire()  # held for ever, as by a thread at the moment of a fork\n"
        f"pool = WorkerPool(('echo_worker', 'well'), size=1, limits=Limits(), environment={ENVIRONMENT!r})\n"
        "print(pool.run(Message({'do': 'echo'}, b'x')).body)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "b'x'\n"


def test_a_worker_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from grammar_backends.workers import Limits, Message, WorkerPool\n"
        f"pool = WorkerPool(('echo_worker', 'well'), size=1, limits=Limits(), environment={ENVIRONMENT!r})\n"
        "print(pool.run(Message({'do': 'echo'})).head['pid'], flush=True)\n"
        "pool.run(Message({'do': 'hang'}), seconds=600)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        descriptor = os.pidfd_open(pid)
        parent.kill()
    assert has_ended(descriptor)


def test_a_worker_that_becomes_ready_while_its_pool_is_closed_is_killed(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, closed = threading.Event(), threading.Event()
    note_ready = Worker.note_ready

    def note_late(worker: Worker, facts: dict[str, Any], megabytes: float) -> None:
        ready.set()
        assert closed.wait(60.0)
        note_ready(worker, facts, megabytes)

    monkeypatch.setattr(Worker, "note_ready", note_late)
    pool = make_pool()
    assert ready.wait(60.0)
    assert not pool.close(0.0)  # the keeper is still at it
    closed.set()
    pool._keeper.join(60.0)
    assert pool.state.idle == 0
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
