"""A grammar for what follows a model's reasoning, which is free, or at least free to end (F12, F13, J7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import index
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from grammar_backends.contract import StructuredOutputGrammar, Vocabulary
from grammar_backends.contract.bitmask import BitmaskRow
from grammar_backends.decoding.beginnings import Beginnings
from grammar_backends.decoding.gate import Gate, set_bits
from grammar_backends.decoding.markers import MarkerSearch, Match, SearchPlace, SequenceAutomaton, TokenMarker
from grammar_backends.errors import SpecError

__all__ = ["HostEnd", "ReasoningGate"]


class HostEnd:
    """The end of reasoning as the host tells it, in the place of markers. Share it between requests.

    Args:
        vocabulary: whose tokens they are.
        has_ended: is called with all tokens, those of the prompt first, and with the new ones among them, and says
            whether reasoning has ended. Called once with the prompt, if there is one, then once for each token that is
            tried; it must answer by its arguments alone, and neither keep nor change them.
        implicit_ids: tokens that end reasoning and are themselves content (F12).
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        has_ended: Callable[[Sequence[int], Sequence[int]], bool],
        implicit_ids: Collection[int] = (),
    ) -> None:
        self.vocabulary = vocabulary
        self.has_ended = has_ended
        self.implicit_ids = frozenset(map(index, implicit_ids))


AnyReasoningGate = TypeVar("AnyReasoningGate", bound="ReasoningGate")


class ReasoningGate(Gate):
    """Free reasoning until it ends; then the grammar.

    ::

        prompt     scanned once: reasoning is over if an end is in it, and no start after that. The grammar gets
                   nothing of the prompt
        reasoning  any token; one that completes an end opens the gate. The grammar gets an implicit end as its first
                   content; such an end is masked where the grammar refuses it (F12, F13)
        budget     after so many tokens of reasoning the terminator is forced: each row has exactly its next token
        over       what the grammar allows

    Args:
        grammar: what constrains what follows, in its initial state.
        ends: markers that end reasoning, or a `HostEnd`; share one between all requests.
        start: markers that begin reasoning, looked for in the prompt only; a `HostEnd` knows them itself.
        prompt: the tokens before the output.
        budget: tokens of reasoning, after which it is made to end; None for any number. Those of the terminator
            come on top.
        terminator: the tokens by which it is made to end, for this request; they end it whenever they appear. None
            for the first marker of tokens among `ends`, an explicit one before an implicit one.
        excluded_ids: tokens that are illegal in reasoning; they do not keep the terminator from being forced.
        constrain_reasoning: the grammar describes the reasoning, too, and gets every token from the first on. The
            budget and `excluded_ids` narrow its rows meanwhile, the budget where the grammar allows the terminator.
        must_open, stop_token_ids: as for `Gate`.

    Raises:
        SpecError: the grammar refuses every end that there is, so that reasoning could never end. Of an implicit
            pattern that is not known before it is found.
        ValueError: a budget is negative, or no terminator is known for it; an id is outside the vocabulary; a stop
            token is among the ends, the terminator or the excluded ids; there are both a `HostEnd` and a start.
    """

    def __init__(
        self,
        grammar: StructuredOutputGrammar,
        ends: MarkerSearch | HostEnd,
        *,
        start: MarkerSearch | None = None,
        prompt: Sequence[int] = (),
        budget: int | None = None,
        terminator: Sequence[int] | None = None,
        excluded_ids: Collection[int] = (),
        constrain_reasoning: bool = False,
        must_open: bool = True,
        stop_token_ids: Collection[int] | None = None,
    ) -> None:
        super().__init__(grammar, ends.vocabulary, stop_token_ids, must_open)
        if budget is not None and budget < 0:
            raise ValueError(f"a budget of reasoning must not be negative: {budget}")
        self._budget = budget
        self._excluded = frozenset(self._checked(excluded_ids, "excluded ids"))
        self._constrains = constrain_reasoning
        prompt = [*map(index, prompt)]  # what a tensor holds equals no id
        self._ends: MarkerSearch | _HostSearch
        begin: SearchPlace | int | None
        if isinstance(ends, HostEnd):
            if start is not None:
                raise ValueError("a host that tells the end of reasoning knows its start as well")
            self._checked(ends.implicit_ids, "implicit ids")
            self._ends = _HostSearch(ends, prompt)
            begin = None if len(prompt) and ends.has_ended(prompt, prompt) else len(prompt)
            self._terminator = self._checked(terminator or (), "terminator")
        else:
            self._check_markers(ends)
            self._ends = ends
            begin = _place_after(prompt, ends, start)
            self._terminator = self._checked(terminator or self._usual_terminator(ends), "terminator")
        if budget is not None and not self._terminator:
            raise ValueError("a budget of reasoning needs a terminator")
        self._forcing = SequenceAutomaton([self._terminator] if self._terminator else [])
        self._start = None if begin is None else Reasoning(begin)
        self.reset()

    def _usual_terminator(self, ends: MarkerSearch) -> tuple[int, ...]:
        legal = [m for m in ends.markers if self._constrains or not (m.implicit and self._refuses_marker(m))]
        if not legal:
            raise SpecError("the grammar begins with none of the ends of reasoning, all of which are implicit")
        of_tokens = (marker for marker in legal if isinstance(marker, TokenMarker))
        return tuple(min(of_tokens, key=lambda marker: marker.implicit, default=NO_TOKENS).tokens)

    def _begin(self) -> None:
        self._place = self._start
        if self._start is None or self._constrains:
            self._open(())

    def _take_closed(self, token: int) -> bool:
        if self._illegal(token, self._forced_token()) or token in self._refused_ids():
            return False
        place, match = self._follow(token)
        if match is not None and not self._open(match.content):
            return False
        self._place = place
        return True

    def _illegal(self, token: int, forced: int | None) -> bool:
        return token in self._excluded if forced is None else token != forced

    def _follow(self, token: int) -> tuple[Reasoning | None, Match | None]:
        """Where reasoning is after one more token, and what ended it, if anything."""
        place: Reasoning = self._place
        search, match = self._ends.follow(place.search, token)
        forcing = self._forcing.follow(place.forcing, token)
        if match is None and self._forcing.found[forcing] is not None:
            match = Match(TokenMarker(self._terminator), ())
        return (Reasoning(search, place.taken + 1, forcing), None) if match is None else (None, match)

    def _forced_token(self) -> int | None:
        """The terminator's next token, once the budget is spent."""
        place: Reasoning | None = self._place
        if place is None or self._budget is None or place.taken < self._budget:
            return None
        return self._terminator[place.forcing]

    def _refused_ids(self) -> frozenset[int]:
        # What a host's end refuses does not depend on the place, and no two of its places are the same.
        return self._refused_by(self._ends, None if isinstance(self._ends, _HostSearch) else self._place.search)

    def _closed_row(self) -> NDArray[np.int32]:
        forced = self._forced_token()
        if forced is not None:
            return self._row_of({forced} - self._refused_ids())
        return self._free_row(self._refused_ids() | self._excluded)

    # -- where the grammar describes the reasoning, too

    def _is_of_interest(self, tokens: Sequence[int]) -> bool:
        return self._place is not None

    def _take_open(self, request_id: str, token: int) -> bool:
        if self._place is None:  # reasoning ended with an earlier token of the block
            return self._feed(request_id, token)
        if self._illegal(token, self._narrowed_to()) or not self._feed(request_id, token):
            return False
        if token not in self.stop_set:
            self._place, _ = self._follow(token)
        return True

    def _narrowed_to(self) -> int | None:
        """The forced token where the grammar allows it; elsewhere the budget has to wait."""
        forced = self._forced_token()
        return None if forced is None or self._region_refuses(forced) else forced

    def _narrows(self) -> bool:
        return self._place is not None and self._region is not None and bool(self._excluded or self._budget is not None)

    def _narrow(self, row: BitmaskRow) -> None:
        forced = self._narrowed_to()
        if forced is None:
            set_bits(row.array, self._excluded, allowed=False)
        else:
            row.array[:] = self._row_of({forced})

    def _may_stop(self) -> bool:
        forced = self._forced_token() if self._region is None else self._narrowed_to()
        return forced is None and super()._may_stop()

    def fork(self: AnyReasoningGate) -> AnyReasoningGate:
        copy = super().fork()
        copy._ends = self._ends.fork()
        return copy


