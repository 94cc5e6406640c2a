"""Reading JSON schemas: what is refused whatever the engine, and what each engine's table says it would not enforce.

The tables are held against the engines themselves: a schema without findings must be enforced exactly, and one that an
engine gets wrong must have a finding. The layer's adapters are not used here.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jsonschema
import pytest

from grammar_backends.contract.spec import GrammarOptions
from grammar_backends.errors import PluginError, SpecError
from grammar_backends.selection.disjoint import Comparison
from grammar_backends.selection.languages import may_overlap
from grammar_backends.selection.patterns import options_overlap, searched
from grammar_backends.selection.schema import check_schema, walk
from grammar_backends.selection.support import SchemaSupport

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
OPEN = GrammarOptions()
COMPACT = GrammarOptions(whitespace="compact")
CLOSED = GrammarOptions(additional_properties="closed")
INTEGER: dict[str, Any] = {"type": "integer"}
EOS = 256
TOKENS = [bytes([byte]) for byte in range(256)] + [b""]

MAX_CALLS = 1_500_000
"""Calls of functions that reading one schema may cost: about a second."""

Texts = list[str]
Verdicts = list[bool] | None
"""Per text, whether the engine takes it; None when the engine refuses the schema."""


@functools.cache
def support(engine: str) -> SchemaSupport:
    path = ROOT / "plugins" / engine / f"grammar_backends_{engine}" / "support.json"
    return SchemaSupport.from_mapping(json.loads(path.read_text("utf-8")))


@functools.cache
def _xgrammar() -> Any:
    xgrammar = pytest.importorskip("xgrammar")
    info = xgrammar.TokenizerInfo(TOKENS, xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[EOS])
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


def run_xgrammar(schema: Any, texts: Texts) -> Verdicts:
    import xgrammar

    compiler = _xgrammar()
    try:
        compiled = compiler.compile_json_schema(json.dumps(schema), strict_mode=False, any_whitespace=True)
    except RuntimeError:
        return None
    verdicts = []
    for text in texts:
        matcher = xgrammar.GrammarMatcher(compiled)
        verdicts.append(all(matcher.accept_token(byte) for byte in text.encode()) and matcher.is_completed())
    return verdicts


class ByteTokenizer:
    """What llguidance wants of a tokenizer, with one token per byte."""

    eos_token_id = EOS
    bos_token_id = None
    tokens = TOKENS
    special_token_ids = (EOS,)
    is_tokenizer_wrapper = True

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@functools.cache
def _llguidance() -> Any:
    llguidance = pytest.importorskip("llguidance")
    return llguidance.LLTokenizer(ByteTokenizer(), n_vocab=257, eos_token=[EOS])


def run_guidance(schema: Any, texts: Texts) -> Verdicts:
    tokenizer = _llguidance()
    import llguidance

    options = {"whitespace_flexible": True, "lenient": False, "coerce_one_of": True}
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
    except ValueError:
        return None
    start = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
    if start.is_error():
        return None
    verdicts = []
    for text in texts:
        matcher, tokens = start.deep_copy(), list(text.encode())
        verdicts.append(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())
    return verdicts


ENGINES: dict[str, Callable[[Any, Texts], Verdicts]] = {"xgrammar": run_xgrammar, "guidance": run_guidance}


def pointers(schema: Any, engine: str = "xgrammar", options: GrammarOptions = OPEN) -> list[str]:
    return [str(finding.pointer) for finding in support(engine).findings(schema, options)]


# -- the walk ------------------------------------------------------------------------------------------------


def test_c2_5_walk_goes_by_position_and_never_into_names_or_values() -> None:
    schema = {
        "type": "object",
        "properties": {"multipleOf": INTEGER, "pattern": {"enum": [{"not": {}, "type": "nonsense"}]}},
        "default": {"if": 3},
        "examples": [{"type": 5}],
        "x-note": {"properties": 5},
    }
    assert [site.pointer for site in walk(schema)] == ["", "/properties/multipleOf", "/properties/pattern"]
    check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "target"),
    [
        ({"$ref": "#"}, ""),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": INTEGER}}, "/$defs/a~1b"),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": INTEGER}}, "/$defs/a b"),
        ({"$ref": "#here", "$defs": {"x": {"$anchor": "here", **INTEGER}}}, "/$defs/x"),
        ({"$ref": "x.json", "$defs": {"x": {"$id": "x.json", **INTEGER}}}, "/$defs/x"),
        ({"$id": "http://e.org/a/b", "$ref": "c#/$defs/y", "$defs": {"x": {"$id": "c", "$defs": {"y": {}}}}},
         "/$defs/x/$defs/y"),
        ({"$ref": "#/components/schemas/x", "components": {"schemas": {"x": INTEGER}}}, "/components/schemas/x"),
        ({"$ref": "http://e.org/elsewhere"}, None),
    ],
)  # fmt: skip
def test_c2_5_local_references_are_resolved(schema: Any, target: str | None) -> None:
    found = walk(schema).root.target
    assert (found.pointer if found else None) == target


def test_d9_nesting_is_bounded_without_recursion() -> None:
    def nested(depth: int) -> Any:
        schema: Any = INTEGER
        for _ in range(depth):
            schema = {"type": "object", "properties": {"a": schema}}
        return schema

    check_schema(nested(64))
    with pytest.raises(SpecError, match="nested too deep"):
        check_schema(nested(65))
    with pytest.raises(SpecError, match="nested too deep"):
        check_schema(nested(20_000))
    deep: Any = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(SpecError, match="nested too deep"):
        check_schema({"const": deep})


@pytest.mark.parametrize("link", ["direct", "property", "allOf", "items"])
def test_d10_chains_of_references_are_bounded(link: str) -> None:
    def step(index: int) -> Any:
        ref = {"$ref": f"#/$defs/d{index + 1}"}
        shapes: dict[str, Any] = {
            "direct": ref,
            "property": {"type": "object", "properties": {"a": ref}},
            "allOf": {"allOf": [ref]},
            "items": {"type": "array", "items": ref},
        }
        return shapes[link]

    def chain(length: int) -> Any:
        return {"$defs": {**{f"d{i}": step(i) for i in range(length)}, f"d{length}": INTEGER}, "$ref": "#/$defs/d0"}

    check_schema(chain(100))
    with pytest.raises(SpecError, match="chain of more than"):
        check_schema(chain(1200))


# -- malformed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "strin"}, "/type"),
        ({"type": []}, "/type"),
        ({"properties": 5}, "/properties"),
        ({"properties": {"a/b": {"type": "int"}}}, "/properties/a~1b/type"),
        ({"properties": {"a": 5}}, "/properties/a"),
        ({"required": "a"}, "/required"),
        ({"required": [1]}, "/required"),
        ({"anyOf": {}}, "/anyOf"),
        ({"enum": "a"}, "/enum"),
        ({"minLength": -1}, "/minLength"),
        ({"maxItems": 1.5}, "/maxItems"),
        ({"minimum": "1"}, "/minimum"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"uniqueItems": 1}, "/uniqueItems"),
        ({"pattern": "("}, "/pattern"),
        ({"pattern": "a**"}, "/pattern"),
        ({"patternProperties": {"[": {}}}, "/patternProperties/["),
        ({"items": {"pattern": "a\0"}}, "/items/pattern"),
        ({"$ref": "#/$defs/no"}, "/$ref"),
        ({"$ref": 5}, "/$ref"),
        ({"allOf": [{"$ref": "#nowhere"}]}, "/allOf/0/$ref"),
        ({"format": 5}, "/format"),
        ({"dependentRequired": {"a": "b"}}, "/dependentRequired"),
    ],
)
def test_d4_d6_malformed_keywords_are_named(schema: Any, pointer: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_schema(schema)
    assert caught.value.pointer == pointer
    assert "unsatisfiable" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"title": 5, "description": [], "default": 1, "x": {"type": 1}},
        {"pattern": r"^\p{Lu}(?<year>\d{4})\k<year>\/\-[^]\cA\u{1F600}$"},
        {"pattern": r"^[^\x00-\x1f]*$"},
        {"minLength": 2.0, "exclusiveMinimum": True, "minimum": 10**400},
        {"definitions": {"unused": {"type": "nonsense"}}},
        {"dependencies": {"a": ["b"], "c": {"type": "object"}}},
        {"items": [INTEGER], "additionalItems": False},
    ],
)
def test_d4_what_is_merely_odd_is_not_refused(schema: Any) -> None:
    check_schema(schema)


# -- unsatisfiable -------------------------------------------------------------------------------------------

LOOP = {"type": "object", "properties": {"a": {"$ref": "#"}}}


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, ""),
        ({"$ref": "#"}, ""),
        ({"anyOf": []}, ""),
        ({"enum": []}, ""),
        ({"not": {}}, ""),
        ({"not": True}, ""),
        ({"type": "string", "not": {"type": "string"}}, ""),
        ({**LOOP, "required": ["a"]}, "/properties/a"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "/items"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "/properties/a"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "/additionalProperties"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, ""),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, ""),
        ({"type": "integer", "minimum": 11, "maximum": 19, "multipleOf": 10}, ""),
        ({"type": "number", "minimum": 1, "exclusiveMaximum": 1}, ""),
        ({"type": "string", "minLength": 5, "maxLength": 2}, ""),
        ({"type": "string", "format": "date", "maxLength": 3}, ""),
        ({"type": "array", "minItems": 3, "maxItems": 2}, ""),
        ({"type": "array", "prefixItems": [INTEGER], "items": False, "minItems": 2}, "/items"),
        ({"type": "object", "minProperties": 3, "maxProperties": 2}, ""),
        ({"type": "object", "required": ["a", "b"], "maxProperties": 1}, ""),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False, "minProperties": 2}, ""),
        ({"type": "object", "propertyNames": False, "required": ["a"]}, ""),
        ({"type": "integer", "enum": ["a", "b"]}, ""),
        ({"type": "string", "const": 1}, ""),
        ({"enum": [1, 2], "minimum": 3}, ""),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, ""),
        ({"anyOf": [False, {"type": "string", "enum": [1]}]}, "/anyOf/0"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "/$defs/b"),
    ],
)  # fmt: skip
def test_b12_unsatisfiable_schemas_are_refused_with_the_place(schema: Any, pointer: str) -> None:
    with pytest.raises(SpecError, match="unsatisfiable") as caught:
        check_schema(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        (LOOP, {"a": {}}),
        ({**LOOP, "required": ["a"], "type": ["object", "null"]}, None),
        ({"type": "array", "items": {"$ref": "#"}}, [[]]),
        ({"type": "object", "properties": {"a": False}}, {}),
        ({"type": "array", "items": False}, []),
        ({"minimum": 5, "maximum": 4}, "text"),
        ({"type": "number", "minimum": 1.2, "maximum": 1.8}, 1.5),
        ({"enum": ["a"], "minLength": 1, "minimum": 3}, "a"),
        ({"required": ["xa"], "patternProperties": {"^x": {}}, "additionalProperties": False}, {"xa": 1}),
        ({"anyOf": [False, INTEGER]}, 1),
        ({"not": {"type": "object", "required": ["a"]}}, {}),
        ({"not": {"not": {}}}, 1),
        ({"type": "integer", "enum": [1.0]}, 1),
        ({"contains": False, "minContains": 0}, []),
    ],
)  # fmt: skip
def test_b12_satisfiable_schemas_are_never_refused(schema: Any, document: Any) -> None:
    jsonschema.Draft202012Validator(schema).validate(document)
    check_schema(schema)


def test_b12_siblings_of_a_reference_do_not_count_in_old_drafts() -> None:
    schema = {"definitions": {"x": INTEGER}, "$ref": "#/definitions/x", "type": "string"}
    with pytest.raises(SpecError, match="unsatisfiable"):
        check_schema(schema)
    check_schema({**schema, "$schema": "http://json-schema.org/draft-07/schema#"})


# -- the tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "string", "pattern": "b"}, "/pattern"),
        ({"type": "string", "pattern": '^"$'}, "/pattern"),
        ({"type": "string", "pattern": "^(?=a)b$"}, "/pattern"),
        ({"type": "string", "minLength": 2}, "/minLength"),
        ({"type": "string", "format": "iri"}, "/format"),
        ({"type": "array", "items": INTEGER, "uniqueItems": True}, "/uniqueItems"),
        ({"type": "array", "contains": INTEGER}, "/contains"),
        ({"type": "number", "multipleOf": 5}, "/multipleOf"),
        ({"type": "integer", "multipleOf": 5, "minimum": 0}, "/multipleOf"),
        ({"type": "integer", "minimum": 0.5}, "/minimum"),
        ({"minLength": 3}, "/minLength"),
        ({"type": "object", "required": ["a"]}, "/required"),
        ({"type": "object", "not": {"required": ["a"]}}, "/not"),
        ({"type": "integer", "if": {"minimum": 3}, "then": {"minimum": 5}}, "/if"),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, "/dependentRequired"),
        ({"anyOf": [{"minimum": 5}], "type": "integer"}, "/type"),
        ({"$ref": "#/$defs/x", "minimum": 5, "$defs": {"x": INTEGER}}, "/minimum"),
        ({"$ref": "http://e.org/x"}, "/$ref"),
        ({"$ref": "#x", "$defs": {"x": {"$anchor": "x"}}}, "/$ref"),
        ({"allOf": [INTEGER, {"minimum": 5}]}, "/allOf"),
        ({"oneOf": [INTEGER, {"type": "number"}]}, "/oneOf"),
        ({"type": "integer", "enum": [1, "a"]}, "/enum"),
        ({"const": {"a": 1}}, "/const"),
        ({"type": "object", "patternProperties": {"^x_[a-z]+$": INTEGER}}, "/patternProperties"),
        ({"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": False}, "/propertyNames"),
        ({"type": "object", "properties": {"a": {"type": "object", "unevaluatedProperties": False}}},
         "/properties/a/unevaluatedProperties"),
    ],
)  # fmt: skip
def test_c3_xgrammar_findings_name_the_place(schema: Any, pointer: str) -> None:
    assert pointer in pointers(schema)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "array", "uniqueItems": True}, "/uniqueItems"),
        ({"type": "object", "propertyNames": {"maxLength": 2}}, "/propertyNames"),
        ({"not": INTEGER}, "/not"),
        ({"type": "string", "format": "idn-email"}, "/format"),
        ({"type": "string", "pattern": "^(?!a)"}, "/pattern"),
        ({"type": "object", "properties": {"a": {}}, "maxProperties": 1}, "/maxProperties"),
        ({"type": "number", "multipleOf": 0.25}, "/multipleOf"),
        ({"$ref": "http://e.org/x"}, "/$ref"),
    ],
)
def test_c3_guidance_findings_name_the_place(schema: Any, pointer: str) -> None:
    assert pointer in pointers(schema, "guidance")


@pytest.mark.parametrize("engine", ["xgrammar", "guidance"])
def test_c2_5_annotations_and_property_names_are_no_findings(engine: str) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "T",
        "description": "D",
        "type": "object",
        "properties": {
            "multipleOf": {"type": "integer", "default": 1, "examples": [2], "deprecated": True},
            "not": {"type": "string", "nullable": True, "x-order": 1, "contentMediaType": "text/plain"},
            "s": {"const": "if", "$comment": "c", "readOnly": True},
        },
        "required": ["not"],
        "$defs": {"unused": {"not": {}, "if": {}}},
    }
    assert pointers(schema, engine) == []


def test_b5_options_change_what_is_enforced() -> None:
    assert pointers({"const": {"a": 1}}) == ["/const"]
    assert pointers({"const": {"a": 1}}, options=COMPACT) == []
    tuple_ = {"type": "array", "prefixItems": [INTEGER]}
    assert pointers(tuple_) == []
    assert pointers(tuple_, options=CLOSED) == ["/prefixItems"]


def test_c3_one_of_needs_branches_that_exclude_one_another() -> None:
    def tagged(tag: str) -> Any:
        return {"type": "object", "properties": {"kind": {"const": tag}}, "required": ["kind"]}

    assert pointers({"oneOf": [tagged("a"), tagged("b")]}) == []
    assert pointers({"oneOf": [tagged("a"), tagged("a")]}) == ["/oneOf"]
    assert pointers({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 4}]}) == []
    assert pointers({"oneOf": [{"type": "integer", "maximum": 4}, {"type": "integer", "minimum": 4}]}) == ["/oneOf"]


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ({"format": "ipv4"}, {"format": "ipv6"}, True),
        ({"format": "date"}, {"format": "time"}, True),
        ({"format": "date"}, {"enum": ["now", "2020-01-01 "]}, True),
        ({"format": "uuid"}, {"pattern": "^urn:"}, True),
        ({"pattern": "^[a-z]+$"}, {"pattern": "[0-9]"}, True),
        ({"pattern": "^a"}, {"pattern": "^a?b", "maxLength": 3}, False),
        ({"format": "ipv4"}, {"format": "hostname"}, False),
        ({"format": "date"}, {"enum": ["now", "2020-01-01"]}, False),
        ({"format": "time"}, {"const": "23:59:60+01:00"}, False),
        ({"format": "idn-email"}, {"format": "date"}, False),
    ],
    ids=str,
)
def test_c2_5_strings_are_told_apart_by_formats_and_patterns(one: Any, other: Any, apart: bool) -> None:
    for branches in ([{**TEXT, **one}, {**TEXT, **other}], [{**TEXT, **other}, {**TEXT, **one}]):
        assert (Comparison().exclusive(walk({"oneOf": branches}).root) is None) == apart


@pytest.mark.parametrize("beside", [
    {"anyOf": [{"required": ["kind", "a"]}, {"required": ["b", "kind"]}]},
    {"allOf": [{"required": ["a"]}, {"required": ["kind"]}]},
    {"$ref": "#/$defs/kinds", "$defs": {"kinds": {"required": ["kind"]}}},
])  # fmt: skip
def test_c3_what_tells_branches_apart_may_be_required_by_any_schema_beside_them(beside: Any) -> None:
    branches = {"type": "object", "oneOf": [{"properties": {"kind": {"const": tag}}} for tag in "ab"]}
    comparison = Comparison()
    assert comparison.exclusive(walk({**branches, **beside}).root) is None
    assert comparison.exclusive(walk(branches).root) is not None
    looser = {"anyOf": [{"required": ["kind"]}, {"required": ["a"]}]}
    assert comparison.exclusive(walk({**branches, **looser}).root) is not None


KINDS = [{"properties": {"kind": {"const": tag}}} for tag in "ab"] + [{"required": ["kind"]}, {"required": ["a"]}]
PARTS = [
    *KINDS, {}, {"maxProperties": 1}, {"additionalProperties": {"enum": ["b", "c"]}, "required": ["kind"]},
    {"additionalProperties": False, "properties": {"a": {}}},
    {"properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"]},
    *({"allOf": [*pair]} for pair in itertools.combinations(KINDS, 2)),
    *({"anyOf": [*pair]} for pair in itertools.combinations(KINDS, 2)),
    *({"$ref": f"#/$defs/{index}", "required": ["kind"]} for index in range(len(KINDS))),
    {"allOf": [{"properties": {"kind": {"enum": ["a", "c"]}}}, {"properties": {"kind": {"pattern": "[bc]"}}}]},
]  # fmt: skip
TAGGED = [
    {}, *(dict(zip(names, tags, strict=True))
             for names in (["kind"], ["a"], ["kind", "a"]) for tags in itertools.product("abc", repeat=len(names))),
]  # fmt: skip


def test_c3_no_document_matches_two_branches_that_are_said_to_exclude_one_another() -> None:
    definitions = {str(index): kind for index, kind in enumerate(KINDS)}
    valid = [
        {place for place, document in enumerate(TAGGED) if validator.is_valid(document)}
        for validator in (jsonschema.Draft202012Validator({**part, "$defs": definitions}) for part in PARTS)
    ]
    said = 0
    for beside, one, other in itertools.product(range(len(PARTS)), repeat=3):
        schema = {**PARTS[beside], "type": "object", "oneOf": [PARTS[one], PARTS[other]], "$defs": definitions}
        if Comparison().exclusive(walk(schema).root) is None:
            assert not valid[beside] & valid[one] & valid[other], schema
            said += 1
    assert said > 800


def test_c3_branches_are_told_apart_by_additional_properties_and_by_their_number() -> None:
    kind = {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}
    for other in ({"additionalProperties": {"enum": [False]}}, {"maxProperties": 1, "required": ["b"]}):
        assert Comparison().exclusive(walk({"oneOf": [kind, {"type": "object", **other}]}).root) is None
    for other in ({"additionalProperties": {"enum": ["a"]}}, {"maxProperties": 2, "required": ["b"]},
                  {"additionalProperties": False, "patternProperties": {"^k": {}}}):  # fmt: skip
        assert Comparison().exclusive(walk({"oneOf": [kind, {"type": "object", **other}]}).root) is not None


def test_c3_a_name_that_is_required_beside_a_reference_tells_what_it_leads_to_apart() -> None:
    kinds = {tag: {"properties": {"kind": {"const": tag}}} for tag in "ab"}
    branches = [{"$ref": f"#/$defs/{tag}", "required": ["kind"]} for tag in "ab"]
    assert Comparison().exclusive(walk({"type": "object", "oneOf": branches, "$defs": kinds}).root) is None


def test_c3_what_one_schema_lists_and_another_one_beside_it_narrows_tells_branches_apart() -> None:
    base = {"type": "object", "properties": {"kind": {"enum": ["a", "b", "ab"]}}, "required": ["kind"]}

    def branch(pattern: str) -> Any:
        return {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"kind": {"type": "string", "pattern": pattern}}}]}

    def apart(*branches: Any) -> bool:
        sites = walk({"oneOf": [*branches], "$defs": {"base": base}})
        return Comparison().exclusive(sites.root) is None

    assert apart(branch("^a$"), branch("b"))
    assert not apart(branch("a"), branch("b"))  # both take "ab"
    longer = {"allOf": [{"type": "string", "minLength": 2}, {"minLength": 4}]}
    assert apart(longer, {"allOf": [{"maxLength": 3}, {"maxLength": 9}]})
    assert not apart(longer, {"maxLength": 4})
    large = {"type": "integer", "allOf": [{"minimum": 4}, {"exclusiveMinimum": 4}]}
    assert apart(large, {"maximum": 4})
    assert not apart(large, {"maximum": 5})
    assert apart(branch("a"), {"properties": {"kind": False}})
    assert not apart(base, {"properties": {"other": False}})
    assert not apart(True, True)


def test_c3_support_data_names_versions_and_known_checks_only() -> None:
    for engine in ("xgrammar", "guidance", "outlines", "lm_format_enforcer"):
        assert support(engine).measured in support(engine).versions
    data = json.loads((ROOT / "plugins/xgrammar/grammar_backends_xgrammar/support.json").read_text("utf-8"))
    with pytest.raises(PluginError, match="unknown checks or costs nonsense"):
        SchemaSupport.from_mapping({**data, "checks": {"nonsense": {}}})
    with pytest.raises(PluginError, match="malformed"):
        SchemaSupport.from_mapping({"engine": "x"})


# -- what is slow to compile ---------------------------------------------------------------------------------

LISTED: dict[str, Any] = {"type": "object", "properties": {"a": INTEGER, "b": {"type": "string"}}}
SHUT = {**LISTED, "additionalProperties": False}


def cost(schema: Any, engine: str = "xgrammar", options: GrammarOptions = OPEN) -> str | None:
    found = support(engine).cost(schema, options)
    return None if found is None else str(found.pointer)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (LISTED, ""),
        ({**LISTED, "additionalProperties": True}, "/additionalProperties"),
        ({**LISTED, "additionalProperties": {}}, "/additionalProperties"),
        ({**LISTED, "additionalProperties": INTEGER}, "/additionalProperties"),
        ({**LISTED, "unevaluatedProperties": False}, ""),
        ({**LISTED, "required": ["a", "b"]}, ""),
        ({**LISTED, "type": ["object", "null"]}, ""),
        ({"properties": LISTED["properties"]}, ""),
        ({"type": "array", "items": LISTED}, "/items"),
        ({**SHUT, "properties": {"a": SHUT, "b": LISTED}}, "/properties/b"),
    ],
)
def test_b14_listed_properties_of_open_objects_are_a_cost(schema: Any, pointer: str) -> None:
    assert cost(schema) == pointer


@pytest.mark.parametrize(
    "schema",
    [
        True, {}, INTEGER, SHUT, {"type": "object"}, {"type": "object", "properties": {}},
        {"type": "object", "additionalProperties": INTEGER}, {**LISTED, "type": "string"},
        {**SHUT, "unevaluatedProperties": True}, {**SHUT, "$defs": {"unused": LISTED}},
    ],
    ids=str,
)  # fmt: skip
def test_b14_what_compiles_quickly_has_no_cost(schema: Any) -> None:
    assert cost(schema) is None


def test_b14_a_cost_counts_each_object_once_and_says_what_to_write() -> None:
    twice = {**SHUT, "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}, "$defs": {"x": LISTED}}
    found = support("xgrammar").cost(walk(twice), OPEN)
    assert found is not None
    assert (found.pointer, found.keyword) == ("/$defs/x", "additionalProperties")
    assert "there are 2" in found.reason
    assert found.hint == 'Write "additionalProperties": false'


def test_c2_1_the_option_that_closes_objects_takes_the_cost_away_unless_the_schema_opens_them() -> None:
    assert cost(LISTED, options=CLOSED) is None
    assert cost({**LISTED, "additionalProperties": True}, options=CLOSED) == "/additionalProperties"
    assert cost({**LISTED, "unevaluatedProperties": True}, options=CLOSED) == ""


@pytest.mark.parametrize("engine", ["guidance", "outlines"])
def test_c2_1_a_table_without_costs_never_has_one(engine: str) -> None:
    assert cost(LISTED, engine) is None


def test_b14_a_cost_may_begin_at_some_number() -> None:
    data = json.loads((ROOT / "plugins/xgrammar/grammar_backends_xgrammar/support.json").read_text("utf-8"))
    table = SchemaSupport.from_mapping({**data, "costs": {"open-properties": {"most": 2}}})
    assert table.cost(LISTED, OPEN) is None
    assert table.cost({"anyOf": [LISTED, {**LISTED, "required": ["a"]}]}, OPEN) is not None
    with pytest.raises(PluginError, match="unknown checks or costs nonsense"):
        SchemaSupport.from_mapping({**data, "costs": {"nonsense": {}}})


# -- patterns, and schemas that are meant to take long -------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("b", "abc", True), ("^b", "abc", False), ("^a", "abc", True), ("c$", "abc", True), ("b$", "abc", False),
        ("^(a|b)+$", "abba", True), ("^(a|b)+$", "abca", False), ("^a|c$", "xc", True), ("^a{2,3}$", "aaaa", False),
        ("^(a?){3}b$", "aab", True), (r"^a\$", "a$", True), (r"^a\$", "a", False), ("^[$^]$", "^", True),
        ("", "", True),
        ("(?=a)", "a", None), (r"^\w$", "é", None), ("^é$", "é", True), ("a(^b)", "ab", None),
        ("^(a+)+$", "a" * 199 + "!", False), ("^((a?){1000}){1000}$", "a" * 200, True), ("a", "a" * 201, None),
    ],
)  # fmt: skip
def test_d19_patterns_are_tried_on_names_without_backtracking(pattern: str, text: str, found: bool | None) -> None:
    assert searched(pattern, text) is found


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^(a|b)$", False),
        ("^(?:a|a{1,2})$", True),
        ("^b(?:[ab]{1,2}|[ab])$", True),
        ("^(foo|far)$", True),
        ("^(foo|bar)?$", False),
        ("^a{1,2}a$", False),
        ("^(?:a{0,2}|b|a)$", True),
        (r"^(?:\d+|[a-f]+)$", False),
        (r"^\bx$", True),
    ],
)
def test_c3_alternatives_that_begin_alike_are_seen(pattern: str, expected: bool) -> None:
    assert options_overlap(pattern) == expected


def test_d10_bounds_beyond_all_floats_are_whole_numbers() -> None:
    huge = {"allOf": [{"exclusiveMinimum": 10**400}, {"minimum": 0.5}, {"maximum": float("inf")}]}
    assert walk(huge).fractions == {0}


def test_c3_patterns_with_different_beginnings_do_not_overlap() -> None:
    assert not may_overlap(["^a_", "^b_", "^ab"])
    assert may_overlap(["^a_", "^b", "^a_b"])
    assert may_overlap(["^a", "b"])
    assert not may_overlap(["^[a-m]+$", "^[n-z]+$", "^(?!x).[0-9]"])
    assert may_overlap([r"^\w$", "^é$"])
    assert may_overlap(["^[a-m]+$", r"^\bx$"])
    assert not may_overlap(["b"])


def test_c3_recursion_is_found_through_every_keyword() -> None:
    schema = {
        "anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/c"}],
        "$defs": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/b"}},
            "b": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}},
            "c": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}},
        },
    }
    assert {site.pointer for site in walk(schema).recursive} == {"/$defs/a/items", "/$defs/b/properties/x"}


def hostile() -> Iterator[tuple[str, Any]]:
    loop = {"anyOf": [*[{"$ref": "#/$defs/a"}] * 64, {"type": "object"}]}
    yield "branches of branches", {"$defs": {"a": loop}, "oneOf": [{"$ref": "#/$defs/a"}] * 2}
    kinds = [[f"{one}.{other}" for other in range(100)] for one in range(64)]
    tagged = [{"type": "object", "properties": {"k": {"enum": kind}}, "required": ["k"]} for kind in kinds]
    yield "long lists", {"oneOf": tagged}
    yield "backtracking", {"type": "object", "required": ["a" * 100 + "!"], "patternProperties": {"^(a+)+$": {}}}
    names = [f"p{number}" for number in range(1000)]
    yield (
        "patterns by names",
        {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": names,
            "patternProperties": {f"^q{number}_(a+)+$": {} for number in range(1000)},
            "additionalProperties": False,
        },
    )
    refs = {f"p{number}": {"$ref": f"#/$defs/d{number}"} for number in range(1000)}
    chain = {
        f"d{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n + n % 50 // 49}"}}} for n in range(999)
    }
    yield "references", {"type": "object", "properties": refs, "$defs": {**chain, "d999": INTEGER}}


@pytest.mark.parametrize("schema", [pytest.param(schema, id=name) for name, schema in hostile()])
def test_d19_reading_a_schema_is_bounded_whatever_the_schema(schema: Any) -> None:
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        sites = walk(schema)
        check_schema(sites)
        for engine in ("xgrammar", "guidance", "outlines", "lm_format_enforcer"):
            support(engine).findings(sites, OPEN)
    finally:
        sys.setprofile(None)
    assert calls < MAX_CALLS


# -- the tables against the engines --------------------------------------------------------------------------

OBJECTS: list[Any] = [
    {}, {"a": 1}, {"a": "s"}, {"b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": "s"}, {"z": 1}, {"z": "s"}, {"x_a": 1},
    {"x_a": "s"}, {"a": 1, "x_a": 1}, {"a": {"a": 1}}, {"a": [1]}, {"ab": 1}, {"A": 1}, {"a": None},
]  # fmt: skip
ARRAYS: list[Any] = [
    [],
    [1],
    [1, 1],
    [1, 2],
    [1, 2, 3],
    ["a"],
    [1, "a"],
    ["a", 1],
    [1, "a", 2],
    [[1]],
    [{"a": 1}],
    [7, 8],
]
SCALARS: list[Any] = [
    None, True, 0, 1, -1, 3, 5, 7, 10, 100, 1.5, 0.5, -0.5, 2.75, "", "a", "ab", "abc", "b", "1", "A", "x_a", "é",
    'a"b', "a\\b", "a\nb", "2020-01-01", "2020-02-30", "a@b.co", 'b"',
]  # fmt: skip
BROKEN = ['{"a":1', "[1,]", "01", "1.", '"a', '{"a":1,}', '"\x01"', '"""', "", "{}}", '"\n"', '{"a" 1}']

