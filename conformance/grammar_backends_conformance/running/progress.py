"""Progress of a run on stderr: a bar on a terminal, a line now and then otherwise."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import Any

from grammar_backends.cli.support import note
from grammar_backends_conformance.running.pool import Result

__all__ = ["Progress"]

LINES = 10
"""Lines that a run without a terminal prints on its way, if it is quick."""
SILENCE = 30.0
"""Seconds after which it prints one anyway."""


class Progress:
    """Counts results and shows how far the run is. A context manager."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._told = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._open_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, more: int) -> None:
        """That many more results are to come than was known."""
        self._total += more
        if self._bar is not None:
            self._bar.update(self._task, total=self._total)

    def advance(self, lane: str, result: Result) -> None:
        """One more result."""
        self._done += 1
        self._outcomes[result.outcome] += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=f"{lane} {result.id}"[:60])
        elif self._due():
            self._told = time.monotonic()
            counts = ", ".join(f"{name} {count}" for name, count in self._outcomes.most_common())
            note(f"{self._done} of {self._total} done: {counts}")

    def _due(self) -> bool:
        """Whether it is time for a line."""
        tenth = self._done * LINES // self._total > (self._done - 1) * LINES // self._total
        return tenth or time.monotonic() - self._told > SILENCE

    def _open_bar(self) -> None:
        from rich.console import Console  # lazy: a terminal only
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("starting", total=self._total)
        self._bar.start()
