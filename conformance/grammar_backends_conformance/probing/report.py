"""What a probing found about one backend, beside the data that its plugin ships."""

from __future__ import annotations

import difflib
import importlib.resources
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grammar_backends.contract import BackendSpec
from grammar_backends.errors import PluginError
from grammar_backends.selection.tables import nearest
from grammar_backends_conformance.probing.derivation import derive
from grammar_backends_conformance.probing.features import disagreements
from grammar_backends_conformance.probing.layout import dumps
from grammar_backends_conformance.probing.probes import combinations, single_probes
from grammar_backends_conformance.probing.run import Measured
from grammar_backends_conformance.running.files import write_text

__all__ = ["Report"]


@dataclass
class Report:
    """One backend's outcome.

    Attributes:
        backend: its name.
        version: the engine's.
        path: the file of support data.
        present: what is in it; "" when there is none.
        derived: what should be.
        verdicts: how many probes had which verdict.
        disagreements: what is declared in code and does not hold, and probes that no data account for.
        overcautious: probes that the engine enforces and the data refuse.
    """

    backend: str
    version: str
    path: Path
    present: str
    derived: str
    verdicts: Counter[str]
    disagreements: list[str] = field(default_factory=list)
    overcautious: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, spec: BackendSpec, measured: Measured) -> Report:
        """Derive the data, and hold them and the plugin's declarations against what was measured."""
        path = _path(spec)
        present = path.read_text("utf-8") if path.exists() else ""
        tables = _tables(present)
        probes = (*single_probes(), *combinations())
        found = derive(measured.verdicts, probes, _declared(spec, tables, measured.version))
        wrong = disagreements(spec, probes, measured.verdicts)
        wrong += [f"{id_}: got wrong, and no check accounts for it" for id_ in found.unexplained]
        counts: Counter[str] = Counter(measured.verdicts.values())
        derived = dumps(_with(tables, found.table, measured.version))
        return cls(spec.name, measured.version, path, present, derived, counts, wrong, found.overcautious)

    @property
    def differs(self) -> bool:
        """Whether the data in the file are others than those derived."""
        return self.present != self.derived

    @property
    def diff(self) -> str:
        """From the data in the file to those derived."""
        lines = difflib.unified_diff(
            self.present.splitlines(), self.derived.splitlines(), f"{self.path.name} of {self.backend}", "as measured"
        )
        return "\n".join(line.rstrip("\n") for line in lines)

    @property
    def counts(self) -> list[str]:
        """Cells of a table: who, and how many probes of each verdict."""
        verdicts = self.verdicts
        enforced = verdicts["enforced"] + verdicts["within policy"]
        numbers = (verdicts.total(), enforced, verdicts["over-constrains"], verdicts["refuses"], verdicts["wrong"])
        return [self.backend, self.version, *map(str, numbers)]

    def write(self) -> None:
        """Write the derived data into the plugin.

        Raises:
            OSError: its package cannot be written to.
        """
        write_text(self.path, self.derived)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "backend": self.backend,
            "version": self.version,
            "verdicts": dict(self.verdicts),
            "differs": self.differs,
            "diff": self.diff,
            "disagreements": self.disagreements,
            "overcautious": self.overcautious,
            "data": json.loads(self.derived),
        }


def _path(spec: BackendSpec) -> Path:
    package, _, name = (spec.capabilities.support or "").partition(":")
    path = Path(str(importlib.resources.files(package))) / name
    if not path.parent.is_dir():
        raise PluginError(f"support data {spec.capabilities.support} of {spec.name} are not in a folder")
    return path


def _tables(present: str) -> list[dict[str, Any]]:
    """The tables in a file: one by itself, or a list for several ranges of versions."""
    data = json.loads(present) if present else []
    return data if isinstance(data, list) else [data]


def _declared(spec: BackendSpec, tables: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """What is kept of the data there are: which versions they are for, and what is too slow."""
    index, fits = nearest(tables, version) if tables else (0, False)
    table = tables[index] if tables else {}
    declared = {"engine": spec.name, "measured": version, "versions": table["versions"] if fits else f"=={version}"}
    depth = table.get("checks", {}).get("depth")
    return {**declared, "costs": table.get("costs", {}), **({"depth": depth["most"]} if depth else {})}


def _with(tables: list[dict[str, Any]], table: dict[str, Any], version: str) -> Any:
    """The content of the file with a new table, in the place of the one for this version."""
    index, fits = nearest(tables, version) if tables else (0, False)
    written = [*tables[:index], table, *tables[index + 1 :]] if fits else [*tables, table]
    return written[0] if len(written) == 1 else written
