"""evaluate(): methods scored against masks on a user's own model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agop import methods as all_methods
from agop import metrics as all_metrics
from agop.errors import InputError
from agop.evaluating.cell_folder import gallery
from agop.evaluating.scoring import accuracy, scored, timed_maps
from agop.evaluating.table import Evaluation
from agop.explaining.explain import resolve_method
from agop.methods import Method
from agop.methods.base import takes_layer
from agop.metrics.base import Metric, reasons
from agop.model.layers import Layer
from agop.model.targets import Target
from agop.pictures.heat import pixels
from agop.runs.gallery import spread
from agop.statistic.agop import AGOP
from agop.system.progress import track


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
    chosen = _metrics(metrics)
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
        its_layer = layer if takes_layer(method) else None
        maps, milliseconds[name] = timed_maps(model, images, method, prior, target, its_layer, batch_size)
        few[name], undefined[name] = maps[places], reasons(maps, masks)
        scores[name] = {metric.name: scored(metric, model, images, maps, masks, options) for metric in chosen}
    kind, those = "signed" if signed else "true", images[places]
    truth = {kind: masks[places].float() if signed else masks[places] != 0}
    shown = gallery(model, those, pixels(those), truth, few, None if known is None else known[places], places)
    right = None if known is None else accuracy(model, images, known)
    return Evaluation(scores, undefined, milliseconds, shown, prior, kind, right, steps)


def _by_name(methods: str | Method | Sequence[str | Method] | None, prior: AGOP | None) -> dict[str, Method]:
    """The methods by name, configured; by default all that can run."""
    if methods is None:
        methods = [name for name in all_methods.names() if prior is not None or not all_methods.get(name).needs_prior]
    found: dict[str, Method] = {}
    for method in [methods] if isinstance(methods, (str, Method)) else methods:
        its = resolve_method(method)  # what is no method is told now, not after the methods before it
        name = method if isinstance(method, str) else its.name
        if name in found:
            raise InputError(f"{name} stands twice among the methods: evaluate two settings in two calls")
        found[name] = its
    return found


def _metrics(names: str | Sequence[str] | None) -> list[Metric]:
    given = [names] if isinstance(names, str) else all_metrics.names() if names is None else names
    return [all_metrics.get(name) for name in given]


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
