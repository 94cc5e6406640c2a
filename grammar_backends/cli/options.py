"""Options that several commands share: the spec to work on, the tokenizer, the backend.

The options only say where a spec comes from; `SpecInput.read` reads files and makes the `GrammarSpec`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click

from grammar_backends.errors import SpecError

if TYPE_CHECKING:
    from grammar_backends import GrammarOptions, GrammarSpec
    from grammar_backends.selection import Policy

__all__ = [
    "SpecInput",
    "backend_option",
    "ignore_option",
    "policy_of",
    "policy_option",
    "spec_options",
    "tokenizer_option",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_KINDS = ("json_schema", "regex", "grammar", "choice", "structural_tag", "json_object")
_SETTINGS = ("syntax", "whitespace", "additional_properties")


def _once(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The one value of an option: of two, neither can be the one that was meant."""
    if len(values) > 1:
        raise click.UsageError(f"{option.opts[0]} is given {len(values)} times.")
    return values[0] if values else None


def _single(flag: str, **more: Any) -> Any:
    return click.option(flag, multiple=True, callback=_once, **more)


_OPTIONS: list[Any] = [
    _single("--json-schema", metavar="FILE", help="A JSON schema: a file, - for stdin, or the text ({...})."),
    _single("--regex", metavar="PATTERN", help="A regular expression that the whole text must match."),
    _single("--grammar", metavar="FILE", help="A grammar in EBNF, GBNF or Lark: a file, or - for stdin."),
    click.option("--choice", multiple=True, metavar="A,B", help="The allowed texts: A,B or a JSON list; repeatable."),
    _single("--structural-tag", metavar="FILE", help="A structural tag: a file, - for stdin, or the text ({...})."),
    click.option("--json-object", is_flag=True, help="Any JSON object."),
    _single("--syntax", type=click.Choice(["auto", "ebnf", "lark", "gbnf"]), help="How --grammar is written."),
    _single("--whitespace", type=click.Choice(["any", "compact"]), help="White space in JSON; default any."),
    _single(
        "--additional-properties",
        type=click.Choice(["schema", "closed"]),
        help="What an absent additionalProperties means: open as in JSON Schema (schema, the default), or closed.",
    ),
]


@dataclass(frozen=True)
class SpecInput:
    """The one spec that the command line named, not yet read.

    Attributes:
        kind: which option named it.
        value: what the option held.
        settings: the options that change its meaning, where given.
    """

    kind: str
    value: Any
    settings: dict[str, str]

    def read(self) -> GrammarSpec:
        """Read the file, if it is one, and make the spec.

        Raises:
            SpecError: the content cannot be used; the message begins with the file's name.
            click.UsageError: a file that cannot be read.
        """
        source, text = _content(self.kind, self.value)
        try:
            return self._make(text)
        except SpecError as error:
            error.message = f"{source}{error.message}"
            raise

    def _make(self, text: Any) -> GrammarSpec:
        from grammar_backends import GrammarSpec  # lazy: numpy

        options = self._options()
        if self.kind == "json_object":
            return GrammarSpec.json_object(options=options)
        if self.kind == "grammar":
            return GrammarSpec.grammar(text, cast("Any", self.settings.get("syntax", "auto")), options=options)
        make: Any = getattr(GrammarSpec, self.kind)
        return cast("GrammarSpec", make(text, options=options))

    def _options(self) -> GrammarOptions:
        from grammar_backends import GrammarOptions  # lazy: numpy

        return GrammarOptions(**cast("Any", {name: v for name, v in self.settings.items() if name != "syntax"}))


def spec_options(function: Function) -> Function:
    """Adds the options that name a spec; the command gets `spec_input`."""

    @functools.wraps(function)
    def wrapper(*args: Any, **given: Any) -> Any:
        values = {name: given.pop(name) for name in _KINDS}
        settings = {name: given.pop(name) for name in _SETTINGS}
        return function(*args, spec_input=_one_spec(values, settings), **given)

    decorated: Any = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return cast("Function", decorated)


