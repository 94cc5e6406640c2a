"""Two engines over finite sets of texts, on top of the comparison's toys: one that is right, and one that misbehaves
as soon as a token is consumed, each way with another sample constraint of the suite.
"""

from __future__ import annotations

import os

from toy_engines import Artifact, Matcher, Right

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.plugins import hookimpl

TROUBLES = {b"ab": "abort", b"no": "raise", b"abab": "rollback_short", b'"ab"': "hang"}
"""What a choice does that has this text: the samples word, replies, stairs (the last that fits) and quoted."""


class WildMatcher(Matcher):
    """Right until its first token."""

    trouble = ""

    def consume(self, tokens):
        if tokens and self.trouble == "abort":
            os.write(2, b"wild engine: about to abort\n")
            os.abort()
        while tokens and self.trouble == "hang":
            pass
        return super().consume(tokens)

    def rollback(self, num_tokens):
        super().rollback(num_tokens - (self.trouble == "rollback_short" and num_tokens > 0))

    def fork(self):
        copy = WildMatcher(self.texts, self.vocabulary, self.taken)
        copy.trouble = self.trouble
        return copy


class WildArtifact(Artifact):
    """Hands out matchers; the second one may be too much."""

    made = 0

    def new_matcher(self):
        matcher = WildMatcher(self.texts, self.vocabulary)
        matcher.trouble = next((t for text, t in reversed(TROUBLES.items()) if text in self.texts), "")
        self.made += 1
        if self.made > 1 and matcher.trouble == "raise":
            raise RuntimeError("the wild engine gave up")
        return matcher


class Wild(Right):
    """Compiles everything."""

    def compile(self, spec):
        return WildArtifact([text.encode() for text in spec.value], self.vocabulary)


CAPABILITIES = Capabilities(kinds=frozenset({GrammarKind.CHOICE}))


def _backend(name, attribute):
    return BackendSpec(
        name,
        f"wild_engines:{attribute}",
        api_version=API_VERSION,
        capabilities=CAPABILITIES,
        distribution="wild-engines",
    )


@hookimpl
def grammar_backends_register_backends():
    return [_backend("wild", "Wild"), _backend("tame", "Right")]
