"""Maps with the time they took, and scores with what they come to."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import AGOPWarning
from agop.explaining.explain import explain
from agop.methods import Method
from agop.metrics.base import Metric
from agop.model.layers import Layer
from agop.model.probe import probing, rows_for
from agop.model.targets import Target
from agop.statistic.agop import AGOP


def timed_maps(
    model: nn.Module,
    images: Tensor,
    method: str | Method,
    prior: AGOP | None = None,
    target: Target = None,
    layer: Layer = None,
    batch_size: int | None = None,
) -> tuple[Tensor, float]:
    """The maps that `explain` gives, and the milliseconds a sample, without those of a first pass."""
    one = target if target is None or isinstance(target, int) else target[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AGOPWarning)  # what is to be said is said below, of all images
        explain(model, images[:1], method, prior, one, layer, batch_size, nan="skip")
    start = time.perf_counter()
    maps = explain(model, images, method, prior, target, layer, batch_size)
    return maps, (time.perf_counter() - start) * 1e3 / len(images)


def scored(
    metric: Metric, model: nn.Module, images: Tensor, maps: Tensor, masks: Tensor, options: Mapping[str, Any]
) -> Tensor:
    """The scores (N,) of one metric, on the CPU."""
    if metric.needs_model:
        wanted = {name: options[name] for name in ("target", "steps", "batch_size")}
        return metric(model, images, maps, **wanted).cpu()
    return metric(maps, masks, **({"signed": True} if options["signed"] else {})).cpu()


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images (N,C,H,W) that the model classifies as labelled."""
    with probing(model) as probe:
        found = torch.cat([probe.predict(part) for part in torch.split(images, rows_for(images, None))])
    return float((found.cpu() == labels.cpu()).double().mean())


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
