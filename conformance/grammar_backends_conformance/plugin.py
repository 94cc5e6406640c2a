"""What this distribution adds to the command line. Registering imports none of the commands."""

from __future__ import annotations

from grammar_backends.plugins import CommandSpec, hookimpl

__all__ = ["grammar_backends_register_commands"]


@hookimpl
def grammar_backends_register_commands() -> list[CommandSpec]:
    """The commands of this distribution."""
    return [
        CommandSpec(
            name="compare",
            factory="grammar_backends_conformance.comparison.command:compare",
            description="Compare backends on a corpus: correctness first, then speed.",
        ),
        CommandSpec(
            name="conformance",
            factory="grammar_backends_conformance.suite.command:conformance",
            description="Judge backends by the rules of the contract.",
        ),
        CommandSpec(
            name="new-plugin",
            factory="grammar_backends_conformance.scaffold.command:new_plugin",
            description="Generate a plugin project that works and keeps the contract.",
        ),
        CommandSpec(
            name="probe",
            factory="grammar_backends_conformance.probing.command:probe",
            description="Measure what backends enforce, and derive their support data.",
        ),
    ]
