"""Delete a run, but no file of the user's: a folder that contains anything else than a run stays as it is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from agop.errors import FileError, InputError
from agop.runs.cell_files import SEAL
from agop.runs.links import refuse_links
from agop.runs.records import read_values
from agop.runs.spec import RunSpec
from agop.system.typed_json import from_json

LOCK = ".lock"
# What a run folder and the folder of a cell contain. A killed process may leave temporary files.
_TEMPORARY = r"\.agop-\w+\.part"
_ROWS = r"(rows|timings|convergence)\.jsonl"
_IN_RUN = re.compile(rf"(spec|about)\.json|{_ROWS}|index\.html|{re.escape(LOCK)}|cells|{_TEMPORARY}")
_IN_CELL = re.compile(
    rf"{_ROWS}|cell\.json|training\.pt|(scores|gallery|checkpoint|agop|agop-\w+)\.safetensors|snapshots"
    rf"|(snapshots/)?{_TEMPORARY}|snapshots/step-\d+\.safetensors"
)


def check_removable(folder: Path) -> None:
    """Raise unless the folder has a specification and contains only files of its run."""
    refuse_links(folder)
    if others := _others(folder):
        raise InputError(
            f"{folder} also contains {others[0]}, which isn't part of its run: move it away, or choose another --out"
        )


def remove_run(folder: Path) -> None:
    """Delete all files of a run except its lock. Raises before anything is deleted if there are other files."""
    check_removable(folder)
    cells = folder / "cells"
    try:
        for path in cells.glob(f"*/{SEAL}"):  # first: without it, a cell isn't finished, whatever is left of it
            path.unlink()
        if cells.exists():
            shutil.rmtree(cells)
        # The specification last: if the process is killed, the folder is still a run.
        for path in sorted(folder.iterdir(), key=lambda path: path.name == "spec.json"):
            if path.name != LOCK:
                path.unlink()
    except OSError as error:
        raise FileError(f"could not delete {error.filename}: {error.strerror}") from error


def _others(folder: Path) -> list[str]:
    """Paths in the folder, relative to it, that its run didn't write."""
    fix = "delete the folder yourself, or choose another --out"
    values = read_values(folder / "spec.json", fix)
    try:
        spec = from_json(RunSpec, values, "spec")
    except (FileError, ValueError) as error:
        raise InputError(f"{folder} is not a run folder ({error}): {fix}") from error
    names = {name for cell in spec.cells() for name in (cell.name, f".{cell.name}.part")}
    paths = [path.relative_to(folder) for path in folder.rglob("*")]
    return sorted(str(path) for path in paths if not _belongs(path, names))


def _belongs(path: Path, cells: set[str]) -> bool:
    if len(path.parts) == 1:
        return bool(_IN_RUN.fullmatch(path.name))
    top, cell, *rest = path.parts
    return top == "cells" and cell in cells and (not rest or bool(_IN_CELL.fullmatch("/".join(rest))))
