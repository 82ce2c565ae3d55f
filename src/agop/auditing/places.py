"""Places of a class: regions that stand out in the prior, windows whose transplant changes most, windows by look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from agop.auditing.extent import LARGEST_SHARE
from agop.auditing.grouping import ENOUGH_TO_COMBINE, OTHERS_PER_IMAGE, separation_from, shared_rule
from agop.auditing.pool import Half
from agop.auditing.predictor import Asked, Predictor, change, evenly
from agop.auditing.proposals import REGION, RegionProposal
from agop.auditing.regions import Box, box_of, connected, smoothed
from agop.auditing.two_groups import Groups
from agop.interventions.transplant import FLAT, Transplant, fine_structure
from agop.statistic.agop import AGOP

# Standard deviations of split halves above which a pixel stands out: the lowest at which a region is small enough.
_OUTSTANDING = (3.0, 5.0, 8.0, 12.0)
# Proposals per class and source.
_PER_CLASS = 2
# The box of a region has at least this many pixels.
_FEWEST_PIXELS = 4
_SCAN_DONORS, _CONTROL_PLACES = 20, 4
# Windows per class, squares that are lengthened to strips, and the separation of normally distributed responses.
_WINDOWS, _LENGTHENED, _NORMAL = 3, 3, 2.7


def squares(size: tuple[int, int]) -> list[Box]:
    """Squares of a quarter of the shorter side, half of a square apart."""
    return _grid(size, _side(size), _side(size))


def strips(size: tuple[int, int]) -> list[Box]:
    """Strips of two such squares."""
    side = _side(size)
    return _grid(size, side, 2 * side) + _grid(size, 2 * side, side)


def _side(size: tuple[int, int]) -> int:
    return max(2, min(size) // 4)


def _grid(size: tuple[int, int], height: int, width: int) -> list[Box]:
    return [
        Box(top, left, top + height, left + width)
        for top in _starts(size[0], height)
        for left in _starts(size[1], width)
    ]


def _starts(length: int, side: int) -> list[int]:
    return sorted({*range(0, length - side, max(1, side // 2)), length - side})


def scan(predictor: Predictor, asked: Asked, class_index: int, generator: torch.Generator) -> list[Box]:
    """Windows in which images of the class fall into two groups by the model's response, clearest first.

    Each window of a few images of the class is pasted into the same two images: all squares, and the strips that
    contain one of the clearest squares.
    """
    size = (asked.half.images.shape[2], asked.half.images.shape[3])
    donors = evenly(asked.members(class_index), _SCAN_DONORS, generator)
    pairs = asked.crossed(class_index, donors, asked.hosts(class_index, 2, generator))

    def clarity(place: Box) -> float:
        changed = change(predictor, pairs, Transplant(place.region(size)))
        groups = Groups.of(changed.log_odds.reshape(len(donors), -1).mean(dim=1))
        return groups.gap * (groups.separation - _NORMAL)

    clear = {place: clarity(place) for place in squares(size)}
    best = sorted(clear, key=lambda place: -clear[place])[:_LENGTHENED]
    long = [strip for strip in strips(size) if any(strip.contains(square) for square in best)]
    clear |= {place: clarity(place) for place in long}
    return _clearest(clear, _WINDOWS)


def windows_in_images(asked: Asked, class_index: int, generator: torch.Generator) -> tuple[list[Box], list[Box]]:
    """Windows by what images show, without asking the model, clearest first.

    In the first, images of the class fall into two groups: some have a pattern that other classes lack. In the second,
    nearly all images of the class have a pattern, and nearly no others. None for a class with few images.
    """
    members = asked.members(class_index)
    if len(members) < ENOUGH_TO_COMBINE:
        return [], []
    others = asked.some_others(class_index, OTHERS_PER_IMAGE * len(members), generator)
    own, rest = (fine_structure(asked.half.images[positions]) for positions in (members, others))
    groups, shared = {}, {}
    for place in squares((own.shape[2], own.shape[3])) + strips((own.shape[2], own.shape[3])):
        inside, usual = _structure(own, place), _structure(rest, place)
        groups[place] = separation_from(usual, inside)
        if shared_rule(inside, usual) is not None:
            shared[place] = float(inside.mean(dim=0).norm())  # 1 if all images are the same there
    return _clearest(groups, _PER_CLASS), _clearest(shared, _PER_CLASS)


def _structure(images: Tensor, place: Box) -> Tensor:
    """What images (N,C,H,W) have in a box (N,F), with norm 1."""
    return normalize(images[:, :, place.top : place.bottom, place.left : place.right].flatten(1), dim=1, eps=FLAT)


def _clearest(clear: Mapping[Box, float], count: int) -> list[Box]:
    """The places with the largest values, none overlapping another."""
    chosen: list[Box] = []
    for place in sorted(clear, key=lambda place: -clear[place]):
        if len(chosen) < count and not any(place.overlaps(other) for other in chosen):
            chosen.append(place)
    return chosen


def outstanding(prior: AGOP, halves: Sequence[AGOP], images: Half) -> Tensor:
    """How far each pixel of each class's diagonal stands out (K,H,W), in standard deviations of split halves.

    It stands out from the other classes, from a smooth spatial profile, and from what the edges of the images explain.
    """
    edges = _edge_energy(images.images)
    contrast = _contrast(_log_maps(prior), edges)
    first, second = (_log_maps(half) for half in halves)
    noise = (_contrast(first, edges) - _contrast(second, edges)) / 2
    return contrast / noise[~noise.isnan()].square().mean().sqrt().clamp_min(1e-12)


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


def region_proposals(
    class_index: int, areas: Mapping[str, Sequence[Tensor]], size: tuple[int, int], seed: int
) -> list[RegionProposal]:
    """Proposals of regions (H,W), by their source; each region once."""
    proposals: list[RegionProposal] = []
    for source, regions in areas.items():
        for area in regions:
            if not any(torch.equal(area, other.area) for other in proposals):
                elsewhere = control_boxes(box_of(area), size, seed)
                proposals.append(RegionProposal(REGION, class_index, source, area, elsewhere))
    return proposals


def control_boxes(box: Box, size: tuple[int, int], seed: int) -> tuple[Box, ...]:
    """Boxes of equal size at random places, as far away as the box is large if possible.

    A neighbour may contain a part of the same pattern.
    """
    generator = torch.Generator().manual_seed(seed)
    most = (size[0] - box.height, size[1] - box.width)
    shares = torch.rand(200, 2, generator=generator)
    at_random = [box.moved(int(row * (most[0] + 1)), int(column * (most[1] + 1))) for row, column in shares.tolist()]
    gap, places = max(box.height, box.width), list[Box]()
    while not places and gap >= 0:
        near = Box(box.top - gap, box.left - gap, box.bottom + gap, box.right + gap)
        places = _apart(near, at_random, _CONTROL_PLACES)
        gap = gap // 2 if gap else -1
    return tuple(places)


def _apart(near: Box, others: Sequence[Box], count: int) -> list[Box]:
    """The first boxes that overlap neither `near` nor one another."""
    chosen: list[Box] = []
    for other in others:
        if len(chosen) < count and not any(other.overlaps(taken) for taken in (near, *chosen)):
            chosen.append(other)
    return chosen


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
    contrast = maps
    if count > 2:  # of two classes, each relies on what distinguishes it from the other
        contrast = maps - (maps[valid].sum(dim=0) - maps) / (count - 1)
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
