"""What happened in a whole engine: counters and histograms over its requests, gauges of its parts (K2).

Everything is declared in `FAMILIES`, so that exporters need not know any of it by name. Requests are added when they
end, under one lock; gauges are read from their owners when somebody looks.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grammar_backends.statistics.requests import RequestRecorder, RequestStatistics, Termination
from grammar_backends.workers import watch_forks

__all__ = ["FAMILIES", "EngineSnapshot", "EngineStatistics", "Family", "Histogram", "Sample"]

SECONDS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0)

LABEL_LIMIT = 200
"""Label values that one family keeps apart: what clients send must not grow the engine's memory. Beyond it, all but
the backend becomes `OTHER`, and beyond twice as many the backend too."""

OTHER = "other"

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """What is counted under one name.

    Attributes:
        name: without a prefix; counters of things are plural nouns.
        kind: how its values behave.
        labels: what its values are told apart by.
        documentation: one sentence.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    documentation: str


FAMILIES = {
    family.name: family
    for family in (
        Family("requests", "counter", ("backend", "kind", "termination"), "Requests that ended, by how they ended."),
        Family("errors", "counter", ("backend", "error"), "Requests that failed, by the type of their error."),
        Family(
            "compilations", "counter", ("backend", "kind", "source"), "Grammars asked for, by where they came from."
        ),
        Family("compile_seconds", "histogram", ("backend", "kind"), "What compiling a grammar took."),
        Family("queue_seconds", "histogram", ("backend",), "How long a grammar waited for a worker."),
        Family("compile_timeouts", "counter", ("backend",), "Compilations that ran out of time."),
        Family("skipped_backends", "counter", ("backend", "keyword"), "Backends passed over by the automatic choice."),
        Family("rows_filled", "counter", ("backend",), "Rows of bitmasks written."),
        Family("fill_seconds", "counter", ("backend",), "Time spent on writing rows."),
        Family("mask_build_seconds", "histogram", ("path",), "Building a batch's masks: critical or overlapped."),
        Family("tree_seconds", "histogram", ("backend",), "Walking over a tree of drafts."),
        Family("tokens_accepted", "counter", ("backend",), "Tokens accepted by grammars."),
        Family("drafts_offered", "counter", ("backend",), "Draft tokens proposed."),
        Family("drafts_trimmed", "counter", ("backend",), "Draft tokens that a grammar forbade."),
        Family("drafts_accepted", "counter", ("backend",), "Draft tokens that the model took."),
        Family("rollback_steps", "counter", ("backend",), "Steps of grammars taken back."),
        Family("forced_tokens", "counter", ("backend",), "Tokens that a grammar left no choice about."),
        Family("never_constrained", "counter", ("backend",), "Requests that ended before their constraint began."),
    )
}
"""All families but the gauges, which are declared by whoever is watched."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How values are spread.

    Attributes:
        bounds: upper bounds of the buckets, inclusive; values above the last are in one more bucket.
        counts: values in each bucket, ``len(bounds) + 1`` of them.
        total: the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family: its label values, in the order of `Family.labels`, and a number or a spread."""

    labels: Labels
    value: float | Histogram


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """All that is known of an engine at one moment, as plain data."""

    families: tuple[tuple[Family, tuple[Sample, ...]], ...]

    def value(self, name: str, **labels: str) -> float:
        """The sum of a counter or gauge over the samples with these labels; of a histogram, the number of values.

        Raises:
            KeyError: no such family or label.
        """
        return sum(
            sample.value.count if isinstance(sample.value, Histogram) else sample.value
            for sample in self._samples(name, labels)
        )

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The spread over the samples with these labels.

        Raises:
            KeyError: no such family or label.
            TypeError: the family is no histogram.
        """
        total = Histogram(SECONDS, (0,) * (len(SECONDS) + 1), 0.0)
        for sample in self._samples(name, labels):
            if not isinstance(sample.value, Histogram):
                raise TypeError(f"{name} is no histogram")
            counts = tuple(map(sum, zip(total.counts, sample.value.counts, strict=True)))
            total = Histogram(SECONDS, counts, total.total + sample.value.total)
        return total

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: for each family a list of samples."""
        return {
            family.name: [
                {**dict(zip(family.labels, sample.labels, strict=True)), **_plain(sample.value)} for sample in samples
            ]
            for family, samples in self.families
        }

    def _samples(self, name: str, labels: Mapping[str, str]) -> list[Sample]:
        for family, samples in self.families:
            if family.name == name:
                places = [(family.labels.index(label), value) for label, value in labels.items()]
                return [s for s in samples if all(s.labels[place] == value for place, value in places)]
        raise KeyError(name)


def _plain(value: float | Histogram) -> dict[str, Any]:
    if isinstance(value, Histogram):
        return {"bounds": list(value.bounds), "counts": list(value.counts), "total": value.total}
    return {"value": value}


