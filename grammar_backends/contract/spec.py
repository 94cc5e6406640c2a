"""What a request asks for: its kind, its content in a canonical form, and the options that change its meaning.

A `GrammarSpec` is frozen and hashable; `key` is the same text in every process for the same meaning, so that
caches, logs and ranks agree on it (B3). Making a spec checks only what its kind can be: the front end
(`grammar_backends.selection.validate_spec`) judges the content.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from grammar_backends.errors import SpecError, shown

if TYPE_CHECKING:
    from grammar_backends.contract.openai import ToolStyle

__all__ = [
    "JSON",
    "STANDARD_FORMATS",
    "GrammarKind",
    "GrammarOptions",
    "GrammarSpec",
    "GrammarSyntax",
    "json_type",
    "parse_json",
]

JSON = Any
"""A value as `json.loads` returns it."""

GrammarSyntax = Literal["auto", "ebnf", "lark", "gbnf"]
SYNTAXES: tuple[GrammarSyntax, ...] = ("auto", "ebnf", "lark", "gbnf")

MAX_WHITESPACE = 1_000_000
"""The largest bound on white space that an engine is asked to count to."""


STANDARD_FORMATS = frozenset(
    (
        *("date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri"),
        *("iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference"),
        *("uri-template", "uuid", "host-name", "ip-address"),
    )
)
"""The formats of the JSON Schema specification. Any other name is an annotation."""


class GrammarKind(enum.Enum):
    """The six kinds of constraint (B3)."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class GrammarOptions:
    """What changes the meaning of a spec; part of its key (B3, B5).

    Attributes:
        whitespace: "any" allows JSON white space between JSON tokens; "compact" allows none. An override: no
            key inside a schema can loosen it.
        max_whitespace: white-space characters in a row that "any" allows; None for no bound. A bound keeps a model
            from going on with blanks for ever, and makes xgrammar's masks about four times as slow.
        additional_properties: "schema" follows the schema, where an absent `additionalProperties` means open;
            "closed" treats an absent one as false.
        json_object_only: what the kind `json_object` means: True only objects, False any JSON value.
    """

    whitespace: Literal["any", "compact"] = "any"
    max_whitespace: int | None = None
    additional_properties: Literal["schema", "closed"] = "schema"
    json_object_only: bool = True

    def __post_init__(self) -> None:
        _one_of("whitespace", self.whitespace, ("any", "compact"))
        bound = self.max_whitespace
        if bound is not None and (type(bound) is not int or not 1 <= bound <= MAX_WHITESPACE):
            raise SpecError(f"option max_whitespace must be None, or from 1 to {MAX_WHITESPACE}, not {shown(bound)}")
        _one_of("additional_properties", self.additional_properties, ("schema", "closed"))
        if not isinstance(self.json_object_only, bool):
            raise SpecError(f"option json_object_only must be a boolean, not {shown(self.json_object_only)}")


