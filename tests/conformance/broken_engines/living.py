"""What happens in the course of a life: resets, forks, reads, errors, misuse, and threads."""

from __future__ import annotations

import logging
import time
from typing import Any, ClassVar

import numpy as np

from broken_engines.fault import breaks
from broken_engines.right import Grammar, Language
from grammar_backends.contract import Bitmask, pack_ids
from grammar_backends.errors import GrammarError
from grammar_backends_conformance.oracles import allowed_ids


@breaks("A18")
class ResetKeepsTermination(Grammar):
    def reset(self):
        terminated = getattr(self, "terminated", False)
        super().reset()
        self.terminated = terminated


@breaks("A18")
class ResetKeepsTheHistory(Grammar):
    """A reset is one more state, which a rollback can undo."""

    def reset(self):
        states = getattr(self, "states", [])
        super().reset()
        self.states = [*states, self.language.start]


@breaks("A18")
class ResetKeepsTheFloor(Grammar):
    """After a reset under max_rollback, no rollback is possible until the history is as long as before."""

    def reset(self):
        floor = getattr(self, "floor", 0)
        super().reset()
        self.floor = floor

    def forget(self):
        pass


@breaks("A18")
class ResetKeepsTheLimitOnlyOnce(Grammar):
    def reset(self):
        super().reset()
        self.resets = vars(self).get("resets", 0) + 1
        if self.resets > 1:
            self.max_rollback = None


@breaks("A19")
class SecondTryAlwaysSucceeds(Grammar):
    """After a refused token the next one is taken."""

    refused = False

    def accept_tokens(self, request_id, tokens):
        again, self.refused = self.refused, False
        accepted = super().accept_tokens(request_id, tokens)
        self.refused = not accepted and not again
        return accepted or again


@breaks("A20")
class RaisesForHugeIds(Grammar):
    """Ids go through 32-bit integers."""

    def accept_tokens(self, request_id, tokens):
        return super().accept_tokens(request_id, np.array([*tokens], dtype=np.int32))


@breaks("A20")
class KnowsStopsInListsOnly(Grammar):
    """In an array no stop token is legal."""

    def walk(self, tokens):
        if isinstance(tokens, np.ndarray):
            end = next((i for i, token in enumerate(tokens) if token in self.stops), len(tokens))
            return super().walk(tokens[:end])
        return super().walk(tokens)


@breaks("A20")
class TakesNegativeRows(Grammar):
    def fill_bitmask(self, bitmask, row):
        return super().fill_bitmask(bitmask, row + len(bitmask) if row < 0 else row)


@breaks("A20")
class TakesAnyWidth(Grammar):
    """A bitmask that is too narrow is filled as far as it goes."""

    def fill_bitmask(self, bitmask, row):
        narrow = bitmask.ndim == 2 and bitmask.shape[1] < self.vocabulary.words
        if not narrow:
            return super().fill_bitmask(bitmask, row)
        Bitmask.of(bitmask).rows[row].array[:] = pack_ids(self.legal(), self.vocabulary.width)[: bitmask.shape[1]]
        return True


@breaks("A21")
class LogsRejections(Grammar):
    def accept_tokens(self, request_id, tokens):
        accepted = super().accept_tokens(request_id, tokens)
        if not accepted:
            logging.getLogger(__name__).warning("rejected %s", tokens)
        return accepted


@breaks("A22")
class NeverCountsDown(Grammar):
    most = 0

    @property
    def num_accepted(self):
        self.most = max(self.most, super().num_accepted)
        return self.most

    def rollback(self, num_tokens):
        most, self.most = self.most, 0
        try:
            super().rollback(num_tokens)
        finally:
            self.most = most


@breaks("A23")
class ForkSharesItsStates(Grammar):
    def fork(self):
        copy = super().fork()
        copy.states = self.states
        return copy


@breaks("A23")
class ForkIsSplitWhenItGoesOn(Grammar):
    """A fork gets states of its own when a token is accepted, so that a rollback still reaches both."""

    def fork(self):
        copy = super().fork()
        copy.states = self.states
        return copy

    def advance(self, states, stopped):
        self.states = self.states.copy()
        super().advance(states, stopped)


@breaks("A23")
class ForkHasNoHistory(Grammar):
    def fork(self):
        copy = super().fork()
        copy.forgotten = copy.floor = len(copy.states) - 1 + copy.forgotten
        del copy.states[:-1]
        return copy


@breaks("A23")
class ForkIsUnbounded(Grammar):
    """A fork of a bounded grammar can take back what was accepted after it without limit."""

    def fork(self):
        copy = super().fork()
        copy.max_rollback = None
        return copy


@breaks("A23")
class ForkStartsOver(Grammar):
    def fork(self):
        return type(self)(self.language, self.stops, self.max_rollback)


