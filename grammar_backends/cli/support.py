"""What a command of another distribution needs to look and behave like the commands here.

Import it inside `grammar_backends.commands` entry points: exit codes, the shared options, and output.
"""

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
from grammar_backends.cli.output import FORMATS, Block, Table, Verbatim, emit, format_option, markdown, note, printable

__all__ = [
    "FORMATS",
    "Block",
    "ExitCode",
    "SpecInput",
    "Table",
    "Verbatim",
    "backend_option",
    "emit",
    "exit_with",
    "format_option",
    "ignore_option",
    "markdown",
    "note",
    "policy_of",
    "policy_option",
    "printable",
    "spec_options",
    "tokenizer_option",
]
