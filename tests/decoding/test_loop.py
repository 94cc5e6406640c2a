"""The reference decode loop: requests of every kind side by side, on every backend."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from grammar_backends import GrammarSpec, StructuredOutputGrammar, load_vocabulary
from grammar_backends.compilation import GrammarManager
from grammar_backends.contract import GrammarOptions
from grammar_backends.decoding import MarkerSearch, ReasoningGate, TokenMarker, TriggerGate
from grammar_backends.decoding.loop import DecodeLoop, Request
from grammar_backends.errors import GrammarError, SpecError, UnsupportedFeature

BYTE = load_vocabulary("byte")
EOS, UNTHINK = BYTE.stop_ids[0], BYTE.tag_names["</think>"]
BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["x", "yz"]}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
    "additionalProperties": False,
}


class Reciter:
    """A model that wants to say one text to each prompt, and counts its passes. Where it is held off, it goes on with
    what it had in mind for that place."""

    def __init__(self, *texts: list[int]) -> None:
        self.texts = texts
        self.passes = 0

    def __call__(self, contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        self.passes += 1
        logits = torch.zeros(len(contexts), BYTE.width)
        for row, (number, *output) in zip(logits, contexts, strict=True):
            text = [*self.texts[number], EOS]
            row[text[min(len(output), len(text) - 1)]] = 2.0
            row[EOS] += 1.0
        return logits


def run(backend: str, model: Any, *requests: Request, **options: Any) -> None:
    with GrammarManager(BYTE, backend=backend, isolation="inline") as manager:
        DecodeLoop(BYTE, manager, model, **options).run(requests)


def text_of(request: Request) -> str:
    return BYTE.decode(request.output).decode()


@pytest.mark.parametrize("backend", BACKENDS)
def test_requests_of_every_kind_run_side_by_side(backend: str) -> None:
    unthink = MarkerSearch(BYTE, ["</think>"])

    def reasons(grammar: StructuredOutputGrammar) -> StructuredOutputGrammar:
        return ReasoningGate(grammar, unthink)

    model = Reciter(
        list(b"no JSON at all"),
        list(b"anything goes"),
        [*b"hm, hm", UNTHINK, *b"yes and no"],
        list(b"on and on"),
        list(b"never mind"),
    )
    compact = GrammarOptions(whitespace="compact")
    requests = [
        Request("json", [0], GrammarSpec.json_schema(SCHEMA, options=compact)),
        Request("free", [1]),
        Request("reasons", [2], GrammarSpec.choice(["yes", "no"]), gate=reasons),
        Request("long", [3], max_tokens=4),
        Request("wrong", [4], GrammarSpec.regex("(")),
        Request("refused", [4], GrammarSpec.regex("a(?=b)")),
    ]
    run(backend, model, *requests, max_num_seqs=3)
    by_id = {request.request_id: request for request in requests}
    assert [request.finish_reason for request in requests] == ["stop", "stop", "stop", "length", "error", "error"]
    document = json.loads(text_of(by_id["json"]))
    assert set(document) == {"name", "ok"}
    assert document["name"] in ("x", "yz")
    assert text_of(by_id["free"]) == "anything goes"
    assert text_of(by_id["reasons"]) == "hm, hmyes"
    assert text_of(by_id["long"]) == "on a"
    assert isinstance(by_id["wrong"].error, SpecError)
    assert isinstance(by_id["refused"].error, UnsupportedFeature)
    assert all(request.output[-1] == EOS for request in requests[:3])


@pytest.mark.parametrize("backend", BACKENDS)
def test_i5_forced_tokens_as_drafts_save_passes_of_the_model_and_change_nothing(backend: str) -> None:
    spec = GrammarSpec.json_schema(SCHEMA, options=GrammarOptions(whitespace="compact"))
    passes, outputs = [], []
    for drafter in (lambda request, grammar: [], None):
        model, request = Reciter(list(b'{"name":"x","ok":true}')), Request("r", [0], spec)
        run(backend, model, request, drafter=drafter, num_draft_tokens=8)
        passes.append(model.passes)
        outputs.append(request.output)
    assert outputs[0] == outputs[1] == [*b'{"name":"x","ok":true}', EOS]
    assert passes[0] == len(outputs[0])
    assert passes[1] <= passes[0] - 8


def test_f18_a_prompt_that_a_gate_refuses_harms_no_other() -> None:
    def refusing(grammar: StructuredOutputGrammar) -> StructuredOutputGrammar:
        return TriggerGate(grammar, MarkerSearch(BYTE, [TokenMarker([0], implicit=True)]), prompt=[0])

    choice = GrammarSpec.choice(["yes", "no"])
    requests = [Request("refused", [0], choice, gate=refusing), Request("lives", [0], choice)]
    run("xgrammar", Reciter(list(b"no")), *requests)
    assert [request.finish_reason for request in requests] == ["error", "stop"]
    assert "refuses the trigger" in str(requests[0].error)


@pytest.mark.parametrize("max_tokens", [0, -1])
@pytest.mark.parametrize("spec", [None, GrammarSpec.choice(["no"])])
def test_no_tokens_end_a_request_at_once(spec: GrammarSpec | None, max_tokens: int) -> None:
    request = Request("none", [0], spec, max_tokens=max_tokens)
    run("xgrammar", Reciter(list(b"no")), request)
    assert (request.finish_reason, request.output) == ("length", [])


def test_f18_a_request_whose_grammar_fails_harms_no_other() -> None:
    def failing(grammar: StructuredOutputGrammar) -> StructuredOutputGrammar:
        def fail(bitmask: Any, row: int) -> bool:
            raise GrammarError("the engine failed")

        grammar = ReasoningGate(grammar, MarkerSearch(BYTE, ["</think>"]))
        grammar.fill_bitmask = fail  # type: ignore[method-assign]  # as an engine that fails
        return grammar

    choice = GrammarSpec.choice(["yes", "no"])
    requests = [Request("fails", [0], choice, gate=failing), Request("lives", [0], choice)]
    run("xgrammar", Reciter(list(b"no")), *requests)
    assert [request.finish_reason for request in requests] == ["error", "stop"]
    assert str(requests[0].error) == "the engine failed"
    assert requests[0].output == []
    assert text_of(requests[1]) == "no"
