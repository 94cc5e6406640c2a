"""Selection: validating a request, and choosing the backend that really enforces it."""

from grammar_backends.selection.chain import Policy, Selection, choose, explain, select_backend
from grammar_backends.selection.findings import Finding, Rewrite, Step, Trace
from grammar_backends.selection.limits import Limits
from grammar_backends.selection.loading import load_backend
from grammar_backends.selection.resolver import BackendResolver
from grammar_backends.selection.validation import validate_spec

__all__ = [
    "BackendResolver",
    "Finding",
    "Limits",
    "Policy",
    "Rewrite",
    "Selection",
    "Step",
    "Trace",
    "choose",
    "explain",
    "load_backend",
    "select_backend",
    "validate_spec",
]
