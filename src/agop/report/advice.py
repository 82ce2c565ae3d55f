"""Which method to take, in one sentence computed from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agop.report.claims.xai_tris import FIXED
from agop.report.estimate import Estimate
from agop.report.run import Run
from agop.report.winners import competing, first, headline, leader, level
from agop.runs.controls import CONTROLS

_LISTED = 4
_WHERE = (
    ("where the signal stands still", FIXED),
    ("where it moves", ("translations_rotations",)),
    ("where only the combination tells", ("xor",)),
)


def advice(run: Run) -> str:
    """What to take where, with the lead over the next method and its interval."""
    metric = headline(run)
    apart = {"uncorrelated", "correlated"} <= set(run.spec.backgrounds)
    where = " on uncorrelated backgrounds" if apart else ""
    told = f"by {run.metrics[metric]['label']}{where}, " + "; ".join(
        f"{where}{_Group(run, scenarios, metric).told()}" for where, scenarios in _groups(run)
    )
    return told[0].upper() + told[1:] + "."


def _groups(run: Run) -> list[tuple[str, tuple[str, ...]]]:
    """How a sentence about some scenarios begins, and which: by what they have in common if that is known."""
    here = run.spec.scenarios
    if run.spec.benchmark != "xai-tris":
        return [("", here)]
    known = [(where, tuple(s for s in scenarios if s in here)) for where, scenarios in _WHERE]
    others = tuple(s for s in here if not any(s in scenarios for _, scenarios in known))
    found = [(f"{where} ({', '.join(scenarios)}), ", scenarios) for where, scenarios in known if scenarios]
    return [*found, *((f"on {name}, ", (name,)) for name in others)]


@dataclass(frozen=True)
class _Group:
    """Some scenarios of a run, judged together by one metric."""

    run: Run
    scenarios: tuple[str, ...]
    metric: str

    def told(self) -> str:
        """The best method, its lead, and whether a control does as well."""
        scores = {method: found for method in self._methods() if (found := self.pooled(method)) is not None}
        best = leader(scores, self.pooled, up=self.up)
        if best is None:
            return "no method that could be chosen has a score"
        rest = {method: found for method, found in scores.items() if method != best}
        controls = self._controls(best)
        return self._lead(best, scores[best], rest, not controls) + controls

    @property
    def up(self) -> bool:
        """True if more is better."""
        return bool(self.run.metrics[self.metric]["higher_is_better"])

    def pooled(self, a: str, b: str | None = None) -> Estimate | None:
        """A method's score, or its lead over another, averaged over the scenarios seed by seed."""
        parts = [self._values(scenario, a, b) for scenario in self.scenarios]
        shared = sorted(set.intersection(*(set(part) for part in parts)))
        return Estimate(tuple(float(np.mean([part[key] for part in parts])) for key in shared)) if shared else None

    def _values(self, scenario: str, a: str, b: str | None) -> dict[int, float]:
        where = (scenario, _background(self.run, scenario))
        ours = self.run.values(*where, a, self.metric)
        if b is None:
            return ours
        theirs, sign = self.run.values(*where, b, self.metric), 1 if self.up else -1
        return {key: sign * (ours[key] - theirs[key]) for key in ours.keys() & theirs.keys()}

    def _methods(self) -> list[str]:
        """The methods that compete; agop-local is vanilla and is not compared with itself."""
        methods = [m for m in competing(self.run) if all(self._fair(scenario, m) for scenario in self.scenarios)]
        return [m for m in methods if not (m == "agop-local" and "vanilla" in methods)]

    def _fair(self, scenario: str, method: str) -> bool:
        return self.run.fair(scenario, _background(self.run, scenario), method, self.metric)

    def _lead(self, best: str, score: Estimate, rest: dict[str, Estimate], alone: bool) -> str:
        """How far the best is ahead; to be taken only if it is alone, with no control beside or above it."""
        label = self.run.metrics[self.metric]["label"]
        mean = f"{label} {score.mean:.2f}{' on average' if len(self.scenarios) > 1 else ''}"
        second = first(rest, up=self.up)
        lead = None if second is None else self.pooled(best, second)
        if lead is None:
            return f"{best} has {mean}, with nothing to compare it with"
        if lead.interval is None:
            follows = f"{second} follows with {rest[str(second)].mean:.2f}"
            one = self.run.spec.intervals.removesuffix("s").replace("seed", "training")
            return f"{best} leads with {mean}, {follows}; one {one} cannot tell whether that is chance"
        tied = [best, *(m for m in rest if level(self.pooled(best, m)))]
        if len(tied) == 1:
            begin = f"take {best}: {mean}" if alone else f"{best} is first with {mean}"
            return f"{begin}, ahead of {second} by {_brief(lead)}"
        return f"there is no clear winner: {self._listed(tied)} in {label} cannot be told apart"

    def _listed(self, methods: Sequence[str]) -> str:
        """Methods with their scores, the best first."""
        means = {method: found.mean for method in methods if (found := self.pooled(method)) is not None}
        order = sorted(means, key=lambda m: means[m], reverse=self.up)
        told = [f"{method} {means[method]:.2f}" for method in order]
        if len(told) > _LISTED:
            told[_LISTED - 1 :] = [f"{len(told) - _LISTED + 1} more"]
        return f"{', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else told[0]

    def _controls(self, best: str) -> str:
        """What a control that is above the best method, or cannot be told from it, says about the score."""
        above, beside = [], []
        for control in (name for name in CONTROLS if name in self.run.spec.methods):
            score, lead = self.pooled(control), self.pooled(control, best)
            if score is None or lead is None:
                continue
            if level(lead):
                beside.append(f"{control} ({score.mean:.2f})")
            elif lead.mean > 0:
                above.append(f"{control} ({score.mean:.2f})")
        told = f", but what knows nothing of the model is above it: {' and '.join(above)}" if above else ""
        also = f", and cannot be told from what knows nothing of the model: {' and '.join(beside)}" if beside else ""
        return told + also


def _background(run: Run, scenario: str) -> str:
    """The uncorrelated background where there are several."""
    own = [background for background in run.spec.backgrounds if run.spec.has(scenario, background)]
    return "uncorrelated" if "uncorrelated" in own else own[0]


def _brief(estimate: Estimate) -> str:
    low, high = estimate.interval or (estimate.mean, estimate.mean)
    return f"{estimate.mean:.3f} [{low:.3f}, {high:.3f}]"
