"""Faults planted in the CUDA kernel, one at a time, and the cases that must find them.

Every operator, literal, condition and assignment of the kernel's functions is changed, wherever it stands. The changed
copies are compiled together, each in a namespace of its own, and tried in a process that they may take down. Run as a
program, this module tries all of them and lists those that were not caught.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from grammar_backends.errors import KernelError
from grammar_backends.kernels.apply import Implementation
from grammar_backends.kernels.call import Call, prepare
from grammar_backends.kernels.cuda.driver import Driver
from grammar_backends.kernels.cuda.launcher import BLOCKS_PER_MULTIPROCESSOR, ENTRY_POINTS, Launcher
from grammar_backends.kernels.cuda.nvrtc import SOURCE
from grammar_backends.kernels.fuzz import Case, difference, random_case
from grammar_backends.kernels.stand_in import ANY_IMAGE, CUT_NOTHING, build

FUNCTIONS_BEGIN = "// The row of the logits that a job is for"

CHANGES = (
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "),
    (r" < ", " > "), (r" >= ", " < "), (r" == ", " >= "),
    (r" && ", " || "), (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "),
    (r" % ", " / "), (r" << ", " >> "), (r" >> ", " << "), (r" & ", " | "), (r" \| ", " & "),
    (r" \|= ", " &= "), (r" &= ", " |= "), (r" \|= ", " = "), (r" &= ", " = "), (r" \+= ", " -= "),
    (r"(?<=[=(? ])~", ""), (r"(?<=[=(& ])!(?=[\w(])", ""), (r"(?<=[( ])-(?=\w)", ""),
    (r"\bif \(.*\) (?=return|continue|\w+ [|&]?= |STORE|id =)", "if (true) "),
    (r"\bif \(.*\) (?=return|continue|\w+ [|&]?= |STORE|id =)", "if (false) "),
    (r"\b(?<![.\w])(\d+)(?=u?\b)", lambda match: str(int(match[1]) + 1)),
    (r"(?<=\? )([^?:]+) : ((?:[^;()]|\([^()]*\))+)(?=[;)])", lambda match: f"{match[2]} : {match[1]}"),
    (r"^( +)(?:masked|position|request|id) [|&]?= .*;$", ""),
    (r"\bi64\b(?! stride)", "i32"), (r"static_cast<i64>", ""),
    (r"\bjob\b(?=\))", "0"), (r"\.x\b", ".y"), (r"\.y\b(?!\)|,)", ".x"),
    (r"\bmask_row_count\b", "row_count"), (r"\bcolumn_count\b", "mask_bits"), (r"\bmask_bits\b", "column_count"),
    (r"\bbitmask_row_stride\b", "logits_row_stride"), (r"\blogits_row_stride\b", "bitmask_row_stride"),
    (r"\bcolumn_offset\b", "step"), (r"\bfirst_rows_size\b", "jobs"), (r"\bd2t_size\b", "column_count"),
    (r"\bphase\b(?! =)", "0"), (r"(?<!\+\+)\blane\b(?=[ )\]])(?! =)", "0"), (r"\bsizeof\(Element\)", "4"),
)  # fmt: skip
"""What is changed, as patterns of the source's style, and into what."""


ENDLESS = 60
"""Seconds of processor time after which a copy never ends, and its process is killed; one that passes takes two."""

REACHED = {
    "masked_ids": "packed", "masked_columns": "packed", "apply_packed": "packed", "is_masked": "strided",
    "apply_strided": "strided",
}  # fmt: skip
"""Which entry points call a function, where not all of them do."""


