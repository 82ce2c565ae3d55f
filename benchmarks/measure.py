"""Ratios of median times, measured in one run with both sides interleaved."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Side = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """A ratio of two median times, the bar it has to reach, and the spread of its repeats."""

    what: str
    ratio: float
    bar: float
    at_least: bool
    numerator_ms: float
    denominator_ms: float
    noise: float

    @property
    def holds(self) -> bool:
        """True if the bar is reached."""
        return self.ratio >= self.bar if self.at_least else self.ratio <= self.bar


def measured(what: str, numerator: Side, denominator: Side, bar: float, *, at_least: bool, repeats: int = 15) -> Ratio:
    """The ratio of medians over interleaved repeats, each side run for at least 20 ms a repeat."""
    sides = tuple((side, _calls_for(side, 0.02)) for side in (numerator, denominator))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for (side, calls), taken in zip(sides, times, strict=True):
            taken.append(seconds(side, calls))
    above, below = (statistics.median(taken) for taken in times)
    noise = max(spread(taken) for taken in times)
    ratio = Ratio(what, above / below, bar, at_least, above * 1e3, below * 1e3, noise)
    print(f"{ratio.ratio:8.3g}  ±{noise:.0%}  {what}", flush=True)
    return ratio


def seconds(side: Side, calls: int) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(calls):
        side()
    return (time.perf_counter() - start) / calls


def _calls_for(side: Side, span: float) -> int:
    """How many calls take that long; warms the side up, too."""
    first = seconds(side, 1)
    return 1 if first > 1 else max(1, round(span / min(seconds(side, 1) for _ in range(3))))


def spread(taken: list[float]) -> float:
    """Half the distance between the quartiles, over the median."""
    low, middle, high = statistics.quantiles(taken, n=4)
    return (high - low) / 2 / middle
