"""Figures as the page writes them."""

from __future__ import annotations

import math

from agop.report.estimate import Estimate


def number(value: float | None, metric: str) -> str:
    """Three decimals; milliseconds span five orders and get two digits that count. A dash for no value."""
    if value is None:
        return "–"
    if metric != "milliseconds":
        return f"{value:.3f}"
    decimals = 0 if value == 0 else max(0, 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def interval(estimate: Estimate | None, metric: str) -> str:
    """The 95 % interval in brackets, or nothing."""
    if estimate is None or estimate.interval is None:
        return ""
    low, high = (number(end, metric) for end in estimate.interval)
    return f"[{low}, {high}]"


def counted(count: int, what: str) -> str:
    """A number of things, in the plural if it is not one."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
