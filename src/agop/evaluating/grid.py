"""grid_pointing_game(): does the map for one of four classes lie in the cell of that class?"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from agop.errors import InputError
from agop.evaluating.cell_folder import gallery
from agop.evaluating.evaluate import checked_labels, checked_masks, methods_by_name, output_notes
from agop.evaluating.grid_images import CELLS, CONFIDENCE, GRIDS, Grids, check_accepts_grids, joined, make_grids
from agop.evaluating.grid_scores import cell_scores, means_over_cells, shown_cells
from agop.evaluating.scoring import Entry
from agop.evaluating.table import Evaluation
from agop.methods import Method
from agop.methods.base import missing_layer
from agop.model.layers import Layer
from agop.model.probe import check_images
from agop.model.targets import PREDICTED, check_output
from agop.pictures.class_names import class_name
from agop.pictures.heat import Picture, pixels
from agop.runs.gallery import Gallery
from agop.runs.grid_masks import CELL
from agop.statistic.agop import AGOP
from agop.system.progress import track


@dataclass(frozen=True, repr=False, kw_only=True)
class GridEvaluation(Evaluation):
    """Scores (G,) of each method: a grid's score is the mean over its four classes.

    `sources` and `classes` (G,4) are the index of the image in each cell and its class, in reading order.
    """

    unit: ClassVar[str] = "grids"
    command: ClassVar[str] = "agop.grid_pointing_game(…)"
    sources: Tensor
    classes: Tensor

    def save(self, folder: str | os.PathLike[str], name: str = "own", **about: Any) -> None:
        """Write a run folder for `agop report`, as `Evaluation.save` does."""
        names = about.get("classes", {}).get(name, ())
        super().save(folder, name, **{"samples": {name: self._sample_names(names)}, **about})

    def shown_pictures(self, images: Tensor, *extremes: Sequence[float]) -> Picture:
        """The gallery's grids (S,2H,2W,3) in bytes, from all images (N,C,H,W) and the values of black and white."""
        grids = [grid for grid, _ in shown_cells(len(self.sources))]
        return pixels(joined(images[self.sources[grids]]), *extremes)

    def _sample_names(self, names: Sequence[str]) -> list[str]:
        """Which grid each sample of the gallery is, and which class its maps explain."""
        return [
            f"grid {grid + 1}, maps for {class_name(names, int(self.classes[grid, cell]))} ({CELLS[cell]})"
            for grid, cell in shown_cells(len(self.sources))
        ]


def grid_pointing_game(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    methods: str | Method | Sequence[str | Method] | None = None,
    prior: AGOP | None = None,
    *,
    masks: Tensor | None = None,
    grids: int = GRIDS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    layer: Layer = None,
    batch_size: int | None = None,
    references: Tensor | None = None,
    output: str = PREDICTED,
) -> GridEvaluation:
    """Share of each map in the cell of its class, on 2×2 grids of images (N,C,H,W) with labels (N,).

    The images of a grid have four classes, and the model classifies each of them correctly with P ≥ confidence. Each
    class of a grid is explained. An image is in one grid only, so few images give fewer than `grids` grids. With masks
    (N,H,W) of the objects, maps are also scored against the object in the cell. A prior is repeated in each cell, and
    references (M,C,H,W) form grids of their own. With output="contrast", maps are made of gradients of the log-odds.
    """
    check_images(images)
    check_output(output)
    by_name = methods_by_name(methods, prior, references, images)
    if not by_name:
        raise InputError("nothing to evaluate: pass at least one method")
    classes = checked_labels(labels, len(images)).cpu()
    objects = None if masks is None else checked_masks(masks, images)
    if prior is not None:
        prior.check(model, images)
    check_accepts_grids(model, images)
    composed = make_grids(
        model, images, classes, objects, grids=grids, confidence=confidence, seed=seed, batch_size=batch_size
    )
    entries = {name: Entry(method, prior, missing_layer(method, layer)) for name, method in by_name.items()}
    results, undefined = [], {}
    for parts in cell_scores(model, composed, track(entries.items(), "evaluating"), batch_size, references, output):
        results.append(means_over_cells(parts))
        undefined[parts[0].method] = Counter(reason for part in parts for reason in part.undefined[CELL] if reason)
    return GridEvaluation(
        tuple(results),
        _gallery(model, composed, {result.method: result.maps for result in results}),
        masks=CELL,
        notes=(
            *_description(composed, len(images), confidence),
            *output_notes(output),
            *_undefined(undefined, composed.sources.numel()),
        ),
        sources=composed.sources,
        classes=composed.classes,
    )


def _gallery(model: nn.Module, grids: Grids, maps: Mapping[str, Tensor]) -> Gallery:
    """Some grids, each with the maps for one of its classes."""
    shown = shown_cells(len(grids))
    places = [grid for grid, _ in shown]
    few, masks = grids.images[places], [grids.masks(cell) for cell in range(len(CELLS))]
    truth = {kind: torch.stack([masks[cell][kind][grid] for grid, cell in shown]) for kind in masks[0]}
    # No labels: a grid has four classes, so none of the predictions would be wrong.
    return gallery(model, few, pixels(few), truth, maps, places=places)


def _description(grids: Grids, images: int, confidence: float) -> list[str]:
    """What the scores mean, for the table and the report."""
    return [
        f"{len(grids):,} grids of {grids.sources.numel():,} images; {grids.confident:,} of {images:,} images are "
        f"classified correctly with P ≥ {confidence:g}. A grid's score is the mean over its four classes.",
        "Energy-GT is the share of the map in the cell of the explained class, PG whether its highest pixel is there: "
        "0.25 for a map that doesn't depend on the class."
        + ("" if grids.objects is None else " AP is for the pixels of the object in that cell."),
    ]


def _undefined(reasons: Mapping[str, Counter[str]], explained: int) -> list[str]:
    """How many maps of each method have no score, and why."""
    return [
        f"{method}: {counts.total():,} of {explained:,} maps have no score "
        f"({', '.join(f'{reason}: {count:,}' for reason, count in counts.items())})"
        for method, counts in reasons.items()
        if counts
    ]
