"""The result of an evaluation: prints as a table, saves as a run folder."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor, nn

from agop import methods as all_methods
from agop import metrics as all_metrics
from agop.errors import InputError
from agop.evaluation.scoring import MethodScores, all_logits, summary
from agop.images.overlays import Picture
from agop.io import own_folder, write_atomically
from agop.metrics import Metric
from agop.model.outputs import Output, logit
from agop.model.outputs import predicted as predicted_classes
from agop.prior.agop import AGOP
from agop.report.folder import (
    FILES,
    SCORES,
    Cell,
    Gallery,
    Row,
    RunSpec,
    check_folder_name,
    collect,
    is_control,
    is_model_independent,
    new_run,
    row,
    save_about,
    save_cell,
)
from agop.report.run import ABOVE, LEVEL, WON, marks
from agop.stats import estimate
from agop.tables import Table, number

BENCHMARK, _UNFINISHED = "evaluation", ".agop-unfinished"  # a name that no folder of a user has
# Instead of a benchmark's mean mask, which is that of its training data.
_MEAN_MASK = "Control: the mean mask of the evaluated images, the same for every image."
_WIDTH = 120
_LEGEND = {
    WON: "best method",
    LEVEL: "not significantly different from it (paired test at 5 %, corrected for the number of methods)",
    ABOVE: "control that scores higher",
    "↓": "lower is better",
}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores of each method, and a few samples with their maps. Prints as a table.

    `masks` is the main kind of masks: "true", "signed" … `notes` are lines below the table and in the report.
    """

    unit: ClassVar[str] = "images"
    command: ClassVar[str] = "agop.evaluate(…)"
    results: tuple[MethodScores, ...]
    gallery: Gallery
    prior: AGOP | None = None
    masks: str = "true"
    accuracy: float | None = None
    steps: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def scores(self) -> dict[str, dict[str, Tensor]]:
        """Scores (N,) by method and metric. Each kind of masks has its own metrics."""
        return {
            result.method: {metric: values for own in result.scores.values() for metric, values in own.items()}
            for result in self.results
        }

    @property
    def undefined(self) -> dict[str, list[str | None]]:
        """The reason why a sample's scores are undefined, or None, by method."""
        return {result.method: result.undefined[self.masks] for result in self.results}

    @property
    def milliseconds(self) -> dict[str, float]:
        """Milliseconds per sample, by method."""
        return {result.method: result.milliseconds for result in self.results}

    def rows(self) -> list[Row]:
        """One row per method and metric: mean of the defined scores, their number, reasons for the undefined ones."""
        return [
            {"method": result.method, "metric": metric, **summary(values, result.undefined[kind])}
            for result in self.results
            for kind, scores in result.scores.items()
            for metric, values in scores.items()
        ]

    def save(self, folder: str | os.PathLike[str], name: str = "own", *, force: bool = False, **about: Any) -> None:
        """Write a run folder for `agop report`. An earlier evaluation in the folder is replaced.

        Args:
            folder: A new or empty folder, or one that agop wrote.
            name: Name of the data.
            force: Write also into a folder with other files, which are kept.
            about: Additions to about.json.

        Raises:
            InputError: If the folder has other files or the run of a benchmark.

        Example:
            agop.evaluate(model, images, masks).save("runs/own", "my photos")
        """
        check_place(folder, name, force=force)
        metrics, count = tuple(self.results[0].scores[self.masks]), len(self.results[0].undefined[self.masks])
        spec = RunSpec(
            BENCHMARK, (name,), ("given",), 1, tuple(self.scores), metrics, self.masks, epochs=0,
            test_images=count, intervals="samples", steps=self.steps,
        )  # fmt: skip
        defaults = {
            "command": self.command,
            "notes": self.notes,
            "methods": {"mean-mask": _MEAN_MASK} | all_methods.descriptions(spec.methods),
            "metrics": {metric.name: metric.described(self.steps) for metric in self._metrics},
        }
        (cell,) = spec.cells()
        scores = CellScores()
        if self.accuracy is not None:
            scores.rows.append({"masks": self.masks, **row("model", "accuracy", self.accuracy, count)})
        for result in self.results:
            scores.add(result)
        with new_run(Path(folder)) as path:
            place = path / "cells" / cell.name
            save_about(path, **defaults | about)
            spec.save(path)
            self.gallery.save(place)
            if self.prior is not None:
                self.prior.save(place / "agop.safetensors")
            scores.write(place, cell)
            collect(spec, path)
        shutil.rmtree(Path(folder) / _UNFINISHED, ignore_errors=True)

    def __repr__(self) -> str:
        """A table of methods by metrics, for a notebook or a prompt."""
        scores = self.scores
        columns = [self._column(metric, {m: of[metric.name] for m, of in scores.items()}) for metric in self._metrics]
        columns.append(["ms", *(number(value, "milliseconds") for value in self.milliseconds.values())])
        count = len(self.results[0].undefined[self.masks])
        names, *cells = zip(["", *scores], *columns, strict=True)
        lines = [f"means over {self.unit} (N = {count:,}) with 95 % intervals", *Table(names, cells).text(_WIDTH)]
        shown = "".join(text for column in columns for text in column)
        lines += [f"{mark} {meaning}" for mark, meaning in _LEGEND.items() if mark in shown]
        controls = [method for method in scores if is_control(method)]
        for independent, how in ((True, "don't depend on the model"), (False, "depend on the model in part")):
            if some := [control for control in controls if is_model_independent(control) == independent]:
                lines.append(f"controls, which {how}: {', '.join(some)}")
        return "\n".join([*lines, *self._remarks(), *self.notes])

    def _column(self, metric: Metric, scores: Mapping[str, Tensor]) -> list[str]:
        """The metric's label, then mean, interval and mark of each method.

        As in the report, a method with less than half of the samples isn't compared.
        """
        low, high = metric.bounds
        bounds = (-high if self.masks == "signed" else low, high)
        every = {method: estimate(values, bounds) for method, values in scores.items()}
        means = {method: mean for method, mean in every.items() if mean is not None}
        most = max((len(mean.values) for mean in means.values()), default=0)
        rivals = [method for method, mean in means.items() if not is_control(method) and 2 * len(mean.values) >= most]
        sign = 1 if metric.higher_is_better else -1
        marked = marks(means, rivals, lambda a, b: estimate(sign * (scores[a] - scores[b])), up=metric.higher_is_better)
        cells = (f"{means[m]} {marked.get(m, '')}".rstrip() if m in means else "–" for m in scores)
        return [metric.label + ("" if metric.higher_is_better else " ↓"), *cells]

    @property
    def _metrics(self) -> list[Metric]:
        return [all_metrics.get(name) for name in self.scores[self.results[0].method]]

    def _remarks(self) -> list[str]:
        """Lines below the table: the accuracy, and how many scores are undefined and why, methods grouped by note."""
        methods: dict[str, list[str]] = {}
        for method, undefined in self.undefined.items():
            if reasons := Counter(reason for reason in undefined if reason):
                counts = ", ".join(f"{reason}: {count}" for reason, count in reasons.items())
                note = f"scores of {reasons.total()} of {len(undefined)} samples are undefined ({counts})"
                methods.setdefault(note, []).append(method)
        notes = [] if self.accuracy is None else [f"accuracy {self.accuracy:.3f}"]
        for note, names in methods.items():
            notes.append(note if len(names) == len(self.results) else f"{', '.join(names)}: {note}")
        return notes