GENERATED: list[Any] = [
    *({"type": kind} for kind in ("integer", "number", "string", "boolean", "null", "array", "object")),
    {}, {"type": ["integer", "null"]}, {"type": ["object", "string"], "properties": {"a": INTEGER}},
    *({"type": kind, **bounds} for kind in ("integer", "number", ["integer", "string"]) for bounds in (
        {"minimum": 1}, {"maximum": 5}, {"minimum": -1, "maximum": 5}, {"exclusiveMinimum": 1}, {"exclusiveMaximum": 5},
        {"multipleOf": 5}, {"multipleOf": 5, "minimum": 1}, {"multipleOf": 0.5}, {"minimum": 0.5})),
    *({"type": "string", **limits} for limits in (
        {"minLength": 2}, {"maxLength": 2}, {"minLength": 1, "maxLength": 2}, {"pattern": "^[a-z]+$"}, {"pattern": "b"},
        {"pattern": "^a|b$"}, {"pattern": "^(a|b)$"}, {"pattern": "^.*$"}, {"pattern": '^"$'}, {"pattern": "^[^a]+$"},
        {"pattern": "^[a-z]+$", "maxLength": 2}, {"format": "date"}, {"format": "email"}, {"format": "made-up"})),
    *({"type": "array", **limits} for limits in (
        {"items": INTEGER}, {"items": INTEGER, "minItems": 2}, {"minItems": 1, "maxItems": 2}, {"items": False},
        {"prefixItems": [INTEGER, {"type": "string"}]}, {"prefixItems": [INTEGER], "items": False},
        {"prefixItems": [INTEGER], "items": {"type": "string"}, "maxItems": 2}, {"uniqueItems": True},
        {"contains": INTEGER}, {"prefixItems": [INTEGER], "unevaluatedItems": False})),
    *({"type": "object", **limits} for limits in (
        {"properties": {"a": INTEGER}}, {"properties": {"a": INTEGER}, "required": ["a"]}, {"required": ["z"]},
        {"properties": {"a": INTEGER}, "additionalProperties": False}, {"additionalProperties": INTEGER},
        {"properties": {"a": INTEGER}, "additionalProperties": {"type": "string"}}, {"minProperties": 1},
        {"maxProperties": 1}, {"properties": {"a": {}, "b": {}}, "maxProperties": 1},
        {"patternProperties": {"^x_[a-z]+$": INTEGER}}, {"propertyNames": {"pattern": "^[a-z]+$"}},
        {"patternProperties": {"^x_[a-z]+$": INTEGER}, "additionalProperties": False},
        {"properties": {"a": INTEGER}, "patternProperties": {"^[a-z]+$": {"type": "string"}},
         "additionalProperties": False},
        {"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": False}, {"dependentRequired": {"a": ["b"]}},
        {"properties": {"a": INTEGER}, "unevaluatedProperties": False})),
    {"enum": ["a", 1, None]}, {"enum": [{"a": 1}]}, {"const": [1, 2]}, {"const": "a"},
    {"type": "integer", "enum": [1, "a"]},
    {"minLength": 2}, {"properties": {"a": INTEGER}}, {"items": INTEGER}, {"required": ["a"]}, {"multipleOf": 5},
    {"anyOf": [INTEGER, {"type": "string"}]}, {"anyOf": [{"minimum": 5}, {"maximum": 1}], "type": "integer"},
    {"oneOf": [INTEGER, {"type": "string"}]}, {"oneOf": [INTEGER, {"type": "number"}]}, {"allOf": [INTEGER]},
    {"allOf": [INTEGER, {"minimum": 3}]}, {"allOf": [INTEGER], "minimum": 3}, {"not": INTEGER},
    {"if": INTEGER, "then": {"minimum": 3}}, {"$ref": "#/$defs/x", "$defs": {"x": INTEGER}},
    {"$ref": "#/$defs/x", "$defs": {"x": INTEGER}, "minimum": 3},
    {"$ref": "#x", "$defs": {"x": {"$anchor": "x", **INTEGER}}},
    {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}},
                                          "additionalProperties": False}}},
]  # fmt: skip


