"""A request's statistics as OpenTelemetry spans; needs ``grammar-backends[opentelemetry]``.

The spans are made when the request has ended, from its snapshot: nothing is traced, or paid for, while it runs.
"""

from __future__ import annotations

import time

from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from grammar_backends.statistics.requests import RequestStatistics

__all__ = ["trace_request"]


def trace_request(
    tracer: Tracer, request: RequestStatistics, context: Context | None = None, end_time: int | None = None
) -> None:
    """Add spans for a request that ended: "grammar", and inside of it "grammar.queue" and "grammar.compile".

    Args:
        tracer: where they go.
        request: what `EngineStatistics.finish` returned.
        context: what they belong to, as the engine's span of the request.
        end_time: when it ended, in ns since the epoch; None for now.
    """
    end = time.time_ns() if end_time is None else end_time
    start = end - round(request.seconds * 1e9)
    span = tracer.start_span("grammar", context, attributes=_attributes(request), start_time=start)
    if request.compilation is not None:
        inside = set_span_in_context(span, context)
        queued = start + round(request.compilation.queue_seconds * 1e9)
        compiled = queued + round(request.compilation.compile_seconds * 1e9)
        for name, begin, finish in (("grammar.queue", start, queued), ("grammar.compile", queued, compiled)):
            if finish > begin:
                tracer.start_span(name, inside, start_time=begin).end(finish)
    if request.error is not None:
        span.set_status(Status(StatusCode.ERROR, request.error))
    span.end(end)


def _attributes(request: RequestStatistics) -> dict[str, AttributeValue]:
    decoding = request.decoding
    found: dict[str, AttributeValue | None] = {
        "grammar.request_id": request.request_id,
        "grammar.termination": request.termination.value if request.termination else None,
        "grammar.rows_filled": decoding.rows_filled,
        "grammar.fill_seconds": decoding.fill_nanoseconds / 1e9,
        "grammar.tokens_accepted": decoding.tokens_accepted,
        "grammar.drafts_trimmed": decoding.drafts_trimmed,
        "grammar.rollback_steps": decoding.rollback_steps,
        "grammar.forced_tokens": decoding.forced_tokens,
        "grammar.gate_step": decoding.gate_step,
    }
    if (compilation := request.compilation) is not None:
        found |= {
            "grammar.backend": compilation.backend,
            "grammar.kind": compilation.kind,
            "grammar.digest": compilation.digest,
            "grammar.source": compilation.source,
            "grammar.timeouts": compilation.timeouts,
        }
    return {name: value for name, value in found.items() if value is not None}
