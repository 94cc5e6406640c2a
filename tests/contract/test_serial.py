"""Artifacts as bytes, with the engines that have a serial form: what is loaded, and what is refused."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grammar_backends import load_backend, load_vocabulary
from grammar_backends.contract import GrammarBackend, GrammarOptions, GrammarSpec, Vocabulary
from grammar_backends.contract.serial import seal, unseal
from grammar_backends.errors import ArtifactError, CompileError, SpecError, UnsupportedFeature

HERE = Path(__file__).parent
BACKENDS = ("xgrammar", "outlines")
SPEC = GrammarSpec.json_schema(
    {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}}, "required": ["a"], "additionalProperties": False}
)
TEXT = '{"a": "yy"}'

each_backend = pytest.mark.parametrize("name", BACKENDS)


@functools.cache
def backend_of(name: str) -> GrammarBackend:
    return load_backend(name, load_vocabulary("byte"))


@functools.cache
def artifact_of(name: str) -> bytes:
    backend = backend_of(name)
    return backend.dump_grammar(backend.compile_grammar(SPEC))


def rows(backend: GrammarBackend, data: bytes | None, text: str = TEXT) -> list[bytes]:
    """The rows along a text of the grammar in `data`, or of one compiled anew."""
    compiled = backend.compile_grammar(SPEC) if data is None else backend.load_grammar(SPEC, data)
    grammar = compiled.new_grammar()
    row = np.zeros((1, backend.vocabulary.words), dtype=np.int32)
    found = []
    for token in backend.vocabulary.encode(text):
        grammar.fill_bitmask(row, 0)
        found.append(row.tobytes())
        assert grammar.accept_tokens("r", [token])
    return found


THERE = """
import sys
from test_serial import SPEC, artifact_of, backend_of
sys.stdout.buffer.write(backend_of(sys.argv[1]).artifact_key(SPEC).encode() + artifact_of(sys.argv[1]))
"""


@each_backend
def test_e6_an_artifact_of_another_process_has_the_same_key_and_rows(name: str) -> None:
    there = subprocess.run([sys.executable, "-c", THERE, name], cwd=HERE, capture_output=True, check=True)
    backend = backend_of(name)
    key = backend.artifact_key(SPEC)
    assert there.stdout[: len(key)] == key.encode()
    assert rows(backend, there.stdout[len(key) :]) == rows(backend, None)


@each_backend
def test_e6_damage_anywhere_is_found(name: str) -> None:
    data, backend = artifact_of(name), backend_of(name)
    for place in places(len(data)):
        for damaged in (data[:place], data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]):
            with pytest.raises(ArtifactError, match=r"damaged|no artifact"):
                backend.load_grammar(SPEC, damaged)
    for damaged in (b"", data + b"\0", data[::-1], b"\0" * len(data)):
        with pytest.raises(ArtifactError, match=r"damaged|no artifact"):
            backend.load_grammar(SPEC, damaged)


def places(size: int) -> Iterator[int]:
    """Every place of the envelope, and some of the rest."""
    return itertools.chain(range(min(size, 700)), range(700, size, max(1, size // 300)), [size - 1])


def other_backends(name: str) -> dict[str, GrammarBackend]:
    """Backends that differ from `backend_of` in one point, by what an error calls that point."""
    backend = backend_of(name)
    other = load_backend(name, backend.vocabulary)
    engine = other.engine
    newer, reformed = type(engine)(backend.vocabulary, {}), type(engine)(backend.vocabulary, {})
    newer.version, reformed.serial_format = "999", "another"  # type: ignore[attr-defined]  # engines with a serial form
    wide = backend.vocabulary.with_width(backend.vocabulary.width + 32)
    return {
        "engine version": GrammarBackend(backend.spec, newer, backend.vocabulary, backend.judge),
        "plugin version": GrammarBackend(
            replace(backend.spec, distribution="numpy"), engine, backend.vocabulary, backend.judge
        ),
        "format": GrammarBackend(backend.spec, reformed, backend.vocabulary, backend.judge),
        "options": GrammarBackend(backend.spec, engine, backend.vocabulary, backend.judge, {"some": "option"}),
        "vocabulary": load_backend(name, wide),
        "backend": GrammarBackend(replace(backend.spec, name="another"), engine, backend.vocabulary, backend.judge),
    }


@each_backend
def test_e6_an_artifact_made_from_something_else_is_refused_and_the_difference_named(name: str) -> None:
    for point, backend in other_backends(name).items():
        with pytest.raises(ArtifactError, match=f"another {point}"):
            backend.load_grammar(SPEC, artifact_of(name))
        assert backend.artifact_key(SPEC) != backend_of(name).artifact_key(SPEC), point


@each_backend
def test_b3_another_spec_or_option_is_another_artifact(name: str) -> None:
    backend = backend_of(name)
    for other in (GrammarSpec.choice(["a"]), replace(SPEC, options=GrammarOptions(whitespace="compact"))):
        assert backend.artifact_key(other) != backend.artifact_key(SPEC)
        with pytest.raises(ArtifactError, match="another spec"):
            backend.load_grammar(other, artifact_of(name))


@each_backend
@pytest.mark.parametrize("payload", [b"", b"\n", b"{}", b'{"named": [], "free_text": false}\n{}', b"\xff" * 99])
def test_e6_what_the_engine_cannot_read_is_an_artifact_error(name: str, payload: bytes) -> None:
    backend = backend_of(name)
    with pytest.raises(ArtifactError, match="cannot use the artifact"):
        backend.load_grammar(SPEC, seal(backend._identity(SPEC), payload))


def test_b12_a_loaded_artifact_without_a_first_token_is_refused() -> None:
    backend = load_backend("xgrammar", Vocabulary.from_bytes([b"a", b"b", b"<eos>"], [2], [2]))
    unspellable = GrammarSpec.regex("c")
    with pytest.raises(SpecError, match="no text"):
        backend.compile_grammar(unspellable)
    assert backend.serializer is not None
    payload = backend.serializer.dump_artifact(backend.engine.compile(unspellable))
    with pytest.raises(ArtifactError, match="no text"):
        backend.load_grammar(unspellable, seal(backend._identity(unspellable), payload))


def test_e6_a_backend_without_a_serial_form_says_so() -> None:
    backend = backend_of("guidance")
    assert backend.serializer is None
    for call in (
        lambda: backend.dump_grammar(backend.compile_grammar(SPEC)),
        lambda: backend.load_grammar(SPEC, artifact_of("xgrammar")),
        lambda: backend.artifact_key(SPEC),
    ):
        with pytest.raises(ArtifactError, match="guidance has no serial form"):
            call()


def test_e6_a_grammar_is_dumped_by_the_backend_that_compiled_it() -> None:
    with pytest.raises(ArtifactError, match="another backend"):
        backend_of("xgrammar").dump_grammar(backend_of("outlines").compile_grammar(SPEC))


def test_c2_a_spec_that_the_backend_would_not_enforce_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(UnsupportedFeature):
        backend_of("outlines").load_grammar(GrammarSpec.json_object(), artifact_of("outlines"))


@each_backend
def test_b13_a_destroyed_backend_neither_dumps_nor_loads(name: str) -> None:
    backend = load_backend(name, load_vocabulary("byte"))
    compiled = backend.compile_grammar(SPEC)
    backend.destroy()
    for call in (lambda: backend.dump_grammar(compiled), lambda: backend.load_grammar(SPEC, artifact_of(name))):
        with pytest.raises(CompileError, match="destroyed"):
            call()


def test_e6_what_was_sealed_is_unsealed() -> None:
    for payload in (b"", b"x", bytes(range(256)) * 99):
        assert unseal({"a": "ü"}, seal({"a": "ü"}, payload)) == payload
