"""The result of an evaluation: prints as a table, saves as a run folder."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from agop import methods as all_methods
from agop import metrics as all_metrics
from agop.errors import InputError
from agop.evaluating.cell_folder import CellScores
from agop.evaluating.score_text import score_lines
from agop.evaluating.scoring import MethodScores, summary
from agop.metrics import Metric
from agop.runs.about import save_about
from agop.runs.gallery import Gallery
from agop.runs.replacing import UNFINISHED, finish_replacing, new_run
from agop.runs.rows import Row, collect, row
from agop.runs.spec import RunSpec, check_folder_name
from agop.statistic.agop import AGOP

BENCHMARK = "evaluation"
# Instead of a benchmark's mean mask, which is that of its training data.
_MEAN_MASK = "Control: the mean mask of the evaluated images, the same for every image."


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores of each method, and a few samples with their maps. `masks` is the main kind of masks: "true", "signed" …

    `notes` are lines below the table and in the report.
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

    def save(self, folder: str | os.PathLike[str], name: str = "own", **about: Any) -> None:
        """Write a run folder for `agop report`; `name` is the name of the data, `about` adds to about.json.

        An earlier evaluation in the folder is replaced. If that is interrupted, one of the two is complete.
        """
        check_place(folder, name)
        metrics = tuple(self.results[0].scores[self.masks])
        spec = RunSpec(
            BENCHMARK, (name,), ("given",), 1, tuple(self.scores), metrics, self.masks, epochs=0,
            test_images=self._count, intervals="samples", steps=self.steps,
        )  # fmt: skip
        defaults = {
            "command": self.command,
            "notes": self.notes,
            "methods": {"mean-mask": _MEAN_MASK} | all_methods.descriptions(spec.methods),
            "metrics": {metric.name: metric.described(self.steps) for metric in self._metrics},
        }
        with new_run(Path(folder)) as path:
            self._write(path, spec, defaults | about)

    def _write(self, path: Path, spec: RunSpec, about: dict[str, Any]) -> None:
        (cell,) = spec.cells()
        place = path / "cells" / cell.name
        save_about(path, **about)
        spec.save(path)
        self.gallery.save(place)
        if self.prior is not None:
            self.prior.save(place / "agop.safetensors")
        self._cell_scores().write(place, cell)
        collect(spec, path)

    @property
    def _count(self) -> int:
        return len(self.results[0].undefined[self.masks])

    def _cell_scores(self) -> CellScores:
        cell = CellScores()
        if self.accuracy is not None:
            cell.rows.append({"masks": self.masks, **row("model", "accuracy", self.accuracy, self._count)})
        for result in self.results:
            cell.add(result)
        return cell

    def __repr__(self) -> str:
        """A table of methods by metrics, for a notebook or a prompt."""
        signed = self.masks == "signed"
        lines = score_lines(self.scores, self._metrics, self.milliseconds, signed=signed, unit=self.unit)
        return "\n".join([*lines, *self._remarks(), *self.notes])

    @property
    def _metrics(self) -> list[Metric]:
        return [all_metrics.get(name) for name in self.scores[self.results[0].method]]

    def _remarks(self) -> list[str]:
        """Lines below the table: the accuracy, and how many scores are undefined and why, methods grouped by note."""
        methods: dict[str, list[str]] = {}
        for method, undefined in self.undefined.items():
            reasons = Counter(reason for reason in undefined if reason)
            if reasons:
                counts = ", ".join(f"{reason}: {count}" for reason, count in reasons.items())
                note = f"scores of {reasons.total()} of {len(undefined)} samples are undefined ({counts})"
                methods.setdefault(note, []).append(method)
        notes = [] if self.accuracy is None else [f"accuracy {self.accuracy:.3f}"]
        for note, names in methods.items():
            notes.append(note if len(names) == len(self.results) else f"{', '.join(names)}: {note}")
        return notes


def check_place(folder: str | os.PathLike[str], name: str) -> None:
    """Raise unless the folder is new, empty, or an earlier evaluation, and the name can be part of a path."""
    path = Path(folder)
    check_folder_name(name)
    finish_replacing(path)
    if (path / "spec.json").exists() and RunSpec.load(path).benchmark == BENCHMARK:
        return
    if path.exists() and (not path.is_dir() or any(child.name != UNFINISHED for child in path.iterdir())):
        raise InputError(f"{folder} already exists and isn't an evaluation: choose another folder")
