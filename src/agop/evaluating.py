"""evaluate(): methods scored against masks on a user's own model."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agop import methods as all_methods
from agop import metrics as all_metrics
from agop.errors import InputError
from agop.explaining import explain
from agop.layers import Layer
from agop.methods import Method
from agop.methods.base import takes_layer
from agop.metrics.base import Metric, reasons
from agop.statistic import AGOP
from agop.targets import Target

Scores = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Evaluation:
    """The scores (N,) of each method and metric, why some are undefined, and milliseconds a sample."""

    scores: Scores
    undefined: dict[str, list[str | None]]
    milliseconds: dict[str, float]

    def rows(self) -> list[dict[str, Any]]:
        """One row a method and metric: the mean over the defined scores, how many they are, and why others are not."""
        return [
            {"method": method, "metric": metric, **summary(values, self.undefined[method])}
            for method, found in self.scores.items()
            for metric, values in found.items()
        ]

    def __str__(self) -> str:
        """A table, methods by metrics."""
        names = list(next(iter(self.scores.values())))
        labels = [all_metrics.get(name).label for name in names]
        lines = ["".join(f"{cell:>10}" for cell in [*labels, "ms"]).rjust(22 + 10 * (len(labels) + 1))]
        for method, found in self.scores.items():
            means = [summary(found[name], [])["value"] for name in names]
            cells = ["–" if mean is None else f"{mean:.3f}" for mean in means] + [f"{self.milliseconds[method]:.2f}"]
            lines.append(f"{method:22}" + "".join(f"{cell:>10}" for cell in cells))
        return "\n".join(lines)


def evaluate(
    model: nn.Module,
    images: Tensor,
    masks: Tensor,
    methods: Sequence[str | Method] | None = None,
    prior: AGOP | None = None,
    metrics: Sequence[str] | None = None,
    target: Target = None,
    layer: Layer = None,
    batch_size: int | None = None,
    *,
    signed: bool = False,
    steps: int | None = None,
) -> Evaluation:
    """Scores of methods on images (N,C,H,W) with masks (N,H,W); by default all methods that can run, all metrics."""
    if methods is None:
        methods = [name for name in all_methods.names() if prior is not None or not all_methods.get(name).needs_prior]
    chosen = [all_metrics.get(name) for name in (all_metrics.names() if metrics is None else metrics)]
    scores: Scores = {}
    undefined: dict[str, list[str | None]] = {}
    milliseconds: dict[str, float] = {}
    for method in methods:
        name = method if isinstance(method, str) else method.name
        if name in scores:
            raise InputError(f"{name} stands twice among the methods: evaluate two settings in two calls")
        named = layer if takes_layer(all_methods.get(name)) else None
        maps, milliseconds[name] = timed_maps(model, images, method, prior, target, named, batch_size)
        undefined[name] = reasons(maps, torch.as_tensor(masks))
        options = {"signed": signed, "steps": steps, "target": target, "batch_size": batch_size}
        scores[name] = {metric.name: scored(metric, model, images, maps, masks, options) for metric in chosen}
    return Evaluation(scores, undefined, milliseconds)


def timed_maps(model: nn.Module, images: Tensor, method: str | Method, *options: Any) -> tuple[Tensor, float]:
    """The maps that `explain` gives, and the milliseconds a sample."""
    start = time.perf_counter()
    maps = explain(model, images, method, *options)
    return maps, (time.perf_counter() - start) * 1e3 / len(images)


def scored(
    metric: Metric, model: nn.Module, images: Tensor, maps: Tensor, masks: Tensor, options: Mapping[str, Any]
) -> Tensor:
    """The scores (N,) of one metric, on the CPU."""
    if metric.needs_model:
        wanted = {name: options[name] for name in ("target", "steps", "batch_size")}
        return metric(model, images, maps, **wanted).cpu()
    return metric(maps, masks, **({"signed": True} if options["signed"] else {})).cpu()


def summary(values: Tensor, why: Sequence[str | None]) -> dict[str, Any]:
    """The mean of the defined scores, None if there are none, with how many and why not the others."""
    defined = values[~values.isnan()]
    mean = float(defined.double().mean()) if len(defined) else None
    missing = values.isnan().tolist()
    causes = Counter((cause or "undefined for this metric") for cause, gone in zip(why, missing, strict=False) if gone)
    return {
        "value": mean if mean is None or math.isfinite(mean) else None,
        "n": len(defined),
        "undefined": dict(causes),
    }
