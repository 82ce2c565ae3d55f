"""Positional consistency: does a model look at the same places in all images?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agop.auditing.intervals import finite
from agop.auditing.pool import Half
from agop.model.probe import probing
from agop.report.numbers import counted

# Correctly classified images whose gradients are compared, at most.
_MOST_IMAGES = 200
# Corrected consistencies up to which a model looks at patterns that move, and from which it looks at places. Measured:
# 0.43–0.47 on images with signals at fixed pixels, 0.06–0.23 on objects that move, digits and photographs.
MOVING, STILL = 0.25, 0.4


@dataclass(frozen=True)
class Consistency:
    """Mean cosine of |g| between two images, the same with shuffled positions, and the number of images.

    NaN with fewer than two images.
    """

    cosine: float
    shuffled: float
    images: int

    @property
    def corrected(self) -> float:
        """(cosine − shuffled) / (1 − shuffled): 0 if places don't matter, 1 if all gradients are at the same places."""
        if self.shuffled >= 1:  # gradients of one pixel
            return math.nan
        return (self.cosine - self.shuffled) / (1 - self.shuffled)

    @property
    def sentence(self) -> str:
        """Places or patterns, with the figures."""
        if math.isnan(self.corrected):
            return f"Whether the model looks at places is unknown, with {counted(self.images, 'correct image')}."
        figures = f"(positional consistency {self.corrected:.2f}; 0: no fixed places, 1: always the same pixels)"
        rounded = round(self.corrected, 2)  # as printed
        if rounded >= STILL:
            return f"This model looks at places: gradients of different images are large at the same pixels {figures}."
        if rounded <= MOVING:
            return (
                f"This model looks at patterns that move: gradients are large at other pixels in each image {figures}."
            )
        return f"This model looks partly at places, partly at patterns that move {figures}."

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        values = {"cosine": self.cosine, "shuffled": self.shuffled, "corrected": self.corrected}
        figures = {name: finite(value) for name, value in values.items()}
        return {**figures, "images": self.images, "sentence": self.sentence}


def positional_consistency(model: nn.Module, half: Half, rows: int, seed: int) -> Consistency:
    """Consistency of the gradients of random images that the model classifies correctly."""
    order = torch.randperm(len(half.labels), generator=torch.Generator().manual_seed(seed))
    sums = _DirectionSums()
    with probing(model) as probe:
        for part in torch.split(order, rows):
            gradients = probe.gradients(half.images[part])
            correct = gradients.targets.cpu() == half.labels[part]
            sums.add(gradients.values.cpu()[correct][: _MOST_IMAGES - sums.count])
            if sums.count == _MOST_IMAGES:
                break
    return sums.consistency()


class _DirectionSums:
    """Sums over images of u = |g| / ‖g‖ (C,H,W), of its channels' means (C,), and of the squares of these."""

    def __init__(self) -> None:
        self.count = 0
        self.directions: Tensor | float = 0.0
        self.squares = 0.0

    def add(self, gradients: Tensor) -> None:
        """Add gradients (N,C,H,W). Those that are zero or not finite are skipped."""
        values = gradients.double().abs()
        norms = values.flatten(1).norm(dim=1)
        usable = norms.isfinite() & (norms > 0)
        directions = values[usable] / norms[usable][:, None, None, None]
        self.count += len(directions)
        self.directions = self.directions + directions.sum(dim=0)
        self.squares += float(_shuffled(directions).sum())

    def consistency(self) -> Consistency:
        """Means over all ordered pairs of two images: Σ_{i≠j} u_i·u_j = ‖Σ u‖² − Σ ‖u_i‖²."""
        pairs = self.count * (self.count - 1)
        if not pairs or not isinstance(self.directions, Tensor):
            return Consistency(math.nan, math.nan, self.count)
        cosine = (float(self.directions.square().sum()) - self.count) / pairs
        shuffled = (float(_shuffled(self.directions[None])) - self.squares) / pairs
        return Consistency(cosine, shuffled, self.count)


def _shuffled(directions: Tensor) -> Tensor:
    """Mean (N,) of u·πu over all permutations π of the positions, the same for all channels."""
    return directions.mean(dim=(2, 3)).square().sum(dim=1) * directions.shape[2:].numel()
