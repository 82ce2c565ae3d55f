"""evaluate(): methods scored against masks on a user's own model."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agop import methods as all_methods
from agop import metrics as all_metrics
from agop.errors import InputError
from agop.evaluation.scoring import Entry, accuracy, score
from agop.evaluation.table import Evaluation, check_place, gallery
from agop.explanation import Methods, methods_by_name, references_for
from agop.images.overlays import pixels
from agop.methods.base import missing_layer
from agop.methods.controls import FIXED_MAPS
from agop.model.layers import Layer
from agop.model.outputs import Forward, Output, OutputLike, Target, labels_for, logit, output_for
from agop.model.probe import check_images
from agop.prior.agop import AGOP
from agop.report.folder import spread


def evaluate(
    model: nn.Module,
    images: Tensor,
    masks: Tensor,
    methods: Methods | None = None,
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
    output: OutputLike = logit,
    forward: Forward | None = None,
    nan: str = "skip",
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Evaluation:
    """Scores of methods on images (N,C,H,W) with masks (N,H,W).

    Args:
        model: A torch.nn.Module.
        images: Images (N,C,H,W).
        masks: Masks (N,H,W): boolean, 0/1, or with `signed` −1/0/1.
        methods: Names or agop.methods objects; by default every method that can run.
        prior: The AGOP of the model, for methods that need one.
        metrics: Names of metrics; by default every metric without optional dependencies.
        target: As in `explain`.
        layer: As in `explain`, for methods that take one.
        batch_size: As in `explain`.
        signed: Accept signed masks.
        steps: Number of steps of deletion, insertion and srg.
        labels: Classes (N,); with them the accuracy is reported, too.
        controls: Score two maps that don't depend on the model beside the methods: a blob in the centre, and the mean
            mask.
        references: Other images (M,C,H,W), for example from the training data, for methods and metrics that take some.
        output: As in `explain`. Deletion, insertion and SRG follow it, too.
        forward: As in `explain`.
        nan: "skip": an image whose map isn't finite has no score, with a warning; "raise".
        out: Run folder to write, as with `save`. It keeps each finished method: the same call resumes after an
            interruption.
        force: As in `save`, for `out`.

    Returns:
        An `Evaluation`: prints as a table; `scores` (N,) by method and metric, NaN where undefined; `save` writes a run
        folder for `agop report`.

    Raises:
        InputError: For wrong arguments, before any method runs.
        PriorError: If the prior doesn't fit the images.

    Example:
        result = agop.evaluate(model, images, masks, ["agop", "gradcam"], prior)
        print(result)
    """
    check_images(images)
    output = output_for(output, forward)
    entries = entries_that_run(methods, prior, references, images, layer)
    names = [metrics] if isinstance(metrics, str) else all_metrics.default_names() if metrics is None else metrics
    metric_list = [all_metrics.get(name) for name in names]
    if not metric_list:
        raise InputError("there are no metrics: name at least one, or omit metrics=")
    masks = checked_masks(masks, images)
    if labels is not None and not output.has_classes:
        raise InputError(f"labels= is for outputs with classes, not for {output.name}: omit it")
    classes = None if labels is None else labels_for(labels, len(images))
    if prior is not None:
        prior.check(model, images)  # now, not after the methods that run without one
    if controls:
        entries |= {name: Entry(make(masks > 0), prior) for name, make in FIXED_MAPS.items() if name not in entries}
    kind, places = "signed" if signed else "true", spread(len(images))
    scored = score(
        model, images, {kind: masks}, entries.items(), metric_list, places, target=target, batch_size=batch_size,
        signed=signed, steps=steps, references=references, output=output, nan=nan, progress=True,
        keep=None if out is None else check_place(out, force=force),
    )  # fmt: skip
    results = tuple(sorted(scored, key=lambda result: [*entries].index(result.method)))
    few = images[places]
    truth = {kind: masks[places].float() if signed else masks[places] != 0}
    maps = {result.method: result.maps for result in results}
    labelled = None if classes is None else classes[places]
    samples = gallery(model if output.has_classes else None, few, pixels(few), truth, maps, labelled, places, output)
    correct = None if classes is None else accuracy(model, images, classes, output)
    evaluation = Evaluation(results, samples, prior, kind, correct, steps, output_notes(output))
    if out is not None:
        evaluation.save(out, force=force)
    return evaluation


def entries_that_run(
    methods: Methods | None, prior: AGOP | None, references: Tensor | None, images: Tensor, layer: Layer
) -> dict[str, Entry]:
    """Configured methods by name; by default all that can run with the prior and the references for these images."""
    if methods is None:
        methods = all_methods.runnable(prior, with_references=references is not None)
    by_name = methods_by_name(methods)
    for method in by_name.values():
        if method.needs_references:
            references_for(method.name, references, prior, images)
    return {name: Entry(method, prior, missing_layer(method, layer)) for name, method in by_name.items()}


def output_notes(output: Output) -> tuple[str, ...]:
    """A line below the table unless the maps are made of gradients of logits."""
    return () if output.label == "logit" else (f"Gradients are those of {output.name}.",)


def checked_masks(values: Any, images: Tensor) -> Tensor:
    """The masks as a tensor. Raises unless there is one (H,W) per image (N,C,H,W)."""
    masks = torch.as_tensor(values)
    expected = (len(images), *images.shape[2:])
    if masks.shape != expected:
        raise InputError(
            f"masks have shape {tuple(masks.shape)}, images {tuple(images.shape)}: pass one mask per image, {expected}"
        )
    return masks
