"""What all gates share: a gate holds a grammar back until something appears in the output, and is a grammar itself.

While a gate is closed, its rows allow the whole vocabulary; once it opens, what follows goes to the grammar. One log of
what the gate was before each step makes rollback exact across any number of openings and closings (J4, A15).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Sequence
from operator import index
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from grammar_backends.contract import Bitmask, BitmaskTensor, StructuredOutputGrammar, Vocabulary, pack_ids
from grammar_backends.contract.bitmask import BitmaskRow, check_rows
from grammar_backends.decoding.beginnings import Beginnings
from grammar_backends.decoding.markers import MarkerSearch, PatternMarker, TextMarker, TokenMarker
from grammar_backends.errors import DeadEnd, GrammarError, trim

__all__ = ["Gate"]

MAX_PLACES = 64
"""Places of a search of which a gate keeps what is refused there: with patterns there is no end of them (A33)."""

MAX_FREE_ROWS = 16
"""Rows of a closed gate that it keeps."""


class Region:
    """One stretch of output that the grammar constrains: from where a gate opened to where it closes again."""

    __slots__ = ("grammar",)

    def __init__(self, grammar: StructuredOutputGrammar) -> None:
        self.grammar = grammar


class Step(NamedTuple):
    """One accepted token: whether the grammar of an open region got it, and what the gate was before (J4)."""

    place: Any
    region: Region | None
    opened_at: int | None
    fed: bool


AnyGate = TypeVar("AnyGate", bound="Gate")


class Gate(ABC):
    """A grammar that constrains only a part of the output; itself a `StructuredOutputGrammar`.

    Closed, it accepts any token of the vocabulary but the stop tokens, of which see `must_open`, and its row allows the
    same: padded ids and the bits past the width are 0 as in every row (A12), so that only where there are neither the
    row is all ones and `fill_bitmask` returns False. Nothing is forced then (I6). Open, it is the grammar.
    Either way one token is one step: of the history, of `num_accepted` and of `rollback`.

    Args:
        grammar: in the state in which a region starts. It is only forked, never advanced. A gate is one, too (J7).
        vocabulary: whose rows are filled.
        stop_token_ids: the stop set of the request, as given to `CompiledGrammar.new_grammar`; None or empty for the
            grammar's own, or the vocabulary's where the grammar does not tell.
        must_open: no stop token is legal before the grammar has constrained something, so that the request cannot end
            without it. Otherwise a stop token ends the request in a closed gate, as everywhere, and
            `constraint_activated` tells that nothing was constrained (J8).

    Attributes:
        vocabulary, must_open: as given.
        stop_set: the stop set of the request.
        words: int32 words in the rows that it fills.
        usual_ids: `Vocabulary.usual_ids`.

    Raises:
        ValueError: a stop id is outside the vocabulary.
    """

    def __init__(
        self,
        grammar: StructuredOutputGrammar,
        vocabulary: Vocabulary,
        stop_token_ids: Collection[int] | None,
        must_open: bool,
    ) -> None:
        own = getattr(grammar, "stop_set", vocabulary.stop_set)
        self.stop_set: frozenset[int] = frozenset(map(index, stop_token_ids or own))
        for id_ in self.stop_set:
            if not 0 <= id_ < vocabulary.size:
                raise ValueError(f"stop id {id_} is outside 0..{vocabulary.size - 1}")
        self.vocabulary = vocabulary
        self.must_open = must_open
        self.words = vocabulary.words
        self.usual_ids = vocabulary.usual_ids
        self._template = grammar
        self._beginnings = Beginnings(grammar, vocabulary)
        self._refused_at: dict[Hashable, frozenset[int]] = {}
        self._free_rows: dict[tuple[bool, frozenset[int]], NDArray[np.int32]] = {}
        self._log: deque[Step] = deque(maxlen=grammar.max_rollback)
        self._place: Any = None  # where the gate is in what it looks for
        self._region: Region | None = None
        self._opened_at: int | None = None
        self._num_accepted = 0
        self._stopped = False  # by a stop token in the closed gate
        self._error: GrammarError | None = None

    def _checked(self, ids: Collection[int], what: str) -> tuple[int, ...]:
        checked = tuple(map(index, ids))
        for id_ in checked:
            if not 0 <= id_ < self.vocabulary.size or id_ in self.stop_set | self.vocabulary.stop_set:
                raise ValueError(f"{what}: {id_} is a stop token or outside 0..{self.vocabulary.size - 1}")
        return checked

    def _check_markers(self, search: MarkerSearch) -> None:
        for marker in search.markers:
            if isinstance(marker, TokenMarker):
                self._checked(marker.tokens, "marker")

    # -- what a kind of gate decides

    @abstractmethod
    def _begin(self) -> None:
        """Set `_place`, and open the gate if it is open before the first token."""

    @abstractmethod
    def _take_closed(self, token: int) -> bool:
        """One token of text in a closed gate; False when it is illegal, and nothing changes."""

    @abstractmethod
    def _refused_ids(self) -> frozenset[int]:
        """Ids that are illegal in the closed gate now, besides stop tokens."""

    @abstractmethod
    def _is_of_interest(self, tokens: Sequence[int]) -> bool:
        """Whether in an open gate some of these may be more than food for the grammar."""

    @abstractmethod
    def _take_open(self, request_id: str, token: int) -> bool:
        """One token in an open gate that is of interest; False when it is illegal, and nothing changes."""

    @abstractmethod
    def _narrows(self) -> bool:
        """Whether other tokens are legal now than the grammar of the open region says."""

    @abstractmethod
    def _narrow(self, row: BitmaskRow) -> None:
        """Change a row that this grammar filled to what the gate makes of it."""

    # -- what can be asked

    @property
    def num_accepted(self) -> int:
        return self._num_accepted

    @property
    def max_rollback(self) -> int | None:
        return self._template.max_rollback

    @property
    def error(self) -> GrammarError | None:
        return self._error or (None if self._region is None else self._region.grammar.error)

    @property
    def is_open(self) -> bool:
        """Whether the grammar constrains what comes next; with gates in a gate, whether all are open."""
        return self._region is not None and getattr(self._region.grammar, "is_open", True)

    @property
    def constraint_activated(self) -> bool:
        """Whether the grammar has constrained any of the output so far (J8)."""
        if self._opened_at is None:
            return False
        return self._region is None or getattr(self._region.grammar, "constraint_activated", True)

    @property
    def opened_at(self) -> int | None:
        """How many tokens were accepted when this gate first opened; None while it never has."""
        return self._opened_at

    @property
    def batch(self) -> Any:
        """Who can fill its row together with others, as for `Grammar`."""
        if self._region is None or self._error is not None or self._narrows():
            return None
        return getattr(self._region.grammar, "batch", None)

    def is_terminated(self) -> bool:
        return self._stopped or (self._region is not None and self._region.grammar.is_terminated())

    def is_accepting(self) -> bool:
        if self.is_terminated() or self.error is not None:
            return False
        return self._may_stop()

    def _may_stop(self) -> bool:
        if self._region is not None:
            return self._region.grammar.is_accepting()
        return not self.must_open or self._opened_at is not None

    def forced_tokens(self) -> list[int]:
        return [] if self._region is None or self._narrows() else self._region.grammar.forced_tokens()

    def forced_bytes(self) -> bytes:
        return b"" if self._region is None or self._narrows() else self._region.grammar.forced_bytes()

    # -- steps

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        if self.is_terminated():
            return True
        if self.error is not None:
            return False
        tokens = [index(token) for token in tokens]
        if self._region is not None and not self._is_of_interest(tokens):
            return self._feed_all(self._region, request_id, tokens)
        before = self._save(fork=len(tokens) > 1)
        steps = self._walk(request_id, tokens)
        if len(steps) < len(tokens) and not self.is_terminated():
            self._restore(before)
            return False
        self._log.extend(steps)
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        if self.is_terminated() or self.error is not None:
            return []
        tokens = [index(token) for token in tokens]
        if self._region is not None and not self._is_of_interest(tokens):
            return self._region.grammar.validate_tokens(tokens)
        before = self._save(fork=True)
        legal = len(self._walk("", tokens))
        self._restore(before)
        return tokens[:legal]

    def _feed_all(self, region: Region, request_id: str, tokens: Sequence[int]) -> bool:
        """The usual case: the grammar gets everything."""
        grammar = region.grammar
        before = grammar.num_accepted
        if not grammar.accept_tokens(request_id, tokens):
            return False
        count = grammar.num_accepted - before
        self._log.extend([Step(self._place, region, self._opened_at, True)] * count)
        self._num_accepted += count
        return True

    def _walk(self, request_id: str, tokens: Sequence[int]) -> list[Step]:
        """Take tokens one by one, up to the first illegal one or the end of the request."""
        steps: list[Step] = []
        for token in tokens:
            step = Step(self._place, self._region, self._opened_at, self._region is not None)
            if not self._take(request_id, token):
                break
            # What an open gate takes without feeding it closes the gate.
            steps.append(step if self._region is step.region else step._replace(fed=False))
            self._num_accepted += 1
            if self._region is not None and self._opened_at is None:
                self._opened_at = self._num_accepted
            if self.is_terminated():
                break
        return steps

    def _take(self, request_id: str, token: int) -> bool:
        try:
            if self._region is not None:
                return self._take_open(request_id, token)
            if token in self.stop_set:
                self._stopped = self._may_stop()
                return self._stopped
            if token in self.vocabulary.stop_set or not 0 <= token < self.vocabulary.size:
                return False
            return self._take_closed(token)
        except Exception as error:  # of the host's own code (A20)
            self._error = GrammarError(f"a gate failed: {type(error).__name__}: {trim(str(error))}")
            return False

    def _region_refuses(self, token: int) -> bool:
        return self._region is None or self._region.grammar.validate_tokens([token]) != [token]

    def _feed(self, request_id: str, token: int) -> bool:
        return self._region is not None and self._region.grammar.accept_tokens(request_id, [token])

    def _open(self, content: tuple[int, ...] | None) -> bool:
        """Start a region that begins with `content`; False when the grammar does not begin so."""
        if content is None:
            return False
        grammar = self._template.fork()
        if content and not grammar.accept_tokens("", content):
            self._error = grammar.error
            return False
        self._region = Region(grammar)
        return True

    def _refused_by(self, search: Any, place: Hashable) -> frozenset[int]:
        """Ids that would complete a marker of which the grammar refuses what it would get (F13)."""
        refused = self._refused_at.get(place)
        if refused is None:
            if len(self._refused_at) >= MAX_PLACES:
                self._refused_at.clear()
            refused = self._refused_at[place] = search.refused(place, self._beginnings)
        return refused

    def _refuses_marker(self, marker: TokenMarker | TextMarker | PatternMarker) -> bool:
        """Whether the grammar is known not to begin with an implicit marker; of a pattern that is not known."""
        if isinstance(marker, PatternMarker):
            return False
        tokens = marker.tokens if isinstance(marker, TokenMarker) else self.vocabulary.spell(marker.text.encode())
        return self._beginnings.refuses(tuple(tokens))

    def _save(self, *, fork: bool) -> tuple[Any, ...]:
        """What `_restore` needs. With `fork`, the open region goes on in a copy of its grammar."""
        region = self._region
        grammar = None if region is None else region.grammar
        if fork and region is not None:
            region.grammar = region.grammar.fork()
        return self._place, region, grammar, self._opened_at, self._num_accepted

    def _restore(self, saved: tuple[Any, ...]) -> None:
        failed = self.error
        self._place, self._region, grammar, self._opened_at, self._num_accepted = saved
        if self._region is not None:
            self._region.grammar = grammar
        self._stopped = False
        if failed is not None and not isinstance(failed, DeadEnd):
            self._error = failed

    def rollback(self, num_tokens: int) -> None:
        num_tokens = index(num_tokens)
        if num_tokens < 0:
            raise ValueError(f"cannot roll back {num_tokens} tokens")
        if num_tokens > len(self._log):
            limit = f", max_rollback is {self.max_rollback}" if len(self._log) < self._num_accepted else ""
            raise ValueError(f"cannot roll back {num_tokens} of {self._num_accepted} accepted tokens{limit}")
        if num_tokens:
            self._keep_failure()
            self._go_back(num_tokens)

    def _go_back(self, num_tokens: int) -> None:
        region, fed = self._region, 0
        for _ in range(num_tokens):
            step = self._log.pop()
            if step.region is not region:
                # The step opened a region, which goes as a whole, or closed one, which is as that step found it.
                region, fed = step.region, 0
            elif step.fed:
                fed += 1
        self._place, self._region, self._opened_at, _ = step
        if region is not None and fed:
            region.grammar.rollback(fed)
        self._num_accepted -= num_tokens
        self._stopped = False

    def _keep_failure(self) -> None:
        """A dead end goes with what led there; a failure of the engine stays, also when its region goes (A19)."""
        error = self.error
        self._error = None if isinstance(error, DeadEnd) else error

    def reset(self) -> None:
        self._log.clear()
        self._region = None
        self._num_accepted = 0
        self._stopped = False
        self._error = None
        self._begin()
        self._opened_at = None if self._region is None else 0

    def fork(self: AnyGate) -> AnyGate:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._template = self._template.fork()  # used by one thread at a time, as every grammar (A24)
        copy._beginnings = self._beginnings.fork(copy._template)
        regions = {id(step.region): step.region for step in self._log if step.region is not None}
        if self._region is not None:
            regions[id(self._region)] = self._region
        copies = {key: Region(region.grammar.fork()) for key, region in regions.items()}
        copy._log = deque(
            (step if step.region is None else step._replace(region=copies[id(step.region)]) for step in self._log),
            maxlen=self._log.maxlen,
        )
        copy._region = None if self._region is None else copies[id(self._region)]
        return copy

    # -- rows

    def fill_bitmask(self, bitmask: BitmaskTensor, row: int) -> bool:
        if self._region is not None and self._error is None:
            masked = self._region.grammar.fill_bitmask(bitmask, row)
            if not self._narrows() or self._region.grammar.is_terminated():
                return masked
        view = Bitmask.of(bitmask)
        check_rows(view, (row,), self.words)
        if self._error is not None:
            raise self._error
        target = view.rows[row]
        if self._region is not None:
            self._narrow(target)
        else:
            target.array[:] = self._row_of(self.stop_set) if self._stopped else self._closed_row()
        if not target.array.any():
            self._error = DeadEnd(f"no token is legal after {self._num_accepted} accepted tokens")
            raise self._error
        return bool((target.array != -1).any())

    def _closed_row(self) -> NDArray[np.int32]:
        """What is legal while the gate is closed, int32 ``[words]``."""
        return self._free_row(self._refused_ids())

    def _free_row(self, illegal: frozenset[int]) -> NDArray[np.int32]:
        """The whole vocabulary without `illegal`, and without the stop tokens that are not legal now."""
        key = self._may_stop(), illegal
        row = self._free_rows.get(key)
        if row is None:
            if len(self._free_rows) >= MAX_FREE_ROWS:
                self._free_rows.clear()
            row = self._free_rows[key] = vocabulary_row(self.vocabulary)
            row &= ~pack_ids(illegal | self.vocabulary.stop_set, self.vocabulary.width)
            set_bits(row, self.stop_set, allowed=self._may_stop())
        return row

    def _row_of(self, ids: Collection[int]) -> NDArray[np.int32]:
        row = np.zeros(self.words, dtype=np.int32)
        set_bits(row, ids, allowed=True)
        return row


def vocabulary_row(vocabulary: Vocabulary) -> NDArray[np.int32]:
    """A row, int32 ``[words]``, that allows every id of a vocabulary and no padded one."""
    row = np.zeros(vocabulary.words, dtype=np.int32)
    row[: vocabulary.size >> 5] = -1
    set_bits(row, range(vocabulary.size & ~31, vocabulary.size), allowed=True)
    return row


def set_bits(row: NDArray[np.int32], ids: Iterable[int], *, allowed: bool) -> None:
    """Allow or mask ids in a row, int32 ``[words]``."""
    bits = row.view(np.uint32)
    for id_ in ids:
        if allowed:
            bits[id_ >> 5] |= np.uint32(1 << (id_ & 31))
        else:
            bits[id_ >> 5] &= ~np.uint32(1 << (id_ & 31))
