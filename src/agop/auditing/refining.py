"""Refine a region: the smallest box whose transplant has nearly the whole effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from torch import Tensor

from agop.auditing.extent import LARGEST_SHARE, extent
from agop.auditing.predictor import Pairs, Predictor, change
from agop.auditing.proposals import Proposal, border_of
from agop.auditing.regions import Box, box_of, grown
from agop.auditing.trial import Screening
from agop.interventions import Intervention
from agop.interventions.transplant import Transplant

# A side is moved outwards if that adds this share to the effect, and inwards while this share of the effect remains.
_ADDED, _KEPT = 0.08, 0.9
_SIDES = ("top", "left", "bottom", "right")
# Share of the effect of a region's core that the whole pattern must have.
_NEARLY = 0.9
# A region along the edge with less than this share of the border's effect is a part of the border.
_PART = 0.8


@dataclass(frozen=True)
class Contrast:
    """Pairs whose donors contain a pattern, and the same hosts with donors that don't.

    If these are of the class as well, both have evidence of an ordinary kind for it, so the difference is that of the
    pattern. What a whole class shares is compared with images of other classes.
    """

    predictor: Predictor
    containing: Pairs
    without: Pairs

    def effect(self, intervention: Intervention) -> float:
        """Mean change of the log-odds with donors that contain it, minus that with the others."""
        first, second = (change(self.predictor, each, intervention) for each in (self.containing, self.without))
        return float(first.log_odds.mean() - second.log_odds.mean())

    def rise(self, proposal: Proposal) -> float:
        """Mean change of P(class) with donors that contain what is proposed, minus that with the others."""
        first, second = (
            change(self.predictor, each, proposal.intervention(each)) for each in (self.containing, self.without)
        )
        return first.mean - second.mean


def refined_box(contrast: Contrast, screening: Screening, region: Tensor) -> Box | None:
    """The box of a region's (H,W) pattern. None for a part of the border.

    The model may need a part of the pattern only: if what the donors have in common is larger, that is the box.
    """
    size = (region.shape[0], region.shape[1])
    effect = cache(lambda box: contrast.effect(Transplant(box.region(size))))
    core = _smallest(effect, box_of(region), size, int(LARGEST_SHARE * region.numel()))
    asked = contrast.containing.asked
    images, others = asked.half.images, asked.others(screening.proposal.class_index)
    whole = extent(images[screening.carriers], images[others], core)
    box = core if whole is None or effect(whole) < _NEARLY * effect(core) else whole
    border = border_of(size)
    along_edge = border is not None and bool((grown(border.region(*size), 1) | ~box.region(size)).all())
    if border is not None and along_edge and effect(box) < _PART * contrast.effect(border):
        return None
    return box


def _smallest(effect: Callable[[Box], float], box: Box, size: tuple[int, int], most_pixels: int) -> Box:
    """The box with its sides moved outwards while the effect grows, up to `most_pixels`, then inwards while it stays.

    The sides move in turn, each until it fails. The effect is that on the log-odds: the probability is near 1 as soon
    as a part of the pattern suffices.
    """
    step = max(1, min(size) // 32)
    best = effect(box)
    for distance in (step, -step):
        sides = list(_SIDES)
        while sides:
            side = sides.pop(0)
            other = _moved(box, side, distance, size)
            if other is None or (distance > 0 and other.height * other.width > most_pixels):
                continue
            if effect(other) < (_KEPT * best if distance < 0 else (1 + _ADDED) * best):
                continue
            box, best = other, best if distance < 0 else effect(other)
            sides.append(side)
    return box


def _moved(box: Box, side: str, distance: int, size: tuple[int, int]) -> Box | None:
    """The box with one side moved outwards, or inwards if the distance is negative; None if that isn't possible."""
    length = size[0] if side in ("top", "bottom") else size[1]
    end = getattr(box, side) + (-distance if side in ("top", "left") else distance)
    other = replace(box, **{side: min(max(end, 0), length)})
    return other if other != box and min(other.height, other.width) > 1 else None
