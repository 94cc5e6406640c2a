"""What a manager remembers: compiled grammars, bounded by number and bytes, and failures, by number and age (E9, E10).

Whoever uses them holds a lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from grammar_backends.compilation.outcome import CompilationFailure, FailureKind
from grammar_backends.contract import CompiledGrammar, GrammarSpec

__all__ = ["FailureCache", "GrammarCache", "Key"]

Key = tuple[str, GrammarSpec]
"""Who is asked for what. Everything else that an artifact depends on is the same for all of one manager."""

UNKNOWN_BYTES = 1 << 20
"""What a compiled grammar counts whose engine does not say how large it is."""

LASTING = frozenset((FailureKind.SPEC, FailureKind.UNSUPPORTED, FailureKind.ENGINE))
"""Failures that the same spec would meet again."""

TRANSIENT = frozenset((FailureKind.TIMEOUT, FailureKind.CRASH, FailureKind.MEMORY_LIMIT))
"""Failures that it might. All others say nothing about the spec, and are never remembered (E9)."""


class GrammarCache:
    """Compiled grammars; the least recently used go first.

    Attributes:
        nbytes: what they hold, together, with the texts of their specs.
        evictions: how many went, so far.
    """

    def __init__(self, entries: int, nbytes: int) -> None:
        self.nbytes = 0
        self.evictions = 0
        self._most_entries = entries
        self._most_bytes = nbytes
        self._grammars: OrderedDict[Key, tuple[CompiledGrammar, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._grammars)

    def get(self, key: Key) -> CompiledGrammar | None:
        found = self._grammars.get(key)
        if found is None:
            return None
        self._grammars.move_to_end(key)
        return found[0]

    def put(self, key: Key, compiled: CompiledGrammar) -> list[Key]:
        """Keep one, and say which went for it; one that alone is larger than all may be is among them."""
        gone = []
        nbytes = len(key[1].text) + (UNKNOWN_BYTES if compiled.nbytes is None else compiled.nbytes)
        _, before = self._grammars.pop(key, (None, 0))
        self._grammars[key] = compiled, nbytes
        self.nbytes += nbytes - before
        while self._grammars and (len(self._grammars) > self._most_entries or self.nbytes > self._most_bytes):
            evicted, (_, freed) = self._grammars.popitem(last=False)
            self.nbytes -= freed
            gone.append(evicted)
        self.evictions += len(gone)
        return gone

    def clear(self) -> None:
        self._grammars.clear()
        self.nbytes = 0


FAILURE_CHARACTERS = 1 << 26
"""Of specs whose failures are remembered, together: a client may send large ones that are refused at once."""


class FailureCache:
    """Failures, with the reason; the oldest go first, and each after its time."""

    def __init__(self, entries: int, lasting: float, transient: float, clock: Callable[[], float]) -> None:
        self._characters = 0
        self._most_entries = entries
        self._lasting = lasting
        self._transient = transient
        self._clock = clock
        self._failures: OrderedDict[Key, tuple[CompilationFailure, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def get(self, key: Key) -> CompilationFailure | None:
        found = self._failures.get(key)
        if found is None:
            return None
        failure, until = found
        if self._clock() < until:
            return failure
        self.forget(key)
        return None

    def put(self, key: Key, failure: CompilationFailure) -> None:
        """Remember one, if it says something about what was compiled."""
        if failure.kind in LASTING:
            until = self._clock() + self._lasting
        elif failure.kind in TRANSIENT:
            until = self._clock() + self._transient
        else:
            return
        self.forget(key)
        self._failures[key] = failure, until
        self._characters += len(key[1].text)
        while len(self._failures) > self._most_entries or self._characters > FAILURE_CHARACTERS:
            self.forget(next(iter(self._failures)))

    def forget(self, key: Key) -> None:
        if self._failures.pop(key, None) is not None:
            self._characters -= len(key[1].text)
