"""Regions (H,W) of an image: boxes, connected parts, overlap, and their place in words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d, pad


@dataclass(frozen=True)
class Box:
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

    def moved(self, top: int, left: int) -> Box:
        """A box of the same size at another place."""
        return Box(top, left, top + self.height, left + self.width)

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
    if region is None:
        return None
    box = box_of(region)
    return [box.top, box.left, box.bottom, box.right]


def overlap(a: Tensor, b: Tensor) -> float:
    """Intersection over union of two regions (H,W)."""
    return float((a & b).sum() / (a | b).sum().clamp_min(1))


def connected(region: Tensor) -> list[Tensor]:
    """The connected parts (H,W) of a region (H,W), with diagonal neighbours, largest first."""
    names = torch.arange(1, region.numel() + 1, dtype=torch.float64).reshape(region.shape) * region
    while True:
        # The largest number within a part spreads to all of its pixels.
        spread = max_pool2d(names[None, None], 3, stride=1, padding=1)[0, 0] * region
        if torch.equal(spread, names):
            break
        names = spread
    numbers, counts = torch.unique(names[region], return_counts=True)
    return [names == numbers[place] for place in counts.argsort(descending=True, stable=True)]


def grown(region: Tensor, reach: int) -> Tensor:
    """The region (H,W) with all pixels up to `reach` away from it."""
    return max_pool2d(region.double()[None, None], 2 * reach + 1, stride=1, padding=reach)[0, 0] > 0


def smoothed(maps: Tensor, side: int) -> Tensor:
    """Means (K,H,W) of maps (K,H,W) over squares of an odd side, with reflection at the edges."""
    reach = min(side // 2, min(maps.shape[1:]) - 1)
    padded = pad(maps[:, None], (reach,) * 4, mode="reflect")
    return avg_pool2d(padded, 2 * reach + 1, stride=1)[:, 0]


def place_in_words(box: Box, size: tuple[int, int]) -> str:
    """The place of a box in an image of this size: "upper left", "centre", …"""
    thirds = [
        (low + high) / 2 * 3 / length
        for (low, high), length in zip(((box.top, box.bottom), (box.left, box.right)), size, strict=True)
    ]
    row, column = (names[min(2, int(third))] for names, third in zip(_NAMES, thirds, strict=True))
    return f"{row} {column}".strip() or "centre"


_NAMES = (("upper", "", "lower"), ("left", "", "right"))
