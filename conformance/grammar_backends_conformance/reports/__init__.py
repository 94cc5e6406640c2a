"""Shows reports of the suite: as text, tables, Markdown, JUnit XML, an HTML page and a badge.

`page` is the ground of every HTML page of this distribution, the comparison's too.
"""
