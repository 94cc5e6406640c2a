"""The adapter: compiles specs with xgrammar and drives its matcher.

Text never matches a control token here, because the compilers see a vocabulary in which those are blank (A29, B7).
The matcher's own stop handling is used only for the vocabulary's stop bits; stop tokens are never fed to it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tvm_ffi
import xgrammar
from xgrammar import GrammarCompiler, GrammarMatcher, TokenizerInfo, VocabType

from grammar_backends.contract import Bitmask, BitmaskRow, GrammarKind, GrammarSpec, Matcher, Vocabulary
from grammar_backends.contract.grammar_text import (
    detect_syntax,
    ebnf_for_xgrammar,
    ebnf_literal,
    lark_for,
    named_tokens,
)
from grammar_backends.contract.regex import translate
from grammar_backends.errors import SpecError, VocabularyError
from grammar_backends_xgrammar import DIALECT

__all__ = ["XGrammarEngine"]


START = "grammar_backends_start"
"""A start rule that nothing refers to: xgrammar masks too narrowly when the start rule is recursive (A12)."""


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

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self._vocabulary = vocabulary
        self._threads = int(options.get("compile_threads") or max(1, (os.cpu_count() or 2) // 2))
        self._text_compiler = self._compiler(frozenset())
        # Tags that name control tokens need a vocabulary that shows just those; few different ones are live at once.
        self._token_compiler = functools.lru_cache(maxsize=8)(self._compiler)
        self._batch = xgrammar.BatchGrammarMatcher(max_threads=1)._handle

    def _compiler(self, shown: frozenset[int]) -> _Compiler:
        vocabulary = self._vocabulary
        tokens = list(vocabulary.text_tokens)
        for id_ in shown:
            tokens[id_] = vocabulary.special_names[id_].encode()
        # Whole words, so that the bits past the width are blank tokens too, which are never allowed.
        padded = vocabulary.words * 32
        tokens += [b""] * (padded - len(tokens))
        try:
            info = TokenizerInfo(tokens, VocabType.RAW, vocab_size=padded, stop_token_ids=list(vocabulary.stop_ids))
        except Exception as error:
            raise VocabularyError(f"xgrammar cannot use {vocabulary.name}: {error}") from error
        # Whoever caches compiled grammars can bound and share them; xgrammar's cache keeps failures for ever (B11).
        return _Compiler(info, GrammarCompiler(info, max_threads=self._threads, cache_enabled=False))

    def compile(self, spec: GrammarSpec) -> XGrammarArtifact:
        try:
            compiled = self._compile(spec)
        except SpecError:
            raise
        except Exception as error:
            raise _spec_error(spec, str(error)) from error
        return XGrammarArtifact(compiled)

    def _compile(self, spec: GrammarSpec) -> Any:
        compiler = self._text_compiler.native
        if spec.kind is GrammarKind.JSON_SCHEMA:
            return self._compile_schema(spec, spec.text)
        if spec.kind is GrammarKind.JSON_OBJECT:
            return self._compile_schema(spec, '{"type":"object"}' if spec.options.json_object_only else "true")
        if spec.kind is GrammarKind.REGEX:
            return compiler.compile_regex(translate(spec.text, DIALECT))
        if spec.kind is GrammarKind.CHOICE:
            return compiler.compile_grammar("root ::= " + " | ".join(map(ebnf_literal, spec.value)))
        if spec.kind is GrammarKind.STRUCTURAL_TAG:
            return self._compile_tag(spec)
        return self._compile_text(spec)

    def _compile_schema(self, spec: GrammarSpec, schema: str) -> Any:
        compact = spec.options.whitespace == "compact"
        options: dict[str, Any] = {
            "any_whitespace": not compact,
            "separators": (",", ":") if compact else None,
            "max_whitespace_cnt": None if compact else spec.options.max_whitespace,
            "strict_mode": spec.options.additional_properties == "closed",
        }
        compiler = self._text_compiler.native
        if '"$ref":"#"' not in schema:
            return compiler.compile_json_schema(schema, **options)
        return compiler.compile_grammar(_fresh_start(xgrammar.Grammar.from_json_schema(schema, **options)))

    def _compile_text(self, spec: GrammarSpec) -> Any:
        syntax = detect_syntax(spec.text) if spec.syntax == "auto" else spec.syntax
        if syntax != "lark":
            return self._text_compiler.native.compile_grammar(ebnf_for_xgrammar(spec.text, syntax))
        compiler = self._compiler_for(named_tokens(spec.text, syntax))
        grammar = xgrammar.Grammar.from_lark(lark_for(spec.text, DIALECT), tokenizer_info=compiler.info)
        return compiler.native.compile_grammar(_fresh_start(grammar))

    def _compile_tag(self, spec: GrammarSpec) -> Any:
        tag = spec.value
        if "format" in tag:
            text = json.dumps({"type": "structural_tag", **tag}, ensure_ascii=False)
            return self._compiler_for(set(_strings(tag))).native.compile_structural_tag(text)
        items = [
            xgrammar.StructuralTagItem(begin=item["begin"], schema=json.dumps(_schema_of(item)), end=item["end"])
            for item in tag["structures"]
        ]
        return self._compiler_for(set(_strings(tag))).native.compile_structural_tag(items, tag["triggers"])

    def _compiler_for(self, texts: Collection[str]) -> _Compiler:
        """The compiler whose vocabulary shows the control tokens that these texts name, and no others (B7)."""
        names = self._vocabulary.special_names
        stops = self._vocabulary.stop_ids
        shown = frozenset(
            id_ for id_, name in names.items() if id_ not in stops and any(name in text for text in texts)
        )
        return self._token_compiler(shown) if shown else self._text_compiler

    def fill_rows(self, matchers: Sequence[Matcher], bitmask: Bitmask, rows: Sequence[int]) -> None:
        """`BatchFiller.fill_rows` in one native call: a loop costs a call into the engine for each row."""
        handles = [matcher.handle for matcher in matchers]  # type: ignore[attr-defined]  # they are XGrammarMatchers
        tensor = bitmask.handles.get("xgrammar")
        if tensor is None:
            tensor = bitmask.handles["xgrammar"] = tvm_ffi.from_dlpack(bitmask.array)
        self._batch.batch_fill_next_token_bitmask(handles, tensor, list(rows), False)


class XGrammarArtifact:
    """A `xgrammar.CompiledGrammar`."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def new_matcher(self) -> XGrammarMatcher:
        return XGrammarMatcher(GrammarMatcher(self._compiled)._handle)

    @property
    def nbytes(self) -> int:
        """Memory it holds, in bytes."""
        return int(self._compiled.memory_size_bytes)


