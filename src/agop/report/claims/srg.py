"""Does SRG, which needs no masks, predict average precision, which does?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from agop.report.claims.verdicts import Claim, Verdict, all_above_zero
from agop.report.estimate import Estimate
from agop.report.run import Run
from agop.report.winners import competing

_FEWEST_METHODS = 3


def _predicts(*metrics: str) -> Callable[[Run], Verdict]:
    """The claim that the first metric, minus the second if there is one, ranks methods as average precision does."""

    def verdict(run: Run) -> Verdict:
        estimates = {scenario: _agreement(run, scenario, metrics) for scenario in run.spec.main_scenarios}
        return all_above_zero({scenario: value for scenario, value in estimates.items() if value is not None})

    return verdict


def _agreement(run: Run, scenario: str, metrics: Sequence[str]) -> Estimate | None:
    """Rank correlation over methods in each seed, on the scenario's first background."""
    background = next(b for b in run.spec.backgrounds if run.spec.has(scenario, b))
    methods = [m for m in competing(run) if m != "agop-local" or "vanilla" not in run.spec.methods]
    pairs: dict[int, list[tuple[float, float]]] = {}
    for method in methods:
        truth = run.values(scenario, background, method, "average_precision")
        parts = [run.values(scenario, background, method, metric, run.spec.masks) for metric in metrics]
        for seed in set(truth).intersection(*parts):
            gain = parts[0][seed] - sum(part[seed] for part in parts[1:])
            pairs.setdefault(seed, []).append((gain, truth[seed]))
    enough = [pairs[seed] for seed in sorted(pairs) if len(pairs[seed]) >= _FEWEST_METHODS]
    values = [spearman(*zip(*both, strict=True)) for both in enough]
    return Estimate(tuple(values), (-1, 1)) if values else None


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation of two lists, with mean ranks for ties; 0 if one of them is constant."""
    first, second = (_ranks(np.array(values)) for values in (a, b))
    spread = first.std() * second.std()
    return float(((first - first.mean()) * (second - second.mean())).mean() / spread) if spread else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    ranks: NDArray[np.float64] = (values[:, None] > values).sum(1) + (values[:, None] == values).sum(1) / 2
    return ranks


CLAIMS: tuple[Claim, ...] = (
    ("Follow-up: SRG predicts AP (Spearman over methods; fill: pixels of training images)", _predicts("srg")),
    ("Follow-up: SRG predicts AP (Spearman over methods; fill: zero)", _predicts("insertion", "deletion")),
)
