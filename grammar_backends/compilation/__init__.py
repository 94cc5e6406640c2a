"""Compilation apart from requests: artifacts that outlive the process that compiled them."""

from grammar_backends.compilation.store import ArtifactStore

__all__ = ["ArtifactStore"]
