"""Runs every case of a corpus on several backends, each in a warm process of its own, and compares them.

`judge` decides one case inside a worker process (`worker`), `results` is what a run leaves behind, `statistics` turns
it into figures, `tables` and `html` show them.
"""
