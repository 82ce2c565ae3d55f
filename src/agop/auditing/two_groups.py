"""Two groups: do values fall apart into low ones and high ones, with a gap between them?

Ordinary evidence for a class comes in all degrees. A planted pattern is in an image or it isn't.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# The smaller group has at least this share of the values, and at least this many.
LEAST_SHARE, _FEWEST = 0.08, 4
# Simulated samples, how many of them at once, and the share of them that makes the tail.
_SIMULATED, _AT_ONCE, _TAIL = 20_000, 1000, 0.01
_TINY = 1e-12


@dataclass(frozen=True)
class Groups:
    """The two groups of values (N,) with the largest variance between them.

    `separation` is Ashman's D, the difference of their means over the root mean square of their standard deviations:
    2.7 for a normal distribution, 3.5 for a uniform one. `gap` is the difference of the means,
    `border` the value halfway between the groups.
    """

    high: Tensor
    separation: float
    gap: float
    border: float

    @classmethod
    def of(cls, values: Tensor) -> Groups:
        """The groups of values (N,), N at least 8."""
        array = values.double().numpy()
        order = np.argsort(array, kind="stable")
        separation, gap, split = (float(part[0]) for part in _split(array[order][None]))
        high = np.zeros(len(array), bool)
        high[order[int(split) :]] = True
        border = (array[~high].max() + array[high].min()) / 2
        return cls(torch.from_numpy(high), separation, gap, float(border))

    @property
    def p(self) -> float:
        """The probability of such a separation in as many values of a uniform distribution, which has no gap.

        Up to the 99th percentile of simulated separations, it is the share above this one. Beyond, it falls like a
        power of the separation.
        """
        simulated = _uniform(len(self.high))
        above = len(simulated) - int(np.searchsorted(simulated, self.separation))
        if above >= _TAIL * len(simulated):
            return (1 + above) / (1 + len(simulated))
        tail = simulated[-int(_TAIL * len(simulated)) :]
        excess = float(np.log(tail / tail[0]).mean())
        return _TAIL * math.exp(-math.log(self.separation / tail[0]) / excess)


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
    fewest = max(_FEWEST, math.ceil(LEAST_SHARE * count))
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
