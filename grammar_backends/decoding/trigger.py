"""A grammar for the parts of an output that follow a trigger: tool calls in free text, say (J)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import index

from grammar_backends.contract import StructuredOutputGrammar
from grammar_backends.contract.bitmask import BitmaskRow
from grammar_backends.decoding.gate import Gate, set_bits
from grammar_backends.decoding.markers import MarkerSearch, SearchPlace
from grammar_backends.errors import SpecError

__all__ = ["TriggerGate"]


class TriggerGate(Gate):
    """Free text until a trigger appears; then the grammar, to the end of the output or of the region.

    ::

        closed  any token; one that completes a trigger opens the gate. The grammar gets the trigger if that is
                implicit, and what stands behind a text or pattern in the same token (J2, J5). A token is illegal
                if it completes a trigger and the grammar refuses what it would get of it (F13)
        open    what the grammar allows
        bound   with a `bound`, exactly that token is legal in the place of stop tokens: when the grammar is accepting.
                The grammar does not get it. It closes the gate, which opens again only if it is to `rearm` (J3)

    Args:
        grammar: what constrains a region, in its initial state.
        triggers: what opens the gate; share one search between all requests.
        bound: the token that ends a region; None if only the end of the output does.
        rearm: a trigger after the bound opens the gate again, for the same grammar from its initial state.
        prompt: the tokens before the output. A trigger at their very end opens the gate at once, and one that
            they end with a part of can be completed; other triggers among them mean nothing.
        must_open, stop_token_ids: as for `Gate`.

    Raises:
        SpecError: the grammar refuses the trigger at the end of the prompt.
        ValueError: the bound or a stop id is outside the vocabulary, the bound or a token of a trigger is a stop token,
            or it is to rearm without a bound.
    """

    def __init__(
        self,
        grammar: StructuredOutputGrammar,
        triggers: MarkerSearch,
        *,
        bound: int | None = None,
        rearm: bool = False,
        prompt: Sequence[int] = (),
        must_open: bool = False,
        stop_token_ids: Collection[int] | None = None,
    ) -> None:
        super().__init__(grammar, triggers.vocabulary, stop_token_ids, must_open)
        self._triggers = triggers
        self._bound = None if bound is None else index(bound)
        self._rearm = rearm
        self._check_arguments()
        self._prompt_end = self._read(prompt)
        self.reset()

    def _check_arguments(self) -> None:
        self._check_markers(self._triggers)
        if self._bound is None:
            if self._rearm:
                raise ValueError("without a bound no region ends, so that no other can begin")
        else:
            self._checked([self._bound], "bound")

    def _read(self, prompt: Sequence[int]) -> tuple[SearchPlace, tuple[int, ...] | None]:
        """Where the search stands after the prompt, and the content with which the gate opens there, if it does."""
        place, match = self._triggers.start, None
        for token in prompt:
            place, match = self._triggers.follow(place, index(token))
        if match is None:
            return place, None
        if self._beginnings.refuses(match.content):
            raise SpecError(f"the grammar refuses the trigger at the end of the prompt, {match.marker}")
        return place, match.content

    def _begin(self) -> None:
        self._place, content = self._prompt_end
        if content is not None:
            self._open(content)

    def _take_closed(self, token: int) -> bool:
        if self._place is None:  # the only region is over
            return True
        place, match = self._triggers.follow(self._place, token)
        if match is not None and not self._open(match.content):
            return False
        self._place = place
        return True

    def _refused_ids(self) -> frozenset[int]:
        return frozenset() if self._place is None else self._refused_by(self._triggers, self._place)

    def _is_of_interest(self, tokens: Sequence[int]) -> bool:
        return self._bound is not None and any(token == self._bound or token in self.stop_set for token in tokens)

    def _take_open(self, request_id: str, token: int) -> bool:
        if self._bound is None or token not in (self._bound, *self.stop_set):
            return self._feed(request_id, token)
        if token != self._bound:
            return False
        if not super()._may_stop():
            return self._feed(request_id, token)
        self._region = None
        self._place = self._triggers.start if self._rearm else None
        return True

    def _may_stop(self) -> bool:
        return super()._may_stop() and not self._narrows()

    def _narrows(self) -> bool:
        return self._bound is not None and self._region is not None

    def _narrow(self, row: BitmaskRow) -> None:
        set_bits(row.array, self.stop_set, allowed=False)
        if self._bound is not None and super()._may_stop():
            set_bits(row.array, [self._bound], allowed=True)
