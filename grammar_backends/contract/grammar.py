"""A grammar during one request: the protocol that inference engines use, the five primitives that an engine's
adapter writes, and `Grammar`, the one implementation of the former over the latter.

All semantics that no adapter should have to know live in `Grammar`: token bounds, the stop set, termination, what
counts as a step, rollback limits, dead ends and sticky errors. Every backend, also a stranger's, therefore has the
same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from grammar_backends.contract.bitmask import Bitmask, BitmaskRow, BitmaskTensor, check_rows
from grammar_backends.contract.forcing import canonical_continuation
from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import DeadEnd, GrammarError, UnsupportedFeature, trim

if TYPE_CHECKING:
    import torch

__all__ = ["Artifact", "BatchFiller", "Grammar", "GrammarMaker", "Matcher", "StructuredOutputGrammar"]


@runtime_checkable
class StructuredOutputGrammar(Protocol):
    """What an inference engine sees: the state of one request. Used by one thread at a time (A24).

    *History* is the list of accepted tokens, a stop token included; its length is `num_accepted`.
    """

    @property
    def num_accepted(self) -> int:
        """Length of the history, the stop token included (A4, A22)."""
        ...

    @property
    def max_rollback(self) -> int | None:
        """Steps that can be taken back; None is unbounded (A27)."""
        ...

    @property
    def error(self) -> GrammarError | None:
        """The sticky error, or None (A19). A dead end goes when it is rolled back, any other only by `reset`."""
        ...

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        """Advance over all of `tokens`, or change nothing (A1).

        ::

            terminated              -> True, no change (A3)
            errored                 -> False
            tokens end at the first legal stop token; later ones are ignored (A2)
            any of them is illegal, negative or out of range -> False, no change (A6, A7)
            otherwise               -> history grows by the tokens up to that stop token; True

        Never raises on token content (A20). `request_id` is used only in messages (A35).

        Raises:
            TypeError: something among the tokens is no integer; nothing changes.
        """
        ...

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The longest prefix that `accept_tokens` would apply entirely; a legal stop token is its last element.

        Pure (A8). `[]` when terminated or errored (A3, A19).
        """
        ...

    def rollback(self, num_tokens: int) -> None:
        """Return exactly to the state `num_tokens` steps ago (A15); a stop token is one step (A16).

        Raises:
            ValueError: negative, more than `num_accepted`, or beyond `max_rollback`; nothing changes (A17).
        """
        ...

    def fill_bitmask(self, bitmask: BitmaskTensor, row: int) -> bool:
        """Write which tokens may come next into the whole of one row; its previous content is never read (A12).

        ::

            terminated   -> only the stop tokens (A13)
            errored      -> raises GrammarError (A19)
            no legal token and not accepting -> sticky error, raises DeadEnd (A14)

        Args:
            bitmask: CPU int32 ``[rows, ceil(width / 32)]``.
            row: which row to write.

        Returns:
            False when the row is all ones, so that applying it changes nothing.

        Raises:
            BitmaskError: wrong shape, dtype, device, layout or row (A20).
        """
        ...

    def is_terminated(self) -> bool:
        """Whether a stop token was accepted (A11). A finished grammar that was not stopped is accepting only."""
        ...

    def is_accepting(self) -> bool:
        """Whether a stop token would be legal now; False once terminated or errored."""
        ...

    def reset(self) -> None:
        """Return to the initial state; clears termination, error, counters and history (A18)."""
        ...

    def fork(self) -> StructuredOutputGrammar:
        """An independent grammar in the same state, history included (A23)."""
        ...

    def forced_tokens(self) -> list[int]:
        """Tokens that must come next, in the tokenizer's own encoding; [] when nothing is forced (I1).

        Raises:
            UnsupportedFeature: the engine cannot tell.
        """
        ...

    def forced_bytes(self) -> bytes:
        """Bytes that must come next; b"" when nothing is forced (I1).

        Raises:
            UnsupportedFeature: the engine cannot tell.
        """
        ...


