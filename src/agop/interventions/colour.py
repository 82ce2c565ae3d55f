"""Colour: the levels of each channel, swapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.interventions.base import Intervention

# Share of a channel's pixels below its darkest level, and above its brightest.
_ENDS = 0.005
# Levels of a channel that describe its colour and contrast.
_LEVELS = (_ENDS, 0.05, 0.5, 0.95, 1 - _ENDS)
# A channel with a smaller range is constant and has no contrast to scale.
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class Colour(Intervention):
    """Give other images the darkest and the brightest level of each channel of images of the class."""

    name: ClassVar[str] = "colour"

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        (low, high), (new_low, new_high) = (_levels(images, (_ENDS, 1 - _ENDS)) for images in (hosts, donors))
        contrast = high - low
        scale = torch.where(contrast < _CONSTANT, 1, (new_high - new_low) / contrast.clamp_min(_CONSTANT))
        return (hosts - low[:, :, None, None]) * scale[:, :, None, None] + new_low[:, :, None, None]

    def statistics(self, images: Tensor) -> Tensor:
        """Levels of each channel, and their differences between channels: a cast shifts black and white points."""
        levels = torch.stack(_levels(images, _LEVELS), dim=2)  # (N,C,L)
        channels = range(images.shape[1])
        differences = [levels[:, a] - levels[:, b] for a in channels for b in channels if a < b]
        return torch.cat([levels.flatten(1), *differences], dim=1)


def _levels(images: Tensor, shares: tuple[float, ...]) -> tuple[Tensor, ...]:
    """Values (N,C) below which these shares of a channel's pixels are."""
    values = images.flatten(2).sort(dim=2).values
    count = values.shape[2]
    return tuple(values[:, :, min(count - 1, int(share * count))] for share in shares)