def tokenizer_option(function: Function) -> Function:
    """Adds ``--tokenizer``; the command gets `tokenizer`."""
    return click.option(
        "--tokenizer",
        default="tekken",
        show_default=True,
        metavar="NAME",
        help="tekken, byte, a tokenizer file (tokenizer.json, .model, .tiktoken, .gguf) or directory, or a hub id.",
    )(function)


def backend_option(help_: str) -> Callable[[Function], Function]:
    """Adds ``--backend``; the command gets `backend`."""
    return click.option("--backend", default="auto", show_default=True, metavar="NAME", help=help_)


def ignore_option(function: Function) -> Function:
    """Adds ``--ignore``; the command gets `ignore`, for `policy_of`."""
    return click.option(
        "--ignore",
        default="",
        metavar="KEYWORD,...",
        help="What may be left unenforced in JSON schemas where nothing enforces it: keywords, format:NAME, pointers.",
    )(function)


def policy_option(function: Function) -> Function:
    """Adds ``--policy``; the command gets `policy`, for `policy_of`."""
    return click.option(
        "--policy",
        type=click.Choice(["default", "fast"]),
        default="default",
        show_default=True,
        help="Whom auto takes of those that enforce the spec: the first in the order, or the quickest by prediction.",
    )(function)


def policy_of(ignore: str, order: tuple[str, ...] | None = None, policy: str = "default") -> Policy:
    """The policy that ``--ignore`` and ``--policy`` ask for.

    Raises:
        click.UsageError: something that cannot be ignored.
    """
    from grammar_backends.selection import Policy  # lazy: numpy

    names = tuple(name.strip() for name in ignore.split(",") if name.strip())
    try:
        mode: Literal["strict", "lenient"] = "lenient" if names else "strict"
        return dataclasses.replace(Policy.of(policy), order=order, mode=mode, ignore=names)
    except ValueError as error:
        raise click.UsageError(f"--ignore: {error}.") from None


def _one_spec(values: dict[str, Any], settings: dict[str, str | None]) -> SpecInput:
    # An empty text is given too: "" is a valid pattern, and as a schema deserves its own error.
    given = [name for name, value in values.items() if value is not None and value is not False and value != ()]
    if len(given) != 1:
        named = ", ".join(_flag(name) for name in given) or "none"
        raise click.UsageError(f"Give exactly one of {', '.join(map(_flag, _KINDS))}; given: {named}.")
    if settings["syntax"] and given[0] != "grammar":
        raise click.UsageError(f"--syntax goes with --grammar, not with {_flag(given[0])}.")
    return SpecInput(given[0], values[given[0]], {name: value for name, value in settings.items() if value})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _content(kind: str, value: Any) -> tuple[str, Any]:
    """Where the content came from, as a prefix for messages, and the content."""
    if kind == "choice":
        return "", _choices(value)
    if kind not in ("json_schema", "grammar", "structural_tag"):
        return "", value
    if value == "-":
        return "stdin: ", _decoded("stdin", sys.stdin.buffer.read())
    if kind != "grammar" and (value.lstrip()[:1] in ("{", "[", '"') or value.strip() in ("true", "false", "null")):
        return "", value  # JSON, also where it is no schema: no file is called so
    try:
        return f"{value}: ", _decoded(value, Path(value).read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise click.UsageError(f"{_flag(kind)}: cannot read {value!r}: {reason}.") from None


def _decoded(source: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{source} is not UTF-8: byte {error.start} is {data[error.start]:#04x}.") from None


def _choices(values: Sequence[str]) -> list[Any]:
    choices: list[Any] = []
    for value in values:
        choices += _json_list(value) if value.lstrip().startswith("[") else value.split(",")
    return choices


def _json_list(value: str) -> list[Any]:
    try:
        return cast("list[Any]", json.loads(value))
    except ValueError as error:
        raise click.UsageError(f"--choice: a value that begins with [ must be a JSON list: {error}.") from None
