"""Which method won where: one grid per metric, one line per place, one column per method."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agop.report.estimate import Estimate
from agop.report.numbers import interval, number
from agop.report.page.colours import shade
from agop.report.run import Place, Run
from agop.report.winners import MEANINGS, competing, marks


@dataclass(frozen=True)
class Square:
    """One method on one place: mean, interval, mark and colours, as text."""

    mean: str
    interval: str
    mark: str = ""
    colour: str = ""
    ink: str = ""

    @property
    def meaning(self) -> str:
        """The meaning of the mark."""
        return MEANINGS.get(self.mark, "")


@dataclass(frozen=True)
class Grid:
    """All places by all methods in one metric; `ends` are the values of the darkest and the brightest colour."""

    metric: str
    label: str
    up: bool
    lines: dict[str, list[Square]]
    ends: tuple[str, str]


def winner_grids(run: Run) -> list[Grid]:
    """One grid per metric with scores, milliseconds last."""
    grids = (_grid(run, metric) for metric in run.metrics)
    return [grid for grid in grids if grid is not None]


def _name(run: Run, place: Place) -> str:
    """Name of a place; with the kind of masks if the run has several."""
    scenario, background, masks = place
    return f"{scenario} / {background}" + (f" / {masks}" if len(run.kinds) > 1 else "")


def _grid(run: Run, metric: str) -> Grid | None:
    scores = {place: _scores(run, place, metric) for place in run.places}
    scores = {place: line for place, line in scores.items() if line}
    means = [estimate.mean for line in scores.values() for estimate in line.values()]
    if not means:
        return None
    up = bool(run.metrics[metric]["higher_is_better"])
    worse, better = (min(means), max(means)) if up else (max(means), min(means))
    lines = {_name(run, place): _line(run, place, metric, line, (worse, better)) for place, line in scores.items()}
    return Grid(metric, run.metrics[metric]["label"], up, lines, (number(worse, metric), number(better, metric)))


def _scores(run: Run, place: Place, metric: str) -> dict[str, Estimate]:
    scenario, background, masks = place
    scores = {method: run.estimate(scenario, background, method, metric, masks) for method in run.spec.methods}
    return {method: score for method, score in scores.items() if score is not None}


def _line(run: Run, place: Place, metric: str, scores: dict[str, Estimate], ends: tuple[float, float]) -> list[Square]:
    by_method = _marks(run, place, metric, scores)
    line = []
    for method in run.spec.methods:
        score = scores.get(method)
        colour, ink = ("", "") if score is None else shade(_position(score.mean, *ends, log=metric == "milliseconds"))
        mean = number(None if score is None else score.mean, metric)
        line.append(Square(mean, interval(score, metric), by_method.get(method, ""), colour, ink))
    return line


def _marks(run: Run, place: Place, metric: str, scores: dict[str, Estimate]) -> dict[str, str]:
    """Marks by method: the winner, methods not significantly different from it, and controls above it."""
    scenario, background, masks = place
    up = bool(run.metrics[metric]["higher_is_better"])
    fair = [m for m in competing(run) if run.fair(scenario, background, m, metric, masks)]

    def lead(a: str, b: str) -> Estimate | None:
        return run.difference(scenario, background, metric, *((a, b) if up else (b, a)), masks)

    return marks(scores, fair, lead, up=up)


def _position(value: float, worse: float, better: float, *, log: bool) -> float:
    """Position of a value between the ends, in 0..1; times on a logarithmic axis."""
    if log and min(worse, better) > 0:
        value, worse, better = math.log(value), math.log(worse), math.log(better)
    return 0.5 if better == worse else (value - worse) / (better - worse)
