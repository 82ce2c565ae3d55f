"""Insertion: how fast the prediction rises as the map's highest pixels are restored."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from agop.metrics.base import metric
from agop.metrics.curves import areas
from agop.model.targets import Target


@metric("Ins", higher_is_better=True, needs_model=True)
def insertion(
    model: nn.Module,
    images: Tensor,
    maps: Any,
    target: Target = None,
    steps: int | None = None,
    *,
    fill: float = 0.0,
    batch_size: int | None = None,
) -> Tensor:
    """Area (N,) under the target's softmax probability as pixels are restored from `fill` in `steps` steps."""
    return areas(model, images, maps, target, steps, fill, True, batch_size)
