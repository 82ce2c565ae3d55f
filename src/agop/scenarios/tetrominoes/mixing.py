"""Patterns and backgrounds become images, and images become splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agop.scenarios.base import Split, Splits
from agop.scenarios.tetrominoes.patterns import Floats


def smoothed(images: Floats, sigma: float) -> Floats:
    """Images (N,S,S) after a Gaussian filter, truncated at four sigma, with mirrored edges."""
    matrix = _smoothing(images.shape[-1], sigma).astype(images.dtype)
    return np.asarray(matrix @ images @ matrix.T)


def _smoothing(side: int, sigma: float) -> NDArray[np.float64]:
    """Matrix (side,side) of the filter along one side."""
    reach = int(4 * sigma + 0.5)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    matrix = np.zeros((side, side))
    for row in range(side):
        mirrored = (row + offsets) % (2 * side)
        np.add.at(matrix[row], np.minimum(mirrored, 2 * side - 1 - mirrored), weights / weights.sum())
    return matrix


def mixed(patterns: Floats, noise: Floats, alpha: float, *, product: bool) -> Floats:
    """Signal and noise, each normalised over all images, mixed, then scaled to at most 1."""
    noise = noise / _norm(noise)
    if product:
        carrier = 1 - alpha * patterns
        images = carrier / _norm(carrier) * noise
    else:
        images = alpha * patterns / _norm(patterns) + (1 - alpha) * noise
    return np.asarray(images / np.abs(images).max())


def _norm(values: Floats) -> float:
    """Frobenius norm. float64: a float32 sum of 41 million squares loses digits."""
    return float(np.sqrt(np.square(values).sum(dtype=np.float64)))


def stratified(count: int, random: np.random.Generator) -> list[NDArray[np.int64]]:
    """Indices of training, validation and test images, 80/10/10, where labels alternate between two classes.

    Pairs are shuffled, so every split has as many images of each class.
    """
    pairs = random.permutation(count // 2)
    order = np.stack([2 * pairs, 2 * pairs + 1], axis=1).reshape(-1)
    return np.split(order, [8 * len(order) // 10, 9 * len(order) // 10])


def splits(
    images: Floats,
    labels: NDArray[np.int64],
    truths: Mapping[str, NDArray[Any]],
    main: str,
    parts: Sequence[NDArray[np.int64]],
) -> Splits:
    """The splits of the images (N,S,S). `truths` are masks (N,S,S) by kind, `main` is the kind in `Split.masks`."""
    train, validation, test = (
        Split(
            torch.from_numpy(images[part]).float()[:, None],
            torch.from_numpy(labels[part]),
            torch.from_numpy(truths[main][part]),
            {kind: torch.from_numpy(truth[part]) for kind, truth in truths.items() if kind != main},
        )
        for part in parts
    )
    return train, validation, test