def labelled(schema: Any) -> list[tuple[bool, str]]:
    """Texts with the verdict of an independent validator."""
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    tests = []
    for document in (*SCALARS, *ARRAYS, *OBJECTS):
        valid = validator.is_valid(document)
        tests += [(valid, json.dumps(document, ensure_ascii=False, separators=(",", ":")))]
        tests += [(valid, json.dumps(document, ensure_ascii=False, indent=1))]
    return tests + [(False, text) for text in BROKEN]


@pytest.mark.parametrize("schema", GENERATED, ids=lambda schema: json.dumps(schema)[:100])
@pytest.mark.parametrize("engine", ["xgrammar", "guidance"])
def test_c3_a_schema_without_findings_is_enforced_exactly(engine: str, schema: Any) -> None:
    findings = support(engine).findings(schema, OPEN)
    if findings:
        return
    tests = labelled(schema)
    verdicts = ENGINES[engine](schema, [text for _, text in tests])
    if verdicts is None:
        assert engine == "guidance", "only guidance's own refusals are left to it"
        return
    wrong = [text for (valid, text), taken in zip(tests, verdicts, strict=True) if taken != valid]
    assert wrong == []


@pytest.mark.parametrize("engine", ["xgrammar", "guidance"])
def test_c3_findings_are_not_given_away(engine: str) -> None:
    # Most findings must be true: an allow-list that allowed nothing would pass the test above.
    false_alarms = []
    for schema in GENERATED:
        if support(engine).findings(schema, OPEN):
            tests = labelled(schema)
            verdicts = ENGINES[engine](schema, [text for _, text in tests])
            if verdicts is not None and verdicts == [valid for valid, _ in tests]:
                false_alarms.append(schema)
    assert len(false_alarms) <= 2, false_alarms


