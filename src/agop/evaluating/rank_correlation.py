"""Spearman's rank correlation of maps."""

from __future__ import annotations

import torch
from torch import Tensor


def rank_correlation(maps: Tensor, others: Tensor) -> Tensor:
    """Spearman's correlation (N,) of each map with the other one of the image, both (N,H,W); NaN if one is constant."""
    pairs = zip(maps.flatten(1).cpu(), others.flatten(1).cpu(), strict=True)
    return torch.stack([_correlation(_ranks(a), _ranks(b)) for a, b in pairs])


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    a, b = a - a.mean(), b - b.mean()
    return torch.dot(a, b) / (torch.dot(a, a) * torch.dot(b, b)).sqrt()


def _ranks(values: Tensor) -> Tensor:
    """Ranks (P,) in float64; equal values share their mean rank, and all are NaN if one value isn't finite."""
    if not bool(values.isfinite().all()):
        return torch.full_like(values, torch.nan, dtype=torch.float64)
    places: Tensor
    counts: Tensor
    _, places, counts = torch.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2).double()[places]
