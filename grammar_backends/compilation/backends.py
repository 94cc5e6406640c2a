"""The backends that are live in one process: each loaded once, when it is first needed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from grammar_backends.contract import GrammarBackend, Vocabulary
from grammar_backends.plugins import PluginHost
from grammar_backends.selection import Policy, load_backend

__all__ = ["LiveBackends"]

logger = logging.getLogger(__name__)


class LiveBackends:
    """Backends by name. Thread-safe; several can be live at once, since all fill rows of one width.

    Args:
        vocabulary: whose rows they fill.
        host: where they are looked up.
        options: each backend's own options, by name.
        policy: what they may leave unenforced, and how large a spec may be.
    """

    def __init__(
        self, vocabulary: Vocabulary, host: PluginHost, options: Mapping[str, Mapping[str, Any]], policy: Policy
    ) -> None:
        self._vocabulary = vocabulary
        self._host = host
        self._options = options
        self._policy = policy
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {}
        self._loaded: dict[str, GrammarBackend] = {}

    def get(self, name: str) -> GrammarBackend:
        """A backend, loaded now if need be; one that cannot be loaded is tried again the next time.

        Raises:
            BackendUnavailable, VocabularyError: as `load_backend`.
        """
        with self._lock:
            backend = self._loaded.get(name)
            loading = self._loading.setdefault(name, threading.Lock())
        if backend is not None:
            return backend
        with loading:  # of one backend only: the others are not held up
            with self._lock:
                backend = self._loaded.get(name)
            if backend is None:
                options, policy = self._options.get(name), self._policy
                backend = load_backend(name, self._vocabulary, options, self._host, policy.ignore, policy.limits)
                with self._lock:
                    self._loaded[name] = backend
            return backend

    def destroy(self) -> None:
        """Release what the engines hold; after the last compilation has ended (B13)."""
        with self._lock:
            for backend in self._loaded.values():
                try:
                    backend.destroy()
                except Exception:  # the others are released all the same
                    logger.exception("%s cannot be released", backend.name)
