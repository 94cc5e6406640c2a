"""Plugins: the hooks they implement and the host that loads them."""

from grammar_backends.plugins.hookspecs import CommandSpec, TokenizerSpec, hookimpl
from grammar_backends.plugins.host import BackendRecord, PluginHost, PluginRecord, default_host

__all__ = [
    "BackendRecord",
    "CommandSpec",
    "PluginHost",
    "PluginRecord",
    "TokenizerSpec",
    "default_host",
    "hookimpl",
]
