"""How far a grammar is ahead of its request while drafts are pending: `DraftLedger` (G7, G10).

For hosts that leave the grammar advanced over the drafts until they are verified, and that constrain the draft model
too. `BitmaskBuilder.build` needs none of it: it goes back before it returns.
"""

from __future__ import annotations

from grammar_backends.contract import StructuredOutputGrammar
from grammar_backends.decoding.builder import MaskRequest
from grammar_backends.errors import GrammarError

__all__ = ["DraftLedger"]


class DraftLedger:
    """The steps that one request's grammar took for a step of the target, and for the drafting loop behind it.

    ::

        ledger.begin(token)           the token that the last step ended with; none in the first step
        fill row 0
        ledger.advance(draft)         True -> fill the next row; False -> this and later drafts are not acceptable
        ... the target verifies ...
        ledger.settle(num_accepted)   rollback point 1: back over the drafts that were not accepted
        ledger.draft_request()        the row for the draft model
        ledger.draft(token)           what the draft model sampled; False -> it goes on without a mask
        ledger.end_drafting()         rollback point 2: the drafting loop leaves no trace

    The drafting loop works on a fork, so that whatever fails there stops guiding this draft and nothing else.

    Attributes:
        grammar, request_id: whose steps these are.
        num_advanced: drafts that the grammar is ahead of what is committed.
        num_advanced_draft: the same within the drafting loop.
        draft_dead: the drafting loop met an illegal token, a stop token or a failure, and goes on without masks.
    """

    __slots__ = ("_fork", "draft_dead", "grammar", "num_advanced", "num_advanced_draft", "request_id")

    def __init__(self, grammar: StructuredOutputGrammar, request_id: str) -> None:
        self.grammar = grammar
        self.request_id = request_id
        self.num_advanced = 0
        self.num_advanced_draft = 0
        self.draft_dead = False
        self._fork: StructuredOutputGrammar | None = None

    def begin(self, token: int) -> None:
        """Commit the token that the last step ended with.

        Raises:
            GrammarError: the grammar refuses it or is in its error state; the request must be failed.
            ValueError: drafts of the last step are not settled.
        """
        if self.num_advanced:
            raise ValueError(f"{self.request_id}: {self.num_advanced} drafts are not settled")
        self.end_drafting()
        if not self.grammar.accept_tokens(self.request_id, [token]):
            raise self.grammar.error or GrammarError(f"{self.request_id}: token {token} was sampled against its mask")

    def advance(self, draft: int) -> bool:
        """Take the grammar over a draft; False when it is not acceptable, and nothing changes.

        Raises:
            GrammarError: the grammar is in its error state; the request must be failed.
        """
        before = self.grammar.num_accepted
        if not self.grammar.accept_tokens(self.request_id, [draft]) and self.grammar.error is not None:
            raise self.grammar.error
        advanced = self.grammar.num_accepted - before  # nothing behind a stop token (A4)
        self.num_advanced += advanced
        return bool(advanced)

    def settle(self, num_accepted: int) -> None:
        """Rollback point 1: keep the drafts that the target accepted.

        A host that verifies ahead of the masks may have accepted drafts behind a stop token: they are not counted.

        Raises:
            ValueError: more drafts were accepted than the grammar went over, or fewer than none; nothing changes.
        """
        if num_accepted > self.num_advanced and self.grammar.is_terminated():
            num_accepted = self.num_advanced
        if not 0 <= num_accepted <= self.num_advanced:
            raise ValueError(f"{self.request_id}: {num_accepted} accepted drafts of {self.num_advanced}")
        self.grammar.rollback(self.num_advanced - num_accepted)
        self.num_advanced = 0

    def draft_request(self) -> MaskRequest:
        """For `BitmaskBuilder.build`: the next row of the draft model, unconstrained once the draft is dead (G10).

        Where that fails, set `draft_dead`; the target is not touched.
        """
        return MaskRequest(self.request_id, None if self.draft_dead else self._drafting())

    def draft(self, token: int) -> bool:
        """Follow the draft model over a token; False when it goes on without masks."""
        if self.draft_dead:
            return False
        fork = self._drafting()
        before = fork.num_accepted
        fork.accept_tokens(self.request_id, [token])
        advanced = fork.num_accepted - before
        self.num_advanced_draft += advanced
        self.draft_dead = not advanced or fork.is_terminated()
        return not self.draft_dead

    def _drafting(self) -> StructuredOutputGrammar:
        if self._fork is None:
            self._fork = self.grammar.fork()
        return self._fork

    def end_drafting(self) -> None:
        """Rollback point 2: forget the drafting loop."""
        self._fork = None
        self.num_advanced_draft = 0
        self.draft_dead = False
