"""Real engines below the front end: a choice's first text names the schema that the engine really gets."""

from __future__ import annotations

from grammar_backends import GrammarSpec
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.plugins import hookimpl


def nested_arrays(levels):
    schema = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


SCHEMAS = {"deep": nested_arrays(600), "arrays": nested_arrays(32)}


class Below:
    """An engine that compiles the schema which the first text names, and any other choice as it stands."""

    def __init__(self, engine):
        self.engine, self.version, self.serial_format = engine, engine.version, engine.serial_format
        self.dump_artifact, self.load_artifact = engine.dump_artifact, engine.load_artifact

    def compile(self, spec):
        schema = SCHEMAS.get(spec.value[0])
        return self.engine.compile(spec if schema is None else GrammarSpec.json_schema(schema))


def xgrammar(vocabulary, options):
    from grammar_backends_xgrammar.engine import XGrammarEngine

    return Below(XGrammarEngine(vocabulary, options))


def outlines(vocabulary, options):
    from grammar_backends_outlines.engine import OutlinesEngine

    return Below(OutlinesEngine(vocabulary, options))


def _backend(name):
    return BackendSpec(
        f"deep-{name}",
        f"deep_engines:{name}",
        api_version=API_VERSION,
        capabilities=Capabilities(kinds=frozenset({GrammarKind.CHOICE})),
    )


@hookimpl
def grammar_backends_register_backends():
    return [_backend("xgrammar"), _backend("outlines")]
