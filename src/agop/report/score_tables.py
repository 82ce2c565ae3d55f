"""Tables of a run: methods by metrics, one per scenario, background and kind of masks, with the paper's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agop.report.estimate import Estimate
from agop.report.numbers import counted, number
from agop.report.run import Place, Run, paper
from agop.runs.controls import is_control

# Benchmarks of the paper. A scenario called "linear" in another run isn't the paper's.
_PAPERS = ("xai-tris", "clevr-xai")


@dataclass(frozen=True)
class ScoreCell:
    """One score: ours with its interval, the paper's value, and whether ours is the best of its column."""

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
    rows: dict[str, dict[str, ScoreCell]]
    note: str = ""
    # Other kinds of masks with the same scores.
    same: tuple[str, ...] = ()

    @property
    def cites_paper(self) -> bool:
        """True if the paper has a value for any cell."""
        return any(cell.paper is not None for row in self.rows.values() for cell in row.values())

    @property
    def title(self) -> str:
        """Scenario, background, masks, accuracy and note, as one line."""
        share = "" if self.coverage is None else f" covering {self.coverage.mean:.1%} of the pixels"
        kind = "" if self.masks == "true" else f", {' and '.join((self.masks, *self.same))} masks{share}"
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy}"
        return f"{self.scenario} / {self.background}{kind}{accuracy}{self.note}"


def tables(run: Run) -> list[Table]:
    """All tables of a run, uncorrelated backgrounds first."""
    every = (_table(run, run.spec.methods, *place) for place in run.places)
    return [table for table in every if table.columns]


def sensitivity(run: Run) -> list[Table]:
    """Tables of the variants, which were scored on fewer images."""
    if not run.spec.sensitivity:
        return []
    note = f"; variants, on the first {run.spec.sensitivity_images} images"
    table = _table(run, run.spec.sensitivity, *run.places[0])
    return [replace(table, note=note)] if table.columns else []


def _table(run: Run, methods: Sequence[str], scenario: str, background: str, masks: str) -> Table:
    published = _published(scenario, background, masks) if run.spec.benchmark in _PAPERS else {}
    scores = {
        method: {metric: run.estimate(scenario, background, method, metric, masks) for metric in run.metrics}
        for method in methods
    }
    columns = tuple(metric for metric in run.metrics if any(row[metric] for row in scores.values()))
    best = {metric: _best(run, scores, metric, (scenario, background, masks)) for metric in columns}
    rows = {
        method: {
            metric: ScoreCell(row[metric], published.get(method, {}).get(metric), method in best[metric])
            for metric in columns
        }
        for method, row in scores.items()
    }
    labels = tuple(f"{run.metrics[m]['label']}{'' if run.metrics[m]['higher_is_better'] else ' ↓'}" for m in columns)
    accuracy = run.estimate(scenario, background, "model", "accuracy")
    coverage = run.estimate(scenario, background, "masks", "coverage", masks)
    excluded = len(run.not_learned(scenario, background))
    note = f"; not learned, {excluded} of {counted(run.spec.seeds, 'seed')}" if excluded else ""
    same = tuple(kind for kind in run.equal_kinds(scenario, background, masks) if kind != masks)
    return Table(scenario, background, masks, accuracy, coverage, columns, labels, rows, note, same)


def _published(scenario: str, background: str, masks: str) -> dict[str, dict[str, float | None]]:
    """The paper's values by method and metric: it has uncorrelated backgrounds, and one kind of CLEVR-XAI masks."""
    in_paper = background != "correlated" and masks in ("own", "true", "signed", "all_objects")
    return dict(paper().get(scenario, {})) if in_paper else {}


def _best(run: Run, scores: dict[str, dict[str, Estimate | None]], metric: str, place: Place) -> list[str]:
    """The best methods of a column, without controls. Means that round to the same number are equally best."""
    scenario, background, masks = place
    fair = [m for m in scores if not is_control(m) and run.fair(scenario, background, m, metric, masks)]
    means = {method: estimate.mean for method in fair if (estimate := scores[method][metric])}
    if not means:
        return []
    best = (max if run.metrics[metric]["higher_is_better"] else min)(means.values())
    return [method for method, mean in means.items() if number(mean, metric) == number(best, metric)]
