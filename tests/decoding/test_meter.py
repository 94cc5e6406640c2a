"""Statistics as the real parts record them: manager, builder, gate and commit, over whole lives (K1, K2)."""

from __future__ import annotations

import pytest

from grammar_backends import GrammarSpec, load_backend, load_vocabulary
from grammar_backends.compilation import GrammarManager
from grammar_backends.contract import StructuredOutputGrammar
from grammar_backends.decoding import BitmaskBuilder, DecodeMeter, DraftTree, MaskRequest, TokenMarker, TriggerGate
from grammar_backends.decoding.markers import MarkerSearch
from grammar_backends.errors import SpecError
from grammar_backends.statistics import EngineStatistics, Termination
from grammar_backends.statistics.engine import FAMILIES

VOCABULARY = load_vocabulary("byte")
STOP = VOCABULARY.stop_ids[0]
SPEC = GrammarSpec.regex("a{8}")
A = ord("a")


def new_grammar(spec: GrammarSpec = SPEC) -> StructuredOutputGrammar:
    return load_backend("guidance", VOCABULARY).compile_grammar(spec).new_grammar()


@pytest.fixture
def statistics() -> EngineStatistics:
    return EngineStatistics()


@pytest.fixture
def meter(statistics: EngineStatistics) -> DecodeMeter:
    meter = DecodeMeter(statistics)
    meter.start("r")
    return meter


def builder() -> BitmaskBuilder:
    return BitmaskBuilder(VOCABULARY, max_num_seqs=4, num_draft_tokens=4)


def test_k1_a_life_with_drafts_is_counted_token_by_token(statistics: EngineStatistics, meter: DecodeMeter) -> None:
    grammar, masks = new_grammar(), builder()
    meter.start("other")
    trimmed = meter.trim("r", grammar, [A, A, ord("x"), ord("y")])
    assert trimmed.tokens == [A, A]
    batch = meter.build(masks, [MaskRequest("r", grammar, trimmed.tokens), MaskRequest("other", None)])
    assert batch.descriptor.num_acceptable == (2, 0)
    meter.commit(grammar, "r", [A, A, A])
    meter.build(masks, [MaskRequest("r", grammar, [A, ord("z"), -1])], overlapped=True)
    meter.commit(grammar, "r", [A, A])
    meter.add_forced("r", 3)
    meter.commit(grammar, "r", [A])
    meter.commit(grammar, "r", [A])
    meter.commit(grammar, "r", [A])
    meter.build(masks, [MaskRequest("r", grammar)])
    meter.commit(grammar, "r", [STOP])
    request = meter.finish("r", grammar, None)
    assert request is not None
    decoding = request.decoding
    assert request.termination is Termination.STOPPED
    assert decoding.rows_filled == 3 + 4 + 1
    assert decoding.fill_nanoseconds > 0
    assert decoding.tokens_accepted == 9
    assert (decoding.drafts_offered, decoding.drafts_trimmed, decoding.drafts_accepted) == (6, 3, 3)
    assert decoding.rollback_steps == 2 + 1
    assert decoding.forced_tokens == 3
    assert decoding.gate_step == 0
    snapshot = statistics.snapshot()
    assert snapshot.value("mask_build_seconds", path="critical") == 2
    assert snapshot.value("mask_build_seconds", path="overlapped") == 1
    assert snapshot.value("requests") == 1, "the other one lives on"


def test_k1_what_masks_cost_is_shared_out_by_rows(statistics: EngineStatistics, meter: DecodeMeter) -> None:
    meter.start("long")
    meter.build(builder(), [MaskRequest("r", new_grammar()), MaskRequest("long", new_grammar(), [A, A, A])])
    shares = [meter.finish(id_, None, None).decoding for id_ in ("r", "long")]  # type: ignore[union-attr]  # both live
    assert [share.rows_filled for share in shares] == [1, 4]
    assert shares[1].fill_nanoseconds == pytest.approx(4 * shares[0].fill_nanoseconds, abs=4)
    build = statistics.snapshot().histogram("mask_build_seconds").total
    assert sum(share.fill_nanoseconds for share in shares) / 1e9 == pytest.approx(build, rel=1e-3, abs=1e-8)