def check_place(folder: str | os.PathLike[str], name: str = "own", *, force: bool = False) -> Path:
    """Make the folder agop's own. Raises for the run of another benchmark, and for a name that can't be in a path.

    Returns the folder for finished methods of an evaluation that isn't.
    """
    path = Path(folder)
    check_folder_name(name)
    if (path / "spec.json").exists() and RunSpec.load(path).benchmark != BENCHMARK:
        raise InputError(f"{folder} already exists and isn't an evaluation: choose another folder")
    own_folder(path, force=force)
    return path / _UNFINISHED


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
        undefined = {"value": None, "n": 0, "undefined": {reason: count}}
        for kind, names in metrics.items():
            self.rows += [{"masks": kind, "method": method, "metric": metric, **undefined} for metric in names]

    def write(self, folder: Path, cell: Cell, convergence: Iterable[Row] = ()) -> None:
        """Write rows, timings, convergence and scores into the folder of the cell."""
        write_tensors(folder / SCORES, self.samples)
        save_cell(folder, cell, dict(zip(FILES, (self.rows, self.timings, convergence), strict=True)))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name into one file."""
    write_atomically(path, bytes_from_tensors({name: tensor.contiguous() for name, tensor in tensors.items()}))


def gallery(
    model: nn.Module | None,
    images: Tensor,
    pictures: Picture,
    masks: Mapping[str, Tensor],
    maps: Mapping[str, Tensor],
    labels: Tensor | None = None,
    places: Sequence[int] | None = None,
    output: Output = logit,
) -> Gallery:
    """A few samples as a report shows them, with the predictions of the model, if it has classes."""
    unknown = torch.full((len(images),), -1)
    predicted = unknown if model is None else predicted_classes(all_logits(model, images, output=output))
    labels = unknown if labels is None else labels
    return Gallery(
        pictures,
        labels.cpu().numpy(),
        predicted.numpy(),
        {kind: truth.cpu().numpy() for kind, truth in masks.items()},
        {name: heat.detach().float().cpu().numpy() for name, heat in maps.items()},
        None if places is None else np.array(places),
    )
