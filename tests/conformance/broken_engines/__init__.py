"""A small engine that keeps every rule, and others that break one each: what the suite itself is tested with.

`right` is the engine, `faults` are the others, each a few lines over it, written from the texts of the rules.
"""
