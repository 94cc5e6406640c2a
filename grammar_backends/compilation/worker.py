"""The process that compiles where an engine may hang, crash or eat memory: every backend of one vocabulary.

Run as ``python -m grammar_backends.compilation.worker DESCRIPTOR``, the number of an open file with a `WorkerSetup`.
What it compiled goes back as the engine's own bytes. An engine without such bytes was merely tried: that it came to
an end here, first mask included, shows that it can be asked again where nobody could kill it.
"""

from __future__ import annotations

import mmap
import pickle
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from grammar_backends.compilation.backends import LiveBackends
from grammar_backends.compilation.outcome import CompilationFailure
from grammar_backends.contract import (
    BackendSpec,
    CompiledGrammar,
    GrammarBackend,
    GrammarKind,
    GrammarOptions,
    GrammarSpec,
    Vocabulary,
)
from grammar_backends.errors import ArtifactError, GrammarBackendsError
from grammar_backends.plugins import PluginHost, hookimpl
from grammar_backends.selection import Policy
from grammar_backends.workers import Message, Service, out_of_memory, serve

__all__ = ["COMMAND", "WorkerSetup", "start", "task"]

COMMAND = ("grammar_backends.compilation.worker",)


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is made of.

    Attributes:
        backends: what it can be asked for; registered anew in the worker, from this data.
        vocabulary: whose rows they fill.
        options: each backend's own options, by name.
        policy: what they may leave unenforced, and how large a spec may be.
        warm: backends to load before the first task.
        path: where modules are imported from, as in the parent.
    """

    backends: tuple[BackendSpec, ...]
    vocabulary: Vocabulary
    options: Mapping[str, Mapping[str, Any]]
    policy: Policy
    warm: tuple[str, ...]
    path: tuple[str, ...]


def task(backend: str, spec: GrammarSpec) -> Message:
    """What a worker is asked."""
    fields = {"kind": spec.kind.value, "text": spec.text, "syntax": spec.syntax, "options": asdict(spec.options)}
    return Message({"backend": backend, "spec": fields})


def start(descriptor: int) -> Service:
    """Load the backends. One that cannot be loaded is reported when it is asked for."""
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
        setup: WorkerSetup = pickle.loads(data)
    sys.path[:] = setup.path
    host = PluginHost(autoload=False, plugins={"parent": _Registered(setup.backends)})
    backends = LiveBackends(setup.vocabulary, host, setup.options, setup.policy)
    for name in setup.warm:
        _load(backends, name)
    return Service({}, lambda message: _compile(backends, message))


class _Registered:
    """A plugin that registers what the parent has."""

    def __init__(self, backends: tuple[BackendSpec, ...]) -> None:
        self._backends = backends

    @hookimpl
    def grammar_backends_register_backends(self) -> tuple[BackendSpec, ...]:
        return self._backends


def _load(backends: LiveBackends, name: str) -> None:
    try:
        backends.get(name)
    except GrammarBackendsError:
        return


def _compile(backends: LiveBackends, message: Message) -> Message:
    name, fields = message.head["backend"], message.head["spec"]
    spec = GrammarSpec(
        GrammarKind(fields["kind"]), fields["text"], fields["syntax"], GrammarOptions(**fields["options"])
    )
    started = time.monotonic()
    try:
        backend = backends.get(name)
        started = time.monotonic()
        compiled = backend.compile_grammar(spec)
        data = _dump(backend, compiled)
    except BaseException as error:  # an engine's panic is no Exception
        if out_of_memory(error):
            raise MemoryError from error
        return Message({"failure": CompilationFailure.of(error, name).to_dict()})
    return Message({"seconds": time.monotonic() - started, "serial": data is not None}, data or b"")


def _dump(backend: GrammarBackend, compiled: CompiledGrammar) -> bytes | None:
    """The artifact as bytes; None where there are none: the parent then compiles what is known to compile."""
    try:
        return backend.dump_grammar(compiled)
    except ArtifactError:
        return None


if __name__ == "__main__":
    sys.exit(serve(lambda: start(int(sys.argv[1]))))
