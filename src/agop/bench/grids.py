"""Scores on 2×2 grids of test images, for scenarios with grids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from agop.bench.entries import Entries
from agop.errors import InputError
from agop.evaluating.cell_folder import CellScores
from agop.evaluating.controls import FIXED_MAPS
from agop.evaluating.grid_images import make_grids
from agop.evaluating.grid_scores import METRICS, cell_scores, means_over_cells
from agop.runs.spec import RunSpec
from agop.scenarios import Split

_TOO_FEW = "too few images are classified correctly with confidence"


def add_grid_scores(
    scores: CellScores,
    spec: RunSpec,
    entries: Entries,
    model: nn.Module,
    test: Split,
    progress: Callable[[float], None],
) -> None:
    """Score the run's methods on grids by those of the run's metrics that grids have; nothing without grids.

    If the test images don't suffice for one grid, the rows have no value: a bench must not fail after the training.
    """
    if not entries.scenario.grids:
        return
    metrics = {kind: [name for name in own if name in spec.metrics] for kind, own in METRICS.items()}
    # Not the controls that are one map for every image: they have the size of one image.
    names = [name for name in spec.methods if name not in FIXED_MAPS and not entries.unusable(name)]
    count, seed = entries.scenario.grids, entries.cell.seed
    try:
        grids = make_grids(model, test.images, test.labels, test.masks, grids=count, seed=seed)
    except InputError:
        for name in names:
            scores.skip(name, metrics, _TOO_FEW, count)
        return
    pairs = ((name, entries.entry(name)) for name in names)
    by_method = cell_scores(model, grids, pairs, references=entries.training.images)
    for number, parts in enumerate(by_method, 1):
        result = means_over_cells(parts)
        chosen = {kind: {metric: result.scores[kind][metric] for metric in own} for kind, own in metrics.items()}
        scores.add_scores(replace(result, scores=chosen))
        progress(number / len(names))
