"""Managers, workers and stores in a process that forks: the child works, and the parent does not notice."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import GrammarSpec
from grammar_backends.compilation import ArtifactStore, GrammarTicket
from grammar_backends.compilation.threads import CompileThreads
from grammar_backends.statistics import EngineStatistics

Choice = Callable[..., GrammarSpec]

BOTH = pytest.mark.parametrize("isolation", ["thread", "process"])
SECONDS = 60.0

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # it is what is tested


@contextmanager
def forked(work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """A child that does some work; the answer waits for what it came to, and fails where the child hangs."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            answer = json.dumps(work())
        except BaseException as error:
            answer = json.dumps(repr(error))
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)

    def answered() -> Any:
        assert select.select([read], [], [], SECONDS)[0], "the child hangs"
        return json.loads(os.read(read, 1 << 16))

    try:
        yield answered
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)


def in_child(work: Callable[[], Any]) -> Any:
    with forked(work) as answered:
        return answered()


def children() -> set[str]:
    """The processes that this one has started."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()).union(
        *(path.read_text().split() for path in Path("/proc/self/task").glob("*/children"))
    )


def finished(ticket: GrammarTicket) -> str:
    assert ticket.wait(SECONDS)
    return ticket.state if ticket.failure is None else ticket.failure.kind.name


@BOTH
def test_e5_a_forked_child_compiles_with_workers_of_its_own_and_leaves_those_of_its_parent_alone(
    make_manager: Any, choice: Choice, diary: Any, isolation: str
) -> None:
    manager = make_manager(isolation=isolation, store=ArtifactStore(diary.path.parent / "store"))
    assert manager.wait_warm(SECONDS)
    assert finished(manager.submit("a", choice("known"))) == "ready"
    pending = manager.submit("b", choice("wait"))
    let_go = diary.wait_until_entered()
    workers = children()
    called: list[str] = []
    pending.add_done_callback(lambda ticket: called.append("called"))

    def child() -> list[object]:
        before = manager.state
        facts = [pending.failure.kind.name, called, manager.state.pending, (before.threads, before.processes)]
        known, new = manager.submit("c", choice("known")), manager.submit("d", choice("new"))
        facts += [known.provenance.source, finished(new), new.new_grammar().accept_tokens("d", list(b"new"))]
        return [*facts, manager.shutdown(SECONDS), finished(manager.submit("e", choice("late")))]

    assert in_child(child) == ["FORKED", [], 0, [None, None], "memory", "ready", True, True, "SHUTDOWN"]
    assert children() == workers
    assert pending.state == "pending"
    let_go()
    assert finished(pending) == "ready"
    assert called == ["called"]
    assert finished(manager.submit("f", choice("more"))) == "ready"
    assert isolation == "thread" or manager.state.processes.lost == 0


@BOTH
def test_e16_a_child_that_only_shuts_down_ends_nothing_of_its_parent(
    make_manager: Any, choice: Choice, isolation: str
) -> None:
    manager = make_manager(isolation=isolation)
    assert manager.wait_warm(SECONDS)
    assert in_child(lambda: [manager.shutdown(0.0), len(threading.enumerate())]) == [True, 1]
    assert finished(manager.submit("a", choice("ab"))) == "ready"
    assert isolation == "thread" or manager.state.processes.lost == 0


def test_e5_children_forked_at_any_moment_of_a_busy_manager_hang_in_nothing(
    make_manager: Any, choice: Choice, tmp_path: Path
) -> None:
    manager = make_manager(isolation="thread", store=ArtifactStore(tmp_path / "store"), cached_entries=4)
    engine = EngineStatistics()
    manager.show(engine)
    stop = threading.Event()

    def busy(name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            tickets = [manager.submit("r", choice(f"{name} {(number + n) % 9}")) for n in range(3)]
            tickets[0].cancel()
            engine.snapshot()

    threads = [threading.Thread(target=busy, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()

    def child() -> list[object]:
        tickets = [manager.submit("r", choice(f"a {n}")) for n in range(9)]
        states = sorted({finished(ticket) for ticket in tickets})
        return [states, engine.snapshot().value("compilations_pending"), manager.shutdown(SECONDS)]

    try:
        for _ in range(40):
            assert in_child(child) == [["ready"], 0, True]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_e6_a_worker_that_is_started_while_somebody_forks_is_not_held_up_by_the_child(
    make_manager: Any, choice: Choice
) -> None:
    manager = make_manager(isolation="process", compile_seconds=5.0)
    with ExitStack() as living:  # children that outlive the start of the workers that are missing meanwhile
        for number in range(6):
            living.enter_context(forked(signal.pause))
            assert finished(manager.submit("a", choice("abort", str(number)))) == "CRASH"
        assert manager.wait_warm(SECONDS)
        assert finished(manager.submit("b", choice("ab"))) == "ready"


def test_e6_threads_of_a_parent_are_closed_in_the_child() -> None:
    threads = CompileThreads(2, 1)
    assert in_child(lambda: [threads.state.busy, threads.close(SECONDS)]) == [0, True]
    assert threads.close(SECONDS)


SCRIPT = """
import os, sys, threading
sys.path[:0] = {paths!r}
import hostile_engines
from grammar_backends import GrammarManager, GrammarSpec, PluginHost, load_vocabulary
from grammar_backends.compilation import ManagerLimits

manager = GrammarManager(
    load_vocabulary("byte"), backend="serial", isolation={isolation!r}, limits=ManagerLimits(workers=1),
    host=PluginHost(autoload=False, plugins={{"hostile": hostile_engines}}),
    options={{"serial": {{"fifo": {fifo!r}, "diary": {diary!r}}}}},
)
submit = lambda *texts: manager.submit("r", GrammarSpec.choice(texts))
running = submit("wait")
manager.wait_warm(100)
waiting = [submit(str(n)) for n in range(5)]
{end}
"""

ENDS = {
    "the program ends": "",
    "it raises": "raise SystemExit(0)",
    "a child ends": "sys.exit(os.waitpid(pid, 0)[1] if (pid := os.fork()) else 0)",
    "a child leaves a with": "pid = os.fork()\nif not pid:\n    with manager: sys.exit(0)\n"
    "sys.exit(os.waitpid(pid, 0)[1])",
    "a child works and ends": "pid = os.fork()\nif not pid: sys.exit(not submit('x').wait(100))\n"
    "sys.exit(os.waitpid(pid, 0)[1])",
    "it is forgotten": """
open({fifo!r}, "w").close()
for ticket in (running, *waiting): ticket.wait(100)
import gc, weakref
kept = weakref.ref(manager)
del ticket, running, waiting, submit, manager
while kept(): gc.collect()
try:
    while True: os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
except ChildProcessError: pass
""",
}


@pytest.mark.parametrize(
    ("isolation", "end"),
    [("thread", "the program ends"), ("thread", "it is forgotten"), *(("process", end) for end in ENDS)],
)
def test_e16_a_program_ends_quietly_whatever_its_manager_has_to_do(
    tmp_path: Path, diary: Any, module_paths: list[str], isolation: str, end: str
) -> None:
    script = tmp_path / "script.py"
    facts = {"paths": module_paths, "isolation": isolation, "fifo": str(diary.fifo), "diary": str(diary.path)}
    script.write_text(SCRIPT.format(end=ENDS[end].format(**facts), **facts))
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-W", "ignore::DeprecationWarning", script],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
