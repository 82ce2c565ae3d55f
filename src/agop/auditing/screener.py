"""Screener: proposals of a class, screened on the first half of the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from agop.auditing.grouping import SEPARATED, Rule
from agop.auditing.moving_patches import patch_proposals
from agop.auditing.places import region_proposals, scan, standout_regions, windows_in_images
from agop.auditing.predictor import Asked, Predictor, evenly
from agop.auditing.priors import Priors
from agop.auditing.proposals import PatchProposal, Proposal, property_proposals
from agop.auditing.refining import Contrast
from agop.auditing.regions import Box
from agop.auditing.trial import Screening, screen
from agop.explaining.explain import explain

# Hosts and images of the class in the first look, and hosts in the screening.
_FIRST_HOSTS, _FIRST_IMAGES, _HOSTS = 2, 50, 4
# Pairs of images that show whether P(class) rises.
_PAIRS = 32
# Gap of the groups in log-odds, and rise of P(class), from which a proposal is tested on the second half; and the share
# of gap and separation that is worth more than a first look.
LEAST_GAP, _RISE, _PROMISING = 0.25, 0.02, 0.9
# Moving patches per class.
_PATCHES = 2


@dataclass(frozen=True)
class Screener:
    """The model, the half of the images that proposes, and its priors."""

    model: nn.Module
    predictor: Predictor
    proposing: Asked
    priors: Priors
    seed: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.proposing.half.images.shape[2], self.proposing.half.images.shape[3]

    def all_screened(self, index: int, standout: Tensor) -> list[Screening]:
        """All proposals of a class, screened. `standout` (H,W) is how far pixels stand out in its diagonal."""
        some, every = map(self._regions, windows_in_images(self.proposing, index, self.generator(index, 5)))
        windows = self._regions(scan(self.predictor, self.proposing, index, self.generator(index, 0)))
        areas = {"prior": standout_regions(standout), "scan": windows, "images": some}
        proposals: list[Proposal] = list(region_proposals(index, areas, self.size, self.seed))
        proposals += self._patches(index)
        proposals += property_proposals(index, self.size)
        shared = region_proposals(index, {"all images": every}, self.size, self.seed)
        return [*map(self._first_look, proposals), *(self.screened(replace(each, shared=True)) for each in shared)]

    def _regions(self, boxes: Sequence[Box]) -> list[Tensor]:
        return [box.region(self.size) for box in boxes]

    def _patches(self, index: int) -> list[PatchProposal]:
        half, members = self.proposing.half, self.proposing.members(index)
        images = half.images[members]
        others = half.images[evenly(self.proposing.others(index), len(members), self.generator(index, 6))]
        prior, rows = self.priors.whole, self.predictor.rows
        output = prior.provenance.output
        maps = explain(self.model, images, "agop-weighted", prior, index, batch_size=rows, nan="skip", output=output)
        return patch_proposals(index, images, maps.nan_to_num(), others, _PATCHES, self.seed)

    def _first_look(self, proposal: Proposal) -> Screening:
        """The screening with few images, or with all if these show that the proposal is worth it."""
        generator = self.generator(proposal.class_index, 4)
        screening = screen(
            self.predictor, self.proposing, proposal, _FIRST_HOSTS, generator, most=_FIRST_IMAGES
        )  # fmt: skip
        return self.screened(proposal) if self.passes(screening, _PROMISING) else screening

    def screened(self, proposal: Proposal, rule: Rule | None = None, keep: Tensor | None = None) -> Screening:
        """The screening with all images of the class. Pixels in `keep` (H,W) stay."""
        generator = self.generator(proposal.class_index, 1)
        return screen(self.predictor, self.proposing, proposal, _HOSTS, generator, rule, keep)

    def passes(self, screening: Screening, share: float = 1.0) -> bool:
        """True if the groups are clear and far apart, and P(class) rises more than with donors that don't contain it.

        With a share, less separation and gap suffice.
        """
        if screening.separation < share * SEPARATED or screening.gap < share * LEAST_GAP:
            return False
        return self.contrast(screening).rise(screening.proposal) >= _RISE

    def contrast(self, screening: Screening) -> Contrast:
        """A few images of other classes, with donors that contain what was screened and with others."""
        index = screening.proposal.class_index
        generator = self.generator(index, 3)
        pairs = self.proposing.pairs(index, screening.carriers, _PAIRS, generator)
        return Contrast(self.predictor, pairs, pairs.with_donors(screening.members[~screening.contains], generator))

    def generator(self, *numbers: int) -> torch.Generator:
        """A generator of its own for each class and stage."""
        seed = self.seed
        for number in numbers:
            seed = seed * 1_000_003 + number + 1
        return torch.Generator().manual_seed(seed % 2**63)
