"""How failures are logged: by digest, never by content, and without floods (K3).

The client gets the whole error with its own words in it; a log that others read gets the kind of the spec, its digest
and its length, so that the two can be brought together by whoever holds both.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from grammar_backends.contract import GrammarSpec
from grammar_backends.errors import GrammarBackendsError, SpecError

__all__ = ["FailureLog"]


class FailureLog:
    """Logs failures of requests. Thread-safe.

    Args:
        logger: where to.
        interval: seconds in which one kind of failure of one backend is logged once, when the engine is at fault.
        clock: the time in seconds.
    """

    def __init__(
        self, logger: logging.Logger, *, interval: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # when it was logged last, and how often not since

    def report(self, error: BaseException, *, spec: GrammarSpec, backend: str, request_id: str) -> None:
        """Log one failure.

        ::

            the client's fault  -> info, each of them
            the engine's fault  -> error, once in an interval for each backend and type of error
            at debug level      -> the error's own words and its traceback, which may quote the spec
        """
        kind = type(error).__name__
        if isinstance(error, SpecError):
            self._logger.info("request %s: %s refused by %s: %s", request_id, spec, backend or "the front end", kind)
        elif (suppressed := self._due(backend, kind)) is not None:
            self._logger.error(
                "request %s: %s failed on %s: %s%s%s",
                request_id,
                backend,
                spec,
                kind,
                f" ({suppressed} more since the last line like this)" if suppressed else "",
                "" if isinstance(error, GrammarBackendsError) else "; a plugin must not raise this: please report it",
            )
        self._logger.debug("request %s: what was raised", request_id, exc_info=error)

    def _due(self, backend: str, kind: str) -> int | None:
        """How many failures like this were left out before this one; None when this one is to be left out too."""
        now = self._clock()
        with self._lock:
            last, suppressed = self._seen.get((backend, kind), (None, 0))
            if last is not None and now - last < self._interval:
                self._seen[backend, kind] = last, suppressed + 1
                return None
            self._seen[backend, kind] = now, 0
            return suppressed
