"""Statistics of requests and of an engine: what is counted, what is bounded, and what exporters show."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from grammar_backends import GrammarSpec, load_backend, load_vocabulary
from grammar_backends.errors import CompileError, DeadEnd, GrammarBackendsError, SpecError
from grammar_backends.statistics import (
    CompileStatistics,
    EngineStatistics,
    FailureLog,
    GrammarSource,
    RequestStatistics,
    SkippedBackend,
    Termination,
)
from grammar_backends.statistics.engine import FAMILIES, LABEL_LIMIT, OTHER, SECONDS
from grammar_backends.statistics.opentelemetry import trace_request
from grammar_backends.statistics.prometheus import GrammarCollector

SPEC = GrammarSpec.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
SKIPPED = SkippedBackend("xgrammar", "it would not enforce uniqueItems", "uniqueItems")


def finished(statistics: EngineStatistics, error: BaseException | None = None) -> RequestStatistics:
    """A request with something of everything."""
    recorder = statistics.start("r1")
    recorder.compilation = CompileStatistics.of(
        SPEC, "guidance", "compiled", queue_seconds=0.5, compile_seconds=2.0, timeouts=1, skipped=[SKIPPED]
    )
    counters = recorder.decoding
    counters.rows_filled += 5
    counters.fill_nanoseconds += 7_000_000
    counters.tokens_accepted += 4
    counters.drafts_offered += 6
    counters.drafts_trimmed += 2
    counters.drafts_accepted += 3
    counters.rollback_steps += 1
    counters.forced_tokens += 2
    counters.gate_step = None
    counters.add_tree(0.25)
    return statistics.finish(recorder, Termination.FAILED if error else Termination.STOPPED, error)


def test_k1_a_finished_request_says_all_that_was_recorded() -> None:
    request = finished(EngineStatistics(), DeadEnd("no token is legal"))
    assert request.compilation is not None
    assert request.compilation.digest == SPEC.key
    assert request.compilation.characters == len(SPEC.text)
    assert (request.termination, request.error) == (Termination.FAILED, "DeadEnd")
    assert not request.constraint_activated
    assert request.decoding.rows_filled == 5
    assert request.seconds >= 0


def test_k1_a_snapshot_does_not_change_with_the_request() -> None:
    recorder = EngineStatistics().start("r1")
    recorder.decoding.add_tree(1.0)
    early = recorder.snapshot()
    recorder.decoding.rows_filled += 1
    recorder.decoding.add_tree(2.0)
    assert (early.decoding.rows_filled, early.decoding.tree_seconds) == (0, [1.0])
    with pytest.raises(FrozenInstanceError):
        early.request_id = "other"  # type: ignore[misc]  # that is what is tried


def test_a33_a_request_keeps_a_bounded_number_of_tree_times() -> None:
    decoding = EngineStatistics().start("r1").decoding
    for number in range(100_000):
        decoding.add_tree(float(number))
    assert len(decoding.tree_seconds) < 1_000
    assert decoding.copy().tree_seconds[-1] == 99_999.0


def test_e15_every_field_of_sglang_is_filled() -> None:
    assert finished(EngineStatistics(), DeadEnd("no token is legal")).grammar_stats() == {
        "compilation_time": 2.0,
        "schema_count": 1,
        "ebnf_size": len(SPEC.text),
        "is_cache_hit": False,
        "is_grammar_aborted": True,
        "tree_traversal_time": [0.25],
        "dispatch_type": "json_schema",
        "num_timeout": 1,
    }


@pytest.mark.parametrize("source", get_args(GrammarSource))
def test_e15_a_cache_hit_is_what_a_cache_answered(source: GrammarSource) -> None:
    statistics = EngineStatistics()
    recorder = statistics.start("r1")
    recorder.compilation = CompileStatistics.of(SPEC, "xgrammar", source)
    hit = source not in ("compiled", "joined", "artifact")
    assert statistics.finish(recorder, Termination.STOPPED).grammar_stats()["is_cache_hit"] is hit


SCHEMA = {"type": "object", "properties": {"schema": {"type": "string"}}}
TAGS = {
    "legacy": {
        "structures": [{"begin": f"<{name}>", "schema": SCHEMA, "end": "</f>"} for name in "fg"],
        "triggers": ["<"],
    },
    "format": {
        "format": {
            "type": "sequence",
            "elements": [
                {"type": "json_schema", "json_schema": SCHEMA},
                {"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "<"},
            ],
        }
    },
}


@pytest.mark.parametrize(
    ("spec", "schemas"),
    [
        (SPEC, 1),
        (GrammarSpec.json_object(), 1),
        (GrammarSpec.regex("a"), 0),
        (GrammarSpec.choice(["schema"]), 0),
        *((GrammarSpec.structural_tag(tag), 2) for tag in TAGS.values()),
    ],
    ids=str,
)
def test_e15_schemas_are_counted_in_tags_too_and_their_inside_is_not(spec: GrammarSpec, schemas: int) -> None:
    assert CompileStatistics.of(spec, "xgrammar", "compiled").schemas == schemas


def test_k2_an_engine_adds_its_requests_up() -> None:
    statistics = EngineStatistics()
    finished(statistics)
    finished(statistics, DeadEnd("no token is legal"))
    snapshot = statistics.snapshot()
    assert snapshot.value("requests") == 2
    assert snapshot.value("requests", termination="failed") == 1
    assert snapshot.value("errors", backend="guidance", error="DeadEnd") == 1
    assert snapshot.value("compilations", source="compiled") == 2
    assert snapshot.value("compile_timeouts") == 2
    assert snapshot.value("skipped_backends", backend="xgrammar", keyword="uniqueItems") == 2
    assert snapshot.histogram("compile_seconds").total == 4.0
    assert snapshot.histogram("queue_seconds", backend="guidance").count == 2
    assert snapshot.histogram("tree_seconds").total == 0.5
    decoded = {"rows_filled": 10, "tokens_accepted": 8, "drafts_offered": 12, "drafts_trimmed": 4, "drafts_accepted": 6}
    for name, value in {**decoded, "rollback_steps": 2, "forced_tokens": 4, "never_constrained": 2}.items():
        assert snapshot.value(name) == value, name
    assert snapshot.value("fill_seconds") == pytest.approx(0.014)


def test_k2_each_family_is_filled_by_something() -> None:
    statistics = EngineStatistics()
    finished(statistics, DeadEnd("no token is legal"))
    statistics.record_mask_build(0.001, overlapped=True)
    snapshot = statistics.snapshot()
    assert [name for name in FAMILIES if not snapshot.value(name)] == []


def test_k2_masks_on_the_critical_path_are_told_apart_from_overlapped_ones() -> None:
    statistics = EngineStatistics()
    statistics.record_mask_build(0.25, overlapped=False)
    statistics.record_mask_build(0.5, overlapped=True)
    snapshot = statistics.snapshot()
    assert snapshot.histogram("mask_build_seconds", path="critical").total == 0.25
    assert snapshot.histogram("mask_build_seconds", path="overlapped").total == 0.5


def test_k2_what_is_watched_is_read_when_somebody_looks() -> None:
    statistics = EngineStatistics()
    workers = []
    statistics.watch("busy_workers", "Workers that compile.", lambda: len(workers))
    statistics.watch("evictions", "Artifacts dropped.", lambda: 7, kind="counter")
    assert statistics.snapshot().value("busy_workers") == 0
    workers.append(object())
    assert statistics.snapshot().value("busy_workers") == 1
    assert statistics.snapshot().value("evictions") == 7
    with pytest.raises(ValueError, match="counted already"):
        statistics.watch("requests", "Taken.", lambda: 1)


def test_k2_asking_for_what_is_not_there_is_an_error() -> None:
    snapshot = EngineStatistics().snapshot()
    with pytest.raises(KeyError):
        snapshot.value("no such family")
    with pytest.raises(ValueError, match="not in tuple"):
        snapshot.value("requests", color="red")
    finished(statistics := EngineStatistics())
    with pytest.raises(TypeError, match="no histogram"):
        statistics.snapshot().histogram("requests")


def test_k2_what_clients_send_does_not_grow_an_engine() -> None:
    statistics = EngineStatistics()
    for number in range(10 * LABEL_LIMIT):
        recorder = statistics.start("r")
        skipped = [SkippedBackend("xgrammar", "", f"x-{number}")]
        recorder.compilation = CompileStatistics.of(SPEC, "guidance", "compiled", skipped=skipped)
        statistics.finish(recorder, Termination.STOPPED)
    snapshot = statistics.snapshot()
    (samples,) = [samples for family, samples in snapshot.families if family.name == "skipped_backends"]
    assert len(samples) == LABEL_LIMIT + 1
    assert snapshot.value("skipped_backends", backend="xgrammar") == 10 * LABEL_LIMIT
    assert snapshot.value("skipped_backends", keyword=OTHER) == 9 * LABEL_LIMIT


def test_k2_backends_that_clients_make_up_do_not_grow_an_engine() -> None:
    statistics = EngineStatistics()
    for number in range(5 * LABEL_LIMIT):
        recorder = statistics.start("r")
        recorder.compilation = CompileStatistics.of(SPEC, f"x-{number}", "compiled", timeouts=1)
        statistics.finish(recorder, Termination.STOPPED)
    snapshot = statistics.snapshot()
    assert max(len(samples) for _, samples in snapshot.families) <= 2 * LABEL_LIMIT + 1
    assert snapshot.value("requests") == snapshot.value("compile_timeouts") == 5 * LABEL_LIMIT


def test_k2_threads_lose_no_count() -> None:
    statistics = EngineStatistics()

    def work() -> None:
        for _ in range(500):
            finished(statistics)
            statistics.record_mask_build(1.0, overlapped=False)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        statistics.snapshot()
    snapshot = statistics.snapshot()
    assert snapshot.value("requests") == 4_000
    assert snapshot.histogram("mask_build_seconds").total == 4_000
    assert snapshot.value("rows_filled") == 20_000


def test_k2_a_snapshot_is_json() -> None:
    statistics = EngineStatistics()
    finished(statistics)
    data = json.loads(json.dumps(statistics.snapshot().to_dict()))
    requests = {"backend": "guidance", "kind": "json_schema", "termination": "stopped", "value": 1}
    assert data["requests"] == [requests]
    assert sum(data["compile_seconds"][0]["counts"]) == 1


def test_k2_values_are_counted_in_the_bucket_that_they_do_not_exceed() -> None:
    statistics = EngineStatistics()
    for value in (*SECONDS, SECONDS[-1] + 1):
        statistics.record_mask_build(value, overlapped=False)
    assert statistics.snapshot().histogram("mask_build_seconds").counts == (1,) * (len(SECONDS) + 1)


def test_k2_prometheus_shows_every_family_with_its_values() -> None:
    statistics = EngineStatistics()
    statistics.watch("busy_workers", "Workers that compile.", lambda: 3)
    registry = CollectorRegistry()
    registry.register(GrammarCollector(statistics))
    finished(statistics, DeadEnd("no token is legal"))
    shown = {
        metric.name: {(sample.name, *sample.labels.values()): sample.value for sample in metric.samples}
        for metric in text_string_to_metric_families(generate_latest(registry).decode())
    }
    assert shown.keys() == {f"grammar_backends_{name}" for name in (*FAMILIES, "busy_workers")}
    name = "grammar_backends_requests"
    assert shown[name][f"{name}_total", "guidance", "json_schema", "failed"] == 1
    name = "grammar_backends_compile_seconds"
    buckets = [(key[-1], value) for key, value in shown[name].items() if key[0] == f"{name}_bucket"]
    assert buckets == [(str(bound), float(bound >= 2.0)) for bound in SECONDS] + [("+Inf", 1.0)]
    assert shown[name][f"{name}_sum", "guidance", "json_schema"] == 2.0
    assert shown["grammar_backends_busy_workers"][("grammar_backends_busy_workers",)] == 3


def test_k2_spans_cover_queue_and_compilation_and_name_the_error() -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    request = finished(EngineStatistics(), DeadEnd("no token is legal"))
    end = 1_000_000_000_000
    trace_request(provider.get_tracer("test"), request, end_time=end)
    spans = {span.name: span for span in memory.get_finished_spans()}
    whole, queue, compilation = spans["grammar"], spans["grammar.queue"], spans["grammar.compile"]
    assert whole.end_time == end
    assert (queue.start_time, queue.end_time - queue.start_time) == (whole.start_time, 500_000_000)
    assert (compilation.start_time, compilation.end_time - compilation.start_time) == (queue.end_time, 2_000_000_000)
    assert queue.parent.span_id == compilation.parent.span_id == whole.context.span_id
    assert whole.status.description == "DeadEnd"
    assert whole.attributes["grammar.digest"] == SPEC.key
    assert whole.attributes["grammar.source"] == "compiled"
    assert "grammar.gate_step" not in whole.attributes


CANARY = "canary"
REFUSED = [
    GrammarSpec.regex(f"({CANARY}"),
    GrammarSpec.choice([CANARY]),
    GrammarSpec.grammar(f'root ::= {CANARY} "a"', "ebnf"),
    GrammarSpec.grammar(f'start: "{CANARY}', "lark"),
    GrammarSpec.json_schema({"type": CANARY}),
    GrammarSpec.json_schema({"properties": {CANARY: {"type": "string", "pattern": f"({CANARY}"}}}),
    GrammarSpec.json_schema({"$ref": f"#/{CANARY}"}),
    GrammarSpec.structural_tag({"format": {"type": CANARY}}),
]


@pytest.mark.parametrize("spec", REFUSED, ids=[f"{spec.kind}-{number}" for number, spec in enumerate(REFUSED)])
@pytest.mark.parametrize("backend", ["xgrammar", "guidance", "outlines"])
def test_k3_a_log_line_holds_nothing_of_the_spec(
    backend: str, spec: GrammarSpec, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        load_backend(backend, load_vocabulary("byte")).compile_grammar(spec)
        error: GrammarBackendsError = CompileError(f"failed on {spec.text}", backend=backend)
    except GrammarBackendsError as raised:
        error = raised
    with caplog.at_level(logging.INFO):
        FailureLog(logging.getLogger("test")).report(error, spec=spec, backend=backend, request_id="r7")
    (record,) = caplog.records
    assert CANARY not in caplog.text
    assert all(part in record.getMessage() for part in ("r7", spec.key[:12], str(spec.kind), f"{len(spec.text)} char"))
    assert record.levelno == (logging.INFO if isinstance(error, SpecError) else logging.ERROR)


def test_k3_an_engines_failures_are_logged_once_per_kind_and_interval(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = FailureLog(logging.getLogger("test"), interval=60.0, clock=lambda: now[0])
    with caplog.at_level(logging.INFO):
        for step in range(100):
            now[0] = step
            log.report(CompileError("x", backend="a"), spec=SPEC, backend="a", request_id=f"r{step}")
            log.report(DeadEnd("x"), spec=SPEC, backend="a", request_id=f"d{step}")
            log.report(ZeroDivisionError(), spec=SPEC, backend="b", request_id=f"z{step}")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in lines] == [f"request {name}{n}" for n in (0, 60) for name in "rdz"]
    assert "(59 more" in lines[3]
    assert [("please report" in line) for line in lines[:3]] == [False, False, True]


def test_k3_a_clients_failures_are_all_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(logging.getLogger("test"))
    with caplog.at_level(logging.INFO):
        for number in range(5):
            log.report(SpecError("x"), spec=SPEC, backend="", request_id=f"r{number}")
    assert len(caplog.records) == 5
    assert "the front end" in caplog.text


def test_k3_the_words_of_an_error_are_there_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        FailureLog(logging.getLogger("test")).report(SpecError("words"), spec=SPEC, backend="", request_id="r")
    assert "words" in caplog.text
