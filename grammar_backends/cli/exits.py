"""What the process tells its caller: one meaning for each exit code, and which error means which.

The codes are part of the public interface; scripts and CI rely on them.
"""

from __future__ import annotations

import enum
import errno

import click

from grammar_backends.errors import (
    BackendUnavailable,
    GrammarBackendsError,
    PluginError,
    UnsupportedFeature,
)

__all__ = ["ExitCode", "exit_with", "is_full", "of_error"]


class ExitCode(enum.IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILURES = 1
    """The command ran and found failures, refusals or a regression."""
    INTERRUPTED = 2
    INTERNAL_ERROR = 3
    USAGE = 4
    """A wrong option, a file that cannot be read or written, a malformed spec, an unreadable tokenizer."""
    NOTHING_RAN = 5
    BACKEND_UNAVAILABLE = 6


def is_full(error: Exception) -> bool:
    """Whether the place that output goes to takes no more: the caller's business, not a bug."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def exit_with(code: ExitCode) -> None:
    """End the running command with this code; a command that simply returns ends with OK."""
    click.get_current_context().exit(code)


def of_error(error: Exception) -> ExitCode:
    """The exit code for an error that a command did not handle itself."""
    if isinstance(error, click.ClickException) or is_full(error):
        return ExitCode.USAGE
    if isinstance(error, (BackendUnavailable, PluginError)):
        return ExitCode.BACKEND_UNAVAILABLE
    if isinstance(error, UnsupportedFeature):
        return ExitCode.FAILURES
    if isinstance(error, GrammarBackendsError):
        # Errors of this project that are ValueErrors are about what the caller gave.
        return ExitCode.USAGE if isinstance(error, ValueError) else ExitCode.FAILURES
    return ExitCode.INTERNAL_ERROR
