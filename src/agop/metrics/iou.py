"""IoU of the map, min–max normalised and cut, with the mask; its mean is the paper's mIoU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from agop.metrics.base import located, metric


@metric("mIoU")
def iou(maps: Any, masks: Any, *, cut: float = 0.5, signed: bool = False) -> Tensor:
    """Intersection over union (N,) of the mask and the pixels at or above `cut` of the map's range.

    A map of one value has no range: NaN. With signed masks the intersection counts negative pixels negatively.
    """
    batch = located(maps, masks, signed=signed)
    low, high = batch.maps.amin(dim=1, keepdim=True), batch.maps.amax(dim=1, keepdim=True)
    chosen = batch.maps - low >= cut * (high - low)
    inside = (chosen * batch.masks).sum(dim=1, dtype=torch.float64)
    union = (chosen | (batch.truth != 0)).sum(dim=1)
    return torch.where((high > low)[:, 0], batch.scores(inside / union), torch.nan)
