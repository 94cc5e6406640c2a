"""The proof on a GPU: ``python -m grammar_backends.kernels.verify --out DIR``, one run of at most eight minutes.

::

    machine.py     the GPU, or the host that rehearses on the stand-in for its driver
    checks.py      right or wrong: random cases, graphs, streams, threads, devices, conformance
    timing.py      how fast, beside torch's own operations and other kernels
    evidence.py    what is written: JSON, and a table in Markdown

Without a GPU nothing is proven, and the command says so. A rehearsal runs all the code that it can, and claims nothing.
"""
