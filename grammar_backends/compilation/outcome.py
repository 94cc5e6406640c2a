"""What a compilation that failed is: a value of its own type, with a kind that says whose fault it was (E5)."""

from __future__ import annotations

import copy
import enum
from dataclasses import dataclass
from typing import Any

from grammar_backends import errors
from grammar_backends.errors import (
    ArtifactError,
    BackendUnavailable,
    CompileError,
    GrammarBackendsError,
    SpecError,
    UnsupportedFeature,
    VocabularyError,
    trim,
)
from grammar_backends.workers import Trouble, WorkerTrouble, out_of_memory

__all__ = ["CompilationFailure", "FailureKind"]


class FailureKind(enum.Enum):
    """Why a compilation failed, with the HTTP status that says so to a client."""

    SPEC = "spec", 400
    """The spec is malformed, unsatisfiable or too large."""
    UNSUPPORTED = "unsupported", 400
    """The spec is well formed, but no backend, or not the one that was named, enforces all of it."""
    ARTIFACT = "artifact", 400
    """The bytes that were handed in are damaged, or no artifact of this backend, vocabulary and spec (E19)."""
    DISABLED = "disabled", 400
    """This engine takes no constrained requests (E14)."""
    CANCELLED = "cancelled", 499
    """The request was cancelled (E7)."""
    ENGINE = "engine", 500
    """The grammar engine failed on a spec that should have compiled."""
    CRASH = "crash", 500
    """The grammar engine ended the process it worked in."""
    MEMORY_LIMIT = "memory limit", 500
    """The compilation took more memory than one may."""
    OUT_OF_MEMORY = "out of memory", 503
    """The machine ran out of memory: nothing is known about the spec."""
    UNAVAILABLE = "unavailable", 503
    """The backend, or a process to compile in, could not be started."""
    STUCK = "stuck", 503
    """Every thread is stuck in a compilation that does not end."""
    SHUTDOWN = "shutdown", 503
    """The manager was shut down."""
    FORKED = "forked", 503
    """It was pending when this process was forked; the parent compiles it for itself."""
    TIMEOUT = "timeout", 504
    """A budget was used up (E6)."""

    def __init__(self, label: str, status: int) -> None:
        self.label = label
        self.status = status

    def __str__(self) -> str:
        return self.label

    @property
    def is_client_error(self) -> bool:
        """Whether the request is at fault, not the server."""
        return self.status < 500


TROUBLES: dict[Trouble, FailureKind] = {
    "timeout": FailureKind.TIMEOUT,
    "memory": FailureKind.MEMORY_LIMIT,
    "crash": FailureKind.CRASH,
    "killed": FailureKind.OUT_OF_MEMORY,
    "unavailable": FailureKind.UNAVAILABLE,
    "closed": FailureKind.SHUTDOWN,
}


@dataclass(frozen=True, slots=True)
class CompilationFailure:
    """A compilation that failed. Never mistaken for a grammar: it has none of its methods.

    Attributes:
        kind: why.
        error: the same as an exception, with its place and hint; those methods of a ticket that need the grammar raise
            a copy.
    """

    kind: FailureKind
    error: GrammarBackendsError

    @property
    def message(self) -> str:
        """What to tell the client."""
        return str(self.error)

    @property
    def status(self) -> int:
        """The HTTP status to answer with."""
        return self.kind.status

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"

    def new_error(self) -> GrammarBackendsError:
        """An error to raise: one that many requests raised would hold the frames of them all."""
        error = copy.copy(self.error)
        error.__cause__ = self.error.__cause__
        return error

    def forget_frames(self) -> None:
        """Let go of what the engine held when it failed: a failure may be remembered for long."""
        seen: set[int] = set()
        error: BaseException | None = self.error
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            error.__traceback__ = None
            error = error.__cause__ or error.__context__

    @classmethod
    def of(cls, error: BaseException, backend: str) -> CompilationFailure:
        """What an exception means, raised while `backend` was asked."""
        if isinstance(error, WorkerTrouble):
            return cls(TROUBLES[error.kind], CompileError(f"{backend}: {error.detail}", backend=backend))
        if not isinstance(error, GrammarBackendsError):
            text = f"{backend} failed: {type(error).__name__}: {trim(str(error))}"
            wrapped = CompileError(text, backend=backend)
            wrapped.__cause__ = error
            return cls(FailureKind.OUT_OF_MEMORY if out_of_memory(error) else FailureKind.ENGINE, wrapped)
        if isinstance(error, SpecError):
            kind = FailureKind.UNSUPPORTED if isinstance(error, UnsupportedFeature) else FailureKind.SPEC
        elif isinstance(error, ArtifactError):
            kind = FailureKind.ARTIFACT
        elif isinstance(error, (BackendUnavailable, VocabularyError)):
            kind = FailureKind.UNAVAILABLE
        else:
            kind = FailureKind.OUT_OF_MEMORY if out_of_memory(error) else FailureKind.ENGINE
        return cls(kind, error)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data, for another process."""
        known = next(base for base in type(self.error).__mro__ if base.__name__ in errors.__all__)
        fields = {
            name: value
            for name, value in vars(self.error).items()
            if value is None or isinstance(value, (str, int, float, bool))
        }
        return {"kind": self.kind.name, "error": known.__name__, "fields": fields}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CompilationFailure:
        """The failure that `to_dict` wrote."""
        fields = data["fields"]
        error = errors.rebuild(getattr(errors, data["error"]), (fields["message"],), fields)
        return cls(FailureKind[data["kind"]], error)
