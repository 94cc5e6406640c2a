"""Random schemas and values near them: no backend may accept what JSON Schema refuses (C2).

``python -m grammar_backends_conformance.fuzzing.schemas --schemas 5000 --seed 1`` writes one JSON object: how many
schemas each backend compiled and refused, how its verdicts compare with those of `jsonschema`, and every text that it
accepted wrongly. Exit code 1 when there is one. Engines differ in which spellings and orders of valid values they
take, so that texts wrongly refused are only counted.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from grammar_backends import GrammarSpec, Vocabulary, load_backend, load_vocabulary, select_backend
from grammar_backends.contract import CompiledGrammar
from grammar_backends.errors import GrammarBackendsError
from grammar_backends_conformance.oracles.patterns import Uncovered
from grammar_backends_conformance.oracles.schemas import schema_valid

__all__ = ["SchemaMaker", "fuzz_schemas"]

AUTO = "auto"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
VALUES = 14
"""Values that are tried with each schema."""

TYPES = ("string", "integer", "number", "object", "array", "boolean", "null")
NAMES = ("a", "b", "foo", "x1", "é")
STRINGS = ("", "a", "b", "ab", "abc", "aé", "foo", "bar", "1", "x" * 6, "😀", "a b", "\n", "null")
NUMBERS = (0, 1, -1, 2, 3, 5, 7, 10, 100, 1.5, 2.0, -0.5, 0.1, 1e3, 2**53 + 1)
ODD_NUMBERS = (
    *(1024, 1025, 5000, 86_400, 999_983, 2**31, 2**32 + 1, 2**63, 1e18, 1e300, 0.001, 3e-9, 5e-324),
    *(9735783651.3, 9624366306.418835, 89667980838.08775, 93.39127990027835, 0.30000000000000004, -1e16),
)
"""Beyond the integers, the digits or the patience of some engine."""
PATTERNS = (
    *("^a", "b$", "^[a-c]+$", "^.{2,3}$", "a|b", r"^\d+$", "[^a]", "^$", "^(foo|bar)$", "x.*y", r"^\w+$"),
    *("^(?!a)", "^(?=.*b).{2,}$", "a(?!b)", r"^(?!.*\d)[a-z]*$", "^(?!(foo|bar)$)"),
)  # fmt: skip
FORMATS: Mapping[str, Sequence[str]] = {
    "date": ("2020-01-01", "2020-02-30"),
    "date-time": ("2020-01-01T00:00:00Z", "2020-01-01"),
    "time": ("12:00:00Z", "25:00:00Z"),
    "ipv4": ("1.2.3.4", "256.1.1.1"),
    "ipv6": ("::1", "1::2::3"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    "email": ("a@b.co", "a@"),
    "hostname": ("example.com", "-a"),
    "uri": ("http://a.b/c", "a b"),
}
PROPERTY_NAMES = ({"maxLength": 2}, {"pattern": "^[a-z]"}, {"enum": list(NAMES[:3])}, {"minLength": 1})


class SchemaMaker:
    """Makes one schema and values near it, of a seed alone.

    Attributes:
        schema: the schema.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._definitions = tuple(self._dice.sample(("A", "B"), self._dice.randrange(3)))
        is_old = self._chance(0.15)  # such drafts ignore what stands beside a reference
        self._place = "definitions" if is_old else "$defs"
        self.schema = self._schema(3)
        if isinstance(self.schema, dict):
            if self._definitions:
                self.schema[self._place] = {name: self._schema(2) for name in self._definitions}
            if is_old:
                self.schema["$schema"] = DRAFT_7

    def texts(self) -> Iterator[str]:
        """Values that the schema allows, or nearly, as JSON; without end."""
        while True:
            yield json.dumps(self._near(self.schema, 4), ensure_ascii=False, separators=(",", ":"))

    def _chance(self, share: float) -> bool:
        return self._dice.random() < share

    # -- schemas

    def _schema(self, depth: int) -> Any:
        if self._chance(0.03):
            return self._dice.choice((True, {}))
        schema: dict[str, Any] = {}
        if depth and self._chance(0.25):
            self._combine(schema, depth - 1)
            if self._chance(0.5):
                return schema
        if self._chance(0.12):
            schema["enum"] = [self._value(1) for _ in range(self._dice.randrange(1, 5))]
        if self._chance(0.07):
            schema["const"] = self._value(1)
        types: Sequence[str] = ()
        if self._chance(0.85):
            types = self._dice.sample(TYPES, 1 if self._chance(0.8) else self._dice.randrange(2, 4))
            schema["type"] = types[0] if len(types) == 1 else types
        for kinds, constrain in (
            (("string",), self._constrain_string),
            (("integer", "number"), self._constrain_number),
            (("object",), self._constrain_object),
            (("array",), self._constrain_array),
        ):
            # Also beside other types, where it must mean nothing.
            if self._chance(1 if set(kinds) & set(types) else 0.05 if types else 0.3):
                constrain(schema, depth)
        return schema

    def _combine(self, schema: dict[str, Any], depth: int) -> None:
        keyword = self._dice.choice(("allOf", "anyOf", "anyOf", "oneOf", "oneOf", "not", "if", "$ref", "$ref"))
        if keyword == "$ref":
            if self._definitions:
                schema["$ref"] = f"#/{self._place}/{self._dice.choice(self._definitions)}"
        elif keyword == "not":
            schema["not"] = self._schema(depth)
        elif keyword == "if":
            branches = [branch for branch, share in (("then", 0.7), ("else", 0.5)) if self._chance(share)]
            schema.update({branch: self._schema(depth) for branch in ("if", *branches)})
        else:
            schema[keyword] = [self._schema(depth) for _ in range(self._dice.randrange(1, 4))]

    def _constrain_string(self, schema: dict[str, Any], _: int) -> None:
        self._add(schema, 0.3, minLength=lambda: self._dice.randrange(4), maxLength=lambda: self._dice.randrange(6))
        self._add(schema, 0.25, pattern=lambda: self._dice.choice(PATTERNS))
        self._add(schema, 0.15, format=lambda: self._dice.choice(tuple(FORMATS)))

    def _constrain_number(self, schema: dict[str, Any], _: int) -> None:
        self._add(schema, 0.3, minimum=self._number, maximum=self._number)
        self._add(schema, 0.15, exclusiveMinimum=self._number, exclusiveMaximum=self._number)
        self._add(schema, 0.15, multipleOf=lambda: abs(self._number()) or 10)

    def _number(self) -> float:
        return self._dice.choice(ODD_NUMBERS if self._chance(0.15) else NUMBERS)

    def _constrain_object(self, schema: dict[str, Any], depth: int) -> None:
        dice, below = self._dice, max(0, depth - 1)
        if depth:
            names = dice.sample(NAMES, dice.randrange(1, 4))
            self._add(schema, 0.8, properties=lambda: {name: self._schema(below) for name in names})
            self._add(
                schema,
                0.12,
                patternProperties=lambda: {
                    pattern: self._schema(below) for pattern in dice.sample(PATTERNS, dice.choice((1, 1, 2)))
                },
            )
            self._add(schema, 0.04, dependentSchemas=lambda: {dice.choice(NAMES): self._schema(below)})
        closing = lambda: False if not depth or self._chance(0.5) else self._schema(below)  # noqa: E731
        self._add(schema, 0.5, required=lambda: dice.sample(NAMES, dice.randrange(3)))
        self._add(schema, 0.4, additionalProperties=closing)
        self._add(schema, 0.12, minProperties=lambda: dice.randrange(3), maxProperties=lambda: dice.randrange(4))
        self._add(schema, 0.08, propertyNames=lambda: dice.choice(PROPERTY_NAMES))
        self._add(schema, 0.06, dependentRequired=lambda: {dice.choice(NAMES): [dice.choice(NAMES)]})
        self._add(schema, 0.03, unevaluatedProperties=lambda: False)

    def _constrain_array(self, schema: dict[str, Any], depth: int) -> None:
        dice, below = self._dice, max(0, depth - 1)
        if depth:
            self._add(schema, 0.6, items=lambda: self._schema(below) if self._chance(0.9) else False)
            self._add(schema, 0.25, prefixItems=lambda: [self._schema(below) for _ in range(dice.randrange(1, 3))])
            self._add(schema, 0.08, contains=lambda: self._schema(below))
            self._add(schema, 0.03, minContains=lambda: dice.randrange(3), maxContains=lambda: dice.randrange(3))
        self._add(schema, 0.25, minItems=lambda: dice.randrange(3), maxItems=lambda: dice.randrange(4))
        self._add(schema, 0.1, uniqueItems=lambda: True)
        self._add(schema, 0.03, unevaluatedItems=lambda: False)

    def _add(self, schema: dict[str, Any], share: float, **makers: Any) -> None:
        for keyword, make in makers.items():
            if self._chance(share):
                schema[keyword] = make()

    # -- values

    def _value(self, depth: int) -> Any:
        kind = self._dice.randrange(6 if depth else 4)
        if kind == 0:
            return self._dice.choice((True, False, None))
        if kind < 4:
            return self._dice.choice(STRINGS + NUMBERS)
        if kind == 4:
            return {name: self._value(depth - 1) for name in self._dice.sample(NAMES, self._dice.randrange(4))}
        return [self._value(depth - 1) for _ in range(self._dice.randrange(4))]

    def _near(self, schema: Any, depth: int) -> Any:
        """A value that the schema allows, or nearly, or any."""
        if not depth or not isinstance(schema, dict) or self._chance(0.12):
            return self._value(2)
        if "$ref" in schema and self._chance(0.8):
            return self._near(self.schema[self._place][schema["$ref"].rpartition("/")[2]], depth - 1)
        branches = [branch for keyword in ("anyOf", "oneOf", "allOf") for branch in schema.get(keyword, ())]
        branches += [schema[keyword] for keyword in ("if", "then", "else", "not") if keyword in schema]
        if branches and self._chance(0.6):
            return self._near(self._dice.choice(branches), depth - 1)
        listed = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
        if listed and self._chance(0.8):
            return self._dice.choice(listed)
        return self._of_type(schema, self._type(schema), depth)

    def _type(self, schema: Mapping[str, Any]) -> str:
        types = schema.get("type", ())
        if types:
            return types if isinstance(types, str) else str(self._dice.choice(types))
        for keyword, kind in (("properties", "object"), ("items", "array"), ("prefixItems", "array")):
            if keyword in schema:
                return kind
        return self._dice.choice(TYPES)

    def _of_type(self, schema: Mapping[str, Any], kind: str, depth: int) -> Any:
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number"):
            bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
            near = [schema[keyword] for keyword in bounds if keyword in schema]
            if not near or self._chance(0.3):
                return self._number()
            bound = self._dice.choice(near)
            beside = [
                math.nextafter(bound, end) if isinstance(bound, float) else bound for end in (-math.inf, math.inf)
            ]
            return self._dice.choice((bound, bound + 1, bound - 1, bound * 2, bound + 0.5, bound - 0.25, *beside))
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        return None if kind == "null" else self._chance(0.5)

    def _string(self, schema: Mapping[str, Any]) -> str:
        if "format" in schema and self._chance(0.6):
            return self._dice.choice(FORMATS[schema["format"]])
        if self._chance(0.3):
            return self._dice.choice(STRINGS)
        length = self._length(schema, "minLength", "maxLength")
        return "".join(self._dice.choice("aabcx1é") for _ in range(length))

    def _length(self, schema: Mapping[str, Any], least: str, most: str) -> int:
        """A count at a bound, beside one, or any small one."""
        low, high = schema.get(least, 1), schema.get(most, 2)
        return max(0, self._dice.choice((low, low - 1, high, high + 1, self._dice.randrange(5))))

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        listed = schema.get("properties", {})
        names = {*schema.get("required", ()), *(name for name in listed if self._chance(0.7))}
        if self._chance(0.3):
            names.add(self._dice.choice(NAMES))
        if names and self._chance(0.15):
            names.remove(self._dice.choice(sorted(names)))
        others = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties", {})]
        # Engines want listed names in the order of the schema.
        ordered = [*(name for name in listed if name in names), *sorted(names - {*listed})]
        return {name: self._near(listed.get(name, others[0]), depth - 1) for name in ordered}

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        firsts = schema.get("prefixItems", ())
        count = min(6, self._length(schema, "minItems", "maxItems"))
        schemas = [*firsts[:count], *[schema.get("items", {})] * (count - len(firsts))]
        items = [self._near(each, depth - 1) for each in schemas]
        if "contains" in schema and self._chance(0.4):
            items.append(self._near(schema["contains"], depth - 1))
        if items and self._chance(0.2):
            items.append(items[0])
        return items


