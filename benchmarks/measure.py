"""Ratios of median times. Both sides are measured in one run, interleaved."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Side = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """A ratio of two median times, the bar it must reach, and the spread over repeats."""

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


def measure_ratio(
    what: str,
    numerator: Side,
    denominator: Side,
    bar: float,
    *,
    at_least: bool,
    repeats: int = 15,
    clock: Clock = time.perf_counter,
) -> Ratio:
    """Ratio of medians over interleaved repeats. Each side runs for at least 20 ms per repeat."""
    sides = tuple((side, _calls_for(side, 0.02)) for side in (numerator, denominator))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for (side, calls), values in zip(sides, times, strict=True):
            values.append(seconds(side, calls, clock))
    above, below = (statistics.median(values) for values in times)
    noise = max(spread(values) for values in times)
    ratio = Ratio(what, above / below, bar, at_least, above * 1e3, below * 1e3, noise)
    print(f"{ratio.ratio:8.3g}  ±{noise:.0%}  {what}", flush=True)
    return ratio


def seconds(side: Side, calls: int, clock: Clock = time.perf_counter) -> float:
    """Seconds per call."""
    start = clock()
    for _ in range(calls):
        side()
    return (clock() - start) / calls


def _calls_for(side: Side, span: float) -> int:
    """Number of calls that take `span` seconds. Also warms up the side."""
    first = seconds(side, 1)
    return 1 if first > 1 else max(1, round(span / min(seconds(side, 1) for _ in range(3))))


def spread(times: list[float]) -> float:
    """Half the interquartile range, over the median."""
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / 2 / middle
