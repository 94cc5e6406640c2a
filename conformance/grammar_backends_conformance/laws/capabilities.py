"""What a backend declares works, and what it does not declare is refused, never silently accepted."""

from __future__ import annotations

from typing import Any

from grammar_backends.contract import GrammarKind, GrammarOptions, GrammarSpec
from grammar_backends.errors import UnsupportedFeature
from grammar_backends_conformance.laws.compiling import takes
from grammar_backends_conformance.laws.journal import RecordingGrammar
from grammar_backends_conformance.laws.lab import Lab
from grammar_backends_conformance.laws.law import Unsupported, law
from grammar_backends_conformance.laws.samples import LANGUAGES, Language, all_samples, declares


def first_of(writing: str) -> Language:
    """The first language that has this writing."""
    return next(language for language in LANGUAGES if writing in language.writings)


def check_writing(lab: Lab, writing: str) -> None:
    """What every declared kind, syntax and form must do; undeclared, all of its languages must be refused."""
    declared = declares(lab.capabilities, writing)
    if not declared:
        for language in LANGUAGES:
            if writing in language.writings and language is not first_of(writing):
                error = lab.refusal(language.writings[writing])
                message = f"{writing} is not declared, and {language.name} is not refused as unsupported"
                lab.demand(isinstance(error, UnsupportedFeature), message, "UnsupportedFeature", error)
    lab.require(declared, first_of(writing).writings[writing])
    samples = all_samples(lab, writing)
    lab.demand(bool(samples), f"{writing} is declared, and every sample of it is refused", "some", "none")
    for sample in samples:
        for text in sample.texts:
            lab.equal(takes(lab, sample.spec, text), True, f"{sample.name} refuses {text!r}")
        for text in (*sample.partial, *sample.wrong):
            lab.equal(takes(lab, sample.spec, text), False, f"{sample.name} takes {text!r}")
        for text in sample.wrong:
            begun = lab.new_grammar(sample.spec).accept_tokens("r", lab.encode(text))
            lab.equal(begun, False, f"{sample.name} goes on after {text!r}, with which no text begins")
        for text in sample.language.closed:
            lab.equal(takes(lab, sample.spec, text + "a"), False, f"{sample.name} takes {text + 'a'!r}")


@law("B4", "something-is-declared")
def something_is_declared_and_works(lab: Lab) -> None:
    """A backend declares at least one kind, and each kind, syntax and form that it declares has a sample that works."""
    lab.demand(bool(lab.capabilities.kinds), "no kind is declared", "one", lab.capabilities.kinds)
    kinds = {sample.spec.kind for sample in lab.samples}
    lab.equal(kinds, set(lab.capabilities.kinds), "there are kinds that are declared and refuse every sample")


@law("B4", "regex", profile="regex")
def regex_works_as_declared(lab: Lab) -> None:
    """Patterns are matched from their first to their last character."""
    check_writing(lab, "regex")


@law("B4", "choice", profile="choice")
def choice_works_as_declared(lab: Lab) -> None:
    """A choice takes exactly one of its texts, also where one is the start of another."""
    check_writing(lab, "choice")


@law("B4", "json-schema", profile="json_schema")
def json_schema_works_as_declared(lab: Lab) -> None:
    """JSON that is valid under the schema is taken, and no other."""
    check_writing(lab, "json_schema")


@law("B4", "json-object", profile="json_object")
def json_object_means_objects_unless_told_otherwise(lab: Lab) -> None:
    """Any JSON object is taken, and no other JSON value unless `json_object_only` is off."""
    check_writing(lab, "json_object")
    anything = GrammarSpec.json_object(options=GrammarOptions(json_object_only=False))
    loose = not isinstance(lab.refusal(anything), UnsupportedFeature)
    for text, is_object in (('{"a": [1, null]}', True), ("{}", True), ("[1]", False), ('"a"', False), ("1", False)):
        lab.equal(takes(lab, GrammarSpec.json_object(), text), is_object, f"json_object and {text!r}")
        if loose:
            lab.equal(takes(lab, anything, text), True, f"any JSON value and {text!r}")


@law("B4", "ebnf", profile="grammar-ebnf")
def ebnf_works_as_declared(lab: Lab) -> None:
    """Grammars in EBNF are enforced, and recognised without being told the syntax."""
    check_writing(lab, "ebnf")
    lab.equal(takes(lab, GrammarSpec.grammar('root ::= "a"+'), "aa"), True, "EBNF was not recognised")


@law("B4", "gbnf", profile="grammar-gbnf")
def gbnf_works_as_declared(lab: Lab) -> None:
    """Grammars in GBNF are enforced."""
    check_writing(lab, "gbnf")


