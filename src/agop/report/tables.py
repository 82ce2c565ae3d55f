"""The tables of a run: a scenario and background each, methods by metrics, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agop.report.run import Estimate, Run, paper

# The benchmarks of the paper; another run's "linear" is not its.
_PAPERS = ("xai-tris", "clevr-xai")


@dataclass(frozen=True)
class Figure:
    """One score: ours with its interval, the paper's, whether ours is the best of its column, and whether it counts
    enough samples to be.
    """

    ours: Estimate | None
    paper: float | None
    best: bool
    fair: bool = True


@dataclass(frozen=True)
class Table:
    """Methods by metrics of one scenario, background and kind of masks."""

    scenario: str
    background: str
    masks: str
    accuracy: Estimate | None
    coverage: Estimate | None
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    rows: dict[str, dict[str, Figure]]
    note: str = ""

    @property
    def title(self) -> str:
        """What the table is of."""
        share = "" if self.coverage is None else f" on {self.coverage.mean:.1%} of the pixels"
        kind = "" if self.masks == "true" else f", {self.masks} masks{share}"
        right = "" if self.accuracy is None else f", accuracy {self.accuracy}"
        return f"{self.scenario} / {self.background}{kind}{right}{self.note}"


def tables(run: Run) -> list[Table]:
    """All tables of a run, uncorrelated backgrounds first."""
    found = (_table(run, run.spec.methods, *place) for place in run.places)
    return [table for table in found if table.columns]


def sensitivity(run: Run) -> list[Table]:
    """The tables of the variants that were scored on fewer images."""
    note = f"; variants, on the first {run.spec.sensitivity_images} images"
    found = [_table(run, run.spec.sensitivity, *place) for place in run.places[:1] if run.spec.sensitivity]
    return [replace(table, note=note) for table in found if table.columns]


def _table(run: Run, methods: Sequence[str], scenario: str, background: str, masks: str) -> Table:
    figures = _figures(scenario, background, masks) if run.spec.benchmark in _PAPERS else {}
    found = {
        method: {metric: run.estimate(scenario, background, method, metric, masks) for metric in run.metrics}
        for method in methods
    }
    columns = tuple(metric for metric in run.metrics if any(row[metric] for row in found.values()))
    fair = {metric: [m for m in found if run.fair(scenario, background, m, metric, masks)] for metric in columns}
    best = {metric: _best([found[m][metric] for m in fair[metric]], run.metrics[metric]) for metric in columns}
    rows = {
        method: {
            metric: Figure(
                row[metric],
                figures.get(method, {}).get(metric),
                method in fair[metric] and _is_best(row[metric], best[metric]),
                method in fair[metric],
            )
            for metric in columns
        }
        for method, row in found.items()
    }
    labels = tuple(f"{run.metrics[m]['label']}{'' if run.metrics[m]['higher_is_better'] else ' ↓'}" for m in columns)
    accuracy = run.estimate(scenario, background, "model", "accuracy")
    coverage = run.estimate(scenario, background, "masks", "coverage", masks)
    return Table(scenario, background, masks, accuracy, coverage, columns, labels, rows)


def _figures(scenario: str, background: str, masks: str) -> dict[str, dict[str, float | None]]:
    """The paper's figures where it has some: uncorrelated backgrounds, and for CLEVR-XAI one kind of masks."""
    told = background != "correlated" and masks in ("true", "signed", "all_objects")
    return dict(paper().get(scenario, {})) if told else {}


def _is_best(estimate: Estimate | None, best: float | None) -> bool:
    return estimate is not None and _shown(estimate) == best


def _best(estimates: list[Estimate | None], about: dict[str, Any]) -> float | None:
    means = [_shown(estimate) for estimate in estimates if estimate is not None]
    if not means:
        return None
    return max(means) if about["higher_is_better"] else min(means)


def _shown(estimate: Estimate) -> float:
    """To the digits that a table shows: what looks equal is equally best."""
    return round(estimate.mean, 3)
