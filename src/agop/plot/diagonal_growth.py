"""How diag(M) grows, from the snapshots of a training hook."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from agop.plot.comparison import draw_shares
from agop.plot.figures import LINES, bar_of_shares, figure
from agop.statistic.agop import AGOP

_NAME = re.compile(r"step-(\d+)(-rank\d+)?\.safetensors")
_FEW, _SIDE = 6, 1.25


def snapshots_in(folder: Path) -> dict[int, list[Path]]:
    """The snapshots of a folder by their step, in order; under torch.distributed there is one a rank."""
    found: dict[int, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("step-*.safetensors")):
        if name := _NAME.fullmatch(path.name):
            found[int(name[1])].append(path)
    return dict(sorted(found.items()))


def growth(snapshots: dict[int, list[Path]]) -> Figure:
    """The maps of diag(M) at a few steps, on one scale, over the cosine of diag(M) with the last against the step."""
    steps = list(snapshots)
    diagonals = [_diagonal(snapshots[step]) for step in steps]
    few = np.unique(np.linspace(0, len(steps) - 1, _FEW).round().astype(int)).tolist()
    height, width = diagonals[0].shape[1:]
    drawn = figure(_SIDE * _FEW + 0.9, _SIDE * height / width + 2.6)
    parts = drawn.add_gridspec(2, len(few), height_ratios=(_SIDE * height / width + 0.3, 2.2))
    shown = [drawn.add_subplot(parts[0, place]) for place in range(len(few))]
    maps = {f"step {steps[place]:,}": [diagonals[place].sum(dim=0).numpy()] for place in few}
    bar_of_shares(shown, draw_shares([[axes] for axes in shown], maps, [None]))
    for axes, name in zip(shown, maps, strict=True):
        axes.set_title(name, fontsize="small")
    axes = drawn.add_subplot(parts[1, :])
    axes.plot(steps, [_cosine(diagonal, diagonals[-1]) for diagonal in diagonals], **LINES[1])
    axes.set_xlabel("training step")
    axes.set_ylabel("cosine of diag(M)\nwith the last")
    axes.grid(alpha=0.3)
    return drawn


def _diagonal(paths: list[Path]) -> Tensor:
    """diag(M) (C,H,W) of a step, of all ranks together."""
    parts = [AGOP.load(path) for path in paths]
    total = sum(part.count for part in parts)
    return torch.stack([part.diagonal.double() * (part.count / total) for part in parts]).sum(dim=0)


def _cosine(a: Tensor, b: Tensor) -> float:
    """The cosine of the angle between two diagonals; NaN if one is all zero."""
    return float((a * b).sum() / (a.norm() * b.norm()))
