"""One rank of several: ``python rank.py RANK SIZE DIRECTORY``; runs random schedules and compares logs.

Every rank draws the plans of all ranks from the same seeds, so that each can tell what must have come out: who is
ready or failed, in which pass. A rank's own plan says in which pass a compilation ends there, and how.
"""

from __future__ import annotations

import hashlib
import random
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from grammar_backends import GrammarSpec, load_vocabulary
from grammar_backends.compilation import Consensus, GrammarManager, WaitingQueue
from grammar_backends.compilation.ranks import AllGatherConsensus, PipelineConsensus, RankZeroConsensus

SCHEDULES = 500
SPECS = [GrammarSpec.choice([text]) for text in "ab"]

DIFFERENT = "the ranks were asked for different grammars"

Stages = tuple[tuple[int, ...], ...]
"""The ranks of each stage of a pipeline."""

Event = tuple[int, str, str]
"""Pass, "started" or why it failed, request id."""


@dataclass
class Plan:
    """How one request fares on one rank.

    Attributes:
        done: the pass in which its compilation ends.
        failure: why it failed.
        spec: what the rank was asked for.
    """

    done: int
    failure: str | None
    spec: GrammarSpec


@dataclass
class Request:
    """One request on all ranks.

    Attributes:
        arrives: the pass before which it comes.
        leaves: the pass before which it is given up, if it is still there.
        plans: one for each rank; None where it has no constraint.
    """

    id: str
    arrives: int
    leaves: int
    plans: list[Plan] | None

    def ends(self, stages: Stages) -> tuple[int, str]:
        """The pass in which it is ready or failed everywhere, and the reason, "" for ready."""
        if self.plans is None:
            return self.arrives, ""
        found = [(plan.done, rank, plan.failure) for rank, plan in enumerate(self.plans) if plan.failure]
        for stage in [*stages, tuple(range(len(self.plans)))]:
            plans = [self.plans[rank] for rank in stage]
            if not any(plan.failure for plan in plans) and len({plan.spec for plan in plans}) > 1:
                found.append((max(plan.done for plan in plans), stage[-1], DIFFERENT))
        when, _, reason = min(found, default=(max(plan.done for plan in self.plans), 0, ""))
        return when, reason


class ScriptedTicket:
    """A ticket that is done from some pass on."""

    def __init__(self, plan: Plan, now: list[int]) -> None:
        self.spec = plan.spec
        self._plan = plan
        self._now = now

    def done(self) -> bool:
        return self._now[0] >= self._plan.done

    @property
    def failure(self) -> str | None:
        return self._plan.failure if self.done() else None


def schedule_of(seed: int, size: int) -> tuple[list[Request], int]:
    """Requests in the order of their arrival, and how many of them may start in one pass."""
    rng = random.Random(seed)
    requests = []
    for number in range(rng.randint(1, 6)):
        arrives = rng.randrange(3)
        plans = [Plan(arrives + rng.randrange(4), None, SPECS[0]) for _ in range(size)]
        for rank, plan in enumerate(plans):
            if rng.random() < 0.15:
                plan.failure = f"broken on {rank}"
            if rng.random() < 0.03:
                plan.spec = SPECS[1]
        leaves = arrives + rng.randrange(1, 5) if rng.random() < 0.1 else 1_000
        requests.append(Request(f"{seed}-{number}", arrives, leaves, plans if rng.random() < 0.9 else None))
    requests.sort(key=lambda request: request.arrives)
    return requests, rng.randint(1, 3)


def run(requests: list[Request], room: int, rank: int, consensus: Consensus, scan_limit: int) -> list[Event]:
    """What happens on one rank."""
    queue: WaitingQueue[Request] = WaitingQueue(consensus, scan_limit)
    now, log = [0], []
    while now[0] < 3 or len(queue):
        for request in requests:
            if request.arrives == now[0]:
                ticket = ScriptedTicket(request.plans[rank], now) if request.plans else None
                queue.add(request.id, request, ticket)
            if request.leaves == now[0]:
                queue.remove(request.id)
        log += [(now[0], failed.reason, failed.waiting.request_id) for failed in queue.poll()]
        for _ in range(room):
            if (waiting := queue.pop()) is not None:
                log.append((now[0], "started", waiting.request_id))
        now[0] += 1
    return log


