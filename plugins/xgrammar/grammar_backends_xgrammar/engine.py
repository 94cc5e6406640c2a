"""The adapter: compiles specs with xgrammar and drives its matcher.

Text never matches a control token here, because the compilers see a vocabulary in which those are blank (A29, B7).
The matcher's own stop handling is used only for the vocabulary's stop bits; stop tokens are never fed to it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi
import xgrammar
from xgrammar import GrammarCompiler, GrammarMatcher, TokenizerInfo, VocabType

from grammar_backends.contract import Artifact, Bitmask, BitmaskRow, GrammarKind, GrammarSpec, Vocabulary
from grammar_backends.contract.grammar_text import (
    ebnf_for_xgrammar,
    ebnf_literal,
    lark_for,
    named_tokens,
    syntax_of,
)
from grammar_backends.contract.references import with_patterns
from grammar_backends.contract.regex import CharacterSet, parse_regex, render_set, translate
from grammar_backends.errors import ArtifactError, SpecError, UnsupportedFeature, VocabularyError
from grammar_backends_xgrammar import DIALECT
from grammar_backends_xgrammar.serial import estimated_bytes, reduced
from grammar_backends_xgrammar.tags import FRAME, TagWriter, framed

__all__ = ["XGrammarEngine"]


START = "grammar_backends_start"
"""A start rule that nothing refers to: xgrammar masks too narrowly when the start rule is recursive (A12)."""


KEY_RULE = "_addl_key"
"""What xgrammar calls the rules for the names of additional properties."""

PLAIN_KEYS = rf"""
{START}_escape ::= [\"\\bfnrt] | "u00" ("0" [0-7bBeEfF] | "1" [A-Fa-f0-9])
{START}_key ::= ("\"" | [^\0-\x1f\"\\] {START}_key | "\\" {START}_escape {START}_key) (=([ \n\r\t]* [,}}\]:]))
"""
"""The rest of a name after its first characters: the rules that replace xgrammar's own for strings."""


SERIAL_LIMIT = 128 << 20
"""JSON that one artifact may become on its way to bytes; xgrammar needs ten times as much memory for it."""


NOT_SUPPORTED = re.compile(r"not supported|must not exceed|must be an? (non-negative )?integer")
"""What xgrammar says of what it cannot do: of counts beyond its integers, for the front end lets only counts pass."""


class _Compiler(NamedTuple):
    """A compiler, and the vocabulary that it sees."""

    info: TokenizerInfo
    native: GrammarCompiler


class XGrammarEngine:
    """`Engine` over `xgrammar.GrammarCompiler`.

    Args:
        vocabulary: any.
        options: ``compile_threads``: threads inside one compilation (default: half the cores).
    """

    version = importlib.metadata.version("xgrammar")
    releases_gil = True
    serial_format = "json-2"

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self._vocabulary = vocabulary
        self._threads = int(options.get("compile_threads") or max(1, (os.cpu_count() or 2) // 2))
        self._text_compiler = self._compiler(frozenset())
        # Specs that name control tokens need a vocabulary that shows just those; few different ones are live at once.
        self._token_compiler = functools.lru_cache(maxsize=8)(self._compiler)
        # A spec that is checked is mostly compiled next, and selected again by the requests that share it.
        self._grammar_of = functools.lru_cache(maxsize=32)(self._read)
        self._batch = xgrammar.BatchGrammarMatcher(max_threads=1)._handle

    def _compiler(self, shown: frozenset[int], frame: bytes = b"") -> _Compiler:
        vocabulary = self._vocabulary
        tokens = list(vocabulary.text_tokens)
        if frame:
            tokens = [b"" if frame in token else token for token in tokens]
        for id_ in shown:
            tokens[id_] = frame + vocabulary.special_names[id_].encode()
        # Whole words, so that the bits past the width are blank tokens too, which are never allowed.
        padded = vocabulary.words * 32
        tokens += [b""] * (padded - len(tokens))
        try:
            info = TokenizerInfo(tokens, VocabType.RAW, vocab_size=padded, stop_token_ids=list(vocabulary.stop_ids))
        except Exception as error:
            raise VocabularyError(f"xgrammar cannot use {vocabulary.name}: {error}") from error
        # Whoever caches compiled grammars can bound and share them. xgrammar's cache keeps failures for ever (B11), and
        # gives rules the masks of other ones: `"é" | "éa"` then refuses its second text, however much sooner it is.
        return _Compiler(info, GrammarCompiler(info, max_threads=self._threads, cache_enabled=False))

    def compile(self, spec: GrammarSpec) -> XGrammarArtifact:
        with _spec_errors(spec):
            if spec.kind is GrammarKind.STRUCTURAL_TAG:
                compiled, shown = self._compile_tag(spec)
            else:
                grammar, shown = self._grammar_of(spec)
                compiled = self._compiler_showing(shown, FRAME).native.compile_grammar(grammar)
        return self._artifact(compiled, shown, _has_free_bytes(spec))

    def _artifact(self, compiled: Any, named: frozenset[int], free_text: bool) -> XGrammarArtifact:
        tokens = self._vocabulary.text_tokens if free_text else None
        return XGrammarArtifact(compiled, self._vocabulary.special_ids - named, tokens)

    def check(self, spec: GrammarSpec) -> None:
        """`SpecChecker.check`: everything but the compilation against the vocabulary."""
        with _spec_errors(spec):
            if spec.kind is GrammarKind.STRUCTURAL_TAG:
                self._tag_writer(spec).write()
            else:
                self._grammar_of(spec)

    def _read(self, spec: GrammarSpec) -> tuple[Any, frozenset[int]]:
        """A spec of any kind but a tag as xgrammar's own grammar, and the control tokens that it names."""
        shown = self._shown(spec)
        # Names are resolved by the plain vocabulary; from then on a token is its id, which no text matches.
        return _grammar(spec, self._compiler_showing(shown).info), shown

    def _compile_tag(self, spec: GrammarSpec) -> tuple[Any, frozenset[int]]:
        """A compiled tag, and the control tokens that it names."""
        writer = self._tag_writer(spec)
        source = json.dumps({"type": "structural_tag", "format": writer.write()})
        grammar = xgrammar.Grammar.from_structural_tag(source)
        if writer.named:
            grammar = framed(grammar, writer.mark)
        named = frozenset(writer.named)
        return self._compiler_showing(named, FRAME).native.compile_grammar(grammar), named

    def _tag_writer(self, spec: GrammarSpec) -> TagWriter:
        return TagWriter(self._vocabulary, spec.value, lambda schema: _schema_ebnf(spec, schema))

    def _shown(self, spec: GrammarSpec) -> frozenset[int]:
        """The control tokens that a grammar names; the vocabulary of its compiler shows these and no others (B7)."""
        if spec.kind is not GrammarKind.GRAMMAR:
            return frozenset()
        texts = named_tokens(spec.text, syntax_of(spec))
        stops = self._vocabulary.stop_set
        names = self._vocabulary.special_names if texts else {}
        return frozenset(id_ for id_, name in names.items() if id_ not in stops and any(name in text for text in texts))

    def _compiler_showing(self, shown: frozenset[int], frame: bytes = b"") -> _Compiler:
        return self._token_compiler(shown, frame) if shown else self._text_compiler

    def dump_artifact(self, artifact: Artifact) -> bytes:
        """`ArtifactSerializer.dump_artifact`: a line of JSON with what the adapter knows, then xgrammar's own JSON."""
        if not isinstance(artifact, XGrammarArtifact):
            raise TypeError(f"{type(artifact).__name__} is no artifact of xgrammar")
        if estimated_bytes(str(artifact._compiled.grammar)) > SERIAL_LIMIT:
            raise ArtifactError("xgrammar's JSON of this grammar would be too large")
        named = sorted(self._vocabulary.special_ids - artifact._hidden)
        head = json.dumps({"named": named, "free_text": artifact._tokens is not None})
        return f"{head}\n{reduced(artifact._compiled.serialize_json())}".encode()

    def load_artifact(self, data: bytes) -> XGrammarArtifact:
        """`ArtifactSerializer.load_artifact`."""
        head, _, source = data.decode().partition("\n")
        known = json.loads(head)
        named = frozenset(known["named"])
        info = self._compiler_showing(named, FRAME).info
        return self._artifact(xgrammar.CompiledGrammar.deserialize_json(source, info), named, known["free_text"])

    def fill_rows(self, handles: Sequence[Any], bitmask: Bitmask, rows: Sequence[int]) -> None:
        """`BatchFiller.fill_rows` in one native call: a loop costs a call into the engine for each row."""
        tensor = bitmask.handles.get("xgrammar")
        if tensor is None:
            tensor = bitmask.handles["xgrammar"] = tvm_ffi.from_dlpack(bitmask.array)
        self._batch.batch_fill_next_token_bitmask(list(handles), tensor, list(rows), False)

    def fill_drafts(
        self, handles: Sequence[Any], bitmask: Bitmask, rows: Sequence[int], drafts: Sequence[Sequence[int]]
    ) -> list[int]:
        """`BatchFiller.fill_drafts` by xgrammar's walk over trees: a list of drafts is one without branches."""
        paths: dict[int, _Path] = {}
        for handle, row, tokens in zip(handles, rows, drafts, strict=True):
            length = len(tokens)
            path = paths.get(length)
            if path is None:
                path = paths[length] = _Path(length)
            path.tokens[1:] = tokens
            handle.traverse_draft_tree(*path.links, path.tensor, _block(bitmask, row, length + 1), -1.0, None)
        return _legal_prefixes(bitmask, rows, drafts)

    def fill_tree(
        self,
        handle: Any,
        bitmask: Bitmask,
        row: int,
        tokens: Sequence[int],
        first_child: Sequence[int],
        next_sibling: Sequence[int],
    ) -> None:
        """`BatchFiller.fill_tree` by xgrammar's own walk."""
        tree = [tvm_ffi.from_dlpack(np.array(part, np.int64)) for part in (first_child, next_sibling, tokens)]
        handle.traverse_draft_tree(*tree, _block(bitmask, row, len(tokens)), -1.0, None)


class _Path:
    """A tree without branches, in which the tokens can be exchanged.

    Attributes:
        links: first children and next siblings, as xgrammar takes them.
        tokens: int64 ``[length + 1]``; the first is not looked at.
        tensor: the same memory, as xgrammar takes it.
    """

    __slots__ = ("links", "tensor", "tokens")

    def __init__(self, length: int) -> None:
        self.links = _links(length)
        self.tokens = np.zeros(length + 1, np.int64)
        self.tensor = tvm_ffi.from_dlpack(self.tokens)


@functools.lru_cache(maxsize=64)
def _links(length: int) -> tuple[Any, Any]:
    children = np.arange(1, length + 2)
    children[-1] = -1
    return tvm_ffi.from_dlpack(children), tvm_ffi.from_dlpack(np.full(length + 1, -1))


def _block(bitmask: Bitmask, row: int, length: int) -> Any:
    """Consecutive rows as xgrammar takes them."""
    blocks = bitmask.handles.get("xgrammar blocks")
    if blocks is None:
        blocks = bitmask.handles.setdefault("xgrammar blocks", {})
    block = blocks.get((row, length))
    if block is None:
        block = blocks[row, length] = tvm_ffi.from_dlpack(bitmask.array[row : row + length])
    return block


def _legal_prefixes(bitmask: Bitmask, rows: Sequence[int], drafts: Sequence[Sequence[int]]) -> list[int]:
    """How many of the first tokens of each draft have their bit in the row before them."""
    tokens = np.fromiter(itertools.chain.from_iterable(drafts), np.int64)
    places = [row + place for row, draft in zip(rows, drafts, strict=True) for place in range(len(draft))]
    legal = bitmask.array[places, tokens >> 5] >> (tokens & 31) & 1
    if legal.all():
        return list(map(len, drafts))
    bits = iter(legal.tolist())
    prefixes = ([next(bits) for _ in draft] for draft in drafts)
    return [prefix.index(0) if 0 in prefix else len(prefix) for prefix in prefixes]


class XGrammarArtifact:
    """A `xgrammar.CompiledGrammar`.

    Args:
        compiled: the native object.
        hidden: control tokens that it does not name.
        tokens: the bytes of each token, when the grammar has free text; None when all its text is UTF-8.
    """

    __slots__ = ("_compiled", "_hidden", "_tokens")

    def __init__(self, compiled: Any, hidden: frozenset[int], tokens: Sequence[bytes] | None) -> None:
        self._compiled = compiled
        self._hidden = hidden
        self._tokens = tokens

    def new_matcher(self) -> XGrammarMatcher:
        handle = GrammarMatcher(self._compiled)._handle
        if self._tokens is None:
            return XGrammarMatcher(handle, self._hidden)
        return FreeTextMatcher(handle, self._hidden, self._tokens, [0])

    @property
    def nbytes(self) -> int:
        """Memory it holds, in bytes."""
        return int(self._compiled.memory_size_bytes)


class XGrammarMatcher:
    """`Matcher` over the native object behind a `xgrammar.GrammarMatcher`.

    The Python wrapper costs as much as a fill of an easy row, so it is passed by.
    """

    __slots__ = ("_accept", "_fill", "_hidden", "native")

    fills_stop_tokens = True

    def __init__(self, handle: Any, hidden: frozenset[int]) -> None:
        self.native = handle
        self._hidden = hidden
        self._accept = handle.accept_token
        self._fill = handle.fill_next_token_bitmask

    def consume(self, tokens: Sequence[int]) -> int:
        accept, hidden = self._accept, self._hidden
        consumed = 0
        for token in tokens:
            # xgrammar refuses control tokens too, but with a line on stderr for each.
            if token in hidden or not accept(token, False):
                break
            consumed += 1
        return consumed

    def rollback(self, num_tokens: int) -> None:
        self.native.rollback(num_tokens)

    def fill_row(self, row: BitmaskRow) -> None:
        try:
            tensor = row.handles["xgrammar"]
        except KeyError:
            tensor = row.handles["xgrammar"] = tvm_ffi.from_dlpack(row.array[None])
        self._fill(tensor, 0, False)

    def is_accepting(self) -> bool:
        return bool(self.native.is_completed())

    def fork(self) -> XGrammarMatcher:
        return XGrammarMatcher(self.native.fork(), self._hidden)

    def forced_bytes(self) -> bytes:
        return str(self.native.find_jump_forward_string()).encode()


class FreeTextMatcher(XGrammarMatcher):
    """The same for grammars with free text, in which xgrammar takes any bytes for complete.

    A text that ends inside a character is not accepting here (A28): the layer sets the stop bits by that answer.
    """

    __slots__ = ("_missing", "_tokens")

    fills_stop_tokens = False

    def __init__(self, handle: Any, hidden: frozenset[int], tokens: Sequence[bytes], missing: list[int]) -> None:
        super().__init__(handle, hidden)
        self._tokens = tokens
        self._missing = missing  # after each token, the bytes that its last character lacks

    def consume(self, tokens: Sequence[int]) -> int:
        consumed = super().consume(tokens)
        for token in tokens[:consumed]:
            self._missing.append(_missing_bytes(self._missing[-1], self._tokens[token]))
        return consumed

    def rollback(self, num_tokens: int) -> None:
        super().rollback(num_tokens)
        del self._missing[len(self._missing) - num_tokens :]

    def is_accepting(self) -> bool:
        return not self._missing[-1] and super().is_accepting()

    def fork(self) -> FreeTextMatcher:
        return FreeTextMatcher(self.native.fork(), self._hidden, self._tokens, self._missing.copy())


def _missing_bytes(missing: int, data: bytes) -> int:
    """How many bytes the last character lacks after `data`, when the text before it lacked `missing`."""
    for byte in data:
        if missing and 0x80 <= byte < 0xC0:
            missing -= 1
        else:
            missing = (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
    return missing


def _has_free_bytes(spec: GrammarSpec) -> bool:
    """Whether a spec has text that xgrammar matches byte by byte: around tags, and in its own `TagDispatch`."""
    return spec.kind is GrammarKind.STRUCTURAL_TAG or (
        spec.kind is GrammarKind.GRAMMAR and ("TagDispatch" in spec.text or "AnyText" in spec.text)
    )


def _grammar(spec: GrammarSpec, info: TokenizerInfo) -> Any:
    """A spec of any kind but a tag as xgrammar's own grammar."""
    if spec.kind is GrammarKind.JSON_SCHEMA:
        return _schema_grammar(spec, spec.text)
    if spec.kind is GrammarKind.JSON_OBJECT:
        return _schema_grammar(spec, '{"type":"object"}' if spec.options.json_object_only else "true")
    if spec.kind is GrammarKind.REGEX:
        return xgrammar.Grammar.from_regex(translate(spec.text, DIALECT))
    if spec.kind is GrammarKind.CHOICE:
        return xgrammar.Grammar.from_ebnf("root ::= " + " | ".join(map(ebnf_literal, spec.value)))
    syntax = syntax_of(spec)
    if syntax == "lark":
        return _fresh_start(xgrammar.Grammar.from_lark(lark_for(spec.text, DIALECT), tokenizer_info=info))
    return xgrammar.Grammar.from_ebnf(ebnf_for_xgrammar(spec.text, syntax))


def _schema_grammar(spec: GrammarSpec, schema: str) -> Any:
    compact = spec.options.whitespace == "compact"
    if ")?" in schema or r"\\p" in schema or r"\\P" in schema:
        schema = json.dumps(with_patterns(json.loads(schema), _plainer), ensure_ascii=False)
    grammar = xgrammar.Grammar.from_json_schema(
        schema,
        any_whitespace=not compact,
        separators=(",", ":") if compact else None,
        max_whitespace_cnt=None if compact else spec.options.max_whitespace,
        strict_mode=spec.options.additional_properties == "closed",
    )
    if KEY_RULE in (text := str(grammar)):
        grammar = xgrammar.Grammar.from_ebnf(_plain_keys(text))
    return _fresh_start(grammar) if '"$ref":"#"' in schema else grammar


def _plainer(pattern: str) -> str:
    """A pattern with counts for the question marks behind groups, and with ranges for categories of Unicode.

    In the patterns of schemas, xgrammar goes on inside of a group that it has left out: `(ab+)?c` takes "bc". In a
    class, it takes `\\p{Lu}` for the characters of its name.
    """
    return _READ_OTHERWISE.sub(_written_out, pattern)


_READ_OTHERWISE = re.compile(
    r"\\[pP](?:\{[^{}]*\}|.)|\\.|\[\^?\]?(?:\\[pP]\{[^{}]*\}|\\.|[^\]\\])*\]|(\)\?)", re.DOTALL
)


def _written_out(found: re.Match[str]) -> str:
    if found[1]:
        return "){0,1}"
    if r"\p" not in found[0] and r"\P" not in found[0]:
        return found[0]
    node = parse_regex(found[0]).root
    return render_set(node.ranges, DIALECT) if isinstance(node, CharacterSet) else found[0]


def _plain_keys(text: str) -> str:
    """A grammar of a schema in which the name of an additional property is written with no needless escape.

    Otherwise the name of a listed property, spelled in escapes, would pass as another one.
    """

    def plain(rule: re.Match[str]) -> str:
        return rule[0].replace("basic_string_sub", f"{START}_key").replace("basic_escape", f"{START}_escape")

    return re.sub(rf"^\w*{KEY_RULE}\w* ::= .*$", plain, text, flags=re.MULTILINE) + PLAIN_KEYS


def _schema_ebnf(spec: GrammarSpec, schema: Any) -> str:
    """A schema as a grammar that other text may follow."""
    text = str(_schema_grammar(spec, json.dumps(schema)))
    if isinstance(schema, dict) and schema.get("type") in ("object", "array"):
        return text
    # xgrammar expects punctuation of JSON after a string; where other text follows directly, its masks leave out the
    # tokens that hold the closing quote and that text (A12).
    return re.sub(r" \(=\(.*\)\)$", "", text, flags=re.MULTILINE)


def _fresh_start(grammar: Any) -> Any:
    """The same language under a start rule that nothing refers to."""
    text = str(grammar)
    if len(re.findall(r"\broot\b", text)) < 2:
        return grammar
    return xgrammar.Grammar.from_ebnf(f"{text}\n{START} ::= root\n", root_rule_name=START)


@contextlib.contextmanager
def _spec_errors(spec: GrammarSpec) -> Iterator[None]:
    """What the engine raises, as an error of this project."""
    try:
        yield
    except SpecError:
        raise
    except Exception as error:
        raise _spec_error(spec, str(error)) from error


def _spec_error(spec: GrammarSpec, text: str) -> SpecError:
    # "[03:50:51] /project/cpp/grammar_parser.cc:820: EBNF parser error at line 1, column 14: Rule "b" is not defined"
    text = re.sub(r"^\[[\d:]+\] \S+?:\d+: ", "", text.strip())
    found = re.search(r"at line (\d+), column (\d+)", text)
    line, column = (int(found[1]), int(found[2])) if found else (None, None)
    kind = UnsupportedFeature if NOT_SUPPORTED.search(text) else SpecError
    return kind(f"{spec.kind}: xgrammar cannot compile it", line=line, column=column, engine_text=text)
