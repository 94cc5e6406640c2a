"""Compiling: artifacts that are shared, options that change the meaning, rows as wide as the model, and the end."""

from __future__ import annotations

import json
import threading
from typing import Any

from grammar_backends.contract import CompiledGrammar, GrammarKind, GrammarOptions, GrammarSpec, unpack_ids
from grammar_backends.errors import CompileError, SpecError, UnsupportedFeature
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import EVERY_VOCABULARY, Unsupported, law
from grammar_backends_conformance.laws.samples import Sample, declares


def takes(lab: Lab, spec: GrammarSpec, text: str) -> bool:
    """Whether a text is of the language: every token allowed in its turn, and a stop token at the end."""
    grammar = lab.new_grammar(spec)
    return grammar.accept_tokens("r", [*lab.encode(text), lab.stop]) and grammar.is_terminated()


@law("B2", "artifact-is-shared-grammars-are-not")
def an_artifact_is_shared_and_grammars_are_not(lab: Lab, sample: Sample) -> None:
    """One compiled grammar makes any number of grammars, each at the start, whatever the others went through."""
    compiled = lab.compile(sample.spec)
    lab.demand(isinstance(compiled, CompiledGrammar), "compile_grammar gives no CompiledGrammar", True, compiled)
    lab.equal(compiled.spec, sample.spec, "a compiled grammar does not know its spec")
    untouched = lab.state(lab.new_grammar(sample.spec))
    grammars = [lab.new_grammar(sample.spec) for _ in (*sample.texts, *sample.partial)]
    for grammar, text in zip(grammars, (*sample.texts, *sample.partial), strict=True):
        lab.same(grammar, untouched, "a grammar does not start at the start")
        lab.advanced(grammar, text)
        grammar.accept_tokens("r", [lab.stop])
    lab.same(lab.new_grammar(sample.spec), untouched, "grammars left something in what they were made of")


@law("B3", "specs-do-not-mix")
def specs_that_were_compiled_before_do_not_matter(lab: Lab) -> None:
    """What a spec compiles to depends on the spec alone, not on what was compiled before or in between."""
    before = [lab.state(lab.new_grammar(sample.spec)) for sample in lab.samples]
    for sample, state in [*zip(lab.samples, before, strict=True)][::-1]:
        anew = lab.new_grammar(sample.spec, lab.compile_anew(sample.spec))
        lab.same(anew, state, f"{sample.name} compiled after others gives another grammar")
        lab.same_future(anew, lab.new_grammar(sample.spec), lab.encode(sample.longest), "compiled again it differs")
    for sample, state in zip(lab.samples, before, strict=True):
        lab.same(lab.new_grammar(sample.spec), state, f"{sample.name} makes other grammars after others were compiled")


@law("E6", "loaded-equals-compiled", profile="artifacts", vocabularies=EVERY_VOCABULARY)
def a_loaded_artifact_answers_as_the_compiled_one(lab: Lab, sample: Sample) -> None:
    """An artifact that was written as bytes and read by another engine allows and accepts what the compiled one does,
    at every place of every text; writing it leaves it as it was, and what was read can be written again."""
    if lab.backend.serializer is None:
        raise Unsupported("the engine has no serial form of its artifacts")
    untouched = lab.state(lab.new_grammar(sample.spec))
    loaded = lab.reload(sample.spec)
    lab.equal(loaded.spec, sample.spec, "a loaded grammar does not know its spec")
    for text in (*sample.texts, *sample.partial, *sample.wrong):
        grammar, twin = lab.new_grammar(sample.spec, loaded, "reload"), lab.new_grammar(sample.spec)
        lab.same_future(grammar, twin, [*lab.encode(text), lab.stop], "a loaded grammar differs from the compiled one")
    lab.same(lab.new_grammar(sample.spec), untouched, "dumping changed the compiled grammar")
    again = lab.new_grammar(sample.spec, lab.reload(sample.spec, times=2), "reload")
    lab.same_future(
        again, lab.new_grammar(sample.spec), lab.encode(sample.longest), "dumped and loaded twice it differs"
    )


POINT: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "array", "items": {"type": "boolean"}}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
FLAGS: dict[str, Any] = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
"""For a backend that does not enforce objects."""

COMPACT = GrammarOptions(whitespace="compact")
CLOSED = GrammarOptions(additional_properties="closed")


