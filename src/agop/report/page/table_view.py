"""The tables of the page: text, sort values and tooltips."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from agop.report.numbers import counted, interval, number
from agop.report.run import Place, Run
from agop.report.score_tables import ScoreCell, Table, sensitivity, tables


@dataclass(frozen=True)
class Entry:
    """One cell: its text, the value to sort by, and its tooltip."""

    mean: str
    value: float | None
    interval: str
    paper: str
    best: bool
    tip: str


@dataclass(frozen=True)
class TableView:
    """One table: index of its place in the run, columns (name, label, higher is better), entries by method, notes."""

    place: int
    title: str
    columns: list[tuple[str, str, bool]]
    lines: dict[str, list[Entry]]
    notes: list[str]


def table_views(run: Run) -> list[TableView]:
    """All tables in the order of places; a table of variants follows the main table of its place."""
    places = {place: index for index, place in enumerate(run.places)}
    undefined = _undefined(run)
    views = [
        _view(run, table, places[table.scenario, table.background, table.masks], undefined)
        for table in [*tables(run), *sensitivity(run)]
    ]
    return sorted(views, key=lambda view: view.place)


def _view(run: Run, table: Table, index: int, undefined: _Undefined) -> TableView:
    place = (table.scenario, table.background, table.masks)
    columns = [
        (metric, label, bool(run.metrics[metric]["higher_is_better"]))
        for metric, label in zip(table.columns, table.labels, strict=True)
    ]
    lines = {
        method: [
            _entry(run, method, metric, cells[metric], undefined[place].get((method, metric)))
            for metric in table.columns
        ]
        for method, cells in table.rows.items()
    }
    return TableView(index, table.title, columns, lines, _notes(table, undefined[place]))


def _entry(run: Run, method: str, metric: str, cell: ScoreCell, samples: _Samples | None) -> Entry:
    ours, label = cell.ours, run.metrics[metric]["label"]
    value = None if ours is None else ours.mean
    mean, paper = number(value, metric), "" if cell.paper is None else number(cell.paper, metric)
    tip = [f"{label} of {method}: {mean if ours else 'undefined'}"]
    if ours is not None and ours.interval is not None:
        unit = run.spec.intervals if metric != "milliseconds" else "seeds"
        tip.append(f"95 % interval {interval(ours, metric)} over {len(ours.values)} {unit}")
    elif ours is not None:
        tip.append("no interval: only one value")
    if paper:
        tip.append(f"paper: {paper}")
    if samples is not None and samples.reasons:
        tip.append(str(samples))
    return Entry(mean, value, interval(ours, metric), paper, cell.best, "; ".join(tip))


@dataclass
class _Samples:
    """Number of samples with a defined score, and the reasons why others are undefined."""

    defined: int
    reasons: Counter[str]

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in self.reasons.items())
        return f"{self.defined:,} of {counted(self.defined + self.reasons.total(), 'sample')} scored ({reasons})"


_Undefined = dict[Place, dict[tuple[str, str], _Samples]]


def _undefined(run: Run) -> _Undefined:
    """Defined and undefined samples by place, method and metric, over all seeds."""
    counts: _Undefined = defaultdict(dict)
    for row in run.rows:
        place = (row["scenario"], row["background"], row.get("masks", run.spec.masks))
        samples = counts[place].setdefault((row["method"], row["metric"]), _Samples(0, Counter()))
        samples.defined += row.get("n") or 0
        samples.reasons.update(_reasons(row))
    return counts


def _reasons(row: dict[str, Any]) -> dict[str, int]:
    return {str(reason): int(count) for reason, count in (row.get("undefined") or {}).items()}


def _notes(table: Table, undefined: dict[tuple[str, str], _Samples]) -> list[str]:
    """One line per method with undefined scores; metrics with the same counts share a line."""
    notes: dict[str, None] = {}
    for method in table.rows:
        labels: dict[str, list[str]] = defaultdict(list)
        for metric, label in zip(table.columns, table.labels, strict=True):
            samples = undefined.get((method, metric))
            if samples is not None and samples.reasons:
                labels[str(samples)].append(label.removesuffix(" ↓"))
        scored = sum((method, metric) in undefined for metric in table.columns)
        for text, names in labels.items():
            which = "" if len(names) == scored else f" in {', '.join(names)}"
            notes[f"{method}{which}: {text}."] = None
    return list(notes)
