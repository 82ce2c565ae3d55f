"""Which methods compete, and which of them wins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from agop.report.estimate import Estimate
from agop.report.run import Run
from agop.runs.controls import is_control

WON, LEVEL, ABOVE = "★", "≈", "▲"
MEANINGS = {
    WON: "best of its line",
    LEVEL: "not significantly different from the best",
    ABOVE: "control that scores higher than the best method",
}


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


def best_methods(scores: Mapping[str, Estimate], lead: Callable[[str, str], Estimate | None], *, up: bool) -> list[str]:
    """Methods that may be the best, the one with the best mean first; empty if there are no scores.

    A method is excluded if another one is significantly ahead on the samples that both have. The methods are compared
    on the data that picks the winner, so the level of each comparison is divided by the number of rivals
    (Holm's first step): one method alone is left by chance in at most 5 % of runs without any difference.
    """

    def beaten(method: str) -> bool:
        leads = (lead(rival, method) for rival in scores if rival != method)
        return any(ahead is not None and ahead.significant(len(scores) - 1) for ahead in leads)

    # Leads over different samples can form a cycle: then nothing is excluded.
    left = {method: score for method, score in scores.items() if not beaten(method)} or scores
    return sorted(left, key=lambda method: left[method].mean, reverse=up)


def marks(
    scores: Mapping[str, Estimate], rivals: Collection[str], lead: Callable[[str, str], Estimate | None], *, up: bool
) -> dict[str, str]:
    """Marks by method: the best of the rivals, those not significantly different from it, and controls above it."""
    best = best_methods({method: score for method, score in scores.items() if method in rivals}, lead, up=up)
    known = bool(best) and scores[best[0]].interval is not None
    by_method = dict.fromkeys(best if known else (), LEVEL) | dict.fromkeys(best[:1], WON)
    for control in (method for method in scores if is_control(method) and best):
        ahead = lead(control, best[0])
        if level(ahead):
            by_method[control] = LEVEL
        elif ahead is not None and ahead.mean > 0:
            by_method[control] = ABOVE
    return by_method


def level(difference: Estimate | None) -> bool:
    """True if a paired difference isn't significant: its interval contains zero."""
    if difference is None or difference.interval is None:
        return False
    return difference.interval[0] <= 0 <= difference.interval[1]
