"""A worker that answers what it is told to, or does it."""

from __future__ import annotations

import os
import sys

from grammar_backends.workers import Message, Service, serve


def start(how, descriptor=None):
    if how == "fail":
        raise RuntimeError("this worker will not start")
    if how == "abort":
        os.abort()
    if how == "hang":
        while True:
            pass
    setup = b"" if descriptor is None else os.pread(int(descriptor), 1 << 20, 0)
    hoard = []

    def answer(task):
        what = task.head["do"]
        if what == "die":
            os.write(2, b"echo worker: last words\n")
            os._exit(7)
        if what == "child":
            os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
        if what == "print":
            print("to stdout")  # noqa: T201  # an engine may
            os.write(1, b"natively\n")
        if what == "garble":
            os.write(3, b"\x05\x00\x00\x00" + bytes(8) + b"{{{{{")  # where `serve` has put the real stdout
        if what == "hoard":
            hoard.append(b"x" * task.head["bytes"])
        while what == "hang":
            pass
        return Message(
            {"pid": os.getpid(), "setup": setup.decode(), "environment": os.environ.get("ECHO", "")}, task.body
        )

    return Service({"pid": os.getpid()}, answer)


if __name__ == "__main__":
    sys.exit(serve(lambda: start(*sys.argv[1:])))
