"""Cases in other people's formats, as lines of ours: MaskBench and the JSON-Schema-Test-Suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["lines_of", "why_left_out"]

DRAFTS = {
    "draft3": "http://json-schema.org/draft-03/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
"""Folders of the JSON-Schema-Test-Suite, and the draft by which the schemas in them are read."""


def lines_of(document: Any, id_: str) -> Iterator[Any]:
    """The corpus lines that a decoded document holds; what has no known format is passed on as it is.

    Args:
        document: a corpus line; a MaskBench object with `schema` and `tests`; or the groups of a file of the
            JSON-Schema-Test-Suite, each with `description`, `schema` and `tests`.
        id_: what the document is called where its cases have no id: its path without the suffix, which also names
            the draft of a test suite's file.
    """
    if isinstance(document, list) and all(isinstance(group, Mapping) and "schema" in group for group in document):
        for index, group in enumerate(document):
            yield _group(group, f"{id_}#{index} {group.get('description', '')}".rstrip(), _draft(id_))
    elif isinstance(document, Mapping) and "schema" in document and "kind" not in document:
        yield {"kind": "json_schema", "spec": document["schema"], "id": id_, **document}
    else:
        yield document


def _draft(id_: str) -> str | None:
    return next((DRAFTS[folder] for folder in id_.split("/") if folder in DRAFTS), None)


def _group(group: Mapping[str, Any], id_: str, draft: str | None) -> dict[str, Any]:
    schema = group["schema"]
    if draft is not None and isinstance(schema, dict):
        schema = {"$schema": draft, **schema}
    return {"id": id_, "kind": "json_schema", "spec": schema, "tests": group.get("tests")}


def why_left_out(line: Any) -> str | None:
    """Why a line is no case for a run, though nothing is wrong with it; None when it is one."""
    if not isinstance(line, Mapping):
        return None
    if not line.get("tests") and ("steps" in line or "expected" in line):
        return "words or steps instead of texts"
    if isinstance(line.get("spec"), Mapping) and "$generate" in line["spec"]:
        return "its spec is described, not given"
    return None