EQUIVALENT = {
    "every negative row and id is none": (
        "if (slot < 0) return -2;",
        "if (request >= a.first_rows_size || (a.slots && !has_next)) return -2;",
        "return first >= 0 && first + position < end ? first + position : -2;",
        "if (a.d2t_size >= 0) id = id < a.d2t_size ? id + LOAD(a.d2t + id) : -2;",
    ),
    "without slots there are as many first rows as jobs, and with slots the next one is asked for": (
        "if (request > a.first_rows_size || (a.slots && !has_next)) return -1;",
    ),
    "they come from 32 bits; sizes and offsets are below 2**30, and strides have 64 bits": (
        "const i32 first = LOAD(a.first_rows + request);",
        "const i32 end = has_next ? LOAD(a.first_rows + request + 1) : a.row_count;",
        "const i32 logits_row = logits_row_of(a, job);",
        "i32 id = static_cast<i64>(column) + a.column_offset;",
        "i64 id = static_cast<i32>(column) + a.column_offset;",
        "i64 id = (column) + a.column_offset;",
    ),
    "a division of whole numbers": (
        "constexpr i32 LANES = 17 / sizeof(Element);",
        "constexpr i32 SHARERS = 33 / LANES;",
    ),
    "no bit is set beyond": (
        "if (masked >= (1u << LANES) - 1 && stride == 1) {",
        "for (i32 lane = 0; lane <= LANES; ++lane)",
    ),
    "-inf of four bytes has no bits to carry": (
        "STORE_16_BYTES(chunk, sizeof(Element) >= 2 ? minus_infinity * 0x10001u : minus_infinity);",
    ),
    "nothing is shifted out, and a row begins at most seven columns into its first chunk": (
        "if (column <= 0) masked &= column > -32 ? ALL << -column : 0u;",
        "if (column < 1) masked &= column > -32 ? ALL << -column : 0u;",
        "if (column < 0) masked &= column >= -32 ? ALL << -column : 0u;",
        "if (column < 0) masked &= column > -33 ? ALL << -column : 0u;",
        "if (column < 0) masked &= column > -32 ? ALL << -column : 1u;",
        "if (left <= 32) masked &= left > 0 ? ALL >> (32 - left) : 0u;",
        "if (left < 33) masked &= left > 0 ? ALL >> (32 - left) : 0u;",
    ),
    "the lesser of two equal numbers": ("const i32 plain_columns = known <= a.column_count ? known : a.column_count;",),
    "there is no number of words but 1 and 4": (
        (
            "const bool wide = WORDS >= 4 && phase == 0 && a.column_offset % 32 == 0"
            " && reinterpret_cast<u64>(words) % 16 == 0;"
        ),
        "const u32 all[5] = {four.x, four.y, four.z, four.w};",
    ),
    "instructions are saved, and no access": ("u32 any = 1;", "if (false) continue;"),
    "one more round without a column": (
        (
            "for (i32 word = first; word * 32 <= a.column_count + phase;"
            " word += static_cast<i32>(gridDim.x) * threads * WORDS) {"
        ),
        (
            "for (i32 chunk = static_cast<i32>(blockIdx.x * blockDim.x + threadIdx.x);"
            " chunk * LANES <= a.column_count + phase;"
        ),
        (
            "for (i32 chunk = static_cast<i32>(blockIdx.x * blockDim.x + threadIdx.x);"
            " chunk / LANES < a.column_count + phase;"
        ),
    ),
    "lanes are stored one by one where columns are apart, wherever a chunk begins": (
        "const i32 phase = stride >= 1 ? phase_of(row) : 0;",
        "const i32 phase = stride == 1 ? phase_of(row) : 1;",
    ),
    "each chunk is still one thread's, since all steps together are the whole grid's": (
        (
            "for (i32 chunk = static_cast<i32>(blockIdx.x * blockDim.x - threadIdx.x);"
            " chunk * LANES < a.column_count + phase;"
        ),
    ),
    "the launcher gives each chunk a thread, so that there is no second step": (
        "chunk += static_cast<i32>(gridDim.y * blockDim.x)) {",
    ),
}
"""Changes that change nothing, by why they do not."""


class Mutant(NamedTuple):
    """One fault.

    Attributes:
        line: the line as it is in the source, without indentation.
        changed: the line as the mutant has it.
        entry_points: that reach the line.
        code: all functions, with the change, and these entry points.
    """

    line: str
    changed: str
    entry_points: tuple[str, ...]
    code: str


