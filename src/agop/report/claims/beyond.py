"""Beyond the paper: is the method agop good everywhere?"""

from __future__ import annotations

import math
from collections.abc import Callable

from agop.report.claims.verdicts import FAILS, HOLDS, UNDECIDED, Claim, Verdict, above, not_run
from agop.report.estimate import Ratio
from agop.report.run import Run, paper
from agop.runs.grid_masks import CELL, OBJECT

_METHOD, _METRIC = "agop", "average_precision"


def _at_least(
    least: dict[str, float], scenario: str | None = None, masks: str | None = None
) -> Callable[[Run], Verdict]:
    """The claim that agop's AP, divided by that of the paper's best method, reaches a bar in every scenario.

    Bars are by kind of masks. By default the scenarios are those of the main networks.
    """

    def verdict(run: Run) -> Verdict:
        scenarios = run.spec.main_scenarios if scenario is None else (scenario,)
        ratios = {name: ratio for name in scenarios if (ratio := to_papers_best(run, name, masks)) is not None}
        kind = masks or run.masks
        if len(ratios) < len(scenarios) or kind not in least:
            return not_run()
        intervals = [ratio.interval or (-math.inf, math.inf) for ratio in ratios.values()]
        reached = all(low >= least[kind] for low, _ in intervals)
        missed = any(high < least[kind] for _, high in intervals)
        decided = HOLDS if reached else FAILS if missed else UNDECIDED
        lines = [f"{name} {ratio}" for name, ratio in ratios.items()]
        return decided, f"bar {least[kind]:g}: {', '.join(lines)}"

    return verdict


def to_papers_best(run: Run, scenario: str, masks: str | None = None) -> Ratio | None:
    """AP of agop divided by that of the best of the paper's methods, on the scenario's first background."""
    papers = list(paper()["linear"])
    background = next((b for b in run.spec.backgrounds if run.spec.has(scenario, b)), None)
    if background is None or not run.has(scenario, background, _METHOD, *papers):
        return None
    values = {method: run.values(scenario, background, method, _METRIC, masks) for method in (_METHOD, *papers)}
    own = values.pop(_METHOD)
    means = {method: sum(v.values()) / len(v) for method, v in values.items() if v}
    if not own or not means:
        return None
    best = values[max(means, key=lambda method: means[method])]
    both = sorted(own.keys() & best.keys())
    return Ratio(tuple(own[key] for key in both), tuple(best[key] for key in both))


def _share_in_cell(run: Run) -> Verdict:
    return above("composite", run.spec.backgrounds[0], "energy", _METHOD, "gradcam", CELL)(run)


_AP = "Beyond the paper: agop's AP divided by that of the paper's best method"
XAI_TRIS: tuple[Claim, ...] = ((f"{_AP}, every scenario", _at_least({"own": 0.9, "union": 0.93})),)
COMPOSITE: tuple[Claim, ...] = (
    (f"{_AP}, moving digits", _at_least({"own": 1.5}, "composite")),
    (f"{_AP}, digits in a grid", _at_least({OBJECT: 1.5}, "composite", OBJECT)),
    ("Beyond the paper: more of agop's map than of GradCAM's is in the cell of its class", _share_in_cell),
)
CLEVR_XAI: tuple[Claim, ...] = ((_AP, _at_least({"all_objects": 1.25})),)
