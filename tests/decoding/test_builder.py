"""BitmaskBuilder: layouts, row states and reports, each seen on small hand-written cases with real engines."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from grammar_backends import (
    BitmaskBuilder,
    DraftTree,
    GrammarSpec,
    MaskRequest,
    RowState,
    StructuredOutputGrammar,
    Vocabulary,
    apply_token_bitmask,
    load_backend,
    load_vocabulary,
)
from grammar_backends.contract import BitmaskRow, Grammar, pack_ids, unpack_ids
from grammar_backends.errors import BitmaskError, DeadEnd
from grammar_backends.kernels import RowMapping

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
SPEC = GrammarSpec.regex("ab+c?")
STOP = 256
OPEN, HELD, ENDED = RowState.UNCONSTRAINED, RowState.CONSTRAINED, RowState.TERMINATED
DEAD, NEVER = RowState.DEAD, RowState.UNREACHABLE


@functools.cache
def vocabulary() -> Vocabulary:
    return load_vocabulary("byte")


@functools.cache
def compiled(name: str, spec: GrammarSpec = SPEC) -> Any:
    return load_backend(name, vocabulary()).compile_grammar(spec)


def grammar(name: str, text: str = "", stop: bool = False, **options: Any) -> StructuredOutputGrammar:
    made: StructuredOutputGrammar = compiled(name).new_grammar(**options)
    assert made.accept_tokens("r", [*text.encode(), *[STOP] * stop])
    return made


def builder(num_draft_tokens: int = 0, **options: Any) -> BitmaskBuilder:
    return BitmaskBuilder(vocabulary(), 4, num_draft_tokens, **options)


def shown(bitmask: np.ndarray[Any, Any]) -> list[str]:
    """Rows as text: what they allow, "$" for the stop token, "*" for all ones."""
    return [
        "*" if (row == -1).all() else "".join("$" if i == STOP else chr(i) for i in unpack_ids(row)) for row in bitmask
    ]


def ids(text: str) -> list[int]:
    """Token ids of a text in which "$" is the stop token and "-" is padding."""
    return [{"$": STOP, "-": -1}.get(letter, ord(letter)) for letter in text]


def chain(name: str, drafts: str, text: str = "", **options: Any) -> tuple[list[str], list[RowState], int]:
    each = grammar(name, text)
    before = each.num_accepted, each.is_terminated(), each.is_accepting()
    batch = builder(4, **options).build([MaskRequest("r", each, ids(drafts))])
    assert (each.num_accepted, each.is_terminated(), each.is_accepting()) == before
    about = batch.descriptor
    return shown(batch.bitmask), [RowState(state) for state in about.states], about.num_acceptable[0]


@pytest.mark.parametrize("name", BACKENDS)
def test_f7_each_row_holds_what_may_follow_the_drafts_before_it(name: str) -> None:
    assert chain(name, "abc") == (["a", "b", "bc$", "$"], [HELD] * 4, 3)
    assert chain(name, "bc", "a") == (["b", "bc$", "$"], [HELD] * 3, 2)
    assert chain(name, "") == (["a"], [HELD], 0)


@pytest.mark.parametrize("name", BACKENDS)
def test_f8_rows_behind_an_illegal_draft_repeat_the_last_legal_one(name: str) -> None:
    assert chain(name, "aacb") == (["a", "b", "b", "b", "b"], [HELD, HELD, NEVER, NEVER, NEVER], 1)
    assert chain(name, "x") == (["a", "a"], [HELD, NEVER], 0)
    assert chain(name, "a$") == (["a", "b", "b"], [HELD, HELD, NEVER], 1)


@pytest.mark.parametrize("name", BACKENDS)
def test_f10_rows_behind_padding_are_all_ones_and_no_draft_there_is_acceptable(name: str) -> None:
    assert chain(name, "a-b") == (["a", "b", "*", "*"], [HELD, HELD, NEVER, NEVER], 1)
    assert chain(name, "--") == (["a", "*", "*"], [HELD, NEVER, NEVER], 0)
    assert chain(name, "ax-b") == (["a", "b", "b", "*", "*"], [HELD, HELD, NEVER, NEVER, NEVER], 1)


@pytest.mark.parametrize("name", BACKENDS)
def test_f9_drafts_behind_a_stop_token_are_not_acceptable(name: str) -> None:
    assert chain(name, "ab$b") == (["a", "b", "bc$", "$", "$"], [HELD, HELD, HELD, ENDED, NEVER], 3)
    assert chain(name, "ab$$") == (["a", "b", "bc$", "$", "$"], [HELD, HELD, HELD, ENDED, NEVER], 3)
    assert chain(name, "ab$b", terminated="all")[0] == ["a", "b", "bc$", "*", "*"]


@pytest.mark.parametrize("name", BACKENDS)
def test_f4_without_a_bonus_row_drafts_have_as_many_rows_as_there_are(name: str) -> None:
    assert chain(name, "abb", bonus_row=False) == (["a", "b", "bc$"], [HELD] * 3, 3)
    assert chain(name, "abx", bonus_row=False) == (["a", "b", "bc$"], [HELD] * 3, 2)
    assert chain(name, "axbb", bonus_row=False) == (["a", "b", "b", "b"], [HELD, HELD, NEVER, NEVER], 1)


@pytest.mark.parametrize("name", BACKENDS)
def test_g8_the_rows_of_a_tree_follow_its_branches(name: str) -> None:
    #      a - b - $
    # root <    \ x - b
    #      x - b     - (padding) - b
    tree = DraftTree.from_parents([7, *ids("ab$xbxb-b")], [-1, 0, 1, 2, 1, 4, 0, 6, 2, 8])
    each = grammar(name)
    batch = builder(9).build([MaskRequest("r", each, tree)])
    assert shown(batch.bitmask) == ["a", "b", "bc$", "$", "b", "b", "a", "a", "*", "*"]
    assert list(batch.descriptor.states) == [HELD, HELD, HELD, ENDED, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER]
    assert batch.descriptor.num_acceptable == (3,)
    assert each.num_accepted == 0


def test_f2_a_row_that_was_never_written_is_failed() -> None:
    assert RowState(0) is RowState.FAILED
    assert [RowState(state) for state in bytes(3)] == [RowState.FAILED] * 3


@pytest.mark.parametrize("layout", ["compact", "fixed"])
def test_f3_the_descriptor_says_where_the_rows_of_each_request_are(layout: Any) -> None:
    requests = [
        MaskRequest("a", grammar("xgrammar"), ids("ab")),
        MaskRequest("b", grammar("guidance", "a")),
        MaskRequest("c", None, ids("x-")),
        MaskRequest("d", grammar("outlines", "ab"), DraftTree.from_parents([0, *ids("bc")], [-1, 0, 0])),
    ]
    batch = builder(3, layout=layout).build(requests)
    about = batch.descriptor
    assert about.request_ids == ("a", "b", "c", "d")
    assert about.counts == (3, 1, 3, 3)
    assert about.num_acceptable == (2, 0, 1, 2)
    assert about.offsets == ((0, 3, 4, 7) if layout == "compact" else (0, 4, 8, 12))
    assert about.num_rows == len(batch.bitmask) == (10 if layout == "compact" else 16)
    rows = [(shown(batch.bitmask[at : at + count])) for at, count in zip(about.offsets, about.counts, strict=True)]
    assert rows == [["a", "b", "bc$"], ["b"], ["*", "*", "*"], ["bc$", "bc$", "$"]]
    taken = {at + step for at, count in zip(about.offsets, about.counts, strict=True) for step in range(count)}
    gaps = set(range(about.num_rows)) - taken
    assert all(about.states[row] == NEVER and (batch.bitmask[row] == -1).all() for row in gaps)


def test_f3_what_travels_is_equal_after_a_trip_through_pickle() -> None:
    sent = builder(2).build([MaskRequest("a", grammar("xgrammar"), ids("ax")), MaskRequest("b", dead_end())])
    got = pickle.loads(pickle.dumps(sent, protocol=5))
    assert got.descriptor == sent.descriptor
    assert np.array_equal(got.bitmask, sent.bitmask)
    assert [(report[:4], type(report.error)) for report in got.reports] == [
        (("a", HELD, 3, 1), type(None)),
        (("b", DEAD, 1, 0), DeadEnd),
    ]
    assert len(pickle.dumps(sent.descriptor)) < 500


def test_f5_a_request_that_does_not_sample_has_no_row_and_its_grammar_is_left_alone() -> None:
    broken = Failing(grammar("xgrammar"), "fill_bitmask", "accept_tokens", "rollback", "validate_tokens")
    batch = builder(1).build([MaskRequest("a", broken, ids("a"), samples=False), MaskRequest("b", grammar("xgrammar"))])
    assert batch.descriptor.request_ids == ("b",)
    assert shown(batch.bitmask) == ["a"]
    assert not batch.errors
    assert builder().build([MaskRequest("a", broken, samples=False)]).descriptor.num_rows == 0
    assert builder().build([]).bitmask.shape == (0, vocabulary().words)


def test_f15_a_step_stays_as_it_is_while_the_next_one_is_built() -> None:
    reused = builder(1)
    first = reused.build([MaskRequest("a", grammar("xgrammar"), ids("a"))])
    second = reused.build([MaskRequest("a", grammar("xgrammar", "ab"), ids("c"))])
    assert shown(first.bitmask) == ["a", "b"]
    assert shown(second.bitmask) == ["bc$", "$"]
    assert not first.bitmask.flags.owndata
    reused.build([MaskRequest("a", None, ids("-"))])
    assert shown(first.bitmask) == ["*", "*"]


def test_f15_a_step_that_is_refused_takes_no_memory_of_an_earlier_one() -> None:
    other = load_backend("xgrammar", Vocabulary.from_bytes([b"a", b"<eos>"], [1], [1], width=40)).compile_grammar(SPEC)
    used = builder(1)
    first = used.build([MaskRequest("a", grammar("xgrammar"), ids("a"))])
    with pytest.raises(BitmaskError):
        used.build([MaskRequest("a", grammar("xgrammar")), MaskRequest("b", other.new_grammar())])
    used.build([MaskRequest("a", None, ids("-"))])
    assert shown(first.bitmask) == ["a", "b"]


FORK = """
import os
from grammar_backends import BitmaskBuilder, GrammarSpec, MaskRequest, load_backend, load_vocabulary
vocabulary = load_vocabulary("byte")
compiled = load_backend("xgrammar", vocabulary).compile_grammar(GrammarSpec.regex("ab"))
builder = BitmaskBuilder(vocabulary, 200, threads=2)
requests = [MaskRequest(str(number), compiled.new_grammar()) for number in range(200)]
before = builder.build(requests)
if not os.fork():
    os._exit(0 if (builder.build(requests).bitmask == before.bitmask).all() else 9)
