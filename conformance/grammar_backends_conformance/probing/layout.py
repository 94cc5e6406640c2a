"""Support tables as text: the one layout of `support.json`, so that equal data are equal files."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["dumps"]

WIDTH = 120


def dumps(data: Any) -> str:
    """A table, or a list of them, as JSON in which whatever fits into a line is one."""
    if isinstance(data, list):
        return "[" + ", ".join(_dumped(table, 0, "") for table in data) + "]\n"
    return _dumped(data, 0, "") + "\n"


def _dumped(value: Any, indent: int, lead: str) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, (dict, list)) or (indent and len(lead) + indent + len(line) < WIDTH):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        leads = {key: f"{json.dumps(key, ensure_ascii=False)}: " for key in value}
        parts = [f"{inner}{leads[key]}{_dumped(item, indent + 2, leads[key])}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{' ' * indent}}}"
    return "[\n" + ",\n".join(_filled(value, inner)) + f"\n{' ' * indent}]"


def _filled(items: list[Any], inner: str) -> list[str]:
    """Items of a list, as many in a line as fit."""
    lines: list[str] = []
    for item in items:
        text = json.dumps(item, ensure_ascii=False)
        if lines and len(lines[-1]) + len(text) + 3 < WIDTH:
            lines[-1] += f", {text}"
        else:
            lines.append(f"{inner}{text}")
    return lines
