"""grid_pointing_game(): does the map for one of four classes lie in the cell of that class?"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agop import metrics as all_metrics
from agop.errors import InputError, ModelError
from agop.evaluation.evaluate import checked_masks, entries_that_run, output_notes
from agop.evaluation.scoring import Entry, MethodScores, all_logits, score
from agop.evaluation.table import Evaluation, check_place, gallery
from agop.explanation import Methods
from agop.images.files import class_name
from agop.images.overlays import Picture, pixels
from agop.methods.gradients import IntegratedGradients
from agop.model.layers import Layer
from agop.model.outputs import (
    OutputLike,
    check_range,
    class_count,
    labels_for,
    logit,
    output_for,
    predicted,
    probabilities,
)
from agop.model.probe import check_images, number_of_classes
from agop.prior.agop import AGOP, Provenance
from agop.processes import track
from agop.report.folder import CELL, OBJECT, spread

CELLS = ("upper left", "upper right", "lower left", "lower right")
# Defaults: the number of grids at most, and the smallest probability of an image's class.
GRIDS, CONFIDENCE = 100, 0.9
# Metrics by kind of masks.
METRICS = {CELL: ("energy", "pointing_game"), OBJECT: ("average_precision",)}


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
        # Which grid each sample of the gallery is, and which class its maps explain.
        samples = [
            f"grid {grid + 1}, maps for {class_name(names, int(self.classes[grid, cell]))} ({CELLS[cell]})"
            for grid, cell in shown_cells(len(self.sources))
        ]
        super().save(folder, name, **{"samples": {name: samples}, **about})

    def shown_pictures(self, images: Tensor, *extremes: Sequence[float]) -> Picture:
        """The gallery's grids (S,2H,2W,3) in bytes, from all images (N,C,H,W) and the values of black and white."""
        grids = [grid for grid, _ in shown_cells(len(self.sources))]
        return pixels(joined(images[self.sources[grids]]), *extremes)