@law("B5", "compact-whitespace", profile="compact_whitespace")
def compact_whitespace_is_an_override(lab: Lab) -> None:
    """With whitespace="compact" no white space is taken between JSON tokens, and no key of a schema loosens that;
    the same schema without the option is not affected."""
    declared = lab.capabilities.compact_whitespace and GrammarKind.JSON_SCHEMA in lab.capabilities.kinds
    lab.require(declared, GrammarSpec.json_schema(FLAGS, options=COMPACT))
    loosened = {"x-guidance": {"whitespace_flexible": True, "lenient": True}, **FLAGS}
    flags = "[true,false]"
    for schema, text in ((FLAGS, flags), (loosened, flags), (POINT, '{"x":1,"y":[true,false]}')):
        compact = GrammarSpec.json_schema(schema, options=COMPACT)
        if schema is not FLAGS and isinstance(lab.refusal(compact), SpecError):
            continue
        lab.equal(takes(lab, compact, text), True, "the compact form was refused")
        for spaced in _spaced(text):
            lab.equal(takes(lab, compact, spaced), False, f"white space was taken in spite of the option: {spaced!r}")
    lab.equal(takes(lab, GrammarSpec.json_schema(FLAGS), "[true, false]"), True, "the option reached another spec")


def _spaced(text: str) -> list[str]:
    """The text with one white-space character at each place between JSON tokens, and around all."""
    cuts = [0, *(index for index in range(1, len(text)) if {text[index], text[index - 1]} & set("[]{},:")), len(text)]
    return [text[:cut] + " \n\t\r"[cut % 4] + text[cut:] for cut in cuts]


@law("B5", "any-whitespace-by-default", profile="json_schema")
def any_whitespace_is_allowed_between_tokens_by_default(lab: Lab) -> None:
    """Without options JSON white space of any kind and length may stand between JSON tokens, and none is needed."""
    lab.require(GrammarKind.JSON_SCHEMA in lab.capabilities.kinds, GrammarSpec.json_schema(FLAGS))
    spec = GrammarSpec.json_schema(FLAGS)
    for text in ("[true,false]", "[true, false]", "[ true , false ]", "[\n\ttrue\r\n,   false\n]"):
        lab.equal(takes(lab, spec, text), True, f"white space was refused: {text!r}")
    point = GrammarSpec.json_schema(POINT)
    if not isinstance(lab.refusal(point), SpecError):
        for text in ('{"x":1,"y":[]}', '{"x": 1, "y": [true, false]}', '{\n\t"x" : 1 ,\r\n"y":[ true ]\n}'):
            lab.equal(takes(lab, point, text), True, f"white space was refused: {text!r}")
    for text in ("[true,\u00a0false]", "[tr ue,false]", "[true,\x0bfalse]"):
        lab.equal(takes(lab, spec, text), False, f"what is no JSON white space was taken: {text!r}")


@law("B5", "bounded-whitespace", profile="json_schema")
def whitespace_can_be_bounded(lab: Lab) -> None:
    """With `max_whitespace` that many white-space characters in a row are taken, and one more is refused."""
    lab.require(GrammarKind.JSON_SCHEMA in lab.capabilities.kinds, GrammarSpec.json_schema(FLAGS))
    spec = GrammarSpec.json_schema(FLAGS, options=GrammarOptions(max_whitespace=2))
    if isinstance(lab.refusal(spec), UnsupportedFeature):
        return
    for text, legal in (("[true,false]", True), ("[true,  false]", True), ("[true,   false]", False)):
        lab.equal(takes(lab, spec, text), legal, f"max_whitespace=2 and {text!r}")


@law("B5", "closed-objects", profile="closed_objects")
def objects_can_be_closed(lab: Lab) -> None:
    """With additional_properties="closed" an object takes no property that its schema does not list."""
    declared = lab.capabilities.closed_objects and GrammarKind.JSON_SCHEMA in lab.capabilities.kinds
    schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}
    closed = GrammarSpec.json_schema(schema, options=CLOSED)
    lab.require(declared, closed)
    lab.equal(takes(lab, closed, '{"x": true}'), True, "a listed property was refused")
    for text in ('{"x": true, "z": 2}', '{"z": 1, "x": true}', '{"z": true}', "{}"):
        lab.equal(takes(lab, closed, text), False, f"a closed object took {text!r}")


@law("E6", "options-are-loaded", profile="artifacts")
def a_loaded_artifact_has_the_options_of_the_compiled_one(lab: Lab) -> None:
    """An artifact that was compiled with options follows them after it was written as bytes and read."""
    if lab.backend.serializer is None:
        raise Unsupported("the engine has no serial form of its artifacts")
    declared = lab.capabilities.compact_whitespace and GrammarKind.JSON_SCHEMA in lab.capabilities.kinds
    for options, spaced in ((COMPACT, False), (GrammarOptions(), True)) if declared else ():
        spec = GrammarSpec.json_schema(FLAGS, options=options)
        for text, legal in (("[true,false]", True), ("[true, false]", spaced)):
            grammar = lab.new_grammar(spec, lab.reload(spec), "reload")
            accepted = grammar.accept_tokens("r", [*lab.encode(text), lab.stop])
            lab.equal(accepted, legal, f"a loaded grammar and {text!r}")


