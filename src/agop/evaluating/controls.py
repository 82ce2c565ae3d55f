"""The controls that are one map for every image; `random` is a method like any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods import Job, Method

# Standard deviation of the blob, relative to the image's side.
_BLOB = 0.25


@dataclass(frozen=True)
class FixedMap(Method):
    """One map (H,W) for every image."""

    needs_model: ClassVar[bool] = False
    name: str  # type: ignore[misc]  # a field of the instance: the class itself isn't registered
    map: Tensor

    def maps(self, job: Job) -> Tensor:
        """Maps (N,H,W): the same one for each image."""
        return self.map.expand(len(job.images), -1, -1)


def centre(masks: Tensor) -> FixedMap:
    """A Gaussian blob in the middle, of the size of the masks (N,H,W)."""
    rows, columns = ((torch.arange(side) + 0.5) / side - 0.5 for side in masks.shape[1:])
    return FixedMap("centre", torch.exp(-(rows[:, None] ** 2 + columns**2) / (2 * _BLOB**2)))


def mean_mask(masks: Tensor) -> FixedMap:
    """The mean of the masks (N,H,W) of a bench's training data, or of the evaluated images."""
    return FixedMap("mean-mask", masks.double().mean(dim=0).float())


# Control → the map of it, from masks (N,H,W).
FIXED_MAPS: dict[str, Callable[[Tensor], FixedMap]] = {"centre": centre, "mean-mask": mean_mask}
