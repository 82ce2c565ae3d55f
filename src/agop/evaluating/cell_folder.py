"""The folder of a cell: rows, timings, what was noted on the way, the scores behind the rows, a few samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor, nn

from agop.model.probe import probing
from agop.pictures.heat import Picture
from agop.runs.gallery import Gallery
from agop.runs.rows import Row
from agop.runs.spec import Cell
from agop.system.files import write_atomically


@dataclass
class Scores:
    """The rows of a cell, the scores (N,) behind them by "masks/method/metric", milliseconds a sample, and the maps
    of the first samples by method.
    """

    rows: list[Row] = field(default_factory=list)
    samples: dict[str, Tensor] = field(default_factory=dict)
    timings: list[Row] = field(default_factory=list)
    maps: dict[str, Tensor] = field(default_factory=dict)

    def write(self, folder: Path, cell: Cell, noted: Iterable[Row] = ()) -> None:
        """Write them into the folder of their cell."""
        for name, rows in (("rows", self.rows), ("timings", self.timings), ("convergence", noted)):
            lines = "".join(json.dumps(asdict(cell) | row) + "\n" for row in rows)
            write_atomically(folder / f"{name}.jsonl", lines.encode())
        write_tensors(folder / "scores.safetensors", self.samples)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name into one file."""
    write_atomically(path, bytes_from_tensors({name: tensor.contiguous() for name, tensor in tensors.items()}))


def gallery(
    model: nn.Module,
    images: Tensor,
    pictures: Picture,
    masks: Mapping[str, Tensor],
    maps: Mapping[str, Tensor],
    labels: Tensor | None = None,
    places: Sequence[int] | None = None,
) -> Gallery:
    """A few samples as a report shows them, with what the model says of them."""
    with probing(model) as probe:
        predicted = probe.predict(images).cpu()
    known = predicted.new_full((len(images),), -1) if labels is None else labels
    return Gallery(
        pictures,
        known.cpu().numpy(),
        predicted.numpy(),
        {kind: shown.cpu().numpy() for kind, shown in masks.items()},
        {name: found.detach().float().cpu().numpy() for name, found in maps.items()},
        None if places is None else np.array(places),
    )
