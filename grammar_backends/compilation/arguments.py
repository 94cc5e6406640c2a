"""What a caller hands in, looked at where it is handed in: a mistake is told there, and not by the first request."""

from __future__ import annotations

from grammar_backends.errors import shown

__all__ = ["expect"]


def expect(name: str, value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """See that an argument is what it has to be; a bool is no number.

    Args:
        name: the argument's.
        value: what was handed in.
        kinds: what it may be an instance of.
        what: the same in words, which say what to pass.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is int):
        raise TypeError(f"{name} must be {what}, not {shown(value)}")
