"""Border: a frame, swapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.errors import InputError
from agop.interventions.base import Intervention

# Variance that is added before the logarithm: a frame of one colour has none.
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class Border(Intervention):
    """Give other images the frame of images of the class: `width` pixels, `inset` pixels away from the edge."""

    name: ClassVar[str] = "border"
    width: int
    inset: int = 0

    def region(self, height: int, width: int) -> Tensor:
        """The frame (H,W)."""
        if min(height, width) <= 2 * (self.width + self.inset):
            raise InputError(f"a frame of {self.width} px doesn't fit into {height}×{width} px: give a smaller width")
        rows, columns = torch.arange(height)[:, None], torch.arange(width)
        to_edge = torch.minimum(
            torch.minimum(rows, height - 1 - rows).expand(-1, width),
            torch.minimum(columns, width - 1 - columns).expand(height, -1),
        )
        return (to_edge >= self.inset) & (to_edge < self.inset + self.width)

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        return torch.where(self.region(*hosts.shape[2:]).to(hosts.device), donors, hosts)

    def statistics(self, images: Tensor) -> Tensor:
        """Mean and logarithm of the variance of the frame, for each channel."""
        frame = images[:, :, self.region(*images.shape[2:])]
        return torch.cat([frame.mean(dim=2), (frame.var(dim=2) + _CONSTANT).log()], dim=1)
