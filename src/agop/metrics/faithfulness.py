"""Faithfulness: does the prediction change with the map's pixels?"""

from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import InputError
from agop.metrics.base import MOST_STEPS, defined, metric, positive_part
from agop.model.outputs import Forward, Output, OutputLike, Target, logit, numbers, output_for, probability
from agop.model.probe import check_images, probing, rows_for

# Default number of steps of srg, at most.
_SRG_STEPS = 8


@metric("Del", higher_is_better=False, needs_model=True)
def deletion(
    model: nn.Module,
    images: Tensor,
    maps: Any,
    target: Target = None,
    steps: int | None = None,
    *,
    fill: float = 0.0,
    batch_size: int | None = None,
    output: OutputLike = logit,
    forward: Forward | None = None,
) -> Tensor:
    """Area (N,) under the target's probability, or the output, as pixels are set to `fill` in `steps` steps.

    Example:
        scores = agop.metrics.deletion(model, images, maps)

    Petsiuk et al., "RISE: Randomized Input Sampling for Explanation of Black-box Models", 2018.
    """
    return _areas(model, images, maps, target, steps, fill, False, batch_size, output_for(output, forward))


@metric("Ins", higher_is_better=True, needs_model=True)
def insertion(
    model: nn.Module,
    images: Tensor,
    maps: Any,
    target: Target = None,
    steps: int | None = None,
    *,
    fill: float = 0.0,
    batch_size: int | None = None,
    output: OutputLike = logit,
    forward: Forward | None = None,
) -> Tensor:
    """Area (N,) under the target's probability, or the output, as pixels are restored from `fill` in `steps` steps.

    Example:
        scores = agop.metrics.insertion(model, images, maps)

    Petsiuk et al., "RISE: Randomized Input Sampling for Explanation of Black-box Models", 2018.
    """
    return _areas(model, images, maps, target, steps, fill, True, batch_size, output_for(output, forward))


@metric("SRG", bounds=(-1.0, 1.0), needs_model=True)
def srg(
    model: nn.Module,
    images: Tensor,
    maps: Any,
    target: Target = None,
    steps: int | None = None,
    *,
    references: Tensor | None = None,
    fill: float | None = None,
    draws: int = 3,
    seed: int = 0,
    batch_size: int | None = None,
    output: OutputLike = logit,
    forward: Forward | None = None,
) -> Tensor:
    """Insertion minus deletion (N,), in at most 8 steps, with the pixels of reference images as the fill.

    Unlike zero, the fill isn't the baseline of a method. `references` (M,C,H,W) are other images, for example from the
    training data: the same `draws` of them fill every image. Without them, an image is filled with its own pixels in
    random order. With a number as `fill`, for example 0, every pixel gets that number instead.

    Example:
        scores = agop.metrics.srg(model, images, maps)

    Blücher et al., "Decoupling Pixel Flipping and Occlusion Strategy for Consistent XAI Benchmarks", 2024.
    """
    generator, output = torch.Generator("cpu").manual_seed(seed), output_for(output, forward)
    steps = min(_SRG_STEPS, images[0, 0].numel()) if steps is None else steps
    maps = positive_part(torch.as_tensor(maps))
    gains = []
    for _ in range(draws if fill is None else 1):
        filling = _fill(images, references, generator) if fill is None else fill
        inserted, deleted = (
            _areas(model, images, maps, target, steps, filling, inserting, batch_size, output)
            for inserting in (True, False)
        )
        gains.append(inserted - deleted)
    return torch.stack(gains).mean(dim=0)


def _areas(
    model: nn.Module,
    images: Tensor,
    maps: Any,
    target: Target,
    steps: int | None,
    fill: float | Tensor,
    inserting: bool,
    batch_size: int | None,
    output: Output,
) -> Tensor:
    """Area (N,) under the target's probability, or the output, from all pixels to none; `inserting`: none to all.

    The highest pixels change first, equal ones in reading order, in `steps` steps of nearly equal size: by default one
    pixel per step, but at most 64 steps. The area is the trapezoid sum over the share of pixels. A changed pixel gets
    the value `fill`, a number or (N,C,H,W). An output that is no probability is divided by its size on the whole image.
    """
    check_images(images, volumes=True)
    maps = positive_part(torch.as_tensor(maps))
    if maps.shape != (len(images), *images.shape[2:]):
        raise InputError(f"maps have shape {tuple(maps.shape)} for images {tuple(images.shape)}: give (N,H,W)")
    pixels = maps[0].numel()
    steps = min(pixels, MOST_STEPS) if steps is None else steps
    if not 1 <= steps <= pixels:
        raise InputError(f"steps is {steps}: give 1 to {pixels}, the number of pixels")
    # Number of changed pixels after each step.
    cuts = (torch.arange(steps + 1) * pixels / steps).round().long()
    rows, targets = rows_for(images, batch_size, model), output.targets(target, len(images))
    # A pixel's rank is its place in the order of change.
    ranks = maps.flatten(1).argsort(dim=1, descending=True, stable=True).argsort(dim=1).reshape(maps.shape)[:, None]
    areas = []
    with probing(model, output) as probe:
        for start in range(0, len(images), rows):
            part = slice(start, start + rows)
            placed = probe.placed(images[part])
            own_ranks = ranks[part].to(placed.device)
            filled = probe.placed(fill[part]) if isinstance(fill, Tensor) else fill
            own_targets = None if targets is None else targets[part]
            whole = probe.logits(placed, own_targets)
            classes, curve = probe.checked(own_targets, whole), []
            size = whole[:, 0].abs().cpu().double()
            scale = 1 if output.has_classes or output.is_probability else torch.where(size > 0, size, torch.nan)
            # As many cuts share a pass as `rows` allows.
            for some in torch.split(cuts.to(placed.device), max(1, rows // len(placed))):
                changed = own_ranks < some.reshape(-1, *[1] * placed.ndim)
                batch = torch.where(changed == inserting, placed, filled).flatten(0, 1)
                repeated = classes.repeat(len(some))
                followed = probability if output.has_classes else output
                scores = numbers(probe.logits(batch, repeated).cpu().double(), repeated.cpu(), followed)
                curve.append(scores.reshape(len(some), -1) / scale)
            areas.append(torch.trapezoid(torch.cat(curve), cuts.double() / cuts[-1], dim=0))
    return torch.where(defined(maps).cpu(), torch.cat(areas), torch.nan)


def _fill(images: Tensor, references: Tensor | None, generator: torch.Generator) -> Tensor:
    """Fill (N,C,H,W): a reference image for all, or each image with its pixels in the same random order."""
    if references is None:
        order = torch.randperm(images[0, 0].numel(), generator=generator).to(images.device)
        return images.flatten(2)[:, :, order].reshape(images.shape)
    if not len(references) or references.shape[1:] != images.shape[1:]:
        shapes = f"references have shape {tuple(references.shape)}, images {tuple(images.shape)}"
        raise InputError(f"{shapes}: give at least one image of the same size")
    chosen = references[int(torch.randint(len(references), (), generator=generator))]
    return chosen.to(images.device, images.dtype).expand_as(images)
