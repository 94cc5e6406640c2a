"""What grammars cost and how requests end, as plain data: for each request, and for a whole engine.

Recording is cheap and knows no exporter: `prometheus` shows a snapshot to Prometheus, `opentelemetry` makes spans of a
request.
"""

from grammar_backends.statistics.engine import EngineSnapshot, EngineStatistics, Family, Histogram, Sample
from grammar_backends.statistics.logs import FailureLog
from grammar_backends.statistics.requests import (
    CompileStatistics,
    DecodeCounters,
    GrammarSource,
    RequestRecorder,
    RequestStatistics,
    SkippedBackend,
    Termination,
)

__all__ = [
    "CompileStatistics",
    "DecodeCounters",
    "EngineSnapshot",
    "EngineStatistics",
    "FailureLog",
    "Family",
    "GrammarSource",
    "Histogram",
    "RequestRecorder",
    "RequestStatistics",
    "Sample",
    "SkippedBackend",
    "Termination",
]
