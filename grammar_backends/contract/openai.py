"""OpenAI-style requests as specs: `response_format`, and tools as structural tags (D18)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grammar_backends.contract.spec import JSON, GrammarOptions, GrammarSpec, json_type
from grammar_backends.errors import SpecError, shown

__all__ = ["ToolStyle", "read_request"]

MAX_LISTED = 10
"""Names of tools in a message."""
TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class ToolStyle:
    """How a model writes the call of a tool; the default is the way of Hermes and Qwen models.

    Attributes:
        trigger: what every call begins with, and nothing else does.
        begin: what stands before the arguments, with ``{name}`` for the tool's name.
        end: what stands after them.

    Raises:
        SpecError: `begin` lacks ``{name}`` or does not start with the trigger.
    """

    trigger: str = "<tool_call>"
    begin: str = '<tool_call>\n{"name": "{name}", "arguments": '
    end: str = "}\n</tool_call>"

    def __post_init__(self) -> None:
        if "{name}" not in self.begin or not self.trigger or not self.begin.startswith(self.trigger):
            raise SpecError("tool_style: begin must start with the trigger and hold {name}")

    def tag(self, name: str, schema: JSON) -> dict[str, Any]:
        """A call of one tool, as a format of a structural tag."""
        content = {"type": "json_schema", "json_schema": schema}
        return {"type": "tag", "begin": self.begin.replace("{name}", name), "content": content, "end": self.end}


def read_request(
    response_format: Mapping[str, JSON] | None,
    tools: Sequence[Mapping[str, JSON]],
    tool_choice: str | Mapping[str, JSON],
    tool_style: ToolStyle | None,
    options: GrammarOptions | None,
) -> GrammarSpec | None:
    """`GrammarSpec.from_openai`."""
    tools = () if tools is None else tools
    if isinstance(tools, (str, bytes)) or not isinstance(tools, Sequence):
        raise SpecError(f"tools: an array is needed, not {json_type(tools)}", pointer="")
    if not tools and tool_choice not in ("none", "auto"):  # None of the calls that it asks for could be held to
        raise SpecError(f"tool_choice: {shown(tool_choice)} without tools", hint="Send tools, or leave it out")
    calls = bool(tools) and tool_choice != "none"
    if response_format is None:
        response_format = {"type": "text"}
    if not isinstance(response_format, Mapping):
        raise SpecError("response_format: an object is needed", pointer="")
    kind = response_format.get("type")
    if kind == "text":
        return _tool_spec(tools, tool_choice, tool_style or ToolStyle(), options) if calls else None
    if calls:
        raise SpecError(
            f"response_format: {shown(kind)} cannot be combined with tools",
            pointer="/type",
            hint='Send one of them, or tool_choice "none"',
        )
    if kind == "json_object":
        return GrammarSpec.json_object(options=options)
    if kind == "json_schema":
        holder = response_format.get("json_schema")
        if not isinstance(holder, Mapping) or "schema" not in holder:
            raise SpecError("response_format: the schema is missing", pointer="/json_schema/schema")
        return GrammarSpec.json_schema(holder["schema"], options=options)
    if kind == "structural_tag":
        tag = {key: value for key, value in response_format.items() if key != "type"}
        return GrammarSpec.structural_tag(tag, options=options)
    raise SpecError(
        f"response_format: unknown type {shown(kind)}",
        pointer="/type",
        hint="Known types: text, json_object, json_schema, structural_tag",
    )


def _tool_spec(
    tools: Sequence[Mapping[str, JSON]],
    tool_choice: str | Mapping[str, JSON],
    style: ToolStyle,
    options: GrammarOptions | None,
) -> GrammarSpec:
    schemas = dict(_tool(index, tool) for index, tool in enumerate(tools))
    if len(schemas) != len(tools):
        raise SpecError("tools: two of them have the same name")
    if isinstance(tool_choice, Mapping):
        name = _function_of(tool_choice).get("name")
        if not isinstance(name, str) or name not in schemas:
            raise SpecError(
                f"tool_choice: there is no tool {shown(name)}", hint=f"Tools: {', '.join(list(schemas)[:MAX_LISTED])}"
            )
        return GrammarSpec.structural_tag({"format": style.tag(name, schemas[name])}, options=options)
    if tool_choice == "required":
        tags = [style.tag(name, schema) for name, schema in schemas.items()]
        calls = {"type": "triggered_tags", "triggers": [style.trigger], "tags": tags, "at_least_one": True}
        return GrammarSpec.structural_tag({"format": calls}, options=options)
    if tool_choice != "auto":
        raise SpecError(
            f"tool_choice: unknown value {shown(tool_choice)}", hint="none, auto, required, or one function"
        )
    # Every backend that reads tags reads the older form.
    structures = [
        {"begin": style.begin.replace("{name}", name), "schema": schema, "end": style.end}
        for name, schema in schemas.items()
    ]
    return GrammarSpec.structural_tag({"structures": structures, "triggers": [style.trigger]}, options=options)


def _tool(index: int, tool: Mapping[str, JSON]) -> tuple[str, JSON]:
    """The name of a tool, and the schema of its arguments."""
    function = _function_of(tool)
    name = function.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise SpecError(
            "tools: a function with a name of letters, digits, '.', '-' and '_' is needed", pointer=f"/{index}"
        )
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise SpecError(
            f"tools: strict must be true or false, not {shown(strict)}", pointer=f"/{index}/function/strict"
        )
    parameters = function.get("parameters", {"type": "object"})
    if not isinstance(parameters, Mapping):
        raise SpecError("tools: parameters must be a schema that is an object", pointer=f"/{index}/function/parameters")
    return name, parameters if strict else {"type": "object"}


def _function_of(holder: Any) -> Mapping[str, JSON]:
    function = holder.get("function") if isinstance(holder, Mapping) else None
    return function if isinstance(function, Mapping) else {}
