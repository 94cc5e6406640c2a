"""What a worker and its parent say to each other: a head of JSON and a body of bytes, each with its length before it.

Nothing is unpickled, so that a worker whose engine was made to misbehave cannot run code in its parent.
"""

from __future__ import annotations

import json
import struct
from typing import IO, Any, NamedTuple

__all__ = ["Decoder", "Message", "encode", "read_message", "write_message"]

LENGTHS = struct.Struct("<IQ")


class Message(NamedTuple):
    """One message.

    Attributes:
        head: JSON-able data.
        body: bytes that need not go through JSON.
    """

    head: dict[str, Any]
    body: bytes = b""


def encode(message: Message) -> bytes:
    """A message as it travels."""
    head = json.dumps(message.head).encode()
    return b"".join((LENGTHS.pack(len(head), len(message.body)), head, message.body))


def write_message(stream: IO[bytes], message: Message) -> None:
    """Write and flush."""
    stream.write(encode(message))
    stream.flush()


def read_message(stream: IO[bytes]) -> Message | None:
    """The next message, waiting for it; None when the stream has ended."""
    lengths = stream.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    head, body = LENGTHS.unpack(lengths)
    return Message(json.loads(stream.read(head)), stream.read(body))


class Decoder:
    """Puts messages together from pieces, for a reader that must not wait."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add what has arrived."""
        self._buffer += data

    def take(self) -> list[Message]:
        """The messages that are whole by now."""
        messages = []
        while len(self._buffer) >= LENGTHS.size:
            head, body = LENGTHS.unpack_from(self._buffer)
            middle = LENGTHS.size + head
            end = middle + body
            if len(self._buffer) < end:
                break
            content = bytes(self._buffer[LENGTHS.size : end])
            messages.append(Message(json.loads(content[:head]), content[head:]))
            del self._buffer[:end]
        return messages
