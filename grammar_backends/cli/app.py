"""The `gb` group: finds commands without importing them, and turns every error into one line and an exit code.

Commands of other distributions are listed by the entry-point group `COMMANDS`, whose metadata is cheap to read;
commands that a plugin only registers through its hook are looked up when somebody names them.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import os
import sys
from typing import Any, NoReturn, cast

import click

from grammar_backends import __version__
from grammar_backends.cli.exits import ExitCode, is_full, of_error

__all__ = ["COMMANDS", "CommandGroup", "gb", "main"]

COMMANDS = "grammar_backends.commands"
"""Entry-point group: the name is the word after ``gb``, the value ``package.module:click_command``."""

DEBUG_VARIABLE = "GRAMMAR_BACKENDS_DEBUG"

_CORE = {
    "check": "grammar_backends.cli.check:check",
    "doctor": "grammar_backends.cli.doctor:doctor",
    "explain": "grammar_backends.cli.explain:explain",
    "inspect": "grammar_backends.cli.inspect:inspect",
    "list": "grammar_backends.cli.listing:listing",
}


class CommandGroup(click.Group):
    """A click group whose commands are imported when they are needed, with this project's exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_CORE, *_indexed()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _CORE:
            return _load(cmd_name, _CORE[cmd_name])
        if cmd_name in _indexed():
            return _load(cmd_name, _indexed()[cmd_name])
        if ctx.resilient_parsing:
            return None  # shell completion: a half-typed word is not worth loading every plugin
        return _from_hook(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(name, known, n=1)
            meant = f", did you mean {close[0]!r}?" if close else "."
            ctx.fail(f"There is no command {name!r}{meant} Commands: {', '.join(known)}.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        # A command's return value is not its exit code; only an explicit exit is.
        super().invoke(ctx)

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        extra["standalone_mode"] = False
        if sys.stdout is None:  # closed by whoever started the process
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # lives as long as the process
        try:
            code = super().main(*args, **extra) or ExitCode.OK
            sys.stdout.flush()  # what cannot be written must show in the exit code
        except (click.Abort, KeyboardInterrupt):
            click.echo("Interrupted.", err=True)
            code = ExitCode.INTERRUPTED
        except Exception as error:
            code = _report(error)
        sys.exit(int(code))


def _indexed() -> dict[str, str]:
    return {point.name: point.value for point in importlib.metadata.entry_points(group=COMMANDS)}


def _load(name: str, path: str) -> click.Command:
    try:
        module, _, attribute = path.partition(":")
        command = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # another distribution's module may raise anything
        return _broken(name, error)
    return command if isinstance(command, click.Command) else _broken(name, TypeError(f"{path} is no click command"))


def _broken(name: str, error: Exception) -> click.Command:
    """Stands for a command that cannot be imported, so that ``gb --help`` and the other commands still work."""
    reason = f"{type(error).__name__}: {error}"

    def fail(_: tuple[str, ...]) -> None:
        raise click.ClickException(f"the command {name!r} cannot be loaded: {reason}") from error

    rest = click.Argument(["_"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True}
    return click.Command(
        name, callback=fail, params=[rest], short_help=f"(cannot be loaded: {reason})", context_settings=settings
    )


def _from_hook(name: str) -> click.Command | None:
    from grammar_backends import default_host  # lazy: numpy and every plugin

    spec = default_host().commands.get(name)
    return _load(name, spec.factory) if spec is not None else None


def _report(error: Exception) -> ExitCode:
    """Say what went wrong in one line; the traceback only for who asked for it."""
    code = of_error(error)
    if os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
        sys.excepthook(type(error), error, error.__traceback__)
    elif isinstance(error, click.ClickException):
        error.show()
    elif is_full(error):
        click.echo(f"Error: cannot write the output: {cast('OSError', error).strerror}", err=True)
        _let_go_of_stdout()
    elif code is ExitCode.INTERNAL_ERROR:
        click.echo(f"Internal error: {type(error).__name__}: {error}", err=True)
        click.echo(f"This is a bug, please report it; {DEBUG_VARIABLE}=1 shows the traceback.", err=True)
    else:
        click.echo(f"Error: {error}", err=True)
    return code


def _let_go_of_stdout() -> None:
    # What is still buffered would fail again when the interpreter ends, with an exit code of its own.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failures or regression, 2 interrupted, 3 internal error, 4 usage or bad input, "
    "5 nothing ran, 6 backend unavailable.",
)
@click.version_option(__version__, prog_name="grammar-backends")
def gb() -> None:
    """Grammar engines for structured output behind one interface.

    Data goes to stdout, progress and errors to stderr. A terminal gets tables, a pipe gets JSON (--format).
    """


def main() -> NoReturn:
    """Entry point of the scripts `gb` and `grammar-backends`."""
    gb.main()
