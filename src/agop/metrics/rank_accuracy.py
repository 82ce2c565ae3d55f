"""Relevance rank accuracy: of the k highest pixels, how many lie in a mask of k pixels?"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from agop.metrics.base import located, metric


@metric("Rank")
def rank_accuracy(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """Share (N,) of the k highest pixels inside the mask of k pixels. Equal pixels share the last places."""
    batch = located(maps, masks, signed=signed)
    inside = (batch.masks > 0).double()
    size = inside.sum(dim=1, keepdim=True)
    ordered = batch.maps.sort(dim=1, descending=True).values
    lowest = ordered.gather(1, (size.long() - 1).clamp(min=0))
    above, level = (batch.maps > lowest).double(), (batch.maps == lowest).double()
    left = size - above.sum(dim=1, keepdim=True)
    share = left / level.sum(dim=1, keepdim=True)
    return batch.scores(((above + share * level) * inside).sum(dim=1) / size[:, 0])
