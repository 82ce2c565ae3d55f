"""SRG: symmetric relevance gain, insertion minus deletion, with pixels of other images as the fill."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import InputError
from agop.metrics.base import metric
from agop.metrics.curves import areas
from agop.model.targets import Target

_STEPS = 8


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
) -> Tensor:
    """Insertion minus deletion (N,), in at most 8 steps, with the pixels of reference images as the fill.

    Unlike zero, the fill isn't the baseline of a method. `references` (M,C,H,W) are other images, for example from the
    training data: the same `draws` of them fill every image. Without them, an image is filled with its own pixels in
    random order. With a number as `fill`, for example 0, every pixel gets that number instead.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    steps = min(_STEPS, images[0, 0].numel()) if steps is None else steps
    gains = []
    for _ in range(draws if fill is None else 1):
        filling = _fill(images, references, generator) if fill is None else fill
        inserted, deleted = (
            areas(model, images, maps, target, steps, filling, inserting, batch_size) for inserting in (True, False)
        )
        gains.append(inserted - deleted)
    return torch.stack(gains).mean(dim=0)


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
