"""Groups: which images of a class contain a pattern."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agop.auditing.thresholds import IMAGES_TO_COMBINE, SMALLEST_GROUP, THRESHOLDS

# Simulated samples, how many of them at once, and the share of them that makes the tail.
_SIMULATED, _AT_ONCE, _TAIL = 20_000, 1000, 0.01
_TINY = 1e-12


@dataclass(frozen=True)
class Groups:
    """The two groups of values (N,) with the largest variance between them.

    `separation` is Ashman's D, the difference of their means over the root mean square of their standard deviations:
    2.7 for a normal distribution, 3.5 for a uniform one. `gap` is the difference of the means,
    `border` the value halfway between the groups. `nearest` is the separation of the smaller group from twice as many
    values of the other group, those nearest to it.
    """

    high: Tensor
    separation: float
    gap: float
    border: float
    nearest: float = 0.0

    @classmethod
    def of(cls, values: Tensor) -> Groups:
        """The groups of values (N,), N at least 8."""
        array = values.double().numpy()
        order = np.argsort(array, kind="stable")
        ordered = array[order]
        separation, gap, size = (part[0].item() for part in _split(ordered[None]))
        high = np.zeros(len(array), bool)
        high[order[size:]] = True
        most = 2 * min(size, len(array) - size)
        low, up = ordered[max(0, size - most) : size], ordered[size : size + most]
        nearest = (up.mean() - low.mean()) / math.sqrt(max((low.var() + up.var()) / 2, _TINY))
        return cls(torch.from_numpy(high), separation, gap, float(low[-1] + up[0]) / 2, float(nearest))

    @property
    def p(self) -> float:
        """The probability of such groups in values of one group, also of a skewed one.

        It is the larger one of two: that of the separation of all values, and that of the smaller group from its
        neighbours. The long tail of a skewed distribution is far from the mean of the rest, but not from its
        neighbours.
        """
        count = len(self.high)
        fewer = min(int(self.high.sum()), int((~self.high).sum()))
        return max(p_uniform(self.separation, count), p_uniform(self.nearest, min(3 * fewer, count)))


def p_uniform(separation: float, count: int) -> float:
    """The probability of such a separation in `count` values of a uniform distribution, which has no gap.

    Up to the 99th percentile of simulated separations, it is the share above this one. Beyond, it falls like a power
    of the separation.
    """
    simulated = _uniform(count)
    above = len(simulated) - int(np.searchsorted(simulated, separation))
    if above >= _TAIL * len(simulated):
        return (1 + above) / (1 + len(simulated))
    tail = simulated[-int(_TAIL * len(simulated)) :]
    return _TAIL * float((separation / tail[0]) ** (-1 / np.log(tail / tail[0]).mean()))


def separations(columns: Tensor) -> Tensor:
    """The separation (F,) of each column of values (N,F)."""
    return torch.from_numpy(_split(np.sort(columns.double().T.numpy(), axis=1))[0])


@lru_cache(maxsize=64)
def _uniform(count: int) -> NDArray[np.float64]:
    """The separations (S,) of samples of uniform values, sorted."""
    random = np.random.default_rng(0)
    parts = [np.sort(random.random((_AT_ONCE, count)), axis=1) for _ in range(_SIMULATED // _AT_ONCE)]
    return np.sort(np.concatenate([_split(part)[0] for part in parts]))


def _split(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Separation, gap and size of the lower group (S,) of sorted values (S,N): the variance between is the largest."""
    count = values.shape[1]
    # A variance is the difference of two large numbers unless the values are near 0.
    values = values - values.mean(axis=1, keepdims=True)
    fewest = max(SMALLEST_GROUP, math.ceil(THRESHOLDS.negligible * count))
    sizes = np.arange(fewest, count - fewest + 1)
    sums, squares = (np.cumsum(v, axis=1)[:, sizes - 1] for v in (values, values**2))
    totals, all_squares = (v.sum(axis=1, keepdims=True) for v in (values, values**2))
    low, high = sums / sizes, (totals - sums) / (count - sizes)
    best = (sizes * (count - sizes) * (high - low) ** 2).argmax(axis=1)[:, None]
    low_variance, high_variance = squares / sizes - low**2, (all_squares - squares) / (count - sizes) - high**2
    gap = high - low
    separation = gap / np.sqrt(np.maximum((low_variance + high_variance) / 2, _TINY))
    return (
        np.take_along_axis(separation, best, axis=1)[:, 0],
        np.take_along_axis(gap, best, axis=1)[:, 0],
        sizes[best[:, 0]],
    )


# From responses (M,) and statistics (M,F) to the weights (F,) of a rule.
Weigh = Callable[[Tensor, Tensor], Tensor]
# Statistics that a rule combines, rounds of combining them, and the share of their variance that is added to it.
_COMBINED, _ROUNDS, _RIDGE = 32, 4, 1.0


@dataclass(frozen=True, eq=False)
class Rule:
    """Images contain it if their value is in the upper group, or in the lower one unless `upper`.

    The value is the statistics times `weights` (F,), or the response if there are no weights.
    """

    weights: Tensor | None
    upper: bool

    def split(self, responses: Tensor, statistics: Tensor) -> tuple[Tensor, Groups]:
        """Which images (M,) contain it, and the groups, from responses (M,) and statistics (M,F)."""
        groups = Groups.of(self._values(responses, statistics))
        return (groups.high if self.upper else ~groups.high), groups

    def contained(self, border: float, responses: Tensor, statistics: Tensor) -> Tensor:
        """Which other images (N,) contain it, given the value between the groups of the class."""
        values = self._values(responses, statistics)
        return values > border if self.upper else values < border

    def _values(self, responses: Tensor, statistics: Tensor) -> Tensor:
        return responses if self.weights is None else statistics @ self.weights


