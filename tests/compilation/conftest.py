"""Managers over backends that misbehave; see `hostile_engines`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import GrammarSpec, PluginHost, Vocabulary, load_vocabulary
from grammar_backends.compilation import GrammarManager, ManagerLimits

HERE = Path(__file__).parent
PATHS = (str(HERE), str(HERE.parent / "comparison" / "toys"))

MakeManager = Callable[..., GrammarManager]


class Diary:
    """What a hostile backend has compiled, in whichever process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "diary"
        self.path.touch()
        self.fifo = folder / "fifo"
        os.mkfifo(self.fifo)

    def __call__(self) -> list[str]:
        return self.path.read_text().split()

    def wait_until_entered(self) -> Callable[[], None]:
        """Return once a backend is inside "wait"; the answer lets it go on."""
        return open(self.fifo, "w").close


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return load_vocabulary("byte")


@pytest.fixture(scope="session")
def module_paths() -> list[str]:
    """Where the hostile backends' modules are, for another interpreter."""
    return list(PATHS)


@pytest.fixture(scope="session")
def host() -> Iterator[PluginHost]:
    """A host with the hostile backends only; workers find their module on the path, as this process does."""
    sys.path[:0] = PATHS
    import hostile_engines

    yield PluginHost(autoload=False, plugins={"hostile": hostile_engines})
    for path in PATHS:
        sys.path.remove(path)


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path)


@pytest.fixture
def make_manager(vocabulary: Vocabulary, host: PluginHost, diary: Diary) -> Iterator[MakeManager]:
    """Managers that are shut down after the test; arguments as for `GrammarManager`, limits among them."""
    made: list[GrammarManager] = []
    options = {"diary": str(diary.path), "fifo": str(diary.fifo), "pid": str(os.getpid())}
    names = [record.spec.name for record in host.backends]
    limit_names = set(ManagerLimits.__dataclass_fields__)

    def make(**arguments: Any) -> GrammarManager:
        limits = {name: arguments.pop(name) for name in list(arguments) if name in limit_names}
        defaults = {"backend": "serial", "host": host, "options": dict.fromkeys(names, options)}
        made.append(
            GrammarManager(vocabulary, limits=ManagerLimits(**{"workers": 2, **limits}), **{**defaults, **arguments})
        )
        return made[-1]

    yield make
    for manager in made:
        manager.shutdown()


@pytest.fixture(scope="session")
def choice() -> Callable[..., GrammarSpec]:
    """A choice of these texts."""
    return lambda *texts: GrammarSpec.choice(texts)