def _one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise SpecError(f"option {name} must be one of {', '.join(map(repr, allowed))}, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A parsed request. Make one with the constructors named after the kinds.

    From its parts one is made too, by the constructor of its kind, which checks them and may raise `SpecError`.

    Attributes:
        kind: which constraint.
        text: the canonical content: JSON text for schemas, choices and tags; the pattern; the grammar; "" for
            json_object.
        syntax: how a grammar is written; "auto" detects it (B9). "auto" for every other kind.
        options: what else changes the meaning.
    """

    kind: GrammarKind
    text: str
    syntax: GrammarSyntax = "auto"
    options: GrammarOptions = field(default_factory=GrammarOptions)
    _key: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.kind, self.text, self.syntax
        is_known = isinstance(self.syntax, str) and self.syntax in SYNTAXES
        if not isinstance(self.kind, GrammarKind) or not isinstance(self.text, str) or not is_known:
            raise SpecError(
                f"a spec has a GrammarKind, text and a syntax, not {', '.join(map(shown, parts))}",
                hint="Use the constructor of its kind, as in GrammarSpec.json_schema(schema)",
            )
        if self.syntax != "auto" and self.kind is not GrammarKind.GRAMMAR:
            raise SpecError(f"{self.kind}: only a grammar has a syntax, not {shown(self.syntax)}")
        if self.text and self.kind is GrammarKind.JSON_OBJECT:
            raise SpecError(f"json_object: there is nothing to say, not {shown(self.text)}")
        made = self._checked()
        object.__setattr__(self, "text", made.text)
        object.__setattr__(self, "options", made.options)

    def _checked(self) -> GrammarSpec:
        match self.kind:
            case GrammarKind.JSON_OBJECT:
                return self.json_object(options=self.options)
            case GrammarKind.GRAMMAR:
                return self.grammar(self.text, self.syntax, options=self.options)
            case GrammarKind.CHOICE:
                return self.choice(parse_json(self.text, "choice"), options=self.options)
        made: GrammarSpec = getattr(self, self.kind.value)(self.text, options=self.options)
        return made

    @classmethod
    def _of(
        cls, kind: GrammarKind, text: str, options: GrammarOptions | None, syntax: GrammarSyntax = "auto"
    ) -> GrammarSpec:
        """A spec from parts that were checked."""
        options = GrammarOptions() if options is None else options
        if not isinstance(options, GrammarOptions):
            raise SpecError(f"{kind}: the options are GrammarOptions, not {shown(options)}")
        spec, assign = object.__new__(cls), object.__setattr__
        assign(spec, "kind", kind)
        assign(spec, "text", text)
        assign(spec, "syntax", syntax)
        assign(spec, "options", options)
        assign(spec, "_key", "")
        return spec

    def __hash__(self) -> int:
        # A spec is looked up several times for each request. The text alone tells nearly all apart, and knows its hash.
        return hash(self.text)

    @property
    def key(self) -> str:
        """A digest of the meaning: equal for equal specs, in every process."""
        if not self._key:
            object.__setattr__(self, "_key", _digest(self))
        return self._key

    @property
    def value(self) -> JSON:
        """The content as Python data: the schema, list of choices or tag; the text itself for other kinds."""
        if self.kind in (GrammarKind.JSON_SCHEMA, GrammarKind.CHOICE, GrammarKind.STRUCTURAL_TAG):
            return json.loads(self.text)
        return self.text

    def __str__(self) -> str:
        return f"{self.kind} {self.key[:12]} ({len(self.text)} characters)"

    @classmethod
    def json_schema(cls, schema: JSON, *, options: GrammarOptions | None = None) -> GrammarSpec:
        """Text that is JSON and valid under `schema` (a dict, a bool, or the JSON text of one).

        Raises:
            SpecError: the text is not JSON (line:column), or the schema is not an object or a boolean (D4).
        """
        value = parse_json(schema, "json_schema")
        if not isinstance(value, (dict, bool)):
            raise SpecError(f"json_schema: a schema is an object or a boolean, not {json_type(value)}", pointer="")
        return cls._of(GrammarKind.JSON_SCHEMA, _canonical(value, "json_schema"), options)

    @classmethod
    def json_object(cls, *, options: GrammarOptions | None = None) -> GrammarSpec:
        """Any JSON object (or any JSON value with `json_object_only=False`; B4)."""
        return cls._of(GrammarKind.JSON_OBJECT, "", options)

    @classmethod
    def regex(cls, pattern: str, *, options: GrammarOptions | None = None) -> GrammarSpec:
        """Text that the pattern matches from its first to its last character.

        Raises:
            SpecError: the pattern is not text, holds a NUL character (D6) or a lone surrogate.
        """
        return cls._of(GrammarKind.REGEX, _text(pattern, "regex"), options)

    @classmethod
    def choice(cls, choices: Sequence[str], *, options: GrammarOptions | None = None) -> GrammarSpec:
        """Exactly one of the strings. Duplicates are removed; the empty string is allowed (D2).

        Raises:
            SpecError: not a list of strings, empty, or a string with a lone surrogate.
        """
        if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence):
            raise SpecError(f"choice: a list of strings is needed, not {json_type(choices)}")
        if not choices:
            raise SpecError("choice: the list is empty, so that no text would be allowed")
        for index, item in enumerate(choices):
            if not isinstance(item, str):
                raise SpecError(f"choice: a string is needed, not {json_type(item)}", pointer=f"/{index}")
        return cls._of(GrammarKind.CHOICE, _canonical(list(dict.fromkeys(choices)), "choice"), options)

    @classmethod
    def grammar(
        cls, text: str, syntax: GrammarSyntax = "auto", *, options: GrammarOptions | None = None
    ) -> GrammarSpec:
        """Text of a context-free language, written in EBNF, GBNF or Lark.

        Raises:
            SpecError: the grammar is blank (D3), or the syntax is unknown.
        """
        if not isinstance(syntax, str) or syntax not in SYNTAXES:
            raise SpecError(f"grammar: syntax must be one of {', '.join(SYNTAXES)}, not {shown(syntax)}")
        if not _text(text, "grammar").strip():
            raise SpecError("grammar: the text is blank")
        return cls._of(GrammarKind.GRAMMAR, text, options, syntax)

    @classmethod
    def structural_tag(cls, tag: JSON, *, options: GrammarOptions | None = None) -> GrammarSpec:
        """Free text with tagged regions that are constrained: the legacy form (`structures` and `triggers`) or
        the newer one (`format`).

        Raises:
            SpecError: not JSON, not an object, or neither form (D8).
        """
        value = parse_json(tag, "structural_tag")
        if not isinstance(value, dict):
            raise SpecError(f"structural_tag: an object is needed, not {json_type(value)}", pointer="")
        if "format" not in value and not ("structures" in value and "triggers" in value):
            raise SpecError(
                "structural_tag: neither form was recognised",
                pointer="",
                hint='Give "format", or "structures" together with "triggers"',
            )
        return cls._of(GrammarKind.STRUCTURAL_TAG, _canonical(value, "structural_tag"), options)

    @classmethod
    def from_openai(
        cls,
        response_format: Mapping[str, JSON] | None = None,
        *,
        tools: Sequence[Mapping[str, JSON]] = (),
        tool_choice: str | Mapping[str, JSON] = "auto",
        tool_style: ToolStyle | None = None,
        options: GrammarOptions | None = None,
    ) -> GrammarSpec | None:
        """The constraint of an OpenAI-style request; None where it asks for none.

        Tools become a structural tag. The arguments of a tool with ``"strict": true`` follow its parameters; those of
        another one are any JSON object.

        Args:
            response_format: ``{"type": "text" | "json_object" | "json_schema" | "structural_tag", ...}``.
            tools: ``{"type": "function", "function": {"name": ..., "parameters": ..., "strict": ...}}`` each.
            tool_choice: "none", "auto", "required", or ``{"type": "function", "function": {"name": ...}}``.
            tool_style: how the model writes a call; None for `ToolStyle()`.
            options: as for the other constructors.

        Raises:
            SpecError: an unknown type or tool, a missing schema or name, or both tools and a format (D18).
        """
        from grammar_backends.contract.openai import read_request  # it is written in terms of this class

        return read_request(response_format, tools, tool_choice, tool_style, options)

    @classmethod
    def from_structured_outputs(
        cls, fields: Mapping[str, JSON], *, options: GrammarOptions | None = None
    ) -> GrammarSpec:
        """The constraint of a request that has one field for each kind, as vLLM's `structured_outputs`.

        Args:
            fields: one of ``json``, ``regex``, ``choice``, ``grammar``, ``json_object`` (true) and ``structural_tag``,
                and the switches ``disable_any_whitespace`` and ``disable_additional_properties``. A field that is None
                is not set.
            options: as for the other constructors; a switch that is true goes first.

        Raises:
            SpecError: none or several of the constraints (the message names the fields, never their contents; D1), an
                unknown field, ``json_object`` that is not true (D5), or what the constructor of the kind refuses.
        """
        from grammar_backends.contract.structured_outputs import read_fields  # it is written in terms of this class

        return read_fields(fields, options)

    @classmethod
    def from_pydantic(cls, model: Any, *, options: GrammarOptions | None = None) -> GrammarSpec:
        """JSON that validates as a type: a pydantic model, a dataclass, a TypedDict, ``list[int]``, whatever pydantic
        reads.

        Raises:
            SpecError: pydantic is not installed, or cannot describe the type.
        """
        make = getattr(model, "model_json_schema", None) or functools.partial(_pydantic_schema, model)
        try:
            schema = make()
        except SpecError:
            raise
        except Exception as error:  # pydantic's errors have no common base
            raise SpecError(f"from_pydantic: no schema for {shown(model)}", engine_text=str(error)) from error
        return cls.json_schema(schema, options=options)


def _pydantic_schema(type_: Any) -> JSON:
    try:
        from pydantic import TypeAdapter  # lazy: optional
    except ImportError:
        raise SpecError("from_pydantic: pydantic is not installed", hint="pip install pydantic") from None
    return TypeAdapter(type_).json_schema()


def _digest(spec: GrammarSpec) -> str:
    options = spec.options
    parts = [
        spec.kind.value,
        spec.syntax,
        options.whitespace,
        str(options.max_whitespace),
        options.additional_properties,
        str(options.json_object_only),
        spec.text,
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def parse_json(value: JSON, what: str) -> JSON:
    """JSON text or bytes to data; data is passed through.

    Raises:
        SpecError: not JSON (line:column), blank, or nested too deep for the parser.
    """
    if not isinstance(value, (str, bytes, bytearray)):
        return value
    try:
        return json.loads(value, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        wrong = "the text is blank" if not value.strip() else f"not JSON: {error.msg}"
        raise SpecError(f"{what}: {wrong}", line=error.lineno, column=error.colno) from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{what}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise SpecError(f"{what}: nested too deep") from None
    except ValueError as error:
        raise SpecError(f"{what}: not JSON: {error}") from None


def _refuse_constant(name: str) -> JSON:
    raise ValueError(f"{name} is no JSON number")


def _canonical(value: JSON, what: str) -> str:
    # Property order is part of the meaning (the engines emit properties in schema order), so keys stay unsorted.
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise SpecError(f"{what}: nested too deep") from None
    except (TypeError, ValueError) as error:
        raise SpecError(f"{what}: not representable as JSON: {error}") from None
    return _text(text, what, nul_allowed=True)


def _text(value: str, what: str, *, nul_allowed: bool = False) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{what}: text is needed, not {json_type(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{what}: lone surrogate {value[error.start]!r} at character {error.start}") from None
    if not nul_allowed and "\0" in value:
        raise SpecError(f"{what}: NUL character at character {value.index(chr(0))}")
    return value


_JSON_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def json_type(value: object) -> str:
    """What a value is in words of JSON, for messages: "an array"."""
    return _JSON_TYPES.get(type(value), f"a Python {type(value).__name__}")
