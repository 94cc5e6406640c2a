"""Shows results: tables for people, JSON for programs, Markdown for pull requests.

A command builds its data once, as JSON-able values and as blocks (tables, listings and paragraphs), and `emit` writes
the form that was asked for to stdout.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import click

__all__ = ["FORMATS", "Block", "Table", "Verbatim", "emit", "format_option", "markdown", "note", "printable"]

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS = ("table", "json", "markdown")
PIPE_WIDTH = 160
"""Columns of a table that does not go to a terminal."""

_STYLES = {
    "chosen": "bold green", "ok": "green", "loaded": "green", "yes": "green", "pass": "green",
    "refused": "yellow", "unsupported": "yellow", "skipped": "dim", "not tried": "dim", "blocked": "dim",
    "failed": "bold red", "incompatible": "red", "no": "yellow",
}  # fmt: skip  # one line for each mood


@dataclass(frozen=True)
class Table:
    """A titled table of text.

    Attributes:
        title: its heading; "" for none.
        columns: the column headings; one that begins with ">" is aligned to the right.
        rows: as many cells each as there are columns.
        styles: rich styles by the exact text of a cell, besides the usual ones.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verbatim:
    """Text whose lines stay as they are."""

    text: str


Block = Table | Verbatim | str
"""A part of what a command shows; a text is a paragraph."""


def format_option(function: Function) -> Function:
    """Adds ``--format``; the command gets `format_` as one of `FORMATS`."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        callback=lambda _ctx, _param, value: value or ("table" if sys.stdout.isatty() else "json"),
        help="How to print the result. Default: table on a terminal, json otherwise.",
    )(function)


def emit(format_: str, data: Any, blocks: Sequence[Block]) -> None:
    """Write one result to stdout, as `data` (JSON) or as `blocks` (table, Markdown)."""
    if format_ == "json":
        # ASCII, so that text with lone surrogates or odd characters survives every pipe and terminal.
        click.echo(json.dumps(data, indent=2))
    elif format_ == "markdown":
        click.echo(markdown(blocks))
    else:
        _print_rich(blocks)


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks as Markdown."""
    return "\n\n".join(_markdown(block) for block in blocks)


def note(text: str) -> None:
    """A line about the work, for people: on stderr."""
    click.echo(text, err=True)


def printable(text: str) -> str:
    """The text with what a terminal would act upon, or could not show, spelled out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _markdown(block: Block) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Verbatim):
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
        return f"{fence}text\n{block.text}\n{fence}"

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_markdown_cell(cell) for cell in cells) + " |"

    rule = "|" + "|".join("---:" if name.startswith(">") else "---" for name in block.columns) + "|"
    head = [f"### {block.title}", ""] if block.title else []
    return "\n".join([*head, line([name.lstrip(">") for name in block.columns]), rule, *map(line, block.rows)])


def _markdown_cell(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _print_rich(blocks: Sequence[Block]) -> None:
    from rich.console import Console  # lazy: only tables need it
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    for index, block in enumerate(blocks):
        if index:
            console.print()
        if isinstance(block, str):
            console.print(Text(block))
            continue
        if isinstance(block, Verbatim):
            console.print(Text(block.text), soft_wrap=True)  # lines that can be copied
            continue
        if block.title:
            console.print(Text(block.title, style="bold"))  # a table's own title would wrap at the table's width
        console.print(_rich_table(block))


def _rich_table(block: Table) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    styles = {**_STYLES, **block.styles}
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for index, name in enumerate(block.columns):
        justify: Literal["right", "left"] = "right" if name.startswith(">") else "left"
        # The first column names the row: it must stay whole where the terminal is narrow.
        table.add_column(name.lstrip(">"), justify=justify, overflow="fold", no_wrap=index == 0)
    for row in block.rows:
        table.add_row(*(Text(printable(cell), style=styles.get(cell, "")) for cell in row))
    return table
