"""Jump-forward: text that the grammar forces need not be sampled (I).

Forced tokens still need a forward pass, as a small prefill: for their keys and values, and for log-probabilities, which
a host computes there or reports absent. What is saved is one step of decoding for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grammar_backends.contract import StructuredOutputGrammar, Vocabulary
from grammar_backends.contract.forcing import canonical_continuation
from grammar_backends.errors import UnsupportedFeature

__all__ = ["Jump", "JumpForward", "JumpPolicy", "JumpStatistics"]


@dataclass(frozen=True, slots=True)
class JumpPolicy:
    """When a jump is worth it (I4).

    Attributes:
        enabled: the off switch.
        min_tokens: shorter runs are sampled: a prefill of a few tokens costs more than it saves.
        may_replace: a jump may take tokens back that are in the output already, where the tokenizer would have cut
            them otherwise together with what follows. The host must then drop their keys and values as well.
    """

    enabled: bool = True
    min_tokens: int = 4
    may_replace: bool = False


@dataclass(frozen=True, slots=True)
class Jump:
    """Take back the last `num_replaced` tokens of the output, then append `tokens`; nothing to do when it is empty.

    Attributes:
        tokens: legal one after the other, and together with the text before and any legal text behind them what
            the tokenizer itself would make of it (I3).
        num_replaced: 0 unless the policy allows more.
    """

    tokens: tuple[int, ...] = ()
    num_replaced: int = 0

    def __bool__(self) -> bool:
        return bool(self.tokens)


@dataclass(slots=True)
class JumpStatistics:
    """Counts of one request, or of many (I4, K1).

    Attributes:
        questions: how often it was asked.
        jumps: how often there was one.
        tokens_saved: tokens that were appended without sampling, less those that were replaced.
    """

    questions: int = 0
    jumps: int = 0
    tokens_saved: int = 0


class JumpForward:
    """Offers forced tokens, to be appended or as drafts. Thread-safe; one serves all requests of a model.

    A backend that cannot tell what is forced forces nothing, and so does a vocabulary that is not `canonical` (I1), and
    a gate while it is closed (I6).

    Args:
        vocabulary: the model's.
        policy: when a jump is worth it.
    """

    def __init__(self, vocabulary: Vocabulary, policy: JumpPolicy | None = None) -> None:
        self.vocabulary = vocabulary
        self.policy = policy or JumpPolicy()

    def find(
        self, grammar: StructuredOutputGrammar, output: Sequence[int], statistics: JumpStatistics | None = None
    ) -> Jump:
        """The jump from here; empty when there is none, or none that is worth it. The grammar does not change.

        Args:
            grammar: has accepted `output`.
            output: the tokens of the request so far; only the last ones are looked at.
            statistics: where to count.
        """
        jump = self._find(grammar, output, self.policy.min_tokens)
        if jump.num_replaced and not self.policy.may_replace:
            jump = Jump()
        if statistics is not None:
            statistics.questions += 1
            statistics.jumps += bool(jump)
            statistics.tokens_saved += len(jump.tokens) - jump.num_replaced
        return jump

    def take(
        self, request_id: str, grammar: StructuredOutputGrammar, output: list[int], statistics: JumpStatistics
    ) -> Jump:
        """As `find`, and make the jump: the grammar advances, and `output` becomes what it is then."""
        jump = self.find(grammar, output, statistics)
        if jump:
            grammar.rollback(jump.num_replaced)
            grammar.accept_tokens(request_id, jump.tokens)
            output[len(output) - jump.num_replaced :] = jump.tokens
        return jump

    def drafts(self, grammar: StructuredOutputGrammar, output: Sequence[int], most: int) -> list[int]:
        """Up to `most` forced tokens to propose as drafts (I5): always legal, and verified like other drafts, so that
        the distribution of the output stays the model's. One is worth it; nothing is replaced."""
        jump = self._find(grammar, output, min_tokens=1)
        return [] if jump.num_replaced else list(jump.tokens[: max(most, 0)])

    def _find(self, grammar: StructuredOutputGrammar, output: Sequence[int], min_tokens: int) -> Jump:
        if not self.policy.enabled or not self.vocabulary.canonical:
            return Jump()
        try:
            forced = grammar.forced_bytes()
        except UnsupportedFeature:
            return Jump()
        if len(forced) < min_tokens:  # a token has at least one byte
            return Jump()
        found = canonical_continuation(self.vocabulary, grammar, forced, output, min_tokens)
        return Jump(tuple(found.tokens), found.num_replaced)
