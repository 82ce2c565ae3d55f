"""Which methods compete, and which of them wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agop.report.estimate import Estimate
from agop.report.run import Run
from agop.runs.controls import is_control


def headline(run: Run) -> str:
    """The run's main metric: mIoU if it has it, else its first."""
    return "iou" if "iou" in run.spec.metrics else run.spec.metrics[0]


def competing(run: Run) -> list[str]:
    """The run's methods without controls."""
    return [method for method in run.spec.methods if not is_control(method)]


def first(scores: Mapping[str, Estimate], *, up: bool) -> str | None:
    """The method with the best mean; None if there are no scores."""
    if not scores:
        return None
    return (max if up else min)(scores, key=lambda method: scores[method].mean)


def leader(scores: Mapping[str, Estimate], lead: Callable[[str, str], Estimate | None], *, up: bool) -> str | None:
    """The method with the best mean, unless another is significantly ahead on the samples both have: then that one."""
    best, before = first(scores, up=up), set[str]()
    while best is not None and best not in before:
        before.add(best)
        leads = {method: lead(method, best) for method in scores if method not in before}
        ahead = {m: d.mean for m, d in leads.items() if d is not None and d.interval is not None and d.interval[0] > 0}
        best = max(ahead, key=lambda m: ahead[m]) if ahead else best
    return best


def level(difference: Estimate | None) -> bool:
    """True if a paired difference isn't significant: its interval contains zero."""
    if difference is None or difference.interval is None:
        return False
    return difference.interval[0] <= 0 <= difference.interval[1]
