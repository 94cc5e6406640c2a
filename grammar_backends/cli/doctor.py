"""``gb doctor``: what there is to know of an installation before anything is asked of it (K6)."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

import click

from grammar_backends.cli.listing import describe_host
from grammar_backends.cli.options import tokenizer_option
from grammar_backends.cli.output import Table, emit, format_option
from grammar_backends.installation import installed_version

__all__ = ["doctor"]

LIBRARIES = ("grammar-backends", "torch", "numpy", "pluggy")


@click.command("doctor")
@tokenizer_option
@format_option
def doctor(tokenizer: str, format_: str) -> None:
    """Show versions, backends, the tokenizer's fingerprint, limits, and how masks are applied here.

    Send it along with a report of a fault: it holds no spec and no text.

    Example: gb doctor --tokenizer byte --format json
    """
    from grammar_backends import default_host, load_vocabulary  # lazy: numpy and every plugin
    from grammar_backends.compilation import ManagerLimits
    from grammar_backends.kernels.apply import available_implementations, missing_implementations
    from grammar_backends.selection import Limits

    vocabulary = load_vocabulary(tokenizer)
    host = describe_host(default_host())
    data: dict[str, Any] = {
        "installation": {
            "platform": platform.platform(),
            "python": platform.python_version(),
            **{name: installed_version(name) for name in LIBRARIES},
        },
        "backends": [
            {key: backend[key] for key in ("name", "state", "engine", "engine_version", "reason")}
            for backend in host["backends"]
        ],
        "tokenizer": {
            "name": vocabulary.name,
            "size": vocabulary.size,
            "width": vocabulary.width,
            "stop_ids": list(vocabulary.stop_ids),
            "fingerprint": vocabulary.fingerprint,
        },
        "masks": {
            **{way.name: f"works on {way.device}" for way in available_implementations()},
            **missing_implementations(),
        },
        "spec_limits": dataclasses.asdict(Limits()),
        "manager_limits": dataclasses.asdict(ManagerLimits()),
    }
    emit(format_, data, [_table(section, values) for section, values in data.items()])


def _table(section: str, values: Any) -> Table:
    title = section.replace("_", " ").capitalize()
    if isinstance(values, list):
        columns = [name.replace("_", " ").capitalize() for name in values[0]] if values else []
        return Table(title, columns, [[str(value or "") for value in row.values()] for row in values])
    return Table(title, ["What", "Value"], [[name, str(value)] for name, value in values.items()])
