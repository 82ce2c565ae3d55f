"""Student's test of a mean over donors, Welch's of two means, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Mean:
    """Mean of values with its standard error over groups: pairs that share a donor aren't independent."""

    value: float
    error: float
    groups: int

    @classmethod
    def over_groups(cls, values: Tensor, groups: Tensor) -> Mean:
        """The mean of values (N,), first over each group (N,), then over the groups."""
        _, places, counts = torch.unique(groups, return_inverse=True, return_counts=True)
        sums = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, places, values.double())
        means = sums / counts
        error = float(means.std() / math.sqrt(len(means))) if len(means) > 1 else math.inf
        return cls(float(means.mean()), error, len(means))

    def minus(self, other: Mean) -> Mean:
        """The difference of two independent means, with Welch's degrees of freedom."""
        error, groups = math.hypot(self.error, other.error), min(self.groups, other.groups)
        if groups > 1 and error > 0:
            parts = ((mean.error / error) ** 4 / (mean.groups - 1) for mean in (self, other))
            groups = int(1 / sum(parts)) + 1
        return Mean(self.value - other.value, error, groups)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        reach = quantile(0.025, self.groups - 1) * self.error if self.groups > 1 else math.inf
        return self.value - reach, self.value + reach

    def p_above(self, bound: float) -> float:
        """The probability of a mean as large as this one if the true mean were `bound`."""
        if self.groups < 2:
            return 1.0
        if self.error == 0:
            return float(self.value <= bound)
        return tail((self.value - bound) / self.error, self.groups - 1)


def tail(t: float, freedom: int) -> float:
    """The probability that Student's t with `freedom` degrees of freedom is above t, by integration."""
    if t < 0:
        return 1 - tail(-t, freedom)
    # P = ∫ (cos φ)^(freedom−1) over the angles above arctan(t/√freedom), divided by that over 0..π/2, times ½.
    start = math.atan(t / math.sqrt(freedom))
    above, all_angles = (_cosine_powers(low, freedom - 1) for low in (start, 0.0))
    return float(0.5 * above / all_angles)


def _cosine_powers(low: float, power: int) -> float:
    angles = np.linspace(low, math.pi / 2, 2001)
    heights = np.cos(angles) ** power
    return float((heights[1:] + heights[:-1]).sum() / 2 * (angles[1] - angles[0]))


def quantile(probability: float, freedom: int) -> float:
    """The t that Student's t exceeds with this probability, below 0.5, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > probability else (low, middle)
    return (low + high) / 2


def finite(value: float) -> float | None:
    """The value for JSON, which has no NaN and no infinity: None then."""
    return value if math.isfinite(value) else None


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's corrected p values, in the order of `ps`."""
    order = np.argsort(ps, kind="stable")
    scaled = [min(1.0, (len(ps) - rank) * ps[place]) for rank, place in enumerate(order)]
    corrected = np.empty(len(ps))
    corrected[order] = np.maximum.accumulate(scaled)
    return [float(p) for p in corrected]


def p_share_above(first: int, second: int, count: int) -> float:
    """The p value of two shares of `count` each, first/count above second/count: the test of two proportions."""
    pooled = (first + second) / (2 * count)
    error = math.sqrt(2 * pooled * (1 - pooled) / count)
    return 0.5 * math.erfc((first - second) / count / error / math.sqrt(2)) if error > 0 else 1.0