def test_e15_the_time_of_trees_is_kept(meter: DecodeMeter) -> None:
    tree = DraftTree.from_parents([A, A, ord("x"), A], [-1, 0, 0, 1])
    meter.build(builder(), [MaskRequest("r", new_grammar(), tree)])
    request = meter.finish("r", None, None)
    assert request is not None
    assert (request.decoding.drafts_offered, request.decoding.drafts_trimmed) == (3, 1)
    assert [seconds > 0 for seconds in request.grammar_stats()["tree_traversal_time"]] == [True]


@pytest.mark.parametrize(("text", "step"), [("xy<a", 3), ("xyz", None)])
def test_j8_the_step_at_which_a_gate_opened_is_known_or_that_it_never_did(
    statistics: EngineStatistics, meter: DecodeMeter, text: str, step: int | None
) -> None:
    gate = TriggerGate(new_grammar(), MarkerSearch(VOCABULARY, [TokenMarker([ord("<")])]))
    meter.commit(gate, "r", VOCABULARY.encode(text))
    request = meter.finish("r", gate, None)
    assert request is not None
    assert request.decoding.gate_step == step
    assert request.constraint_activated is (step is not None)
    assert statistics.snapshot().value("never_constrained") == (step is None)


def test_k1_how_a_request_ended_is_told_apart(meter: DecodeMeter, statistics: EngineStatistics) -> None:
    for id_, options in (("unfinished", {}), ("aborted", {"aborted": True}), ("failed", {"error": SpecError("x")})):
        meter.start(id_)
        request = meter.finish(id_, new_grammar(), None, **options)
        assert request is not None
        assert request.termination is Termination(id_)
    assert statistics.snapshot().value("errors", error="SpecError") == 1


def test_k4_what_is_not_followed_is_served_and_not_counted(statistics: EngineStatistics) -> None:
    meter, grammar = DecodeMeter(statistics), new_grammar()
    batch = meter.build(builder(), [MaskRequest("stranger", grammar, [A])])
    assert batch.descriptor.num_acceptable == (1,)
    assert meter.commit(grammar, "stranger", [A]).num_kept == 1
    assert meter.finish("stranger", grammar, None) is None
    assert statistics.snapshot().value("requests") == 0


def test_k2_an_engine_fills_every_family_of_its_parts(statistics: EngineStatistics) -> None:
    meter, masks = DecodeMeter(statistics), builder()
    with GrammarManager(VOCABULARY, backend="guidance") as manager:
        manager.show(statistics)
        for number, pattern in enumerate(("a{8}", "a{8}", "(")):
            meter.start(str(number))
            ticket = manager.submit(str(number), GrammarSpec.regex(pattern))
            assert ticket.wait(60)
            if ticket.failure is not None:
                meter.finish(str(number), None, ticket.statistics, error=ticket.failure.error)
                continue
            grammar = ticket.new_grammar()
            tree = DraftTree.from_parents([A, A, ord("x")], [-1, 0, 0])
            meter.build(masks, [MaskRequest(str(number), grammar, tree)])
            meter.commit(grammar, str(number), [A, A])
            meter.add_forced(str(number), 1)
            meter.add_rollback(str(number), 1)
            meter.finish(str(number), grammar, ticket.statistics)
        snapshot = statistics.snapshot()
    filled = {name for name in FAMILIES if snapshot.value(name)}
    assert filled == FAMILIES.keys() - {"compile_timeouts", "skipped_backends", "never_constrained"}
    assert snapshot.value("compilations", source="compiled") == 2
    assert snapshot.value("compilations", source="memory") == 1
    assert snapshot.value("errors", error="SpecError") == 1