assert os.wait()[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_f14_a_fork_fills_by_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=120)


@pytest.mark.parametrize("name", ["xgrammar", "guidance"])
@pytest.mark.parametrize("kind", [np.array, np.uint16, torch.tensor, lambda values: [torch.tensor(v) for v in values]])
def test_f7_drafts_may_be_those_of_arrays_and_tensors(name: str, kind: Any) -> None:
    used = builder(4, terminated="all")
    expected = used.build([MaskRequest("a", grammar(name), ids("ab$b"))])
    requests = [MaskRequest("a", grammar(name), kind(ids("ab$b"))), MaskRequest("b", None, samples=False)]
    found = used.build(requests)
    assert used.build(iter(requests)).descriptor == found.descriptor  # type: ignore[arg-type]  # and not nothing at all
    assert found.descriptor == expected.descriptor
    assert np.array_equal(found.bitmask, expected.bitmask)


@pytest.mark.parametrize("name", BACKENDS)
def test_f18_drafts_that_are_no_tokens_fail_their_request_alone(name: str) -> None:
    for drafts in ([ord("a"), 98.0], [ord("a"), None], [float("nan")], "ab", [[97]], [np.bool_(True)]):
        each = grammar(name)
        found = builder(2).build([MaskRequest("a", each, drafts), MaskRequest("b", grammar(name), ids("ab"))])  # type: ignore[arg-type]
        assert list(found.errors) == ["a"], drafts
        assert found.descriptor.num_acceptable == (0, 2)
        assert (each.num_accepted, each.error) == (0, None)