def fuzz_schemas(seed: int, schemas: int, names: Sequence[str], vocabulary: Vocabulary) -> dict[str, Any]:
    """Try schemas with the numbers from `seed` on, on backends by name and as "auto" takes them; what happened.

    Texts on which JSON Schema or the layer's regex dialect is silent are left out.
    """
    backends = {name: None if name == AUTO else load_backend(name, vocabulary) for name in names}
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    wrong: list[dict[str, Any]] = []
    for number in range(seed, seed + schemas):
        maker = SchemaMaker(number)
        texts = list(_labelled(maker))
        for name, backend in backends.items():
            try:
                spec = GrammarSpec.json_schema(maker.schema)
                compiled = (backend or select_backend(spec, vocabulary).backend).compile_grammar(spec)
            except GrammarBackendsError:
                counts[name]["refused"] += 1
                continue
            counts[name]["compiled"] += 1
            for text, valid in texts:
                accepted = _accepts(compiled, vocabulary, text)
                counts[name][f"{'valid' if valid else 'invalid'} {'accepted' if accepted else 'refused'}"] += 1
                if accepted and not valid:
                    by = compiled.backend.name
                    wrong.append({"number": number, "backend": by, "text": text, "schema": maker.schema})
    return {
        "seed": seed,
        "schemas": schemas,
        "counts": {name: {**each} for name, each in counts.items()},
        "wrong": wrong,
    }


def _labelled(maker: SchemaMaker) -> Iterator[tuple[str, bool]]:
    """Texts with whether the schema allows them."""
    for text in itertools.islice(maker.texts(), VALUES):
        try:
            yield text, schema_valid(maker.schema, text)
        except Uncovered:
            continue


def _accepts(compiled: CompiledGrammar, vocabulary: Vocabulary, text: str) -> bool:
    grammar = compiled.new_grammar()
    return grammar.accept_tokens("fuzz", vocabulary.encode(text)) and grammar.is_accepting()


@click.command()
@click.option("--schemas", default=5_000, show_default=True, help="How many.")
@click.option("--seed", default=1, show_default=True, help="The number of the first one.")
@click.option("--backends", default=AUTO, show_default=True, help="Names, joined by commas; auto chooses.")
@click.pass_context
def main(context: click.Context, schemas: int, seed: int, backends: str) -> None:
    """Look for wrong accepts among random schemas."""
    result = fuzz_schemas(seed, schemas, backends.split(","), load_vocabulary("byte"))
    click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    context.exit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
