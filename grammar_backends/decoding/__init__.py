"""Grammars during decoding: the masks of a step, with drafts, and what becomes of the tokens."""

from grammar_backends.decoding.batch import FillOutcome, fill_bitmasks
from grammar_backends.decoding.builder import BitmaskBuilder, MaskRequest
from grammar_backends.decoding.drafts import (
    Commit,
    CommitReason,
    TrimmedDrafts,
    commit_tokens,
    trim_drafts,
    verify_in_sequence,
)
from grammar_backends.decoding.gate import Gate
from grammar_backends.decoding.jump import Jump, JumpForward, JumpPolicy, JumpStatistics
from grammar_backends.decoding.layout import ApplyJobs, MaskBatch, MaskDescriptor, RequestReport, RowState
from grammar_backends.decoding.ledger import DraftLedger
from grammar_backends.decoding.markers import Marker, MarkerSearch, PatternMarker, TextMarker, TokenMarker
from grammar_backends.decoding.meter import DecodeMeter
from grammar_backends.decoding.reasoning import HostEnd, ReasoningGate
from grammar_backends.decoding.trees import DraftTree
from grammar_backends.decoding.trigger import TriggerGate

__all__ = [
    "ApplyJobs",
    "BitmaskBuilder",
    "Commit",
    "CommitReason",
    "DecodeMeter",
    "DraftLedger",
    "DraftTree",
    "FillOutcome",
    "Gate",
    "HostEnd",
    "Jump",
    "JumpForward",
    "JumpPolicy",
    "JumpStatistics",
    "Marker",
    "MarkerSearch",
    "MaskBatch",
    "MaskDescriptor",
    "MaskRequest",
    "PatternMarker",
    "ReasoningGate",
    "RequestReport",
    "RowState",
    "TextMarker",
    "TokenMarker",
    "TriggerGate",
    "TrimmedDrafts",
    "commit_tokens",
    "fill_bitmasks",
    "trim_drafts",
    "verify_in_sequence",
]
