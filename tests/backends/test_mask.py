"""fill_bitmask: rows agree with what is accepted, over whole vocabularies, whatever was in the row before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from grammar_backends.contract import Grammar, GrammarSpec, allocate_bitmask, unpack_ids
from grammar_backends.errors import BitmaskError, DeadEnd, SpecError

if TYPE_CHECKING:
    from tests.backends.conftest import Lab, Sample


def states(lab: Lab, sample: Sample, most: int = 6) -> Iterator[Grammar]:
    """A grammar at up to `most` places, evenly spread, of the longest text; the end is one of them."""
    tokens = lab.encode(max(sample.texts, key=len))
    step = max(1, -(-len(tokens) // (most - 1)))
    for end in {*range(0, len(tokens), step), len(tokens)}:
        grammar = lab.grammar(sample.spec)
        assert grammar.accept_tokens("r", tokens[:end])
        yield grammar


def check_agreement(lab: Lab, grammar: Grammar, ids: Iterable[int] | None = None) -> None:
    allowed = lab.allowed(grammar)
    count = grammar.num_accepted
    for id_ in lab.some_ids() if ids is None else ids:
        legal = grammar.validate_tokens([id_]) == [id_]
        accepted = grammar.accept_tokens("r", [id_])
        if accepted:
            grammar.rollback(1)
        assert accepted == legal, id_
        assert not (id_ in allowed and not accepted), f"unsound: {id_} {lab.vocabulary.token_bytes(id_)!r}"
        if lab.full:
            assert (id_ in allowed) == accepted, f"{id_} {lab.vocabulary.token_bytes(id_)!r}"
    assert grammar.num_accepted == count
    assert lab.allowed(grammar) == allowed


def test_a12_mask_validate_and_accept_agree_on_every_id(lab: Lab, sample: Sample) -> None:
    for grammar in states(lab, sample, most=3 if lab.vocabulary.name == "tekken" else 6):
        check_agreement(lab, grammar)


def test_a12_mask_validate_and_accept_agree_on_every_id_of_a_real_vocabulary(tekken_lab: Lab, sample: Sample) -> None:
    tokens = tekken_lab.encode(max(sample.texts, key=len))
    grammar = tekken_lab.grammar(sample.spec)
    assert grammar.accept_tokens("r", tokens[: len(tokens) // 2])
    check_agreement(tekken_lab, grammar, range(tekken_lab.vocabulary.width))


@pytest.mark.parametrize("prefix", ["", "a", "abab"])
def test_a12_mask_validate_and_accept_agree_under_own_stop_ids(lab: Lab, runs: GrammarSpec, prefix: str) -> None:
    b = lab.encode("b")[0]
    check_agreement(lab, lab.grammar(runs, prefix.replace("b", "a"), stop_token_ids=[b, *lab.vocabulary.stop_ids]))


def test_a12_every_canonical_text_is_allowed_token_by_token(lab: Lab, sample: Sample) -> None:
    for text in sample.texts:
        grammar = lab.grammar(sample.spec)
        for token in [*lab.encode(text), lab.stop]:
            assert token in lab.allowed(grammar), f"{lab.vocabulary.token_bytes(token)!r} of {text!r}"
            assert grammar.accept_tokens("r", [token])


@pytest.mark.parametrize("grammar", ['root ::= "x" | "(" root ")"', 'root ::= "" | "{" root "}" | "a" root'])
def test_a12_recursive_start_rules_allow_tokens_that_close_several_levels(tricky_lab: Lab, grammar: str) -> None:
    if "ebnf" not in tricky_lab.backend.capabilities.syntaxes:
        return
    state = tricky_lab.grammar(GrammarSpec.grammar(grammar, "ebnf"))
    for token in tricky_lab.encode("((((x" if "(" in grammar else "{{aa"):
        assert state.accept_tokens("r", [token])
        check_agreement(tricky_lab, state)


RECURSIVE_SCHEMAS = {
    "whole": {"type": "object", "properties": {"n": {"$ref": "#"}}, "additionalProperties": False},
    "array": {"type": "array", "items": {"$ref": "#"}},
    "definition": {
        "$ref": "#/$defs/node",
        "$defs": {"node": {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}}},
    },
    "either": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"$ref": "#"}}}]},
}


@pytest.mark.parametrize("schema", RECURSIVE_SCHEMAS.values(), ids=list(RECURSIVE_SCHEMAS))
def test_a12_recursive_schemas_allow_tokens_that_close_several_levels(tricky_lab: Lab, schema: object) -> None:
    if tricky_lab.name in ("outlines", "lm-format-enforcer"):  # recursion is refused
        return
    opening = "[[[" if schema == RECURSIVE_SCHEMAS["array"] else '{"n": {"n": {'
    grammar = tricky_lab.grammar(GrammarSpec.json_schema(schema), opening)
    check_agreement(tricky_lab, grammar)
    assert tricky_lab.token(b"]]" if opening == "[[[" else b"}}") in tricky_lab.allowed(grammar)


def test_a12_the_whole_row_is_written_and_stale_content_never_matters(lab: Lab, sample: Sample) -> None:
    for grammar in states(lab, sample, most=3):
        clean = lab.row(grammar, stale=0)
        for stale in (-1, 0x5A5A5A5A):
            assert np.array_equal(lab.row(grammar, stale), clean)
        grammar.accept_tokens("r", [lab.stop])
        assert np.array_equal(lab.row(grammar, -1), lab.row(grammar, 0))


def test_a12_padded_ids_and_tail_bits_are_never_allowed(lab: Lab, sample: Sample) -> None:
    for grammar in states(lab, sample, most=4):
        assert max(unpack_ids(lab.row(grammar))) < lab.vocabulary.size


def test_a12_other_rows_keep_every_bit(lab: Lab, runs: GrammarSpec) -> None:
    bitmask = torch.full((5, lab.vocabulary.words), 0x5A5A5A5A, dtype=torch.int32)
    assert lab.grammar(runs).fill_bitmask(bitmask, 2)
    others = bitmask[[0, 1, 3, 4]]
    assert (others == 0x5A5A5A5A).all()
    assert np.array_equal(bitmask[2].numpy(), lab.row(lab.grammar(runs)))


def test_a12_duplicate_byte_strings_are_all_accepted(tricky_lab: Lab, runs: GrammarSpec) -> None:
    grammar = tricky_lab.grammar(runs)
    allowed = tricky_lab.allowed(grammar)
    for text in (b"a", b"ab"):
        twins = [id_ for id_, token in enumerate(tricky_lab.vocabulary.text_tokens) if token == text]
        assert len(twins) >= 2
        assert all(grammar.validate_tokens([id_]) for id_ in twins)
        assert set(twins) <= allowed


def test_a13_a_terminated_grammar_allows_the_stop_tokens_only(lab: Lab, sample: Sample) -> None:
    special = max(lab.vocabulary.special_ids - lab.vocabulary.stop_set)
    for stops in (lab.vocabulary.stop_ids, (special,)):
        grammar = lab.grammar(sample.spec, sample.texts[0], stop_token_ids=stops)
        grammar.accept_tokens("r", [stops[0]])
        assert lab.allowed(grammar) == set(stops)
        assert not grammar.is_accepting()


def test_a14_a_dead_end_is_an_error_and_a_rollback_recovers_from_it(small_lab: Lab, dead_end: GrammarSpec) -> None:
    if small_lab.name == "outlines":
        with pytest.raises(SpecError):
            small_lab.compile(dead_end)
        return
    grammar = small_lab.grammar(dead_end)
    start = small_lab.state(grammar)
    bitmask = allocate_bitmask(1, small_lab.vocabulary.width)
    for _ in range(2):
        assert grammar.accept_tokens("r", small_lab.encode("a"))
        for _ in range(2):
            with pytest.raises(DeadEnd):
                grammar.fill_bitmask(bitmask, 0)
        assert isinstance(grammar.error, DeadEnd)
        assert not grammar.accept_tokens("r", small_lab.encode("b"))
        assert grammar.validate_tokens(small_lab.encode("b")) == []
        assert not grammar.is_terminated()
        assert not grammar.is_accepting()
        grammar.rollback(1)
        assert small_lab.state(grammar) == start
    assert grammar.accept_tokens("r", [*small_lab.encode("bb"), small_lab.stop])


def test_a14_a_fork_of_a_dead_end_recovers_on_its_own(small_lab: Lab, dead_end: GrammarSpec) -> None:
    if small_lab.name == "outlines":  # as above
        return
    grammar = small_lab.grammar(dead_end, "a")
    with pytest.raises(DeadEnd):
        small_lab.row(grammar)
    fork = grammar.fork()
    fork.rollback(1)
    assert small_lab.state(fork) == small_lab.state(small_lab.grammar(dead_end))
    assert isinstance(grammar.error, DeadEnd)


@pytest.mark.parametrize("pattern", ["(ab)+", "a(b|x)b?", "(a|bx)*b", "(abx|ab)+"])
def test_a32_a_state_without_a_way_on_is_never_passed_off_as_one(small_lab: Lab, pattern: str) -> None:
    try:
        compiled = small_lab.compile(GrammarSpec.regex(pattern))
    except SpecError:
        assert small_lab.name == "outlines"  # it refuses what has such states
        return
    for tokens in itertools.product(range(3), repeat=4):
        grammar = compiled.new_grammar()
        for token in tokens:
            if not grammar.accept_tokens("r", [token]):
                break
            try:
                assert small_lab.allowed(grammar)
            except DeadEnd:
                assert not grammar.accept_tokens("r", [token])
                break


def test_a14_a_constraint_that_a_vocabulary_cannot_spell_does_not_compile(small_lab: Lab) -> None:
    with pytest.raises(SpecError):
        small_lab.backend.compile_grammar(GrammarSpec.choice(["xyz"]))


def test_a14_own_stop_ids_that_take_the_only_way_on_make_a_dead_end(byte_lab: Lab) -> None:
    z = ord("z")
    grammar = byte_lab.grammar(GrammarSpec.choice(["azb"]), "a", stop_token_ids=[z])
    with pytest.raises(DeadEnd):
        byte_lab.row(grammar)
    grammar.rollback(1)
    assert byte_lab.allowed(grammar) == {ord("a")}


def test_fill_says_whether_the_row_masks_anything(lab: Lab, runs: GrammarSpec) -> None:
    assert lab.grammar(runs).fill_bitmask(allocate_bitmask(1, lab.vocabulary.width), 0)


def test_a20_misuse_of_the_bitmask_raises_and_changes_nothing(lab: Lab, runs: GrammarSpec) -> None:
    words = lab.vocabulary.words
    good = allocate_bitmask(2, lab.vocabulary.width)
    wrong = [
        (good, 2),
        (good, -1),
        (torch.zeros((2, words + 1), dtype=torch.int32), 0),
        (torch.zeros((2, words), dtype=torch.int64), 0),
        (torch.zeros((words,), dtype=torch.int32), 0),
        (torch.zeros((2, words * 2), dtype=torch.int32)[:, ::2], 0),
        (torch.zeros((2, words), dtype=torch.int32, device="meta"), 0),
        (np.zeros((2, words), dtype=np.uint32), 0),
    ]
    grammar = lab.grammar(runs, "a")
    before = lab.state(grammar)
    for bitmask, row in wrong:
        with pytest.raises(BitmaskError):
            grammar.fill_bitmask(bitmask, row)
        assert lab.state(grammar) == before
    assert (good == -1).all()


def test_a26_the_same_history_gives_the_same_row(lab: Lab, sample: Sample) -> None:
    again = lab.backend.compile_grammar(sample.spec)
    for text in sample.texts:
        other = again.new_grammar()
        other.accept_tokens("elsewhere", lab.encode(text))
        assert np.array_equal(lab.row(other), lab.row(lab.grammar(sample.spec, text)))


def test_a28_inside_a_character_nothing_is_complete(lab: Lab) -> None:
    spec = GrammarSpec.regex("(é|日)*")
    for data in (b"\xc3", b"\xe6", b"\xe6\x97"):
        grammar = lab.grammar(spec)
        tokens = [lab.token(bytes([value])) for value in data]
        assert grammar.is_accepting()
        assert grammar.accept_tokens("r", tokens)
        assert not grammar.is_accepting()
        assert not lab.allowed(grammar) & lab.vocabulary.stop_set
        assert not grammar.accept_tokens("r", [lab.stop])
        assert grammar.accept_tokens("r", [lab.token({195: b"\xa9", 230: b"\x97", 151: b"\xa5"}[data[-1]])])
        assert grammar.is_accepting() == (data != b"\xe6")


def test_a29_special_tokens_never_match_text(lab: Lab, sample: Sample) -> None:
    controls = lab.vocabulary.special_ids - lab.vocabulary.stop_set
    for grammar in states(lab, sample):
        assert not lab.allowed(grammar) & controls
        for id_ in controls:
            assert grammar.validate_tokens([id_]) == []
            assert not grammar.accept_tokens("r", [id_])


def test_a29_a_stop_token_of_the_request_that_is_a_control_token_matches_no_text(lab: Lab) -> None:
    control = max(lab.vocabulary.special_ids - lab.vocabulary.stop_set)
    grammar = lab.grammar(GrammarSpec.regex('"[^"]*"'), '"a', stop_token_ids=[control])
    assert not lab.allowed(grammar) & lab.vocabulary.special_ids


def test_a30_only_the_empty_text_means_stop_tokens_only(lab: Lab) -> None:
    for spec in (GrammarSpec.choice([""]), GrammarSpec.regex("")):
        grammar = lab.grammar(spec)
        assert grammar.is_accepting()
        assert lab.allowed(grammar) == lab.vocabulary.stop_set
        assert grammar.accept_tokens("r", [lab.stop])
        assert grammar.is_terminated()
