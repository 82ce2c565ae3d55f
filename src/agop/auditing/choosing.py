"""Choose what is tested: of all that passed the screening, what something else doesn't explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agop.auditing.grouping import SEPARATED
from agop.auditing.places import control_boxes
from agop.auditing.proposals import REGION, PatchProposal, PropertyProposal, RegionProposal
from agop.auditing.refining import refined_box
from agop.auditing.regions import grown, overlap
from agop.auditing.screener import Screener
from agop.auditing.trial import Screening

# Share of the separation that a refined region must have.
_CLEAR = 0.8
# Regions of a class that overlap more than this are one region, and so are a region and another one that has more than
# half of it.
_SAME, _MOSTLY = 0.1, 0.5
# Separation of what a whole class shares, in multiples of that of other groups; or the norm of the mean of its fine
# structure, which is 1 if all images are the same there.
_SHARED, _EQUAL = 2.0, 0.9
# Groups are those of something else that separates them this much more clearly, from this correlation on.
_CLEARER, _ASSOCIATED = 2.0, 0.6


@dataclass(frozen=True)
class Choice:
    """Chooses from what a screener screened."""

    screener: Screener

    def of(self, screened: Sequence[Screening]) -> list[Screening]:
        """What is tested, in the order of the tests: regions and patches first.

        A region with fine structure has a share of the image's high frequencies, and every region a share of the
        image's colour. The property is explained if it has less than half of its effect without the region. Otherwise
        it explains regions and patches of smaller effect whose groups aren't clearer.
        """
        passed = [each for each in screened if self.screener.passes(each)]
        passed = [each for each in passed if not has_groups_of_another(each, screened, passed)]
        regions = self._distinct([each for each in passed if isinstance(each.proposal, RegionProposal)])
        patches = [each for each in passed if isinstance(each.proposal, PatchProposal)]
        properties = [each for each in passed if isinstance(each.proposal, PropertyProposal)]
        for region in regions[:1]:
            properties = [each for each in properties if self._without(each, region).gap >= each.gap / 2]
        parts = [
            part
            for part in (*regions, *patches)
            if not any(each.gap >= part.gap and each.separation >= part.separation for each in properties)
        ]
        return [*parts, *sorted(properties, key=lambda each: -each.gap)]

    def around(self, region: Tensor) -> Tensor:
        """The region (H,W) with a margin."""
        return grown(region, max(1, min(self.screener.size) // 16))

    def _without(self, screening: Screening, part: Screening) -> Screening:
        """The screening of a property outside a region."""
        return self.screener.screened(screening.proposal, screening.rule, self.around(_area(part)))

    def _distinct(self, regions: Sequence[Screening]) -> list[Screening]:
        """The regions, refined, strongest first, without those that overlap another or are a part of the border.

        What contains a refined region isn't refined: it has its effect from that region.
        """
        chosen: list[Screening] = []
        for each in sorted(regions, key=lambda each: -each.gap):
            if any(_covered(_area(other), _area(each)) > _MOSTLY for other in chosen):
                continue
            refined = self._refined(each)
            if refined is not None and not any(overlap(_area(refined), _area(other)) > _SAME for other in chosen):
                chosen.append(refined)
        return sorted(chosen, key=lambda each: -each.gap)

    def _refined(self, screening: Screening) -> Screening | None:
        """The region, refined unless that blurs the groups; None for a part of the border or of the object."""
        size, seed, proposal = self.screener.size, self.screener.seed, screening.proposal
        box = refined_box(self.screener.contrast(screening), screening, _area(screening))
        if box is None:
            return None
        area, elsewhere = box.region(size), control_boxes(box, size, seed)
        refined = self.screener.screened(
            RegionProposal(REGION, proposal.class_index, proposal.source, area, elsewhere, shared=proposal.shared)
        )
        best = refined if refined.separation >= _CLEAR * screening.separation else screening
        return None if may_be_the_object(best, self.screener.proposing.half.images) else best


def _area(screening: Screening) -> Tensor:
    """The region (H,W) of a screened region."""
    region = screening.proposal.region
    if region is None:
        raise TypeError(f"{screening.proposal.kind} has no region")
    return region


def _covered(one: Tensor, other: Tensor) -> float:
    """Share of a region (H,W) that is in another one."""
    return float((one & other).sum() / one.sum())


def may_be_the_object(screening: Screening, images: Tensor) -> bool:
    """True for a region that a whole class shares, unless it is very clear or the same in all images (N,C,H,W)."""
    if not screening.proposal.shared or screening.separation >= _SHARED * SEPARATED:
        return False
    return float(screening.proposal.statistics(images[screening.carriers]).mean(dim=0).norm()) < _EQUAL


def has_groups_of_another(screening: Screening, screened: Sequence[Screening], passed: Sequence[Screening]) -> bool:
    """True if its groups are the much clearer groups of something that has no effect of its own.

    Half of all images may have a frame that the model ignores. Without it, the usual colours of a class show.
    """
    return any(
        other.separation >= _CLEARER * screening.separation and _association(screening, other) >= _ASSOCIATED
        for other in screened
        if not any(other is each for each in passed)
    )


def _association(first: Screening, second: Screening) -> float:
    """The correlation of two groupings of the same images, without its sign."""
    count = min(first.of_class, second.of_class)
    groups = torch.stack([each.contains[:count].double() for each in (first, second)])
    return float(groups.corrcoef()[0, 1].abs().nan_to_num())
