"""Formats of JSON Schema by their specifications, for the schema oracle.

What a regular expression and the standard library can say in a line or two; `jsonschema` alone would check few of
these, and some of them barely ("email" is whatever holds an @). Leap seconds are left out: no second is 60.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable

__all__ = ["FORMATS"]

_DATE = r"\d{4}-\d{2}-\d{2}"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_PERCENT = r"%[0-9A-Fa-f]{2}"
_PATH_CHAR = rf"([A-Za-z0-9\-._~!$&'()*+,;=:@]|{_PERCENT})"
_HOST = rf"(\[[0-9A-Fa-f:.]+\]|([A-Za-z0-9\-._~!$&'()*+,;=]|{_PERCENT})*)"
_AUTHORITY = rf"(([A-Za-z0-9\-._~!$&'()*+,;=:]|{_PERCENT})*@)?{_HOST}(:\d*)?"
_QUERY = rf"(\?({_PATH_CHAR}|[/?])*)?(\#({_PATH_CHAR}|[/?])*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(//{_AUTHORITY}(/{_PATH_CHAR}*)*|/?({_PATH_CHAR}+(/{_PATH_CHAR}*)*)?){_QUERY}"
_POINTER = r"(/([^~/]|~[01])*)*"


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _is_date(text: str) -> bool:
    if not re.fullmatch(_DATE, text, re.ASCII):
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    date, time = text[:10], text[11:]
    return text[10:11] in ("T", "t") and _is_date(date) and re.fullmatch(_TIME, time, re.ASCII) is not None


def _is_address(read: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return "%" not in text

    return check


def _is_hostname(text: str) -> bool:
    return len(text) <= 253 and re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", text, re.ASCII) is not None


_DURATION_DATE = r"(\d+D|\d+M(\d+D)?|\d+Y(\d+M(\d+D)?)?)"
_DURATION_TIME = r"T(\d+S|\d+M(\d+S)?|\d+H(\d+M(\d+S)?)?)"

FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "time": _matches(_TIME),
    "date-time": _is_date_time,
    "duration": _matches(rf"P({_DURATION_DATE}({_DURATION_TIME})?|{_DURATION_TIME}|\d+W)"),
    "email": _matches(rf'({_ATOM}(\.{_ATOM})*|"([^"\\\x00-\x1f\x7f-\U0010ffff]|\\[ -~])*")@{_LABEL}(\.{_LABEL})*'),
    "hostname": _is_hostname,
    "ipv4": _is_address(ipaddress.IPv4Address),
    "ipv6": _is_address(ipaddress.IPv6Address),
    "uri": _matches(_URI),
    "uuid": _matches(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    "json-pointer": _matches(_POINTER),
    "relative-json-pointer": _matches(rf"(0|[1-9]\d*)(\#|{_POINTER})"),
}
"""Name to the check of a text. Formats that are not here are annotations to this oracle."""
