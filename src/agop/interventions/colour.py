"""Colour: mean and standard deviation of each channel, swapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.interventions.base import Intervention

# Below this standard deviation a channel is constant and has no contrast to scale.
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class Colour(Intervention):
    """Give other images the mean and standard deviation per channel of images of the class: colour and contrast."""

    name: ClassVar[str] = "colour"

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        (mean, spread), (new_mean, new_spread) = _moments(hosts), _moments(donors)
        return (hosts - mean) / spread.clamp_min(_CONSTANT) * new_spread + new_mean


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (N,C,1,1)."""
    return images.mean(dim=(2, 3), keepdim=True), images.std(dim=(2, 3), keepdim=True, unbiased=False)
