"""Regions (H,W) of an image: boxes, connected parts, overlap, and where images look alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d

from agop.auditing.thresholds import LARGEST_REGION, THRESHOLDS


class Box(NamedTuple):
    """Rows top .. bottom−1 and columns left .. right−1."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.bottom - self.top

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.right - self.left

    def region(self, size: tuple[int, int]) -> Tensor:
        """True (H,W) inside the box."""
        region = torch.zeros(size, dtype=torch.bool)
        region[self.top : self.bottom, self.left : self.right] = True
        return region

    def contains(self, other: Box) -> bool:
        """True if every pixel of the other is in this one."""
        rows = self.top <= other.top and other.bottom <= self.bottom
        return rows and self.left <= other.left and other.right <= self.right

    def overlaps(self, other: Box) -> bool:
        """True if both have pixels in common."""
        rows = min(self.bottom, other.bottom) > max(self.top, other.top)
        return rows and min(self.right, other.right) > max(self.left, other.left)


def box_of(region: Tensor) -> Box:
    """The smallest box around a region (H,W)."""
    rows, columns = region.any(dim=1).nonzero()[:, 0], region.any(dim=0).nonzero()[:, 0]
    return Box(int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1)


def ends_of(region: Tensor | None) -> list[int] | None:
    """Top, left, bottom and right of the smallest box around a region (H,W), as JSON values; None without a region."""
    return None if region is None else list(box_of(region))


def overlap(a: Tensor, b: Tensor) -> float:
    """Intersection over union of two regions (H,W)."""
    return float((a & b).sum() / (a | b).sum().clamp_min(1))


def connected(region: Tensor) -> list[Tensor]:
    """The connected parts (H,W) of a region (H,W), with diagonal neighbours, largest first."""
    names, count = ndimage.label(region.numpy(), np.ones((3, 3)))
    parts = [torch.from_numpy(names == name) for name in range(1, count + 1)]
    return sorted(parts, key=lambda part: -int(part.sum()))


def grown(region: Tensor, reach: int) -> Tensor:
    """The region (H,W) with all pixels up to `reach` away from it, along rows, columns and diagonals."""
    side = 2 * reach + 1
    return torch.from_numpy(ndimage.binary_dilation(region.numpy(), np.ones((side, side))))


def smoothed(maps: Tensor, side: int) -> Tensor:
    """Means (K,H,W) of maps (K,H,W) over squares of an odd side, with reflection at the edges."""
    return torch.from_numpy(ndimage.uniform_filter(maps.numpy(), (1, side, side), mode="mirror"))


# Share of the mean variance that is added to a pixel's, so that constant pixels aren't infinitely certain.
_FLOOR = 0.01
# Standard deviations of the images with a pattern by which the mean of its pixels differs from other images.
_UNLIKE = 2.0


def extent(containing: Tensor, others: Tensor, core: Box) -> Box | None:
    """The box around the pixels that are alike in images (M,C,H,W) with the pattern, and unlike other images (N,C,H,W).

    Only pixels that are connected with the core count. None if there are none, or if their box is more than a tenth of
    the image.
    """
    variance = containing.double().var(dim=0, unbiased=False)
    whole = others.double()
    floor = _FLOOR * whole.var(dim=0, unbiased=False).mean() + 1e-12
    distance = (containing.double().mean(dim=0) - whole.mean(dim=0)).square() / (variance + floor)
    unlike = distance.amax(dim=0) > _UNLIKE**2
    reach = max(1, min(unlike.shape) // 32)
    inside = core.region((unlike.shape[0], unlike.shape[1]))
    # Pixels of a pattern may equal the background: a gap of two pixels joins its parts.
    parts = [part & unlike for part in connected(grown(unlike, reach)) if bool((part & unlike & inside).any())]
    if not parts:
        return None
    box = box_of(torch.stack(parts).any(dim=0))
    large = box.height * box.width > LARGEST_REGION * unlike.numel()
    return None if large or min(box.height, box.width) == 1 else box


def share_alike(images: Tensor, patches: Tensor, usual: Tensor) -> float:
    """Share of images (N,C,H,W) in which a place looks like one of the patches (T,C,h,w).

    It must look more like it than 95 % of the images look like one of the `usual` patches (U,C,h,w), which come from
    the first U images: a small patch looks like some place of every image.
    """
    by_chance = best_matches(images, usual).correlation
    by_chance[:, : len(usual)].fill_diagonal_(-1)  # a patch is in its own image
    level = max(THRESHOLDS.alike, float(by_chance.amax(dim=0).quantile(1 - THRESHOLDS.level)))
    return float((best_matches(images, patches).correlation.amax(dim=0) >= level).double().mean())


class Matches(NamedTuple):
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
