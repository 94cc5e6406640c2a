"""``gb check``: validates a spec and compiles it, on the backend that would be chosen, a named one, or every one."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import click

from grammar_backends.cli.exits import ExitCode, exit_with
from grammar_backends.cli.options import (
    SpecInput,
    backend_option,
    ignore_option,
    policy_of,
    policy_option,
    spec_options,
    tokenizer_option,
)
from grammar_backends.cli.output import Table, emit, format_option, note
from grammar_backends.errors import GrammarBackendsError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from grammar_backends import GrammarBackend, GrammarSpec, PluginHost, Vocabulary
    from grammar_backends.selection import Policy

__all__ = ["check"]


@dataclass(frozen=True)
class Verdict:
    """What one backend made of the spec."""

    backend: str
    version: str | None
    verdict: Literal["ok", "refused", "failed"]
    compile_ms: float | None = None
    where: str = ""
    reason: str = ""


@click.command()
@spec_options
@tokenizer_option
@backend_option("A backend's name, auto for the one that would be chosen, or all.")
@ignore_option
@policy_option
@format_option
def check(spec_input: SpecInput, tokenizer: str, backend: str, ignore: str, policy: str, format_: str) -> None:
    """Validate a spec and compile it.

    Exits with 1 when a backend refuses it or fails, with 4 when the spec itself is malformed.

    Example: gb check --regex '[a-z]+' --backend all
    """
    from grammar_backends import default_host, load_vocabulary, validate_spec  # lazy: numpy and every plugin

    chosen = policy_of(ignore, policy=policy)
    spec = spec_input.read()
    validate_spec(spec)
    host = default_host()
    names = _names(host, backend)
    if not names:
        note("No backend is installed, so nothing was checked.")
        exit_with(ExitCode.NOTHING_RAN)
    vocabulary = load_vocabulary(tokenizer)
    verdicts = [_check_one(spec, vocabulary, host, name, chosen) for name in names]
    data = {"spec": str(spec), "tokenizer": vocabulary.name, "results": [asdict(verdict) for verdict in verdicts]}
    emit(format_, data, [_table(verdicts)])
    exit_with(ExitCode.OK if all(v.verdict == "ok" for v in verdicts) else ExitCode.FAILURES)


def _names(host: PluginHost, backend: str) -> list[str]:
    """The backends to check; raises `BackendUnavailable` for a name that cannot be used."""
    if backend == "all":
        return [record.spec.name for record in host.backends if record.state == "loaded"]
    if backend != "auto":
        host.backend(backend)
    return [backend]


def _check_one(spec: GrammarSpec, vocabulary: Vocabulary, host: PluginHost, name: str, policy: Policy) -> Verdict:
    backend: GrammarBackend | None = None
    try:
        backend = _load(spec, vocabulary, host, name, policy)
        _warm_up(backend)
        milliseconds = _timed(lambda: backend.compile_grammar(spec))
        return Verdict(backend.name, backend.version, "ok", round(milliseconds, 3))
    except SpecError as error:
        return Verdict(*_identity(name, backend), "refused", where=error.where, reason=_reason(error))
    except GrammarBackendsError as error:
        return Verdict(*_identity(name, backend), "failed", reason=str(error))


def _load(spec: GrammarSpec, vocabulary: Vocabulary, host: PluginHost, name: str, policy: Policy) -> GrammarBackend:
    from grammar_backends import load_backend, select_backend  # lazy: as above

    if name == "auto":
        return select_backend(spec, vocabulary, host=host, policy=policy).backend
    return load_backend(name, vocabulary, host=host, ignore=policy.ignore)


def _warm_up(backend: GrammarBackend) -> None:
    """Compile something small, so that the time shown holds nothing that is done once per process."""
    from grammar_backends import GrammarSpec  # lazy: as above

    with contextlib.suppress(GrammarBackendsError):
        backend.compile_grammar(GrammarSpec.choice(["warm up"]))


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def _identity(name: str, backend: GrammarBackend | None) -> tuple[str, str | None]:
    return (backend.name, backend.version) if backend is not None else (name, None)


def _reason(error: SpecError) -> str:
    parts = [error.message, error.engine_text, error.hint]
    return ". ".join(part.rstrip(".") for part in parts if part)


def _table(verdicts: list[Verdict]) -> Table:
    rows = [[v.backend, v.version or "", v.verdict, _milliseconds(v.compile_ms), v.where, v.reason] for v in verdicts]
    return Table("", ["Backend", "Version", "Verdict", ">Compile ms", "Where", "Reason"], rows)


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
