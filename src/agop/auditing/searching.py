"""Search: propose and screen on one half of the images, test on the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from agop.auditing.choosing import Choice
from agop.auditing.matching import share_alike
from agop.auditing.places import outstanding
from agop.auditing.predictor import Asked
from agop.auditing.proposals import PatchProposal
from agop.auditing.regions import box_of
from agop.auditing.screener import LEAST_GAP, Screener
from agop.auditing.stages import Stages
from agop.auditing.trial import (
    ELSEWHERE,
    LEVEL,
    Screening,
    Trial,
    groups_elsewhere,
    p_more_often,
    run_trial,
    screen,
    variety,
)
from agop.system.progress import track

# Images that are pasted into, for each response in a test and in one that is lost already, and pairs of images.
_HOSTS, _FEWER_HOSTS, TEST_PAIRS = 8, 2, 300
# Images of the pattern that are looked for at other places.
_TEMPLATES = 5


@dataclass(frozen=True)
class Search:
    """A screener, and the half of the images that tests what passed its screening."""

    screener: Screener
    testing: Asked
    progress: bool = True
    stages: Stages = field(default_factory=Stages)

    def run(self, classes: Sequence[int]) -> tuple[list[Screening], list[Trial], list[Screening]]:
        """All proposals as screened on the first half, trials on the second half, and tests without groups there."""
        priors = self.screener.priors
        standouts = outstanding(priors.whole, priors.halves, self.screener.proposing.half)
        screened: list[Screening] = []
        tested: list[Trial | Screening] = []
        for index in track(classes, "searching", show=self.progress):
            found, trials = self.stages.get(f"searching-{index}", partial(self._search, index, standouts[index]))
            screened += found
            tested += trials
        without_groups = [each for each in tested if isinstance(each, Screening)]
        return screened, [each for each in tested if isinstance(each, Trial)], without_groups

    def _search(self, index: int, standout: Tensor) -> tuple[list[Screening], list[Trial | Screening]]:
        screened = self.screener.all_screened(index, standout)
        return screened, list(self._test(Choice(self.screener), screened))

    def _test(self, choice: Choice, screened: Sequence[Screening]) -> Iterator[Trial | Screening]:
        """Tests on the second half, each without the regions found before."""
        keep = torch.zeros(self.screener.size, dtype=torch.bool)
        for each in choice.of(screened):
            if self._doesnt_move(each, keep):
                continue
            region = each.proposal.region
            trial = self._trial(each, keep)
            yield trial
            if isinstance(trial, Trial) and trial.p < LEVEL and region is not None:
                keep |= choice.around(region)

    def _doesnt_move(self, screening: Screening, region: Tensor) -> bool:
        """True for a moving patch that is in the region (H,W) in most images: it doesn't move."""
        proposal = screening.proposal
        if not isinstance(proposal, PatchProposal):
            return False
        images = self.screener.proposing.half.images[screening.carriers]
        centres = proposal.matches(images).corners + proposal.side // 2
        return float(region[centres[:, 0], centres[:, 1]].double().mean()) > 0.5

    def _trial(self, screening: Screening, keep: Tensor) -> Trial | Screening:
        """The trial on the second half, or its screening if the images of the class don't form two groups there."""
        proposal, predictor = screening.proposal, self.screener.predictor
        generator = self.screener.generator(proposal.class_index, 2)
        kept = keep.clone() if keep.any() else None
        tested = screen(
            predictor, self.testing, proposal, _HOSTS, generator, screening.rule, kept, fewer_hosts=_FEWER_HOSTS
        )
        if tested.p >= LEVEL or tested.gap < LEAST_GAP:
            return tested
        p_share = p_more_often(predictor, self.testing, tested, generator, kept)
        trial = run_trial(predictor, self.testing, tested, TEST_PAIRS, p_share, generator, kept)
        if trial.p >= LEVEL:
            return trial
        elsewhere = self._moves(tested)
        if elsewhere < ELSEWHERE:  # else it is rejected, without further passes
            elsewhere = max(elsewhere, groups_elsewhere(predictor, self.testing, tested, kept))
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

    def screened_again(self, trial: Trial) -> Screening:
        """What was tested, screened by its rule on the first half."""
        return self.screener.screened(trial.proposal, trial.screening.rule, trial.keep)
