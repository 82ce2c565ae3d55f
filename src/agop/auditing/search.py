"""Search: screen candidates on one half of the images, refine and choose them, and test the rest on the other half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from agop.auditing.candidates import (
    COLOUR,
    HIGH_FREQUENCY,
    PATCH,
    PROPERTIES,
    REGION,
    Candidate,
    PatchCandidate,
    SwapCandidate,
    border_of,
    propose,
    standouts,
)
from agop.auditing.data import AuditedModel, Pairs, Stage, generator_for
from agop.auditing.interventions import Intervention, Transplant
from agop.auditing.regions import Box, box_of, extent, grown, overlap
from agop.auditing.tests import Screening, Trial, run_test, screen
from agop.auditing.thresholds import CONTRAST_PAIRS, LARGEST_REGION, LOOK_HOSTS, SCREENING_HOSTS, THRESHOLDS
from agop.evaluation.select import Priors
from agop.processes import track
from agop.stats import holm


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Everything that was screened, and the tests with their corrected p values.

    `without_groups` was tested as well, but the images of the second half form no two groups.
    """

    screened: list[Screening]
    trials: list[Trial]
    without_groups: list[Screening]

    @property
    def tests(self) -> int:
        """Number of tests on the second half."""
        return len(self.trials) + len(self.without_groups)

    @property
    def ps(self) -> list[float]:
        """The p values of the trials, corrected for all tests on the second half. The first half only chose them."""
        return holm([trial.p for trial in self.trials] + [1.0] * len(self.without_groups))[: len(self.trials)]

    @property
    def certain(self) -> list[Trial]:
        """The trials that are significant, most certain first."""
        ranked = sorted((p, place) for place, p in enumerate(self.ps))
        return [self.trials[place] for p, place in ranked if p < THRESHOLDS.level]


