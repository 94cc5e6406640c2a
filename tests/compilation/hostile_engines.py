"""Backends that do to their manager whatever the first text of a choice says, beside one that is right.

They are the comparison's toys, with a diary of what was compiled, and with texts that wait for somebody or that nothing
satisfies. One of them can write its artifacts as bytes.
"""

from __future__ import annotations

import json
import os

from toy_engines import Artifact, Trouble

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind
from grammar_backends.errors import UnsupportedFeature
from grammar_backends.plugins import hookimpl


class Hostile(Trouble):
    """Does what the first text says.

    Options: `diary`, a file that gets a line for each compilation; `fifo`, a pipe that "wait" waits for.
    """

    def __init__(self, vocabulary, options):
        super().__init__(vocabulary, {})
        self.options = options

    def compile(self, spec):
        first = spec.value[0]
        if "diary" in self.options:
            with open(self.options["diary"], "a") as diary:
                diary.write(f"{first}\n")
        if first == "empty":
            return Artifact([], self.vocabulary)
        return super().compile(spec)

    def wait(self):
        """Until somebody has opened the pipe for writing, and closed it."""
        with open(self.options["fifo"]) as pipe:
            pipe.read()

    def panic(self):
        """As a Rust extension does: not with an Exception."""
        raise BaseException("the engine panicked")

    def leave(self):
        raise SystemExit(3)

    def interrupt(self):
        raise KeyboardInterrupt

    def burst(self):
        """One allocation far beyond everything."""
        bytearray(1 << 44)


class Serial(Hostile):
    """One whose artifacts can be written as bytes."""

    serial_format = "texts"

    def dump_artifact(self, artifact):
        return json.dumps([text.decode() for text in artifact.texts]).encode()

    def load_artifact(self, data):
        return Artifact([text.encode() for text in json.loads(data)], self.vocabulary)


class Garbled(Serial):
    """One whose bytes cannot be read."""

    def dump_artifact(self, artifact):
        return b"garbled"


class Late(Hostile):
    """Lets everything pass at first, and refuses in the end."""

    def check(self, spec):
        pass

    def compile(self, spec):
        super().compile(spec)
        raise UnsupportedFeature("this engine finds out late")


class Broken(Hostile):
    """Fails on everything."""

    def compile(self, spec):
        raise RuntimeError("the engine broke")


class Threaded(Serial):
    """Writes into the diary how many threads it may use, by its option and by the environment."""

    def compile(self, spec):
        with open(self.options["diary"], "a") as diary:
            diary.write(f"{self.options.get('compile_threads')}/{os.environ.get('OMP_NUM_THREADS')}\n")
        return Artifact([b"a"], self.vocabulary)


class Closable(Hostile):
    """Writes into the diary when it is closed."""

    def close(self):
        with open(self.options["diary"], "a") as diary:
            diary.write("closed\n")


class Unclosable(Hostile):
    """Raises when it is closed."""

    def close(self):
        raise RuntimeError("it cannot be closed")


def aborts_at_start(vocabulary, options):
    """Lives in the process that made the manager, and in no other."""
    if str(os.getpid()) != options["pid"]:
        os.abort()
    return Hostile(vocabulary, options)


def _backend(name, attribute, **capabilities):
    return BackendSpec(
        name,
        f"hostile_engines:{attribute}",
        api_version=API_VERSION,
        capabilities=Capabilities(kinds=frozenset({GrammarKind.CHOICE}), **capabilities),
    )


@hookimpl
def grammar_backends_register_backends():
    return [
        _backend("hostile", "Hostile"),
        _backend("serial", "Serial"),
        _backend("garbled", "Garbled"),
        _backend("late", "Late"),
        _backend("broken", "Broken"),
        _backend("closable", "Closable"),
        _backend("unclosable", "Unclosable"),
        _backend("threaded", "Threaded", options=frozenset({"compile_threads", "diary", "fifo", "pid"})),
        _backend("aborts-at-start", "aborts_at_start"),
    ]