class Matcher(Protocol):
    """What a plugin writes for one request: primitives over text tokens, no policy.

    The layer calls it with valid ids of text or named tokens only: never a stop token, never a negative id, never an
    id beyond the vocabulary, never a rollback beyond what was consumed, and nothing after an exception.

    Attributes (optional):
        fills_stop_tokens: True when `fill_row` itself sets the vocabulary's stop bits exactly while accepting.
        native: the engine's own object, never exchanged for another, which its `BatchFiller` gets in the matcher's
            place: one object less that is not in the caches, for each request of each step.

    Optional methods: ``validate(tokens) -> int`` (as `consume`, without advancing), ``forced_bytes() -> bytes``,
    ``forced_tokens() -> list[int]`` (made of the forced bytes where it is absent),
    ``limit_rollback(num_tokens) -> None`` (called once, before the first token: no more than that, and the tokens of
    one `consume`, will be rolled back, so that older state can go; A33), ``check() -> None`` (raises when the
    last `fill_row` failed, for an engine whose failures look like the end of a text; called when its row allows no
    text), ``fill_at(address, nbytes) -> None`` (as `fill_row`, for an engine whose own call takes a pointer) with
    ``is_lost() -> bool`` (whether `check` would raise, also for a row without any token; asked after each `fill_at` in
    place of a look at the row, which costs more: what was just written is not yet in reach).
    """

    def consume(self, tokens: Sequence[int]) -> int:
        """Advance over the longest legal prefix and return its length."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Take back the last `num_tokens` consumed tokens."""
        ...

    def fill_row(self, row: BitmaskRow) -> None:
        """Write every word of the row: a bit is set when that token may come next."""
        ...

    def is_accepting(self) -> bool:
        """Whether the text so far is complete."""
        ...

    def fork(self) -> Matcher:
        """An independent matcher in the same state."""
        ...


class Artifact(Protocol):
    """A compiled spec inside an engine's adapter: immutable, used from any thread."""

    def new_matcher(self) -> Matcher:
        """A matcher in the initial state; must cost microseconds (A23)."""
        ...


@runtime_checkable
class GrammarMaker(Protocol):
    """An `Artifact` of an engine that has every semantics of `StructuredOutputGrammar` itself.

    Few engines do, and one that does gains little by it: the conformance suite judges both kinds alike.
    """

    def new_grammar(self, stop_token_ids: frozenset[int], max_rollback: int | None) -> StructuredOutputGrammar:
        """A grammar in its initial state; used instead of `Artifact.new_matcher`.

        Args:
            stop_token_ids: the stop set of this request, never empty (A10).
            max_rollback: steps that must be possible to take back; None is unbounded.
        """
        ...


@runtime_checkable
class BatchFiller(Protocol):
    """Optional for an engine's adapter: fills the rows of many matchers in one native call.

    It gets `Matcher.native` where a matcher has that.

    Several threads may call it at once, each with other matchers and other rows.

    Attributes (optional):
        finds_dead_ends: True when it raises where a row has no token, so that nobody has to look at the rows for that.
        releases_gil: True when other Python threads run during its calls, so that several threads fill more rows.

    Optional methods:
        ``fill_drafts(matchers, bitmask, rows, drafts) -> Sequence[int]``: for each matcher its row, and behind it one
        for each of its drafts, text tokens all, up to the first illegal one. Returns how many are legal, or -1 where
        the caller has to find out by the other methods. Every matcher is afterwards as it was.
        ``fill_tree(matcher, bitmask, row, tokens, first_child, next_sibling) -> None``: the row of each node of a
        tree of drafts, ``row + node``, node 0 being the matcher's own state; the links are -1 where there is none.
        The row of a node is zero when its token has no bit in its parent's. The matcher is afterwards as it was. Only
        for an engine whose rows are "full".
    """

    def fill_rows(self, matchers: Sequence[Any], bitmask: Bitmask, rows: Sequence[int]) -> None:
        """As `Matcher.fill_row` of each matcher on its row, stop bits included.

        Whatever it raises, the caller fills those rows again one by one, to find whose fault it was.
        """
        ...


