"""What an evaluation gives: scores that show themselves as a table and save themselves as a run folder."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from agop import methods as all_methods
from agop import metrics as all_metrics
from agop.errors import InputError
from agop.evaluating.cell_folder import Scores
from agop.evaluating.scoring import summary
from agop.runs.about import save_about
from agop.runs.gallery import Gallery
from agop.runs.rows import FILES, collect
from agop.runs.spec import RunSpec
from agop.statistic.agop import AGOP

BENCHMARK = "evaluation"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The scores (N,) of each method and metric, why some are undefined, milliseconds a sample, and some
    samples with their maps.
    """

    scores: dict[str, dict[str, Tensor]]
    undefined: dict[str, list[str | None]]
    milliseconds: dict[str, float]
    gallery: Gallery
    prior: AGOP | None = None
    masks: str = "true"
    accuracy: float | None = None
    steps: int | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One row a method and metric: the mean over the defined scores, how many they are, and why others are not."""
        return [
            {"method": method, "metric": metric, **summary(values, self.undefined[method])}
            for method, found in self.scores.items()
            for metric, values in found.items()
        ]

    def save(self, folder: str | os.PathLike[str], name: str = "own", **told: Any) -> None:
        """Write a run folder, of which `agop report` makes a page; `name` is the data's, `told` more for its end."""
        check_place(folder, name)
        metrics = list(next(iter(self.scores.values())))
        spec = RunSpec(
            BENCHMARK, (name,), ("given",), 1, tuple(self.scores), tuple(metrics), self.masks, epochs=0,
            test_images=len(next(iter(self.undefined.values()))), intervals="samples", steps=self.steps,
        )  # fmt: skip
        (cell,) = spec.cells()
        _empty(Path(folder))
        place = Path(folder) / "cells" / cell.name
        about = {
            "command": "agop.evaluate(…)",
            "methods": all_methods.descriptions(spec.methods),
            "metrics": {name: all_metrics.get(name).described(self.steps) for name in metrics},
        }
        save_about(Path(folder), **(about | told))
        spec.save(Path(folder))
        self.gallery.save(place)
        if self.prior is not None:
            self.prior.save(place / "agop.safetensors")
        self._found().write(place, cell)
        collect(spec, Path(folder))

    def _found(self) -> Scores:
        samples = {f"{self.masks}/{m}/{k}": v for m, found in self.scores.items() for k, v in found.items()}
        count = len(next(iter(self.undefined.values())))
        timings = [
            {"method": method, "metric": "milliseconds", "value": value, "n": count}
            for method, value in self.milliseconds.items()
        ]
        right = {"method": "model", "metric": "accuracy", "value": self.accuracy, "n": count}
        rows = [*([] if self.accuracy is None else [right]), *self.rows()]
        return Scores([{"masks": self.masks, **row} for row in rows], samples, timings)

    def __repr__(self) -> str:
        """A table, methods by metrics: as a notebook or a prompt shows it."""
        names = list(next(iter(self.scores.values())))
        labels = [all_metrics.get(name).label for name in names]
        lines = ["".join(f"{cell:>10}" for cell in [*labels, "ms"]).rjust(22 + 10 * (len(labels) + 1))]
        for method, found in self.scores.items():
            means = [summary(found[name], [])["value"] for name in names]
            cells = ["–" if mean is None else f"{mean:.3f}" for mean in means] + [f"{self.milliseconds[method]:.2f}"]
            lines.append(f"{method:22}" + "".join(f"{cell:>10}" for cell in cells))
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> list[str]:
        """The accuracy, and how many samples have undefined scores, and why; methods with the same to say together."""
        told: dict[str, list[str]] = {}
        for method, why in self.undefined.items():
            reasons = Counter(reason for reason in why if reason)
            if reasons:
                counts = ", ".join(f"{reason}: {count}" for reason, count in reasons.items())
                told.setdefault(
                    f"scores of {reasons.total()} of {len(why)} samples are undefined ({counts})", []
                ).append(method)
        right = [] if self.accuracy is None else [f"accuracy {self.accuracy:.3f}"]
        return right + [
            note if len(those) == len(self.undefined) else f"{', '.join(those)}: {note}" for note, those in told.items()
        ]


def check_place(folder: str | os.PathLike[str], name: str) -> None:
    """Raise unless an evaluation of that name can be written there: a new folder, or that of an earlier evaluation."""
    place = Path(folder)
    if not name or "/" in name:
        raise InputError(f"name is {name!r}: give the data a name without /, it becomes a folder's")
    if (place / "spec.json").exists() and RunSpec.load(place).benchmark == BENCHMARK:
        return
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{folder} is there and holds something else than an evaluation: name another folder")


def _empty(folder: Path) -> None:
    """Take away what an earlier evaluation left, so that old figures never stand beside new ones."""
    shutil.rmtree(folder / "cells", ignore_errors=True)
    for name in (*FILES, "spec.json", "index.html"):
        (folder / name).unlink(missing_ok=True)
