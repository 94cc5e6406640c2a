"""Drafts of one request before and after they are verified: trimmed to what is legal, padded, committed.

Also verification one position after the other, for hosts that sample so (G9).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from enum import Enum
from operator import index
from typing import NamedTuple

from grammar_backends.contract import BitmaskTensor, StructuredOutputGrammar
from grammar_backends.errors import GrammarError

__all__ = ["Commit", "CommitReason", "TrimmedDrafts", "commit_tokens", "trim_drafts", "verify_in_sequence"]

PADDING = -1


class TrimmedDrafts(NamedTuple):
    """Drafts that are worth verifying.

    Attributes:
        tokens: the legal prefix, and the first illegal draft where that was asked for.
        num_legal: length of the legal prefix.
        num_invalid: drafts that were proposed and are not legal; they count as not proposed in acceptance rates (G3).
    """

    tokens: list[int]
    num_legal: int
    num_invalid: int

    def padded(self, length: int) -> list[int]:
        """The tokens with -1 behind, for a host whose rows are laid out already (G1).

        Raises:
            ValueError: there are more tokens than that.
        """
        if length < len(self.tokens):
            raise ValueError(f"{len(self.tokens)} drafts do not fit {length} places")
        return self.tokens + [PADDING] * (length - len(self.tokens))


def trim_drafts(
    grammar: StructuredOutputGrammar | None,
    drafts: Sequence[int],
    *,
    keep_first_invalid: bool = False,
    limit: int | None = None,
    made_at: int | None = None,
) -> TrimmedDrafts:
    """Keep of a request's drafts what its grammar allows (G1). The grammar stays as it is.

    Args:
        grammar: None when the request is unconstrained.
        drafts: what was proposed, up to the first negative one (G2).
        keep_first_invalid: keep the first illegal draft too: its row, which holds what may follow the legal prefix,
            then yields the token that replaces it.
        limit: how many drafts were scheduled; those beyond are left out first, and not counted.
        made_at: `num_accepted` of the grammar when the drafts were made; drafts of another step are all invalid (G4).
    """
    proposed = _before_padding(drafts if limit is None else drafts[: max(limit, 0)])
    if grammar is None:
        return TrimmedDrafts(proposed, len(proposed), 0)
    if made_at is not None and made_at != grammar.num_accepted:
        return TrimmedDrafts([], 0, len(proposed))
    num_legal = len(grammar.validate_tokens(proposed))
    kept = proposed[: num_legal + keep_first_invalid]
    return TrimmedDrafts(kept, num_legal, len(proposed) - num_legal)


def _before_padding(tokens: Sequence[int]) -> list[int]:
    return list(itertools.takewhile(lambda token: token >= 0, map(index, tokens)))


class CommitReason(Enum):
    """What a commit came to."""

    ALL = "all"
    """Every token was kept, and more may follow."""

    TERMINATED = "terminated"
    """A stop token ends the text; what came behind it must be neither stored nor emitted."""

    ILLEGAL = "illegal"
    """The grammar does not allow the next token; it must be sampled again."""

    FAILED = "failed"
    """The grammar is in an error state; the request must be failed (A19)."""


class Commit(NamedTuple):
    """How far a request and its grammar have advanced together.

    Attributes:
        num_kept: so many of the tokens belong to the request's history.
        reason: why not more, or what the last one did.
    """

    num_kept: int
    reason: CommitReason


def commit_tokens(grammar: StructuredOutputGrammar, request_id: str, tokens: Sequence[int]) -> Commit:
    """Advance a grammar by the longest legal prefix of sampled tokens (G5).

    ::

        grammar errored              -> nothing is kept, FAILED
        grammar terminated before    -> nothing is kept, TERMINATED
        otherwise                    -> the legal prefix of the tokens before the first negative one is accepted, up
                                        to a stop token

    The request's own history must grow by the same `num_kept` tokens, whatever was sampled.
    """
    sampled = _before_padding(tokens)
    before = grammar.num_accepted
    if not grammar.accept_tokens(request_id, sampled):
        grammar.accept_tokens(request_id, grammar.validate_tokens(sampled))
    num_kept = grammar.num_accepted - before
    if grammar.error is not None:
        return Commit(num_kept, CommitReason.FAILED)
    if grammar.is_terminated():
        return Commit(num_kept, CommitReason.TERMINATED)
    return Commit(num_kept, CommitReason.ALL if num_kept == len(sampled) else CommitReason.ILLEGAL)


Sampler = Callable[[int, bool], int]
"""Samples a token at a position, by the row or regardless of it."""


def verify_in_sequence(
    grammar: StructuredOutputGrammar,
    request_id: str,
    drafts: Sequence[int],
    sample: Sampler,
    bitmask: BitmaskTensor,
    row: int = 0,
    *,
    mask_first: bool = True,
) -> tuple[list[int], CommitReason]:
    """Sample position by position and advance at once, so that nothing is ever rolled back (G9).

    ::

        for each draft, and once more behind the last:
            mask_first   -> fill the row, token = sample(position, True)
            otherwise    -> token = sample(position, False); if the grammar refuses it, as above
            accept the token; end where it is not the draft, or stops the text

    Args:
        grammar: advanced by the tokens that are returned.
        drafts: what was proposed; they decide only how far one step goes.
        sample: ``sample(position, masked) -> token``, from the logits of a position, by the row when `masked`.
        bitmask, row: where `sample` finds the row.
        mask_first: False saves the rows that the first choice does not need, but may change the distribution.

    Returns:
        The tokens to commit, at least one unless it failed, and what it came to: ILLEGAL when `sample` returned a
        token against its row, FAILED when the grammar failed or met a dead end.
    """
    committed: list[int] = []
    if grammar.is_terminated():
        return committed, CommitReason.TERMINATED
    for position in range(len(drafts) + 1):
        token = None if mask_first else sample(position, False)
        if token is None or not grammar.validate_tokens([token]):
            try:
                grammar.fill_bitmask(bitmask, row)
            except GrammarError:
                return committed, CommitReason.FAILED
            token = sample(position, True)
        num_kept, reason = commit_tokens(grammar, request_id, [token])
        if num_kept:
            committed.append(token)
        elif reason is CommitReason.ALL:  # to a commit a negative token is padding
            reason = CommitReason.ILLEGAL
        if reason is not CommitReason.ALL or position == len(drafts) or token != drafts[position]:
            return committed, reason
    raise AssertionError("the position behind the last draft returns")
