"""Structural tags written anew for xgrammar, so that they mean there what they mean in this layer.

Legacy tags become formats, and what stands inside gets the layer's meaning (B5, C3). Where a tag names a control token,
it takes both that very token and its name spelled in text. xgrammar by itself would see the token as its name, so that
it would also be legal inside strings and patterns (A29). Here the compiler sees it behind a byte that no text has,
`FRAME`, and so do the texts of the tag: xgrammar's own grammar is the only notation that can hold that byte.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import xgrammar

from grammar_backends.contract import Vocabulary
from grammar_backends.contract.grammar_text import ebnf_for_xgrammar, lark_for, named_tokens
from grammar_backends.contract.regex import translate
from grammar_backends.errors import SpecError, UnsupportedFeature, shown
from grammar_backends_xgrammar import DIALECT

__all__ = ["FRAME", "TagWriter", "framed"]

FRAME = b"\xff"
"""Before a control token's name: no text has this byte, so that text does not match the token any more."""

SCHEMA_MEMBERS = ("schema", "json_schema")
TOKEN_MEMBERS = ("trigger_tokens", "exclude_tokens")
ANY_TOKEN = ("any_tokens", "exclude_token", "token_triggered_tags", "token_dispatch")
"""Formats that match whatever token they do not exclude, control tokens too."""

MOST_NAMES = 4
"""Control tokens in one text: each can be written in two ways."""
BYTE_STRING = 0
"""The kind of expression that holds bytes, in xgrammar's serialized grammars."""


