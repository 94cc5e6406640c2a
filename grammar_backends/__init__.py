"""The pluggable layer between LLM inference engines and grammar engines.

One grammar protocol, engines as plugins, an automatic choice that never silently drops a constraint. Names are
loaded on first use: importing this package loads neither torch nor an engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grammar_backends.compilation import CompilationFailure, GrammarManager, GrammarTicket
    from grammar_backends.contract import (
        CompiledGrammar,
        GrammarBackend,
        GrammarKind,
        GrammarOptions,
        GrammarSpec,
        StructuredOutputGrammar,
        ToolStyle,
        Vocabulary,
        allocate_bitmask,
    )
    from grammar_backends.decoding import (
        BitmaskBuilder,
        Commit,
        CommitReason,
        DraftLedger,
        DraftTree,
        HostEnd,
        JumpForward,
        JumpPolicy,
        JumpStatistics,
        MarkerSearch,
        MaskBatch,
        MaskDescriptor,
        MaskRequest,
        PatternMarker,
        ReasoningGate,
        RowState,
        TextMarker,
        TokenMarker,
        TriggerGate,
        commit_tokens,
        fill_bitmasks,
        trim_drafts,
        verify_in_sequence,
    )
    from grammar_backends.kernels import RowMapping, apply_token_bitmask
    from grammar_backends.plugins import PluginHost, default_host
    from grammar_backends.selection import Selection, explain, load_backend, select_backend, validate_spec
    from grammar_backends.statistics import EngineStatistics, RequestStatistics
    from grammar_backends.tokenizers import load_vocabulary

__version__ = "0.1.0"

_HOMES = {
    "BitmaskBuilder": "decoding",
    "Commit": "decoding",
    "CommitReason": "decoding",
    "CompilationFailure": "compilation",
    "CompiledGrammar": "contract",
    "DraftLedger": "decoding",
    "DraftTree": "decoding",
    "EngineStatistics": "statistics",
    "GrammarBackend": "contract",
    "GrammarKind": "contract",
    "GrammarManager": "compilation",
    "GrammarOptions": "contract",
    "GrammarSpec": "contract",
    "GrammarTicket": "compilation",
    "HostEnd": "decoding",
    "JumpForward": "decoding",
    "JumpPolicy": "decoding",
    "JumpStatistics": "decoding",
    "MarkerSearch": "decoding",
    "MaskBatch": "decoding",
    "MaskDescriptor": "decoding",
    "MaskRequest": "decoding",
    "PatternMarker": "decoding",
    "PluginHost": "plugins",
    "ReasoningGate": "decoding",
    "RequestStatistics": "statistics",
    "RowMapping": "kernels",
    "RowState": "decoding",
    "Selection": "selection",
    "StructuredOutputGrammar": "contract",
    "TextMarker": "decoding",
    "TokenMarker": "decoding",
    "ToolStyle": "contract",
    "TriggerGate": "decoding",
    "Vocabulary": "contract",
    "allocate_bitmask": "contract",
    "apply_token_bitmask": "kernels",
    "commit_tokens": "decoding",
    "default_host": "plugins",
    "explain": "selection",
    "fill_bitmasks": "decoding",
    "load_backend": "selection",
    "load_vocabulary": "tokenizers",
    "select_backend": "selection",
    "trim_drafts": "decoding",
    "validate_spec": "selection",
    "verify_in_sequence": "decoding",
}

__all__ = [
    "BitmaskBuilder",
    "Commit",
    "CommitReason",
    "CompilationFailure",
    "CompiledGrammar",
    "DraftLedger",
    "DraftTree",
    "EngineStatistics",
    "GrammarBackend",
    "GrammarKind",
    "GrammarManager",
    "GrammarOptions",
    "GrammarSpec",
    "GrammarTicket",
    "HostEnd",
    "JumpForward",
    "JumpPolicy",
    "JumpStatistics",
    "MarkerSearch",
    "MaskBatch",
    "MaskDescriptor",
    "MaskRequest",
    "PatternMarker",
    "PluginHost",
    "ReasoningGate",
    "RequestStatistics",
    "RowMapping",
    "RowState",
    "Selection",
    "StructuredOutputGrammar",
    "TextMarker",
    "TokenMarker",
    "ToolStyle",
    "TriggerGate",
    "Vocabulary",
    "__version__",
    "allocate_bitmask",
    "apply_token_bitmask",
    "commit_tokens",
    "default_host",
    "explain",
    "fill_bitmasks",
    "load_backend",
    "load_vocabulary",
    "select_backend",
    "trim_drafts",
    "validate_spec",
    "verify_in_sequence",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
