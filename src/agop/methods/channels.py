"""Filter the channels of images, and reduce the channels of an attribution to one map."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from agop.model.probe import at_least_float32


def sum_channels(attribution: Tensor, weights: Tensor | None = None) -> Tensor:
    """Maps (N,H,W), non-negative: Σ_channels |attribution (N,C,H,W)|, with weights (C,H,W) or (N,C,H,W)."""
    values = attribution.abs().to(at_least_float32(attribution.dtype))
    if weights is None:
        return values.sum(dim=1)
    pattern = "nchw,chw->nhw" if weights.ndim == 3 else "nchw,nchw->nhw"
    return torch.einsum(pattern, values, weights.to(values.device, values.dtype))


def filtered(images: Tensor, kernel: Tensor) -> Tensor:
    """Images (N,C,H,W) with each channel filtered by a kernel (3,3), edges mirrored as in scipy.ndimage."""
    images = images.to(at_least_float32(images.dtype))
    channels = images.shape[1]
    weights = kernel.to(images).expand(channels, 1, 3, 3)
    return functional.conv2d(functional.pad(images, (1, 1, 1, 1), mode="replicate"), weights, groups=channels)
