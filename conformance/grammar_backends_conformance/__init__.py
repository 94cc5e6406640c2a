"""Proves and compares the backends of grammar_backends.

`comparison` runs corpora on several backends and reports correctness and speed; `cases` holds this project's own
corpora. Importing this package loads nothing else.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