def mutants() -> list[Mutant]:
    """Every fault there is."""
    lines = _functions().splitlines()
    found: dict[tuple[int, str], Mutant] = {}
    function = ""
    for number, line in enumerate(lines):
        begins = re.match(r"static __device__ .* (\w+)\(", line)
        function = begins[1] if begins else function
        code, comment, rest = line.partition("//")
        if code.startswith(("#", "template", "static", "ENTRY", "  extern")) or not code.strip():
            continue
        for changed in _changes(code):
            if (number, changed) not in found:
                entry_points = tuple(name for name in ENTRY_POINTS if REACHED.get(function, "") in name)
                copy = [*lines[:number], changed + comment + rest, *lines[number + 1 :]]
                kept = [text for text in copy if not text.startswith("ENTRY") or _entry(text) in entry_points]
                found[number, changed] = Mutant(code.strip(), changed.strip(), entry_points, "\n".join(kept))
    return list(found.values())


def _entry(line: str) -> str:
    return line.partition("(")[2].partition(",")[0]


def _changes(line: str) -> Iterator[str]:
    for pattern, change in CHANGES:
        for match in re.finditer(pattern, line):
            new = change(match) if callable(change) else change
            changed = line[: match.start()] + new + line[match.end() :]
            if changed != line:
                yield changed


def _functions() -> str:
    source = SOURCE.read_text()
    return source[source.index(FUNCTIONS_BEGIN) :]


def source_of(planted: Sequence[Mutant]) -> str:
    """A source that the stand-in can be built from, with all these mutants in it; number 0 is the kernel as it is."""
    source = SOURCE.read_text()
    parts = [source[: source.index(FUNCTIONS_BEGIN)]]
    copies = [_functions(), *(mutant.code for mutant in planted)]
    for number, code in enumerate(copies):
        body = code.replace("#define ENTRY", "#undef ENTRY\n#define ENTRY").replace('extern "C" ', "static ")
        parts.append(f"namespace copy_{number} {{\n{body}\n}}")
    parts.append("typedef void (*Entry)(Arguments);")
    parts.append("static int chosen = 0;")
    parts.append('extern "C" void choose(int number) { chosen = number; }')
    for name in ENTRY_POINTS:
        numbers = [0, *(number if name in each.entry_points else 0 for number, each in enumerate(planted, 1))]
        table = ", ".join(f"copy_{number}::{name}" for number in numbers)
        parts.append(f"static const Entry {name}_copies[] = {{{table}}};")
        parts.append(f"static void {name}(Arguments a) {{ {name}_copies[chosen](a); }}")
    return "\n".join(parts)


class Proof(NamedTuple):
    """What a copy must do: give these bytes, and touch memory as often as the kernel as it is."""

    case: Case
    expected: torch.Tensor


class Judge:
    """Tells mutants from the kernel.

    Args:
        library: the stand-in with all copies.
    """

    def __init__(self, library: Path) -> None:
        self._choose = ctypes.CDLL(str(library)).choose
        self._last = ctypes.CDLL(str(library)).standInLastLaunch
        driver = Driver(str(library))
        self._launchers = [
            Launcher(driver, lambda capability, version: [ANY_IMAGE], blocks)
            for blocks in (BLOCKS_PER_MULTIPROCESSOR, CUT_NOTHING)
        ]
        self._proofs = [Proof(case, case.expected()) for case in _cases()]
        self._touches = [self._counted(call) for call in _plain_calls()]

    def finds(self, number: int) -> str | None:
        """What gives a copy away, or None."""
        self._choose(number)
        try:
            for launcher, proof in itertools.product(self._launchers, self._proofs):
                launch = functools.partial(launcher.launch, device=0, stream=0)
                found = difference(Implementation("copy", "cpu", launch), proof.case, proof.expected)
                if found is not None:
                    return found
            touches = [self._counted(call) for call in _plain_calls()]
            return None if touches == self._touches else "it touches memory more or less often"
        except KernelError as error:
            return str(error)
        finally:
            self._choose(0)

    def _counted(self, call: Call) -> list[bytes]:
        counted = []
        for launcher in self._launchers:
            launcher.launch(call, 0, 0)
            launch = (ctypes.c_uint64 * 7)()
            self._last(launch)
            counted.append(bytes(launch))
        return counted