# -- literals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "kept", "changed"),
    [
        ("xgrammar", 2**63 - 1, 2**63),
        ("guidance", 2**53, 2**53 + 1),
        ("guidance", -(2**53), -(2**63)),  # llguidance ends the whole process at the latter
        ("outlines", 2**63 - 1, -(2**63) - 1),
    ],
)
def test_c2_1_an_integer_that_an_engine_would_turn_into_another_is_refused(
    engine: str, kept: int, changed: int
) -> None:
    compact = GrammarOptions(whitespace="compact")
    assert not pointers({"enum": [kept, "a"]}, engine)
    assert pointers({"const": changed}, engine) == ["/const"]
    assert pointers({"enum": ["a", {"x": [changed]}]}, engine, compact) == ["/enum"]
    assert not pointers({"enum": [str(changed), 1e300]}, engine)


# -- the shared cases ----------------------------------------------------------------------------------------


def shared_cases(name: str) -> Iterator[tuple[str, Any, list[tuple[bool, str]]]]:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path.name} is not here: the shared cases are only on the project's own machines")
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            tests = [
                (test["valid"], test["text"] if "text" in test else json.dumps(test["data"], ensure_ascii=False))
                for test in case.get("tests", ())
            ]
            yield case["id"], case["spec"], tests


def judged(engine: str, schema: Any, tests: list[tuple[bool, str]]) -> str:
    verdicts = ENGINES[engine](schema, [text for _, text in tests])
    if verdicts is None:
        return "refused"
    pairs = list(zip(tests, verdicts, strict=True))
    if any(taken and not valid for (valid, _), taken in pairs):
        return "accepts invalid"
    return "solved" if all(taken == valid for (valid, _), taken in pairs) else "rejects valid"


