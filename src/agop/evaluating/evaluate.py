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
from agop.evaluating.controls import FIXED_MAPS
from agop.evaluating.scoring import Entry, accuracy, score
from agop.evaluating.table import Evaluation
from agop.explaining.explain import resolve_method
from agop.explaining.references import references_for
from agop.methods import Method
from agop.methods.base import missing_layer
from agop.metrics.base import Metric
from agop.model.layers import Layer
from agop.model.targets import CONTRAST, PREDICTED, Target, check_output
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
    controls: bool = True,
    references: Tensor | None = None,
    output: str = PREDICTED,
) -> Evaluation:
    """Scores of methods on images (N,C,H,W) with masks (N,H,W); by default every runnable method and every metric.

    With labels (N,) the accuracy is also reported. With `controls`, two maps that don't depend on the model are scored
    beside the methods: a blob in the centre, and the mean mask. `references` (M,C,H,W) are other images, for example
    from the training data, for methods and metrics that take some. With output="contrast", maps are made of gradients
    of the log-odds, as in `explain`.
    """
    check_output(output)
    by_name = methods_by_name(methods, prior, references, images)
    metric_list = _metrics(metrics)
    if not by_name or not metric_list:
        raise InputError("nothing to evaluate: pass at least one method and one metric")
    masks = checked_masks(masks, images)
    classes = None if labels is None else checked_labels(labels, len(images))
    if prior is not None:
        prior.check(model, images)  # now, not after the methods that run without one
    if controls:
        by_name |= {name: control(masks > 0) for name, control in FIXED_MAPS.items() if name not in by_name}
    entries = {name: Entry(method, prior, missing_layer(method, layer)) for name, method in by_name.items()}
    kind, places = "signed" if signed else "true", spread(len(images))
    results = tuple(
        score(
            model, images, {kind: masks}, track(entries.items(), "evaluating"), metric_list, places,
            target=target, batch_size=batch_size, signed=signed, steps=steps, references=references,
            output=output,
        )
    )  # fmt: skip
    few = images[places]
    truth = {kind: masks[places].float() if signed else masks[places] != 0}
    maps = {result.method: result.maps for result in results}
    samples = gallery(model, few, pixels(few), truth, maps, None if classes is None else classes[places], places)
    correct = None if classes is None else accuracy(model, images, classes)
    return Evaluation(results, samples, prior, kind, correct, steps, output_notes(output))


def methods_by_name(
    methods: str | Method | Sequence[str | Method] | None,
    prior: AGOP | None,
    references: Tensor | None,
    images: Tensor,
) -> dict[str, Method]:
    """Configured methods by name; by default all that can run with the prior and the references for these images."""
    if methods is None:
        methods = all_methods.runnable(prior, with_references=references is not None)
    by_name: dict[str, Method] = {}
    for item in [methods] if isinstance(methods, (str, Method)) else methods:
        method = resolve_method(item)  # raises before the first method runs
        if method.needs_references:
            references_for(method.name, references, prior, images)
        name = item if isinstance(item, str) else method.name
        if name in by_name:
            raise InputError(f"{name} appears twice among the methods: evaluate two configurations in two calls")
        by_name[name] = method
    return by_name


def output_notes(output: str) -> tuple[str, ...]:
    """A line below the table unless the maps are made of gradients of logits."""
    return ("Gradients are those of the contrast, the log-odds of the class.",) if output == CONTRAST else ()


def _metrics(names: str | Sequence[str] | None) -> list[Metric]:
    names = [names] if isinstance(names, str) else all_metrics.default_names() if names is None else names
    return [all_metrics.get(name) for name in names]


def checked_masks(values: Any, images: Tensor) -> Tensor:
    """The masks as a tensor. Raises unless there is one (H,W) per image (N,C,H,W)."""
    masks = torch.as_tensor(values)
    expected = (len(images), *images.shape[2:])
    if masks.shape != expected:
        raise InputError(
            f"masks have shape {tuple(masks.shape)}, images {tuple(images.shape)}: pass one mask per image, {expected}"
        )
    return masks


def checked_labels(values: Any, count: int) -> Tensor:
    """The labels as int64. Raises unless there is one class per image."""
    labels = torch.as_tensor(values)
    if labels.shape != (count,) or labels.is_floating_point() or labels.is_complex():
        raise InputError(
            f"labels have dtype {labels.dtype} and shape {tuple(labels.shape)}: pass one class per image, ({count},)"
        )
    return labels.long()
