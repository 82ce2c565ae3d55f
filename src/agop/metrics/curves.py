"""The curve of deletion and insertion: the target's probability as pixels change in the map's order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import InputError
from agop.metrics.base import MOST_STEPS, defined
from agop.model.probe import Probe, check_images, probing, rows_for
from agop.model.targets import Target, probabilities, target_indices


def areas(
    model: nn.Module,
    images: Tensor,
    maps: Any,
    target: Target,
    steps: int | None,
    fill: float | Tensor,
    inserting: bool,
    batch_size: int | None,
) -> Tensor:
    """Area (N,) under the target's probability, from all pixels to none or, with `inserting`, from none to all.

    The highest pixels change first, equal ones in reading order, in `steps` steps of nearly equal size: by default one
    pixel per step, but at most 64 steps. The area is the trapezoid sum over the share of pixels. A changed pixel gets
    the value `fill`, a number or (N,C,H,W).
    """
    check_images(images)
    maps = torch.as_tensor(maps)
    if maps.shape != (len(images), *images.shape[2:]):
        raise InputError(f"maps have shape {tuple(maps.shape)} for images {tuple(images.shape)}: give (N,H,W)")
    cuts, rows, targets = (
        _cuts(maps[0].numel(), steps),
        rows_for(images, batch_size, model),
        target_indices(target, len(images)),
    )
    # A pixel's rank is its place in the order of change.
    ranks = maps.flatten(1).argsort(dim=1, descending=True, stable=True).argsort(dim=1).reshape(maps.shape)[:, None]
    scores = []
    with probing(model) as probe:
        for start in range(0, len(images), rows):
            part = slice(start, start + rows)
            part_targets = None if targets is None else targets[part]
            placed = probe.placed(images[part])
            filled = probe.placed(fill[part]) if isinstance(fill, Tensor) else fill
            curve = _curve(probe, placed, ranks[part].to(placed.device), part_targets, cuts, filled, inserting, rows)
            scores.append(torch.trapezoid(curve.cpu(), cuts.double() / cuts[-1], dim=0))
    return torch.where(defined(maps).cpu(), torch.cat(scores), torch.nan)


def _curve(
    probe: Probe, images: Tensor, ranks: Tensor, targets: Tensor | None, cuts: Tensor, fill: float | Tensor,
    inserting: bool, rows: int,
) -> Tensor:  # fmt: skip
    """Target probabilities (steps+1,N). As many cuts share a pass as `rows` allows."""
    logits = probe.logits(images)
    targets = probe.checked(targets, logits)
    cuts_per_pass, curve = max(1, rows // len(images)), []
    for some in torch.split(cuts.to(images.device), cuts_per_pass):
        changed = ranks < some.reshape(-1, 1, 1, 1, 1)
        batch = torch.where(changed == inserting, images, fill).flatten(0, 1)
        scores = probabilities(probe.logits(batch).double())
        curve.append(scores.gather(1, targets.repeat(len(some))[:, None]).reshape(len(some), -1))
    return torch.cat(curve)


def _cuts(pixels: int, steps: int | None) -> Tensor:
    """Number of changed pixels after each step, from 0 to all."""
    steps = min(pixels, MOST_STEPS) if steps is None else steps
    if not 1 <= steps <= pixels:
        raise InputError(f"steps is {steps}: give 1 to {pixels}, the number of pixels")
    return (torch.arange(steps + 1) * pixels / steps).round().long()
