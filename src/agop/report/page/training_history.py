"""Map quality and accuracy during training: curves over seeds, and diag(M) at each snapshot of seed 0."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from agop.report.page.map_bytes import base64_text, block_sums, quantise
from agop.report.run import Run

_MOST_FRAMES = 60


def training_history(run: Run, scenario: str, background: str) -> dict[str, Any] | None:
    """Curves and frames of a scenario and background; None if there are no snapshots."""
    curves = _curves(run, scenario, background)
    return {"curves": curves, "frames": _frames(run, scenario, background)} if curves else None


def _curves(run: Run, scenario: str, background: str) -> dict[str, dict[str, Any]]:
    """By method and metric: the steps, and mean, minimum and maximum over seeds at each step."""
    curves: dict[str, dict[str, Any]] = defaultdict(dict)
    for (*place, method, metric), values in run.curves.items():
        if place == [scenario, background]:
            curves[method][metric] = _curve(values)
    return curves


def _curve(values: dict[int, list[float]]) -> dict[str, Any]:
    steps = sorted(values)
    return {
        "steps": steps,
        "mean": [round(float(np.mean(values[step])), 4) for step in steps],
        "low": [round(min(values[step]), 4) for step in steps],
        "high": [round(max(values[step]), 4) for step in steps],
        "seeds": max(len(values[step]) for step in steps),
    }


def _frames(run: Run, scenario: str, background: str) -> dict[str, Any] | None:
    """diag(M), channels summed, at up to 60 evenly spaced snapshots of seed 0, all on one scale."""
    files = run.first_cell(scenario, background)
    every = list(files.snapshots())
    if not every:
        return None
    indices = np.unique(np.linspace(0, len(every) - 1, min(len(every), _MOST_FRAMES)).round().astype(int))
    steps = [every[index] for index in indices]
    small = block_sums(files.diagonals(steps))
    return {
        "steps": steps,
        "rows": small.shape[1],
        "columns": small.shape[2],
        "top": float(f"{small.max():.6g}"),
        "bytes": base64_text(quantise(small, float(small.max()))),
    }
