"""select(): which method's maps to trust for a model and its images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from agop import methods as all_methods
from agop.auditing.judging import Judge, Judged, judged_with_notes
from agop.auditing.pool import Half
from agop.auditing.priors import Priors, check_prior
from agop.auditing.selection import RANDOM, Selection
from agop.errors import AGOPError, InputError, ModelError, PriorError
from agop.evaluating.evaluate import methods_by_name
from agop.explaining.explain import resolve_method
from agop.methods import Method
from agop.model.probe import check_images, check_model, number_of_classes, probing, rows_for, unwrapped
from agop.model.targets import check_range, labels_for
from agop.report.numbers import counted
from agop.statistic.agop import AGOP
from agop.system.progress import track

Methods = str | Method | Sequence[str | Method]
DEFAULT_METHODS = (
    "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "agop-weighted", "agop", "expected-gradients",
)  # fmt: skip
# Half of the images are scored, at least 4.
_ENOUGH = 8
# Images that are scored by default: as many as have these values, 12 to 48. Most of the time goes into methods with 50
# gradients per image.
_VALUES, _FEWEST, _MOST = 16 * 3 * 64 * 64, 12, 48
# Other images, which give priors and fill deleted pixels, at most.
_MOST_OTHERS = 400


def select(
    model: nn.Module,
    images: Tensor,
    labels: object = None,
    prior: AGOP | None = None,
    methods: Methods | None = None,
    *,
    count: int | None = None,
    batch_size: int | None = None,
    progress: bool = True,
    seed: int = 0,
) -> Selection:
    """Which method's maps to trust for this model, on images (N,C,H,W) that the prior hasn't seen.

    `count` random images, at most half of them, are explained and scored for their labels, or for the predicted
    classes without any. The others fill deleted pixels, and give the priors of two halves of the data, and the prior if
    there is none. By default, `count` is 12 to 48, depending on the size of the images.
    """
    check_model(model)
    check_images(images)
    if methods is not None:
        for method in _listed(methods):
            resolve_method(method)  # raises before the first pass
    if count is not None and count < 2:
        raise InputError(f"count is {count}: give at least 2 images to score, or None")
    if len(images) < _ENOUGH:
        raise InputError(f"got {counted(len(images), 'image')}: give at least {_ENOUGH}; half of them are scored")
    check_prior(prior, model, images)
    model, rows = unwrapped(model), rows_for(images, batch_size, model)
    targets = _targets(model, images, labels, rows)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    scored = min(len(images) // 2, default_count(images) if count is None else count)
    chosen, others = order[:scored], order[scored : scored + _MOST_OTHERS]
    names = tuple(map(str, others.tolist()))
    half = Half(images[others.to(images.device)], targets[others], names)
    priors = Priors.of(model, half, prior, rows, progress=progress, per_class=False)
    judge = Judge.of(model, images[chosen.to(images.device)], targets[chosen], half.images, priors, rows, seed)
    return compare(judge, methods, progress=progress)


def compare(judge: Judge, methods: Methods | None = None, *, progress: bool = True) -> Selection:
    """The methods beside random maps, by default those that suit the model and its prior."""
    notes: list[str] = []
    results: list[Judged] = []
    named = DEFAULT_METHODS if methods is None else [item for item in _listed(methods) if item != RANDOM]
    for item in track([*named, RANDOM], "comparing maps", show=progress):
        try:
            _check_parts(item, judge.priors.whole)
            ((name, method),) = methods_by_name(item, judge.priors.whole, None, judge.images).items()
            result, warned = judged_with_notes(judge, name, method)
        except AGOPError as error:
            if methods is not None:
                raise
            notes.append(f"{item} was skipped: {error}")
            continue
        results.append(result)
        notes += warned
    costs = [result.milliseconds for result in results if result.method == "vanilla"]
    gradient = costs[0] if costs else judge.gradient_milliseconds()
    return Selection(tuple(results), len(judge.images), gradient, tuple(notes))


def compare_on_halves(
    model: nn.Module, first: Half, second: Half, priors: Priors, rows: int, seed: int, *, progress: bool
) -> tuple[Selection | None, tuple[str, ...]]:
    """The default methods on images of the second half. None with the reason for a model that can't be copied."""
    chosen = torch.randperm(len(second.labels), generator=torch.Generator().manual_seed(seed))
    chosen = chosen[: default_count(second.images)]
    try:
        judge = Judge.of(model, second.images[chosen], second.labels[chosen], first.images, priors, rows, seed)
    except (InputError, ModelError) as error:
        return None, (f"maps weren't compared: {error}",)
    return compare(judge, progress=progress), ()


def default_count(images: Tensor) -> int:
    """Number of images (N,C,H,W) to score: fewer large ones."""
    return max(_FEWEST, min(_MOST, _VALUES // images[0].numel()))


def _listed(methods: Methods) -> list[str | Method]:
    listed = [methods] if isinstance(methods, (str, Method)) else list(methods)
    if not listed:
        raise InputError("there are no methods to compare: name at least one, or omit methods=")
    names = [item if isinstance(item, str) else getattr(item, "name", "") for item in listed]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{twice} appears twice among the methods: compare two configurations in two calls")
    return listed


def _check_parts(method: str | Method, prior: AGOP) -> None:
    """Raise if the prior lacks what the method needs, such as a sketch."""
    if isinstance(method, str) and (reason := all_methods.lacking(method, prior)):
        raise PriorError(f"{method} can't run, {reason}: pass a prior of agop.fit that has it, or omit the method")


def _targets(model: nn.Module, images: Tensor, labels: object, rows: int) -> Tensor:
    """The labels (N,), or the predicted classes."""
    if labels is not None:
        targets = labels_for(labels, len(images)).cpu()
        check_range(targets, number_of_classes(model, images[:1]), "label")
        return targets
    with probing(model) as probe:
        return torch.cat([probe.predict(part) for part in torch.split(images, rows)]).cpu()
