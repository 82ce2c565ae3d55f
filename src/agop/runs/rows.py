"""Rows of a run: collected from its cells, and read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agop.errors import FileError
from agop.runs.spec import RunSpec
from agop.system.files import read_bytes, write_atomically

Row = dict[str, Any]
Curves = dict[tuple[str, str, str, str], dict[int, list[float]]]
FILES = ("rows.jsonl", "timings.jsonl", "convergence.jsonl")


def row(method: str, metric: str, value: float | None, n: int) -> Row:
    """A row without its cell."""
    return {"method": method, "metric": metric, "value": value, "n": n}


def collect(spec: RunSpec, folder: Path) -> None:
    """Write the row files of a run, from those of its cells in the order of the specification."""
    for name in FILES:
        parts = [read_bytes(folder / "cells" / cell.name / name) for cell in spec.cells()]
        write_atomically(folder / name, b"".join(parts))


def read(folder: Path, name: str = "rows.jsonl") -> list[Row]:
    """Rows of a run. A truncated or missing file is collected from the cells again."""
    spec = RunSpec.load(folder)
    try:
        return _parsed(folder / name)
    except (FileError, ValueError):
        missing = [cell.name for cell in spec.cells() if not (folder / "cells" / cell.name / name).exists()]
        if missing:
            raise FileError(
                f"{folder} is incomplete, {len(missing)} of {len(spec.cells())} cells are missing, the first is "
                f"{missing[0]}: run the bench again to resume"
            ) from None
        collect(spec, folder)
        return _parsed(folder / name)


def _parsed(path: Path) -> list[Row]:
    lines = read_bytes(path).decode().splitlines(keepends=True)
    if not lines or not lines[-1].endswith("\n"):
        raise ValueError(f"{path} is truncated")
    return [json.loads(line) for line in lines]


def curves(rows: Iterable[Row]) -> Curves:
    """Defined values of all seeds at each step, by scenario, background, method and metric."""
    by_key: Curves = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["value"] is not None:
            key = row["scenario"], row["background"], row["method"], row["metric"]
            by_key[key][int(row["step"])].append(float(row["value"]))
    return by_key
