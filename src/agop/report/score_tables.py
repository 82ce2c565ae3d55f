"""The tables of a run: a scenario and background each, methods by metrics, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agop.report.estimate import Estimate
from agop.report.numbers import number
from agop.report.run import Place, Run, paper
from agop.report.winners import CONTROLS

# The benchmarks of the paper; another run's "linear" is not its.
_PAPERS = ("xai-tris", "clevr-xai")


@dataclass(frozen=True)
class Figure:
    """One score: ours with its interval, the paper's, and whether ours is the best of its column."""

    ours: Estimate | None
    paper: float | None
    best: bool


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
    def cites_paper(self) -> bool:
        """True if a figure of the paper's stands beside one of ours."""
        return any(cell.paper is not None for row in self.rows.values() for cell in row.values())

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
    best = {metric: _best(run, found, metric, (scenario, background, masks)) for metric in columns}
    rows = {
        method: {
            metric: Figure(row[metric], figures.get(method, {}).get(metric), method in best[metric])
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


def _best(run: Run, found: dict[str, dict[str, Estimate | None]], metric: str, place: Place) -> list[str]:
    """The best methods of a column: what looks equal is equally best. Controls do not compete."""
    scenario, background, masks = place
    fair = [m for m in found if m not in CONTROLS and run.fair(scenario, background, m, metric, masks)]
    means = {method: estimate.mean for method in fair if (estimate := found[method][metric])}
    if not means:
        return []
    best = (max if run.metrics[metric]["higher_is_better"] else min)(means.values())
    return [method for method, mean in means.items() if number(mean, metric) == number(best, metric)]