@breaks("A25")
class FillingEndsTheHistory(Grammar):
    """What came before the last filled row cannot be taken back exactly."""

    def fill_bitmask(self, bitmask, row):
        masked = super().fill_bitmask(bitmask, row)
        self.states[:-1] = [self.state] * (len(self.states) - 1)
        return masked


@breaks("A25")
class AskingForgetsTheStop(Grammar):
    """is_accepting of a terminated grammar reopens it."""

    def is_accepting(self):
        self.terminated = False
        return super().is_accepting()


@breaks("A34")
class UnknownBlockStartsOver(Grammar):
    """A block of several tokens that is illegal here is tried from the start."""

    def walk(self, tokens):
        states, stopped = super().walk(tokens)
        if len(tokens) < 2 or len(states) + stopped > 0:
            return states, stopped
        here, self.states = self.states, [self.language.start]
        try:
            return super().walk(tokens)
        finally:
            self.states = here


@breaks("A34")
class BlocksOfSixteen(Grammar):
    """Of a longer block the rest is dropped."""

    def accept_tokens(self, request_id, tokens):
        return super().accept_tokens(request_id, tokens[:16])


@breaks("A35")
class RequestIdIsAKey(Grammar):
    """A grammar belongs to the request that used it first."""

    def accept_tokens(self, request_id, tokens):
        return request_id == vars(self).setdefault("owner", request_id) and super().accept_tokens(request_id, tokens)


@breaks("A1")
class UndoesWithinTheLimit(Grammar):
    """A refused block is undone by a rollback that reaches no further than max_rollback."""

    def accept_tokens(self, request_id, tokens):
        accepted = super().accept_tokens(request_id, tokens)
        if not accepted and self.error is None and self.max_rollback is not None:
            states = self.walk(tokens)[0]
            self.states += states[: max(0, len(states) - self.max_rollback)]
        return accepted


@breaks("A15")
class RowIsOldAfterRollback(Grammar):
    """The row is computed anew after a token, and not after a rollback."""

    row = None

    def legal(self):
        self.row = self.row if self.row is not None else super().legal()
        return self.row

    def advance(self, states, stopped):
        super().advance(states, stopped)
        self.row = None

    def reset(self):
        super().reset()
        self.row = None


@breaks("A18")
class RowIsOldAfterReset(RowIsOldAfterRollback):
    """The same with a reset."""

    def rollback(self, num_tokens):
        super().rollback(num_tokens)
        self.row = None

    def reset(self):
        row = self.row
        super().reset()
        self.row = row


@breaks("A23")
class ForkRevivesWhatWasRolledBack(Grammar):
    """A rollback moves an end; a fork copies what lies beyond it."""

    undone = ()

    def advance(self, states, stopped):
        super().advance(states, stopped)
        self.undone = ()

    def reset(self):
        super().reset()
        self.undone = ()

    def rollback(self, num_tokens):
        states = self.states.copy()
        super().rollback(num_tokens)
        self.undone = states[len(self.states) :]

    def fork(self):
        copy = super().fork()
        copy.states += self.undone
        return copy


@breaks("A23")
class ForkForgetsOwnStops(Grammar):
    def fork(self):
        copy = super().fork()
        copy.stops = self.vocabulary.stop_set
        return copy


@breaks("A23")
class ForkForgetsTermination(Grammar):
    def fork(self):
        copy = super().fork()
        copy.terminated = False
        return copy


@breaks("A23")
class ForksShareTheirRow(Grammar):
    """Forks share the place where the last row is remembered."""

    def reset(self):
        super().reset()
        self.rows = {}

    def legal(self):
        return self.rows.setdefault(self.num_accepted, super().legal())

    def advance(self, states, stopped):
        super().advance(states, stopped)
        self.rows.clear()

    def rollback(self, num_tokens):
        super().rollback(num_tokens)
        self.rows.clear()


@breaks("A20")
class RefusesNumpyIntegers(Grammar):
    def accept_tokens(self, request_id, tokens):
        return all(type(token) is int for token in tokens) and super().accept_tokens(request_id, tokens)


@breaks("A19")
class GivesUpAfterManyRefusals(Grammar):
    """The twentieth refused block is an error that stays."""

    refused = 0

    def accept_tokens(self, request_id, tokens):
        accepted = super().accept_tokens(request_id, tokens)
        self.refused += not accepted
        if self.refused == 20:
            self.error = GrammarError("too many refusals")
        return accepted


@breaks("A24")
class ScratchIsShared(Language):
    """All grammars compute their rows in one place, which is theirs only while no other thread runs."""

    place: ClassVar[list[Any]] = [None]

    def allowed(self, state):
        self.place[0] = state
        time.sleep(0.001)
        return frozenset(allowed_ids(self.place[0], self.vocabulary))