@dataclass(frozen=True, eq=False)
class Search:
    """The search for what decides the classes of a model."""

    audited: AuditedModel
    priors: Priors
    seed: int = 0

    def run(self, classes: Sequence[int], *, progress: bool) -> SearchResult:
        """Candidates → first look → refined and screened → chosen → tested on the second half, class by class.

        Regions that were found are kept unchanged in the tests after them.
        """
        result = SearchResult([], [], [])
        maps = standouts(self.priors, self.audited.first.split.images)
        for index in track(classes, "searching", show=progress):
            candidates = propose(self.audited, self.priors, index, maps[index], self.seed)
            looks = [self._screen(candidate, LOOK_HOSTS, Stage.LOOK) for candidate in candidates]
            screened = self._screened(looks)
            everything = [screened.get(look, look) for look in looks]
            result.screened.extend(everything)
            found = torch.zeros(self.audited.first.split.size, dtype=torch.bool)
            for each in self._chosen(list(screened.values()), everything):
                if _is_inside(each, found):
                    continue
                keep = found.clone() if found.any() else None
                trial = run_test(self.audited.second, each, keep, generator_for(self.seed, index, Stage.TEST))
                if isinstance(trial, Screening):
                    result.without_groups.append(trial)
                    continue
                result.trials.append(trial)
                if trial.p < THRESHOLDS.level and each.candidate.region is not None:
                    found |= _with_margin(each.candidate.region)
        return result

    def _screened(self, looks: Sequence[Screening]) -> dict[Screening, Screening]:
        """Screenings with more hosts of what is promising at first look, by that look; the largest gap first.

        Before that, regions are refined. What is a part of the border, or contains a refined region, is dropped: it has
        its effect from there.
        """
        screened, refined = dict[Screening, Screening](), list[Tensor]()
        for look in sorted(looks, key=lambda look: -look.gap):
            candidate = look.candidate
            if not self._passes(look, THRESHOLDS.nearly):
                continue
            if isinstance(candidate, SwapCandidate) and (region := candidate.region) is not None:
                if any((area & region).sum() > area.sum() / 2 for area in refined):
                    continue
                box = refined_box(self.contrast(look), look, region)
                if box is None:
                    continue
                refined.append(box.region(self.audited.first.split.size))
                candidate = replace(candidate, swap=Transplant(refined[-1]))
            screened[look] = self._screen(candidate, SCREENING_HOSTS, Stage.SCREENING)
        return screened

    def _screen(self, candidate: Candidate, hosts: int, stage: Stage) -> Screening:
        return screen(self.audited.first, candidate, hosts, generator_for(self.seed, candidate.class_index, stage))

    def _chosen(self, screened: Sequence[Screening], everything: Sequence[Screening]) -> list[Screening]:
        """What is tested of the screenings with more hosts, in the order of the tests: regions and patches first.

        A region with fine structure has a share of the image's high frequencies, and every region a share of the
        image's colour. The property is explained if it has less than half of its effect without the region. Otherwise
        it explains regions and patches of smaller effect whose groups aren't clearer.
        """
        passed = [each for each in screened if self._passes(each)]
        passed = [each for each in passed if not has_groups_of_another(each, everything, passed)]
        passed.sort(key=lambda each: -each.gap)
        regions: list[Screening] = []
        areas: list[Tensor] = []
        for each in passed:
            area = each.candidate.region
            if area is None or may_be_the_object(each):
                continue
            if not any(overlap(area, other) > THRESHOLDS.negligible for other in areas):
                regions.append(each)
                areas.append(area)
        patches = [each for each in passed if isinstance(each.candidate, PatchCandidate)]
        properties = [each for each in passed if each.candidate.kind in PROPERTIES]
        for area in areas[:1]:
            properties = [each for each in properties if self._has_effect_outside(each, _with_margin(area))]

        def is_explained(part: Screening) -> bool:
            return any(each.gap >= part.gap and each.separation >= part.separation for each in properties)

        return [*(part for part in (*regions, *patches) if not is_explained(part)), *properties]

    def _has_effect_outside(self, screening: Screening, region: Tensor) -> bool:
        """True if a property has half of its effect outside a region (H,W)."""
        contrast = self.contrast(screening)
        intervention = screening.candidate.intervention(contrast.containing)
        return contrast.effect(intervention, region) >= contrast.effect(intervention) / 2

    def _passes(self, screening: Screening, share: float = 1.0) -> bool:
        """True if the groups are clear and far apart, and P(class) rises more than with donors without the pattern.

        With a share, less separation and gap suffice.
        """
        if screening.separation < share * THRESHOLDS.separation or screening.gap < share * THRESHOLDS.gap:
            return False
        return self.contrast(screening).rise(screening.candidate) >= THRESHOLDS.margin

    def contrast(self, screening: Screening) -> Contrast:
        """A few images of other classes, with donors that contain what was screened and with others."""
        index = screening.candidate.class_index
        generator = generator_for(self.seed, index, Stage.CONTRAST)
        pairs = self.audited.first.pairs(index, screening.carriers, CONTRAST_PAIRS, generator)
        return Contrast(pairs, pairs.with_donors(screening.members[~screening.contains], generator))


