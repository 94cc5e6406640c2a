"""fill_bitmask: what a row holds, which words are written, dead ends, and batches."""

from __future__ import annotations

import itertools

from broken_engines.fault import FAULTS, Fault, breaks
from broken_engines.right import Engine, Grammar, Language
from grammar_backends.contract import Bitmask, pack_ids
from grammar_backends.errors import DeadEnd


@breaks("A12")
class MaskTooWide(Grammar):
    def legal(self):
        legal = super().legal()
        text = (id_ for id_, token in enumerate(self.vocabulary.text_tokens) if token and id_ not in legal)
        return legal | set(itertools.islice(text, not self.terminated))


@breaks("A12")
class MaskTooNarrow(Grammar):
    def legal(self):
        legal = super().legal()
        return legal - {max(legal - self.stops, default=None)} if len(legal - self.stops) > 1 else legal


@breaks("A12", vocabulary="adversarial")
class AllowsByTheFirstByte(Language):
    """Rows ask only for the first byte of each token, while accepting asks for all."""

    def allowed(self, state):
        tokens = enumerate(self.vocabulary.text_tokens)
        return frozenset(id_ for id_, token in tokens if token and state.step(token[0]) is not None)


@breaks("A12", vocabulary="adversarial")
class AllowsPaddedIds(Grammar):
    def legal(self):
        return super().legal() | set(range(self.vocabulary.size, self.vocabulary.width))


@breaks("A12")
class SetsTailBits(Grammar):
    """The bits after the last id, in the last word."""

    def write(self, view, row, legal):
        return super().write(view, row, legal | set(range(self.vocabulary.width, self.vocabulary.words * 32)))


@breaks("A12")
class KeepsStaleWords(Grammar):
    """Words without any legal token are not written."""

    def write(self, view, row, legal):
        array = view.rows[row].array
        words = pack_ids(legal, self.vocabulary.width)
        array[words != 0] = words[words != 0]
        return True


@breaks("A12")
class ClearsOnlyRowZero(Grammar):
    """Other rows keep the bits that were set."""

    def write(self, view, row, legal):
        before = view.rows[row].array.copy() * (row > 0)
        masked = super().write(view, row, legal)
        view.rows[row].array[:] |= before
        return masked


@breaks("A12")
class WritesTheNextRowToo(Grammar):
    def write(self, view, row, legal):
        if row + 1 < view.num_rows:
            view.rows[row + 1].array[:1] = 0
        return super().write(view, row, legal)


@breaks("A12")
class SaysThatNothingIsMasked(Grammar):
    def write(self, view, row, legal):
        super().write(view, row, legal)
        return False


@breaks("A12")
class LooksAtTheFirstWord(Grammar):
    """Whether a row masks anything is read from its first word."""

    def write(self, view, row, legal):
        super().write(view, row, legal)
        return bool(view.rows[row].array[0] != -1)


@breaks("A12", vocabulary="adversarial")
class MasksDuplicates(Language):
    """Of tokens with the same bytes only the first is in the row, though rows are declared to be full."""

    def allowed(self, state):
        tokens = self.vocabulary.text_tokens
        return frozenset({tokens[id_]: id_ for id_ in sorted(super().allowed(state), reverse=True)}.values())


@breaks("A12")
class BatchDropsStops(Engine):
    def fill_rows(self, matchers, bitmask, rows):
        super().fill_rows(matchers, bitmask, rows)
        for row in rows:
            bitmask.array[row] &= ~pack_ids(self.vocabulary.stop_set, self.vocabulary.width)


@breaks("A12")
class BatchRepeatsARow(Engine):
    """The last row of a batch is that of the one before."""

    def fill_rows(self, matchers, bitmask, rows):
        super().fill_rows(matchers, bitmask, rows)
        if len(rows) > 1:
            bitmask.array[rows[-1]] = bitmask.array[rows[-2]]


@breaks("A12")
class BatchFillsInOrder(Engine):
    """The rows are filled from the first on, whichever were asked for."""

    def fill_rows(self, matchers, bitmask, rows):
        super().fill_rows(matchers, bitmask, sorted(rows))


@breaks("A12")
class BatchOfOneFillsRowZero(Engine):
    def fill_rows(self, matchers, bitmask, rows):
        super().fill_rows(matchers, bitmask, rows if len(rows) > 1 else [0])


@breaks("A14")
class FillsEmptyRows(Grammar):
    """A dead end is no error."""

    def fill_bitmask(self, bitmask, row):
        try:
            return super().fill_bitmask(bitmask, row)
        except DeadEnd:
            self.error = None
            return self.write(Bitmask.of(bitmask), row, frozenset())


@breaks("A14")
class DeadEndLooksLikeTheEnd(Grammar):
    """The row of a dead end allows the stop tokens."""

    def fill_bitmask(self, bitmask, row):
        try:
            return super().fill_bitmask(bitmask, row)
        except DeadEnd:
            return self.write(Bitmask.of(bitmask), row, self.stops)


@breaks("A14")
class ForgetsDeadEnds(Grammar):
    """A dead end raises, but is no lasting error."""

    def fill_bitmask(self, bitmask, row):
        try:
            return super().fill_bitmask(bitmask, row)
        except DeadEnd:
            self.error = None
            raise


@breaks("A14")
class RollbackKeepsTheDeadEnd(Grammar):
    def rollback(self, num_tokens):
        error = self.error
        super().rollback(num_tokens)
        self.error = error


@breaks("A14")
class ResetKeepsTheDeadEnd(Grammar):
    def reset(self):
        error = getattr(self, "error", None)
        super().reset()
        self.error = error


@breaks("A26")
class RowsVaryFromEngineToEngine(Grammar):
    """One token more or less, by which compilation of the spec it was."""

    compiled = itertools.count()

    def legal(self):
        legal = super().legal()
        mine = vars(self.language).setdefault("number", next(self.compiled))
        text = sorted(legal - self.stops)
        return legal - set(text[:1]) if len(text) > 1 and mine % 2 else legal


@breaks("A28")
class EndsInsideACharacter(Language):
    def accepting(self, state):
        bytes_ = [byte for byte in range(256) if state.step(byte) is not None]
        inside = bool(bytes_) and all(0x80 <= byte < 0xC0 for byte in bytes_)
        return inside or super().accepting(state)


@breaks("A29", vocabulary="adversarial")
class ControlTokensAreText(Language):
    """Control tokens match the text of their names."""

    def text(self, token):
        names = self.vocabulary.special_names
        return names[token].encode() if token in names else super().text(token)

    def allowed(self, state):
        named = {id_ for id_ in self.vocabulary.special_ids if self.follow(state, id_) is not None}
        return super().allowed(state) | named


@breaks("A30")
class EmptyTextIsNoText(Grammar):
    """Nothing is complete before its first token."""

    def is_accepting(self):
        return self.num_accepted > 0 and super().is_accepting()


FAULTS.append(Fault("B7", ControlTokensAreText, vocabulary="adversarial"))
