"""A journal of what was done with grammars, so that whatever goes wrong can be done again as a script.

A `RecordingGrammar` is a grammar that notes every call before it makes it. Notes cost little: they become Python only
when a `Violation` is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from grammar_backends.contract import BitmaskTensor, GrammarOptions, GrammarSpec, StructuredOutputGrammar, Vocabulary
from grammar_backends.errors import BitmaskError, GrammarError, UnsupportedFeature
from grammar_backends_conformance.laws.law import Violation

__all__ = ["Journal", "RecordingGrammar"]


class Journal:
    """What a law did so far, in order.

    Attributes:
        header: lines of Python that make `lab`.
        subject: the grammar that was used last, or the spec that was compiled last.
        raised: what a grammar raised last, of what it may raise.
    """

    def __init__(self, header: Sequence[str], vocabulary: Vocabulary) -> None:
        self.header = list(header)
        self._vocabulary = vocabulary
        self.clear()

    def clear(self) -> None:
        """Forget everything: what follows does not depend on it."""
        self._notes: list[tuple[str, tuple[Any, ...]]] = []
        self._grammars = 0
        self.subject: RecordingGrammar | GrammarSpec | None = None
        self.raised: Exception | None = None

    def note(self, template: str, *values: Any) -> None:
        """Remember a line of Python; `values` are written into the template as expressions, when it is read."""
        self._notes.append((template, values))

    def mark(self) -> int:
        """A place to return to."""
        return len(self._notes)

    def forget(self, mark: int) -> None:
        """Drop the notes since `mark`: what was done there has been shown to leave nothing behind."""
        del self._notes[mark:]

    def record(
        self,
        grammar: StructuredOutputGrammar,
        spec: GrammarSpec,
        origin: str,
        *values: Any,
        history: Sequence[int] = (),
    ) -> RecordingGrammar:
        """A grammar that notes its calls, made by the expression `origin`."""
        name = f"g{self._grammars}"
        self._grammars += 1
        self.note(f"{name} = {origin}", *values)
        return RecordingGrammar(grammar, self, name, spec, history)

    def lines(self) -> list[str]:
        """The journal as a script."""
        return [*self.header, *(template.format(*map(source_of, values)) for template, values in self._notes)]

    def violation(self, message: str, expected: Any = None, got: Any = None) -> Violation:
        """A `Violation` about the subject."""
        grammar = self.subject if isinstance(self.subject, RecordingGrammar) else None
        about = grammar.spec if grammar else self.subject
        tokens = [*grammar.history, *grammar.offered] if grammar else []
        size = self._vocabulary.width
        return Violation(
            message,
            expected=expected,
            got=got,
            spec=f"{about}: {about.text}" if isinstance(about, GrammarSpec) else "",
            tokens=tokens,
            token_bytes=[self._vocabulary.token_bytes(id_) if 0 <= id_ < size else b"" for id_ in tokens],
            step=len(grammar.history) if grammar else None,
            calls=[*self.lines(), f"# expected: {expected!r}", f"# got: {got!r}"],
        )


class RecordingGrammar:
    """`StructuredOutputGrammar` over another one, noting each call.

    What no call may raise (A20) becomes a `Violation` here. Attributes beyond the protocol are those of the grammar
    below, so that it fills in a batch as that one would.

    Attributes:
        raw: the grammar below.
        spec: what it was compiled from.
        name: what the journal calls it.
        history: the tokens that it took.
        offered: the tokens of the last call that had any, as far as they are not in `history`.
    """

    def __init__(
        self,
        raw: StructuredOutputGrammar,
        journal: Journal,
        name: str,
        spec: GrammarSpec,
        history: Sequence[int] = (),
    ) -> None:
        self.raw = raw
        self.name = name
        self.spec = spec
        self.history: list[int] = list(history)
        self.offered: list[int] = []
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def __repr__(self) -> str:
        return self.name

    def _ask(self, call: str, *arguments: Any, may_raise: tuple[type[Exception], ...] = ()) -> Any:
        journal = self._journal
        journal.subject = self
        journal.note(f"{self.name}.{call}({', '.join(['{}'] * len(arguments))})", *arguments)
        try:
            return getattr(self.raw, call)(*arguments)
        except may_raise as error:
            journal.raised = error
            raise
        except Exception as error:
            raise journal.violation(f"{call} raised {type(error).__name__}", "no exception (A20)", error) from error

    def _read(self, name: str) -> Any:
        self._journal.subject = self
        self._journal.note(f"{self.name}.{name}")
        try:
            return getattr(self.raw, name)
        except Exception as error:
            raise self._journal.violation(f"{name} raised {type(error).__name__}", "a value", error) from error

    @property
    def num_accepted(self) -> int:
        count: int = self._read("num_accepted")
        return count

    @property
    def max_rollback(self) -> int | None:
        limit: int | None = self._read("max_rollback")
        return limit

    @property
    def error(self) -> GrammarError | None:
        error: GrammarError | None = self._read("error")
        return error

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        accepted: bool = self._ask("accept_tokens", request_id, tokens)
        if accepted:
            self.history.extend(tokens)
        self.offered = [] if accepted else list(tokens)
        return accepted

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        legal: list[int] = self._ask("validate_tokens", tokens)
        self.offered = list(tokens)
        return legal

    def rollback(self, num_tokens: int) -> None:
        before = self.raw.num_accepted
        self._ask("rollback", num_tokens, may_raise=(ValueError,))
        # Tokens after a stop token were ignored, and are not of the history that is rolled back (A2).
        del self.history[max(0, before - num_tokens) :]
        self.offered = []

    def fill_bitmask(self, bitmask: BitmaskTensor, row: int) -> bool:
        masked: bool = self._ask("fill_bitmask", bitmask, row, may_raise=(GrammarError, BitmaskError))
        return masked

    def is_terminated(self) -> bool:
        terminated: bool = self._ask("is_terminated")
        return terminated

    def is_accepting(self) -> bool:
        accepting: bool = self._ask("is_accepting")
        return accepting

    def reset(self) -> None:
        self._ask("reset")
        self.history.clear()
        self.offered = []

    def fork(self) -> RecordingGrammar:
        # Through _ask for its guard; the line that makes the fork replaces the one that only asks for it.
        mark = self._journal.mark()
        copy = self._ask("fork")
        self._journal.forget(mark)
        return self._journal.record(copy, self.spec, f"{self.name}.fork()", history=self.history)

    def forced_tokens(self) -> list[int]:
        tokens: list[int] = self._ask("forced_tokens", may_raise=(UnsupportedFeature,))
        return tokens

    def forced_bytes(self) -> bytes:
        forced: bytes = self._ask("forced_bytes", may_raise=(UnsupportedFeature,))
        return forced


def source_of(value: Any) -> str:
    """A value as a Python expression."""
    if isinstance(value, GrammarSpec):
        parts = [f"GrammarKind.{value.kind.name}", repr(value.text)]
        if value.syntax != "auto":
            parts.append(repr(value.syntax))
        if value.options != GrammarOptions():
            parts.append(f"options={value.options!r}")
        return f"GrammarSpec({', '.join(parts)})"
    if isinstance(value, torch.Tensor):
        layout = f"{tuple(value.shape)}, {value.stride()}, dtype={value.dtype}, device={value.device.type!r}"
        return f"torch.empty_strided({layout})"
    if isinstance(value, np.ndarray):
        return f"np.array({value.tolist()}, dtype=np.{value.dtype})" if value.ndim == 1 else _empty(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(source_of, value))}]"
    return repr(value)


def _empty(array: np.ndarray[Any, Any]) -> str:
    return f"np.empty({array.shape}, dtype=np.{array.dtype})"
