"""Compiled artifacts as bytes: what an engine may offer, and the envelope in which its bytes travel.

An engine's own bytes do not say where they come from. `seal` puts them behind a header and a checksum, and `unseal`
gives them back only where both are as the reader expects: an engine never sees bytes that are damaged, or that were
made for another vocabulary, version or spec. That keeps out accidents, not forgers; read only what you wrote.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from grammar_backends.contract.grammar import Artifact
from grammar_backends.errors import ArtifactError, shown

__all__ = ["ArtifactSerializer", "identity_key", "seal", "sealed_identity", "unseal"]

MAGIC = b"GBARTIF1"
LENGTH = struct.Struct("<I")
DIGEST_BYTES = hashlib.sha256().digest_size


@runtime_checkable
class ArtifactSerializer(Protocol):
    """Optional for an `Engine`: artifacts as bytes, for a cache on disk and for other processes.

    Worth it where loading costs far less than compiling. Never pickle: it runs what it reads.
    """

    serial_format: str
    """Names the layout of the bytes; change it when an older reader would misread them. The engine's own version is
    known without it."""

    def dump_artifact(self, artifact: Artifact) -> bytes:
        """An artifact of this engine as bytes that `load_artifact` reads in another process.

        Raises:
            ArtifactError: not this one; it would be too large, say.
        """
        ...

    def load_artifact(self, data: bytes) -> Artifact:
        """The artifact that an engine of the same version, options and vocabulary dumped, byte for byte.

        Its matchers answer as those of the dumped artifact do. What it raises counts as a damaged artifact.
        """
        ...


def identity_key(identity: Mapping[str, str]) -> str:
    """A digest of what an artifact was made from: equal in every process, and usable as a file's name."""
    return hashlib.sha256(_header(identity)).hexdigest()


def seal(identity: Mapping[str, str], payload: bytes) -> bytes:
    """An engine's bytes in an envelope that says what they were made from.

    ::

        magic, u32 length of the header, header (JSON), SHA-256 of the header and the payload, payload
    """
    header = _header(identity)
    return b"".join((MAGIC, LENGTH.pack(len(header)), header, _digest(header, payload), payload))


def unseal(identity: Mapping[str, str], data: bytes) -> bytes:
    """The engine's bytes, if they are whole and were made from the same.

    Raises:
        ArtifactError: damaged, truncated, no envelope at all, or made from something else (what differs is named).
    """
    found, payload = _opened(data)
    for name in sorted(identity.keys() | found.keys()):
        if identity.get(name) != found.get(name):
            raise ArtifactError(
                f"the artifact was made for another {name}: {shown(found.get(name))}, not {shown(identity.get(name))}"
            )
    return bytes(payload)


def sealed_identity(data: bytes) -> dict[str, str]:
    """What an artifact says that it was made from, for whoever has to find out who can read it.

    Raises:
        ArtifactError: damaged, truncated, or no envelope at all.
    """
    return _opened(data)[0]


def _opened(data: bytes) -> tuple[dict[str, str], memoryview]:
    """What an envelope says, and the engine's bytes in it.

    Raises:
        ArtifactError: damaged, truncated, or no envelope at all.
    """
    view = memoryview(data)
    start = len(MAGIC) + LENGTH.size
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise ArtifactError("these bytes are no artifact of this version")
    if len(view) < start:
        raise ArtifactError("the artifact is damaged: it is cut off")
    end = start + LENGTH.unpack(view[len(MAGIC) : start])[0]
    header, payload = view[start:end], view[end + DIGEST_BYTES :]
    if bytes(view[end : end + DIGEST_BYTES]) != _digest(header, payload):
        raise ArtifactError("the artifact is damaged: its checksum does not fit")
    try:
        found = json.loads(bytes(header))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"the artifact's header cannot be read: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise ArtifactError("the artifact's header is no object")
    return found, payload


def _header(identity: Mapping[str, str]) -> bytes:
    return json.dumps(dict(identity), sort_keys=True).encode()


def _digest(header: bytes | memoryview, payload: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(header)
    digest.update(payload)
    return digest.digest()
