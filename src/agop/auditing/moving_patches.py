"""Patches that move: the hottest patches of the maps of a class, grouped by appearance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d

from agop.auditing.proposals import PATCH, PatchProposal

# Correlation from which two patches look the same.
ALIKE = 0.75
# Hot patches per image, and images of a group that serve as donors.
_PER_IMAGE, _MOST_DONORS = 2, 16
_FEWEST_ALIKE = 4


def reduction(size: tuple[int, int]) -> int:
    """Factor by which images are reduced before patches are compared, to about 32 pixels."""
    return max(1, min(size) // 32)


def patch_side(size: tuple[int, int]) -> int:
    """Side of a patch: a sixth of the shorter side."""
    return max(3, min(size) // 6)


def patch_proposals(
    class_index: int, images: Tensor, maps: Tensor, others: Tensor, count: int, seed: int
) -> list[PatchProposal]:
    """Groups of similar hot patches in images (N,C,H,W) of a class with maps (N,H,W), most specific first.

    Specific: the share of the images with such a patch, minus that of images (M,C,H,W) of other classes. Smooth patches
    look alike in all images.
    """
    factor = reduction((images.shape[2], images.shape[3]))
    small, maps = avg_pool2d(images, factor), avg_pool2d(maps[:, None], factor)[:, 0]
    side = patch_side((small.shape[2], small.shape[3]))
    owners = torch.arange(len(images)).repeat_interleave(_PER_IMAGE)
    patches = cut(small[owners], hot_corners(maps, side).reshape(-1, 2), side)
    patches = patches[patches.flatten(1).std(dim=1) > 0]
    if not len(patches):
        return []
    matches = best_matches(small, patches)
    alike = matches.correlation >= ALIKE
    elsewhere = (best_matches(avg_pool2d(others, factor), patches).correlation >= ALIKE).double().mean(dim=1)
    proposals: list[PatchProposal] = []
    taken = torch.zeros(len(images), dtype=torch.bool)
    for _ in range(count):
        free = alike & ~taken
        specific = free.double().mean(dim=1) - elsewhere
        template = int(specific.masked_fill(free.sum(dim=1) < _FEWEST_ALIKE, -1).argmax())
        if int(free[template].sum()) < _FEWEST_ALIKE:
            break
        best = matches.correlation[template].masked_fill(~free[template], -1).argsort(descending=True)
        best = best[: min(_MOST_DONORS, int(free[template].sum()))]
        places = matches.corners[template, best] * factor
        proposals.append(PatchProposal(PATCH, class_index, "maps", images[best], places, side * factor, seed))
        taken |= alike[template]
    return proposals


def hot_corners(maps: Tensor, side: int) -> Tensor:
    """Top left corners (N,2,2) of the patches with the largest sum of each map (N,H,W), apart from one another."""
    sums = avg_pool2d(maps.double()[:, None], side, stride=1)
    chosen = []
    for _ in range(_PER_IMAGE):
        places = sums.flatten(1).argmax(dim=1)
        chosen.append(torch.stack([places // sums.shape[3], places % sums.shape[3]], dim=1))
        marks = torch.zeros_like(sums).flatten(1).scatter_(1, places[:, None], 1).reshape(sums.shape)
        near = max_pool2d(marks, 2 * side - 1, stride=1, padding=side - 1) > 0
        sums = sums.masked_fill(near, -1)
    return torch.stack(chosen, dim=1)


def cut(images: Tensor, corners: Tensor, side: int) -> Tensor:
    """Patches (N,C,side,side) of images (N,C,H,W) at corners (N,2)."""
    steps = torch.arange(side)
    rows, columns = corners[:, :1, None] + steps[:, None], corners[:, 1:, None] + steps
    return images[torch.arange(len(images))[:, None, None], :, rows, columns].movedim(-1, 1)


@dataclass(frozen=True)
class Matches:
    """The largest correlation (T,N) of each patch with a place of each image, and that place's corner (T,N,2)."""

    correlation: Tensor
    corners: Tensor


def best_matches(images: Tensor, patches: Tensor) -> Matches:
    """The best match of each patch (T,C,side,side) in each image (N,C,H,W), by normalised correlation."""
    side = patches.shape[-1]
    size = patches[0].numel()
    centred = patches - patches.mean(dim=(1, 2, 3), keepdim=True)
    unit = centred / centred.flatten(1).norm(dim=1).clamp_min(1e-6)[:, None, None, None]
    best, corners = [], []
    for image in torch.split(images, 1):
        products = conv2d(image, unit)[0]
        sums, squares = (avg_pool2d(v.sum(dim=1, keepdim=True), side, stride=1) * side**2 for v in (image, image**2))
        spread = (squares - sums.square() / size).clamp_min(1e-3 * size * 1e-3).sqrt()[0]
        values, places = (products / spread).flatten(1).max(dim=1)
        best.append(values)
        corners.append(torch.stack([places // products.shape[2], places % products.shape[2]], dim=1))
    return Matches(torch.stack(best, dim=1), torch.stack(corners, dim=1))
