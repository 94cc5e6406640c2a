"""Grammars for requests that began elsewhere: tokens that were generated before are accepted again (E17)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from grammar_backends.contract import StructuredOutputGrammar
from grammar_backends.errors import GrammarError

__all__ = ["replay_tokens"]

G = TypeVar("G", bound=StructuredOutputGrammar)


def replay_tokens(grammar: G, request_id: str, tokens: Sequence[int]) -> G:
    """Bring a fresh grammar, or gate, to where a request stands: after preemption, or on the rank that decodes.

    Args:
        grammar: in its initial state.
        request_id: used in messages.
        tokens: all that the request has generated, in order, each of them once.

    Returns:
        The same grammar.

    Raises:
        ValueError: the grammar has accepted tokens already, so that some would count twice.
        GrammarError: the tokens are not of the grammar's language, which names the first that is not; or the grammar
            failed. It is as it was.
    """
    if grammar.num_accepted:
        raise ValueError(f"request {request_id}: its grammar has {grammar.num_accepted} tokens already")
    if not grammar.accept_tokens(request_id, tokens):
        if grammar.error is not None:
            raise grammar.error
        legal = len(grammar.validate_tokens(tokens))
        raise GrammarError(
            f"request {request_id}: token {legal} of the {len(tokens)} generated before, {tokens[legal]}, is not legal"
        )
    return grammar
