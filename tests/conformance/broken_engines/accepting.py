"""accept_tokens and validate_tokens: blocks, bad ids, and what they answer."""

from __future__ import annotations

import numpy as np

from broken_engines.fault import breaks
from broken_engines.right import Grammar


@breaks("A0")
class AnswersInNumpy(Grammar):
    def is_accepting(self):
        return np.bool_(super().is_accepting())


@breaks("A1")
class KeepsTheLegalPart(Grammar):
    """A refused block leaves its legal beginning behind."""

    def accept_tokens(self, request_id, tokens):
        accepted = super().accept_tokens(request_id, tokens)
        if not accepted and self.error is None:
            self.states += self.walk(tokens)[0]
        return accepted


@breaks("A1")
class KeepsTheLastToken(Grammar):
    """Undoing a refused block leaves its first token."""

    def accept_tokens(self, request_id, tokens):
        accepted = super().accept_tokens(request_id, tokens)
        if not accepted and self.error is None:
            self.states += self.walk(tokens)[0][:1]
        return accepted


@breaks("A1")
class KeepsTextBeforeAnEarlyStop(Grammar):
    """Only where the token that made a block illegal is a stop token."""

    def accept_tokens(self, request_id, tokens):
        states, _ = self.walk(tokens)
        accepted = super().accept_tokens(request_id, tokens)
        if not accepted and self.error is None and tokens[len(states)] in self.stops:
            self.states += states
        return accepted


@breaks("A1")
class RefusedBlockTerminates(Grammar):
    def accept_tokens(self, request_id, tokens):
        accepted = super().accept_tokens(request_id, tokens)
        self.terminated |= not accepted and len(tokens) > 1 and tokens[-1] in self.stops
        return accepted


@breaks("A1")
class OwesAStepAfterARefusedBlock(Grammar):
    """After a refused block of several tokens, the next rollback goes one step too far."""

    owed = 0

    def accept_tokens(self, request_id, tokens):
        accepted = super().accept_tokens(request_id, tokens)
        self.owed = int(not accepted and len(tokens) > 1)
        return accepted

    def rollback(self, num_tokens):
        super().rollback(num_tokens)
        if num_tokens and self.owed and len(self.states) > 1:
            self.states.pop()


@breaks("A2")
class CountsIgnoredTokens(Grammar):
    """Tokens after the stop token enter the history."""

    def accept_tokens(self, request_id, tokens):
        was = self.terminated
        accepted = super().accept_tokens(request_id, tokens)
        if accepted and self.terminated and not was:
            ignored = len(tokens) - next(i for i, token in enumerate(tokens) if token in self.stops) - 1
            self.states += [self.state] * ignored
        return accepted


@breaks("A2")
class JudgesIgnoredTokens(Grammar):
    """An illegal token after the stop token makes the block fail."""

    def accept_tokens(self, request_id, tokens):
        if not self.terminated and any(not 0 <= token < self.vocabulary.size for token in tokens):
            return False
        return super().accept_tokens(request_id, tokens)


@breaks("A3")
class RefusesAfterTermination(Grammar):
    def accept_tokens(self, request_id, tokens):
        return not self.terminated and super().accept_tokens(request_id, tokens)


@breaks("A3")
class CountsAfterTermination(Grammar):
    def accept_tokens(self, request_id, tokens):
        if self.terminated:
            self.states += [self.state] * len(tokens)
        return super().accept_tokens(request_id, tokens)


@breaks("A3")
class ValidatesStopsAfterTermination(Grammar):
    def validate_tokens(self, tokens):
        if self.terminated:
            return list(tokens[: len(tokens) and int(tokens[0] in self.stops)])
        return super().validate_tokens(tokens)


@breaks("A4")
class CountsCallsThatSucceed(Grammar):
    """num_accepted grows by the length of each block that was accepted."""

    extra = 0

    @property
    def num_accepted(self):
        return super().num_accepted + self.extra

    def accept_tokens(self, request_id, tokens):
        before = self.num_accepted
        accepted = super().accept_tokens(request_id, tokens)
        if accepted:
            self.extra += before + len(tokens) - self.num_accepted
        return accepted


