"""CIFAR-10's own files: batches of the python version (pickles) and of the binary version."""

from __future__ import annotations

import codecs
import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.errors import FileError
from agop.system.files import read_bytes

_VALUES = 3 * 32 * 32
_BATCH = re.compile(r"(data_batch_\d+|test_batch)(\.bin)?")
# Everything that a batch of the python version needs. Any other name in a pickle could run code.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


def batches(folder: Path) -> list[Path]:
    """The files of CIFAR-10 in a folder: data_batch_1 … test_batch, or with .bin."""
    return sorted(path for path in folder.iterdir() if _BATCH.fullmatch(path.name))


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (N,32,32,3) and labels (N,) of one file."""
    content = read_bytes(path)
    rows, labels = _from_binary(content, path) if path.suffix == ".bin" else _from_pickle(content, path)
    return np.asarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def read_folder(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (N,32,32,3) and labels (N,) of all files of CIFAR-10 in a folder."""
    images, labels = zip(*map(read_batch, batches(folder)), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _from_binary(content: bytes, path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Rows (N,3072) and labels (N,): each record is a label and the red, green and blue values."""
    if not content or len(content) % (1 + _VALUES):
        raise FileError(f"{path} has {len(content):,} bytes, not a multiple of {1 + _VALUES}: download it again")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _VALUES)
    return records[:, 1:], records[:, 0]


def _from_pickle(content: bytes, path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Rows (N,3072) and labels (N,) of a pickled dict, read without running any code of the file."""
    try:
        batch: Any = _Reader(io.BytesIO(content), encoding="bytes").load()
        rows, labels = batch[b"data"], np.array(batch[b"labels"], np.uint8)
    except Exception as error:  # whatever a damaged pickle raises
        raise FileError(f"{path} is neither an .npz file nor a batch of CIFAR-10: {error}") from error
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _VALUES:
        raise FileError(f"{path} has no images of CIFAR-10: data must be bytes (N,{_VALUES})")
    if labels.shape != rows.shape[:1]:
        raise FileError(f"{path} has {len(rows)} images and labels of shape {labels.shape}: download it again")
    return rows, labels


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """An allowed name. Raises UnpicklingError for all others."""
        key = module.replace("numpy._core", "numpy.core"), name
        if key not in _ALLOWED:
            raise pickle.UnpicklingError(f"it needs {module}.{name}, which could run code")
        return _ALLOWED[key]
