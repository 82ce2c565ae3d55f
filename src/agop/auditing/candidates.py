"""Candidates: what may decide a class, each with an intervention and controls for it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d, normalize

from agop.auditing.data import AuditedModel, Pairs, Predictions, Stage, diagonals_of, draw_evenly, generator_for
from agop.auditing.groups import Groups, separation_from, shared_rule
from agop.auditing.interventions import (
    FLAT,
    Border,
    Colour,
    HighFrequency,
    Intervention,
    Transplant,
    TransplantElsewhere,
    fine_structure,
    patch_index,
)
from agop.auditing.regions import Box, Matches, best_matches, box_of, connected, smoothed
from agop.auditing.thresholds import IMAGES_TO_COMBINE, LARGEST_REGION, OTHERS_PER_IMAGE, SMALLEST_GROUP, THRESHOLDS
from agop.evaluation.select import Priors
from agop.prior.agop import AGOP

REGION, PATCH, COLOUR, BORDER, HIGH_FREQUENCY = "region", "moving patch", "colour", "border", "high frequency"
PROPERTIES = (COLOUR, BORDER, HIGH_FREQUENCY)
# Candidates per class: of the diagonal and of what images show, of the scan, and patches that move. Donors of the scan.
_REGIONS, _WINDOWS, _PATCHES, _SCAN_DONORS = 2, 3, 2, 20
# Standard deviations of split halves above which a pixel of the diagonal stands out: a region is taken at the first one
# at which it is small enough.
_STANDOUT = (3.0, 5.0, 8.0, 12.0)


@dataclass(frozen=True, eq=False)
class Candidate(ABC):
    """Something that may decide a class. `source` names where it comes from.

    `shared`: nearly all images of the class have it and nearly no others, so the two groups are those of both.
    """

    kind: str
    class_index: int
    source: str
    shared: bool = field(default=False, kw_only=True)

    @property
    def region(self) -> Tensor | None:
        """The region (H,W), if it is always at one place."""
        return None

    @abstractmethod
    def intervention(self, pairs: Pairs) -> Intervention:
        """What is done to the pairs."""

    @abstractmethod
    def statistics(self, images: Tensor) -> Tensor:
        """Numbers (N,F) that may tell which images (N,C,H,W) contain it."""


@dataclass(frozen=True, eq=False)
class SwapCandidate(Candidate):
    """A region at a fixed place, or a property of the whole image: colour, border or the high-frequency band."""

    swap: Intervention

    @property
    def region(self) -> Tensor | None:
        """The region (H,W), None for a property."""
        return self.swap.region if isinstance(self.swap, Transplant) else None

    def intervention(self, pairs: Pairs) -> Intervention:
        """Paste the region, or swap the property."""
        return self.swap

    def statistics(self, images: Tensor) -> Tensor:
        """The fine structure of the region, or what describes the property."""
        return self.swap.statistics(images)


@dataclass(frozen=True, eq=False)
class PatchCandidate(Candidate):
    """A square patch that moves. `template` (C,T,T) is looked for in images reduced by `factor`."""

    template: Tensor
    factor: int = 1
    seed: int = 0

    @property
    def side(self) -> int:
        """Side of the patch in pixels of the image."""
        return self.template.shape[-1] * self.factor

    def matches(self, images: Tensor) -> Matches:
        """Where images (N,C,H,W) look most like the patch, in pixels of the image."""
        matches = best_matches(avg_pool2d(images, self.factor), self.template[None])
        return Matches(matches.correlation[0], matches.corners[0] * self.factor)

    def statistics(self, images: Tensor) -> Tensor:
        """The largest correlation (N,1) of the patch with a place of each image."""
        return self.matches(images).correlation[:, None]

    def intervention(self, pairs: Pairs) -> Intervention:
        """Paste what looks most like the patch at random places."""
        donors, places = torch.unique(pairs.donors, return_inverse=True)
        corners = self.matches(pairs.predictions.split.images[donors]).corners
        return TransplantElsewhere(corners[places], self.side, self.seed)


def border_of(size: tuple[int, int]) -> Border | None:
    """The border that is tested, of a fourteenth of the shorter side; None for images that are too small."""
    width = max(1, min(size) // 14)
    return Border(width) if min(size) > 4 * width else None


def propose(audited: AuditedModel, priors: Priors, class_index: int, standout: Tensor, seed: int) -> list[Candidate]:
    """All candidates of a class, from the first half of the images.

    `standout` (H,W) is how far pixels stand out in its diagonal. A region of two sources is listed once.
    """
    predictions, size = audited.first, audited.first.split.size
    some, every = windows_in_images(predictions, class_index, generator_for(seed, class_index, Stage.WINDOWS))
    scanned = scan(predictions, class_index, generator_for(seed, class_index, Stage.SCAN))
    areas = [("prior", area) for area in standout_regions(standout)]
    areas += [("scan", box.region(size)) for box in scanned] + [("images", box.region(size)) for box in some]
    regions: list[Candidate] = []
    for source, area in areas:
        if not any(other.region is not None and torch.equal(area, other.region) for other in regions):
            regions.append(SwapCandidate(REGION, class_index, source, Transplant(area)))
    others = draw_evenly(
        predictions.others(class_index),
        len(members := predictions.members(class_index)),
        generator_for(seed, class_index, Stage.PATCHES),
    )
    images = predictions.split.images
    maps = audited.maps(images[members], class_index, priors.whole)
    patches = patch_candidates(class_index, images[members], maps, images[others], seed)
    swaps = {COLOUR: Colour(), BORDER: border_of(size), HIGH_FREQUENCY: HighFrequency()}
    properties = [SwapCandidate(kind, class_index, "whole image", swap) for kind, swap in swaps.items() if swap]
    shared = [
        SwapCandidate(REGION, class_index, "all images", Transplant(box.region(size)), shared=True) for box in every
    ]
    return [*regions, *patches, *properties, *shared]


# Hot patches per image.
_PER_IMAGE = 2


def patch_candidates(class_index: int, images: Tensor, maps: Tensor, others: Tensor, seed: int) -> list[PatchCandidate]:
    """Groups of similar hot patches in images (N,C,H,W) of a class with maps (N,H,W), most specific first.

    Specific: the share of the images with such a patch, minus that of images (M,C,H,W) of other classes. Smooth patches
    look alike in all images. Images are reduced to about 32 pixels, a patch has a sixth of the shorter side.
    """
    factor = max(1, min(images.shape[2:]) // 32)
    small, maps = avg_pool2d(images, factor), avg_pool2d(maps[:, None], factor)[:, 0]
    side = max(3, min(small.shape[2:]) // 6)
    owners = torch.arange(len(images)).repeat_interleave(_PER_IMAGE)
    patches = small[owners][patch_index(hot_corners(maps, side).reshape(-1, 2), side)].movedim(-1, 1)
    patches = patches[patches.flatten(1).std(dim=1) > 0]
    if not len(patches):
        return []
    alike = best_matches(small, patches).correlation >= THRESHOLDS.alike
    elsewhere = best_matches(avg_pool2d(others, factor), patches).correlation >= THRESHOLDS.alike
    candidates: list[PatchCandidate] = []
    taken = torch.zeros(len(images), dtype=torch.bool)
    for _ in range(_PATCHES):
        free = alike & ~taken
        specific = free.double().mean(dim=1) - elsewhere.double().mean(dim=1)
        template = int(specific.masked_fill(free.sum(dim=1) < SMALLEST_GROUP, -1).argmax())
        if int(free[template].sum()) < SMALLEST_GROUP:
            break
        candidates.append(PatchCandidate(PATCH, class_index, "maps", patches[template], factor, seed))
        taken |= alike[template]
    return candidates


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


# The separation of normally distributed responses.
_NORMAL = 2.7


def windows(size: tuple[int, int]) -> tuple[list[Box], list[Box]]:
    """Squares of a quarter of the shorter side, half of a square apart, and strips of two such squares."""

    def boxes(height: int, width: int) -> list[Box]:
        tops, lefts = (
            sorted({*range(0, length - side, max(1, side // 2)), length - side})
            for length, side in zip(size, (height, width), strict=True)
        )
        return [Box(top, left, top + height, left + width) for top in tops for left in lefts]

    side = max(2, min(size) // 4)
    return boxes(side, side), boxes(side, 2 * side) + boxes(2 * side, side)


def scan(predictions: Predictions, class_index: int, generator: torch.Generator) -> list[Box]:
    """Windows in which images of the class fall into two groups by the model's response, clearest first.

    Each window of a few images of the class is pasted into the same two images: all squares, and the strips that
    contain one of the clearest squares.
    """
    size = predictions.split.size
    donors = draw_evenly(predictions.members(class_index), _SCAN_DONORS, generator)
    pairs = predictions.crossed(class_index, donors, predictions.hosts(class_index, 2, generator))

    def clarity(place: Box) -> float:
        effect = pairs.effect(Transplant(place.region(size)))
        groups = Groups.of(effect.log_odds.reshape(len(donors), -1).mean(dim=1))
        return groups.gap * (groups.separation - _NORMAL)

    squares, strips = windows(size)
    clear = {place: clarity(place) for place in squares}
    best = sorted(clear, key=lambda place: -clear[place])[:_WINDOWS]
    clear |= {strip: clarity(strip) for strip in strips if any(strip.contains(square) for square in best)}
    return _clearest(clear, _WINDOWS)


def windows_in_images(
    predictions: Predictions, class_index: int, generator: torch.Generator
) -> tuple[list[Box], list[Box]]:
    """Windows by what images show, without asking the model, clearest first.

    In the first, images of the class fall into two groups: some have a pattern that other classes lack. In the second,
    nearly all images of the class have a pattern, and nearly no others. None for a class with few images.
    """
    members = predictions.members(class_index)
    if len(members) < IMAGES_TO_COMBINE:
        return [], []
    others = predictions.some_others(class_index, OTHERS_PER_IMAGE * len(members), generator)
    own, rest = (fine_structure(predictions.split.images[positions]) for positions in (members, others))
    groups, shared = {}, {}
    squares, strips = windows(predictions.split.size)
    for place in squares + strips:
        inside, usual = (
            normalize(images[:, :, place.top : place.bottom, place.left : place.right].flatten(1), dim=1, eps=FLAT)
            for images in (own, rest)
        )
        groups[place] = separation_from(usual, inside)
        if shared_rule(inside, usual) is not None:
            shared[place] = float(inside.mean(dim=0).norm())  # 1 if all images are the same there
    return _clearest(groups, _REGIONS), _clearest(shared, _REGIONS)


def _clearest(clear: Mapping[Box, float], count: int) -> list[Box]:
    """The places with the largest values, none overlapping another."""
    chosen: list[Box] = []
    for place in sorted(clear, key=lambda place: -clear[place]):
        if len(chosen) < count and not any(place.overlaps(other) for other in chosen):
            chosen.append(place)
    return chosen


def standouts(priors: Priors, images: Tensor) -> Tensor:
    """How far each pixel of each class's diagonal stands out (K,H,W), in standard deviations of split halves.

    It stands out from the other classes, from a smooth spatial profile, and from what the edges of the images (N,C,H,W)
    explain.
    """
    edges = _edge_energy(images)
    contrast, first, second = (_contrast(prior, edges) for prior in (priors.whole, *priors.halves))
    noise = (first - second) / 2
    return contrast / noise[~noise.isnan()].square().mean().sqrt().clamp_min(1e-12)


def standout_regions(standout: Tensor) -> list[Tensor]:
    """The regions (H,W) of a map (H,W) that stand out most, from four pixels to a tenth of the image."""
    regions: list[Tensor] = []
    for level in _STANDOUT:
        for part in connected(standout.nan_to_num(nan=-torch.inf) > level):
            box = box_of(part)
            fits = 4 <= box.height * box.width <= LARGEST_REGION * part.numel()
            if fits and not any(bool((part & other).any()) for other in regions):
                regions.append(part)
    return sorted(regions, key=lambda part: -float(standout[part].sum()))[:_REGIONS]


def _contrast(prior: AGOP, edges: Tensor) -> Tensor:
    """The logarithm (K,H,W) of each class's diagonal minus the mean of other classes, a smooth profile, and its
    regression on the edges (H,W).

    Diagonals are divided by their means and smoothed over 3×3 pixels. NaN for classes without samples.
    """
    maps = smoothed(diagonals_of(prior).double().sum(dim=1), 3)
    maps = (maps / maps.mean(dim=(1, 2), keepdim=True)).clamp_min(1e-6).log()
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
