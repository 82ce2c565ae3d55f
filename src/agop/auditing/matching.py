"""Matching: where an image looks most like a patch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d

# Correlation from which two patches look the same.
ALIKE = 0.75
# Share of images in which a patch that isn't there may look less alike.
_USUAL = 0.95


def cut(images: Tensor, corners: Tensor, side: int) -> Tensor:
    """Patches (N,C,side,side) of images (N,C,H,W) at corners (N,2)."""
    steps = torch.arange(side)
    rows, columns = corners[:, :1, None] + steps[:, None], corners[:, 1:, None] + steps
    return images[torch.arange(len(images))[:, None, None], :, rows, columns].movedim(-1, 1)


def share_alike(images: Tensor, patches: Tensor, usual: Tensor) -> float:
    """Share of images (N,C,H,W) in which a place looks like one of the patches (T,C,h,w).

    It must look more like it than 95 % of the images look like one of the `usual` patches (U,C,h,w), which come from
    the first U images: a small patch looks like some place of every image.
    """
    by_chance = best_matches(images, usual).correlation
    by_chance[:, : len(usual)].fill_diagonal_(-1)  # a patch is in its own image
    level = max(ALIKE, float(by_chance.amax(dim=0).quantile(_USUAL)))
    return float((best_matches(images, patches).correlation.amax(dim=0) >= level).double().mean())


@dataclass(frozen=True)
class Matches:
    """The largest correlation (T,N) of each patch with a place of each image, and that place's corner (T,N,2)."""

    correlation: Tensor
    corners: Tensor


def best_matches(images: Tensor, patches: Tensor) -> Matches:
    """The best match of each patch (T,C,h,w) in each image (N,C,H,W), by normalised correlation."""
    shape, size = (patches.shape[2], patches.shape[3]), patches[0].numel()
    centred = patches - patches.mean(dim=(1, 2, 3), keepdim=True)
    unit = centred / centred.flatten(1).norm(dim=1).clamp_min(1e-6)[:, None, None, None]
    best, corners = [], []
    for image in torch.split(images, 1):
        products = conv2d(image, unit)[0]
        sums, squares = (
            avg_pool2d(values.sum(dim=1, keepdim=True), shape, stride=1) * shape[0] * shape[1]
            for values in (image, image**2)
        )
        spread = (squares - sums.square() / size).clamp_min(1e-3 * size * 1e-3).sqrt()[0]
        values, places = (products / spread).flatten(1).max(dim=1)
        best.append(values)
        corners.append(torch.stack([places // products.shape[2], places % products.shape[2]], dim=1))
    return Matches(torch.stack(best, dim=1), torch.stack(corners, dim=1))
