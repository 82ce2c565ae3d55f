"""evaluate(): methods scored against masks on a user's own model."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agop import methods as all_methods
from agop import metrics as all_metrics
from agop.cells import Scores, gallery
from agop.errors import InputError
from agop.explaining import configured
from agop.layers import Layer
from agop.methods import Method
from agop.methods.base import takes_layer
from agop.metrics.base import reasons
from agop.progress import track
from agop.runs.about import save_about
from agop.runs.gallery import Gallery, spread
from agop.runs.rows import FILES, collect
from agop.runs.spec import RunSpec
from agop.saliency import pixels
from agop.scoring import accuracy, scored, summary, timed_maps
from agop.statistic import AGOP
from agop.targets import Target

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
            "methods": all_methods.described(spec.methods),
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


def evaluate(
    model: nn.Module,
    images: Tensor,
    masks: Tensor,
    methods: str | Method | Sequence[str | Method] | None = None,
    prior: AGOP | None = None,
    metrics: str | Sequence[str] | None = None,
    target: Target = None,
    layer: Layer = None,
    batch_size: int | None = None,
    *,
    signed: bool = False,
    steps: int | None = None,
    labels: Tensor | None = None,
) -> Evaluation:
    """Scores of methods on images (N,C,H,W) with masks (N,H,W); by default all methods that can run, all metrics.

    With labels (N,) a report tells accuracy, too.
    """
    named = _by_name(methods, prior)
    wanted = [metrics] if isinstance(metrics, str) else all_metrics.names() if metrics is None else metrics
    chosen = [all_metrics.get(name) for name in wanted]
    if not named or not chosen:
        raise InputError("there is nothing to evaluate: give at least one method and one metric")
    masks = _checked_masks(masks, images)
    known = _checked_labels(labels, len(images))
    if prior is not None:
        prior.check(model, images)  # now, not after the methods that need none
    options = {"signed": signed, "steps": steps, "target": target, "batch_size": batch_size}
    scores: dict[str, dict[str, Tensor]] = {}
    undefined: dict[str, list[str | None]] = {}
    milliseconds: dict[str, float] = {}
    few, places = dict[str, Tensor](), spread(len(images))
    for name, method in track(list(named.items()), "evaluating"):
        its_layer = layer if takes_layer(all_methods.get(name)) else None
        maps, milliseconds[name] = timed_maps(model, images, method, prior, target, its_layer, batch_size)
        few[name], undefined[name] = maps[places], reasons(maps, masks)
        scores[name] = {metric.name: scored(metric, model, images, maps, masks, options) for metric in chosen}
    kind = "signed" if signed else "true"
    truth = {kind: masks[places].float() if signed else masks[places] != 0}
    of_those = None if known is None else known[places]
    shown = gallery(model, images[places], pixels(images[places]), truth, few, of_those, places)
    right = None if known is None else accuracy(model, images, known)
    return Evaluation(scores, undefined, milliseconds, shown, prior, kind, right, steps)


def _by_name(methods: str | Method | Sequence[str | Method] | None, prior: AGOP | None) -> dict[str, str | Method]:
    """The methods by name; by default all that can run."""
    if methods is None:
        methods = [name for name in all_methods.names() if prior is not None or not all_methods.get(name).needs_prior]
    found: dict[str, str | Method] = {}
    for method in [methods] if isinstance(methods, (str, Method)) else methods:
        its = configured(method)  # what is no method is told now, not after the methods before it
        name = method if isinstance(method, str) else its.name
        if name in found:
            raise InputError(f"{name} stands twice among the methods: evaluate two settings in two calls")
        found[name] = method
    return found


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


def _checked_masks(masks: Any, images: Tensor) -> Tensor:
    found = torch.as_tensor(masks)
    wanted = (len(images), *images.shape[2:])
    if found.shape != wanted:
        raise InputError(
            f"masks have shape {tuple(found.shape)}, images {tuple(images.shape)}: give a mask an image, {wanted}"
        )
    return found


def _checked_labels(labels: Any, count: int) -> Tensor | None:
    if labels is None:
        return None
    found = torch.as_tensor(labels)
    if found.shape != (count,) or found.is_floating_point() or found.is_complex():
        raise InputError(
            f"labels are {found.dtype} of shape {tuple(found.shape)}: give a class for each of {count} images"
        )
    return found.long()
