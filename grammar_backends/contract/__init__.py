"""What every part agrees on: the grammar protocol, the plugin protocol, specs, vocabularies and the row layout.

A plugin imports this package, `grammar_backends.errors` and its engine, and nothing else of this project.
"""

from grammar_backends.contract.backend import (
    API_VERSION,
    BackendSpec,
    Capabilities,
    CompiledGrammar,
    Engine,
    GrammarBackend,
    GrammarSupport,
    SpecChecker,
)
from grammar_backends.contract.bitmask import (
    Bitmask,
    BitmaskRow,
    BitmaskTensor,
    allocate_bitmask,
    count_allowed,
    pack_ids,
    reset_bitmask,
    row_words,
    unpack_ids,
)
from grammar_backends.contract.grammar import (
    Artifact,
    BatchFiller,
    Grammar,
    GrammarMaker,
    Matcher,
    StructuredOutputGrammar,
)
from grammar_backends.contract.openai import ToolStyle
from grammar_backends.contract.serial import ArtifactSerializer
from grammar_backends.contract.spec import JSON, GrammarKind, GrammarOptions, GrammarSpec, GrammarSyntax, parse_json
from grammar_backends.contract.vocabulary import Vocabulary

__all__ = [
    "API_VERSION",
    "JSON",
    "Artifact",
    "ArtifactSerializer",
    "BackendSpec",
    "BatchFiller",
    "Bitmask",
    "BitmaskRow",
    "BitmaskTensor",
    "Capabilities",
    "CompiledGrammar",
    "Engine",
    "Grammar",
    "GrammarBackend",
    "GrammarKind",
    "GrammarMaker",
    "GrammarOptions",
    "GrammarSpec",
    "GrammarSupport",
    "GrammarSyntax",
    "Matcher",
    "SpecChecker",
    "StructuredOutputGrammar",
    "ToolStyle",
    "Vocabulary",
    "allocate_bitmask",
    "count_allowed",
    "pack_ids",
    "parse_json",
    "reset_bitmask",
    "row_words",
    "unpack_ids",
]
