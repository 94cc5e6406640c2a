"""What a manager may use: budgets of time and memory, workers, and sizes of its caches."""

from __future__ import annotations

from dataclasses import dataclass, fields

from grammar_backends.installation import available_cores

__all__ = ["ManagerLimits"]

MOST = 10**9
"""Of seconds and megabytes: beyond it clocks and system calls overflow, and thirty years are no bound."""


@dataclass(frozen=True, slots=True)
class ManagerLimits:
    """All bounds of a `GrammarManager`.

    Attributes:
        compile_seconds: the time that engines may spend on one key; in a process they are killed then, in a thread
            they are given up (E6).
        compile_megabytes: the growth of a process over one compilation, beyond which it is killed.
        defer_seconds: how long a scheduler may pass over one request, from the first time it does (E6).
        attach_seconds: how long `GrammarTicket.attach` may wait (E6).
        shutdown_seconds: how long a shutdown may wait (E16).
        workers: compilations at a time, each with a process if need be, and one process to spare; None for half the
            cores divided by `compile_threads`, but at least two, so that one slow spec does not hold up all others, and
            at most eight, since a process takes some hundred megabytes (E2).
        compile_threads: threads inside one compilation, for engines that can use several (E2).
        stuck_threads: threads that never came back from an engine and are replaced; with more of them the manager
            works with fewer threads, and with none left it refuses (E6).
        cached_entries, cached_bytes: compiled grammars kept in memory, the least recently used go first (E10).
        cached_failures: failures remembered (E9).
        failure_seconds: how long a failure is remembered that would happen again (E9).
        transient_failure_seconds: how long one that might not: a time-out, a crash, too much memory (E9).
    """

    compile_seconds: float = 60.0
    compile_megabytes: float = 4096.0
    defer_seconds: float = 5.0
    attach_seconds: float = 10.0
    shutdown_seconds: float = 5.0
    workers: int | None = None
    compile_threads: int = 1
    stuck_threads: int = 4
    cached_entries: int = 4096
    cached_bytes: int = 1 << 30
    cached_failures: int = 4096
    failure_seconds: float = 600.0
    transient_failure_seconds: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "workers":
                continue
            least = 1 if field.name in ("workers", "compile_threads") else 0
            kinds, what = ((int, float), "a number") if field.type == "float" else (int, "a whole number")
            if isinstance(value, bool) or not isinstance(value, kinds) or not value >= least:  # NaN is not
                raise ValueError(f"{field.name} must be {what} of at least {least}, not {value!r}")
            if field.type == "float" and value > MOST:
                raise ValueError(f"{field.name} must be at most {MOST:,}, not {value!r}")

    @property
    def threads(self) -> int:
        """Compilations at a time."""
        return self.workers or min(8, max(2, available_cores() // 2 // self.compile_threads))
