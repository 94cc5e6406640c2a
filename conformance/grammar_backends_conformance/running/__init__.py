"""What the comparison and the suite share: runs over worker processes, progress, the environment, files.

`pool` hands the tasks of a run to workers (`grammar_backends.workers`), `progress` tells a person how far it is,
`environment` says what it ran on, `files` writes what it leaves behind.
"""
