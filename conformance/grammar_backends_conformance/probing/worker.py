"""The process that answers probes: one backend over single bytes, without its table before it.

Run as ``python -m grammar_backends_conformance.probing.worker BACKEND``.
"""

from __future__ import annotations

import sys

from grammar_backends import GrammarBackend, default_host, load_vocabulary
from grammar_backends.workers import Message, Service, serve
from grammar_backends_conformance.comparison.judge import judge
from grammar_backends_conformance.corpora.reading import parse_case

__all__ = ["start"]


def start(name: str) -> Service:
    """Load the engine. Specs reach it as they are: what its table would refuse is what is to be found out."""
    host, vocabulary = default_host(), load_vocabulary("byte")
    backend = GrammarBackend(host.backend(name), host.create_engine(name, vocabulary), vocabulary, lambda spec: spec)

    def answer(task: Message) -> Message:
        result = judge(parse_case(task.head), backend.compile_grammar, vocabulary)
        result.fills_us = result.accepts_us = []
        return Message(result.to_dict())

    return Service({"version": backend.version}, answer)


if __name__ == "__main__":
    sys.exit(serve(lambda: start(*sys.argv[1:])))
