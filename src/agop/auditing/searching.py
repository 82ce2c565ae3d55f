"""Search: propose and screen on one half of the images, test on the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor, nn

from agop.auditing.extent import extent
from agop.auditing.moving_patches import patch_proposals
from agop.auditing.places import LARGEST_SHARE, Scan, control_boxes, outstanding, region_proposals, same_size, scan
from agop.auditing.predictor import Asked, Pairs, Predictor, change
from agop.auditing.prevalence import containing
from agop.auditing.priors import Priors
from agop.auditing.proposals import REGION, PatchProposal, Proposal, RegionProposal, border_of, property_proposals
from agop.auditing.refining import refined
from agop.auditing.regions import Box, box_of, grown, overlap
from agop.auditing.trial import MARGIN, Trial, run_trial
from agop.explaining.explain import explain
from agop.interventions.transplant import Transplant
from agop.system.progress import track

_SCREEN_PAIRS, _TEST_PAIRS = 48, 300
# Share of the margin that an effect must have beyond its controls on the first half to be tested on the second.
_PASSES = 0.6
# Moving patches per class, and regions of a class that overlap more than this are one region.
_PATCHES, _SAME = 2, 0.1
# Other classes whose best places are a control for a region.
_OTHER_CLASSES = 4
# A region along the edge with less than this share of the border's effect is a part of the border.
_PART = 0.8
# Share of the effect of a region's core that the whole pattern must have.
_NEARLY = 0.9


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

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.proposing.half.images.shape[2], self.proposing.half.images.shape[3]

    def run(self, classes: Sequence[int]) -> tuple[list[Trial], list[Trial]]:
        """Trials of the screening on the first half, and trials of what passed it on the second half."""
        standouts = outstanding(self.priors.whole, self.priors.halves, self.proposing.half)
        scans = {
            index: scan(self.predictor, self.proposing, index, self._generator(index, 0))
            for index in self._track(classes, "scanning")
        }
        screened = [
            trial
            for index in self._track(classes, "screening")
            for trial in self._screen(index, standouts[index], scans[index])
        ]
        typical = _typical_effects(screened)
        passed = [
            trial
            for trial in screened
            if trial.excess.value >= _PASSES * MARGIN and trial.effect.value - typical[id(trial)] >= _PASSES * MARGIN
        ]
        tested = []
        for index in self._track(classes, "testing"):
            own = [(trial.proposal, typical[id(trial)]) for trial in passed if trial.proposal.class_index == index]
            tested += list(self._test(index, own, scans))
        return screened, tested

    def _screen(self, index: int, standout: Tensor, scanned: Scan) -> list[Trial]:
        proposals: list[Proposal] = list(region_proposals(index, standout, scanned, self.seed))
        proposals += self._patches(index)
        proposals += property_proposals(index, self.size)
        generator = self._generator(index, 1)
        pairs = self.proposing.pairs(index, _SCREEN_PAIRS, generator)
        return [run_trial(self.predictor, proposal, pairs, generator, least=_PASSES * MARGIN) for proposal in proposals]

    def _patches(self, index: int) -> list[PatchProposal]:
        half, members = self.proposing.half, self.proposing.members(index)
        images = half.images[members]
        others = half.images[self.proposing.other_donors(index, len(members), self._generator(index, 6))]
        prior, rows = self.priors.whole, self.predictor.rows
        maps = explain(self.model, images, "agop-weighted", prior, index, batch_size=rows, nan="skip")
        return patch_proposals(index, images, maps.nan_to_num(), others, _PATCHES, self.seed)

    def _test(self, index: int, proposals: Sequence[tuple[Proposal, float]], scans: dict[int, Scan]) -> Iterator[Trial]:
        """Trials on the second half: regions first, since they may explain the effect of a property."""
        generator = self._generator(index, 2)
        pairs = self.testing.pairs(index, _TEST_PAIRS, generator)
        regions = self._distinct([p for p, _ in proposals if isinstance(p, RegionProposal)], scans[index])
        keep = torch.zeros(self.size, dtype=torch.bool)
        for region in regions:
            trial = run_trial(self.predictor, region, pairs, generator, self._ordinary(region, scans))
            if trial.excess.value >= trial.bound:
                keep |= grown(region.area, max(1, min(self.size) // 16))
            yield trial
        for proposal, typical in proposals:
            if not isinstance(proposal, RegionProposal) and not _inside(proposal, keep):
                kept = keep if keep.any() and not isinstance(proposal, PatchProposal) else None
                yield run_trial(self.predictor, proposal, pairs, generator, typical, kept)

    def _distinct(self, proposals: Sequence[RegionProposal], scanned: Scan) -> list[RegionProposal]:
        """The regions, refined, without those that overlap one with a larger effect or are a part of the border."""
        candidates: list[tuple[float, RegionProposal]] = []
        for proposal in proposals:
            pairs = self.proposing.pairs(proposal.class_index, _SCREEN_PAIRS, self._generator(proposal.class_index, 3))
            most_pixels = int(LARGEST_SHARE * proposal.area.numel())
            box = refined(self.predictor, pairs, box_of(proposal.area), self.size, most_pixels)
            box, effect = self._whole_pattern(pairs, proposal, box)
            area, elsewhere = box.region(self.size), control_boxes(box, self.size, scanned, self.seed)
            if not self._part_of_border(pairs, area, effect):
                candidates.append((effect, replace(proposal, area=area, elsewhere=elsewhere)))
        chosen: list[RegionProposal] = []
        for _, candidate in sorted(candidates, key=lambda pair: -pair[0]):
            if not any(overlap(candidate.area, other.area) > _SAME for other in chosen):
                chosen.append(candidate)
        return chosen

    def _part_of_border(self, pairs: Pairs, area: Tensor, effect: float) -> bool:
        """True if the region is along the edge, and the whole border has a clearly larger effect."""
        border = border_of(self.size)
        if border is None or not bool((grown(border.region(*self.size), 1) | ~area).all()):
            return False
        return effect < _PART * change(self.predictor, pairs, border).mean

    def _whole_pattern(self, pairs: Pairs, proposal: RegionProposal, core: Box) -> tuple[Box, float]:
        """The box of the pattern around a core, if its transplant has at least nearly the effect of the core."""
        core_proposal = replace(proposal, area=core.region(self.size))
        generator = self._generator(proposal.class_index, 5)
        contained = containing(self.predictor, self.proposing, core_proposal, generator)
        half = self.proposing.half
        box = extent(contained.images, half.images[half.labels != proposal.class_index], core)
        boxes = [core] if box is None else [core, box]
        effects = [change(self.predictor, pairs, Transplant(other.region(self.size))).mean for other in boxes]
        better = len(boxes) - 1 if effects[-1] >= _NEARLY * effects[0] else 0
        return boxes[better], effects[better]

    def _ordinary(self, proposal: RegionProposal, scans: dict[int, Scan]) -> float:
        """The effect of a region of equal size for other classes, at their best places: the second largest of four.

        The second, since one other class may have a shortcut of its own.
        """
        others = [index for index in scans if index != proposal.class_index]
        strongest = sorted(others, key=lambda index: -float(scans[index].changes.max()))[:_OTHER_CLASSES]
        if len(strongest) < 2:
            return -math.inf
        box, effects = box_of(proposal.area), []
        for index in strongest:
            pairs = self.testing.pairs(index, _SCREEN_PAIRS, self._generator(index, 4))
            places = [same_size(box, window, self.size) for window in scans[index].best(2)]
            swaps = [Transplant(place.region(self.size)) for place in places]
            effects.append(max(change(self.predictor, pairs, swap).mean for swap in swaps))
        return sorted(effects)[-2]

    def _generator(self, *numbers: int) -> torch.Generator:
        """A generator of its own for each class and stage."""
        seed = self.seed
        for number in numbers:
            seed = seed * 1_000_003 + number + 1
        return torch.Generator().manual_seed(seed % 2**63)

    def _track(self, classes: Sequence[int], what: str) -> Iterator[int]:
        return track(classes, what, show=self.progress)


def _typical_effects(trials: Sequence[Trial]) -> dict[int, float]:
    """The median effect of the same kind for other classes, by trial: only with two others, and not for regions.

    Those have a control of their own, since their sizes differ.
    """
    result = {}
    for trial in trials:
        others = [
            other.effect.value
            for other in trials
            if other.proposal.kind == trial.proposal.kind and other.proposal.class_index != trial.proposal.class_index
        ]
        comparable = trial.proposal.kind != REGION and len(others) > 1
        result[id(trial)] = median(others) if comparable else -math.inf
    return result


def _inside(proposal: Proposal, region: Tensor) -> bool:
    """True if most patches of a moving patch are in the region (H,W): they don't move."""
    if not isinstance(proposal, PatchProposal):
        return False
    centres = proposal.corners + proposal.side // 2
    return float(region[centres[:, 0], centres[:, 1]].double().mean()) > 0.5
