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
    """Share of a map's sum in its hottest pixels, the numbers of these and of all pixels, and the place.

    The share is NaN for a map of zeros.
    """

    share: float
    pixels: int
    total: int
    place: str

    def __str__(self) -> str:
        where = self.place if self.place == "scattered" else f"at the {self.place}"
        return f"{self.percent} % of diag(M) in {self.pixels:,} of {self.total:,} pixels, {where}"

    @property
    def percent(self) -> str:
        """The share in percent, without the sign: "37", "5.2"."""
        return f"{100 * self.share:.0f}" if self.share >= 0.0995 else f"{100 * self.share:.1f}"


@dataclass(frozen=True)
class Part:
    """A part of the samples, all of them or one class: its label, class index, number of samples and concentration."""

    label: str
    index: int | None
    samples: int
    hot: Concentration


def concentration(saliency: Tensor) -> Concentration:
    """Concentration of a non-negative map (H,W): its share in the hottest 64th of the pixels.

    Their place is the third of the height and of the width with their weighted median, or "scattered" if less than half
    of their sum is within a quarter of the height and width of it.
    """
    height, width = saliency.shape
    total, pixels = saliency.numel(), math.ceil(saliency.numel() / _ONE_IN)
    values = saliency.double().flatten()
    if not values.max() > 0:
        return Concentration(math.nan, pixels, total, "all zero")
    hottest = _highest(values, pixels)
    heat, rows, columns = values[hottest], hottest // width, hottest % width
    row, column = _median(rows, heat), _median(columns, heat)
    near = ((rows - row).abs() <= height / 4) & ((columns - column).abs() <= width / 4)
    scattered = heat[near].sum() < heat.sum() / 2
    place = _PLACES[_third(row, height)][_third(column, width)]
    share = float(heat.sum() / values.sum())
    return Concentration(share, pixels, total, "scattered" if scattered else place)


@dataclass(frozen=True)
class Overview:
    """Concentration of all samples, and of the classes that have samples.

    The most concentrated class is first; those with few samples are last.
    """

    whole: Part
    classes: tuple[Part, ...]

    @classmethod
    def of(cls, prior: AGOP) -> Overview:
        """Overview of a prior; without classes if the prior has none."""
        whole = Part("all samples", None, prior.count, concentration(prior.diagonal.sum(dim=0)))
        if prior.class_diagonals is None or prior.class_counts is None:
            return cls(whole, ())
        parts = [
            Part(_class_label(prior, index), index, count, concentration(prior.class_diagonals[index].sum(dim=0)))
            for index, count in enumerate(prior.class_counts.tolist())
            if count
        ]
        return cls(whole, tuple(sorted(parts, key=_order)))

    @property
    def line(self) -> str:
        """The most concentrated class beside the others; all samples if fewer than two classes have enough samples."""
        classes = [part for part in self.classes if part.samples >= _ENOUGH_IN_CLASS and part.hot.share > 0]
        first = classes[0] if len(classes) > 1 else self.whole
        if math.isnan(first.hot.share):
            return "diag(M) is zero: the model's logits don't depend on its input"
        return f"{first.label}: {first.hot}" + (f"; {_others(classes[1:])}" if len(classes) > 1 else "")


def few_samples(prior: AGOP) -> str:
    """A warning if the prior, or a class of it, has few samples, else ""."""
    if prior.count < _ENOUGH:
        return f"{prior.count:,} samples were counted, which is few: use {_ENOUGH} or more"
    counts = [] if prior.class_counts is None else prior.class_counts.tolist()
    least = 0 if prior.provenance.labelled else 1  # without labels, nothing says that a class should occur
    few = [_class_label(prior, index) for index, count in enumerate(counts) if least <= count < _ENOUGH_IN_CLASS]
    if not few:
        return ""
    names = ", ".join(few[:5]) + (", …" if len(few) > 5 else "")
    number = f"{len(few)} of {len(counts)} classes have fewer than {_ENOUGH_IN_CLASS} samples"
    return f"{number} ({names}): their maps are noisy"


def _order(part: Part) -> tuple[bool, float]:
    # NaN, the share of a map of zeros, has no order.
    return part.samples < _ENOUGH_IN_CLASS, -part.hot.share if part.hot.share > 0 else 0.0


def _class_label(prior: AGOP, index: int) -> str:
    return f"class {prior.class_names[index] if prior.class_names else index}"


def _others(classes: Sequence[Part]) -> str:
    ends = dict.fromkeys((classes[-1].hot.percent, classes[0].hot.percent))
    return f"other class{'es' if len(classes) > 1 else ''} {'–'.join(ends)} %"


def _highest(values: Tensor, count: int) -> Tensor:
    """Indices of the highest values (N,). Of equal values, the first ones: topk alone takes any."""
    candidates = (values >= values.topk(count).values[-1]).nonzero()[:, 0]
    return candidates[values[candidates].sort(descending=True, stable=True).indices[:count]]


def _median(places: Tensor, weights: Tensor) -> int:
    """Weighted median of integer places (K,)."""
    ordered, order = places.sort(stable=True)
    return int(ordered[int((weights[order].cumsum(0) < weights.sum() / 2).sum())])


def _third(place: int, length: int) -> int:
    return int(3 * (place + 0.5) / length)
