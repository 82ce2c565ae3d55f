"""Statistics: means with intervals, tests and corrections. SciPy is imported on first use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

_DRAWS, _MOST_DRAWN = 4000, 2000
_NORMAL, _TAIL, _ROUNDING = 1.959964, 0.025, 1e-9
# Images from which an accuracy is judged, and the p value above which it is chance.
_FEW, _CHANCE = 30, 0.05
Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds or `samples` with its 95 % interval, clipped to `bounds`. Fewer than two values: no interval."""

    values: tuple[float, ...]
    bounds: Range = ANY
    samples: bool = False

    @property
    def mean(self) -> float:
        """The mean over the seeds or samples."""
        return float(np.mean(self.values))

    @cached_property
    def interval(self) -> Range | None:
        """2.5th and 97.5th percentile of bootstrap means, widened for few values; None below two values.

        Samples that are hits or misses get Wilson's interval: a bootstrap of hits alone has no width. Many values would
        take gigabytes to resample: they get the normal interval, which is the same by then.
        """
        count = len(self.values)
        if count < 2:
            return None
        if self.samples and self.bounds == (0, 1) and set(self.values) <= {0, 1}:
            return wilson(int(sum(self.values)), count)
        if count > _MOST_DRAWN:
            reach = _NORMAL * float(np.std(self.values, ddof=1)) / count**0.5
            low, high = self.mean - reach, self.mean + reach
        else:
            low, high = _percentiles(_draws(count) @ np.array(self.values), self.mean, count)
        return max(low, self.bounds[0]), min(high, self.bounds[1])

    def significant(self, comparisons: int = 1) -> bool:
        """True if the mean is above zero by Student's test, at 2.5 % divided by the number of comparisons.

        Samples of one size, such as differences of hits, get the sign test: their variance may be zero by chance.
        """
        values, count = np.array(self.values), len(self.values)
        sizes = np.abs(values[values != 0])
        if self.samples and len(sizes) and np.ptp(sizes) <= _ROUNDING * sizes.max():
            from scipy.special import bdtrc

            return bool(bdtrc((values > 0).sum() - 1, len(sizes), 0.5) <= _TAIL / comparisons)
        if count < 2:
            return False
        error = float(np.std(values, ddof=1)) / math.sqrt(count)
        return self.mean > quantile(_TAIL / comparisons, count - 1) * error

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"


def estimate(values: ArrayLike, bounds: Range = ANY) -> Estimate | None:
    """Mean of the defined values (N,) of samples with its interval; None without any."""
    array = np.asarray(values)
    return Estimate(tuple(array[~np.isnan(array)].tolist()), bounds, True) if not np.isnan(array).all() else None


@dataclass(frozen=True)
class Ratio:
    """Mean of `values` divided by the mean of `base`, paired by seed or sample, with its 95 % interval."""

    values: tuple[float, ...]
    base: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The ratio of the means."""
        return float(np.mean(self.values) / np.mean(self.base))

    @cached_property
    def interval(self) -> Range | None:
        """As `Estimate.interval`, of the ratio of the bootstrap means."""
        count = len(self.values)
        if count < 2:
            return None
        above, below = (_draws(count) @ np.array(values) for values in (self.values, self.base))
        return _percentiles(above / below, self.mean, count)

    __str__ = Estimate.__str__


def simultaneous(estimate: Estimate | Ratio, comparisons: int) -> Range | None:
    """The interval, widened: `comparisons` such intervals cover all of their means in 95 % of the cases."""
    if estimate.interval is None:
        return None
    freedom, mean = len(estimate.values) - 1, estimate.mean
    factor = quantile(_TAIL / comparisons, freedom) / quantile(_TAIL, freedom)
    low, high = (mean + factor * (end - mean) for end in estimate.interval)
    return low, high


@lru_cache(maxsize=8)
def _draws(count: int) -> NDArray[np.float64]:
    """Weights (draws,count) of `count` values in each bootstrap mean: the same for all estimates."""
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _DRAWS)
    weights: NDArray[np.float64] = drawn / count
    return weights


def _percentiles(drawn: NDArray[np.float64], mean: float, count: int) -> Range:
    """2.5th and 97.5th percentile of bootstrap means, widened for few values: by 2.7 for 3 values, 1.2 for 10.

    The bootstrap variance divides by n instead of n − 1, and the variance is itself uncertain: Student's quantile
    replaces the normal one. Without this factor, an interval of three seeds covers the true mean 75 % of the time.
    """
    stretch = quantile(_TAIL, count - 1) / _NORMAL * math.sqrt(count / (count - 1))
    low, high = (mean + stretch * (float(end) - mean) for end in np.percentile(drawn, [2.5, 97.5]))
    return low, high


@dataclass(frozen=True)
class Mean:
    """Mean of values with its standard error over groups: pairs that share a donor aren't independent."""

    value: float
    error: float
    groups: int

    @classmethod
    def over_groups(cls, values: ArrayLike, groups: ArrayLike) -> Mean:
        """The mean of values (N,), first over each group (N,), then over the groups."""
        _, places, counts = np.unique(groups, return_inverse=True, return_counts=True)
        means = np.bincount(places, weights=values) / counts
        error = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.inf
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
        reach = quantile(_TAIL, self.groups - 1) * self.error if self.groups > 1 else math.inf
        return self.value - reach, self.value + reach

    def p_above(self, bound: float) -> float:
        """The probability of a mean as large as this one if the true mean were `bound`."""
        if self.groups < 2:
            return 1.0
        if self.error == 0:
            return float(self.value <= bound)
        return tail((self.value - bound) / self.error, self.groups - 1)


def tail(t: float, freedom: int) -> float:
    """The probability that Student's t with `freedom` degrees of freedom is above t."""
    from scipy.special import stdtr

    return float(stdtr(freedom, -t))


def quantile(probability: float, freedom: int) -> float:
    """The t that Student's t with `freedom` degrees of freedom exceeds with this probability."""
    from scipy.special import stdtrit

    return float(-stdtrit(freedom, probability))


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


def wilson(hits: int, count: int) -> Range:
    """Wilson's 95 % interval of the share hits/count."""
    from scipy.stats import binomtest

    interval = binomtest(hits, count).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def at_chance(correct: int, count: int, majority: int | None, classes: int) -> bool:
    """True if `correct` of `count` images aren't more than always predicting the largest class would get right.

    `majority` images are in it; if all are, or if that isn't known, guessing gets one in `classes` right. A binomial
    test at 5 %. Few images are never at chance: they don't show it.
    """
    from scipy.stats import binomtest

    share = 1 / classes if majority in (None, count) else majority / count
    return count >= _FEW and float(binomtest(correct, count, share, "greater").pvalue) > _CHANCE


def auroc(positives: NDArray[np.float64], negatives: NDArray[np.float64]) -> float:
    """Share of pairs in which the positive's score is above the negative's; ties count half."""
    difference = positives[:, None] - negatives
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation of two lists, with mean ranks for ties; NaN if one of the lists is constant."""
    from scipy.stats import rankdata

    first, second = (rankdata(values) for values in (a, b))
    first, second = first - first.mean(), second - second.mean()
    spread = math.sqrt((first @ first) * (second @ second))
    return float(first @ second) / spread if spread else math.nan
