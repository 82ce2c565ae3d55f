"""Deletion: how fast the prediction falls as the map's highest pixels are removed."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from agop.metrics.base import metric
from agop.metrics.curves import areas
from agop.model.targets import Target


@metric("Del", higher_is_better=False, needs_model=True)
def deletion(
    model: nn.Module,
    images: Tensor,
    maps: Any,
    target: Target = None,
    steps: int | None = None,
    *,
    fill: float = 0.0,
    batch_size: int | None = None,
) -> Tensor:
    """Area (N,) under the target's softmax probability as pixels are set to `fill` in `steps` steps."""
    return areas(model, images, maps, target, steps, fill, False, batch_size)
