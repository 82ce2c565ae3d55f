"""Which methods compete, and which of them is first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agop.report.estimate import Estimate
from agop.report.run import Run
from agop.runs.controls import CONTROLS


def headline(run: Run) -> str:
    """The metric by which methods are judged in short: mIoU where the run has it."""
    return "iou" if "iou" in run.spec.metrics else run.spec.metrics[0]


def competing(run: Run) -> list[str]:
    """The methods of a run that could be chosen: no controls."""
    return [method for method in run.spec.methods if method not in CONTROLS]


def first(scores: Mapping[str, Estimate], *, up: bool) -> str | None:
    """The method with the best mean; None of none."""
    if not scores:
        return None
    return (max if up else min)(scores, key=lambda method: scores[method].mean)


def leader(scores: Mapping[str, Estimate], lead: Callable[[str, str], Estimate | None], *, up: bool) -> str | None:
    """The method with the best mean, unless another is ahead of it where both have a score: then that one, in turn."""
    best, before = first(scores, up=up), set[str]()
    while best is not None and best not in before:
        before.add(best)
        found = {method: lead(method, best) for method in scores if method not in before}
        ahead = {m: d.mean for m, d in found.items() if d is not None and d.interval is not None and d.interval[0] > 0}
        best = max(ahead, key=lambda m: ahead[m]) if ahead else best
    return best


def level(difference: Estimate | None) -> bool:
    """True if the interval of a paired difference contains zero: the two cannot be told apart."""
    if difference is None or difference.interval is None:
        return False
    return difference.interval[0] <= 0 <= difference.interval[1]
