"""The folder of a cell: rows, timings, convergence, the scores behind the rows, and a few samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor, nn

from agop.evaluating.scoring import MethodScores, summary
from agop.model.probe import probing
from agop.pictures.heat import Picture
from agop.runs.cell_files import SCORES, seal
from agop.runs.gallery import Gallery
from agop.runs.rows import Row, row
from agop.runs.spec import Cell
from agop.system.files import write_atomically


@dataclass
class CellScores:
    """Rows and timings of a cell, the scores (N,) behind them by "masks/method/metric", and maps by method."""

    rows: list[Row] = field(default_factory=list)
    samples: dict[str, Tensor] = field(default_factory=dict)
    timings: list[Row] = field(default_factory=list)
    maps: dict[str, Tensor] = field(default_factory=dict)

    def add(self, result: MethodScores) -> None:
        """Add one method's scores, its timing and its maps."""
        self.add_scores(result)
        count = len(next(iter(result.undefined.values())))
        self.timings.append(row(result.method, "milliseconds", result.milliseconds, count))
        self.maps[result.method] = result.maps

    def add_scores(self, result: MethodScores) -> None:
        """Add one method's scores only: those of further images, such as grids."""
        name = result.method
        for kind, scores in result.scores.items():
            for metric, values in scores.items():
                self.samples[f"{kind}/{name}/{metric}"] = values
                means = summary(values, result.undefined[kind])
                self.rows.append({"masks": kind, "method": name, "metric": metric, **means})

    def skip(self, method: str, metrics: Mapping[str, Sequence[str]], reason: str, count: int) -> None:
        """Add rows without a value for a method that can't run, by kind of masks and metric."""
        for kind, names in metrics.items():
            for metric in names:
                undefined = {"value": None, "n": 0, "undefined": {reason: count}}
                self.rows.append({"masks": kind, "method": method, "metric": metric, **undefined})

    def write(self, folder: Path, cell: Cell, convergence: Iterable[Row] = ()) -> None:
        """Write rows, timings, convergence and scores into the folder of the cell, then seal it: call this last."""
        for name, rows in (("rows", self.rows), ("timings", self.timings), ("convergence", convergence)):
            lines = "".join(json.dumps(asdict(cell) | row) + "\n" for row in rows)
            write_atomically(folder / f"{name}.jsonl", lines.encode())
        write_tensors(folder / SCORES, self.samples)
        seal(folder)


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
    """A few samples as a report shows them, with the model's predictions."""
    with probing(model) as probe:
        predicted = probe.predict(images).cpu()
    labels = predicted.new_full((len(images),), -1) if labels is None else labels
    return Gallery(
        pictures,
        labels.cpu().numpy(),
        predicted.numpy(),
        {kind: truth.cpu().numpy() for kind, truth in masks.items()},
        {name: heat.detach().float().cpu().numpy() for name, heat in maps.items()},
        None if places is None else np.array(places),
    )
