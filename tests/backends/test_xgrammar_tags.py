"""Structural tags that name control tokens, on xgrammar: the token itself, and nowhere else (A29, B7, B10)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from grammar_backends import GrammarSpec, Vocabulary, load_backend
from grammar_backends.contract import StructuredOutputGrammar, unpack_ids
from grammar_backends.errors import SpecError, UnsupportedFeature

EOS, TOOL, END, MARK, PAD = 256, 257, 258, 259, 260
SPELLED = ["<eos>", "<tool>", "</tool>", "<mark>", "<pad>"]
VOCABULARY = Vocabulary.from_bytes(
    [*(bytes([value]) for value in range(256)), *map(str.encode, SPELLED)],
    special_ids=[EOS, TOOL, END, MARK, PAD],
    stop_ids=[EOS],
)
CONTENT = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
JSON = {"type": "json_schema", "json_schema": CONTENT}
LEGACY = {"structures": [{"begin": "<tool>\n", "schema": CONTENT, "end": "\n</tool>"}], "triggers": ["<tool>"]}


@functools.cache
def backend() -> Any:
    return load_backend("xgrammar", VOCABULARY)


def grammar(tag: dict[str, Any]) -> StructuredOutputGrammar:
    made: StructuredOutputGrammar = backend().compile_grammar(GrammarSpec.structural_tag(tag)).new_grammar()
    return made


def allowed(state: StructuredOutputGrammar) -> set[int]:
    bitmask = np.full((1, VOCABULARY.words), -1, dtype=np.int32)
    state.fill_bitmask(bitmask, 0)
    return set(unpack_ids(bitmask[0]))


def accepts(state: StructuredOutputGrammar, *pieces: int | str) -> bool:
    """Whether tokens and texts are accepted one by one, each allowed by the mask."""
    for piece in pieces:
        for token in [piece] if isinstance(piece, int) else piece.encode():
            legal = token in allowed(state)
            if state.accept_tokens("r", [token]) != legal:
                raise AssertionError(f"mask and accept disagree on {token}")
            if not legal:
                return False
    return True


def of_format(format_: dict[str, Any]) -> dict[str, Any]:
    return {"format": format_}


def triggered(*triggers: str, begin: str, **more: Any) -> dict[str, Any]:
    tag = {"type": "tag", "begin": begin, "content": JSON, "end": "</tool>"}
    return of_format({"type": "triggered_tags", "triggers": list(triggers), "tags": [tag], **more})


def test_a29_a_token_that_a_tag_names_is_not_legal_inside_its_strings() -> None:
    state = grammar(LEGACY)
    assert accepts(state, "so ", TOOL, '\n{"a": "x')
    assert allowed(state) & VOCABULARY.special_ids == set()
    assert not state.accept_tokens("r", [TOOL])
    assert accepts(state, '"}\n')
    assert allowed(state) == {END, ord("<")}
    assert accepts(state, END, "more", TOOL, '\n{"a":"<tool>"}\n', END, EOS)


def test_b7_the_name_of_a_token_may_be_spelled_in_text_too() -> None:
    state = grammar(LEGACY)
    assert accepts(state, "so <tool>")
    assert allowed(state) == {ord("\n")}
    assert accepts(state, '\n{"a":"<tool>"}\n')
    assert allowed(state) == {END, ord("<")}
    assert accepts(state, "</tool>", TOOL)
    assert allowed(state) == {ord("\n")}


def test_b7_the_byte_that_marks_control_tokens_inside_is_no_way_to_write_them() -> None:
    state = grammar(LEGACY)
    assert accepts(state, TOOL, '\n{"a":""}\n')
    assert not state.accept_tokens("r", [0xFF])


def test_a29_a_pattern_in_a_tag_ends_at_the_named_token() -> None:
    content = {"type": "regex", "pattern": r"[\s\S]*"}
    state = grammar(of_format({"type": "tag", "begin": "<tool>", "content": content, "end": "</tool>"}))
    assert allowed(state) == {TOOL, ord("<")}
    assert accepts(state, TOOL, "ab")
    assert allowed(state) & VOCABULARY.special_ids == {END}
    assert accepts(state, END)
    assert allowed(state) == {EOS}


def test_b7_the_free_text_of_a_tag_may_hold_the_tokens_that_it_names_and_no_others() -> None:
    state = grammar(triggered("<tool>ana", begin="<tool>ana<mark>"))
    assert allowed(state) & VOCABULARY.special_ids == {EOS, TOOL, END, MARK}
    assert accepts(state, "x", TOOL, "final", MARK, "é", TOOL, "an", TOOL, "bn", TOOL)
    assert accepts(state, "ana")
    assert allowed(state) == {MARK, ord("<")}
    assert accepts(state, MARK, '{"a":"', '"}', END, EOS)
    inner = grammar(of_format({"type": "tag", "begin": "<tool>", "content": {"type": "any_text"}, "end": "</tool>"}))
    assert accepts(inner, TOOL, "ab")
    assert allowed(inner) & VOCABULARY.special_ids == {TOOL, END}


def test_b7_a_trigger_is_never_read_as_free_text() -> None:
    state = grammar(triggered("<tool>ana", begin="<tool>ana<mark>"))
    assert accepts(state, TOOL, "an")
    assert state.is_accepting()
    assert accepts(state, "a")
    assert not state.is_accepting()


@pytest.mark.parametrize(
    ("options", "right", "wrong"),
    [
        ({}, [["x"], [], ["x", TOOL], ["x", TOOL, TOOL, "y"]], []),
        ({"at_least_one": True}, [[TOOL], [TOOL, "x", TOOL]], [[], ["x"], ["x", TOOL]]),
        ({"stop_after_first": True}, [[], ["x", TOOL]], [[TOOL, "x"]]),
        ({"at_least_one": True, "stop_after_first": True}, [[TOOL]], [[], ["x", TOOL], [TOOL, TOOL]]),
    ],
)
def test_b10_how_often_a_tag_may_come(options: dict[str, bool], right: list[Any], wrong: list[Any]) -> None:
    tag = triggered("<tool>", begin="<tool>", **options)
    for pieces, legal in [*((pieces, True) for pieces in right), *((pieces, False) for pieces in wrong)]:
        called = [item for piece in pieces for item in ([TOOL, '{"a":""}', END] if piece == TOOL else [piece])]
        assert accepts(grammar(tag), *called, EOS) == legal, pieces


def test_b10_formats_over_any_token_leave_out_control_tokens_that_are_not_named() -> None:
    content = {"type": "any_tokens"}
    state = grammar(
        of_format({"type": "tag", "begin": "<tool>", "content": content, "end": {"type": "token", "token": "</tool>"}})
    )
    assert accepts(state, TOOL, "x")
    assert allowed(state) & VOCABULARY.special_ids == {END}


def test_b10_names_in_the_middle_of_a_text_are_tokens() -> None:
    state = grammar(of_format({"type": "const_string", "value": "a<tool>b"}))
    assert accepts(state, "a")
    assert allowed(state) == {TOOL, ord("<")}
    assert accepts(state, TOOL, "b", EOS)


@pytest.mark.parametrize(
    ("format_", "error", "words"),
    [
        ({"type": "token", "token": 9999}, SpecError, "no token 9999 at /format/token"),
        ({"type": "token", "token": "<nope>"}, SpecError, "no token '<nope>'"),
        ({"type": "token", "token": EOS}, SpecError, "stop token"),
        (
            {
                "type": "tags_with_separator",
                "tags": [{"begin": "a", "content": {"type": "any_text"}, "end": "b"}],
                "separator": "<mark>",
            },
            UnsupportedFeature,
            "/format/separator",
        ),
        ({"type": "const_string", "value": "<tool>" * 5}, UnsupportedFeature, "takes 4 control tokens"),
        (
            {"type": "grammar", "grammar": "start: <tool>", "syntax": "lark"},
            UnsupportedFeature,
            "control token <tool> at /format/grammar",
        ),
    ],
)
def test_b10_what_xgrammar_cannot_express_is_refused(
    format_: dict[str, Any], error: type[SpecError], words: str
) -> None:
    for ask in (backend().check_spec, backend().compile_grammar):
        with pytest.raises(error, match=words) as caught:
            ask(GrammarSpec.structural_tag(of_format(format_)))
        assert type(caught.value) is error