class XGrammarMatcher:
    """`Matcher` over the native object behind a `xgrammar.GrammarMatcher`.

    The Python wrapper costs as much as a fill of an easy row, so it is passed by.
    """

    __slots__ = ("_accept", "_fill", "handle")

    fills_stop_tokens = True

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._accept = handle.accept_token
        self._fill = handle.fill_next_token_bitmask

    def consume(self, tokens: Sequence[int]) -> int:
        accept = self._accept
        consumed = 0
        for token in tokens:
            if not accept(token, False):
                break
            consumed += 1
        return consumed

    def rollback(self, num_tokens: int) -> None:
        self.handle.rollback(num_tokens)

    def fill_row(self, row: BitmaskRow) -> None:
        try:
            tensor = row.handles["xgrammar"]
        except KeyError:
            tensor = row.handles["xgrammar"] = tvm_ffi.from_dlpack(row.array[None])
        self._fill(tensor, 0, False)

    def is_accepting(self) -> bool:
        return bool(self.handle.is_completed())

    def fork(self) -> XGrammarMatcher:
        return XGrammarMatcher(self.handle.fork())

    def forced_bytes(self) -> bytes:
        return str(self.handle.find_jump_forward_string()).encode()

    def forced_tokens(self) -> list[int]:
        return list(self.handle.find_jump_forward_tokens())


def _fresh_start(grammar: Any) -> Any:
    """The same language under a start rule that nothing refers to."""
    text = str(grammar)
    if len(re.findall(r"\broot\b", text)) < 2:
        return grammar
    return xgrammar.Grammar.from_ebnf(f"{text}\n{START} ::= root\n", root_rule_name=START)


def _schema_of(structure: Mapping[str, Any]) -> Any:
    schema = structure.get("schema")
    return {} if schema is None else schema


def _strings(value: Any) -> Iterator[str]:
    """Every string in a tag outside its schemas: where it may name a control token."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in ("schema", "json_schema"):
                yield from _strings(item)


def _spec_error(spec: GrammarSpec, text: str) -> SpecError:
    # "[03:50:51] /project/cpp/grammar_parser.cc:820: EBNF parser error at line 1, column 14: Rule "b" is not defined"
    text = re.sub(r"^\[[\d:]+\] \S+?:\d+: ", "", text.strip())
    found = re.search(r"at line (\d+), column (\d+)", text)
    line, column = (int(found[1]), int(found[2])) if found else (None, None)
    return SpecError(f"{spec.kind}: xgrammar cannot compile it", line=line, column=column, engine_text=text)
