"""rollback: how far it goes, where it leads, and how far it may go."""

from __future__ import annotations

from broken_engines.fault import breaks
from broken_engines.right import Grammar, Matching


@breaks("A15")
class RollsBackOneTooFew(Grammar):
    def rollback(self, num_tokens):
        super().rollback(max(num_tokens - 1, 0) if num_tokens <= self.num_accepted else num_tokens)


@breaks("A15")
class RollsBackOneTooMany(Matching):
    def rollback(self, n):
        super().rollback(min(n + 1, len(self.states) - 1))


@breaks("A15")
class RollsBackBlocks(Grammar):
    """Steps are calls of accept_tokens, not tokens."""

    def reset(self):
        super().reset()
        self.marks = []

    def advance(self, states, stopped):
        self.marks.append(len(self.states))
        super().advance(states, stopped)

    def rollback(self, num_tokens):
        super().rollback(num_tokens)
        earlier = [mark for mark in self.marks if mark <= len(self.states)]
        if num_tokens and earlier:
            del self.states[earlier[-1] :]


@breaks("A15")
class RemembersRowsByLength(Grammar):
    """Rows are remembered by the length of the history, also when a rollback led to another one."""

    def __init__(self, language, stops, max_rollback):
        self.rows = {}
        super().__init__(language, stops, max_rollback)

    def legal(self):
        return self.rows.setdefault(self.num_accepted, super().legal())


@breaks("A15")
class RemembersAccepting(Grammar):
    """Whether a text is complete is noted when a token is accepted."""

    noted = None

    def reset(self):
        super().reset()
        self.noted = None

    def advance(self, states, stopped):
        super().advance(states, stopped)
        self.noted = super().is_accepting() if states or stopped else self.noted

    def is_accepting(self):
        return super().is_accepting() if self.noted is None else self.noted and not self.terminated


@breaks("A17")
class TruncatesRollbacks(Grammar):
    def rollback(self, num_tokens):
        super().rollback(min(num_tokens, self.num_accepted - self.floor))


@breaks("A17")
class ErasesBeforeItRaises(Grammar):
    def rollback(self, num_tokens):
        try:
            super().rollback(num_tokens)
        except ValueError:
            self.reset()
            raise


@breaks("A17")
class TakesNegativeRollbacks(Grammar):
    def rollback(self, num_tokens):
        super().rollback(max(num_tokens, 0))


@breaks("A17")
class RaisesRuntimeError(Grammar):
    def rollback(self, num_tokens):
        try:
            super().rollback(num_tokens)
        except ValueError as error:
            raise RuntimeError("cannot roll back") from error


@breaks("A17")
class IgnoresTheLimit(Grammar):
    def advance(self, states, stopped):
        self.states += states
        self.terminated = stopped


@breaks("A17")
class TakesLimitZeroForNone(Grammar):
    """`if max_rollback` where `max_rollback is not None` was meant."""

    def advance(self, states, stopped):
        if self.max_rollback:
            super().advance(states, stopped)
        else:
            IgnoresTheLimit.advance(self, states, stopped)


@breaks("A17")
class LimitMovesBack(Grammar):
    """The limit is counted from the present length, so that old steps come back into reach."""

    def advance(self, states, stopped):
        self.floor = 0
        self.states += states
        self.terminated = stopped
        if self.max_rollback is not None:
            self.floor = self.num_accepted - min(self.max_rollback, self.num_accepted)

    def rollback(self, num_tokens):
        super().rollback(num_tokens)
        if self.max_rollback is not None:
            self.floor = self.num_accepted - min(self.max_rollback, self.num_accepted)


@breaks("A27")
class LimitLeavesOutTheStop(Grammar):
    """max_rollback tokens, of which the stop token is one too many."""

    def advance(self, states, stopped):
        super().advance(states, stopped)
        if stopped and self.max_rollback:
            self.floor = max(self.floor, self.num_accepted - self.max_rollback + 1)


@breaks("A27")
class UnboundedMeansTwoHundred(Grammar):
    def advance(self, states, stopped):
        super().advance(states, stopped)
        if self.max_rollback is None:
            self.floor = max(self.floor, self.num_accepted - 200)


@breaks("A33")
class KeepsEveryState(Grammar):
    """The limit is kept, but what is beyond it is not forgotten."""

    def advance(self, states, stopped):
        super().advance(states, stopped)
        vars(self).setdefault("log", []).extend((self.num_accepted, state) for state in states)