class Failing:
    """A grammar, some of whose methods fail."""

    def __init__(self, grammar: StructuredOutputGrammar, *methods: str) -> None:
        self._grammar = grammar
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        if name in self._methods:
            raise OSError(f"{name} is broken")
        if name == "batch":
            raise AttributeError(name)
        return getattr(self._grammar, name)


def dead_end() -> StructuredOutputGrammar:
    """After "a" only a token that is no text may come: the stop token of others."""
    made = compiled("xgrammar", GrammarSpec.choice(["ab", "bb"])).new_grammar(stop_token_ids=[ord("b")])
    assert made.accept_tokens("r", ids("a"))
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("broken", ["fill_bitmask", "accept_tokens", "rollback"])
def test_f18_a_failing_grammar_fails_its_own_rows_and_harms_no_other(name: str, broken: str) -> None:
    first, last = grammar(name), grammar(name, "ab")
    requests = [
        MaskRequest("first", first, ids("ab")),
        MaskRequest("broken", Failing(grammar(name), broken), ids("ab")),
        MaskRequest("last", last, ids("b")),
    ]
    for threads in (1, 2):
        batch = builder(2, threads=threads).build(requests)
        assert shown(batch.bitmask) == ["a", "b", "bc$", "", "", "", "bc$", "bc$"]
        assert list(batch.descriptor.states) == [HELD] * 3 + [RowState.FAILED] * 3 + [HELD] * 2
        assert batch.descriptor.num_acceptable == (2, 0, 1)
        assert set(batch.errors) == {"broken"}
        assert f"{broken} is broken" in str(batch.reports[1].error)
        assert (first.num_accepted, last.num_accepted) == (0, 2)


