"""``python -m grammar_backends.cli``: the command line where its scripts are not on the path."""

from grammar_backends.cli import main

main()
