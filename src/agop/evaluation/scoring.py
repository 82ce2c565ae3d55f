"""The scoring loop: methods × metrics on images with masks, for users and benches."""

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
from agop.stats import finite


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
    metrics that take some. `output` is what the maps' gradients are of. Times are measured after a warm-up on the first
    image.
    """
    targets = target_indices(target, len(images))
    for name, entry in entries:
        options: dict[str, Any] = {"layer": entry.layer, "batch_size": batch_size, "nan": "skip", "output": output}
        options["references"] = None if entry.references_from_prior else references
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AGOPWarning)  # the timed call warns about all images
            first = None if targets is None else targets[:1]
            explain(model, images[:1], entry.method, entry.prior, first, **options)
        start = time.perf_counter()
        maps = explain(model, images, entry.method, entry.prior, targets, **options)
        milliseconds = (time.perf_counter() - start) * 1e3 / len(images)
        undefined = {kind: reasons(maps, truth) for kind, truth in masks.items()}
        scores: dict[str, dict[str, Tensor]] = {kind: {} for kind in masks}
        for metric in metrics:
            if metric.needs_model:  # it doesn't use the masks: once, beside the first kind
                more = {"references": references} if metric.takes_references else {}
                values = metric(
                    scorer or model, images, maps, target=target, steps=steps, batch_size=batch_size, **more
                )
                scores[next(iter(masks))][metric.name] = values.cpu()
            else:
                for kind, truth in masks.items():
                    scores[kind][metric.name] = metric(maps, truth, **{"signed": True} if signed else {}).cpu()
        yield MethodScores(name, scores, undefined, milliseconds, maps[list(shown)])


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
    missing = values.isnan()
    mean = finite(float(values[~missing].double().mean()))
    pairs = zip(undefined, missing.tolist(), strict=False)
    causes = Counter(reason or "undefined for this metric" for reason, without in pairs if without)
    return {"value": mean, "n": int((~missing).sum()), "undefined": dict(causes)}
