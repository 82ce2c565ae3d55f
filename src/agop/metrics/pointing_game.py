"""Pointing game: is the map's peak inside the mask?"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from agop.metrics.base import located, metric


@metric("PG")
def pointing_game(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """1 if the map's highest pixel is inside the mask, else 0 (N,). For several highest pixels, the share inside."""
    batch = located(maps, masks, signed=signed)
    peak = batch.maps == batch.maps.amax(dim=1, keepdim=True)
    return batch.scores((peak & batch.inside).sum(dim=1) / peak.sum(dim=1))
