"""Methods scored on grids: one map for each class of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor, nn

from agop import metrics as all_metrics
from agop.evaluating.grid_images import CELLS, Grids, joined
from agop.evaluating.scoring import Entry, MethodScores, score
from agop.methods.integrated_gradients import IntegratedGradients
from agop.model.targets import PREDICTED
from agop.runs.gallery import spread
from agop.runs.grid_masks import CELL, OBJECT
from agop.statistic.agop import AGOP
from agop.statistic.provenance import Provenance

# Metrics by kind of masks.
METRICS = {CELL: ("energy", "pointing_game"), OBJECT: ("average_precision",)}


def cell_scores(
    model: nn.Module,
    grids: Grids,
    entries: Iterable[tuple[str, Entry]],
    batch_size: int | None = None,
    references: Tensor | None = None,
    output: str = PREDICTED,
) -> Iterator[list[MethodScores]]:
    """Scores of each entry on the grids, for the class in each of the four cells. The maps of some grids are kept.

    `references` (M,C,H,W) are single images. For a grid, they form grids of four different ones.
    """
    references = None if references is None else _grids_of(references)
    kinds = grids.masks(0)
    metrics = [all_metrics.get(name) for kind in kinds for name in METRICS[kind]]
    shown = spread(len(grids))
    for name, entry in entries:
        pair = (name, _repeated(entry))
        yield [
            result
            for cell in range(len(CELLS))
            for result in score(
                model, grids.images, grids.masks(cell), [pair], metrics, shown,
                target=grids.classes[:, cell], batch_size=batch_size, references=references, output=output,
            )
        ]  # fmt: skip


def means_over_cells(parts: Sequence[MethodScores]) -> MethodScores:
    """One method's scores (G,): the mean over the four classes of each grid, because these aren't independent.

    An undefined score is skipped. The kept maps are for the upper left class, the upper right one …
    """
    first = parts[0]
    scores = {
        kind: {metric: _mean([part.scores[kind][metric] for part in parts]) for metric in METRICS[kind]}
        for kind in first.scores
    }
    undefined = {
        kind: [
            None if None in reasons else reasons[0] for reasons in zip(*(p.undefined[kind] for p in parts), strict=True)
        ]
        for kind in first.undefined
    }
    maps = torch.stack([parts[number % len(parts)].maps[number] for number in range(len(first.maps))])
    milliseconds = sum(part.milliseconds for part in parts) / len(parts)
    return MethodScores(first.method, scores, undefined, milliseconds, maps)


def shown_cells(count: int) -> list[tuple[int, int]]:
    """Grid and cell of each map that `means_over_cells` keeps, of `count` grids."""
    return [(grid, number % len(CELLS)) for number, grid in enumerate(spread(count))]


def _mean(values: Sequence[Tensor]) -> Tensor:
    """Mean (G,) of the defined scores, NaN where all are undefined."""
    return torch.stack(list(values)).nanmean(dim=0)


def _repeated(entry: Entry) -> Entry:
    """The entry for grids: its prior, and the images that are its baseline, are repeated in each cell."""
    method, prior = entry.method, entry.prior
    if isinstance(method, IntegratedGradients) and isinstance(method.baseline, Tensor) and method.baseline.ndim > 1:
        method = replace(method, baseline=_repeated_tensor(method.baseline))
    if prior is not None:
        # Without provenance: the model was compared with the prior itself.
        prior = AGOP(
            _repeated_tensor(prior.diagonal),
            prior.count,
            None if prior.class_diagonals is None else _repeated_tensor(prior.class_diagonals),
            prior.class_counts,
            provenance=Provenance(layer=prior.layer, options={"output": prior.provenance.output}),
            patch_matrix=prior.patch_matrix,
            class_patch_matrices=prior.class_patch_matrices,
            sketch=None if prior.sketch is None else _in_each_cell(prior.sketch),
            image_moments=None if prior.image_moments is None else _repeated_tensor(prior.image_moments),
            mean_direction=None if prior.mean_direction is None else _repeated_tensor(prior.mean_direction) / 2,
            references=None if prior.references is None else _grids_of(prior.references),
        )
    return replace(entry, method=method, prior=prior)


def _in_each_cell(rows: Tensor) -> Tensor:
    """Rows (4ℓ,C,2H,2W) that are rows (ℓ,C,H,W) in one cell and 0 in the others: cells aren't correlated."""
    count, channels, height, width = rows.shape
    cells = rows.new_zeros(2, 2, count, channels, 2, height, 2, width)
    for i, j in product(range(2), repeat=2):
        cells[i, j, :, :, i, :, j] = rows
    return cells.reshape(4 * count, channels, 2 * height, 2 * width)


def _repeated_tensor(values: Tensor) -> Tensor:
    """Values (…,2H,2W) from values (…,H,W)."""
    return values.repeat(*[1] * (values.ndim - 2), 2, 2)


def _grids_of(references: Tensor) -> Tensor:
    """Grids (M // 4,C,2H,2W) of reference images (M,C,H,W), each in one grid; at least one grid."""
    count = max(1, len(references) // len(CELLS))
    # The images of a grid are far apart: neighbours may be of one class.
    places = torch.arange(len(CELLS) * count).reshape(len(CELLS), count).T % len(references)
    return joined(references[places.to(references.device)])
