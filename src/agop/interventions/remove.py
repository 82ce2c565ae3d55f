"""Remove: a region of images of the class, filled with the pixels of other images at that place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.interventions.base import Intervention


@dataclass(frozen=True, eq=False)
class Remove(Intervention):
    """Fill a region (H,W) of images of the class with the pixels of other images at that place."""

    name: ClassVar[str] = "remove"
    removes: ClassVar[bool] = True
    region: Tensor

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        return torch.where(self.region.to(donors.device), hosts, donors)
