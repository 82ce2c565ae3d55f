"""Energy-GT: the share of the map's mass inside the mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from agop.metrics.base import located, metric


@metric("Energy-GT")
def energy(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """Σ map inside the mask / Σ map (N,)."""
    batch = located(maps, masks, signed=signed)
    return batch.scores((batch.maps * batch.masks).sum(dim=1, dtype=torch.float64) / batch.totals)
