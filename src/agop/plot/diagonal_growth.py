"""How diag(M) evolves, from the snapshots of a training hook."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from agop.errors import FileError
from agop.pictures.colouring import Colouring
from agop.plot.comparison import draw_maps
from agop.plot.figures import LINES, figure, scale_bar
from agop.statistic.agop import AGOP
from agop.statistic.provenance import Provenance

_NAME = re.compile(r"step-(\d+)(-rank\d+)?\.safetensors")
_FEW, _SIDE = 6, 1.25
_COLOURING = Colouring("common", percentile=100)  # the steps are compared with one another


def snapshots_in(folder: Path) -> dict[int, list[Path]]:
    """Snapshot files by step, in order; under torch.distributed there is one per rank."""
    paths: dict[int, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("step-*.safetensors")):
        if name := _NAME.fullmatch(path.name):
            paths[int(name[1])].append(path)
    return dict(sorted(paths.items()))


def growth_figure(snapshots: dict[int, list[Path]]) -> Figure:
    """Figure of diag(M) at a few steps on one scale, and its cosine similarity to the last one against the step."""
    steps = list(snapshots)
    diagonals = _diagonals(snapshots)
    few = np.unique(np.linspace(0, len(steps) - 1, _FEW).round().astype(int)).tolist()
    height, width = diagonals[0].shape[1:]
    whole = figure(_SIDE * _FEW + 0.9, _SIDE * height / width + 2.6)
    parts = whole.add_gridspec(2, len(few), height_ratios=(_SIDE * height / width + 0.3, 2.2))
    panels = [whole.add_subplot(parts[0, column]) for column in range(len(few))]
    maps = {f"step {steps[index]:,}": [diagonals[index].sum(dim=0).numpy()] for index in few}
    scale_bar(panels, _COLOURING, draw_maps([[axes] for axes in panels], maps, [None], _COLOURING, [None]))
    for axes, name in zip(panels, maps, strict=True):
        axes.set_title(name, fontsize="small")
    axes = whole.add_subplot(parts[1, :])
    axes.plot(steps, [_cosine(diagonal, diagonals[-1]) for diagonal in diagonals], **LINES[1])
    axes.set_xlabel("training step")
    axes.set_ylabel("cosine of diag(M)\nwith the last step")
    axes.grid(alpha=0.3)
    return whole


def _diagonals(snapshots: dict[int, list[Path]]) -> list[Tensor]:
    """diag(M) (C,H,W) of each step, over all ranks. Raises FileError if the files come from several trainings."""
    diagonals: list[Tensor] = []
    origins: list[tuple[int, Provenance]] = []
    for step, paths in snapshots.items():
        parts = [AGOP.load(path) for path in paths]
        total = sum(part.count for part in parts)
        diagonals.append(torch.stack([part.diagonal.double() * (part.count / total) for part in parts]).sum(dim=0))
        origins += [(step, part.provenance) for part in parts]
    _check_one_training(paths[0].parent, origins)
    return diagonals


def _check_one_training(folder: Path, origins: list[tuple[int, Provenance]]) -> None:
    """Raise if a rank's snapshots have several training ids. `origins` has the step and provenance of each snapshot."""
    steps_of: dict[Any, dict[str | None, list[int]]] = defaultdict(lambda: defaultdict(list))
    for step, provenance in origins:
        # Each rank has its own id. A training may be resumed with another number of ranks: rank 0 keeps its id.
        rank = (provenance.rank, provenance.ranks) if provenance.rank else 0
        steps_of[rank][provenance.training].append(step)
    for trainings in steps_of.values():
        if len(trainings) > 1:
            spans = "; ".join(f"steps {min(steps):,} to {max(steps):,}" for steps in trainings.values())
            raise FileError(
                f"{folder} has snapshots of {len(trainings)} trainings ({spans}): delete all but one's, and use one "
                "snapshot_dir per training"
            )


def _cosine(a: Tensor, b: Tensor) -> float:
    """Cosine similarity of two diagonals; NaN if one is all zero."""
    return float((a * b).sum() / (a.norm() * b.norm()))
