"""Proposals: what may decide a class, each with an intervention and controls for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from agop.auditing.matching import Matches, best_matches
from agop.auditing.predictor import Pairs
from agop.auditing.regions import Box, box_of
from agop.interventions import Intervention
from agop.interventions.border import Border
from agop.interventions.colour import Colour
from agop.interventions.high_frequency import HighFrequency
from agop.interventions.transplant import Transplant
from agop.interventions.transplant_elsewhere import TransplantElsewhere

REGION, PATCH, COLOUR, BORDER, HIGH_FREQUENCY = "region", "moving patch", "colour", "border", "high frequency"


@dataclass(frozen=True, eq=False)
class Proposal(ABC):
    """Something that may decide a class. `source` names where the proposal comes from.

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

    def outline(self, size: tuple[int, int]) -> Tensor | None:
        """What a picture of the finding outlines (H,W): the region or the border."""
        return self.region

    def look(self, images: Tensor) -> Tensor:
        """What is taken from images (N,C,H,W), as numbers (N,F); by default the statistics."""
        return self.statistics(images)

    @abstractmethod
    def intervention(self, pairs: Pairs) -> Intervention:
        """What is done to the pairs."""

    def controls(self, pairs: Pairs) -> list[Intervention]:
        """The same at other places of equal size."""
        return []

    def statistics(self, images: Tensor) -> Tensor:
        """Numbers (N,F) that may tell which images (N,C,H,W) contain it; by default none."""
        return images.new_zeros(len(images), 0)


@dataclass(frozen=True, eq=False)
class RegionProposal(Proposal):
    """A region (H,W) at a fixed place, with boxes of its size at other places."""

    area: Tensor
    elsewhere: tuple[Box, ...]

    @property
    def region(self) -> Tensor:
        """The region (H,W)."""
        return self.area

    def statistics(self, images: Tensor) -> Tensor:
        """The fine structure of the region."""
        return Transplant(self.area).statistics(images)

    def look(self, images: Tensor) -> Tensor:
        """The pixels of the region."""
        return images[:, :, self.area].flatten(1)

    def intervention(self, pairs: Pairs) -> Intervention:
        """Paste the region."""
        return Transplant(self.area)

    def controls(self, pairs: Pairs) -> list[Intervention]:
        """Paste regions of this shape at other places."""
        height, width = self.area.shape
        box = box_of(self.area)
        shape = self.area[box.top : box.bottom, box.left : box.right]
        shifted = []
        for place in self.elsewhere:
            area = torch.zeros(height, width, dtype=torch.bool)
            area[place.top : place.bottom, place.left : place.right] = shape
            shifted.append(Transplant(area))
        return list(shifted)


@dataclass(frozen=True, eq=False)
class PatchProposal(Proposal):
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
        corners = self.matches(pairs.asked.half.images[donors]).corners
        return TransplantElsewhere(corners[places], self.side, self.seed)

    def controls(self, pairs: Pairs) -> list[Intervention]:
        """Patches from random places of the same images, pasted at the same places."""
        anywhere = TransplantElsewhere(torch.zeros(0, 2), self.side, self.seed + 1)
        corners = anywhere.places(len(pairs.donors), *pairs.asked.half.images.shape[2:])
        return [TransplantElsewhere(corners, self.side, self.seed)]


@dataclass(frozen=True, eq=False)
class PropertyProposal(Proposal):
    """A property of the whole image: colour, border or the high-frequency band."""

    swap: Intervention
    other_swaps: tuple[Intervention, ...] = ()

    def outline(self, size: tuple[int, int]) -> Tensor | None:
        """The border, None for other properties."""
        return self.swap.region(*size) if isinstance(self.swap, Border) else None

    def statistics(self, images: Tensor) -> Tensor:
        """What describes the property."""
        return self.swap.statistics(images)

    def intervention(self, pairs: Pairs) -> Intervention:
        """Swap the property."""
        return self.swap

    def controls(self, pairs: Pairs) -> list[Intervention]:
        """Swap another property of equal size."""
        return list(self.other_swaps)


def border_of(size: tuple[int, int]) -> Border | None:
    """The border that is tested, of a fourteenth of the shorter side; None for images that are too small."""
    width = max(1, min(size) // 14)
    return Border(width) if min(size) > 4 * width else None


def property_proposals(class_index: int, size: tuple[int, int]) -> list[Proposal]:
    """Colour, border and high-frequency band of a class. The control of a border is a frame well inside."""
    border = border_of(size)
    swaps: list[tuple[str, Intervention, tuple[Intervention, ...]]] = [(COLOUR, Colour(), ())]
    if border is not None:
        swaps.append((BORDER, border, (Border(border.width, inset=min(size) // 4),)))
    swaps.append((HIGH_FREQUENCY, HighFrequency(), ()))
    return [PropertyProposal(kind, class_index, "whole image", swap, others) for kind, swap, others in swaps]
