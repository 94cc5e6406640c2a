"""The public surface: a change here is a change for everybody who uses the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grammar_backends
from grammar_backends.plugins import hookspecs

ROOT = Path(__file__).resolve().parents[1]

PUBLIC = """
BitmaskBuilder Commit CommitReason CompilationFailure CompiledGrammar DraftLedger DraftTree EngineStatistics
GrammarBackend GrammarKind GrammarManager GrammarOptions GrammarSpec GrammarTicket HostEnd JumpForward JumpPolicy
JumpStatistics MarkerSearch MaskBatch MaskDescriptor MaskRequest PatternMarker PluginHost ReasoningGate
RequestStatistics RowMapping RowState Selection StructuredOutputGrammar TextMarker TokenMarker ToolStyle TriggerGate
Vocabulary __version__ allocate_bitmask apply_token_bitmask commit_tokens default_host explain fill_bitmasks
load_backend load_vocabulary select_backend trim_drafts validate_spec verify_in_sequence
"""


def loaded_after(code: str, *modules: str) -> list[str]:
    check = f"{code}\nimport sys\nprint(*[name for name in {modules!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_public_names() -> None:
    assert sorted(grammar_backends.__all__) == sorted(PUBLIC.split())
    assert all(hasattr(grammar_backends, name) for name in grammar_backends.__all__)


def test_importing_the_package_loads_neither_torch_nor_an_engine() -> None:
    engines = ("torch", "numpy", "xgrammar", "llguidance", "outlines_core", "transformers")
    assert loaded_after("import grammar_backends", *engines) == []


def test_registering_plugins_loads_no_engine() -> None:
    engines = ("torch", "xgrammar", "llguidance", "outlines_core")
    assert loaded_after("from grammar_backends import default_host; default_host().backends", *engines) == []


def test_deciding_loads_no_engine() -> None:
    engines = ("torch", "xgrammar", "llguidance", "outlines_core")
    code = "from grammar_backends import GrammarSpec, explain; explain(GrammarSpec.json_schema({'type': 'object'}))"
    assert loaded_after(code, *engines) == []


def test_every_hook_is_documented() -> None:
    documents = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    hooks = [name for name in vars(hookspecs) if name.startswith("grammar_backends_")]
    assert len(hooks) == 4
    assert all(name in documents for name in hooks)
