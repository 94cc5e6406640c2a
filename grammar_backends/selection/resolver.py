"""Which backend serves which request of one inference engine, for as long as the engine lives (C1.3, C2.3, C2.4)."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import OrderedDict

from grammar_backends.contract import GrammarSpec, Vocabulary
from grammar_backends.errors import SpecError, shown
from grammar_backends.plugins import PluginHost
from grammar_backends.selection.chain import Policy, Selection, select_backend
from grammar_backends.selection.loading import shared_host

__all__ = ["BackendResolver"]

MAX_RECORDS = 4_096
"""Specs whose backend is remembered."""


class BackendResolver:
    """Chooses a backend once for each spec, and stays with it. Thread-safe.

    A choice is kept here, by what was asked for, and never written into the request: the same spec can go to several
    engines, each with a resolver and a choice of its own.

    Args:
        vocabulary: the engine's.
        host: where backends are looked up; None for every installed plugin.
        policy: as `select_backend`.
        backend: the one backend that the engine is set to; "auto" leaves the choice to the policy.
        several: backends may live side by side, since their rows have one layout. False: the first request that is
            not refused decides for the engine, and what that backend does not enforce is refused from then on.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        host: PluginHost | None = None,
        policy: Policy | None = None,
        backend: str = "auto",
        several: bool = True,
    ) -> None:
        self._vocabulary = vocabulary
        self._host = host or shared_host()
        self._policy = policy or Policy()
        self._several = several
        self._only = None if backend == "auto" else self._host.backend(backend).name
        self._records: OrderedDict[tuple[GrammarSpec, str | None], Selection] = OrderedDict()
        self._live: dict[str, None] = {}
        self._lock, self._deciding = threading.Lock(), threading.Lock()

    @property
    def live(self) -> tuple[str, ...]:
        """The backends that were chosen so far."""
        return tuple(self._live)

    def resolve(self, spec: GrammarSpec, backend: str = "auto") -> Selection:
        """The backend for a spec: the one that was chosen for it before, or `select_backend`'s choice.

        Args:
            spec: what is asked for.
            backend: the request's own wish; "auto" for none.

        Raises:
            SpecError: malformed or unsatisfiable, or the request names another backend than the engine has.
            UnsupportedFeature: no backend enforces all of it, or the engine's one backend does not.
            BackendUnavailable: the request names a backend that cannot be used.
        """
        wish = None if backend == "auto" else backend
        # Where one request decides for the engine, they come one after another.
        with contextlib.nullcontext() if self._several else self._deciding:
            if self._only is not None and wish not in (None, self._only):
                hint = 'Leave the choice to the engine with "auto"'
                raise SpecError(f"backend: this engine has {self._only} only, not {shown(wish)}", hint=hint)
            name = self._only or wish
            return self._recorded(spec, name) or self._select(spec, name)

    def _recorded(self, spec: GrammarSpec, name: str | None) -> Selection | None:
        with self._lock:
            if (spec, name) in self._records:
                self._records.move_to_end((spec, name))
            return self._records.get((spec, name))

    def _select(self, spec: GrammarSpec, name: str | None) -> Selection:
        policy = dataclasses.replace(self._policy, order=(name,)) if name else self._policy
        selection = select_backend(spec, self._vocabulary, self._host, policy)
        chosen = selection.backend.name
        if not self._several:
            self._only = name = chosen
        with self._lock:
            self._live[chosen] = None
            self._records[spec, name] = selection
            if len(self._records) > MAX_RECORDS:
                self._records.popitem(last=False)
        return selection