def expected(requests: list[Request], room: int, stages: Stages) -> list[Event]:
    """What must happen on every rank, where one pass looks at every ticket."""
    log: list[Event] = []
    ready: list[Request] = []
    over: set[str] = set()
    for now in range(100):
        for request in requests:
            if request.leaves == now:
                over.add(request.id)
        ends = [(request, *request.ends(stages)) for request in requests]
        ended = [(request, text) for request, when, text in ends if when == now and request.id not in over]
        log += [(now, text, request.id) for request, text in ended if text]
        over |= {request.id for request, text in ended if text}
        ready += [request for request, text in ended if not text]
        ready = [request for request in requests if request in ready and request.id not in over]
        log += [(now, "started", request.id) for request in ready[:room]]
        over |= {request.id for request in ready[:room]}
    return log


def outcomes(log: list[Event]) -> list[tuple[str, bool]]:
    """Who started and who failed, whenever and for whatever reason."""
    return sorted((id_, text == "started") for _, text, id_ in log)


def check(consensus: Consensus, rank: int, size: int, stages: Stages) -> str:
    """Run all schedules, and return a digest of what happened."""
    digest = hashlib.sha256()
    for seed in range(SCHEDULES):
        requests, room = schedule_of(seed, size)
        slow = seed % 4 == 0  # a pass looks at one ticket only: other passes, but the same that start and fail
        log = run(requests, room, rank, consensus, 1 if slow else 100)
        wanted = expected(requests, room, stages)
        if not slow and log != wanted:
            raise AssertionError(f"schedule {seed}: {log} instead of {wanted}")
        leaving = any(request.leaves < 1_000 for request in requests)
        if slow and not leaving and outcomes(log) != outcomes(wanted):
            raise AssertionError(f"slow schedule {seed}: {log} instead of {wanted}")
        digest.update(repr(log).encode())
    return digest.hexdigest()


def check_managers(consensus: Consensus, rank: int) -> str:
    """Compile for real on every rank, with a failure that only the last rank knows; what happened, in order."""
    queue: WaitingQueue[str] = WaitingQueue(consensus)
    log = []
    with GrammarManager(load_vocabulary("byte"), backend="guidance") as manager:
        for number in range(40):
            broken = number % 7 == 3 or (number == 20 and rank > 0)
            spec = GrammarSpec.regex("(" if broken else f"[a-z]{{{number % 5 + 1}}}")
            queue.add(str(number), str(number), manager.submit(str(number), spec))
        while len(queue):
            seen = manager.finished
            log += [f"{failed.waiting.request_id} failed" for failed in queue.poll()]
            while (waiting := queue.pop()) is not None:
                log.append(f"{waiting.request_id} started")
            manager.wait_finished(seen, 0.01)
    failed = {line.split()[0] for line in log if "failed" in line}
    if len(log) != 40 or failed != {str(number) for number in range(40) if number % 7 == 3 or number == 20}:
        raise AssertionError(log)
    return ",".join(log).replace(" ", "-")


def main(rank: int, size: int, directory: Path) -> None:
    store = dist.FileStore(str(directory / "rendezvous"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120))
    if size == 2:
        for consensus in (AllGatherConsensus(), RankZeroConsensus()):
            sys.stdout.write(check(consensus, rank, size, ((0, 1),)) + "\n")
        sys.stdout.write(check_managers(AllGatherConsensus(), rank) + "\n")
    else:
        stages = ((0, 1), (2, 3))  # of two ranks each, which share the layers of a stage
        groups = [dist.new_group(list(ranks)) for ranks in stages]
        pipelines = [dist.new_group([first, first + 2]) for first in (0, 1)]
        staged = PipelineConsensus(AllGatherConsensus(groups[rank // 2]), pipelines[rank % 2])
        sys.stdout.write(check(staged, rank, size, stages) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
