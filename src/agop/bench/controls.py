"""Controls: maps that know nothing of the model. A method that is no better shows where things stand, no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods import Job, Method

# The standard deviation of the blob, as a share of the picture's side.
_BLOB = 0.25


@dataclass(frozen=True)
class FixedMap(Method):
    """One map (H,W) for every image."""

    needs_model: ClassVar[bool] = False
    name: str  # type: ignore[misc]  # not a class's name: it does not register
    map: Tensor

    def maps(self, job: Job) -> Tensor:
        """The map, for each image."""
        return self.map.expand(len(job.images), -1, -1)


def centre(height: int, width: int) -> FixedMap:
    """A Gaussian blob in the middle."""
    rows, columns = ((torch.arange(side) + 0.5) / side - 0.5 for side in (height, width))
    return FixedMap("centre", torch.exp(-(rows[:, None] ** 2 + columns**2) / (2 * _BLOB**2)))


def mean_mask(masks: Tensor) -> FixedMap:
    """The mean of the training data's masks (N,H,W)."""
    return FixedMap("mean-mask", masks.double().mean(dim=0).float())
