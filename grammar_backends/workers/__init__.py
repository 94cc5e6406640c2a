"""Processes that are kept warm for work that may hang, crash or eat memory, and that can be killed at any moment.

`process` is the parent's end of one worker, `service` what runs inside it, `messages` what they say to each other,
`pool` keeps several at hand for the threads of a program, `forks` what a forked child may not touch of them. Nothing
here knows what the work is.
"""

from grammar_backends.workers.forks import Forkable, watch_forks
from grammar_backends.workers.messages import Message
from grammar_backends.workers.pool import PoolState, WorkerPool
from grammar_backends.workers.process import Limits, Trouble, Worker, WorkerTrouble, describe_exit
from grammar_backends.workers.service import NotStarted, Service, one_line, out_of_memory, serve

__all__ = [
    "Forkable",
    "Limits",
    "Message",
    "NotStarted",
    "PoolState",
    "Service",
    "Trouble",
    "Worker",
    "WorkerPool",
    "WorkerTrouble",
    "describe_exit",
    "one_line",
    "out_of_memory",
    "serve",
    "watch_forks",
]