class Reasoning(NamedTuple):
    """Where reasoning is: in the search for its end, in tokens, and in the terminator."""

    search: Any
    taken: int = 0
    forcing: int = 0


NO_TOKENS = TokenMarker(())


class _HostSearch:
    """As `MarkerSearch`, asking a host; for one request. A place is a number of tokens, the prompt's included."""

    def __init__(self, end: HostEnd, prompt: Sequence[int]) -> None:
        self._end = end
        self._tokens = [*prompt]

    def follow(self, place: int, token: int) -> tuple[int, Match | None]:
        del self._tokens[place:]  # what was taken back
        self._tokens.append(token)
        if not self._end.has_ended(self._tokens, (token,)):
            return place + 1, None
        content = (token,) if token in self._end.implicit_ids else ()
        return place + 1, Match(TokenMarker((token,), implicit=bool(content)), content)

    def refused(self, place: int | None, beginnings: Beginnings) -> frozenset[int]:
        return frozenset(id_ for id_ in self._end.implicit_ids if beginnings.refuses((id_,)))

    def fork(self) -> _HostSearch:
        return _HostSearch(self._end, self._tokens)


def _place_after(prompt: Sequence[int], ends: MarkerSearch, start: MarkerSearch | None) -> SearchPlace | None:
    """Where the search for an end stands after the prompt; None when reasoning is over there."""
    ended, place = ends.find_last(prompt)
    started = start.find_last(prompt)[0] if start is not None else 0
    return None if ended > started else place
