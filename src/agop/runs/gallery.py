"""The samples of a cell that a report shows: images, masks, and the maps of every method."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from agop.runs.cell_files import CellFiles, numbers
from agop.system.files import write_atomically

SHOWN = 12
_NAME = "gallery.safetensors"
_LARGEST_INDEX = 2**53
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Gallery:
    """Some samples of a cell: images (S,H,W,3) as uint8, labels and predictions (S,), masks by kind and maps by
    method (S,H,W), and their indices (S,) in the data, None for the first ones. An unknown label is −1.
    """

    pictures: NDArray[np.uint8]
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    masks: Arrays = field(default_factory=dict)
    maps: Arrays = field(default_factory=dict)
    places: NDArray[np.int64] | None = None

    def save(self, cell: Path) -> None:
        """Write the gallery into the folder of a cell."""
        content: Arrays = {"pictures": self.pictures, "labels": self.labels, "predicted": self.predicted}
        content |= {} if self.places is None else {"places": self.places}
        for kind, arrays in (("masks", self.masks), ("maps", self.maps)):
            content |= {f"{kind}/{name}": array for name, array in arrays.items()}
        write_atomically(cell / _NAME, save({name: np.ascontiguousarray(array) for name, array in content.items()}))

    @classmethod
    def load(cls, cell: Path) -> Gallery | None:
        """Read the gallery from the folder of a cell; None if the cell has none. Raises FileError."""
        files = CellFiles(cell)
        with files.reading(_NAME):
            arrays = files.arrays(_NAME)
            if arrays is None:
                return None
            pictures = numbers(arrays, "pictures", [None, None, None, 3])
            if pictures.dtype != np.uint8:
                raise ValueError(f"pictures are {pictures.dtype}, not uint8")
            return cls(
                pictures,
                _indices(arrays, "labels", len(pictures), lowest=-1),
                _indices(arrays, "predicted", len(pictures)),
                _with_prefix(arrays, "masks", pictures.shape[:3]),
                _with_prefix(arrays, "maps", pictures.shape[:3]),
                _indices(arrays, "places", len(pictures)) if "places" in arrays else None,
            )


def spread(count: int) -> list[int]:
    """Indices of the samples to show, evenly spaced: the first ones of class folders would all be of one class."""
    return [int(place) for place in np.linspace(0, count - 1, min(count, SHOWN)).round()]


def _indices(arrays: Arrays, name: str, count: int, lowest: int = 0) -> NDArray[np.int64]:
    indices = numbers(arrays, name, [count])
    if indices.dtype.kind not in "iu" or indices.min() < lowest or indices.max() > _LARGEST_INDEX:
        raise ValueError(f"{name} aren't indices")
    return indices.astype(np.int64)


def _with_prefix(arrays: Arrays, kind: str, shape: tuple[int, ...]) -> Arrays:
    names = [name for name in arrays if name.startswith(f"{kind}/")]
    return {name.removeprefix(f"{kind}/"): numbers(arrays, name, shape) for name in names}
