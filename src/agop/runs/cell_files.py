"""The files of a finished cell. cell.json lists them with their checksums, which are verified on reading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from agop.runs.about import versions
from agop.runs.records import LARGEST, damaged, digest, parse, read_record, write_record
from agop.system.files import read_bytes
from agop.system.safetensors_metadata import safetensors_metadata

SEAL = "cell.json"
SCORES, PRIOR, WEIGHTS = "scores.safetensors", "agop.safetensors", "checkpoint.safetensors"
_SNAPSHOT = re.compile(r"snapshots/step-(\d{1,15})\.safetensors")
Array = NDArray[Any]


@dataclass(frozen=True)
class _Sealed:
    """Checksums by file, numbers of rows by file, and versions by package."""

    files: dict[str, str]
    rows: dict[str, int]
    versions: dict[str, str]


def seal(folder: Path) -> None:
    """Write cell.json: checksums of all results in the folder, numbers of rows, and the versions that made them."""
    paths = sorted([*folder.glob("*.jsonl"), *folder.rglob("*.safetensors")])
    contents = {path.relative_to(folder).as_posix(): read_bytes(path) for path in paths}
    rows = {name: content.count(b"\n") for name, content in contents.items() if name.endswith(".jsonl")}
    files = {name: digest(content) for name, content in contents.items()}
    write_record(folder / SEAL, asdict(_Sealed(files, rows, versions())))


class CellFiles:
    """Reader of a finished cell. Raises FileError for a file that is missing, changed or malformed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fix = f"delete {folder} and run again"
        self._sealed = read_record(folder / SEAL, _Sealed, self._fix)
        self.versions = self._sealed.versions

    def content(self, name: str) -> bytes:
        """Content of a file."""
        with self.reading(name):
            content, rows = read_bytes(self.folder / name), self._sealed.rows.get(name)
            lines = content.count(b"\n")
            if rows not in (None, lines):
                raise ValueError(f"it has {lines} rows instead of {rows}")
            if digest(content) != self._sealed.files.get(name):
                raise ValueError("its checksum doesn't match")
        return content

    def arrays(self, name: str) -> dict[str, Array] | None:
        """Arrays of a .safetensors file by name, sorted; None if the cell doesn't have the file."""
        if name not in self._sealed.files:
            return None
        with self.reading(name):
            return dict(sorted(load(self.content(name)).items()))

    def prior_values(self) -> dict[str, Any]:
        """The JSON object of the prior: its layer, its count …"""
        with self.reading(PRIOR):
            return parse(safetensors_metadata(self.content(PRIOR))["agop"].encode())

    def scores(self) -> dict[str, Array]:
        """Scores (N,) by "masks/method/metric", not finite where undefined."""
        with self.reading(SCORES):
            scores = self.arrays(SCORES) or {}
            if unnamed := [key for key in scores if key.count("/") < 2]:
                raise ValueError(f"{unnamed[0]!r} isn't masks/method/metric")
            return {key: numbers(scores, key, [None]) for key in scores}

    def class_diagonals(self) -> Array | None:
        """diag(M) per class (K,C,H,W), NaN for a class without samples; None without a prior per class."""
        with self.reading(PRIOR):
            arrays = self.arrays(PRIOR) or {}
            return numbers(arrays, "class_diagonals", [None] * 4) if "class_diagonals" in arrays else None

    def snapshots(self) -> dict[int, str]:
        """Names of the snapshot files by training step."""
        matches = (_SNAPSHOT.fullmatch(name) for name in self._sealed.files)
        return dict(sorted((int(match[1]), match[0]) for match in matches if match))

    def diagonals(self, steps: Sequence[int]) -> Array:
        """diag(M), channels summed, (S,H,W) at these steps."""
        maps: list[Array] = []
        for step in steps:
            name = self.snapshots()[step]
            with self.reading(name):
                diagonal = numbers(
                    self.arrays(name) or {}, "diagonal", [None, *(maps[0].shape if maps else [None] * 2)]
                )
                maps.append(diagonal.astype(np.float64).sum(axis=0))
        return np.stack(maps)

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Turn an error about the content of a file into a FileError that names the file and the fix."""
        try:
            yield
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise damaged(self.folder / name, error, self._fix) from error


def numbers(arrays: dict[str, Array], name: str, shape: Sequence[int | None]) -> Array:
    """The array of that name. Raises ValueError unless it has this shape, where None is any number above 0."""
    array = arrays[name]
    fits = len(shape) == array.ndim and all(b > 0 and a in (None, b) for a, b in zip(shape, array.shape, strict=True))
    if not fits or array.dtype.kind not in "biuf":
        expected = ", ".join("…" if side is None else str(side) for side in shape)
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, not numbers of shape ({expected})")
    if array.dtype == np.float64 and (np.isfinite(array) & (abs(array) > LARGEST)).any():
        raise ValueError(f"{name} has numbers above {LARGEST:g}")
    return array
