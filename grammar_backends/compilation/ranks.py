"""Consensus over ``torch.distributed``; which one an engine needs depends on how its ranks are arranged (E13).

Apart from `consensus`, so that whoever has one scheduler does not load torch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch.distributed as dist

from grammar_backends.compilation.consensus import Consensus, Verdict, merge_verdicts

__all__ = ["AllGatherConsensus", "PipelineConsensus", "RankZeroConsensus"]


class AllGatherConsensus:
    """Every rank tells every other what it knows; all come to the same verdict.

    Args:
        group: the ranks; a group for CPU tensors (gloo), so that no device is waited for. None for all ranks.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group

    def __call__(self, ready: Mapping[str, str], failed: Mapping[str, str]) -> Verdict:
        """`Consensus.__call__`."""
        gathered: list[Verdict] = [_NOTHING] * dist.get_world_size(self._group)
        dist.all_gather_object(gathered, Verdict(dict(ready), dict(failed)), self._group)
        return merge_verdicts(gathered)


class RankZeroConsensus:
    """Every rank tells the first one, which decides and tells all. Two short hops instead of one wide exchange.

    Args:
        group: as for `AllGatherConsensus`.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group

    def __call__(self, ready: Mapping[str, str], failed: Mapping[str, str]) -> Verdict:
        """`Consensus.__call__`."""
        is_first = dist.get_rank(self._group) == 0
        gathered = [_NOTHING] * dist.get_world_size(self._group) if is_first else None
        first = _global_rank(self._group, 0)
        dist.gather_object(Verdict(dict(ready), dict(failed)), gathered, first, self._group)
        decided = [merge_verdicts(gathered) if gathered is not None else _NOTHING]
        dist.broadcast_object_list(decided, first, self._group)
        return decided[0]


class PipelineConsensus:
    """Each stage of a pipeline agrees in itself, and what it agreed on goes along the pipeline, stage by stage.

    Each stage adds what it knows to what it was told; what the last stage makes of it holds for all.

    Args:
        stage: the consensus inside of one stage.
        group: the ranks of one pipeline, one for each stage and in their order; as for `AllGatherConsensus`.
    """

    def __init__(self, stage: Consensus, group: dist.ProcessGroup) -> None:
        self._stage = stage
        self._group = group

    def __call__(self, ready: Mapping[str, str], failed: Mapping[str, str]) -> Verdict:
        """`Consensus.__call__`."""
        verdict = self._stage(ready, failed)
        stage, last = dist.get_rank(self._group), dist.get_world_size(self._group) - 1
        if stage > 0:
            told = [_NOTHING]
            dist.recv_object_list(told, _global_rank(self._group, stage - 1), self._group)
            verdict = merge_verdicts([told[0], verdict])
        if stage < last:
            dist.send_object_list([verdict], _global_rank(self._group, stage + 1), self._group)
        decided = [verdict]
        dist.broadcast_object_list(decided, _global_rank(self._group, last), self._group)
        return decided[0]


_NOTHING = Verdict({}, {})
"""Filled in by the exchange."""


def _global_rank(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
