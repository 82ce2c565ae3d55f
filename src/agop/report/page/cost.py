"""Cost against score: one point per method."""

from __future__ import annotations

from typing import Any

from agop.report.estimate import Estimate
from agop.report.run import Place, Run
from agop.report.winners import headline
from agop.runs.controls import CONTROLS


def cost_points(run: Run, place: Place) -> list[dict[str, Any]]:
    """Milliseconds and main score of each method that has both."""
    scenario, background, masks = place
    points = []
    for method in run.spec.methods:
        score = run.estimate(scenario, background, method, headline(run), masks)
        cost = run.estimate(scenario, background, method, "milliseconds")
        if score is not None and cost is not None and cost.mean > 0:
            kind = "agop" if method.startswith("agop") else "control" if method in CONTROLS else "other"
            points.append({"method": method, "kind": kind, "score": _ends(score), "cost": _ends(cost)})
    return points


def _ends(estimate: Estimate) -> list[float]:
    """Mean, low and high."""
    low, high = estimate.interval or (estimate.mean, estimate.mean)
    return [float(f"{value:.5g}") for value in (estimate.mean, low, high)]
