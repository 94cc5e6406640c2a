"""Wheels: with the compiled CPU path where there is a compiler, pure ones where there is none, and both work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

LIBRARY, NOTE = "grammar_backends/kernels/_apply_cpu.so", "grammar_backends/kernels/_apply_cpu.txt"

USE = """
import json, torch
from grammar_backends import apply_token_bitmask
from grammar_backends.kernels.apply import available_implementations, missing_implementations

logits = torch.zeros(2, 70)
apply_token_bitmask(logits, torch.tensor([[-1, 0], [5, 1]], dtype=torch.int32))
print(json.dumps({
    "allowed": [torch.nonzero(row == 0).flatten().tolist() for row in logits],
    "implementations": [each.name for each in available_implementations()],
    "missing": missing_implementations(),
}))
"""

Build = Callable[..., Path]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked source distribution: what an installation from source starts from."""
    folder = tmp_path_factory.mktemp("source")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "grammar_backends", copy / "grammar_backends")
    (copy / LIBRARY).write_text("of another machine")
    hatch("sdist", copy, folder, dict(os.environ))
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        members.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def hatch(target: str, source: Path, folder: Path, variables: dict[str, str]) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, env=variables, check=True, capture_output=True, text=True, timeout=300)


@pytest.fixture
def build(source: Path, tmp_path: Path) -> Build:
    """Builds a wheel from the source distribution, under variables of the environment."""

    def wheel(**variables: str) -> Path:
        hatch("wheel", source, tmp_path, {**os.environ, **variables})
        (made,) = tmp_path.glob("*.whl")
        return made

    return wheel


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def use(wheel: Path, folder: Path) -> dict[str, object]:
    """What a process says that has the package from the wheel."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    said = subprocess.check_output([sys.executable, "-c", USE], cwd=folder, env=variables, text=True, timeout=300)
    found: dict[str, object] = json.loads(said)
    return found


def test_h6_a_source_distribution_has_all_that_is_built_and_nothing_that_was(source: Path) -> None:
    assert (source / "hatch_build.py").exists()
    assert (source / "grammar_backends/kernels/apply_cpu.c").exists()
    assert not (source / LIBRARY).exists()


@pytest.mark.parametrize("variables", [{"CC": "false"}, {"PATH": ""}], ids=["broken", "none"])
def test_h6_without_a_compiler_the_wheel_is_pure_and_masks_are_applied(
    build: Build, tmp_path: Path, variables: dict[str, str]
) -> None:
    wheel = build(**variables)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert LIBRARY not in names_in(wheel)
    assert NOTE in names_in(wheel)
    found = use(wheel, tmp_path / "installed")
    assert found["allowed"] == [list(range(32)), [0, 2, 32]]
    assert "compiled" not in found["implementations"]
    assert found["missing"]["compiled"].startswith("false failed" if "CC" in variables else "no C compiler was found")


def test_h6_with_a_compiler_the_wheel_is_the_platforms_and_masks_are_applied_by_compiled_code(
    build: Build, tmp_path: Path, build_library: Callable[..., Path]
) -> None:
    build_library()  # skips where there is no compiler
    wheel = build()
    python, abi, platform = wheel.stem.split("-")[-3:]
    assert (python, abi) == ("py3", "none")
    assert platform != "any"
    assert LIBRARY in names_in(wheel)
    assert NOTE not in names_in(wheel)
    found = use(wheel, tmp_path / "installed")
    assert found["allowed"] == [list(range(32)), [0, 2, 32]]
    assert found["implementations"][0] == "compiled"
    assert "compiled" not in found["missing"]


def test_h6_a_source_that_does_not_compile_is_told_with_the_compilers_words(
    build_hook: ModuleType, build_library: Callable[..., Path], tmp_path: Path
) -> None:
    build_library()  # skips where there is no compiler
    wrong = tmp_path / "wrong.c"
    wrong.write_text("int answer(void) { return fourty_two; }\n")
    with pytest.raises(build_hook.CompileFailure, match="fourty_two"):
        build_hook.compile_library(wrong, tmp_path / "wrong.so")
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.c"]
