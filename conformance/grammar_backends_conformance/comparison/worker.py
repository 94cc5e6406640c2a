"""The process that runs cases: one backend, warmed up, serving cases one after another (`grammar_backends.workers`).

Run as ``python -m grammar_backends_conformance.comparison.worker BACKEND TOKENIZER [IGNORED,...]``.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Literal

from grammar_backends import CompiledGrammar, GrammarSpec, Vocabulary, default_host, load_backend, load_vocabulary
from grammar_backends.workers import Message, NotStarted, Service, serve
from grammar_backends_conformance.comparison.judge import Compile, judge, warm_up
from grammar_backends_conformance.corpora.reading import parse_case
from grammar_backends_conformance.running.environment import describe_vocabulary

__all__ = ["start"]

POLICIES = {"auto": "default", "auto-fast": "fast"}
"""The automatic choice, and the policy by which it goes."""


def start(backend: str, tokenizer: str, ignore: str = "") -> Service:
    """Load and warm up.

    Args:
        backend: a backend's name, "auto" or "auto-fast".
        tokenizer: as `load_vocabulary` takes it.
        ignore: what may be left unenforced, joined by commas; see `Policy`.

    Raises:
        NotStarted: the tokenizer cannot be read.
    """
    try:
        vocabulary = load_vocabulary(tokenizer)
    except Exception as error:
        raise NotStarted from error
    compile_, version = _compiler(backend, vocabulary, tuple(filter(None, ignore.split(","))))

    def answer(task: Message) -> Message:
        result = judge(parse_case(task.head), compile_, vocabulary)
        if backend not in POLICIES:
            result.chosen = None
        return Message(result.to_dict())

    return Service({"version": version, "vocabulary": describe_vocabulary(vocabulary)}, answer)


def _compiler(backend: str, vocabulary: Vocabulary, ignore: tuple[str, ...]) -> tuple[Compile, str]:
    """How this worker compiles, warmed up, and the version of what does it."""
    if backend not in POLICIES:
        loaded = load_backend(backend, vocabulary, ignore=ignore)
        warm_up(loaded.compile_grammar, vocabulary)
        return loaded.compile_grammar, loaded.version
    return _automatic(POLICIES[backend], vocabulary, ignore)


def _automatic(policy: str, vocabulary: Vocabulary, ignore: tuple[str, ...]) -> tuple[Compile, str]:
    from grammar_backends import __version__, select_backend
    from grammar_backends.selection import Policy

    host = default_host()
    mode: Literal["strict", "lenient"] = "lenient" if ignore else "strict"
    whole = dataclasses.replace(Policy.of(policy), mode=mode, ignore=ignore)

    def compile_with(spec: GrammarSpec, policy: Policy = whole) -> CompiledGrammar:
        return select_backend(spec, vocabulary, host=host, policy=policy).backend.compile_grammar(spec)

    for record in host.backends:
        if record.state == "loaded" and record.spec.priority is not None:
            only = Policy(order=(record.spec.name,))
            warm_up(lambda spec, only=only: compile_with(spec, only), vocabulary)  # type: ignore[misc]  # default binds the loop variable
    return compile_with, __version__


if __name__ == "__main__":
    sys.exit(serve(lambda: start(*sys.argv[1:])))
