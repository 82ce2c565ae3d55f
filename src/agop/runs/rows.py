"""Rows of a run: collected from its cells, and read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from reprlib import repr as short
from types import NoneType
from typing import Any

from agop.errors import FileError
from agop.runs.cell_files import SEAL, CellFiles
from agop.runs.records import parse
from agop.runs.spec import Cell, RunSpec
from agop.system.files import write_atomically

Row = dict[str, Any]
Cells = dict[Cell, CellFiles]
Curves = dict[tuple[str, str, str, str], dict[int, list[float]]]
FILES = ("rows.jsonl", "timings.jsonl", "convergence.jsonl")
_NEEDED = ("scenario", "background", "seed", "method", "metric", "value")
_TYPES: dict[str, tuple[type, ...]] = dict.fromkeys(("scenario", "background", "masks", "method", "metric"), (str,))
_TYPES |= {"seed": (int,), "n": (int,), "step": (int,), "value": (float, int, NoneType), "undefined": (dict,)}


def row(method: str, metric: str, value: float | None, n: int) -> Row:
    """A row without its cell."""
    return {"method": method, "metric": metric, "value": value, "n": n}


def missing(cells: Iterable[Cell], folder: Path) -> list[Cell]:
    """The cells that the run folder doesn't have yet."""
    return [cell for cell in cells if not (folder / "cells" / cell.name / SEAL).exists()]


def cell_files(spec: RunSpec, folder: Path) -> Cells:
    """The files of all cells, in the order of the rows. Raises FileError if a cell is missing."""
    if unfinished := missing(spec.cells(), folder):
        raise FileError(
            f"{folder} is incomplete, {len(unfinished)} of {len(spec.cells())} cells are missing, the first is "
            f"{unfinished[0].name}: run the bench again to resume"
        )
    return {cell: CellFiles(folder / "cells" / cell.name) for cell in spec.cells()}


def collected(cells: Cells, name: str) -> bytes:
    """A row file of the run, from those of its cells."""
    return b"".join(files.content(name) for files in cells.values())


def collect(spec: RunSpec, folder: Path) -> None:
    """Write the row files of a run, from those of its cells in the order of the specification."""
    cells = cell_files(spec, folder)
    for name in FILES:
        write_atomically(folder / name, collected(cells, name))


def read(folder: Path, name: str = "rows.jsonl") -> list[Row]:
    """Rows of a run folder."""
    return parsed(cell_files(RunSpec.load(folder), folder), name)


def parsed(cells: Cells, name: str) -> list[Row]:
    """Rows of the cells, not of the collected file, which has no checksum. Raises FileError for malformed rows."""
    needed = {*_NEEDED, "step"} if name == "convergence.jsonl" else {*_NEEDED}
    rows = []
    for cell, files in cells.items():
        content, own = files.content(name), asdict(cell).items()
        with files.reading(name):
            of_cell = [_row(line, needed) for line in content.splitlines()]
            if not all(own <= row.items() for row in of_cell):
                raise ValueError("it has rows of another cell")
        rows += of_cell
    return rows


def _row(line: bytes, needed: set[str]) -> Row:
    row = {name: value for name, value in parse(line).items() if name in _TYPES}
    if not needed <= row.keys():
        raise ValueError(f"a row lacks {min(needed - row.keys())}")
    wrong = [name for name, value in row.items() if type(value) not in _TYPES[name]]
    if wrong or not all(type(count) is int for count in row.get("undefined", {}).values()):
        name = wrong[0] if wrong else "undefined"
        raise ValueError(f"{name} of a row is {short(row[name])}")
    return row


def curves(rows: Iterable[Row]) -> Curves:
    """Defined values of all seeds at each step, by scenario, background, method and metric."""
    by_key: Curves = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["value"] is not None:
            key = row["scenario"], row["background"], row["method"], row["metric"]
            by_key[key][int(row["step"])].append(float(row["value"]))
    return by_key
