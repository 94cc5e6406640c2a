"""Builds the compiled CPU path of the mask kernels into the package, where there is a C compiler.

Hatch runs this hook for wheels and editable installs alike. Nothing depends on its success: without a compiler the
wheel is a pure one, in which a note says why, and masks are applied by numpy.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

KERNELS = Path("grammar_backends", "kernels")
SOURCE, LIBRARY, NOTE = KERNELS / "apply_cpu.c", KERNELS / "_apply_cpu.so", KERNELS / "_apply_cpu.txt"

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-pthread")
SECONDS = 300


class CompileFailure(Exception):
    """There is no compiler, or it refused the source; the text says which."""


class CompiledPathHook(BuildHookInterface[Any]):
    """Compiles before a wheel is put together, and names the wheel by the platform when it worked."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Leave either the library or the note in the source tree, and have hatch take it along."""
        root = Path(self.root)
        (root / LIBRARY).unlink(missing_ok=True)
        (root / NOTE).unlink(missing_ok=True)
        try:
            compile_library(root / SOURCE, root / LIBRARY)
        except CompileFailure as failure:
            (root / NOTE).write_text(f"{failure}\n", "utf-8")
            self.app.display_warning(f"Masks will be applied by numpy on CPUs: {failure}")
            build_data["artifacts"].append(f"/{NOTE.as_posix()}")
        else:
            build_data["artifacts"].append(f"/{LIBRARY.as_posix()}")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform()}"  # ctypes loads it: any Python will do


def compile_library(source: Path, library: Path, extra_flags: Sequence[str] = ()) -> None:
    """Compile the C source to a shared library, by ``$CC`` if that is set.

    Raises:
        CompileFailure: no compiler was found, or it failed.
    """
    compilers = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [[name] for name in COMPILERS]
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    flags = [*FLAGS, f'-DSOURCE_DIGEST="{digest}"', *extra_flags]
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder, library.name)
        for compiler in compilers:
            if _run([*compiler, *flags, "-o", str(made), str(source)]):
                # In one step, and as another file than the one that running processes may have loaded.
                made.replace(library)
                return
    raise CompileFailure(f"no C compiler was found, or none that works (tried {', '.join(map(shlex.join, compilers))})")


def _run(command: Sequence[str]) -> bool:
    """Whether the compiler was there; raises `CompileFailure` when it refused."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        return False
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileFailure(f"{command[0]} failed: {error}") from error
    if done.returncode:
        words = " ".join(done.stderr.split())[:300]
        raise CompileFailure(f"{command[0]} failed with status {done.returncode}" + (f": {words}" if words else ""))
    return True


def _platform() -> str:
    """The platform in a wheel's tag: what this machine's own builds are for, not what they might also run on."""
    return next(tag for tag in platform_tags() if "manylinux" not in tag and "musllinux" not in tag)
