"""Average precision: how well the map ranks the mask's pixels, without a threshold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from agop.metrics.base import located, metric


@metric("AP")
def average_precision(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """Σ over thresholds of (increase in recall) · precision (N,). Pixels of equal value share a threshold."""
    batch = located(maps, masks, signed=signed)
    values, order = batch.maps.sort(dim=1, descending=True)
    hits = batch.inside.gather(1, order).cumsum(dim=1).double()
    ranks = torch.arange(1, values.shape[1] + 1, device=values.device)
    # Pixels of equal value share the precision at the last one of them: carry its place backwards.
    last = torch.ones_like(values, dtype=torch.bool)
    last[:, :-1] = values[:, :-1] != values[:, 1:]
    place = torch.where(last, ranks - 1, values.shape[1]).flip(1).cummin(dim=1).values.flip(1)
    precision = (hits / ranks).gather(1, place)
    increase = torch.diff(hits, dim=1, prepend=torch.zeros_like(hits[:, :1]))
    return batch.scores((increase * precision).sum(dim=1) / hits[:, -1])