class Grammar:
    """`StructuredOutputGrammar` over a `Matcher`. Made by `CompiledGrammar.new_grammar`.

    Args:
        open_rows: whether a row could be all ones (F17).

    Attributes:
        words: int32 words in the rows that it fills.
        batch: who can fill its row together with others, and what to hand over; None while it must fill alone.
            Not None also means that its rows after text tokens are the matcher's, and that it has the vocabulary's own
            stop tokens. A grammar that wraps another may hand on the other's while that is true of itself.
    """

    __slots__ = (
        "_address",
        "_artifact",
        "_direct",
        "_error",
        "_every_stop",
        "_filler",
        "_floor",
        "_is_direct",
        "_matcher",
        "_max_rollback",
        "_native_stops",
        "_num_accepted",
        "_rows",
        "_size",
        "_stops",
        "_tensor",
        "_terminated",
        "_usual_word",
        "_view",
        "_vocabulary",
        "_wary",
        "batch",
        "words",
    )

    def __init__(
        self,
        artifact: Artifact,
        vocabulary: Vocabulary,
        stops: frozenset[int],
        max_rollback: int | None,
        filler: BatchFiller | None = None,
        open_rows: bool = True,
    ) -> None:
        self._artifact = artifact
        self._vocabulary = vocabulary
        self._size = vocabulary.size
        self.words = vocabulary.words
        self._stops = stops
        self._max_rollback = max_rollback
        self._matcher = matcher = self._new_matcher()
        default_stops = stops is vocabulary.stop_set or stops == vocabulary.stop_set
        self._native_stops = default_stops and getattr(matcher, "fills_stop_tokens", False)
        # The vocabulary's own stop tokens are never text, also where the request brings others (A10).
        self._every_stop = stops if default_stops else stops | vocabulary.stop_set
        # Where nobody must read a row once it is filled, neither for dead ends nor since it could be all ones.
        self._is_direct = (
            self._native_stops and not open_rows and hasattr(matcher, "fill_at") and hasattr(matcher, "is_lost")
        )
        self._filler = filler if self._native_stops else None
        self.batch: tuple[BatchFiller, Any] | None
        self._direct: Any  # the matcher, while its `fill_at` and `is_lost` are all there is to a fill
        self._tensor: torch.Tensor = _NO_TENSOR  # the tensor filled last, and the view of it
        self._view: Bitmask
        self._address: int
        self._rows: dict[int, BitmaskRow]
        self._usual_word: int  # where a row that allows any text most often has a bit
        self._wary: bool  # that word has bits of stop tokens too
        self._num_accepted = 0
        self._floor = 0  # the earliest step that a bounded rollback can still reach
        self._terminated = False
        self._error: GrammarError | None = None
        self._resume()

    def _new_matcher(self) -> Matcher:
        matcher = self._artifact.new_matcher()
        if self._max_rollback is not None:
            limit = getattr(matcher, "limit_rollback", None)
            if limit is not None:
                limit(self._max_rollback)
        return matcher

    @property
    def num_accepted(self) -> int:
        return self._num_accepted

    @property
    def max_rollback(self) -> int | None:
        return self._max_rollback

    @property
    def error(self) -> GrammarError | None:
        return self._error

    @property
    def stop_set(self) -> frozenset[int]:
        """The stop set of its request."""
        return self._stops

    @property
    def usual_ids(self) -> range:
        """`Vocabulary.usual_ids` of its vocabulary."""
        return self._vocabulary.usual_ids

    def is_terminated(self) -> bool:
        return self._terminated

    def is_accepting(self) -> bool:
        if self._terminated or self._error is not None:
            return False
        try:
            return self._matcher.is_accepting()
        except Exception as error:
            self._fail(error)
            return False

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        if self._terminated:
            return True
        if self._error is not None:
            return False
        end = len(tokens)
        stop = False
        if end == 1:
            token = index(tokens[0])
            tokens = [token]
            if token in self._every_stop:
                if token not in self._stops:
                    return False
                end, stop = 0, True
            elif not 0 <= token < self._size:
                return False
        elif end:
            tokens = [index(token) for token in tokens]
            end, stop = self._text_run(tokens)
            if end < len(tokens) and not stop:
                return False
            tokens = tokens[:end]
        if end:
            try:
                consumed = self._matcher.consume(tokens)
                if consumed != end:
                    if consumed:
                        self._matcher.rollback(consumed)
                    return False
            except Exception as error:
                self._fail(error)
                return False
        if stop:
            if not self.is_accepting():
                if end and self._error is None:
                    self._undo(end)
                return False
            self._terminated = True
            self.batch = self._direct = None
            end += 1
        self._num_accepted += end
        if self._max_rollback is not None:
            self._floor = max(self._floor, self._num_accepted - self._max_rollback)
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        if self._terminated or self._error is not None or not len(tokens):
            return []
        tokens = [index(token) for token in tokens]
        end, stop = self._text_run(tokens)
        try:
            if stop:
                return self._validate_with_stop(tokens, end)
            validate = getattr(self._matcher, "validate", None)
            if validate is not None:
                return tokens[: validate(tokens[:end])]
            consumed = self._matcher.consume(tokens[:end])
            if consumed:
                self._matcher.rollback(consumed)
            return tokens[:consumed]
        except Exception as error:
            self._fail(error)
            return []

    def _validate_with_stop(self, tokens: list[int], end: int) -> list[int]:
        consumed = self._matcher.consume(tokens[:end]) if end else 0
        legal_stop = consumed == end and self._matcher.is_accepting()
        if consumed:
            self._matcher.rollback(consumed)
        return tokens[: consumed + legal_stop]

    def _text_run(self, tokens: Sequence[int]) -> tuple[int, bool]:
        """How many leading tokens are for the matcher, and whether a stop token follows them."""
        for place, token in enumerate(tokens):
            if token in self._every_stop:
                return place, token in self._stops
            if not 0 <= token < self._size:
                return place, False
        return len(tokens), False

    def rollback(self, num_tokens: int) -> None:
        num_tokens = index(num_tokens)
        if not num_tokens:
            return
        if num_tokens < 0:
            raise ValueError(f"cannot roll back {num_tokens} tokens")
        if num_tokens > self._num_accepted - self._floor:
            limit = f", max_rollback is {self._max_rollback}" if self._floor else ""
            raise ValueError(f"cannot roll back {num_tokens} of {self._num_accepted} accepted tokens{limit}")
        text_tokens = num_tokens - self._terminated
        if text_tokens and not self._is_lost():
            self._undo(text_tokens)
        self._terminated = False
        self._num_accepted -= num_tokens
        if isinstance(self._error, DeadEnd):
            self._error = None
        self._resume()

    def _resume(self) -> None:
        matcher, is_live = self._matcher, not self._terminated and self._error is None
        self._direct = matcher if is_live and self._is_direct else None
        self.batch = (self._filler, getattr(matcher, "native", matcher)) if is_live and self._filler else None

    def _undo(self, text_tokens: int) -> None:
        try:
            self._matcher.rollback(text_tokens)
        except Exception as error:
            self._fail(error)

    def _is_lost(self) -> bool:
        # After an engine's own failure its state means nothing; a dead end is a state like any other.
        return self._error is not None and not isinstance(self._error, DeadEnd)

    def fill_bitmask(self, bitmask: BitmaskTensor, row: int) -> bool:
        # The fastest of all paths in a decode loop: one tensor, seen before, in the same place.
        if bitmask is not self._tensor or bitmask.data_ptr() != self._address:
            self._look_at(bitmask)
        try:
            target = self._rows[row]
        except KeyError:
            check_rows(self._view, (row,), self.words)
            raise
        direct = self._direct
        if direct is not None:
            try:
                direct.fill_at(target.address, target.nbytes)
                if direct.is_lost():
                    self._check_row(target)
            except Exception as error:
                raise self._fail(error) from error
            return True
        if self._terminated or self._error is not None:
            self._fill_without_matcher(target)
            return True
        try:
            self._matcher.fill_row(target)
            if not self._native_stops:
                self._write_stops(target)
        except Exception as error:
            raise self._fail(error) from error
        word = target.memory[self._usual_word]
        if word == 0 or self._wary:
            self._check_row(target)
        return word != -1 or bool((target.array != -1).any())

    def _check_row(self, row: BitmaskRow) -> None:
        check = getattr(self._matcher, "check", None)
        if check is not None:
            try:
                check()
            except Exception as error:
                raise self._fail(error) from error
        if row.allows_nothing() and not self._stops <= self._vocabulary.stop_set:
            self._fill_one_by_one(row)
        if row.allows_nothing():
            raise self._fail(DeadEnd(f"no token is legal after {self._num_accepted} accepted tokens"))

    def _fill_one_by_one(self, row: BitmaskRow) -> None:
        """Allow what `validate_tokens` accepts.

        A row may leave out other spellings of forced text (A12). When the one that it has is a stop token of this
        request (A9), the others are all there is.
        """
        for id_ in range(self._vocabulary.size):
            if self.validate_tokens([id_]):
                row.array[id_ >> 5] |= _BIT[id_ & 31]

    def _look_at(self, bitmask: BitmaskTensor) -> None:
        view = Bitmask.of(bitmask)
        check_rows(view, (), self.words)
        self._view = view
        self._address = view.address
        self._rows = view.rows
        ids_per_word = 64 if self.words % 2 == 0 else 32
        self._usual_word = self._vocabulary.usual_id // ids_per_word
        self._wary = any(id_ // ids_per_word == self._usual_word for id_ in self._every_stop)
        self._tensor = _NO_TENSOR if isinstance(bitmask, np.ndarray) else bitmask

    def _fill_without_matcher(self, row: BitmaskRow) -> None:
        if self._error is not None:
            raise self._error
        row.array.fill(0)
        self._set_stops(row, allowed=True)

    def _write_stops(self, row: BitmaskRow) -> None:
        array = row.array
        for id_ in self._vocabulary.stop_ids:
            array[id_ >> 5] &= ~_BIT[id_ & 31]
        self._set_stops(row, allowed=self._matcher.is_accepting())

    def _set_stops(self, row: BitmaskRow, *, allowed: bool) -> None:
        array = row.array
        for id_ in self._stops:
            if allowed:
                array[id_ >> 5] |= _BIT[id_ & 31]
            else:
                array[id_ >> 5] &= ~_BIT[id_ & 31]

    def reset(self) -> None:
        self._matcher = self._new_matcher()
        self._num_accepted = 0
        self._floor = 0
        self._terminated = False
        self._error = None
        self._resume()

    def fork(self) -> Grammar:
        copy = Grammar.__new__(Grammar)
        for name in Grammar.__slots__:
            if name not in ("_address", "_rows", "_usual_word", "_view", "_wary"):
                setattr(copy, name, getattr(self, name))
        copy._tensor = _NO_TENSOR
        copy._matcher = self._new_matcher() if self._is_lost() else self._matcher.fork()
        copy._resume()
        return copy

    def forced_tokens(self) -> list[int]:
        if hasattr(self._matcher, "forced_bytes") and not hasattr(self._matcher, "forced_tokens"):
            return canonical_continuation(self._vocabulary, self, self.forced_bytes()).tokens
        tokens: list[int] = self._forced("forced_tokens", [])
        return tokens

    def forced_bytes(self) -> bytes:
        forced: bytes = self._forced("forced_bytes", b"")
        return forced

    def _forced(self, method: str, nothing: Any) -> Any:
        ask = getattr(self._matcher, method, None)
        if ask is None:
            raise UnsupportedFeature(f"this backend does not know {method.replace('_', ' ')}", keyword=method)
        if self._terminated or self._error is not None:
            return nothing
        try:
            return ask()
        except Exception as error:
            self._fail(error)
            return nothing

    def _fail(self, error: Exception) -> GrammarError:
        """Enter the sticky error state (A19): from here on nothing looks like success."""
        self.batch = self._direct = None
        if isinstance(error, GrammarError):
            self._error = error
        else:
            self._error = GrammarError(f"the engine failed: {type(error).__name__}: {trim(str(error))}")
        return self._error


_NO_TENSOR: Any = object()
"""Is no bitmask, whatever a caller passes as one."""

_BIT = [1 << bit for bit in range(31)] + [-(1 << 31)]
