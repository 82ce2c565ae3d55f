"""Relevance rank accuracy: of the k highest pixels, how many lie in a mask of k pixels?"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from agop.metrics.base import located, metric


@metric("Rank")
def rank_accuracy(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """Share (N,) of the k highest pixels inside the mask of k pixels. Equal pixels share the last places."""
    batch = located(maps, masks, signed=signed)
    inside = batch.masks > 0
    size = inside.sum(dim=1)
    highest = batch.maps.topk(max(1, int(size.max())), dim=1).values
    lowest = highest.gather(1, (size[:, None] - 1).clamp(min=0))
    above, level = batch.maps > lowest, batch.maps == lowest
    share = (size - above.sum(dim=1)) / level.sum(dim=1)
    return batch.scores(((above & inside).sum(dim=1) + share * (level & inside).sum(dim=1)) / size)
