"""Numbers as text."""

from __future__ import annotations

import math

from agop.report.estimate import Estimate


def number(value: float | None, metric: str) -> str:
    """Three decimals; two significant digits for milliseconds, which span five orders. A dash for None."""
    if value is None:
        return "–"
    if metric != "milliseconds":
        return f"{value:.3f}"
    decimals = 0 if value == 0 else max(0, 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def interval(estimate: Estimate | None, metric: str) -> str:
    """The 95 % interval in brackets, or an empty string."""
    if estimate is None or estimate.interval is None:
        return ""
    low, high = (number(end, metric) for end in estimate.interval)
    return f"[{low}, {high}]"


def counted(count: int, noun: str) -> str:
    """The count and the noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
