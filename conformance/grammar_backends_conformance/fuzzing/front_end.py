"""Feeds random and broken requests to the front end and keeps what it should never have done.

``python -m grammar_backends_conformance.fuzzing.front_end --inputs 200000 --seed 1`` writes one JSON object: how many
inputs of each kind were taken and refused, the slowest ones, and the faults: another exception than a `SpecError`, an
error or a trace that cannot be shown, a process that died or hung. Exit code 1 when there is one. The inputs run in a
process of their own, which writes down the number of each one first, so that a crash and a hang have their input.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import pickle
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import click

from grammar_backends import GrammarKind, GrammarOptions, GrammarSpec, default_host, explain, validate_spec
from grammar_backends.errors import SpecError
from grammar_backends.plugins import PluginHost
from grammar_backends.selection import Policy, Trace
from grammar_backends_conformance.fuzzing.inputs import Input, make_input

__all__ = ["Fault", "fuzz", "run_input"]

POLICIES = (Policy(), Policy(mode="lenient", ignore=("uniqueItems", "pattern", "not", "format", "/pattern")))
SLOW_SECONDS = 5.0
"""Processor time of one input that is a fault: the front end is bounded by its steps, which are some microseconds."""
HANG_SECONDS = 60
"""Time after which an input is taken for one that hangs, on however busy a machine."""
MOST = 2_000
"""Characters of a message: what a client sent comes back in small pieces only."""
SHOWN = 400
"""Characters of an input in the report."""


class Fault(Exception):
    """The front end did what it must not do; the message says what."""


def run_input(made: Input, host: PluginHost) -> str:
    """Everything that the front end does with one request; in a word what became of it.

    Raises:
        Fault: what it did is not allowed.
    """
    try:
        spec = _spec(made)
        if spec is None:
            return "no constraint"
        validate_spec(spec)
    except SpecError as error:
        _check_error(error)
        return "refused"
    except Exception as error:
        raise Fault(_last_lines(error)) from error
    return _explained(spec, host)


def _spec(made: Input) -> GrammarSpec | None:
    more = dict(made.more)
    if "options" in more:
        more["options"] = GrammarOptions(**more["options"])
    spec: GrammarSpec | None = getattr(GrammarSpec, made.constructor)(*made.content, **more)
    return spec


def _explained(spec: GrammarSpec, host: PluginHost) -> str:
    taken = "enforced"
    for policy in POLICIES:
        try:
            trace = explain(spec, host=host, policy=policy)
        except Exception as error:
            raise Fault(f"explain: {_last_lines(error)}") from error
        _check_trace(trace)
        if spec.kind is GrammarKind.JSON_SCHEMA:
            _check_places(trace, spec.value)
        if not trace.chosen:
            taken = "enforced by nobody"
    return taken


def _check_error(error: SpecError) -> None:
    text = str(error)
    text.encode()
    if not error.message.strip() or len(text) > MOST:
        raise Fault(f"an error of {len(text)} characters: {text[:SHOWN]!r}")
    if str(pickle.loads(pickle.dumps(error))) != text:
        raise Fault(f"an error that does not travel: {text[:SHOWN]!r}")


def _check_trace(trace: Trace) -> None:
    json.dumps(trace.to_dict())
    if not str(trace) or (trace.chosen is None and not all(step.findings for step in trace.steps)):
        raise Fault(f"a refusal without a reason: {trace}")


def _check_places(trace: Trace, schema: Any) -> None:
    """Each finding about a schema as it is written has a place that is there."""
    for step in trace.steps:
        for finding in step.findings:
            place = schema
            for part in (finding.pointer or "").split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                try:
                    place = place[int(key) if isinstance(place, list) else key]
                except (KeyError, IndexError, TypeError, ValueError):
                    raise Fault(f"{finding.pointer!r} of a finding is not in the schema") from None


def _last_lines(error: BaseException) -> str:
    lines = traceback.format_exception(error)
    return f"{type(error).__name__}: {error}\n{''.join(lines[-3:])}"[-2_000:]


# -- the process that runs the inputs ------------------------------------------------------------------------


def _serve(seed: int, first: int, end: int, journal: str) -> None:
    """Run inputs; write down the number of each one before, and all outcomes at the end."""
    host = default_host()
    outcomes: Counter[str] = Counter()
    faults: list[dict[str, Any]] = []
    slowest: list[tuple[float, int]] = []
    with open(journal, "r+b") as file, mmap.mmap(file.fileno(), 8) as number_now:
        for number in range(first, end):
            number_now[:8] = struct.pack("q", number)
            made = make_input(seed, number)
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            began = time.process_time()
            try:
                outcomes[f"{made.constructor}: {run_input(made, host)}"] += 1
            except Fault as fault:
                faults.append(_fault(number, made, str(fault)))
            seconds = time.process_time() - began
            if seconds > SLOW_SECONDS:
                faults.append(_fault(number, made, f"it took {seconds:.1f} s"))
            slowest = sorted((*slowest, (round(seconds * 1000, 1), number)), reverse=True)[:5]
            faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"outcomes": outcomes, "faults": faults, "slowest": slowest}))  # noqa: T201  # the parent reads it


def _fault(number: int, made: Input, what: str) -> dict[str, Any]:
    try:
        shown = repr(made)[:SHOWN]
    except RecursionError:
        shown = f"{made.constructor}, nested too deep to be shown"
    return {"number": number, "input": shown, "what": what}


# -- the process that watches --------------------------------------------------------------------------------


def fuzz(seed: int, inputs: int, first: int = 0) -> dict[str, Any]:
    """Run the inputs with these numbers; what happened, as data."""
    began = time.perf_counter()
    outcomes: Counter[str] = Counter()
    faults: list[dict[str, Any]] = []
    slowest: list[list[float]] = []
    at, end = first, first + inputs
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "number"
        journal.write_bytes(struct.pack("q", at))
        while at < end:
            stop = min(end, at + 5_000)
            found, died = _run(seed, at, stop, journal)
            outcomes.update(found["outcomes"])
            faults += found["faults"]
            slowest = sorted((*slowest, *found["slowest"]), reverse=True)[:5]
            at = stop
            if died:
                at = struct.unpack("q", journal.read_bytes())[0] + 1
                faults.append(_fault(at - 1, make_input(seed, at - 1), died))
    return {
        "seed": seed,
        "inputs": inputs,
        "seconds": round(time.perf_counter() - began, 1),
        "outcomes": dict(sorted(outcomes.items())),
        "slowest_ms": slowest,
        "faults": faults,
    }


_NOTHING: dict[str, Any] = {"outcomes": {}, "faults": [], "slowest": []}


def _run(seed: int, first: int, end: int, journal: Path) -> tuple[dict[str, Any], str]:
    """What a process found, and how it died, if it did; then what it had found is lost, but for the input."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--serve", str(end)]
    command += ["--journal", str(journal), "--seed", str(seed), "--first", str(first)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout)
        return found, ""
    return _NOTHING, f"the process ended with {done.returncode}: {done.stderr[-1_500:]}"


@click.command()
@click.option("--inputs", default=200_000, show_default=True, help="How many.")
@click.option("--seed", default=1, show_default=True, help="The same seed makes the same inputs.")
@click.option("--first", default=0, show_default=True, help="The number of the first one.")
@click.option("--serve", type=int, hidden=True)
@click.option("--journal", hidden=True)
@click.pass_context
def main(context: click.Context, inputs: int, seed: int, first: int, serve: int | None, journal: str) -> None:
    """Fuzz the front end."""
    if serve is not None:
        _serve(seed, first, serve, journal)
        return
    result = fuzz(seed, inputs, first)
    click.echo(json.dumps(result, indent=2))
    context.exit(1 if result["faults"] else 0)


if __name__ == "__main__":
    main()
