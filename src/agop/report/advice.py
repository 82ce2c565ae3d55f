"""Which method to use: short sentences computed from the rows."""

from dataclasses import dataclass

import numpy as np

from agop.report.claims import FIXED
from agop.report.folder import CONTROLS
from agop.report.run import Run, best_methods, competing, headline, level
from agop.stats import Estimate

_LISTED = 4
# Mean accuracy below which networks with two classes haven't learned their task.
_CHANCE = 0.55
_WHERE = (
    ("Fixed signal", FIXED),
    ("Moving signal", ("translations_rotations",)),
    ("Combination of pixels", ("xor",)),
)


def advice(run: Run) -> list[str]:
    """The recommended method per group of scenarios, with its lead over the runner-up and the lead's interval."""
    if doubt := _doubt(run):
        return [doubt]
    metric = headline(run)
    up = run.metrics[metric]["higher_is_better"]
    return [f"{where}{_Group(run, scenarios, metric, up).sentence()}." for where, scenarios in _groups(run)]


def _doubt(run: Run) -> str:
    """A sentence if the networks of a task with two classes haven't learned it, as in a smoke test."""
    if not run.spec.benchmark.startswith("xai-tris"):
        return ""
    estimates = [run.estimate(name, _background(run, name), "model", "accuracy") for name in run.spec.main_scenarios]
    accuracies = [estimate.mean for estimate in estimates if estimate is not None]
    if not accuracies or np.mean(accuracies) >= _CHANCE:
        return ""
    return (
        f"The networks are at chance (accuracy {np.mean(accuracies):.2f}): their scores say nothing about the methods."
    )


def _groups(run: Run) -> list[tuple[str, tuple[str, ...]]]:
    """The start of each sentence and the scenarios it is about, grouped by what the scenarios have in common."""
    ours = run.spec.main_scenarios
    both = {"uncorrelated", "correlated"} <= set(run.spec.backgrounds)
    if run.spec.benchmark != "xai-tris":
        on = " on uncorrelated backgrounds" if both else ""
        return [(f"By {run.metrics[headline(run)]['label']}{on}, ", ours)]
    task = {scenario: run.spec.tasks.get(scenario, scenario) for scenario in ours}
    groups = [(where, tuple(s for s in ours if task[s] in tasks)) for where, tasks in _WHERE]
    others = tuple(s for s in ours if not any(s in scenarios for _, scenarios in groups))
    on = "; uncorrelated" if both else ""
    grouped = [(f"{where} ({', '.join(scenarios)}{on}): ", scenarios) for where, scenarios in groups if scenarios]
    return [*grouped, *((f"On {name}: ", (name,)) for name in others)]


@dataclass(frozen=True)
class _Group:
    """Some scenarios of a run, compared by one metric. `up`: higher is better."""

    run: Run
    scenarios: tuple[str, ...]
    metric: str
    up: bool

    def sentence(self) -> str:
        """The best method, its lead, and any control that does as well. agop-local is skipped beside its equal."""
        run, places = self.run, [(scenario, _background(self.run, scenario)) for scenario in self.scenarios]
        methods = [m for m in competing(run) if all(run.fair(*place, m, self.metric) for place in places)]
        methods = [m for m in methods if not (m == "agop-local" and "vanilla" in methods)]
        scores = {method: score for method in methods if (score := self.pooled(method)) is not None}
        tied = best_methods(scores, self.pooled, up=self.up)
        if not tied:
            return "no method except controls has a score"
        controls = self._controls(tied[0])
        return self._lead(tied, scores, not controls) + controls

    def pooled(self, a: str, b: str | None = None) -> Estimate | None:
        """A method's score, or its lead over another method, averaged over the scenarios within each seed."""
        parts, sign = [], 1 if self.up else -1
        for scenario in self.scenarios:
            where = (scenario, _background(self.run, scenario))
            part = self.run.values(*where, a, self.metric)
            if b is not None:
                other = self.run.values(*where, b, self.metric)
                part = {key: sign * (part[key] - other[key]) for key in part.keys() & other.keys()}
            parts.append(part)
        shared = sorted(set.intersection(*map(set, parts)))
        means = tuple(float(np.mean([part[key] for part in parts])) for key in shared)
        return Estimate(means, samples=self.run.of_samples) if shared else None

    def _lead(self, tied: list[str], scores: dict[str, Estimate], alone: bool) -> str:
        """How far the best method is ahead; recommended only if it is `alone`, with no control as good as it."""
        best, label = tied[0], self.run.metrics[self.metric]["label"]
        mean = f"{label} {scores[best].mean:.2f}{' on average' if len(self.scenarios) > 1 else ''}"
        others = (method for method in scores if method != best)
        second = (max if self.up else min)(others, key=lambda method: scores[method].mean, default=None)
        lead = None if second is None else self.pooled(best, second)
        if second is None or lead is None:
            return f"{best} scores {mean}, with no other method to compare"
        if lead.interval is None:
            follows = f"{second} follows with {scores[second].mean:.2f}"
            unit = self.run.spec.intervals.removesuffix("s")
            return f"{best} leads with {mean}, {follows} (one {unit}: significance unknown)"
        if len(tied) == 1:
            start = f"use {best}: {mean}" if alone else f"{best} is first with {mean}"
            return f"{start}, ahead of {second} by {lead}"
        entries = [f"{method} {scores[method].mean:.2f}" for method in tied]
        if len(entries) > _LISTED:
            entries[_LISTED - 1 :] = [f"{len(entries) - _LISTED + 1} more"]
        listed = f"{', '.join(entries[:-1])} and {entries[-1]}"
        return f"no clear winner among {listed} ({label})"

    def _controls(self, best: str) -> str:
        """The controls that score better than the best method, else those not significantly different from it."""
        above: dict[str, float] = {}
        beside: dict[str, float] = {}
        for control in (name for name in CONTROLS if name in self.run.spec.methods):
            score, lead = self.pooled(control), self.pooled(control, best)
            if score is not None and lead is not None and (level(lead) or lead.mean > 0):
                (beside if level(lead) else above)[control] = score.mean
        controls, verdict = (above, "ahead") if above else (beside, "as good")
        listed = ", ".join(f"{control} {score:.2f}" for control, score in controls.items())
        return f"; control{'s' if len(controls) > 1 else ''} {verdict}: {listed}" if controls else ""


def _background(run: Run, scenario: str) -> str:
    """The scenario's uncorrelated background, or its first one."""
    own = [background for background in run.spec.backgrounds if run.spec.has(scenario, background)]
    return "uncorrelated" if "uncorrelated" in own else own[0]
