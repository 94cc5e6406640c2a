"""Compiling: what specs and options mean, what artifacts share, and how wide rows are."""

from __future__ import annotations

import json

from broken_engines.fault import EVERYTHING, SCHEMAS, breaks
from broken_engines.right import Engine, Grammar, Matching
from grammar_backends import GrammarSpec
from grammar_backends.contract import GrammarKind, GrammarOptions
from grammar_backends_conformance.oracles import recogniser_of


@breaks("B2")
class SharedStates(Grammar):
    """States live in the artifact."""

    states = property(
        lambda self: vars(self.language).setdefault("states", [self.language.start]),
        lambda self, states: vars(self.language).setdefault("states", states),
    )


@breaks("B3", profile="compact_whitespace", capabilities=SCHEMAS)
class RemembersSpecsByTheirText(Engine):
    """Compiled specs are kept by kind and text, without options."""

    def __init__(self, vocabulary):
        super().__init__(vocabulary)
        self.made = {}

    def compile(self, spec):
        key = spec.kind, spec.text
        if key not in self.made:
            self.made[key] = super().compile(spec)
        return self.made[key]


@breaks("B3")
class KnowsOnlyTheLastSpec(Engine):
    """New grammars of a compiled spec are of the spec that was compiled last."""

    def compile(self, spec):
        made = super().compile(spec)
        self.last = made.language
        made.new_matcher = lambda: Matching(self.last)
        return made


@breaks("E6", profile="artifacts")
class LoadsWhatItKnows(Engine):
    """Reading bytes gives the artifact that was compiled or read last."""

    def compile(self, spec):
        self.last = super().compile(spec)
        return self.last

    def load_artifact(self, data):
        return vars(self).get("last") or super().load_artifact(b'["choice", "[\\"a\\"]", "auto", {}]')


@breaks("E6", profile="artifacts", capabilities=SCHEMAS)
class DumpsWithoutOptions(Engine):
    """What the options said is lost in the bytes."""

    def dump_artifact(self, artifact):
        kind, text, syntax, _ = json.loads(super().dump_artifact(artifact))
        return json.dumps([kind, text, syntax, {}]).encode()


@breaks("E6", profile="artifacts")
class DumpingMoves(Engine):
    """Writing an artifact uses up the start of its texts."""

    def dump_artifact(self, artifact):
        language = artifact.language
        for token in list(language.allowed(language.start))[:1]:
            language.start = language.follow(language.start, token)
        return super().dump_artifact(artifact)


@breaks("B4", profile="regex")
class SearchesForPatterns(Engine):
    """Patterns are found anywhere in a text."""

    def recogniser(self, spec):
        if spec.kind is GrammarKind.REGEX:
            spec = GrammarSpec.regex(f"(.|\n)*({spec.text})(.|\n)*")
        return super().recogniser(spec)


@breaks("B4", profile="choice")
class ShortChoicesWin(Engine):
    """A choice that goes on after another one can never be given."""

    def recogniser(self, spec):
        if spec.kind is GrammarKind.CHOICE:
            texts = spec.value
            spec = GrammarSpec.choice([t for t in texts if not any(t != s and t.startswith(s) for s in texts)])
        return super().recogniser(spec)


@breaks("B4", profile="grammar-ebnf", capabilities=EVERYTHING)
class ReadsEbnfAsWords(Engine):
    """Repetitions of an EBNF grammar are left out."""

    def recogniser(self, spec):
        if spec.kind is GrammarKind.GRAMMAR:
            spec = GrammarSpec.grammar(spec.text.replace("+", ""), "ebnf")
        return super().recogniser(spec)


@breaks("B4", profile="json_schema", capabilities=SCHEMAS)
class IgnoresMostItems(Engine):
    """maxItems of a schema is accepted and not enforced."""

    def recogniser(self, spec):
        if spec.kind is GrammarKind.JSON_SCHEMA and isinstance(spec.value, dict):
            schema = {key: value for key, value in spec.value.items() if key != "maxItems"}
            spec = GrammarSpec.json_schema(schema, options=spec.options)
        return super().recogniser(spec)


@breaks("B5", profile="compact_whitespace", capabilities=SCHEMAS)
class IgnoresCompactWhitespace(Engine):
    def recogniser(self, spec):
        if spec.kind is GrammarKind.JSON_SCHEMA:
            closed = GrammarOptions(additional_properties=spec.options.additional_properties)
            spec = GrammarSpec.json_schema(spec.value, options=closed)
        return super().recogniser(spec)


@breaks("B5", profile="json_schema", capabilities=SCHEMAS)
class TakesNoWhitespace(Engine):
    def recogniser(self, spec):
        if spec.kind is GrammarKind.JSON_SCHEMA:
            spec = GrammarSpec.json_schema(spec.value, options=GrammarOptions(whitespace="compact"))
        return super().recogniser(spec)


@breaks("B5", profile="closed_objects", capabilities=SCHEMAS)
class IgnoresClosedObjects(Engine):
    """Any number of other properties is taken after those that are listed."""

    def recogniser(self, spec):
        if spec.kind is GrammarKind.JSON_SCHEMA and spec.options.additional_properties == "closed":
            return recogniser_of(GrammarSpec.regex(r'\{"x": ?true(, "z": \d)?\}')) or super().recogniser(spec)
        return super().recogniser(spec)


@breaks("B6", vocabulary="adversarial")
class AllowsTheModelsPadding(Grammar):
    """Padding beyond the tokenizer is allowed where the last word has room for it."""

    def legal(self):
        size, words = self.vocabulary.size, -(-self.vocabulary.size // 32)
        return super().legal() | set(range(size, min(words * 32, self.vocabulary.width)))


@breaks("B6")
class EndsWhereNothingCanBeSpelled(Matching):
    """Where the vocabulary has no token to go on with, the text counts as complete."""

    def is_accepting(self):
        return super().is_accepting() or not self.language.allowed(self.state)


@breaks("B13")
class DestroyingClosesGrammars(Engine):
    """Grammars do not outlive their backend."""

    closed = False

    def compile(self, spec):
        artifact = super().compile(spec)
        artifact.language.engine = self
        follow = artifact.language.follow
        artifact.language.follow = lambda state, token: None if self.closed else follow(state, token)
        return artifact

    def close(self):
        self.closed = True
