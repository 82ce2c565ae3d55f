"""Transplant elsewhere: a patch of images of the class, pasted into other images at random places."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from agop.interventions.base import Intervention


@dataclass(frozen=True, eq=False)
class TransplantElsewhere(Intervention):
    """Paste a square patch of each image of the class into another image at a random place.

    `corners` (N,2) are the top left corners of the patches in the donors. The seed chooses the places, unless `shares`
    (N,2) says how far down and right they are, in 0..1.
    """

    name: ClassVar[str] = "transplant-elsewhere"
    corners: Tensor
    side: int
    seed: int = 0
    shares: Tensor | None = None

    def of(self, pairs: slice) -> TransplantElsewhere:
        return replace(self, corners=self.corners[pairs], shares=self._shares(len(self.corners))[pairs])

    def _shares(self, count: int) -> Tensor:
        if self.shares is not None:
            return self.shares
        return torch.rand(count, 2, generator=torch.Generator().manual_seed(self.seed))

    def places(self, count: int, height: int, width: int) -> Tensor:
        """Top left corners (N,2) of the places in the hosts."""
        return (self._shares(count) * torch.tensor([height - self.side + 1, width - self.side + 1])).long()

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        count, _, height, width = hosts.shape
        images = torch.arange(count)[:, None, None]
        rows, columns = _pixels(self.corners, self.side)
        patches = donors[images, :, rows, columns]  # (N,side,side,C)
        rows, columns = _pixels(self.places(count, height, width), self.side)
        result = hosts.clone()
        result[images, :, rows, columns] = patches
        return result


def _pixels(corners: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Rows (N,side,1) and columns (N,1,side) of the patches at these corners (N,2)."""
    steps = torch.arange(side)
    return (corners[:, :1] + steps)[:, :, None], (corners[:, 1:] + steps)[:, None, :]