def _with_margin(region: Tensor) -> Tensor:
    return grown(region, max(1, min(region.shape) // 16))


def _is_inside(screening: Screening, region: Tensor) -> bool:
    """True for a moving patch that is in the region (H,W) in most images: it doesn't move."""
    candidate = screening.candidate
    if not isinstance(candidate, PatchCandidate):
        return False
    corners = candidate.matches(screening.predictions.split.images[screening.carriers]).corners
    centres = corners + candidate.side // 2
    return float(region[centres[:, 0], centres[:, 1]].double().mean()) > 0.5


def may_be_the_object(screening: Screening) -> bool:
    """True for a region that a whole class shares, unless it is very clear or the same in all images."""
    if not screening.candidate.shared or screening.separation >= THRESHOLDS.clearer * THRESHOLDS.separation:
        return False
    statistics = screening.candidate.statistics(screening.predictions.split.images[screening.carriers])
    return float(statistics.mean(dim=0).norm()) < THRESHOLDS.nearly


def has_groups_of_another(screening: Screening, screened: Sequence[Screening], passed: Sequence[Screening]) -> bool:
    """True if its groups are the much clearer groups of something that has no effect of its own.

    Half of all images may have a frame that the model ignores. Without it, the usual colours of a class show. The
    colours and high frequencies of the image include those of a region or patch, so they aren't something else.
    """
    is_part = screening.candidate.kind in (REGION, PATCH)
    for other in screened:
        if is_part and other.candidate.kind in (COLOUR, HIGH_FREQUENCY):
            continue
        if other.separation < THRESHOLDS.clearer * screening.separation or any(other is each for each in passed):
            continue
        count = min(screening.of_class, other.of_class)
        groups = torch.stack([each.contains[:count].double() for each in (screening, other)])
        if groups.corrcoef()[0, 1].abs() >= THRESHOLDS.associated:
            return True
    return False


@dataclass(frozen=True)
class Contrast:
    """Pairs whose donors contain a pattern, and the same hosts with donors that don't.

    If these are of the class as well, both have evidence of an ordinary kind for it, so the difference is that of the
    pattern. What a whole class shares is compared with images of other classes.
    """

    containing: Pairs
    without: Pairs

    def effect(self, intervention: Intervention, keep: Tensor | None = None) -> float:
        """Mean change of the log-odds with donors that contain it, minus that with the others."""
        first, second = (pairs.effect(intervention, keep) for pairs in (self.containing, self.without))
        return float(first.log_odds.mean() - second.log_odds.mean())

    def rise(self, candidate: Candidate) -> float:
        """Mean change of P(class) with donors that contain the pattern, minus that with the others."""
        first, second = (pairs.effect(candidate.intervention(pairs)) for pairs in (self.containing, self.without))
        return first.mean - second.mean


def refined_box(contrast: Contrast, screening: Screening, region: Tensor) -> Box | None:
    """The box of a region's (H,W) pattern. None for a part of the border.

    The model may need a part of the pattern only: if what the donors have in common is larger, that is the box.
    """
    size = (region.shape[0], region.shape[1])
    effect = cache(lambda box: contrast.effect(Transplant(box.region(size))))
    core = _smallest(effect, box_of(region), size, int(LARGEST_REGION * region.numel()))
    images = screening.predictions.split.images
    others = screening.predictions.others(screening.candidate.class_index)
    whole = extent(images[screening.carriers], images[others], core)
    box = core if whole is None or effect(whole) < THRESHOLDS.nearly * effect(core) else whole
    border = border_of(size)
    along_edge = border is not None and bool((grown(border.region(*size), 1) | ~box.region(size)).all())
    if border is not None and along_edge and effect(box) < THRESHOLDS.nearly * contrast.effect(border):
        return None
    return box


def _smallest(effect: Callable[[Box], float], box: Box, size: tuple[int, int], most_pixels: int) -> Box:
    """The box with its sides moved inwards while the effect stays, outwards while it grows, up to `most_pixels`, and
    inwards again.

    The sides move in turn, each until it fails. The effect is that on the log-odds: the probability is near 1 as soon
    as a part of the pattern suffices.
    """
    step = max(1, min(size) // 32)
    best = effect(box)
    for distance in (-step, step, -step):
        sides = ["top", "left", "bottom", "right"]
        while sides:
            side = sides.pop(0)
            other = _moved(box, side, distance, size)
            if other is None or (distance > 0 and other.height * other.width > most_pixels):
                continue
            if effect(other) < (THRESHOLDS.nearly * best if distance < 0 else (1 + THRESHOLDS.negligible) * best):
                continue
            box, best = other, best if distance < 0 else effect(other)
            sides.append(side)
    return box


def _moved(box: Box, side: str, distance: int, size: tuple[int, int]) -> Box | None:
    """The box with one side moved outwards, or inwards if the distance is negative; None if that isn't possible."""
    length = size[0] if side in ("top", "bottom") else size[1]
    end = getattr(box, side) + (-distance if side in ("top", "left") else distance)
    other = box._replace(**{side: min(max(end, 0), length)})
    return other if other != box and min(other.height, other.width) > 1 else None
