"""Toy engines over finite sets of texts: one that is right, some that are wrong, and some that misbehave.

They enforce choices only. The misbehaving one does what the first text of the choice says.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind, pack_ids
from grammar_backends.errors import SpecError, UnsupportedFeature
from grammar_backends.plugins import CommandSpec, hookimpl

KINDS = frozenset({GrammarKind.CHOICE})


class Matcher:
    """Walks over the texts."""

    def __init__(self, texts, vocabulary, taken=(), *, blind=False):
        self.texts, self.vocabulary, self.taken, self.blind = texts, vocabulary, list(taken), blind

    @property
    def state(self):
        return b"".join(self.taken)

    def _legal(self, token):
        after = self.state + token
        return bool(token) and any(text.startswith(after) for text in self.texts)

    def consume(self, tokens):
        for count, id_ in enumerate(tokens):
            token = self.vocabulary.text_tokens[id_]
            if not self._legal(token):
                return count
            self.taken.append(token)
        return len(tokens)

    def rollback(self, num_tokens):
        del self.taken[len(self.taken) - num_tokens :]

    def fill_row(self, row):
        tokens = self.vocabulary.text_tokens
        ids = [id_ for id_, token in enumerate(tokens) if self._legal(token)]
        if self.blind and self.taken:
            ids = [self.vocabulary.encode("?")[0]]
        row.array[:] = pack_ids(ids, self.vocabulary.width)

    def is_accepting(self):
        return self.state in self.texts

    def fork(self):
        return Matcher(self.texts, self.vocabulary, self.taken, blind=self.blind)

    def forced_bytes(self):
        rests = [text[len(self.state) :] for text in self.texts if text.startswith(self.state)]
        return os.path.commonprefix(rests)  # noqa: RUF071  # of bytes, character by character: as meant


class Artifact:
    """A set of texts."""

    def __init__(self, texts, vocabulary, *, blind=False):
        self.texts, self.vocabulary, self.blind = texts, vocabulary, blind

    def new_matcher(self):
        return Matcher(self.texts, self.vocabulary, blind=self.blind)


class Right:
    """Enforces what it is asked to."""

    version = "1.0"

    def __init__(self, vocabulary, options):
        self.vocabulary = vocabulary

    def compile(self, spec):
        return Artifact([text.encode() for text in spec.value], self.vocabulary)


class Lenient(Right):
    """Accepts one text too many."""

    def compile(self, spec):
        return Artifact([*(text.encode() for text in spec.value), b"wrong"], self.vocabulary)


class Strict(Right):
    """Forgets the last text."""

    def compile(self, spec):
        return Artifact([text.encode() for text in spec.value][:-1] or [b"-"], self.vocabulary)


class Trouble(Right):
    """Does what the first text says."""

    def __init__(self, vocabulary, options):
        super().__init__(vocabulary, options)
        if pid_file := os.environ.get("TOY_PID_FILE"):
            Path(pid_file).write_text(str(os.getpid()))

    def compile(self, spec):
        what = spec.value[0]
        act = getattr(self, what, None)
        if act is not None:
            act()
        return Artifact([text.encode() for text in spec.value], self.vocabulary, blind=what == "blind")

    def hang(self):
        while True:
            pass

    def abort(self):
        os.write(2, b"toy engine: about to abort\n")
        os.abort()

    def quit(self):
        os._exit(3)

    def eat(self):
        hoard = []
        for _ in range(400):  # an end, should nobody stop it
            hoard.append(b"x" * (1 << 24))

    def exhaust(self):
        raise MemoryError

    def fail(self):
        raise RuntimeError("the toy broke")

    def talk(self):
        print("an engine that prints to stdout")  # noqa: T201  # that is the point
        os.write(1, b"{natively too}\n")

    def refuse(self):
        raise UnsupportedFeature("this toy does not refuse politely", pointer="/0")

    def malformed(self):
        raise SpecError("the toy finds this malformed", pointer="/0")


def cannot_start(vocabulary, options):
    raise RuntimeError("the toy will not start")


def dies_at_start(vocabulary, options):
    os.abort()


@click.command()
def hello():
    """Say hello."""
    click.echo("hello from a hook")


def _backend(name, attribute, **more):
    fields = {"api_version": API_VERSION, "priority": None, "distribution": "toy-engines", **more}
    return BackendSpec(
        name, f"toy_engines:{attribute}", capabilities=Capabilities(kinds=KINDS, forced_bytes=True), **fields
    )


@hookimpl
def grammar_backends_register_backends():
    return [
        _backend("toy", "Right"),
        _backend("toy-lenient", "Lenient"),
        _backend("toy-strict", "Strict"),
        _backend("toy-trouble", "Trouble"),
        _backend("toy-cannot-start", "cannot_start"),
        _backend("toy-dies-at-start", "dies_at_start"),
        _backend("toy-old", "Right", api_version=API_VERSION + 1),
        _backend("toy", "Lenient"),
    ]


@hookimpl
def grammar_backends_register_commands():
    return [CommandSpec("hello", "toy_engines:hello", "Say hello.")]
