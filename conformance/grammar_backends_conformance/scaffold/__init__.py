"""``gb new-plugin``: a complete distribution with a working engine, for somebody to put their own in its place.

`template` is such a distribution itself, for a backend named "toy": it can be read, linted and run as it stands, and
generating one only writes another name for that.
"""
