"""One engine's choices: sticky, without a mark on the request, and with one backend or several (C1, C2)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from grammar_backends import GrammarSpec, PluginHost, Vocabulary
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.errors import BackendUnavailable, SpecError, UnsupportedFeature, VocabularyError
from grammar_backends.plugins import hookimpl
from grammar_backends.selection import BackendResolver, Policy, select_backend

CLOSED = GrammarSpec.json_schema(
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
)
FORMATTED = GrammarSpec.json_schema({"type": "string", "format": "date"})
"""Only guidance enforces it."""
CHOICE = GrammarSpec.choice(["yes", "no"])


def test_c2_4_several_backends_live_side_by_side(host: PluginHost, vocabulary: Vocabulary) -> None:
    resolver = BackendResolver(vocabulary, host=host)
    names = [resolver.resolve(spec).backend.name for spec in (CLOSED, FORMATTED, CLOSED)]
    assert names == ["xgrammar", "guidance", "xgrammar"]
    assert resolver.live == ("xgrammar", "guidance")


def test_c2_4_with_one_backend_the_first_request_decides_and_others_are_refused_at_once(
    host: PluginHost, vocabulary: Vocabulary
) -> None:
    resolver = BackendResolver(vocabulary, host=host, several=False)
    assert resolver.resolve(CLOSED).backend.name == "xgrammar"
    with pytest.raises(UnsupportedFeature, match="xgrammar") as caught:
        resolver.resolve(FORMATTED)
    assert caught.value.pointer == "/format"
    assert resolver.resolve(CHOICE).backend.name == "xgrammar"
    assert resolver.live == ("xgrammar",)


def test_c2_4_a_request_that_is_refused_decides_nothing(host: PluginHost, vocabulary: Vocabulary) -> None:
    resolver = BackendResolver(vocabulary, host=host, several=False)
    with pytest.raises(UnsupportedFeature):
        resolver.resolve(GrammarSpec.json_schema({"type": "array", "uniqueItems": True}))
    assert resolver.resolve(FORMATTED).backend.name == "guidance"
    assert resolver.resolve(CHOICE).backend.name == "guidance"


def test_c2_4_one_backend_is_decided_once_however_many_threads_ask(host: PluginHost, vocabulary: Vocabulary) -> None:
    resolver = BackendResolver(vocabulary, host=host, several=False)
    found: list[str] = []

    def ask(spec: GrammarSpec) -> None:
        try:
            found.append(resolver.resolve(spec).backend.name)
        except UnsupportedFeature:
            found.append("refused")

    threads = [threading.Thread(target=ask, args=(spec,)) for spec in (CLOSED, FORMATTED) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(resolver.live) == 1
    assert set(found) <= {resolver.live[0], "refused"}


def test_c1_3_an_engine_set_to_one_backend_takes_no_other_wish(host: PluginHost, vocabulary: Vocabulary) -> None:
    resolver = BackendResolver(vocabulary, host=host, backend="guidance")
    assert resolver.resolve(CLOSED).backend.name == "guidance"
    assert resolver.resolve(CLOSED, backend="guidance").backend.name == "guidance"
    with pytest.raises(SpecError, match="this engine has guidance only, not 'xgrammar'"):
        resolver.resolve(CLOSED, backend="xgrammar")
    with pytest.raises(BackendUnavailable, match="no backend 'none'"):
        BackendResolver(vocabulary, host=host, backend="none")


def test_c1_3_a_request_may_name_its_backend_where_the_engine_leaves_the_choice(
    host: PluginHost, vocabulary: Vocabulary
) -> None:
    resolver = BackendResolver(vocabulary, host=host)
    assert resolver.resolve(CLOSED, backend="outlines").backend.name == "outlines"
    assert resolver.resolve(CLOSED).backend.name == "xgrammar"
    with pytest.raises(UnsupportedFeature):
        resolver.resolve(GrammarSpec.json_schema({"type": "object"}), backend="outlines")


class Turning:
    """Puts another backend first with every question."""

    def __init__(self) -> None:
        self.asked = 0

    @hookimpl
    def grammar_backends_order_chain(self, request: GrammarSpec, candidates: Sequence[str]) -> list[str]:
        self.asked += 1
        turn = self.asked % len(candidates)
        return [*candidates[turn:], *candidates[:turn]]


def test_c2_3_a_choice_is_sticky_in_its_engine_and_leaves_the_request_as_it_was(vocabulary: Vocabulary) -> None:
    host = PluginHost(plugins={"turning": Turning()})
    before = (CHOICE.kind, CHOICE.text, CHOICE.key)
    one, other = (BackendResolver(vocabulary, host=host) for _ in range(2))
    first = one.resolve(CHOICE)
    second = other.resolve(CHOICE)
    assert first.backend.name != second.backend.name
    assert one.resolve(GrammarSpec.choice(["yes", "no"])) is first
    assert other.resolve(CHOICE) is second
    assert (CHOICE.kind, CHOICE.text, CHOICE.key) == before


def test_c2_1_the_hook_is_asked_with_the_request_and_names_that_it_leaves_out_are_not_tried(
    vocabulary: Vocabulary,
) -> None:
    seen: list[tuple[GrammarSpec, Sequence[str]]] = []

    class Only:
        @hookimpl
        def grammar_backends_order_chain(self, request: GrammarSpec, candidates: Sequence[str]) -> list[str]:
            seen.append((request, candidates))
            return ["outlines", "unheard-of"]

    selection = select_backend(CHOICE, vocabulary, host=PluginHost(plugins={"only": Only()}))
    assert seen == [(CHOICE, ("xgrammar", "guidance", "outlines"))]
    assert [step.backend for step in selection.trace.steps] == ["outlines"]


def picky(vocabulary: Vocabulary, options: object) -> None:
    raise VocabularyError(f"picky cannot use {vocabulary.name}: it needs a tokenizer of its own")


def test_c2_7_a_backend_that_cannot_use_the_tokenizer_is_passed_over_with_its_reason(vocabulary: Vocabulary) -> None:
    class Picky:
        @hookimpl
        def grammar_backends_register_backends(self) -> list[BackendSpec]:
            factory = f"{__name__}:picky"
            return [BackendSpec("picky", factory, API_VERSION, Capabilities(kinds=frozenset(GrammarKind)), priority=1)]

    host = PluginHost(plugins={"picky": Picky()})
    steps = select_backend(CHOICE, vocabulary, host=host).trace.steps
    assert [(step.backend, step.verdict) for step in steps[:2]] == [("picky", "skipped"), ("xgrammar", "chosen")]
    assert "needs a tokenizer of its own" in steps[0].findings[0].reason
    with pytest.raises(UnsupportedFeature, match="picky"):
        select_backend(CHOICE, vocabulary, host=host, policy=Policy(order=("picky",)))


@pytest.mark.parametrize("name", ["xgrammar", "guidance", "outlines", "lm-format-enforcer"])
def test_c1_5_no_tokenizer_is_barred_from_an_engine(name: str, host: PluginHost) -> None:
    """Engines get the bytes of each token, so that none needs a fast tokenizer, or cannot take Mistral's.

    The pieces of SentencePiece are told from bytes, and where no tokenizer can encode, nothing is forced.
    """
    sentencepiece = Vocabulary.from_bytes(
        [b"<s>", b"</s>", *(bytes((byte,)) for byte in range(256)), b" yes", b"yes", b"no", "é".encode()],
        special_ids=[0, 1],
        stop_ids=[1],
    )
    spec = GrammarSpec.choice(["yes", "no", "é"])
    selection = select_backend(spec, sentencepiece, host=host, policy=Policy(order=(name,)))
    for text in (b"yes", b"no", "é".encode()):
        grammar = selection.backend.compile_grammar(spec).new_grammar()
        token = next(id_ for id_, data in enumerate(sentencepiece.text_tokens) if data == text)
        assert grammar.accept_tokens("test", [token, 1])
        assert grammar.is_terminated()
