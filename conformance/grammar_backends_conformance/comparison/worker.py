"""The process that runs cases: one backend, warmed up, serving cases one after another until its input ends.

Run as ``python -m grammar_backends_conformance.comparison.worker BACKEND TOKENIZER``; it reads a case a line from
stdin and answers each with a line on stdout. Whatever an engine prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
from typing import IO, Any

from grammar_backends import CompiledGrammar, GrammarSpec, Vocabulary, default_host, load_backend, load_vocabulary
from grammar_backends.errors import GrammarBackendsError
from grammar_backends_conformance.comparison.corpus import parse_case
from grammar_backends_conformance.comparison.judge import Compile, judge, warm_up
from grammar_backends_conformance.comparison.outcome import CaseResult

__all__ = ["main"]

AUTO = "auto"


def main(backend: str, tokenizer: str) -> int:
    """Serve cases until stdin ends; 0 when it did, 1 when the backend cannot start or the process is spent."""
    answers = _take_stdout()
    _die_with_parent()
    try:
        vocabulary = load_vocabulary(tokenizer)
    except Exception as error:
        return _refuse_to_start(answers, "tokenizer", error)
    try:
        compile_, version = _compiler(backend, vocabulary)
    except Exception as error:
        return _refuse_to_start(answers, "backend", error)
    # The vocabulary is large and lives on: without this, every full collection during a case would walk it.
    gc.collect()
    gc.freeze()
    _send(answers, {"ready": {"version": version, "vocabulary": _describe(vocabulary)}})
    return _serve(answers, compile_, vocabulary, name_choice=backend == AUTO)


def _serve(answers: IO[str], compile_: Compile, vocabulary: Vocabulary, *, name_choice: bool) -> int:
    for line in sys.stdin:
        case = parse_case(json.loads(line))
        try:
            result = judge(case, compile_, vocabulary)
        except MemoryError:
            result = CaseResult(case.id, "crash", "out of memory (MemoryError)")
            _send(answers, {"result": result.to_dict(), "spent": True})
            return 1
        if not name_choice:
            result.chosen = None
        _send(answers, {"result": result.to_dict()})
        gc.collect()  # between cases, so that none pays for its predecessor
    return 0


def _compiler(backend: str, vocabulary: Vocabulary) -> tuple[Compile, str]:
    """How this worker compiles, warmed up, and the version of what does it."""
    if backend != AUTO:
        loaded = load_backend(backend, vocabulary)
        warm_up(loaded.compile_grammar, vocabulary)
        return loaded.compile_grammar, loaded.version
    return _automatic(vocabulary)


def _automatic(vocabulary: Vocabulary) -> tuple[Compile, str]:
    from grammar_backends import __version__, select_backend
    from grammar_backends.selection import Policy

    host = default_host()

    def compile_with(spec: GrammarSpec, policy: Policy | None = None) -> CompiledGrammar:
        return select_backend(spec, vocabulary, host=host, policy=policy).backend.compile_grammar(spec)

    for record in host.backends:
        if record.state == "loaded" and record.spec.priority is not None:
            only = Policy(order=(record.spec.name,))
            warm_up(lambda spec, only=only: compile_with(spec, only), vocabulary)  # type: ignore[misc]  # default binds the loop variable
    return compile_with, __version__


def _describe(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "name": vocabulary.name,
        "size": vocabulary.size,
        "width": vocabulary.width,
        "fingerprint": vocabulary.fingerprint,
    }


def _refuse_to_start(answers: IO[str], stage: str, error: Exception) -> int:
    message = str(error) if isinstance(error, GrammarBackendsError) else f"{type(error).__name__}: {error}"
    _send(answers, {"failed": {"stage": stage, "message": message}})
    return 1


def _send(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _take_stdout() -> IO[str]:
    """The real stdout for answers; whatever else writes there, natively too, goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _die_with_parent() -> None:
    """Linux: a worker inside a hanging engine must not outlive a parent that was killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
