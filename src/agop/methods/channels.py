"""Reduces the channels of an attribution to one map."""

from __future__ import annotations

import torch
from torch import Tensor

from agop.model.probe import at_least_float32


def sum_channels(attribution: Tensor, weights: Tensor | None = None) -> Tensor:
    """Maps (N,H,W), non-negative: the sum over channels of |attribution (N,C,H,W)|, weighted (C,H,W)."""
    values = attribution.abs().to(at_least_float32(attribution.dtype))
    if weights is None:
        return values.sum(dim=1)
    return torch.einsum("nchw,chw->nhw", values, weights.to(values.device, values.dtype))
