"""Compilation: tickets for grammars that are compiled in the background, whatever a request asks for (E).

`manager` is the entry; `compiler` compiles one spec from end to end, `isolation` and `worker` do it in processes that
can be killed, `threads` in threads that can be given up; `ticket` and `outcome` are what a request sees.
"""

from grammar_backends.compilation.isolation import Isolation, isolation_of
from grammar_backends.compilation.limits import ManagerLimits
from grammar_backends.compilation.manager import GrammarManager, ManagerState
from grammar_backends.compilation.outcome import CompilationFailure, FailureKind
from grammar_backends.compilation.store import ArtifactStore
from grammar_backends.compilation.threads import ThreadState
from grammar_backends.compilation.ticket import GrammarTicket, Provenance, TicketState

__all__ = [
    "ArtifactStore",
    "CompilationFailure",
    "FailureKind",
    "GrammarManager",
    "GrammarTicket",
    "Isolation",
    "ManagerLimits",
    "ManagerState",
    "Provenance",
    "ThreadState",
    "TicketState",
    "isolation_of",
]
