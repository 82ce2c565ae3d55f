"""Search: propose and screen on one half of the images, test on the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from agop.auditing.grouping import SEPARATED, Rule
from agop.auditing.matching import share_alike
from agop.auditing.moving_patches import patch_proposals
from agop.auditing.places import (
    control_boxes,
    outstanding,
    region_proposals,
    scan,
    standout_regions,
    windows_in_images,
)
from agop.auditing.predictor import Asked, Predictor, evenly
from agop.auditing.priors import Priors
from agop.auditing.proposals import (
    REGION,
    PatchProposal,
    PropertyProposal,
    Proposal,
    RegionProposal,
    property_proposals,
)
from agop.auditing.refining import Contrast, refined_box
from agop.auditing.regions import Box, box_of, grown, overlap
from agop.auditing.stages import Stages
from agop.auditing.trial import LEVEL, Screening, Trial, groups_elsewhere, p_more_often, run_trial, screen, variety
from agop.explaining.explain import explain
from agop.system.progress import track

# Hosts and images of the class in the first look, hosts in the screening and in the test.
_FIRST_HOSTS, _FIRST_IMAGES, _SCREEN_HOSTS, _TEST_HOSTS = 2, 50, 4, 8
# Pairs of images in the test, and before it.
TEST_PAIRS, _FEW_PAIRS = 300, 32
# Gap of the groups in log-odds, and in P(class), from which a proposal is tested on the second half; and the share of
# gap and separation that is worth more than a first look.
_GAP, _RISE, _PROMISING = 0.25, 0.02, 0.9
# Images of the pattern that are looked for at other places.
_TEMPLATES = 5
# Share of the separation that a refined region must have.
_CLEAR = 0.8
# Moving patches per class. Regions of a class that overlap more than this are one region, and so are a region and
# another one that has more than half of it.
_PATCHES, _SAME, _MOSTLY = 2, 0.1, 0.5
# Separation of what a whole class shares, in multiples of that of other groups; or the norm of the mean of its fine
# structure, which is 1 if all images are the same there.
_SHARED, _EQUAL = 2.0, 0.9
# Groups are those of something else that separates them this much more clearly, from this correlation on.
_CLEARER, _ASSOCIATED = 2.0, 0.6


@dataclass(frozen=True)
class Search:
    """What a search needs: the model, two halves of the images, and the priors of the first half."""

    model: nn.Module
    predictor: Predictor
    proposing: Asked
    testing: Asked
    priors: Priors
    seed: int = 0
    progress: bool = True
    stages: Stages = field(default_factory=Stages)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.proposing.half.images.shape[2], self.proposing.half.images.shape[3]

    def run(self, classes: Sequence[int]) -> tuple[list[Screening], list[Trial], list[Screening]]:
        """All proposals as screened on the first half, trials on the second half, and tests without groups there."""
        standouts = outstanding(self.priors.whole, self.priors.halves, self.proposing.half)
        screened: list[Screening] = []
        tested: list[Trial | Screening] = []
        for index in track(classes, "searching", show=self.progress):
            found, trials = self.stages.get(f"searching-{index}", partial(self._search, index, standouts[index]))
            screened += found
            tested += trials
        without_groups = [each for each in tested if isinstance(each, Screening)]
        return screened, [each for each in tested if isinstance(each, Trial)], without_groups

    def _search(self, index: int, standout: Tensor) -> tuple[list[Screening], list[Trial | Screening]]:
        found = self._screen(index, standout)
        passed = [each for each in found if _passes(each) and self._matters(each)]
        return found, list(self._test([each for each in passed if not _has_groups_of_another(each, found, passed)]))

    def _screen(self, index: int, standout: Tensor) -> list[Screening]:
        some, every = map(self._regions, windows_in_images(self.proposing, index, self._generator(index, 5)))
        windows = self._regions(scan(self.predictor, self.proposing, index, self._generator(index, 0)))
        areas = {"prior": standout_regions(standout), "scan": windows, "images": some}
        proposals: list[Proposal] = list(region_proposals(index, areas, self.size, self.seed))
        proposals += self._patches(index)
        proposals += property_proposals(index, self.size)
        shared = region_proposals(index, {"all images": every}, self.size, self.seed)
        return [*map(self._first_look, proposals), *(self._screened(replace(each, shared=True)) for each in shared)]

    def _regions(self, boxes: Sequence[Box]) -> list[Tensor]:
        return [box.region(self.size) for box in boxes]

    def _screened(self, proposal: Proposal, rule: Rule | None = None, keep: Tensor | None = None) -> Screening:
        generator = self._generator(proposal.class_index, 1)
        return screen(self.predictor, self.proposing, proposal, _SCREEN_HOSTS, generator, rule, keep)

    def _first_look(self, proposal: Proposal) -> Screening:
        """The screening with few images, or with all if these show that the proposal is worth it."""
        generator = self._generator(proposal.class_index, 4)
        screening = screen(
            self.predictor, self.proposing, proposal, _FIRST_HOSTS, generator, most=_FIRST_IMAGES
        )  # fmt: skip
        promising = _passes(screening, _PROMISING) and self._matters(screening)
        return self._screened(proposal) if promising else screening

    def _matters(self, screening: Screening) -> bool:
        """True if P(class) rises in images of other classes, more than with donors that don't contain it."""
        return self._contrast(screening).rise(screening.proposal) >= _RISE

    def _contrast(self, screening: Screening) -> Contrast:
        index = screening.proposal.class_index
        generator = self._generator(index, 3)
        pairs = self.proposing.pairs(index, screening.carriers, _FEW_PAIRS, generator)
        return Contrast(self.predictor, pairs, pairs.with_donors(screening.members[~screening.contains], generator))

    def screened_again(self, trial: Trial) -> Screening:
        """What was tested, screened by its rule on the first half."""
        return self._screened(trial.proposal, trial.screening.rule, trial.keep)

    def _patches(self, index: int) -> list[PatchProposal]:
        half, members = self.proposing.half, self.proposing.members(index)
        images = half.images[members]
        others = half.images[evenly(self.proposing.others(index), len(members), self._generator(index, 6))]
        prior, rows = self.priors.whole, self.predictor.rows
        output = prior.provenance.output
        maps = explain(self.model, images, "agop-weighted", prior, index, batch_size=rows, nan="skip", output=output)
        return patch_proposals(index, images, maps.nan_to_num(), others, _PATCHES, self.seed)

    def _test(self, passed: Sequence[Screening]) -> Iterator[Trial | Screening]:
        """Tests on the second half: regions and patches first, each without the regions found before."""
        keep = torch.zeros(self.size, dtype=torch.bool)
        for each in self._unexplained(passed):
            if self._doesnt_move(each, keep):
                continue
            region = each.proposal.region
            trial = self._trial(each, keep)
            yield trial
            if isinstance(trial, Trial) and trial.p < LEVEL and region is not None:
                keep |= self._around(region)

    def _unexplained(self, passed: Sequence[Screening]) -> list[Screening]:
        """What passed, in the order of the tests, without what something else explains.

        A region with fine structure has a share of the image's high frequencies, and every region a share of the
        image's colour. The property is explained if it has less than half of its effect without the region. Otherwise
        it explains regions and patches of smaller effect whose groups aren't clearer.
        """
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

    def _without(self, screening: Screening, part: Screening) -> Screening:
        """The screening of a property outside a region."""
        region = part.proposal.region
        keep = None if region is None else self._around(region)
        return self._screened(screening.proposal, screening.rule, keep)

    def _around(self, region: Tensor) -> Tensor:
        """The region (H,W) with a margin."""
        return grown(region, max(1, min(self.size) // 16))

    def _doesnt_move(self, screening: Screening, region: Tensor) -> bool:
        """True for a moving patch that is in the region (H,W) in most images: it doesn't move."""
        proposal = screening.proposal
        if not isinstance(proposal, PatchProposal):
            return False
        centres = proposal.matches(self.proposing.half.images[screening.carriers]).corners + proposal.side // 2
        return float(region[centres[:, 0], centres[:, 1]].double().mean()) > 0.5

    def _trial(self, screening: Screening, keep: Tensor) -> Trial | Screening:
        """The trial on the second half, or its screening if the images of the class don't form two groups there."""
        proposal = screening.proposal
        generator = self._generator(proposal.class_index, 2)
        kept = keep.clone() if keep.any() else None
        tested = screen(self.predictor, self.testing, proposal, _TEST_HOSTS, generator, screening.rule, kept)
        if tested.p >= LEVEL or tested.gap < _GAP:
            return tested
        p_share = p_more_often(self.predictor, self.testing, tested, generator, kept)
        trial = run_trial(self.predictor, self.testing, tested, TEST_PAIRS, p_share, generator, kept)
        if trial.p >= LEVEL:
            return trial
        elsewhere = max(groups_elsewhere(self.predictor, self.testing, tested, kept), self._moves(tested))
        return replace(trial, elsewhere=elsewhere, variety=variety(tested, self.testing.half.images))

    def _moves(self, screening: Screening) -> float:
        """Share of the images without the region's pattern that have it at another place: the object itself.

        Compared with what this place looks like in images without the pattern.
        """
        if screening.proposal.region is None:
            return 0.0
        box, order = box_of(screening.proposal.region), screening.responses.argsort(descending=True)
        contains, images = screening.contains[order], self.testing.half.images[screening.members[order]]
        containing, without = images[contains], images[~contains].flip(0)
        patches, usual = (
            each[:_TEMPLATES, :, box.top : box.bottom, box.left : box.right] for each in (containing, without)
        )
        return share_alike(without, patches, usual)

    def _distinct(self, passed: Sequence[Screening]) -> list[Screening]:
        """The regions, refined, strongest first, without those that overlap another or are a part of the border.

        What contains a refined region isn't refined: it has its effect from that region.
        """
        chosen: list[Screening] = []
        for each in sorted(passed, key=lambda each: -each.gap):
            if any(_covered(other, each) > _MOSTLY for other in chosen):
                continue
            refined = self._refined(each)
            if refined is not None and not any(_overlap(refined, other) > _SAME for other in chosen):
                chosen.append(refined)
        return sorted(chosen, key=lambda each: -each.gap)

    def _refined(self, screening: Screening) -> Screening | None:
        """The region, refined unless that blurs the groups; None for a part of the border or of the object."""
        box = refined_box(self._contrast(screening), screening, self.size)
        if box is None:
            return None
        area, elsewhere = box.region(self.size), control_boxes(box, self.size, self.seed)
        index, source, shared = screening.proposal.class_index, screening.proposal.source, screening.proposal.shared
        refined = self._screened(RegionProposal(REGION, index, source, area, elsewhere, shared=shared))
        best = refined if refined.separation >= _CLEAR * screening.separation else screening
        return None if _may_be_the_object(best, self.proposing.half.images) else best

    def _generator(self, *numbers: int) -> torch.Generator:
        """A generator of its own for each class and stage."""
        seed = self.seed
        for number in numbers:
            seed = seed * 1_000_003 + number + 1
        return torch.Generator().manual_seed(seed % 2**63)


def _passes(screening: Screening, share: float = 1.0) -> bool:
    """True if the groups are clear and far apart."""
    return screening.separation >= share * SEPARATED and screening.gap >= share * _GAP


def _may_be_the_object(screening: Screening, images: Tensor) -> bool:
    """True for a region that a whole class shares, unless it is very clear or the same in all images (N,C,H,W)."""
    if not screening.proposal.shared or screening.separation >= _SHARED * SEPARATED:
        return False
    return float(screening.proposal.statistics(images[screening.carriers]).mean(dim=0).norm()) < _EQUAL


def _has_groups_of_another(screening: Screening, found: Sequence[Screening], passed: Sequence[Screening]) -> bool:
    """True if its groups are the much clearer groups of something that has no effect of its own.

    Half of all images may have a frame that the model ignores. Without it, the usual colours of a class show.
    """
    return any(
        other.separation >= _CLEARER * screening.separation and _association(screening, other) >= _ASSOCIATED
        for other in found
        if not any(other is each for each in passed)
    )


def _association(first: Screening, second: Screening) -> float:
    """The correlation of two groupings of the same images, without its sign."""
    count = min(first.of_class, second.of_class)
    groups = torch.stack([each.contains[:count].double() for each in (first, second)])
    return float(groups.corrcoef()[0, 1].abs().nan_to_num())


def _overlap(first: Screening, second: Screening) -> float:
    one, other = first.proposal.region, second.proposal.region
    return 0.0 if one is None or other is None else overlap(one, other)


def _covered(first: Screening, second: Screening) -> float:
    """Share of the first one's region that is in the second one's."""
    one, other = first.proposal.region, second.proposal.region
    return 0.0 if one is None or other is None else float((one & other).sum() / one.sum())
