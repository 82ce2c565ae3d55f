"""Concentration: how much of diag(M) lies in its hottest pixels, and where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from agop.statistic.agop import AGOP

# One pixel in 64 counts as hottest: 16 of 32×32, 784 of 224×224.
_ONE_IN = 64
# Maps of fewer samples are concentrated by chance: measured on a small network, 20 samples give 1.1 times the share
# of all, 5 give 1.4 times. 100 samples give each pixel to about a tenth.
_ENOUGH_IN_CLASS, _ENOUGH = 20, 100
_PLACES = (("upper left", "top", "upper right"), ("left", "centre", "right"), ("lower left", "bottom", "lower right"))


@dataclass(frozen=True)
class Concentration:
    """Share of a map's sum in its hottest pixels, their number, and their place in words.

    The share is NaN for a map of zeros.
    """

    share: float
    pixels: int
    place: str
    name: str = ""
    samples: int = 0

    @property
    def percent(self) -> str:
        """The share in percent, without the sign."""
        return _percent(self.share)


def concentration(saliency: Tensor, name: str = "", samples: int = 0) -> Concentration:
    """Concentration of a non-negative map (H,W): its share in the hottest 64th of the pixels.

    Their place is the third of the height and of the width with their weighted median, or "scattered" if less than half
    of their sum is within a quarter of the height and width of it.
    """
    height, width = saliency.shape
    pixels = math.ceil(saliency.numel() / _ONE_IN)
    values, order = saliency.double().flatten().sort(descending=True, stable=True)
    if not values[0] > 0:
        return Concentration(math.nan, pixels, "all zero", name, samples)
    values = values / values[0]  # so that a sum of large values can't overflow
    heat, rows, columns = values[:pixels], order[:pixels] // width, order[:pixels] % width
    row, column = _median(rows, heat), _median(columns, heat)
    near = ((rows - row).abs() <= height / 4) & ((columns - column).abs() <= width / 4)
    scattered = heat[near].sum() < heat.sum() / 2
    place = _PLACES[_third(row, height)][_third(column, width)]
    share = float(heat.sum() / values.sum())
    return Concentration(share, pixels, "scattered" if scattered else place, name, samples)


def over_all(prior: AGOP) -> Concentration:
    """Concentration of diag(M) over all samples."""
    return concentration(prior.diagonal.sum(dim=0), "all samples", prior.count)


def by_class(prior: AGOP) -> list[Concentration]:
    """Concentration per class with samples, the highest share first; empty if the prior has no classes."""
    if prior.class_diagonals is None or prior.class_counts is None:
        return []
    rows = [
        concentration(diagonal.sum(dim=0), class_label(prior, index), count)
        for index, (diagonal, count) in enumerate(zip(prior.class_diagonals, prior.class_counts.tolist(), strict=True))
        if count
    ]
    return sorted(rows, key=lambda row: -1.0 if math.isnan(row.share) else row.share, reverse=True)


def class_label(prior: AGOP, index: int) -> str:
    """A class by its name, as in "class horse", or by its number if the prior has no names."""
    return f"class {prior.class_names[index] if prior.class_names else index}"


def summary(prior: AGOP) -> str:
    """One line: the most concentrated class beside the others; all samples if fewer than two classes have enough."""
    classes = [row for row in by_class(prior) if row.samples >= _ENOUGH_IN_CLASS and row.share > 0]
    first = classes[0] if len(classes) > 1 else over_all(prior)
    if math.isnan(first.share):
        return "diag(M) is zero: the model's logits don't depend on its input"
    total = prior.diagonal[0].numel()
    where = first.place if first.place == "scattered" else f"at the {first.place}"
    line = f"{first.name}: {first.percent} % of diag(M) in {first.pixels:,} of {total:,} pixels, {where}"
    return f"{line}; {_others(classes[1:])}" if len(classes) > 1 else line


def few_samples(prior: AGOP) -> str:
    """A warning if the prior, or a class of it, has few samples, else ""."""
    if prior.count < _ENOUGH:
        return f"{prior.count:,} samples were counted, which is few: use {_ENOUGH} or more"
    counts = [] if prior.class_counts is None else prior.class_counts.tolist()
    few = [class_label(prior, index) for index, count in enumerate(counts) if count < _ENOUGH_IN_CLASS]
    if not few:
        return ""
    names = ", ".join(few[:5]) + (", …" if len(few) > 5 else "")
    number = f"{len(few)} of {len(counts)} classes have fewer than {_ENOUGH_IN_CLASS} samples"
    return f"{number} ({names}): their maps are noisy"


def _others(classes: Sequence[Concentration]) -> str:
    ends = dict.fromkeys((classes[-1].percent, classes[0].percent))
    return f"other class{'es' if len(classes) > 1 else ''} {'–'.join(ends)} %"


def _median(places: Tensor, weights: Tensor) -> int:
    """Weighted median of integer places (K,)."""
    ordered, order = places.sort(stable=True)
    return int(ordered[int((weights[order].cumsum(0) < weights.sum() / 2).sum())])


def _third(place: int, length: int) -> int:
    return int(3 * (place + 0.5) / length)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0995 else f"{100 * share:.1f}"
