"""Every exception of this project, in one tree.

::

    GrammarBackendsError
    ├── SpecError (ValueError)           the request's spec cannot be used: malformed, unsatisfiable, too large
    │   └── UnsupportedFeature           it is well formed, but the backend would not enforce all of it
    ├── VocabularyError (ValueError)     a tokenizer or vocabulary cannot be read or does not fit
    ├── BitmaskError (ValueError)        a bitmask or logits tensor has the wrong shape, dtype, device or layout
    ├── PluginError (RuntimeError)       a plugin breaks the rules of registration
    ├── BackendUnavailable (RuntimeError)  an unknown, blocked, failed or incompatible backend was named
    ├── KernelError (RuntimeError)       the CUDA kernel cannot be compiled, loaded or launched
    ├── CompileError (RuntimeError)      the engine failed on a spec that should have compiled
    ├── ArtifactError (ValueError)       a serialised artifact cannot be used: compile instead
    └── GrammarError (RuntimeError)      a grammar is in its sticky error state (A19)
        └── DeadEnd                      no token is legal and the grammar is not accepting (A14)

Errors carry fields, not only text; the message is made from the fields, so that every error reads alike:
``<what is wrong> at <where>; <backend>: <engine's words>. <what to do>``.
"""

from __future__ import annotations

import reprlib
from typing import Any

__all__ = [
    "ArtifactError",
    "BackendUnavailable",
    "BitmaskError",
    "CompileError",
    "DeadEnd",
    "GrammarBackendsError",
    "GrammarError",
    "KernelError",
    "PluginError",
    "SpecError",
    "UnsupportedFeature",
    "VocabularyError",
]

ENGINE_TEXT_LIMIT = 200
"""Characters of an engine's own words that a message may carry (D20)."""
SHOWN_LIMIT = 60
"""Characters of one value of a client that a message may carry (D1)."""
PLACE_LIMIT = 200
"""Characters of a JSON pointer that a message may carry; its field holds all of it."""


class GrammarBackendsError(Exception):
    """Root of the tree: catch it to catch everything this project raises on purpose."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        return _sentences(self.message, self.hint)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"  # with the place and the engine's words, not the message alone

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries: rebuild from the fields, since __init__ takes keywords.
        return rebuild, (type(self), self.args, self.__dict__)


def rebuild(
    cls: type[GrammarBackendsError], args: tuple[object, ...], fields: dict[str, object]
) -> GrammarBackendsError:
    """An error from its fields, as another process wrote them."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


class SpecError(GrammarBackendsError, ValueError):
    """The request's spec cannot be used. The client is at fault (HTTP 400).

    Attributes:
        pointer: JSON pointer into the schema, tag or choice list, where one is known ("" is the root).
        line, column: 1-based position in a grammar or pattern, where one is known.
        keyword: the schema keyword or syntax element at fault.
        backend: who refused it, or None for the front end.
        engine_text: the engine's own words, trimmed to 200 characters.
    """

    def __init__(
        self,
        message: str,
        *,
        pointer: str | None = None,
        line: int | None = None,
        column: int | None = None,
        keyword: str | None = None,
        backend: str | None = None,
        engine_text: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.pointer = pointer
        self.line = line
        self.column = column
        self.keyword = keyword
        self.backend = backend
        self.engine_text = trim(engine_text) if engine_text else None

    @property
    def where(self) -> str:
        """The position as a person would write it: ``/properties/a`` or ``3:14``; "" when unknown."""
        return place(self.pointer, self.line, self.column)

    def __str__(self) -> str:
        text = self.message
        if self.where:
            text += f" at {self.where}"
        if self.backend or self.engine_text:
            text += "; " + ": ".join(part for part in (self.backend, self.engine_text) if part)
        return _sentences(text, self.hint)


class UnsupportedFeature(SpecError):
    """The spec is well formed, but this backend (or every backend) would not enforce all of it.

    An automatic choice goes on to the next backend on this error, and on no other (C2.2).

    Attributes:
        trace: the whole decision, when an automatic choice found no backend (`selection.Trace`).
    """

    def __init__(self, message: str, *, trace: Any = None, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.trace = trace


class VocabularyError(GrammarBackendsError, ValueError):
    """A tokenizer cannot be read, or a vocabulary breaks its own invariants. The caller is at fault."""


class BitmaskError(GrammarBackendsError, ValueError):
    """A bitmask or logits tensor has the wrong shape, dtype, device or layout. The caller is at fault (A20)."""


class PluginError(GrammarBackendsError, RuntimeError):
    """A plugin breaks the rules of registration. The plugin's author is at fault."""


class BackendUnavailable(GrammarBackendsError, RuntimeError):
    """The backend that was named does not exist or cannot be used here; the message says why and what there is."""


class KernelError(GrammarBackendsError, RuntimeError):
    """The CUDA kernel cannot be compiled, loaded or launched, or a failure on the device came to light. The server is
    at fault: its driver, its libraries, or an earlier kernel on the same device.

    Attributes:
        code: the number of the driver's or NVRTC's error, where there is one.
    """

    def __init__(self, message: str, *, code: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class CompileError(GrammarBackendsError, RuntimeError):
    """The engine failed on a spec that it should have compiled. The server is at fault (HTTP 500).

    Attributes:
        backend: the backend that failed.
    """

    def __init__(self, message: str, *, backend: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.backend = backend


class ArtifactError(GrammarBackendsError, ValueError):
    """A serialised artifact is damaged, or was made for another version, vocabulary or spec. Nobody's fault: whoever
    meets it drops the artifact and compiles."""


class GrammarError(GrammarBackendsError, RuntimeError):
    """A grammar was used in its sticky error state: the request must be failed, never sampled from (A19)."""


class DeadEnd(GrammarError):
    """No token is legal and the grammar is not accepting, so that any sampling would be undefined (A14)."""


def _sentences(text: str, hint: str | None) -> str:
    if not hint:
        return text
    return f"{text} {hint}" if text.endswith(("?", ".", "…")) else f"{text}. {hint}"


def place(pointer: str | None, line: int | None, column: int | None) -> str:
    """A position as a person would write it: ``/properties/a`` or ``3:14``; "" when unknown."""
    if pointer is not None:
        if len(pointer) <= PLACE_LIMIT:
            return pointer or "the root"
        half = PLACE_LIMIT // 2
        return f"{pointer[:half]}…{pointer[-half:]}"
    return f"{line}:{column}" if line is not None else ""


_Repr = reprlib.Repr()
_Repr.maxstring = _Repr.maxother = _Repr.maxlong = SHOWN_LIMIT
_Repr.maxlevel = 3


def shown(value: object) -> str:
    """A client's value as a message may carry it: cut, however large or deep it is (D1)."""
    try:
        text = _Repr.repr(value)
    except ValueError:  # a number of more digits than Python writes out
        return f"a very large {type(value).__name__}"
    return text if len(text) <= SHOWN_LIMIT else text[: SHOWN_LIMIT - 1] + "…"


def trim(text: str) -> str:
    """Fold white space and cut an engine's words to what a client needs (D20)."""
    folded = " ".join(text.split())
    return folded if len(folded) <= ENGINE_TEXT_LIMIT else folded[: ENGINE_TEXT_LIMIT - 1] + "…"