def test_c3_shared_feature_cases_go_to_an_engine_that_solves_them() -> None:
    failures = []
    for name, schema, tests in shared_cases("cases/json_features.jsonl"):
        try:
            check_schema(schema)
        except SpecError:
            if any(valid for valid, _ in tests):
                failures.append((name, "refused"))
            continue
        outcome = "unsupported"
        for engine in ENGINES:
            if not support(engine).findings(schema, OPEN):
                outcome = judged(engine, schema, tests)
                if outcome != "refused":
                    break
        if outcome in ("accepts invalid", "rejects valid"):
            failures.append((name, outcome))
    assert failures == []


@pytest.mark.parametrize("engine", ENGINES)
def test_c2_5_patterns_that_no_string_has_all_of_may_still_match_one_name(engine: str) -> None:
    # Of these three patterns the first two match "ab", and no string has all three.
    begins, ends, other = "^a.*$", "^.*b$", "^c.*$"
    apart = {
        "oneOf": [
            {"type": "string", "pattern": begins, "allOf": [{"pattern": ends}]},
            {"type": "string", "pattern": other},
        ]
    }
    named = {"type": "object", "patternProperties": {begins: {}, ends: {}, other: {}}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"s": apart, "o": named}, "additionalProperties": False}
    found = {(finding.pointer, finding.reason) for finding in support(engine).findings(schema, OPEN)}
    assert ("/properties/o/patternProperties", "two patterns may match one name") in found
