"""The tables as the page shows them: text, order, and what is told on hover and focus."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from agop.report.numbers import counted, interval, number
from agop.report.run import Place, Run
from agop.report.score_tables import Figure, Table, sensitivity, tables


@dataclass(frozen=True)
class Entry:
    """One cell: what is shown, what it is sorted by, and what is told about it."""

    mean: str
    value: float | None
    interval: str
    paper: str
    best: bool
    tip: str


@dataclass(frozen=True)
class Shown:
    """One table: its place's number in the run, its columns (name, label, more is better), entries by method, notes."""

    place: int
    title: str
    columns: list[tuple[str, str, bool]]
    lines: dict[str, list[Entry]]
    notes: list[str]


def shown(run: Run) -> list[Shown]:
    """All tables, those of the variants after the one of their place."""
    places = {place: index for index, place in enumerate(run.places)}
    undefined = _undefined(run)
    found = [
        _shown(run, table, places[table.scenario, table.background, table.masks], undefined)
        for table in [*tables(run), *sensitivity(run)]
    ]
    return sorted(found, key=lambda table: table.place)


def _shown(run: Run, table: Table, place: int, undefined: _Undefined) -> Shown:
    where = (table.scenario, table.background, table.masks)
    columns = [
        (metric, label, bool(run.metrics[metric]["higher_is_better"]))
        for metric, label in zip(table.columns, table.labels, strict=True)
    ]
    lines = {
        method: [
            _entry(run, method, metric, cells[metric], undefined[where].get((method, metric)))
            for metric in table.columns
        ]
        for method, cells in table.rows.items()
    }
    return Shown(place, table.title, columns, lines, _notes(table, undefined[where]))


def _entry(run: Run, method: str, metric: str, cell: Figure, lost: _Lost | None) -> Entry:
    ours, label = cell.ours, run.metrics[metric]["label"]
    value = None if ours is None else ours.mean
    mean, paper = number(value, metric), "" if cell.paper is None else number(cell.paper, metric)
    told = [f"{label} of {method}: {mean if ours else 'not defined'}"]
    if ours is not None and ours.interval is not None:
        what = run.spec.intervals if metric != "milliseconds" else "seeds"
        told.append(f"95 % interval {interval(ours, metric)} over {len(ours.values)} {what}")
    elif ours is not None:
        told.append("a single value has no interval")
    told += [f"the paper has {paper}"] if paper else []
    told += [lost.told] if lost is not None and lost.reasons else []
    return Entry(mean, value, interval(ours, metric), paper, cell.best, "; ".join(told))


@dataclass
class _Lost:
    """How many samples of a score were defined, and why the others were not."""

    defined: int
    reasons: Counter[str]

    @property
    def told(self) -> str:
        why = ", ".join(f"{reason}: {number:,}" for reason, number in self.reasons.items())
        return f"{self.defined:,} of {counted(self.defined + self.reasons.total(), 'sample')} counted ({why})"


_Undefined = dict[Place, dict[tuple[str, str], _Lost]]


def _undefined(run: Run) -> _Undefined:
    """What the rows say about undefined scores, over all seeds."""
    found: _Undefined = defaultdict(dict)
    for row in run.rows:
        place = (row["scenario"], row["background"], row.get("masks", run.spec.masks))
        lost = found[place].setdefault((row["method"], row["metric"]), _Lost(0, Counter()))
        lost.defined += row.get("n") or 0
        lost.reasons.update(_reasons(row))
    return found


def _reasons(row: dict[str, Any]) -> dict[str, int]:
    return {str(reason): int(number) for reason, number in (row.get("undefined") or {}).items()}


def _notes(table: Table, undefined: dict[tuple[str, str], _Lost]) -> list[str]:
    """One line for each method with samples that do not count, metrics that agree together."""
    notes: dict[str, None] = {}
    for method in table.rows:
        labels: dict[str, list[str]] = defaultdict(list)
        for metric, label in zip(table.columns, table.labels, strict=True):
            lost = undefined.get((method, metric))
            if lost is not None and lost.reasons:
                labels[lost.told].append(label.removesuffix(" ↓"))
        scored = sum((method, metric) in undefined for metric in table.columns)
        for told, those in labels.items():
            which = "" if len(those) == scored else f" in {', '.join(those)}"
            notes[f"{method}{which}: {told}."] = None
    return list(notes)
