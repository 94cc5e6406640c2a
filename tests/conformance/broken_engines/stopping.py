"""Stop tokens: when they are legal, which they are, and what comes after them."""

from __future__ import annotations

from broken_engines.fault import breaks
from broken_engines.right import Grammar


@breaks("A9")
class StopsAnywhere(Grammar):
    """A stop token is accepted wherever it comes, though the row has it only at the end."""

    def walk(self, tokens):
        states, stopped = super().walk(tokens)
        return states, stopped or (len(states) < len(tokens) and tokens[len(states)] in self.stops)


@breaks("A9")
class AllowsAnEarlyStop(Grammar):
    """The row has the stop tokens everywhere."""

    def legal(self):
        return super().legal() | self.stops


@breaks("A9")
class MasksTheStop(Grammar):
    def legal(self):
        legal = super().legal()
        return legal if self.terminated else legal - self.stops or legal


@breaks("A9")
class TextReadingWins(Grammar):
    """A stop token that could also go on as text is text."""

    def walk(self, tokens):
        states, state = [], self.state
        for token in tokens:
            following = self.follow(state, int(token))
            if following is None:
                return states, token in self.stops and self.language.accepting(state)
            states.append(state := following)
        return states, False


@breaks("A9")
class StopIsNoStep(Grammar):
    @property
    def num_accepted(self):
        return super().num_accepted - self.terminated

    def rollback(self, num_tokens):
        super().rollback(num_tokens)


@breaks("A9")
class JudgesTheStopBeforeTheBlock(Grammar):
    """A block with text and a stop token is judged by the state before the text."""

    def walk(self, tokens):
        states, stopped = super().walk(tokens)
        if len(states) < len(tokens) and tokens[len(states)] in self.stops:
            stopped = self.language.accepting(self.state)
        return states, stopped


@breaks("A10", vocabulary="adversarial")
class SetsOnlyTheFirstStop(Grammar):
    def legal(self):
        return super().legal() - (self.stops - {min(self.stops)})


@breaks("A10")
class IgnoresOwnStops(Grammar):
    def __init__(self, language, stops, max_rollback):
        super().__init__(language, language.vocabulary.stop_set, max_rollback)


@breaks("A10")
class AddsOwnStops(Grammar):
    def __init__(self, language, stops, max_rollback):
        super().__init__(language, stops | language.vocabulary.stop_set, max_rollback)


@breaks("A10")
class SharesStops(Grammar):
    """The stop ids of the request that was made last are those of all."""

    def __init__(self, language, stops, max_rollback):
        super().__init__(language, stops, max_rollback)
        self.language.stops = stops

    stops = property(lambda self: self.language.stops, lambda self, stops: None)


@breaks("A10")
class RemembersRowsWithStops(Grammar):
    """Rows are remembered by state, as if every request had the same stop ids."""

    def legal(self):
        rows = vars(self.language).setdefault("rows", {})
        return rows.setdefault((self.state, self.terminated), super().legal())


@breaks("A10")
class TakesStopZeroForNone(Grammar):
    """`if stop_id` where `stop_id is not None` was meant."""

    def __init__(self, language, stops, max_rollback):
        super().__init__(language, frozenset(filter(None, stops)) or stops, max_rollback)


@breaks("A11")
class TerminatesOnCompletion(Grammar):
    """A text that nothing can follow terminates by itself."""

    def is_terminated(self):
        return self.terminated or (self.is_accepting() and not self.language.allowed(self.state))


@breaks("A13")
class UnmasksAfterTermination(Grammar):
    def legal(self):
        return frozenset(range(self.vocabulary.size)) if self.terminated else super().legal()


@breaks("A13")
class AllowsTextAfterTermination(Grammar):
    def legal(self):
        return super().legal() | self.language.allowed(self.state)


@breaks("A16")
class StaysTerminatedAfterRollback(Grammar):
    def rollback(self, num_tokens):
        terminated = self.terminated
        super().rollback(num_tokens)
        self.terminated = terminated


@breaks("A16")
class RollsBackTextForAStop(Grammar):
    """The stop token counts as no step of its own."""

    def rollback(self, num_tokens):
        terminated = self.terminated and num_tokens
        super().rollback(num_tokens)
        if terminated and len(self.states) > 1:
            self.states.pop()


@breaks("A16")
class MiscountsBeyondTheStop(Grammar):
    """Wrong only where a rollback goes over the stop token and further."""

    def rollback(self, num_tokens):
        kept = self.states[-num_tokens:] if self.terminated and num_tokens > 1 else []
        super().rollback(num_tokens)
        self.states += kept[:1]


@breaks("A31", vocabulary="adversarial")
class SecondStopIsIgnored(Grammar):
    """Only the first stop id terminates; another one is taken without effect."""

    def accept_tokens(self, request_id, tokens):
        if len(tokens) and tokens[0] in self.stops and tokens[0] != min(self.stops) and self.is_accepting():
            return True
        return super().accept_tokens(request_id, tokens)
