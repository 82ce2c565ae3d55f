"""The tables of a run: a scenario and background each, methods by metrics, the paper's figures beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agop.report.run import Estimate, Run, paper


@dataclass(frozen=True)
class Cell:
    """One score: ours with its interval, the paper's, and whether ours is the best of its column."""

    ours: Estimate | None
    paper: float | None
    best: bool


@dataclass(frozen=True)
class Table:
    """Methods by metrics of one scenario and background."""

    scenario: str
    background: str
    accuracy: Estimate | None
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    rows: dict[str, dict[str, Cell]]

    @property
    def title(self) -> str:
        """What the table is of."""
        return f"{self.scenario} / {self.background}, accuracy {self.accuracy}"


def tables(run: Run) -> list[Table]:
    """All tables of a run, uncorrelated backgrounds first."""
    return [_table(run, scenario, background) for scenario, background in run.places]


def _table(run: Run, scenario: str, background: str) -> Table:
    figures = paper().get(scenario, {}) if background == "uncorrelated" else {}
    columns = tuple(run.metrics)
    found = {
        method: {metric: run.estimate(scenario, background, method, metric) for metric in columns}
        for method in run.spec.methods
    }
    best = {metric: _best([row[metric] for row in found.values()], run.metrics[metric]) for metric in columns}
    rows = {
        method: {
            metric: Cell(ours, figures.get(method, {}).get(metric), ours is not None and _shown(ours) == best[metric])
            for metric, ours in row.items()
        }
        for method, row in found.items()
    }
    labels = tuple(f"{run.metrics[m]['label']}{'' if run.metrics[m]['higher_is_better'] else ' ↓'}" for m in columns)
    return Table(scenario, background, run.estimate(scenario, background, "model", "accuracy"), columns, labels, rows)


def _best(estimates: list[Estimate | None], about: dict[str, Any]) -> float | None:
    means = [_shown(estimate) for estimate in estimates if estimate is not None]
    if not means:
        return None
    return max(means) if about["higher_is_better"] else min(means)


def _shown(estimate: Estimate) -> float:
    """To the digits that a table shows: what looks equal is equally best."""
    return round(estimate.mean, 3)
