"""convergence(): how good the maps of diag(M) are, and the model, as training goes on."""

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
from agop.plot.diagonal_growth import growth, snapshots_in
from agop.plot.figures import LINES, figure
from agop.runs.rows import Row, curves, read
from agop.runs.spec import RunSpec

Lines = dict[tuple[str, str], dict[str, dict[int, list[float]]]]


def convergence(run: str | os.PathLike[str], *, metric: str = "iou") -> Figure:
    """A figure of a metric and of the accuracy against the training step, for a run folder of `agop bench`.

    A panel for each scenario and background; lines are means over seeds, bands go from the lowest seed to the highest.
    For a folder of snapshots, which AGOPTrainingHook(snapshot_dir=) writes, it shows how diag(M) grows instead.
    """
    folder = Path(run)
    if not folder.is_dir():
        told = "is a file" if folder.exists() else "does not exist"
        raise FileError(
            f"{folder} {told}: give a run folder, or a hook's snapshot_dir, which is there after snapshot_every steps"
        )
    if (folder / "spec.json").exists():
        return _of_run(folder, metric)
    if found := snapshots_in(folder):
        return growth(found)
    raise FileError(f"{folder} holds neither a run nor snapshots: give a folder with spec.json or step-….safetensors")


def _of_run(folder: Path, metric: str) -> Figure:
    label = metrics.get(metric).label
    spec, lines = RunSpec.load(folder), _curves(_rows(folder), metric)
    drawn = figure(max(4.5, 2.4 * len(spec.scenarios) + 0.4), 2.0 * len(spec.backgrounds) + 0.9)
    grid = drawn.subplots(len(spec.backgrounds), len(spec.scenarios), squeeze=False, sharex=True, sharey=True)
    for background, line in zip(spec.backgrounds, grid, strict=True):
        for scenario, axes in zip(spec.scenarios, line, strict=True):
            axes.set_visible(spec.has(scenario, background))
            _panel(axes, lines, (scenario, background), label)
            axes.set_title(f"{scenario}, {background}".replace("_", " "), fontsize="small")
        line[0].set_ylabel(f"{label}, accuracy")
    for axes in grid[-1]:
        axes.set_xlabel("training step")
    _legend(drawn, grid, spec.seeds)
    return drawn


def _legend(drawn: Figure, grid: Any, seeds: int) -> None:
    lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    told = f"mean and range of {seeds} seeds" if seeds > 1 else None
    small: dict[str, Any] = {"fontsize": "small", "title_fontsize": "small", "frameon": False}
    drawn.legend(handles=list(lines.values()), title=told, loc="outside upper center", ncols=len(lines), **small)


def _rows(folder: Path) -> list[Row]:
    try:
        return read(folder, "convergence.jsonl")
    except ValueError:
        raise FileError(f"{folder} has no rows of convergence: nothing was noted while its models trained") from None


def _curves(rows: list[Row], metric: str) -> Lines:
    """The values by scenario and background, method and step: those of the metric, and the accuracy."""
    found: Lines = defaultdict(dict)
    for (scenario, background, method, name), values in curves(rows).items():
        if name in (metric, "accuracy"):
            found[scenario, background][method] = values
    if not any(method != "model" for lines in found.values() for method in lines):
        noted = sorted({row["metric"] for row in rows} - {"accuracy"})
        raise InputError(f"{metric} was not noted while the models trained: give one of {', '.join(noted)}")
    return found


def _panel(axes: Axes, lines: Lines, place: tuple[str, str], label: str) -> None:
    """The lines of a scenario and background; a method has the same line in every panel."""
    methods = sorted({name for found in lines.values() for name in found}, key=lambda name: (name != "model", name))
    for method, style in zip(methods, cycle(LINES), strict=False):
        if method in lines.get(place, {}):
            steps, values = zip(*sorted(lines[place][method].items()), strict=True)
            named = "accuracy" if method == "model" else f"{label} of {method}"
            alone = "o" if len(steps) == 1 else None
            axes.plot(steps, [np.mean(seeds) for seeds in values], label=named, marker=alone, **style)
            axes.fill_between(
                steps, list(map(min, values)), list(map(max, values)), color=style["color"], alpha=0.15, lw=0
            )
    axes.set_ylim(0, 1)
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.3)