class Matcher:
    """Takes the letter "a" for ever, until it breaks: at the so-manyth call of the method named."""

    fills_stop_tokens = True

    def __init__(self, method: str = "", calls: int = 0) -> None:
        self.method, self.calls = method, calls
        self.length = 0

    def _called(self, method: str) -> None:
        if method == self.method:
            self.calls -= 1
            if not self.calls:
                raise OSError("the engine broke")

    def new_matcher(self) -> Matcher:
        return self

    def consume(self, tokens: Sequence[int]) -> int:
        self._called("consume")
        self.length += len(tokens)
        return len(tokens)

    def rollback(self, num_tokens: int) -> None:
        self._called("rollback")
        self.length -= num_tokens

    def fill_row(self, row: BitmaskRow) -> None:
        self._called("fill_row")
        row.array[:] = pack_ids(ids("a"), vocabulary().width)

    def is_accepting(self) -> bool:
        return False

    def fork(self) -> Matcher:
        return self


@pytest.mark.parametrize(("method", "calls"), [("fill_row", 1), ("fill_row", 3), ("consume", 2), ("rollback", 1)])
def test_f18_an_engine_that_breaks_at_any_call_fails_its_request_and_the_history_is_restored(
    method: str, calls: int
) -> None:
    broken = Grammar(Matcher(method, calls), vocabulary(), vocabulary().stop_set, None)
    sound = Grammar(Matcher(), vocabulary(), vocabulary().stop_set, None)
    batch = builder(3).build([MaskRequest("broken", broken, ids("aaa")), MaskRequest("sound", sound, ids("aaa"))])
    assert shown(batch.bitmask) == [""] * 4 + ["a"] * 4
    assert list(batch.descriptor.states) == [RowState.FAILED] * 4 + [HELD] * 4
    assert batch.reports[0].error is broken.error is not None
    assert (broken.num_accepted, sound.num_accepted, sound.error) == (0, 0, None)


