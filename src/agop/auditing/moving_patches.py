"""Patches that move: the hottest patches of the maps of a class, grouped by appearance."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from agop.auditing.matching import ALIKE, best_matches, cut
from agop.auditing.proposals import PATCH, PatchProposal

# Hot patches per image, and images with similar patches that make a group.
_PER_IMAGE, _FEWEST_ALIKE = 2, 4


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
        proposals.append(PatchProposal(PATCH, class_index, "maps", patches[template], factor, seed))
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
