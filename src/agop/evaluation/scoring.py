"""The scoring loop: methods × metrics on images with masks, for users and benches."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import AGOPWarning
from agop.explanation import explain
from agop.methods import Method
from agop.metrics.base import Metric, reasons
from agop.model.layers import Layer
from agop.model.outputs import PREDICTED, Target, predicted, target_indices
from agop.model.probe import probing, rows_for
from agop.prior.agop import AGOP


@dataclass(frozen=True)
class Entry:
    """A configured method with the prior and the layer that it uses.

    Its reference images are those of the scoring, unless they come from its prior, as for a user who passes none.
    """

    method: Method
    prior: AGOP | None = None
    layer: Layer = None
    references_from_prior: bool = False


@dataclass(frozen=True)
class MethodScores:
    """Scores (N,) of one method by kind of mask and metric, and the reason why each sample's score is undefined.

    `milliseconds` is per sample; `maps` (S,H,W) is for the samples that a report shows.
    """

    method: str
    scores: dict[str, dict[str, Tensor]]
    undefined: dict[str, list[str | None]]
    milliseconds: float
    maps: Tensor


def score(
    model: nn.Module,
    images: Tensor,
    masks: Mapping[str, Tensor],
    entries: Iterable[tuple[str, Entry]],
    metrics: Sequence[Metric],
    shown: Sequence[int],
    *,
    target: Target = None,
    batch_size: int | None = None,
    signed: bool = False,
    steps: int | None = None,
    scorer: nn.Module | None = None,
    references: Tensor | None = None,
    output: str = PREDICTED,
) -> Iterator[MethodScores]:
    """Score each entry on images (N,C,H,W) with one or more kinds of masks (N,H,W); keep the maps at `shown`.

    Metrics query `scorer`, by default the model itself. `references` (M,C,H,W) are other images, for methods and
    metrics that take some. `output` is what the maps' gradients are of.
    """

    def all_scores(maps: Tensor) -> dict[str, dict[str, Tensor]]:
        scores: dict[str, dict[str, Tensor]] = {kind: {} for kind in masks}
        for metric in metrics:
            if metric.needs_model:  # it doesn't use the masks: once, beside the first kind
                more = {"references": references} if metric.takes_references else {}
                values = metric(
                    scorer or model, images, maps, target=target, steps=steps, batch_size=batch_size, **more
                )
                scores[next(iter(masks))][metric.name] = values.cpu()
            else:
                options = {"signed": True} if signed else {}
                for kind, truth in masks.items():
                    scores[kind][metric.name] = metric(maps, truth, **options).cpu()
        return scores

    for name, entry in entries:
        maps, milliseconds = timed_maps(model, images, entry, target, batch_size, references, output)
        undefined = {kind: reasons(maps, truth) for kind, truth in masks.items()}
        yield MethodScores(name, all_scores(maps), undefined, milliseconds, maps[list(shown)])


def timed_maps(
    model: nn.Module,
    images: Tensor,
    entry: Entry,
    target: Target = None,
    batch_size: int | None = None,
    references: Tensor | None = None,
    output: str = PREDICTED,
) -> tuple[Tensor, float]:
    """Maps (N,H,W) from `explain`, and milliseconds per sample, measured after a warm-up on the first image."""
    references = None if entry.references_from_prior else references

    def maps_of(images: Tensor, targets: Tensor | None) -> Tensor:
        return explain(
            model, images, entry.method, entry.prior, targets, entry.layer, batch_size,
            references=references, nan="skip", output=output,
        )  # fmt: skip

    targets = target_indices(target, len(images))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AGOPWarning)  # the timed call warns about all images
        maps_of(images[:1], None if targets is None else targets[:1])
    start = time.perf_counter()
    maps = maps_of(images, targets)
    return maps, (time.perf_counter() - start) * 1e3 / len(images)


def all_logits(model: nn.Module, images: Tensor, batch_size: int | None = None) -> Tensor:
    """Logits (N,K) of images (N,C,H,W), on the CPU, with at most `batch_size` images per pass."""
    with probing(model) as probe:
        parts = torch.split(images, rows_for(images, batch_size, model))
        return torch.cat([probe.logits(part) for part in parts]).cpu()


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of images (N,C,H,W) for which the model predicts the label."""
    return float(correct(model, images, labels).cpu().double().mean())


def correct(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """True (N,) for each image (N,C,H,W) for which the model predicts the label."""
    return predicted(all_logits(model, images)) == labels.cpu()


def summary(values: Tensor, undefined: Sequence[str | None]) -> dict[str, Any]:
    """Mean of the defined scores (None without any), their number, and the reasons for the undefined ones."""
    defined = values[~values.isnan()]
    mean = float(defined.double().mean()) if len(defined) else None
    causes = Counter(
        reason or "undefined for this metric"
        for reason, missing in zip(undefined, values.isnan().tolist(), strict=False)
        if missing
    )
    return {
        "value": mean if mean is None or math.isfinite(mean) else None,
        "n": len(defined),
        "undefined": dict(causes),
    }
