"""Sums of the patch matrix S = mean over samples of Σ_p δ_p δ_pᵀ, where δ_p is the gradient at a layer's position p."""

from __future__ import annotations

import torch
from torch import Tensor

from agop.statistic import eigenvectors

# Values in float64 at once: they stay in the cache, whatever the batch size.
_CHUNK_VALUES = 2**17
# Matrices per class take up to 128 MiB: 28 classes of a patch embedding with 768 channels, 4,096 of 64 filters.
_MOST_BYTES = 2**27
# Σ_p δ_p δ_pᵀ (D,D) in float64 of the samples of each group.
PatchSums = dict[int, Tensor]


def patch_sums(deltas: Tensor, groups: Tensor) -> PatchSums:
    """Sums over samples and positions of δ δᵀ, from deltas (N,D,h,w) of samples in these groups (N,)."""
    present = sorted(set(groups.tolist()))
    if len(present) == 1:
        return {present[0]: _gram(deltas)}
    return {group: _gram(deltas[groups == group]) for group in present}


def _gram(deltas: Tensor) -> Tensor:
    # Apple's GPUs have no float64.
    device = torch.device("cpu") if deltas.device.type == "mps" else deltas.device
    channels = deltas.shape[1]
    total = torch.zeros(channels, channels, dtype=torch.float64, device=device)
    for part in torch.split(deltas, max(1, _CHUNK_VALUES // deltas[0].numel())):
        rows = part.permute(0, 2, 3, 1).reshape(-1, channels).to(device, torch.float64)
        total.addmm_(rows.T, rows)
    return total


def square_root(matrix: Tensor) -> Tensor:
    """R (D,D) with RᵀR = S, for a patch matrix S."""
    return torch.from_numpy(eigenvectors.square_root(matrix.cpu().numpy())).to(matrix.device)


def add_patch_sums(sums: Tensor | None, more: PatchSums, groups: int) -> Tensor | None:
    """The sums (G,D,D) with more samples added in place. Created on first use; one for all groups if they are large."""
    for group, gram in more.items():
        if sums is None:
            kept = groups if groups * gram.nbytes <= _MOST_BYTES else 1
            sums = torch.zeros(kept, *gram.shape, dtype=torch.float64, device=gram.device)
        sums[group if len(sums) == groups else 0].add_(gram.to(sums.device))
    return sums
