"""What the comparison and the suite share: worker processes, their limits, progress, the environment, files.

`pool` keeps the workers, `process` is what runs inside one, `progress` tells a person how far a run is,
`environment` says what it ran on, `files` writes what it leaves behind.
"""