def grid_pointing_game(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    methods: Methods | None = None,
    prior: AGOP | None = None,
    *,
    masks: Tensor | None = None,
    grids: int = GRIDS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    layer: Layer = None,
    batch_size: int | None = None,
    references: Tensor | None = None,
    output: OutputLike = logit,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> GridEvaluation:
    """Scores (G,) of maps on G grids of 2×2 images of different classes: does a map lie in the cell of its class?

    Four images of different classes form a grid, an image of twice the size, and each of its four classes is explained.
    A prior is repeated in each cell, and references form grids of their own. A grid's score is the mean over its
    classes. Böhle et al., "Convolutional Dynamic Alignment Networks for Interpretable Classifications", 2021.

    Args:
        model: A torch.nn.Module that returns logits and accepts images of twice the size.
        images: Images (N,C,H,W). Each is in one grid only, so few images give few grids.
        labels: Classes (N,).
        methods: Names or agop.methods objects; by default every method that can run.
        prior: The AGOP of the model, for methods that need one.
        masks: Masks (N,H,W) of the objects; with them, maps are also scored against the object in the cell.
        grids: The most grids.
        confidence: The model classifies each image of a grid correctly, with at least this probability.
        seed: Seed of the grids.
        layer: As in `explain`, for methods that take one.
        batch_size: As in `explain`.
        references: As in `explain`.
        output: One with classes, as in `explain`.
        out: As in `evaluate`: a run folder that also keeps each finished method.
        force: As in `evaluate`.

    Returns:
        A `GridEvaluation`, which prints and saves as an `Evaluation` does.

    Raises:
        InputError: For wrong arguments, and if there aren't confident images of four classes.
        ModelError: If the model doesn't accept images of twice the size.

    Example:
        result = agop.grid_pointing_game(model, images, labels, ["agop", "gradcam"], prior)
        print(result)
    """
    check_images(images)
    output = output_for(output)
    if not output.has_classes:
        raise InputError(f"the four cells are four classes, and {output.name} has none: give logit or log_odds")
    entries = entries_that_run(methods, prior, references, images, layer)
    classes = labels_for(labels, len(images)).cpu()
    objects = None if masks is None else checked_masks(masks, images)
    if prior is not None:
        prior.check(model, images)
    check_accepts_grids(model, images)
    composed = make_grids(
        model, images, classes, objects, grids=grids, confidence=confidence, seed=seed, batch_size=batch_size
    )
    notes = [
        f"{len(composed):,} grids of {composed.sources.numel():,} images; {composed.confident:,} of {len(images):,} "
        f"images are classified correctly with P ≥ {confidence:g}. A grid's score is the mean over its four classes.",
        "Energy-GT is the share of the map in the cell of the explained class, PG whether its highest pixel is there: "
        "0.25 for a map that doesn't depend on the class."
        + ("" if composed.objects is None else " AP is for the pixels of the object in that cell."),
        *output_notes(output),
    ]
    results: list[MethodScores] = []
    keep = None if out is None else check_place(out, force=force)
    tracked = track(entries.items(), lambda entry: f"evaluating {entry[0]}")
    for parts in cell_scores(model, composed, tracked, references, batch_size=batch_size, output=output, keep=keep):
        results.append(means_over_cells(parts))
        if undefined := Counter(reason for part in parts for reason in part.undefined[CELL] if reason):
            counts = ", ".join(f"{reason}: {count:,}" for reason, count in undefined.items())
            total = f"{undefined.total():,} of {composed.sources.numel():,} maps"
            notes.append(f"{parts[0].method}: {total} have no score ({counts})")
    # The gallery has some grids, each with the maps for one of its classes.
    shown = shown_cells(len(composed))
    places = [grid for grid, _ in shown]
    few, truths = composed.images[places], [composed.masks(cell) for cell in range(len(CELLS))]
    truth = {kind: torch.stack([truths[cell][kind][grid] for grid, cell in shown]) for kind in truths[0]}
    maps = {result.method: result.maps for result in results}
    # No labels: a grid has four classes, so none of the predictions would be wrong.
    samples = gallery(model, few, pixels(few), truth, maps, places=places)
    evaluation = GridEvaluation(
        tuple(results), samples, masks=CELL, notes=tuple(notes), sources=composed.sources, classes=composed.classes
    )
    if out is not None:
        evaluation.save(out, force=force)
    return evaluation


@dataclass(frozen=True)
class Grids:
    """G grids: images (G,C,2H,2W); for each cell the index (G,4) and the class (G,4) of its image, in reading order.

    `objects` (G,4,H,W) are the masks of these images, if there are any. `confident` is the number of images to choose
    from.
    """

    images: Tensor
    sources: Tensor
    classes: Tensor
    confident: int
    objects: Tensor | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def masks(self, cell: int) -> dict[str, Tensor]:
        """Masks (G,2H,2W) by kind, for the class in this cell: the cell and, with masks of objects, its object."""
        height, width = (side // 2 for side in self.images.shape[2:])
        inside = torch.zeros(len(self), len(CELLS), height, width, dtype=torch.bool)
        inside[:, cell] = True
        tiles = {CELL: inside}
        if self.objects is not None:
            tiles[OBJECT] = inside & self.objects
        return {kind: joined(tile[:, :, None])[:, 0] for kind, tile in tiles.items()}


def joined(tiles: Tensor) -> Tensor:
    """Grids (G,C,2H,2W) of images (G,4,C,H,W) in reading order."""
    count, _, channels, height, width = tiles.shape
    rows = tiles.reshape(count, 2, 2, channels, height, width).permute(0, 3, 1, 4, 2, 5)
    return rows.reshape(count, channels, 2 * height, 2 * width)


def make_grids(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    masks: Tensor | None = None,
    *,
    grids: int = GRIDS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    batch_size: int | None = None,
) -> Grids:
    """At most `grids` grids of images (N,C,H,W) that the model classifies as their label (N,) with P ≥ confidence.

    An image is in one grid only, so grids are independent. Raises InputError if there aren't images for one grid.
    """
    if grids < 1 or not 0 <= confidence <= 1:
        problem = f"grids is {grids}, confidence {confidence}"
        raise InputError(f"{problem}: give 1 or more grids, and a confidence from 0 to 1")
    logits = all_logits(model, images, batch_size)
    check_range(labels, class_count(logits), "label")
    # The probability of each image's label, −1 where another class is predicted.
    own = probabilities(logits).gather(1, labels[:, None])[:, 0]
    scores = torch.where(predicted(logits) == labels, own, -1.0)
    chosen = (scores >= confidence).nonzero().flatten()
    composed = _composed(labels[chosen].numpy(), grids, np.random.default_rng(seed))
    if not len(composed):
        count, classes = (len(set(some.tolist())) for some in (labels, labels[chosen]))
        if count < len(CELLS):
            raise InputError(f"a grid has four classes, the labels have only {count}: pass images of more classes")
        raise InputError(
            f"{len(chosen):,} of {len(labels):,} images, of {classes} classes, are classified correctly with P ≥ "
            f"{confidence:g} ({int((scores >= 0).sum()):,} with any P), and a grid has four classes: lower the "
            "confidence, or pass more images"
        )
    sources = chosen[torch.from_numpy(composed)]
    objects = None if masks is None else masks.cpu()[sources] > 0
    return Grids(joined(images[sources]), sources, labels[sources], len(chosen), objects)


def check_accepts_grids(model: nn.Module, images: Tensor) -> None:
    """Raise ModelError unless the model accepts images of twice the size of these (N,C,H,W), with the same classes."""
    larger = images[:1].repeat(1, 1, 2, 2)
    classes = number_of_classes(model, images[:1])
    try:
        count = number_of_classes(model, larger)
        problem = f"it returns {count} logits, {classes} for smaller images" if count != classes else None
    except (ModelError, ValueError) as error:
        problem = str(error)
    if problem is not None:
        raise ModelError(
            f"the network can't take {larger.shape[2]}×{larger.shape[3]} images ({problem}): the grid test needs a "
            "network that accepts images of twice the size (fully convolutional up to a global pooling)"
        )


def _composed(classes: NDArray[np.int64], most: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Indices (G,4) of samples with these classes (N,): each at most once, and four classes per grid."""
    by_class = [random.permutation(np.flatnonzero(classes == each)) for each in np.unique(classes)]
    sizes, possible = np.array([len(samples) for samples in by_class], dtype=np.int64), np.arange(1, most + 1)
    # G grids need 4 G samples, at most G of each class.
    count = int((np.minimum(sizes[:, None], possible).sum(axis=0) >= len(CELLS) * possible).sum())
    grids = np.empty((count, len(CELLS)), dtype=np.int64)
    # How many samples come from each class: as even as the sizes of the classes allow.
    number = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.argsort(rank + random.random(len(rank)))[: len(CELLS) * count]
    left = np.bincount(number[first], minlength=len(sizes))
    for grid in grids:
        # The classes with the most samples left: with others, too few classes might remain for the last grids.
        four = random.permutation(np.argsort(-left - random.random(len(left)))[: len(CELLS)])
        left[four] -= 1
        grid[:] = [by_class[each][left[each]] for each in four]
    return grids


def cell_scores(
    model: nn.Module, grids: Grids, entries: Iterable[tuple[str, Entry]], references: Tensor | None, **options: Any
) -> Iterator[list[MethodScores]]:
    """Scores of each entry on the grids, for the class in each of the four cells. The maps of some grids are kept.

    `references` (M,C,H,W) are single images. For a grid, they form grids of four different ones. `options` are those
    of `score`.
    """
    if references is not None:
        count = max(1, len(references) // len(CELLS))
        # The images of a grid are far apart: neighbours may be of one class.
        places = torch.arange(len(CELLS) * count).reshape(len(CELLS), count).T % len(references)
        references = joined(references[places.to(references.device)])
    kinds = grids.masks(0)
    metrics = [all_metrics.get(name) for kind in kinds for name in METRICS[kind]]
    options |= {"shown": spread(len(grids)), "references": references}
    for name, entry in entries:
        repeated, parts = [(name, _repeated(entry))], list[MethodScores]()
        for cell, target in enumerate(grids.classes.T):
            parts += score(model, grids.images, grids.masks(cell), repeated, metrics, target=target, **options)
        yield parts


def means_over_cells(parts: Sequence[MethodScores]) -> MethodScores:
    """One method's scores (G,): the mean over the four classes of each grid, because these aren't independent.

    An undefined score is skipped. The kept maps are for the upper left class, the upper right one …
    """
    first = parts[0]
    scores: dict[str, dict[str, Tensor]] = {}
    undefined: dict[str, list[str | None]] = {}
    for kind in first.scores:
        each = {metric: [part.scores[kind][metric] for part in parts] for metric in METRICS[kind]}
        scores[kind] = {metric: torch.stack(of_cells).nanmean(dim=0) for metric, of_cells in each.items()}
        causes = zip(*(part.undefined[kind] for part in parts), strict=True)
        undefined[kind] = [None if None in of_cells else of_cells[0] for of_cells in causes]
    maps = torch.stack([parts[number % len(parts)].maps[number] for number in range(len(first.maps))])
    milliseconds = sum(part.milliseconds for part in parts) / len(parts)
    return MethodScores(first.method, scores, undefined, milliseconds, maps)


def shown_cells(count: int) -> list[tuple[int, int]]:
    """Grid and cell of each map that `means_over_cells` keeps, of `count` grids."""
    return [(grid, number % len(CELLS)) for number, grid in enumerate(spread(count))]


def _repeated(entry: Entry) -> Entry:
    """The entry for grids: its prior, and the images that are its baseline, are repeated in each cell."""
    method, prior = entry.method, entry.prior
    if isinstance(method, IntegratedGradients) and isinstance(method.baseline, Tensor) and method.baseline.ndim > 1:
        method = replace(method, baseline=method.baseline.tile(2, 2))
    if prior is not None:
        # Without provenance: the model was compared with the prior itself.
        tensors = {name: getattr(prior, name) for name in ("diagonal", "class_diagonals", "image_moments")}
        changes = {name: tensor.tile(2, 2) for name, tensor in tensors.items() if tensor is not None}
        if prior.sketch is not None:
            # Rows (4ℓ,C,2H,2W) that are rows (ℓ,C,H,W) in one cell and 0 in the others: cells aren't correlated.
            changes["sketch"] = torch.kron(torch.eye(4).reshape(4, 1, 2, 2).to(prior.sketch), prior.sketch)
        provenance = Provenance(layer=prior.layer, options={"output": prior.provenance.output})
        prior = replace(prior, provenance=provenance, **changes)
    return replace(entry, method=method, prior=prior)
