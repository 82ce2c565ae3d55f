"""Transplant: a region of images of the class, pasted into other images at the same place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.interventions.base import Intervention


@dataclass(frozen=True, eq=False)
class Transplant(Intervention):
    """Paste a region (H,W) of images of the class into other images at the same place."""

    name: ClassVar[str] = "transplant"
    region: Tensor

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        return torch.where(self.region.to(hosts.device), donors, hosts)