class _Spread:
    """A histogram that grows."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(SECONDS, value)] += 1
        self.total += value


class EngineStatistics:
    """Collects what happens in one engine. Thread-safe; an object to pass around, there is no global one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = {}
        self._spreads: dict[str, dict[Labels, _Spread]] = {}
        self._watched: dict[str, tuple[Family, Callable[[], float]]] = {}
        watch_forks(self)

    def after_fork(self) -> None:
        """`Forkable.after_fork`: goes on in the child from what the parent had counted."""
        self._lock = threading.Lock()

    def start(self, request_id: str) -> RequestRecorder:
        """Begin to follow a request."""
        return RequestRecorder(request_id)

    def finish(
        self, recorder: RequestRecorder, termination: Termination, error: BaseException | None = None
    ) -> RequestStatistics:
        """Add a request that ended, and return all that is known of it. To be called once."""
        request = recorder.snapshot(termination, error)
        compilation, decoding = request.compilation, request.decoding
        backend = compilation.backend if compilation else ""
        kind = compilation.kind if compilation else ""
        with self._lock:
            self._count("requests", (backend, kind, termination.value))
            if request.error is not None:
                self._count("errors", (backend, request.error))
            if compilation is not None:
                self._count("compilations", (backend, kind, compilation.source))
                self._count("compile_timeouts", (backend,), compilation.timeouts)
                self._spread("queue_seconds", (backend,), compilation.queue_seconds)
                if compilation.source == "compiled":
                    self._spread("compile_seconds", (backend, kind), compilation.compile_seconds)
                for skipped in compilation.skipped:
                    self._count("skipped_backends", (skipped.backend, skipped.keyword))
            for name in _DECODED:
                self._count(name, (backend,), getattr(decoding, name))
            self._count("fill_seconds", (backend,), decoding.fill_nanoseconds / 1e9)
            if not request.constraint_activated:
                self._count("never_constrained", (backend,))
            for seconds in decoding.tree_seconds:
                self._spread("tree_seconds", (backend,), seconds)
        return request

    def record_mask_build(self, seconds: float, *, overlapped: bool) -> None:
        """Add the masks of one step: built while the device was busy anyway, or while it waited."""
        with self._lock:
            self._spread("mask_build_seconds", ("overlapped" if overlapped else "critical",), seconds)

    def watch(
        self, name: str, documentation: str, read: Callable[[], float], kind: Literal["gauge", "counter"] = "gauge"
    ) -> None:
        """Show a number that somebody else keeps: occupied workers, bytes in a cache. Watched again, it is replaced.

        Args:
            name: as in `Family`.
            documentation: one sentence.
            read: gives the number, from any thread and at once.
            kind: "counter" for what only grows.

        Raises:
            ValueError: the name is one of `FAMILIES`.
        """
        if name in FAMILIES:
            raise ValueError(f"{name} is counted already")
        with self._lock:
            self._watched[name] = (Family(name, kind, (), documentation), read)

    def snapshot(self) -> EngineSnapshot:
        """All that is known now."""
        with self._lock:
            found = [(family, self._samples_of(family)) for family in FAMILIES.values()]
            watched = list(self._watched.values())
        # Outside of the lock: what is watched has locks of its own.
        found += [(family, (Sample((), read()),)) for family, read in watched]
        return EngineSnapshot(tuple(found))

    def _samples_of(self, family: Family) -> tuple[Sample, ...]:
        if family.kind == "histogram":
            spreads = sorted(self._spreads.get(family.name, {}).items())
            return tuple(
                Sample(labels, Histogram(SECONDS, tuple(spread.counts), spread.total)) for labels, spread in spreads
            )
        return tuple(Sample(labels, value) for labels, value in sorted(self._counts.get(family.name, {}).items()))

    def _count(self, name: str, labels: Labels, value: float = 1) -> None:
        if value:
            counts = self._counts.setdefault(name, {})
            labels = _bounded(labels, counts)
            counts[labels] = counts.get(labels, 0) + value

    def _spread(self, name: str, labels: Labels, value: float) -> None:
        spreads = self._spreads.setdefault(name, {})
        labels = _bounded(labels, spreads)
        if labels not in spreads:
            spreads[labels] = _Spread()
        spreads[labels].add(value)


_DECODED = (
    *("rows_filled", "tokens_accepted", "drafts_offered", "drafts_trimmed", "drafts_accepted", "rollback_steps"),
    "forced_tokens",
)
"""The counters of a request that are added up under their own names."""


def _bounded(labels: Labels, known: Mapping[Labels, object]) -> Labels:
    if labels in known or len(known) < LABEL_LIMIT:
        return labels
    of_backend = (labels[0], *(OTHER for _ in labels[1:]))
    if of_backend != labels and (of_backend in known or len(known) < 2 * LABEL_LIMIT):
        return of_backend
    return (OTHER,) * len(labels)  # names of backends may come from clients too
