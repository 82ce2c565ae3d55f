"""Places of a class: regions that stand out in the prior, and windows whose transplant changes most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agop.auditing.pool import Half
from agop.auditing.predictor import Asked, Predictor, change
from agop.auditing.proposals import REGION, RegionProposal
from agop.auditing.regions import Box, box_of, connected, smoothed
from agop.interventions.transplant import Transplant
from agop.statistic.agop import AGOP

# Standard deviations of split halves above which a pixel stands out: the lowest at which a region is small enough.
_OUTSTANDING = (3.0, 5.0, 8.0, 12.0)
# Proposals per class and source.
_PER_CLASS = 2
# The box of a region has at least this many pixels, and at most this share of the image.
_FEWEST_PIXELS, LARGEST_SHARE = 4, 0.1
_SCAN_PAIRS, _CONTROL_PLACES = 24, 6


@dataclass(frozen=True)
class Scan:
    """The mean change (W,) of P(class) when a window of its images is pasted into others, for each window."""

    windows: tuple[Box, ...]
    changes: Tensor

    def best(self, count: int) -> list[Box]:
        """The windows with the largest change, none overlapping another."""
        chosen: list[Box] = []
        for place in self.changes.argsort(descending=True).tolist():
            if len(chosen) < count and not any(self.windows[place].overlaps(other) for other in chosen):
                chosen.append(self.windows[place])
        return chosen


def windows(size: tuple[int, int]) -> tuple[Box, ...]:
    """Square windows of a quarter of the shorter side, half of a window apart."""
    side = max(2, min(size) // 4)
    starts = [sorted({*range(0, length - side, max(1, side // 2)), length - side}) for length in size]
    return tuple(Box(top, left, top + side, left + side) for top in starts[0] for left in starts[1])


def scan(predictor: Predictor, asked: Asked, class_index: int, generator: torch.Generator) -> Scan:
    """Paste every window of images of the class into images of other classes."""
    size = (asked.half.images.shape[2], asked.half.images.shape[3])
    pairs = asked.pairs(class_index, _SCAN_PAIRS, generator)
    places = windows(size)
    changes = [change(predictor, pairs, Transplant(place.region(size))).mean for place in places]
    return Scan(places, torch.tensor(changes))


def outstanding(prior: AGOP, halves: Sequence[AGOP], images: Half) -> Tensor:
    """How far each pixel of each class's diagonal stands out (K,H,W), in standard deviations of split halves.

    It stands out from the other classes, from a smooth spatial profile, and from what the edges of the images explain.
    """
    edges = _edge_energy(images.images)
    contrast = _contrast(_log_maps(prior), edges)
    first, second = (_log_maps(half) for half in halves)
    noise = (_contrast(first, edges) - _contrast(second, edges)) / 2
    return contrast / noise.nan_to_num().square().mean().sqrt().clamp_min(1e-12)


def standout_regions(standout: Tensor) -> list[Tensor]:
    """The regions (H,W) of a map (H,W) that stand out most, none larger than a tenth of the image."""
    regions: list[Tensor] = []
    for level in _OUTSTANDING:
        high = standout.nan_to_num(nan=-torch.inf) > level
        parts = [part for part in connected(high) if _fits(part)] if high.any() else []
        regions += [part for part in parts if not any(bool((part & other).any()) for other in regions)]
    return sorted(regions, key=lambda part: -float(standout[part].sum()))[:_PER_CLASS]


def _fits(part: Tensor) -> bool:
    box = box_of(part)
    return _FEWEST_PIXELS <= box.height * box.width <= LARGEST_SHARE * part.numel()


def region_proposals(class_index: int, standout: Tensor, scanned: Scan, seed: int) -> list[RegionProposal]:
    """Regions from the prior and windows from the scan."""
    size = (standout.shape[0], standout.shape[1])
    areas = [(area, "prior") for area in standout_regions(standout)]
    areas += [(window.region(size), "scan") for window in scanned.best(_PER_CLASS)]
    return [
        RegionProposal(REGION, class_index, source, area, control_boxes(box_of(area), size, scanned, seed))
        for area, source in areas
    ]


def control_boxes(box: Box, size: tuple[int, int], scanned: Scan, seed: int) -> tuple[Box, ...]:
    """Boxes of equal size away from this one: half where the scan changed most, half at random places.

    They are as far away as the box is large if possible: a neighbour may contain a part of the same pattern.
    """
    generator = torch.Generator().manual_seed(seed)
    most = (size[0] - box.height, size[1] - box.width)
    best = [scanned.windows[place] for place in scanned.changes.argsort(descending=True).tolist()]
    around = [same_size(box, window, size) for window in best]
    shares = torch.rand(200, 2, generator=generator)
    at_random = [box.moved(int(row * (most[0] + 1)), int(column * (most[1] + 1))) for row, column in shares.tolist()]
    gap, places = max(box.height, box.width, best[0].height // 2), list[Box]()
    while not places and gap >= 0:
        near = Box(box.top - gap, box.left - gap, box.bottom + gap, box.right + gap)
        places = [place for boxes in (around, at_random) for place in _apart(near, boxes, _CONTROL_PLACES // 2)]
        gap = gap // 2 if gap else -1
    return tuple(places)


def _apart(near: Box, others: Sequence[Box], count: int) -> list[Box]:
    """The first boxes that overlap neither `near` nor one another."""
    chosen: list[Box] = []
    for other in others:
        if len(chosen) < count and not any(other.overlaps(taken) for taken in (near, *chosen)):
            chosen.append(other)
    return chosen


def same_size(box: Box, window: Box, size: tuple[int, int]) -> Box:
    """A box of the same size as `box`, around the centre of the window, inside the image."""
    top = window.top + (window.height - box.height) // 2
    left = window.left + (window.width - box.width) // 2
    return box.moved(max(0, min(top, size[0] - box.height)), max(0, min(left, size[1] - box.width)))


def _log_maps(prior: AGOP) -> Tensor:
    """Logarithm (K,H,W) of each class's diagonal divided by its mean, smoothed over 3×3 pixels. NaN without samples."""
    if prior.class_diagonals is None:
        return torch.full((1, *prior.diagonal.shape[1:]), torch.nan, dtype=torch.float64)
    maps = smoothed(prior.class_diagonals.double().sum(dim=1), 3)
    return (maps / maps.mean(dim=(1, 2), keepdim=True)).clamp_min(1e-6).log()


def _contrast(maps: Tensor, edges: Tensor) -> Tensor:
    """Each map (K,H,W) minus the mean of the others, a smooth profile, and its regression on the edges (H,W)."""
    valid = ~maps.isnan().any(dim=2).any(dim=1)
    count = int(valid.sum())
    if count < 2:
        return maps
    total = maps[valid].sum(dim=0)
    contrast = maps - (total - maps) / (count - 1)
    contrast = contrast - smoothed(contrast, min(maps.shape[1:]) // 2 | 1)
    slopes = (contrast * edges).sum(dim=(1, 2), keepdim=True) / edges.square().sum().clamp_min(1e-12)
    return contrast - slopes * edges


def _edge_energy(images: Tensor) -> Tensor:
    """Logarithm (H,W) of the mean squared difference of neighbouring pixels, with mean 0."""
    energy = torch.zeros(images.shape[2:], dtype=torch.float64)
    energy[:-1] += images.diff(dim=2).square().mean(dim=(0, 1))
    energy[:, :-1] += images.diff(dim=3).square().mean(dim=(0, 1))
    logarithm = (energy + 1e-3 * energy.mean() + 1e-12).log()
    return logarithm - logarithm.mean()