def _cases() -> Iterator[Case]:
    for seed in range(300):
        yield random_case(seed)
    for seed in range(1200):
        yield random_case(seed, (1, 70))  # most of it edges
    for seed in range(300):
        yield random_case(seed, (96, 300))  # some of it read sixteen bytes at a time
    for seed in range(60):
        yield random_case(seed, (1100, 6000))  # several blocks to a row


def _plain_calls() -> Iterator[Call]:
    """Calls whose work is known: nothing masked, everything masked, one id allowed, half of them."""
    for dtype in (torch.float32, torch.bfloat16):
        for word in (-1, 0, 1, 0x0F0F0F0F):
            yield prepare(torch.zeros((3, 9000), dtype=dtype), torch.full((3, 282), word, dtype=torch.int32))
        whole = torch.zeros((3, 9088), dtype=dtype)  # no column is left over by threads that take four words
        yield prepare(whole, torch.full((3, 284), 1, dtype=torch.int32))
        none = torch.zeros((1, 9), dtype=torch.int32)
        yield prepare(torch.zeros((1, 100), dtype=dtype), none, d2t=torch.zeros(100, dtype=torch.int32))
        yield prepare(torch.zeros((1, 100), dtype=dtype), none, column_offset=128)  # the mask goes on, the row does not
        ones = torch.full((3, 240), -1, dtype=torch.int32)  # of the last 1,536 columns no mask speaks
        yield prepare(torch.zeros((3, 8192), dtype=dtype), ones, column_offset=1024)


def survivors(planted: Sequence[Mutant], folder: Path) -> list[Mutant]:
    """The faults that nothing finds, though they are some. The kernel as it is must pass.

    Raises:
        KernelError: the copies cannot be compiled.
        RuntimeError: the kernel as it is does not pass.
    """
    source = folder / "mutants.cu"
    source.write_text(source_of(planted))
    library = build(source, ["-O0", "-g0", "-w", "-fsanitize=bounds", "-fsanitize-undefined-trap-on-error"])
    found = _tried(library, range(len(planted) + 1))
    if found[0]:
        raise RuntimeError(f"the kernel as it is does not pass: {found[0]}")
    nothing = set(itertools.chain.from_iterable(EQUIVALENT.values()))
    return [mutant for number, mutant in enumerate(planted, 1) if not found[number] and mutant.changed not in nothing]


def _tried(library: Path, numbers: Sequence[int]) -> dict[int, str]:
    """What gave each copy away, or "". One that takes the process down, or never ends, is given away by that."""
    found: dict[int, str] = {}
    while len(found) < len(numbers):
        left = [str(number) for number in numbers if number not in found]
        done = subprocess.run([sys.executable, __file__, library, *left], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            number, _, reason = line.partition(" ")
            found[int(number)] = reason
        if done.returncode >= 0 and done.returncode:
            raise RuntimeError(done.stderr)
        if done.returncode:
            found[next(number for number in numbers if number not in found)] = f"signal {-done.returncode}"
    return found


def try_copies(library: str, numbers: Sequence[str]) -> None:
    torch.set_num_threads(1)
    judge = Judge(Path(library))
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    for number in map(int, numbers):
        signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS)
        print(number, judge.finds(number) or "", flush=True)  # noqa: T201  # the answer to the process that waits


def main() -> None:
    planted = mutants()
    with tempfile.TemporaryDirectory() as folder:
        left = survivors(planted, Path(folder))
    print(f"{len(planted)} faults, {len(left)} not caught")  # noqa: T201  # the program's result
    for mutant in left:
        print(f"{mutant.line!r}: {mutant.changed!r},")  # noqa: T201  # as above


if __name__ == "__main__":
    if len(sys.argv) > 1:
        try_copies(sys.argv[1], sys.argv[2:])
    else:
        main()