def test_a14_a_dead_end_is_found_before_the_mask_leaves() -> None:
    dead, sound = dead_end(), grammar("xgrammar")
    batch = builder(1).build([MaskRequest("dead", dead, ids("b")), MaskRequest("sound", sound)])
    assert shown(batch.bitmask) == ["", "", "a"]
    assert list(batch.descriptor.states) == [DEAD, DEAD, HELD]
    assert isinstance(batch.errors["dead"], DeadEnd)
    assert batch.descriptor.apply_jobs(["dead", "sound"]).mask_rows.tolist() == [2]


def test_a14_a_draft_that_leads_to_a_dead_end_is_not_acceptable() -> None:
    made = compiled("xgrammar", GrammarSpec.choice(["ab", "bb"])).new_grammar(stop_token_ids=[ord("b")])
    batch = builder(2).build([MaskRequest("r", made, ids("aa"))])
    assert shown(batch.bitmask) == ["a", "a", "a"]
    assert list(batch.descriptor.states) == [HELD, DEAD, NEVER]
    assert batch.descriptor.num_acceptable == (0,)
    assert made.error is None


class Spy:
    """An engine whose native calls are counted."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("fill_"):
            method = getattr(self._engine, name)
            return lambda *args: (
                self.calls.append(f"{name} {len(args[0]) if isinstance(args[0], list) else 1}"),
                method(*args),
            )[1]
        return getattr(self._engine, name)


@pytest.mark.parametrize(("name", "trees"), [("xgrammar", ["fill_tree 1"]), ("guidance", [])])
def test_f14_engines_fill_many_requests_and_their_drafts_in_one_call(name: str, trees: list[str]) -> None:
    grammars = [grammar(name, "ab") for _ in range(4)]
    spy = Spy(grammars[0].batch[0])  # type: ignore[attr-defined]  # a Grammar
    for each in grammars:
        each.batch = (spy, each.batch[1])  # type: ignore[attr-defined]  # as above
    drafts = [ids("b"), ids("bc$"), (), DraftTree.from_parents([0, *ids("bc")], [-1, 0, 0])]
    batch = builder(3).build([MaskRequest(str(n), *each) for n, each in enumerate(zip(grammars, drafts, strict=True))])
    assert spy.calls == ["fill_rows 1", "fill_drafts 2", *trees]
    assert batch.descriptor.num_acceptable == (1, 3, 0, 2)


def test_g12_a_rollback_budget_that_the_drafts_exceed_is_refused() -> None:
    with pytest.raises(ValueError, match="need a max_rollback of 4, not 3"):
        builder(3, max_rollback=3)
    assert builder(3, max_rollback=4).min_rollback == 4
    assert builder(0, max_rollback=0).min_rollback == 0
    small, large = grammar("outlines", max_rollback=2), grammar("outlines", max_rollback=3)
    for name in ("xgrammar", "guidance", "outlines"):
        small, large = grammar(name, max_rollback=2), grammar(name, max_rollback=3)
        batch = builder(2).build([MaskRequest("small", small, ids("ab")), MaskRequest("large", large, ids("ab"))])
        assert [report.state for report in batch.reports] == [RowState.FAILED, HELD]
        assert shown(batch.bitmask) == ["", "", "", "a", "b", "bc$"]
        assert "need a max_rollback of 3" in str(batch.errors["small"])
        assert small.error is None


def test_a20_misuse_raises_before_any_row_is_written() -> None:
    other = load_backend("xgrammar", Vocabulary.from_bytes([b"a", b"b", b"<eos>"], [2], [2], width=40))
    used = builder(1)
    before = used.build([MaskRequest("r", grammar("xgrammar"))]).bitmask.copy()
    after = used.build([MaskRequest("r", grammar("xgrammar"))]).bitmask
    each, tree = grammar("xgrammar"), DraftTree.chain(ids("a"))
    wrong: list[tuple[type[Exception], list[MaskRequest]]] = [
        (BitmaskError, [MaskRequest("a", each), MaskRequest("b", other.compile_grammar(SPEC).new_grammar())]),
        (ValueError, [MaskRequest("a", each), MaskRequest("a", grammar("xgrammar"))]),
        (ValueError, [MaskRequest(str(number), None) for number in range(5)]),
        (ValueError, [MaskRequest("a", each, ids("ab"))]),
        (ValueError, [MaskRequest("a", each, DraftTree.chain(ids("ab")))]),
    ]
    for kind, requests in wrong:
        with pytest.raises(kind):
            used.build(requests)
    with pytest.raises(ValueError, match="bonus row"):
        builder(1, bonus_row=False).build([MaskRequest("a", each, tree)])
    assert np.array_equal(before, after)
    for options in ({"layout": "loose"}, {"terminated": "none"}, {"threads": 0}, {"bonus_row": False}):
        with pytest.raises(ValueError, match=r"layout|terminated|no builder"):
            builder(0, **options)


def test_h1_masks_reach_the_logits_of_a_batch_in_another_order() -> None:
    requests = [
        MaskRequest("a", grammar("xgrammar"), ids("ab")),
        MaskRequest("free", None),
        MaskRequest("gone", grammar("xgrammar")),
        MaskRequest("b", grammar("guidance", "ab"), ids("x")),
    ]
    batch = builder(2).build(requests)
    order, first_rows = ["b", "stranger", "free", "a"], [0, 2, 3, 4, 7]
    jobs = batch.descriptor.apply_jobs(order)
    expected = {0: "bc$", 1: "bc$", 4: "a", 5: "b", 6: "bc$"}
    assert sorted(jobs.logits_rows(first_rows).tolist()) == list(expected)
    mappings = {
        "index": RowMapping.by_index(jobs.logits_rows(first_rows), mask_rows=jobs.mask_rows),
        "slot": RowMapping.by_slot(jobs.slots(3), first_rows, 3, mask_rows=jobs.mask_rows),
    }
    for mapping in mappings.values():
        logits = torch.zeros(7, vocabulary().width)
        apply_token_bitmask(logits, torch.from_numpy(batch.bitmask), rows=mapping)
        for row in range(7):
            left = "".join("$" if id_ == STOP else chr(id_) for id_ in (logits[row] == 0).nonzero().flatten().tolist())
            assert left == expected[row] if row in expected else not logits[row].any()
    stepwise = torch.zeros(7, vocabulary().width)
    for step in range(3):
        mask_rows = jobs.mask_rows_at(step, len(order))
        mapping = RowMapping.by_step(first_rows, step, mask_rows=mask_rows)
        apply_token_bitmask(stepwise, torch.from_numpy(batch.bitmask), rows=mapping)
    assert torch.equal(stepwise, logits)


def test_h3_positions_that_the_worker_dropped_are_skipped() -> None:
    batch = builder(2).build([MaskRequest("a", grammar("xgrammar"), ids("ab")), MaskRequest("b", grammar("xgrammar"))])
    jobs = batch.descriptor.apply_jobs(["a", "b"])
    assert jobs.logits_rows([0, 1, 2]).tolist() == [0, -1, -1, 1]
