"""What happened to one request: how it got its grammar, what its masks cost, and how it ended (K1).

`RequestRecorder` is written by whoever works for the request, one thread at a time and without a lock: the hot path
adds to plain integers. `RequestStatistics` is the frozen snapshot that logs, traces and engines get.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from grammar_backends.contract import JSON, GrammarKind, GrammarSpec

__all__ = [
    "CompileStatistics",
    "DecodeCounters",
    "GrammarSource",
    "RequestRecorder",
    "RequestStatistics",
    "SkippedBackend",
    "Termination",
]

TREE_TIMES = 256
"""Times of draft trees that one request keeps, the latest ones: its memory must not grow with its text (A33)."""


GrammarSource = Literal["compiled", "joined", "memory", "disk", "artifact", "failed before"]
"""Where a request's grammar came from: compiled for it (a miss), joined to a compilation that was under way, from one
of the caches (a hit), from an artifact that was handed in with it, or not at all, since the same spec had failed
before."""


class Termination(enum.Enum):
    """How a request ended, as far as its grammar is concerned."""

    STOPPED = "stopped"
    """A stop token was accepted: the text is complete."""
    UNFINISHED = "unfinished"
    """The engine ended it first: out of tokens, a stop string."""
    ABORTED = "aborted"
    """The client or the engine gave it up."""
    FAILED = "failed"
    """No grammar could be made, or the grammar failed."""


@dataclass(frozen=True, slots=True)
class SkippedBackend:
    """A backend that the automatic choice passed over.

    Attributes:
        backend: its name.
        reason: why, for people; may hold the client's own words.
        keyword: what it would not enforce; its metrics are told apart by this.
    """

    backend: str
    reason: str
    keyword: str = ""


@dataclass(frozen=True, slots=True)
class CompileStatistics:
    """How a request got its grammar. Make one with `of`.

    Attributes:
        backend: who compiled it; "" where no backend was found.
        kind: the kind of constraint, as its name.
        digest: the key of the spec, which no text can be read from.
        characters: length of the spec's canonical text.
        schemas: JSON schemas in the spec.
        source: where the grammar came from.
        queue_seconds: from submission until a worker took it up.
        compile_seconds: the compilation itself; 0 where there was none.
        timeouts: attempts that ran out of time.
        skipped: the backends that the automatic choice passed over.
    """

    backend: str
    kind: str
    digest: str
    characters: int
    schemas: int
    source: GrammarSource
    queue_seconds: float = 0.0
    compile_seconds: float = 0.0
    timeouts: int = 0
    skipped: tuple[SkippedBackend, ...] = ()

    @classmethod
    def of(
        cls,
        spec: GrammarSpec,
        backend: str,
        source: GrammarSource,
        *,
        queue_seconds: float = 0.0,
        compile_seconds: float = 0.0,
        timeouts: int = 0,
        skipped: Iterable[SkippedBackend] = (),
    ) -> CompileStatistics:
        """What is to be known of a spec, without the spec."""
        return cls(
            backend,
            spec.kind.value,
            spec.key,
            len(spec.text),
            _count_schemas(spec),
            source,
            queue_seconds,
            compile_seconds,
            timeouts,
            tuple(skipped),
        )


@dataclass(slots=True)
class DecodeCounters:
    """What masks and tokens of a request cost so far; to be added to directly.

    Attributes:
        rows_filled: rows of bitmasks that its grammar wrote.
        fill_nanoseconds: what these cost, together.
        tokens_accepted: tokens that its grammar accepted for good.
        drafts_offered, drafts_trimmed, drafts_accepted: draft tokens that were proposed; those of them that the
            grammar forbade; those that the model took.
        rollback_steps: steps that were taken back.
        forced_tokens: tokens that the grammar left no choice about, and that were not sampled.
        gate_step: number of tokens before the constraint became active; None while it never did (J8). 0 without a
            gate.
        tree_seconds: what walks over draft trees cost, the latest ones; add to it with `add_tree`.
    """

    rows_filled: int = 0
    fill_nanoseconds: int = 0
    tokens_accepted: int = 0
    drafts_offered: int = 0
    drafts_trimmed: int = 0
    drafts_accepted: int = 0
    rollback_steps: int = 0
    forced_tokens: int = 0
    gate_step: int | None = 0
    tree_seconds: list[float] = field(default_factory=list)

    def add_tree(self, seconds: float) -> None:
        """Note the time of one walk over a tree of drafts."""
        self.tree_seconds.append(seconds)
        if len(self.tree_seconds) > 2 * TREE_TIMES:
            del self.tree_seconds[:-TREE_TIMES]

    def copy(self) -> DecodeCounters:
        """Counters that nobody adds to."""
        return replace(self, tree_seconds=self.tree_seconds[-TREE_TIMES:])


@dataclass(frozen=True, slots=True)
class RequestStatistics:
    """A snapshot of one request.

    Attributes:
        request_id: the engine's name for it.
        compilation: how it got its grammar; None while it waits for it.
        decoding: a copy of its counters.
        termination: how it ended; None while it lives.
        error: the type of the error that ended it, as "DeadEnd"; None without one.
        seconds: since it was submitted.
    """

    request_id: str
    compilation: CompileStatistics | None
    decoding: DecodeCounters
    termination: Termination | None
    error: str | None
    seconds: float

    @property
    def constraint_activated(self) -> bool:
        """Whether the grammar ever constrained the text: a trigger that never comes leaves it free (J8)."""
        return self.decoding.gate_step is not None

    def grammar_stats(self) -> dict[str, Any]:
        """The same under the names of SGLang's `GrammarStats` (E15)."""
        compilation = self.compilation
        return {
            "compilation_time": compilation.compile_seconds if compilation else None,
            "schema_count": compilation.schemas if compilation else None,
            "ebnf_size": compilation.characters if compilation else None,
            "is_cache_hit": compilation is not None and compilation.source in ("memory", "disk", "failed before"),
            "is_grammar_aborted": self.termination in (Termination.ABORTED, Termination.FAILED),
            "tree_traversal_time": list(self.decoding.tree_seconds),
            "dispatch_type": compilation.kind if compilation else None,
            "num_timeout": compilation.timeouts if compilation else 0,
        }


class RequestRecorder:
    """Collects what happens to one request. Made by `EngineStatistics.start`; used by one thread at a time.

    Attributes:
        request_id: the engine's name for the request.
        compilation: set by whoever gets the grammar.
        decoding: counters to add to.
    """

    __slots__ = ("_submitted", "compilation", "decoding", "request_id")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.compilation: CompileStatistics | None = None
        self.decoding = DecodeCounters()
        self._submitted = time.monotonic()

    def snapshot(self, termination: Termination | None = None, error: BaseException | None = None) -> RequestStatistics:
        """What is known by now."""
        return RequestStatistics(
            self.request_id,
            self.compilation,
            self.decoding.copy(),
            termination,
            None if error is None else type(error).__name__,
            time.monotonic() - self._submitted,
        )


def _count_schemas(spec: GrammarSpec) -> int:
    if spec.kind is GrammarKind.STRUCTURAL_TAG:
        return sum(1 for part in _objects(spec.value) if "schema" in part or "json_schema" in part)
    return int(spec.kind in (GrammarKind.JSON_SCHEMA, GrammarKind.JSON_OBJECT))


def _objects(value: JSON) -> Iterable[dict[str, JSON]]:
    """The objects of a structural tag that are parts of it, not of its schemas."""
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            yield part
            todo += [item for key, item in part.items() if key not in ("schema", "json_schema")]
        elif isinstance(part, list):
            todo += part
