"""Compilation: tickets for grammars that are compiled in the background, whatever a request asks for (E).

`manager` is the entry; `compiler` compiles one spec from end to end, `isolation` and `worker` do it in processes that
can be killed, `threads` in threads that can be given up; `ticket` and `outcome` are what a request sees. `store` keeps
artifacts on disk. For schedulers: `waiting` is their queue, `consensus` and `ranks` keep several of them in step,
`replay` and `aborted` make grammars of requests that began elsewhere and of those that have none.
"""

from grammar_backends.compilation.aborted import AbortedGrammar
from grammar_backends.compilation.consensus import Consensus, Verdict, local_consensus
from grammar_backends.compilation.isolation import Isolation, isolation_of
from grammar_backends.compilation.limits import ManagerLimits
from grammar_backends.compilation.manager import GrammarManager, ManagerState
from grammar_backends.compilation.outcome import CompilationFailure, FailureKind
from grammar_backends.compilation.replay import replay_tokens
from grammar_backends.compilation.store import ArtifactStore
from grammar_backends.compilation.threads import ThreadState
from grammar_backends.compilation.ticket import GrammarTicket, Provenance, TicketState
from grammar_backends.compilation.waiting import FailedRequest, WaitingQueue, WaitingRequest

__all__ = [
    "AbortedGrammar",
    "ArtifactStore",
    "CompilationFailure",
    "Consensus",
    "FailedRequest",
    "FailureKind",
    "GrammarManager",
    "GrammarTicket",
    "Isolation",
    "ManagerLimits",
    "ManagerState",
    "Provenance",
    "ThreadState",
    "TicketState",
    "Verdict",
    "WaitingQueue",
    "WaitingRequest",
    "isolation_of",
    "local_consensus",
    "replay_tokens",
]
