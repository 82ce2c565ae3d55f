"""2×2 grids of images of four different classes, each classified correctly and with confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agop.errors import InputError, ModelError
from agop.model.probe import number_of_classes, probing, rows_for
from agop.model.targets import check_range, class_count, predicted, probabilities
from agop.runs.grid_masks import CELL, OBJECT

CELLS = ("upper left", "upper right", "lower left", "lower right")
# Defaults: the number of grids at most, and the smallest probability of an image's class.
GRIDS, CONFIDENCE = 100, 0.9


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
        raise InputError(
            f"grids is {grids}, confidence {confidence}: give 1 or more grids, and a confidence from 0 to 1"
        )
    scores = _label_probabilities(model, images, labels, batch_size)
    chosen = (scores >= confidence).nonzero().flatten()
    composed = _composed(labels[chosen].numpy(), grids, np.random.default_rng(seed))
    if not len(composed):
        raise _too_few(scores, labels, confidence)
    sources = chosen[torch.from_numpy(composed)]
    objects = None if masks is None else masks.cpu()[sources] > 0
    return Grids(joined(images[sources]), sources, labels[sources], len(chosen), objects)


def _too_few(scores: Tensor, labels: Tensor, confidence: float) -> InputError:
    """The error if the images that are classified correctly with confidence have fewer than four classes."""
    count, confident = len(set(labels.tolist())), labels[scores >= confidence].tolist()
    if count < len(CELLS):
        return InputError(f"a grid has four classes, the labels have only {count}: pass images of more classes")
    return InputError(
        f"{len(confident):,} of {len(labels):,} images, of {len(set(confident))} classes, are classified correctly "
        f"with P ≥ {confidence:g} ({int((scores >= 0).sum()):,} with any P), and a grid has four classes: lower the "
        "confidence, or pass more images"
    )


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


def _label_probabilities(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int | None) -> Tensor:
    """Probability (N,) of each image's label, −1 where another class is predicted."""
    with probing(model) as probe:
        parts = torch.split(images, rows_for(images, batch_size, model))
        logits = torch.cat([probe.logits(part) for part in parts]).cpu()
    check_range(labels, class_count(logits), "label")
    own = probabilities(logits).gather(1, labels[:, None])[:, 0]
    return torch.where(predicted(logits) == labels, own, -1.0)


def _composed(classes: NDArray[np.int64], most: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Indices (G,4) of samples with these classes (N,): each at most once, and four classes per grid."""
    by_class = [random.permutation(np.flatnonzero(classes == each)) for each in np.unique(classes)]
    sizes, possible = np.array([len(samples) for samples in by_class], dtype=np.int64), np.arange(1, most + 1)
    # G grids need 4 G samples, at most G of each class.
    count = int((np.minimum(sizes[:, None], possible).sum(axis=0) >= len(CELLS) * possible).sum())
    grids = np.empty((count, len(CELLS)), dtype=np.int64)
    left = _even_shares(sizes, len(CELLS) * count, random)
    for grid in grids:
        # The classes with the most samples left: with others, too few classes might remain for the last grids.
        four = random.permutation(np.argsort(-left - random.random(len(left)))[: len(CELLS)])
        left[four] -= 1
        grid[:] = [by_class[each][left[each]] for each in four]
    return grids


def _even_shares(sizes: NDArray[np.int64], total: int, random: np.random.Generator) -> NDArray[np.int64]:
    """How many of `total` samples come from each class: as even as the sizes of the classes allow."""
    number = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.argsort(rank + random.random(len(rank)))[:total]
    return np.bincount(number[first], minlength=len(sizes))
