"""``gb new-plugin``: a complete plugin project.

The module itself imports only click and the shared options, since ``gb --help`` loads it.
"""

from __future__ import annotations

from pathlib import Path

import click

from grammar_backends.cli.support import note

__all__ = ["new_plugin"]

NEXT_STEPS = """\
It works as it stands. Next:

  cd {directory}
  pip install -e ".[tests]"
  gb list  # {name} is there
  gb conformance run {name} --profile core  # and keeps the contract
  pytest

Then put your engine into {package}/engine.py, say what it enforces in {package}/__init__.py,
and choose a license."""


@click.command("new-plugin")
@click.argument("name")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
def new_plugin(name: str, directory: Path) -> None:
    """Generate a plugin project in DIR: a backend named NAME, with a small engine that works.

    It has everything that a distribution needs: the entry point, tests, a workflow with the conformance gate. DIR must
    be empty or not exist. The files written are listed on stdout.

    Example: gb new-plugin my-engine my-engine-backend
    """
    from grammar_backends import default_host  # lazy: numpy and every plugin
    from grammar_backends_conformance.scaffold.generate import NewPluginError, check_name, generate, package_of

    try:
        check_name(name, default_host())
        written = generate(name, directory)
    except NewPluginError as error:
        raise click.UsageError(str(error)) from None
    for path in written:
        click.echo(directory / path)
    note(NEXT_STEPS.format(name=name, directory=directory, package=package_of(name)))
