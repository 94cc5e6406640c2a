"""The command line, `grammar-backends` or `gb`: list, explain, check, inspect, and the commands that plugins add.

Importing this package loads click and nothing heavier, so that ``gb --help`` answers at once; numpy, engines and
rich are imported inside the commands. Commands of other distributions use `grammar_backends.cli.support`.
"""

from grammar_backends.cli.app import gb, main

__all__ = ["gb", "main"]
