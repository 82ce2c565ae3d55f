"""Moments of images, from which reference images can be drawn, and the mean direction of gradients."""

from __future__ import annotations

import torch
from torch import Tensor

# Values in float64 at once: they stay in the cache, whatever the batch size.
_CHUNK_VALUES = 2**17
# Number of reference images to draw.
_DRAWN = 200


def moment_sums(images: Tensor, gradients: Tensor) -> Tensor:
    """Sums (3,C,H,W) in float64 of x, x² and |g| / ‖g‖ over images and their gradients, both (N,C,H,W)."""
    # Apple's GPUs have no float64.
    device = torch.device("cpu") if images.device.type == "mps" else images.device
    sums = torch.zeros(3, *images.shape[1:], dtype=torch.float64, device=device)
    rows = max(1, _CHUNK_VALUES // images.shape[1:].numel())
    for part, gradient in zip(torch.split(images.detach(), rows), torch.split(gradients, rows), strict=True):
        exact = part.to(device, torch.float64, copy=True)
        sums[0] += exact.sum(dim=0)
        sums[1] += exact.square_().sum(dim=0)
        sums[2] += _directions(gradient.to(device, torch.float64)).sum(dim=0)
    return sums


def _directions(gradients: Tensor) -> Tensor:
    """|g| / ‖g‖ of each gradient (N,C,H,W); 0 for a gradient of zeros."""
    norms = gradients.flatten(1).norm(dim=1)[:, None, None, None]
    return gradients.abs() / torch.where(norms > 0, norms, 1)


def consistency(direction: Tensor, count: int) -> float:
    """Mean cosine of |g| between two samples, 0 if positions are shuffled and 1 if all are equal.

    From the mean direction (C,H,W) of `count` samples: the mean of u_i · u_j over pairs i ≠ j is
    (count · ‖mean u‖² − 1) / (count − 1), and shuffling the positions of each channel leaves its mean.
    """
    if count < 2:
        return 0.0
    direction = direction.double()
    cosine = (count * float(direction.square().sum()) - 1) / (count - 1)
    chance = float((direction.mean(dim=(1, 2)).square() * direction[0].numel()).sum())
    return (cosine - chance) / (1 - chance) if chance < 1 else 0.0


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
