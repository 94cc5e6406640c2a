"""The process that runs checks: one backend with one vocabulary (`grammar_backends.workers`).

Run as ``python -m grammar_backends_conformance.suite.worker SPEC VOCABULARY``, SPEC being a `BackendSpec` as `encode`
writes it: a backend need not be installed as a plugin to be judged.
"""

from __future__ import annotations

import base64
import pickle
import sys

from grammar_backends.contract import BackendSpec
from grammar_backends.workers import Message, Service, serve
from grammar_backends_conformance.laws.check import Check
from grammar_backends_conformance.suite.bench import Bench

__all__ = ["command", "start"]


def command(spec: BackendSpec, vocabulary: str) -> tuple[str, ...]:
    """The worker for a lane of a pool."""
    return (__name__, base64.b64encode(pickle.dumps(spec)).decode(), vocabulary)


def start(encoded: str, vocabulary: str) -> Service:
    """Load the backend with its vocabulary."""
    spec: BackendSpec = pickle.loads(base64.b64decode(encoded))
    bench = Bench(spec, vocabulary)
    return Service(bench.facts, lambda task: Message(bench.run(Check.from_dict(task.head)).to_dict()))


if __name__ == "__main__":
    sys.exit(serve(lambda: start(sys.argv[1], sys.argv[2])))