@law("B3", "options-are-part-of-the-meaning", profile="compact_whitespace")
def options_are_part_of_the_meaning(lab: Lab) -> None:
    """Compiled with and without options in any order, each grammar follows its own."""
    declared = lab.capabilities.compact_whitespace and GrammarKind.JSON_SCHEMA in lab.capabilities.kinds
    lab.require(declared, GrammarSpec.json_schema(FLAGS, options=COMPACT))
    loose, compact = GrammarSpec.json_schema(FLAGS), GrammarSpec.json_schema(FLAGS, options=COMPACT)
    for spec in (loose, compact, loose, compact):
        grammar = lab.new_grammar(spec, lab.compile_anew(spec))
        accepted = grammar.accept_tokens("r", lab.encode("[true, false]"))
        lab.equal(accepted, spec is loose, "a grammar follows the options of another")


PATTERNS = (
    (r"^\d+$", "12", "\u0661"),
    (r"^\w$", "a", "\u00e9"),
    (r"^[^\W_]{2}$", "a1", "\u00e9a"),
    (r"^(a|b)$", "b", "ab"),
)
"""Patterns, with a text inside and one outside of the layer's dialect."""


@law("C3", "patterns-of-schemas", profile="json_schema")
def patterns_of_schemas_have_the_dialect_of_the_layer(lab: Lab) -> None:
    """A pattern inside a schema means what it means as a regex; what only looks like one stays as it is."""
    lab.require(GrammarKind.JSON_SCHEMA in lab.capabilities.kinds, GrammarSpec.json_schema(FLAGS))
    for pattern, inside, outside in PATTERNS:
        properties = {"pattern": {"type": "string", "pattern": pattern}, "enum": {"enum": [r"\d"]}}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        spec = GrammarSpec.json_schema(schema)
        if isinstance(lab.refusal(spec), UnsupportedFeature):
            continue
        for value, other, legal in ((inside, r"\d", True), (outside, r"\d", False), (inside, "1", False)):
            text = json.dumps({"pattern": value, "enum": other}, ensure_ascii=False)
            lab.equal(takes(lab, spec, text), legal, f"the pattern {pattern!r} and {text!r}")


