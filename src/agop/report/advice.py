"""Which method to use, in one sentence computed from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agop.report.claims.xai_tris import FIXED
from agop.report.estimate import Estimate
from agop.report.run import Run
from agop.report.winners import best_methods, competing, first, headline, level
from agop.runs.controls import CONTROLS, is_model_independent

_LISTED = 4
# Mean accuracy below which networks with two classes haven't learned their task.
_CHANCE = 0.55
_WHERE = (
    ("where the signal is fixed", FIXED),
    ("where it moves", ("translations_rotations",)),
    ("where only a combination of pixels is informative", ("xor",)),
)


def advice(run: Run) -> str:
    """The recommended method per group of scenarios, with its lead over the runner-up and the lead's interval."""
    metric = headline(run)
    both = {"uncorrelated", "correlated"} <= set(run.spec.backgrounds)
    backgrounds = " on uncorrelated backgrounds" if both else ""
    sentences = [f"{where}{_Group(run, scenarios, metric).sentence()}" for where, scenarios in _groups(run)]
    return f"{_doubt(run)}By {run.metrics[metric]['label']}{backgrounds}, {'; '.join(sentences)}."


def _doubt(run: Run) -> str:
    """A sentence if the networks of a task with two classes haven't learned it, as in a smoke test."""
    if not run.spec.benchmark.startswith("xai-tris"):
        return ""
    estimates = [run.estimate(name, _background(run, name), "model", "accuracy") for name in run.spec.main_scenarios]
    accuracies = [estimate.mean for estimate in estimates if estimate is not None]
    if not accuracies or np.mean(accuracies) >= _CHANCE:
        return ""
    return (
        f"The networks are at chance (accuracy {np.mean(accuracies):.2f}): their scores say nothing about the methods. "
    )


def _groups(run: Run) -> list[tuple[str, tuple[str, ...]]]:
    """The start of each sentence and the scenarios it is about, grouped by what the scenarios have in common."""
    ours = run.spec.main_scenarios
    if run.spec.benchmark != "xai-tris":
        return [("", ours)]
    task = {scenario: run.spec.tasks.get(scenario, scenario) for scenario in ours}
    groups = [(where, tuple(s for s in ours if task[s] in tasks)) for where, tasks in _WHERE]
    others = tuple(s for s in ours if not any(s in scenarios for _, scenarios in groups))
    grouped = [(f"{where} ({', '.join(scenarios)}), ", scenarios) for where, scenarios in groups if scenarios]
    return [*grouped, *((f"on {name}, ", (name,)) for name in others)]


@dataclass(frozen=True)
class _Group:
    """Some scenarios of a run, compared by one metric."""

    run: Run
    scenarios: tuple[str, ...]
    metric: str

    def sentence(self) -> str:
        """The best method, its lead, and any control that does as well."""
        scores = {method: score for method in self._methods() if (score := self.pooled(method)) is not None}
        tied = best_methods(scores, self.pooled, up=self.up)
        if not tied:
            return "no method except controls has a score"
        controls = self._controls(tied[0])
        return self._lead(tied, scores, not controls) + controls

    @property
    def up(self) -> bool:
        """True if higher is better."""
        return bool(self.run.metrics[self.metric]["higher_is_better"])

    def pooled(self, a: str, b: str | None = None) -> Estimate | None:
        """A method's score, or its lead over another method, averaged over the scenarios within each seed."""
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
        """The methods to compare; agop-local equals vanilla and is skipped beside it."""
        methods = [m for m in competing(self.run) if all(self._fair(scenario, m) for scenario in self.scenarios)]
        return [m for m in methods if not (m == "agop-local" and "vanilla" in methods)]

    def _fair(self, scenario: str, method: str) -> bool:
        return self.run.fair(scenario, _background(self.run, scenario), method, self.metric)

    def _lead(self, tied: list[str], scores: dict[str, Estimate], alone: bool) -> str:
        """How far the best method is ahead; recommended only if it is `alone`, with no control as good as it."""
        best, label = tied[0], self.run.metrics[self.metric]["label"]
        mean = f"{label} {scores[best].mean:.2f}{' on average' if len(self.scenarios) > 1 else ''}"
        second = first({method: score for method, score in scores.items() if method != best}, up=self.up)
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
        return f"there is no clear winner: {self._listed(tied)} in {label} are not significantly different"

    def _listed(self, methods: Sequence[str]) -> str:
        """Methods with their scores, the best first."""
        means = {method: score.mean for method in methods if (score := self.pooled(method)) is not None}
        order = sorted(means, key=lambda m: means[m], reverse=self.up)
        entries = [f"{method} {means[method]:.2f}" for method in order]
        if len(entries) > _LISTED:
            entries[_LISTED - 1 :] = [f"{len(entries) - _LISTED + 1} more"]
        return f"{', '.join(entries[:-1])} and {entries[-1]}"

    def _controls(self, best: str) -> str:
        """The controls that score higher than the best method or aren't significantly different from it."""
        above: list[str] = []
        beside: list[str] = []
        for control in (name for name in CONTROLS if name in self.run.spec.methods):
            score, lead = self.pooled(control), self.pooled(control, best)
            if score is None or lead is None:
                continue
            if level(lead):
                beside.append(f"{control} ({score.mean:.2f})")
            elif lead.mean > 0:
                above.append(f"{control} ({score.mean:.2f})")
        better, equal = ("scores", "score"), ("is", "are")
        text = (
            f", but {_noun(above, better)} {'higher' if self.up else 'lower'}: {' and '.join(above)}" if above else ""
        )
        return text + (
            f", and {_noun(beside, equal)} not significantly worse: {' and '.join(beside)}" if beside else ""
        )


def _noun(controls: Sequence[str], verbs: tuple[str, str]) -> str:
    """What the controls, texts such as "random (0.33)", are, with the verb for one or several of them."""
    independent = all(is_model_independent(control.partition(" ")[0]) for control in controls)
    kind = "model-independent control" if independent else "control"
    return f"a {kind} {verbs[0]}" if len(controls) == 1 else f"{kind}s {verbs[1]}"


def _background(run: Run, scenario: str) -> str:
    """The scenario's uncorrelated background, or its first one."""
    own = [background for background in run.spec.backgrounds if run.spec.has(scenario, background)]
    return "uncorrelated" if "uncorrelated" in own else own[0]
