"""Average precision: how well the map ranks the mask's pixels, without a cut."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from agop.metrics.base import located, metric


@metric("AP")
def average_precision(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """Σ over thresholds of (rise in recall) · precision (N,). Pixels of equal value enter together."""
    batch = located(maps, masks, signed=signed)
    values, order = batch.maps.sort(dim=1, descending=True)
    hits = batch.inside.gather(1, order).cumsum(dim=1).double()
    ranks = torch.arange(1, values.shape[1] + 1, device=values.device)
    # A pixel's precision is that at the last pixel of its value; walking back from there, it is carried.
    last = torch.ones_like(values, dtype=torch.bool)
    last[:, :-1] = values[:, :-1] != values[:, 1:]
    place = torch.where(last, ranks - 1, values.shape[1]).flip(1).cummin(dim=1).values.flip(1)
    precision = (hits / ranks).gather(1, place)
    rise = torch.diff(hits, dim=1, prepend=torch.zeros_like(hits[:, :1]))
    return batch.scores((rise * precision).sum(dim=1) / hits[:, -1])
