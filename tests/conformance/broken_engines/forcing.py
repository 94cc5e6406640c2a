"""Forced bytes and tokens."""

from __future__ import annotations

from broken_engines.fault import FORCING, breaks
from broken_engines.right import Grammar, Language


@breaks("I1", profile="forced_bytes", capabilities=FORCING)
class ForcesTheLikeliestByte(Language):
    """Where there are two ways on, the first is forced."""

    def forced(self, state):
        forced = super().forced(state)
        after = self.walk(state, forced)
        ways = [byte for byte in range(256) if after.step(byte) is not None]
        return forced + bytes(ways[:1] if len(ways) == 2 else [])


@breaks("I1", profile="forced_bytes", capabilities=FORCING)
class ForcesBeyondTheEnd(Language):
    """A text that may end is forced to go on."""

    def forced(self, state):
        forced = super().forced(state)
        after = self.walk(state, forced)
        ways = [byte for byte in range(256) if after.step(byte) is not None]
        return forced + bytes(ways if len(ways) == 1 else [])


@breaks("I1", profile="forced_bytes")
class ForcesThoughUndeclared(Grammar):
    """forced_bytes is not declared, and answers."""


@breaks("I1", profile="forced_tokens", capabilities=FORCING, vocabulary="adversarial")
class ForcesSingleBytes(Language):
    """Forced tokens are not the tokenizer's own."""

    def forced_tokens(self, state):
        tokens = self.vocabulary.text_tokens
        return [tokens.index(bytes([byte])) for byte in self.forced(state)]


@breaks("I1", profile="forced_tokens", capabilities=FORCING)
class ForcingAdvances(Grammar):
    def forced_tokens(self):
        tokens = super().forced_tokens()
        self.accept_tokens("", tokens)
        return tokens
