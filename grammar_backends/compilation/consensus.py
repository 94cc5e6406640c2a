"""Agreement of ranks on whose grammars are ready (E13): each compiles for itself, and none may run ahead.

Where every rank schedules for itself, each has to promote and to fail the same requests in the same pass. A
`Consensus` makes one verdict of what the ranks know; `ranks` has those over ``torch.distributed``. What they exchange
are request ids and digests, so that neither places in queues nor the order of arrival matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Consensus", "Verdict", "local_consensus", "merge_verdicts"]


class Verdict(NamedTuple):
    """What one rank, or all of them, hold of the requests that wait.

    Attributes:
        ready: those whose grammar is ready, each with the digest of what it asks for (`GrammarSpec.key`).
        failed: those that failed, each with the reason. A request in neither is pending.
    """

    ready: Mapping[str, str]
    failed: Mapping[str, str]


class Consensus(Protocol):
    """Makes all ranks see the same requests as ready and as failed."""

    def __call__(self, ready: Mapping[str, str], failed: Mapping[str, str]) -> Verdict:
        """The verdict of all ranks, from what this one knows; see `Verdict` for the arguments.

        ::

            failed on any rank                          -> failed (with the reason of the first such rank)
            ready on every rank, for the same digest    -> ready
            ready with different digests                -> failed: the ranks were not asked for the same
            otherwise                                   -> in neither: it stays pending

        Every rank calls it equally often. What was in a verdict need not be reported again.
        """
        ...


def merge_verdicts(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict of those of all ranks, in the order of the ranks; its ids are sorted."""
    failed: dict[str, str] = {}
    for verdict in verdicts:
        for request_id, reason in verdict.failed.items():
            failed.setdefault(request_id, reason)
    ready: dict[str, str] = {}
    for request_id in set.intersection(*(set(verdict.ready) for verdict in verdicts)) - failed.keys():
        digests = {verdict.ready[request_id] for verdict in verdicts}
        if len(digests) == 1:
            ready[request_id] = digests.pop()
        else:
            failed[request_id] = "the ranks were asked for different grammars"
    return Verdict(dict(sorted(ready.items())), dict(sorted(failed.items())))


def local_consensus(ready: Mapping[str, str], failed: Mapping[str, str]) -> Verdict:
    """For one scheduler: what it knows is the verdict."""
    return merge_verdicts([Verdict(ready, failed)])
