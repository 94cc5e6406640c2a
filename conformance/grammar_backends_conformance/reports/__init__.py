"""Reports of the suite: what they hold, and how they are shown.

`outcome` and `report` are the data; the others make text, tables, Markdown, JUnit XML, an HTML page and a badge of it.
`page` is the ground of every HTML page of this distribution, the comparison's too.
"""
