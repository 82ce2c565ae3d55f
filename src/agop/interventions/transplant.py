"""Transplant: a region of images of the class, pasted into other images at the same place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, normalize, pad

from agop.interventions.base import Intervention

# A smaller norm of the fine structure is rounding: the region is flat.
FLAT = 1e-4


@dataclass(frozen=True, eq=False)
class Transplant(Intervention):
    """Paste a region (H,W) of images of the class into other images at the same place."""

    name: ClassVar[str] = "transplant"
    region: Tensor

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        return torch.where(self.region.to(hosts.device), donors, hosts)

    def statistics(self, images: Tensor) -> Tensor:
        """The fine structure of the region, with norm 1.

        So a sum of them is a correlation with a pattern. Its amplitude doesn't count: translucent text is strong on a
        dark background and faint on a bright one.
        """
        return normalize(fine_structure(images)[:, :, self.region].flatten(1), dim=1, eps=FLAT)


def fine_structure(images: Tensor) -> Tensor:
    """Each pixel of images (N,C,H,W) minus the mean of 3×3 pixels."""
    return images - avg_pool2d(pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