@law("B6", "rows-cover-the-model")
def rows_cover_the_width_of_the_model(lab: Lab, sample: Sample) -> None:
    """For a model padded to any width rows have that width, allow the same tokens, and never a padded one."""
    size = lab.vocabulary.size
    expected = [lab.allowed(lab.grammar(sample.spec, text)) for text in (*sample.partial, *sample.texts)]
    for width in {size, size + 1, -(-size // 32) * 32, size + 100, size + 1000}:
        wide = lab.widened(width)
        for text, ids in zip((*sample.partial, *sample.texts), expected, strict=True):
            grammar = wide.grammar(sample.spec, text)
            row = wide.row(grammar)
            wide.equal(row.size, -(-width // 32), "a row does not cover the model's width")
            wide.equal(set(unpack_ids(row)), ids, f"in rows of {width} ids other tokens are allowed")
            for id_ in {size, width - 1, width} - set(range(size)):
                wide.equal(grammar.accept_tokens("r", [id_]), False, f"the padded id {id_} was accepted")


@law("B6", "needs-no-single-bytes", vocabularies=("byte",))
def a_vocabulary_needs_no_single_bytes(lab: Lab) -> None:
    """A vocabulary that cannot spell every byte does; what it cannot spell at all is a compile error (B12)."""
    tokens = [b'"', b"ab", b"{", b"}", b"a", b'{"', b'":', b" ", b"<f>", b"1", b"<eos>"]
    few = lab.with_tokens(tokens, [10], [10])
    spelled = 0
    for sample in lab.samples:
        for text in (*sample.texts, *sample.language.closed):
            ids = [id_ for id_, token in enumerate(tokens[:10]) if token == text.encode()]
            if not ids or isinstance(few.refusal(sample.spec), SpecError):
                continue
            spelled += 1
            grammar = few.new_grammar(sample.spec)
            few.demand(ids[0] in few.allowed(grammar), f"{text!r} as one token is masked", "allowed", "masked")
            few.equal(grammar.accept_tokens("r", [ids[0], 10]), True, f"{text!r} as one token was refused")
    impossible = {
        "choice": GrammarSpec.choice(["xyz"]),
        "regex": GrammarSpec.regex("xyz"),
        "json_schema": GrammarSpec.json_schema({"enum": ["xyz"]}),
        "ebnf": GrammarSpec.grammar('root ::= "xyz"', "ebnf"),
    }
    for writing, spec in impossible.items():
        if declares(lab.capabilities, writing) and writing != "json_schema":
            error = few.refusal(spec)
            few.demand(isinstance(error, SpecError), "what no token can spell compiles", "SpecError", error)


@law("B7", "names-are-text-too")
def the_text_of_a_control_token_can_be_spelled_in_bytes(lab: Lab) -> None:
    """A constraint that asks for the name of a control token as text gets it spelled in text tokens."""
    name = next(
        (
            lab.vocabulary.special_names[id_]
            for id_ in sorted(lab.controls)
            if _is_plain(lab.vocabulary.special_names[id_])
        ),
        "<think>",
    )
    specs = {
        "choice": (GrammarSpec.choice([name]), name),
        "regex": (GrammarSpec.regex(name), name),
        "json_schema": (GrammarSpec.json_schema({"enum": [name]}), f'"{name}"'),
        "ebnf": (GrammarSpec.grammar(f'root ::= "{name}"', "ebnf"), name),
    }
    for writing, (spec, text) in specs.items():
        if declares(lab.capabilities, writing):
            grammar = lab.new_grammar(spec)
            for token in lab.encode(text):
                allowed = lab.allowed(grammar)
                lab.equal(allowed & lab.vocabulary.special_ids, set(), f"special tokens are allowed in {text!r}")
                lab.equal(grammar.accept_tokens("r", [token]), True, f"{text!r} as text was refused")
            lab.equal(grammar.accept_tokens("r", [lab.stop]), True, f"{text!r} as text is not complete")
    for sample in lab.samples:
        loop = sample.language.loop
        if sample.language.name in ("anything", "string", "record", "object", "calls") and loop:
            lab.grammar(sample.spec, loop.head + name)


def _is_plain(name: str) -> bool:
    return name.startswith("<") and name.endswith(">") and name[1:-1].isalpha()


@law("B7", "named-tokens", profile="grammar-lark")
def a_control_token_is_allowed_only_where_a_grammar_names_it(lab: Lab) -> None:
    """Lark's `<name>`, unless refused, allows that control token there, and nowhere else; no other spec notices."""
    ids = [id_ for id_ in sorted(lab.controls) if _is_plain(lab.vocabulary.special_names[id_])]
    id_ = ids[0]
    name = lab.vocabulary.special_names[id_]
    spec = GrammarSpec.grammar(f'start: {name} /[^x]*/ "x"', "lark")
    lab.require(declares(lab.capabilities, "lark"), spec)
    if isinstance(refusal := lab.refusal(spec), UnsupportedFeature):
        raise Unsupported(str(refusal))  # not all engines that read Lark know tokens
    free = lab.samples[0].spec
    before = lab.state(lab.new_grammar(free, lab.compile_anew(free)))
    grammar = lab.new_grammar(spec)
    lab.equal(lab.allowed(grammar), {id_}, f"only the token {name} is named at the start")
    lab.equal(grammar.accept_tokens("r", lab.encode(name)), False, f"{name} spelled in text was taken for the token")
    lab.equal(grammar.accept_tokens("r", [id_]), True, f"the token {name} was refused where it is named")
    allowed = lab.allowed(grammar)
    lab.equal(allowed & lab.vocabulary.special_ids, set(), "special tokens are allowed in text after a named one")
    lab.demand({*lab.encode("a"), *lab.encode("<")} <= allowed, "text is masked after a named token", True, False)
    lab.equal(grammar.accept_tokens("r", [id_]), False, f"the token {name} was accepted as text")
    grammar.rollback(1)
    lab.equal(lab.allowed(grammar), {id_}, "rolling back a named token leads elsewhere")
    lab.equal(grammar.accept_tokens("r", [id_, *lab.encode("<x"), lab.stop]), True, "a text was refused")
    after = lab.state(lab.new_grammar(free, lab.compile_anew(free)))
    lab.equal(after, before, "a named token reached the grammar of another spec")


EMPTY_LANGUAGES = {
    "regex": [GrammarSpec.regex(r"[^\s\S]"), GrammarSpec.regex(r"a[^\s\S]b")],
    "json_schema": [
        GrammarSpec.json_schema(False),
        GrammarSpec.json_schema({"$ref": "#"}),
        GrammarSpec.json_schema({"enum": []}),
    ],
    "ebnf": [GrammarSpec.grammar("root ::= root", "ebnf"), GrammarSpec.grammar('root ::= "a" root', "ebnf")],
    "gbnf": [GrammarSpec.grammar("root ::= root", "gbnf")],
    "lark": [GrammarSpec.grammar("start: start", "lark")],
}
MALFORMED = {
    "regex": [GrammarSpec.regex("(a"), GrammarSpec.regex("a{2,1}"), GrammarSpec.regex("[b-a]")],
    "json_schema": [GrammarSpec.json_schema({"type": "no such type"}), GrammarSpec.json_schema({"$ref": "#/nowhere"})],
    "ebnf": [GrammarSpec.grammar('root ::= "a', "ebnf"), GrammarSpec.grammar("root ::= other", "ebnf")],
    "gbnf": [GrammarSpec.grammar('root ::= "a', "gbnf"), GrammarSpec.grammar("root ::= other", "gbnf")],
    "lark": [GrammarSpec.grammar("start: other", "lark"), GrammarSpec.grammar('start: "a', "lark")],
    "legacy": [
        GrammarSpec.structural_tag({"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<g>"]})
    ],
    "format": [GrammarSpec.structural_tag({"format": {"type": "no such format"}})],
}


@law("B12", "empty-language-is-a-compile-error")
def a_language_without_texts_is_a_compile_error(lab: Lab) -> None:
    """A constraint that no text satisfies does not compile: SpecError, never a grammar that ends at once."""
    for writing, specs in EMPTY_LANGUAGES.items():
        for spec in specs if declares(lab.capabilities, writing) else ():
            error = lab.refusal(spec)
            lab.demand(
                isinstance(error, SpecError), f"no text satisfies {spec.text!r}, and it compiles", "SpecError", error
            )


@law("B12", "malformed-is-the-clients-fault")
def a_malformed_spec_is_the_clients_fault(lab: Lab) -> None:
    """A malformed spec raises SpecError with a short message, every time; the backend remains usable."""
    expected = lab.state(lab.new_grammar(lab.samples[0].spec))
    for writing, specs in MALFORMED.items():
        for spec in specs if declares(lab.capabilities, writing) else ():
            for _ in range(2):
                error = lab.refusal(spec)
                lab.demand(
                    isinstance(error, SpecError), f"malformed and not refused: {spec.text!r}", "SpecError", error
                )
                lab.demand(
                    0 < len(str(error)) < 600, "a message is empty or floods a log", "< 600 characters", str(error)
                )
    anew = lab.compile_anew(lab.samples[0].spec)
    lab.same(lab.new_grammar(lab.samples[0].spec, anew), expected, "refused specs changed what compiles afterwards")


@law("B13", "destroy-is-idempotent")
def destroy_is_idempotent_and_final(lab: Lab, sample: Sample) -> None:
    """Destroying a backend twice is once; it compiles nothing more, and its grammars live on."""
    other = lab.widened(lab.vocabulary.width)
    grammar = other.new_grammar(sample.spec)
    twin = lab.new_grammar(sample.spec)
    compiled = other.compile(sample.spec)
    tokens = lab.encode(sample.longest)
    grammar.accept_tokens("r", tokens[: len(tokens) // 2])
    twin.accept_tokens("r", tokens[: len(tokens) // 2])
    other.backend.destroy()
    other.backend.destroy()
    error = other.refusal(sample.spec)
    lab.demand(isinstance(error, CompileError), "a destroyed backend compiles", "CompileError", error)
    lab.same_future(grammar, twin, [*tokens[len(tokens) // 2 :], lab.stop], "a grammar did not outlive its backend")
    lab.same(other.new_grammar(sample.spec, compiled), lab.state(lab.new_grammar(sample.spec)), "an artifact did not")


@law("A24", "compiling-lets-others-run", vocabularies=("byte",))
def other_threads_run_while_one_compiles(lab: Lab) -> None:
    """While one thread compiles, others run: among many compilations at least one lets another thread do something."""
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        # Python may hand over between two short compilations, and an engine that remembers them has only such; among
        # so many it does so during one.
        for attempt in range(5_000):
            before = ticks[0]
            lab.backend.compile_grammar(lab.samples[attempt % len(lab.samples)].spec)
            if ticks[0] > before:
                break
        lab.demand(ticks[0] > before, "no other thread ran during any compilation", "progress", "none")
    finally:
        done.set()
        thread.join()
