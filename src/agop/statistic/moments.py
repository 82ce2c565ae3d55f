"""Moments of images: per-pixel mean and standard deviation, from which reference images can be drawn."""

from __future__ import annotations

import torch
from torch import Tensor

# Values in float64 at once: they stay in the cache, whatever the batch size.
_CHUNK_VALUES = 2**17
# Number of reference images to draw.
_DRAWN = 200


def moment_sums(images: Tensor) -> Tensor:
    """Sums (2,C,H,W) in float64 of x and x² over images (N,C,H,W)."""
    # Apple's GPUs have no float64.
    device = torch.device("cpu") if images.device.type == "mps" else images.device
    sums = torch.zeros(2, *images.shape[1:], dtype=torch.float64, device=device)
    for part in torch.split(images.detach(), max(1, _CHUNK_VALUES // images.shape[1:].numel())):
        exact = part.to(device, torch.float64, copy=True)
        sums[0].add_(exact.sum(dim=0))
        sums[1].add_(exact.square_().sum(dim=0))
    return sums


def mean_and_deviation(sums: Tensor, count: int) -> Tensor | None:
    """Mean and standard deviation (2,C,H,W) in float32, from the sums of x and x². None if they aren't finite."""
    mean, squares = sums / count
    # Rounding may make the variance of a constant pixel negative.
    deviation = (squares - mean.square()).clamp_min(0).sqrt()
    moments = torch.stack([mean, deviation]).float()
    # A model that clamps its input has finite gradients also at an infinite image.
    return moments if bool(moments.isfinite().all()) else None


def sums_from_moments(moments: Tensor, count: int) -> Tensor:
    """Sums (2,C,H,W) in float64 of x and x²: the inverse of `mean_and_deviation` up to rounding."""
    mean, deviation = moments.double()
    return torch.stack([mean, mean.square() + deviation.square()]) * count


def drawn_images(moments: Tensor) -> Tensor:
    """Images (200,C,H,W), float32, of independent normal values with this mean and standard deviation (2,C,H,W)."""
    mean, deviation = moments
    generator = torch.Generator("cpu").manual_seed(0)
    noise = torch.randn((_DRAWN, *mean.shape), generator=generator, dtype=torch.float32, device="cpu")
    return noise.mul_(deviation).add_(mean)
