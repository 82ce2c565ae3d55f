"""Drawn samples on disk, in chunks with checksums."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from agop.errors import FileError, warn
from agop.system.files import read_bytes, write_atomically

# Any: NumPy's types take every keyword of savez for its flag allow_pickle.
Arrays = dict[str, Any]


def cache_folder() -> Path:
    """AGOP_CACHE, or agop in the user's cache folder."""
    if os.environ.get("AGOP_CACHE"):
        return Path(os.environ["AGOP_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agop"


def is_cached(folder: Path, chunk: int) -> bool:
    """Whether a chunk is there and its checksum matches. Warns about a mismatch."""
    path = _path(folder, chunk)
    if not path.exists() or not path.with_suffix(".sha256").exists():
        return False
    matches = _digest(read_bytes(path)) == read_bytes(path.with_suffix(".sha256"))
    if not matches:
        warn(f"{path} is corrupt: its scenes will be drawn again")
    return matches


def write_chunk(folder: Path, chunk: int, arrays: Arrays) -> None:
    """Write a chunk's arrays, then their checksum."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(_path(folder, chunk), buffer.getvalue())
    write_atomically(_path(folder, chunk).with_suffix(".sha256"), _digest(buffer.getvalue()))


def read_chunk(folder: Path, chunk: int) -> Arrays:
    """Read a chunk's arrays."""
    path = _path(folder, chunk)
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as file:
            return dict(file)
    except (ValueError, KeyError, BadZipFile) as error:
        raise FileError(f"could not read {path} ({error}): delete it, and its scenes will be drawn again") from error


def _path(folder: Path, chunk: int) -> Path:
    return folder / f"scenes-{chunk:05d}.npz"


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
