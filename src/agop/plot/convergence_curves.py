"""convergence(): map quality and accuracy during training."""

from __future__ import annotations

import os
from collections import defaultdict
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agop import metrics
from agop.errors import FileError, InputError
from agop.plot.diagonal_growth import growth_figure, snapshots_in
from agop.plot.figures import LINES, figure
from agop.runs.rows import Row, curves, read
from agop.runs.spec import RunSpec

Lines = dict[tuple[str, str], dict[str, dict[int, list[float]]]]


def convergence(run: str | os.PathLike[str], *, metric: str = "iou") -> Figure:
    """Figure of a metric and the accuracy against the training step, for a run folder of `agop bench`.

    One panel per scenario and background. Lines are means over seeds, bands the range over seeds.
    For a snapshot folder of AGOPTrainingHook(snapshot_dir=), it shows how diag(M) evolves instead.
    """
    folder = Path(run)
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "doesn't exist"
        raise FileError(
            f"{folder} {problem}: pass a run folder or a hook's snapshot_dir (created after snapshot_every steps)"
        )
    if (folder / "spec.json").exists():
        return _run_figure(folder, metric)
    if snapshots := snapshots_in(folder):
        return growth_figure(snapshots)
    raise FileError(f"{folder} has neither a run nor snapshots: pass a folder with spec.json or step-….safetensors")


def _run_figure(folder: Path, metric: str) -> Figure:
    label = metrics.get(metric).label
    spec, lines = RunSpec.load(folder), _curves(_rows(folder), metric)
    whole = figure(max(4.5, 2.4 * len(spec.scenarios) + 0.4), 2.0 * len(spec.backgrounds) + 0.9)
    grid = whole.subplots(len(spec.backgrounds), len(spec.scenarios), squeeze=False, sharex=True, sharey=True)
    for background, row in zip(spec.backgrounds, grid, strict=True):
        for scenario, axes in zip(spec.scenarios, row, strict=True):
            axes.set_visible(spec.has(scenario, background))
            _panel(axes, lines, (scenario, background), label)
            axes.set_title(f"{scenario}, {background}".replace("_", " "), fontsize="small")
        row[0].set_ylabel(f"{label}, accuracy")
    for axes in grid[-1]:
        axes.set_xlabel("training step")
    _legend(whole, grid, spec.seeds)
    return whole


def _legend(whole: Figure, grid: Any, seeds: int) -> None:
    lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    title = f"mean and range of {seeds} seeds" if seeds > 1 else None
    small: dict[str, Any] = {"fontsize": "small", "title_fontsize": "small", "frameon": False}
    whole.legend(handles=list(lines.values()), title=title, loc="outside upper center", ncols=len(lines), **small)


def _rows(folder: Path) -> list[Row]:
    rows = read(folder, "convergence.jsonl")
    if not rows:
        raise FileError(f"{folder} has no convergence rows: its models were trained without snapshots")
    return rows


def _curves(rows: list[Row], metric: str) -> Lines:
    """Values of the metric and the accuracy, by scenario and background, method, and step."""
    lines: Lines = defaultdict(dict)
    for (scenario, background, method, name), values in curves(rows).items():
        if name in (metric, "accuracy"):
            lines[scenario, background][method] = values
    if not any(method != "model" for methods in lines.values() for method in methods):
        measured = sorted({row["metric"] for row in rows} - {"accuracy"})
        raise InputError(f"{metric} wasn't measured during training: pass one of {', '.join(measured)}")
    return lines


def _panel(axes: Axes, lines: Lines, place: tuple[str, str], label: str) -> None:
    """Draw the lines of a scenario and background; a method has the same style in every panel."""
    methods = sorted({name for values in lines.values() for name in values}, key=lambda name: (name != "model", name))
    for method, style in zip(methods, cycle(LINES), strict=False):
        if method in lines.get(place, {}):
            steps, values = zip(*sorted(lines[place][method].items()), strict=True)
            name = "accuracy" if method == "model" else f"{label} of {method}"
            marker = "o" if len(steps) == 1 else None
            axes.plot(steps, [np.mean(seeds) for seeds in values], label=name, marker=marker, **style)
            axes.fill_between(
                steps, list(map(min, values)), list(map(max, values)), color=style["color"], alpha=0.15, lw=0
            )
    axes.set_ylim(0, 1)
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.3)
