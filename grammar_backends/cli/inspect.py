"""``gb inspect``: the state of a grammar after some text: what may come next, what must, and whether it may end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from grammar_backends.cli.exits import ExitCode, exit_with
from grammar_backends.cli.options import SpecInput, backend_option, spec_options, tokenizer_option
from grammar_backends.cli.output import Table, emit, format_option, printable
from grammar_backends.errors import DeadEnd, UnsupportedFeature

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grammar_backends import Vocabulary
    from grammar_backends.contract import StructuredOutputGrammar

__all__ = ["inspect"]


@click.command()
@spec_options
@tokenizer_option
@backend_option("A backend's name, or auto for the one that would be chosen.")
@click.option("--prefix", default="", help="The text so far.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=0), help="Allowed tokens to show.")
@format_option
def inspect(spec_input: SpecInput, tokenizer: str, backend: str, prefix: str, limit: int, format_: str) -> None:
    """Show what may follow a text: allowed tokens, forced text, whether it may end.

    Exits with 1 when the text is not the beginning of anything allowed, and shows how far it was right.

    Example: gb inspect --choice yes,no --prefix y
    """
    from grammar_backends import default_host, load_backend, load_vocabulary, select_backend, validate_spec

    spec = spec_input.read()
    validate_spec(spec)
    host = default_host()
    if backend != "auto":
        host.backend(backend)  # an unknown name should not wait for the vocabulary
    vocabulary = load_vocabulary(tokenizer)
    if backend == "auto":
        loaded = select_backend(spec, vocabulary, host=host).backend
    else:
        loaded = load_backend(backend, vocabulary, host=host)
    grammar = loaded.compile_grammar(spec).new_grammar()
    legal = advance(grammar, vocabulary, prefix)
    state = describe(grammar, vocabulary, limit)
    data = {
        "backend": loaded.name,
        "version": loaded.version,
        "tokenizer": vocabulary.name,
        "prefix": prefix,
        "prefix_legal": legal == prefix.encode(),
        "legal_prefix": _text(legal),
        "legal_bytes": len(legal),
        **state,
    }
    emit(format_, data, _blocks(data))
    exit_with(ExitCode.OK if data["prefix_legal"] else ExitCode.FAILURES)


def advance(grammar: StructuredOutputGrammar, vocabulary: Vocabulary, text: str) -> bytes:
    """Accept `text` as far as it is legal, to the byte where the vocabulary allows; returns what was accepted."""
    tokens = vocabulary.encode(text)
    legal = grammar.validate_tokens(tokens)
    grammar.accept_tokens("inspect", legal)
    done = vocabulary.decode(legal)
    if len(legal) == len(tokens):
        return done
    # The refused token may still begin legally: go on byte by byte.
    single = {token: id_ for id_, token in enumerate(vocabulary.text_tokens) if len(token) == 1}
    for byte in text.encode()[len(done) :]:
        id_ = single.get(bytes([byte]))
        if id_ is None or not grammar.accept_tokens("inspect", [id_]):
            break
        done += bytes([byte])
    return done


def describe(grammar: StructuredOutputGrammar, vocabulary: Vocabulary, limit: int) -> dict[str, Any]:
    """The grammar's state as JSON-able data: what may come next, what must, whether it may end."""
    import numpy as np  # lazy: startup time

    from grammar_backends.contract import unpack_ids

    row = np.empty((1, vocabulary.words), dtype=np.int32)
    try:
        unconstrained = not grammar.fill_bitmask(row, 0)
        allowed = [id_ for id_ in unpack_ids(row[0]) if id_ < vocabulary.size]
    except DeadEnd:
        unconstrained, allowed = False, []
    stops = set(vocabulary.stop_ids)
    text_ids = [id_ for id_ in allowed if id_ not in stops]
    return {
        "accepting": grammar.is_accepting(),
        "may_stop": any(id_ in stops for id_ in allowed),
        "unconstrained": unconstrained,
        "allowed": len(text_ids),
        "vocabulary_size": vocabulary.size,
        "first_bytes": _ranges({token[0] for id_ in text_ids if (token := vocabulary.text_tokens[id_])}),
        "sample": [{"id": id_, "text": _token_text(vocabulary, id_)} for id_ in _sample(text_ids, vocabulary, limit)],
        "forced": _forced(grammar),
    }


@dataclass(frozen=True, order=True)
class _Readability:
    """Sorts tokens so that those a person reads at once come first."""

    unreadable: bool
    length: int
    token: bytes


def _sample(ids: list[int], vocabulary: Vocabulary, limit: int) -> list[int]:
    def key(id_: int) -> _Readability:
        token = vocabulary.token_bytes(id_)
        readable = token.isascii() and token.decode("ascii").isprintable()
        return _Readability(not readable, len(token), token)

    return sorted(ids, key=key)[:limit]


def _token_text(vocabulary: Vocabulary, id_: int) -> str:
    """A token as Python would write it: text where it is text, bytes where it is not."""
    token = vocabulary.token_bytes(id_)
    try:
        return repr(token.decode())
    except UnicodeDecodeError:
        return repr(token)


def _forced(grammar: StructuredOutputGrammar) -> str | None:
    try:
        return _text(grammar.forced_bytes())
    except UnsupportedFeature:
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _ranges(values: Iterable[int]) -> list[str]:
    """Byte values as short ranges: ``["\\"", "0-9", "0x80-0xff"]``."""
    runs: list[list[int]] = []
    for value in sorted(values):
        # Letters, digits and the rest are kept apart, so that a range never hides a change of kind.
        if runs and value == runs[-1][1] + 1 and _sort(value) == _sort(runs[-1][0]):
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return [text for low, high in runs for text in _run(low, high)]


def _run(low: int, high: int) -> list[str]:
    return [f"{_byte(low)}-{_byte(high)}"] if high - low > 1 else [_byte(value) for value in range(low, high + 1)]


def _sort(value: int) -> str:
    char = chr(value)
    if value < 0x20 or value >= 0x7F:
        return "control" if value < 0x80 else "beyond ASCII"
    return "digit" if char.isdigit() else "upper" if char.isupper() else "lower" if char.islower() else "other"


def _byte(value: int) -> str:
    return chr(value) if 0x20 < value < 0x7F else f"0x{value:02x}"


def _blocks(data: dict[str, Any]) -> list[Table | str]:
    blocks: list[Table | str] = []
    if not data["prefix_legal"]:
        blocks.append(
            f"The prefix is not the beginning of an allowed text: it is right up to byte {data['legal_bytes']}, "
            f"after {data['legal_prefix']!r}. What was expected there:"
        )
    return [*blocks, Table("", ["State", ""], _state_rows(data)), *_sample_blocks(data)]


def _state_rows(data: dict[str, Any]) -> list[list[str]]:
    forced = "not known to this backend" if data["forced"] is None else repr(data["forced"]) if data["forced"] else "-"
    share = f"{data['allowed']} of {data['vocabulary_size']}"
    return [
        ["Backend", f"{data['backend']} {data['version']}"],
        ["May end here", "yes" if data["may_stop"] else "no"],
        ["Allowed tokens", share + (" (unconstrained)" if data["unconstrained"] else "")],
        ["First bytes", " ".join(data["first_bytes"]) or "-"],
        ["Forced text", printable(forced)],
    ]


def _sample_blocks(data: dict[str, Any]) -> list[Table | str]:
    sample = data["sample"]
    if not sample:
        return []
    title = "Allowed tokens" if len(sample) == data["allowed"] else f"{len(sample)} of the allowed tokens"
    return [Table(title, [">Id", "Token"], [[str(item["id"]), item["text"]] for item in sample])]
