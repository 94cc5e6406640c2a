"""``gb list``: every plugin and backend that was found, usable or not, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from grammar_backends.cli.output import Table, emit, format_option
from grammar_backends.installation import installed_version

if TYPE_CHECKING:
    from grammar_backends.plugins import BackendRecord, PluginHost, PluginRecord

__all__ = ["listing"]


@click.command("list")
@format_option
def listing(format_: str) -> None:
    """Show the plugins and backends that are installed.

    Broken, blocked and incompatible ones are shown too, with the reason.

    Example: gb list --format markdown
    """
    from grammar_backends import default_host  # lazy: numpy and every plugin

    host = default_host()
    data = describe_host(host)
    emit(format_, data, [_backend_table(data), _plugin_table(data)])


def describe_host(host: PluginHost) -> dict[str, Any]:
    """Everything about a host as JSON-able data."""
    return {
        "backends": [_backend(record) for record in host.backends],
        "plugins": [_plugin(record) for record in host.plugins],
        "tokenizers": [{"name": spec.name, "description": spec.description} for spec in host.tokenizers.values()],
        "commands": [{"name": spec.name, "description": spec.description} for spec in host.commands.values()],
    }


def _backend(record: BackendRecord) -> dict[str, Any]:
    spec, engine = record.spec, record.spec.engine or record.spec.distribution
    version = installed_version(engine)
    state, reason = record.state, record.reason
    if state == "loaded" and engine and version is None:
        reason = f"distribution {engine} is not installed"
    return {
        "name": spec.name,
        "state": state,
        "reason": reason,
        "engine": engine,
        "engine_version": version,
        "plugin": record.plugin,
        "distribution": spec.distribution,
        "distribution_version": installed_version(spec.distribution),
        "api_version": spec.api_version,
        "priority": spec.priority,
        "capabilities": _capabilities(record),
    }


def _capabilities(record: BackendRecord) -> dict[str, Any]:
    capabilities = record.spec.capabilities
    return {
        "kinds": sorted(kind.value for kind in capabilities.kinds),
        "syntaxes": sorted(capabilities.syntaxes),
        "structural_tags": sorted(capabilities.structural_tags),
        "mask": capabilities.mask,
        "forced_tokens": capabilities.forced_tokens,
        "forced_bytes": capabilities.forced_bytes,
        "compact_whitespace": capabilities.compact_whitespace,
        "closed_objects": capabilities.closed_objects,
        "support": capabilities.support,
    }


def _plugin(record: PluginRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "state": record.state,
        "reason": record.reason,
    }


def _backend_table(data: dict[str, Any]) -> Table | str:
    if not data["backends"]:
        return "No backend is installed. Install one, for example: pip install grammar-backends-xgrammar"
    rows = [
        [
            backend["name"],
            backend["state"],
            f"{backend['engine']} {backend['engine_version'] or '?'}".strip(),
            "never" if backend["priority"] is None else str(backend["priority"]),
            _what_it_does(backend["capabilities"]),
            backend["reason"],
        ]
        for backend in data["backends"]
    ]
    return Table("Backends", ["Backend", "State", "Engine", ">Auto order", "Enforces", "Reason"], rows)


def _what_it_does(capabilities: dict[str, Any]) -> str:
    details = {"grammar": capabilities["syntaxes"], "structural_tag": capabilities["structural_tags"]}
    kinds = [f"{kind} ({', '.join(details[kind])})" if details.get(kind) else kind for kind in capabilities["kinds"]]
    extras = [
        name.replace("_", " ")
        for name in ("forced_tokens", "forced_bytes", "compact_whitespace", "closed_objects")
        if capabilities[name]
    ]
    return ", ".join(kinds) + (f"; {', '.join(extras)}" if extras else "")


def _plugin_table(data: dict[str, Any]) -> Table | str:
    if not data["plugins"]:
        return "No plugin was found."
    rows = [
        [plugin["name"], plugin["state"], plugin["distribution"], plugin["version"], plugin["reason"]]
        for plugin in data["plugins"]
    ]
    return Table("Plugins", ["Plugin", "State", "Distribution", "Version", "Reason"], rows)
