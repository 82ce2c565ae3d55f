"""IoU of the mask and the thresholded, min–max normalised map. Its mean is the paper's mIoU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from agop.metrics.base import located, metric


@metric("mIoU")
def iou(maps: Any, masks: Any, *, cut: float = 0.5, signed: bool = False) -> Tensor:
    """Intersection over union (N,) of the mask and the pixels at or above `cut` of the map's range.

    NaN for a constant map, which has no range. With signed masks, negative pixels count negatively in the intersection.
    """
    batch = located(maps, masks, signed=signed)
    low, high = batch.maps.amin(dim=1, keepdim=True), batch.maps.amax(dim=1, keepdim=True)
    selected = batch.maps - low >= cut * (high - low)
    inside = (selected * batch.masks).sum(dim=1, dtype=torch.float64)
    union = (selected | (batch.truth != 0)).sum(dim=1)
    return torch.where((high > low)[:, 0], batch.scores(inside / union), torch.nan)
