"""The hooks that a plugin may implement, and the plain data they return.

A plugin is a module (or object) named by an entry point in the group ``grammar_backends``; it marks its functions
with `hookimpl`. Registering must be cheap: return data, import engines in the factories only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pluggy

from grammar_backends.contract import BackendSpec, GrammarSpec

__all__ = ["PROJECT", "CommandSpec", "TokenizerSpec", "hookimpl", "hookspec"]

PROJECT = "grammar_backends"
"""The pluggy project and the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """A vocabulary that can be asked for by name.

    Attributes:
        name: what `load_vocabulary` takes.
        factory: ``"package.module:attribute"`` of a callable ``() -> Vocabulary``, imported on use.
        description: one line for help texts.
    """

    name: str
    factory: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command added to the command line.

    Attributes:
        name: the word after ``gb``.
        factory: ``"package.module:attribute"`` of a click command, imported on use.
        description: one line for ``gb --help``.
    """

    name: str
    factory: str
    description: str = ""


@hookspec
def grammar_backends_register_backends() -> Iterable[BackendSpec]:  # type: ignore[empty-body]  # a pluggy signature
    """The backends of this plugin."""


@hookspec
def grammar_backends_register_tokenizers() -> Iterable[TokenizerSpec]:  # type: ignore[empty-body]  # as above
    """The vocabularies of this plugin."""


@hookspec(firstresult=True)
def grammar_backends_order_chain(request: GrammarSpec, candidates: Sequence[str]) -> Sequence[str] | None:
    """The order in which the automatic choice tries `candidates` for this request; None leaves it as it is.

    Names left out are not tried; unknown names are ignored. The first plugin that answers decides.
    """


@hookspec
def grammar_backends_register_commands() -> Iterable[CommandSpec]:  # type: ignore[empty-body]  # as above
    """The commands of this plugin."""