class TagWriter:
    """Writes one structural tag anew.

    Args:
        vocabulary: whose control tokens the tag may name.
        tag: of either form.
        schema_ebnf: writes a JSON schema as a grammar, by the options of the request.

    Attributes:
        named: the control tokens that the tag names; known once `write` has run.
        mark: the character that stands for `FRAME` in what is written.
    """

    def __init__(self, vocabulary: Vocabulary, tag: Mapping[str, Any], schema_ebnf: Callable[[Any], str]) -> None:
        self._vocabulary = vocabulary
        self._tag = tag
        self._schema_ebnf = schema_ebnf
        self._names = vocabulary.tag_names
        names = sorted(self._names, key=len, reverse=True)
        self._splitter = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self.mark = _unused_control_character(tag)
        self.named: set[int] = set()

    def write(self) -> Any:
        """The tag as a format.

        Raises:
            UnsupportedFeature: it names a control token where xgrammar can only match text.
            SpecError: it names a token that does not exist, or a stop token.
        """
        if "format" in self._tag:
            return self._node(self._tag["format"], "/format")
        return self._node(_modern(self._tag), "")

    def _node(self, node: Any, pointer: str) -> Any:
        if isinstance(node, list):
            return [self._node(item, f"{pointer}/{index}") for index, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        writers: dict[Any, Callable[[Any, str], Any]] = {
            "const_string": self._const_string,
            "tag": self._one_tag,
            "triggered_tags": self._triggered_tags,
            "dispatch": self._dispatch,
            "json_schema": self._json_schema,
            "regex": self._regex,
            "grammar": self._grammar,
            "token": self._token,
        }
        write: Callable[[Any, str], Any] = writers.get(node.get("type"), self._members)
        return write(node, pointer)

    def _members(self, node: Mapping[str, Any], pointer: str) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for key, item in node.items():
            at = f"{pointer}/{key}"
            if key in SCHEMA_MEMBERS:
                written[key] = item
            elif key in TOKEN_MEMBERS and isinstance(item, list):
                written[key] = [self._token_id(token, at) for token in item]
            elif key == "excludes" and isinstance(item, list):
                written[key] = [way for text in item for way in self._ways(text, at)]
            elif key == "rules" and node.get("type") == "token_dispatch":
                written[key] = [[self._token_id(token, at), self._node(inner, at)] for token, inner in item]
            else:
                written[key] = self._text_only(item, at) if isinstance(item, str) else self._node(item, at)
        if node.get("type") in ANY_TOKEN:
            self._exclude_control_tokens(written)
        return written

    def _exclude_control_tokens(self, written: dict[str, Any]) -> None:
        named = {*written.get("trigger_tokens", ()), *(rule[0] for rule in written.get("rules", ()))}
        excluded = {*written.get("exclude_tokens", ()), *self._vocabulary.special_ids}
        written["exclude_tokens"] = sorted(excluded - named)

    def _const_string(self, node: Mapping[str, Any], pointer: str) -> Any:
        ways = self._ways(node.get("value"), f"{pointer}/value")
        options = [{**node, "value": way} for way in ways]
        return options[0] if len(options) == 1 else {"type": "or", "elements": options}

    def _one_tag(self, node: Mapping[str, Any], pointer: str) -> Any:
        tags = list(self._tags(node, pointer))
        return tags[0] if len(tags) == 1 else {"type": "or", "elements": tags}

    def _tags(self, node: Mapping[str, Any], pointer: str) -> Iterator[dict[str, Any]]:
        """A tag with each way to write its beginning."""
        rest = {key: item for key, item in node.items() if key not in ("begin", "end")}
        written = self._members(rest, pointer)
        begin, end = node.get("begin"), node.get("end")
        if isinstance(end, dict):
            written["end"] = self._node(end, f"{pointer}/end")
        else:
            ends = [way for text in _listed(end) for way in self._ways(text, f"{pointer}/end")]
            written["end"] = ends[0] if len(ends) == 1 else ends
        if isinstance(begin, dict):
            yield {**written, "begin": self._node(begin, f"{pointer}/begin")}
        else:
            for way in self._ways(begin, f"{pointer}/begin"):
                yield {**written, "begin": way}

    def _triggered_tags(self, node: Mapping[str, Any], pointer: str) -> Any:
        triggers, tags = node.get("triggers"), node.get("tags")
        rest = {key: item for key, item in node.items() if key not in ("triggers", "tags")}
        written = self._members(rest, pointer)
        if isinstance(triggers, list) and isinstance(tags, list):
            written["triggers"] = [way for text in triggers for way in self._ways(text, f"{pointer}/triggers")]
            written["tags"] = [way for i, tag in enumerate(tags) for way in self._tags(tag, f"{pointer}/tags/{i}")]
        return written

    def _dispatch(self, node: Mapping[str, Any], pointer: str) -> Any:
        written = self._members({key: item for key, item in node.items() if key != "rules"}, pointer)
        at = f"{pointer}/rules"
        written["rules"] = [
            [way, self._node(inner, at)] for text, inner in node.get("rules", ()) for way in self._ways(text, at)
        ]
        return written

    def _json_schema(self, node: Mapping[str, Any], pointer: str) -> Any:
        if "json_schema" not in node or node.keys() - {"type", "json_schema"}:
            return node  # one of the other ways in which models write arguments
        # xgrammar takes none of the request's options here, and closes every object.
        return {"type": "grammar", "grammar": self._schema_ebnf(node["json_schema"])}

    def _regex(self, node: Mapping[str, Any], pointer: str) -> Any:
        return {**node, "pattern": translate(node["pattern"], DIALECT)} if "pattern" in node else node

    def _grammar(self, node: Mapping[str, Any], pointer: str) -> Any:
        if "grammar" not in node:
            return node
        is_lark = node.get("syntax") == "lark"
        for name in named_tokens(node["grammar"], "lark" if is_lark else "ebnf"):
            self._text_only(name, f"{pointer}/grammar")
        text = lark_for(node["grammar"], DIALECT) if is_lark else ebnf_for_xgrammar(node["grammar"])
        return {**node, "grammar": text}

    def _token(self, node: Mapping[str, Any], pointer: str) -> Any:
        return {**node, "token": self._token_id(node.get("token"), f"{pointer}/token")}

    def _token_id(self, token: Any, pointer: str) -> int:
        id_ = self._id_of(token) if isinstance(token, str) else token
        if not isinstance(id_, int) or not 0 <= id_ < self._vocabulary.size:
            raise SpecError(f"structural_tag: there is no token {shown(token)}", pointer=pointer)
        if id_ in self._vocabulary.stop_set:
            raise SpecError(f"structural_tag: {shown(token)} is a stop token, which only ends a text", pointer=pointer)
        if id_ in self._vocabulary.special_ids:
            self.named.add(id_)
        return id_

    def _id_of(self, name: str) -> int | None:
        tokens = self._vocabulary.text_tokens
        text = name.encode()
        return self._names[name] if name in self._names else tokens.index(text) if text in tokens else None

    def _text_only(self, text: str, pointer: str) -> str:
        found = self._splitter.search(text)
        if found:
            raise UnsupportedFeature(
                f"structural_tag: xgrammar matches only text here, not the control token {found[0]}",
                pointer=pointer,
                hint="Name control tokens in begin, end, triggers, excludes and const_string",
            )
        return text

    def _ways(self, text: Any, pointer: str) -> list[Any]:
        """The ways to write a text: each control token that it names by that token, or spelled."""
        found = list(self._splitter.finditer(text)) if isinstance(text, str) else []
        if not found:
            return [text]
        if len(found) > MOST_NAMES:
            raise UnsupportedFeature(
                f"structural_tag: xgrammar takes {MOST_NAMES} control tokens in one text, not {len(found)}",
                pointer=pointer,
            )
        self.named.update(self._names[name[0]] for name in found)
        ends = [*(name.start() for name in found), len(text)]
        pieces = [text[start:end] for start, end in itertools.pairwise([0, *ends])]
        marks = itertools.product(("", self.mark), repeat=len(found))
        return [pieces[0] + "".join(map("".join, zip(way, pieces[1:], strict=True))) for way in marks]


def framed(grammar: xgrammar.Grammar, mark: str) -> xgrammar.Grammar:
    """The grammar with `FRAME` in every constant text that has the character `mark`."""
    content = json.loads(grammar.serialize_json())
    data = content["grammar_expr_data"]
    for start in content["grammar_expr_indptr"]:
        # An expression is its kind, its length and so many numbers.
        if start < len(data) and data[start] == BYTE_STRING:
            for index in range(start + 2, start + 2 + data[start + 1]):
                if data[index] == ord(mark):
                    data[index] = FRAME[0]
    return xgrammar.Grammar.deserialize_json(json.dumps(content))


def _modern(tag: Mapping[str, Any]) -> dict[str, Any]:
    """A legacy tag as a format."""
    tags = [
        {
            "type": "tag",
            "begin": item["begin"],
            "content": {"type": "json_schema", "json_schema": {} if item.get("schema") is None else item["schema"]},
            "end": item["end"],
        }
        for item in tag["structures"]
    ]
    return {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}


def _unused_control_character(tag: Any) -> str:
    text = json.dumps(tag, ensure_ascii=True)
    for code in range(1, 32):
        if json.dumps(chr(code))[1:-1] not in text:
            return chr(code)
    raise UnsupportedFeature("structural_tag: xgrammar needs one control character that the tag does not use")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