@breaks("A5")
class RollbackOfNothingErases(Grammar):
    def rollback(self, num_tokens):
        if num_tokens == 0:
            self.reset()  # states[:-0]
        super().rollback(num_tokens)


@breaks("A5")
class RefusesNothing(Grammar):
    def accept_tokens(self, request_id, tokens):
        return bool(len(tokens)) and super().accept_tokens(request_id, tokens)


@breaks("A6")
class CountsNegativeIdsFromTheEnd(Grammar):
    def follow(self, state, token):
        return super().follow(state, token + self.vocabulary.size if token < 0 else token)


@breaks("A6")
class SkipsPadding(Grammar):
    """-1 is left out, and the rest accepted."""

    def walk(self, tokens):
        return super().walk([token for token in tokens if token != -1])

    def accept_tokens(self, request_id, tokens):
        return super().accept_tokens(request_id, [token for token in tokens if token != -1])


@breaks("A6")
class DropsTheRestAfterPadding(Grammar):
    """What is before a negative id is accepted, as if the block ended there."""

    def accept_tokens(self, request_id, tokens):
        end = next((i for i, token in enumerate(tokens) if token < 0), len(tokens))
        return super().accept_tokens(request_id, tokens[:end])


@breaks("A7")
class RaisesForLargeIds(Grammar):
    def follow(self, state, token):
        return super().follow(state, token) if self.vocabulary.token_bytes(max(token, 0)) else None


@breaks("A7")
class WrapsIdsAt32Bits(Grammar):
    def follow(self, state, token):
        return super().follow(state, token & 0xFFFFFFFF if token >= 0 else token)


@breaks("A7")
class ChecksIdsAgainstTheWidth(Grammar):
    """Padded ids are taken as tokens of no text that change nothing."""

    def follow(self, state, token):
        if self.vocabulary.size <= token < self.vocabulary.words * 32:
            return state
        return super().follow(state, token)


@breaks("A8")
class ValidationAdvances(Grammar):
    def validate_tokens(self, tokens):
        legal = super().validate_tokens(tokens)
        self.accept_tokens("", legal)
        return legal


@breaks("A8")
class ValidatesOneTokenOnly(Grammar):
    def validate_tokens(self, tokens):
        return super().validate_tokens(tokens)[:1]


@breaks("A8")
class ValidationLeavesOutTheStop(Grammar):
    def validate_tokens(self, tokens):
        return [token for token in super().validate_tokens(tokens) if token not in self.stops]


@breaks("A8")
class ValidatesBeyondTheStop(Grammar):
    def validate_tokens(self, tokens):
        legal = super().validate_tokens(tokens)
        return list(tokens) if legal and legal[-1] in self.stops else legal


@breaks("A8")
class ValidatesWhatIsNoPrefix(Grammar):
    """Illegal tokens are left out, and the legal ones after them kept."""

    def validate_tokens(self, tokens):
        legal = super().validate_tokens(tokens)
        if legal and legal[-1] in self.stops:
            return legal
        rest = list(tokens[len(legal) + 1 :])
        return legal + rest if legal and super().validate_tokens([*legal, *rest]) == [*legal, *rest] else legal


@breaks("A8")
class ValidationEatsItsArgument(Grammar):
    def validate_tokens(self, tokens):
        legal = super().validate_tokens(tokens)
        if isinstance(tokens, list):
            del tokens[len(legal) :]
        return legal


@breaks("A8")
class ValidationWithAStopLeavesTheText(Grammar):
    """Validation by accepting and taking back, which forgets that a block may terminate."""

    def validate_tokens(self, tokens):
        count = len(self.states)
        legal = super().validate_tokens(tokens)
        if len(legal) > 1 and legal[-1] in self.stops:
            self.advance(self.walk(legal[:-1])[0], False)
            del self.states[count + 1 :]
        return legal