@law("B4", "lark", profile="grammar-lark")
def lark_works_as_declared(lab: Lab) -> None:
    """Grammars in Lark are enforced, and recognised without being told the syntax."""
    check_writing(lab, "lark")
    lab.equal(takes(lab, GrammarSpec.grammar('start: "a"+'), "aa"), True, "Lark was not recognised")


@law("B10", "legacy-tags", profile="structural_tag")
def legacy_structural_tags_work_as_declared(lab: Lab) -> None:
    """Structural tags with structures and triggers constrain what follows a trigger, and nothing else."""
    check_writing(lab, "legacy")


@law("B10", "format-tags", profile="structural_tag")
def structural_tags_with_a_format_work_as_declared(lab: Lab) -> None:
    """Structural tags with a format are enforced."""
    check_writing(lab, "format")


def _walk(lab: Lab) -> list[tuple[RecordingGrammar, list[int]]]:
    """Grammars at every place of one text of each sample, with the tokens that follow there."""
    found = []
    for sample in lab.samples:
        tokens = [*lab.encode(sample.texts[0]), lab.stop]
        for end in range(len(tokens) + 1):
            grammar = lab.new_grammar(sample.spec)
            grammar.accept_tokens("r", tokens[:end])
            found.append((grammar, tokens[end:]))
    return found


def _check_forced(lab: Lab, method: str, declared: bool) -> list[tuple[RecordingGrammar, Any, list[int]]]:
    """Answers of a `forced_*` method at many places, none of which may change the grammar; and what follows there."""
    answers = []
    for grammar, following in _walk(lab):
        before = lab.state(grammar)
        ask = getattr(grammar, method)
        if not declared:
            lab.raises(UnsupportedFeature, ask, f"{method} is not declared, and answers")
            continue
        answer = ask()
        lab.equal(ask(), answer, f"{method} gives another answer the second time")
        lab.same(grammar, before, f"{method} changed the grammar")
        answers.append((grammar, answer, following))
    return answers


@law("I1", "forced-tokens", profile="forced_tokens")
def forced_tokens_are_the_only_way_on(lab: Lab) -> None:
    """Tokens that are said to be forced are legal one after another, no text goes on differently, and they are the
    tokenizer's own for it; after termination nothing is forced. A backend that does not declare them raises
    UnsupportedFeature."""
    declared = lab.capabilities.forced_tokens or lab.capabilities.forced_bytes
    for grammar, tokens, following in _check_forced(lab, "forced_tokens", declared):
        lab.equal(grammar.validate_tokens(tokens), tokens, "forced tokens are not legal")
        lab.equal(tokens, following[: len(tokens)], "forced tokens are not how the tokenizer goes on (I3)")
        if grammar.is_terminated():
            lab.equal(tokens, [], "something is forced after termination")
        _check_prefix(lab, grammar, lab.vocabulary.decode(tokens))
    _check_declared(lab, declared, "forced_tokens")


@law("I1", "forced-bytes", profile="forced_bytes")
def forced_bytes_are_the_only_way_on(lab: Lab) -> None:
    """Bytes that are said to be forced begin every text that can follow; after termination nothing is forced. A
    backend that does not declare them raises UnsupportedFeature."""
    declared = lab.capabilities.forced_bytes
    for grammar, forced, _ in _check_forced(lab, "forced_bytes", declared):
        lab.equal(type(forced), bytes, "forced bytes are no bytes")
        if grammar.is_terminated():
            lab.equal(forced, b"", "something is forced after termination")
        _check_prefix(lab, grammar, forced)
    _check_declared(lab, declared, "forced_bytes")


def _check_prefix(lab: Lab, grammar: RecordingGrammar, forced: bytes) -> None:
    """Demand that every legal token agrees with the forced bytes, as far as both go."""
    if not forced:
        return
    lab.equal(grammar.is_accepting(), False, f"{forced!r} is forced although the text is complete")
    for id_ in lab.allowed(grammar):
        token = lab.vocabulary.text_tokens[id_] if id_ < lab.vocabulary.size else b""
        length = min(len(token), len(forced))
        lab.equal(token[:length], forced[:length], f"{forced!r} is forced although {token!r} is legal")


def _check_declared(lab: Lab, declared: bool, method: str) -> None:
    if not declared:
        raise Unsupported(f"{method} is not declared, and refused")
    kinds = lab.capabilities.kinds
    if GrammarKind.CHOICE in kinds:
        grammar = lab.grammar(GrammarSpec.choice(["abcdef", "abcdxy"]), "a")
        answer = getattr(grammar, method)()
        text = answer if isinstance(answer, bytes) else lab.vocabulary.decode(answer)
        lab.demand(b"bcd".startswith(text), f"{method} forces what is open", "b'bcd' or less", text)
