"""The samples of a cell that a report shows: images, masks, and the maps of every method."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from agop.errors import FileError
from agop.system.files import read_bytes, write_atomically

SHOWN = 12
_NAME = "gallery.safetensors"
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
        """Read the gallery from the folder of a cell; None for a run of a version without galleries."""
        if not (cell / _NAME).exists():
            return None
        path = cell / _NAME
        try:
            content = load(read_bytes(path))
            pictures, labels, predicted = (content[name] for name in ("pictures", "labels", "predicted"))
        except (SafetensorError, KeyError) as error:
            raise FileError(f"{path} can't be read ({error}): delete the cell's folder and run again") from error
        return cls(
            pictures,
            labels,
            predicted,
            _with_prefix(content, "masks"),
            _with_prefix(content, "maps"),
            content.get("places"),
        )


def spread(count: int) -> list[int]:
    """Indices of the samples to show, evenly spaced: the first ones of class folders would all be of one class."""
    return [int(place) for place in np.linspace(0, count - 1, min(count, SHOWN)).round()]


def _with_prefix(content: Arrays, kind: str) -> Arrays:
    return {name.removeprefix(f"{kind}/"): array for name, array in content.items() if name.startswith(f"{kind}/")}