def clearest_rule(responses: Tensor, statistics: Tensor, others: Tensor) -> Rule:
    """The rule with the largest separation: the responses (M,), a statistic (M,F), or a combination of statistics.

    One combination is the mean of the class minus that of other classes, whose statistics are `others` (N,F): what is
    planted in one class. The other ones start with the groups of the responses, or with those of the clearest
    statistic; Fisher's discriminant then combines what differs between them. The separation is that of images that
    didn't choose the rule.
    """
    if not statistics.shape[1] or len(responses) < IMAGES_TO_COMBINE:
        return Rule(None, True)
    candidates = [(Groups.of(responses).separation, Rule(None, True))]
    combinations = (partial(_combined, by_response=True), partial(_combined, by_response=False))
    for weigh in (_clearest_statistic, partial(_unlike_others, others=others), *combinations):
        candidates.append((_held_out(weigh, responses, statistics), _rule(weigh, responses, statistics)))
    return max(candidates, key=lambda pair: pair[0])[1]


def _held_out(weigh: Weigh, responses: Tensor, statistics: Tensor) -> float:
    """The separation by a rule, mean of two halves of the images, each with the rule of the other half."""
    even = torch.arange(len(responses)) % 2 == 0
    rules = [(_rule(weigh, responses[own], statistics[own]), ~own) for own in (even, ~even)]
    return sum(rule.split(responses[rest], statistics[rest])[1].separation for rule, rest in rules) / 2


def _rule(weigh: Weigh, responses: Tensor, statistics: Tensor) -> Rule:
    """The rule with these weights: the group with the larger responses contains it."""
    weights = weigh(responses, statistics)
    high = Groups.of(statistics @ weights).high
    return Rule(weights, bool(responses[high].mean() > responses[~high].mean()))


def separation_from(others: Tensor, statistics: Tensor) -> float:
    """The separation of the statistics (M,F) of a class by what distinguishes it from others (N,F).

    That of images that didn't choose the combination of statistics.
    """
    return _held_out(partial(_unlike_others, others=others), statistics.new_zeros(len(statistics)), statistics)


def shared_rule(statistics: Tensor, others: Tensor) -> Rule | None:
    """The rule by which nearly all images of the class (M,F) contain something, and nearly no others (N,F).

    None if the class and the others aren't two clear groups, for images that didn't choose the rule, or if the others
    look more alike than the class: then it is the class that lacks something.
    """
    if statistics.mean(dim=0).norm() <= others.mean(dim=0).norm():
        return None
    few = THRESHOLDS.negligible
    halves = [(statistics[start::2], others[start::2]) for start in (0, 1)]
    for half, (own, rest) in zip(halves, halves[::-1], strict=True):
        groups = Groups.of(torch.cat([own, rest]) @ _unlike_others(own, *half))
        inside, outside = (float(part.double().mean()) for part in torch.split(groups.high, [len(own), len(rest)]))
        if groups.separation < THRESHOLDS.separation or inside <= 1 - few or outside >= few:
            return None
    return Rule(_unlike_others(statistics, statistics, others), True)


def _clearest_statistic(_: Tensor, statistics: Tensor) -> Tensor:
    """The statistic with the largest separation."""
    weights = torch.zeros(statistics.shape[1], dtype=statistics.dtype)
    weights[int(separations(statistics).argmax())] = 1
    return weights


def _unlike_others(_: Tensor, statistics: Tensor, others: Tensor) -> Tensor:
    """The statistics, weighted by how far the class is from other classes (N,F)."""
    return statistics.mean(dim=0) - others.mean(dim=0)


def _combined(responses: Tensor, statistics: Tensor, by_response: bool) -> Tensor:
    """The combination of statistics that starts with the groups of the responses or of the clearest statistic."""
    scale = statistics.std(dim=0).clamp_min(_TINY)
    scaled = statistics / scale
    start = responses if by_response else scaled[:, int(separations(scaled).argmax())]
    high = Groups.of(start).high
    for _ in range(_ROUNDS):
        weights = discriminant(scaled, high)
        high = Groups.of(scaled @ weights).high
    return weights / scale


def discriminant(statistics: Tensor, high: Tensor) -> Tensor:
    """Fisher's direction (F,) between two groups, in the statistics (M,F) that differ most."""
    means = [statistics[part].mean(dim=0) for part in (high, ~high)]
    within = torch.cat([statistics[part] - mean for part, mean in zip((high, ~high), means, strict=True)])
    difference = means[0] - means[1]
    chosen = (difference.abs() / within.std(dim=0).clamp_min(_TINY)).argsort(descending=True)[:_COMBINED]
    covariance = within[:, chosen].T @ within[:, chosen] / len(within)
    ridge = (_RIDGE * covariance.diagonal().mean() + _TINY) * torch.eye(len(chosen), dtype=statistics.dtype)
    weights = torch.zeros_like(difference)
    weights[chosen] = torch.linalg.solve(covariance + ridge, difference[chosen])
    return weights
