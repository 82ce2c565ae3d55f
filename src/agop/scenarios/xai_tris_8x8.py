"""XAI-TRIS, 8×8: tetrominoes in noise, with masks of the tetrominoes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agop.networks import CNN8by8
from agop.scenarios.base import Scenario, Split, Splits, register, registry

Floats = NDArray[np.float64]
_SIDE, _IMAGES = 8, 10_000
_T = np.array([[1, 0], [1, 1], [1, 0]], dtype=np.float64)
_L = np.array([[1, 0], [1, 0], [1, 1]], dtype=np.float64)
_PLACES = ((_T, 1, 1), (_L, 4, 5))
BACKGROUNDS = ("uncorrelated", "correlated")
# Weight of the signal in an image, for uncorrelated and for correlated backgrounds.
_ALPHA = {
    "linear": (0.18, 0.0125),
    "multiplicative": (0.7, 0.1),
    "translations_rotations": (0.65, 0.2),
    "xor": (0.35, 0.15),
}


def xai_tris(scenario: str = "linear", background: str = "uncorrelated", seed: int = 0, masks: str = "true") -> Splits:
    """Training, validation and test data: 8,000, 1,000 and 1,000 images, half of each class.

    With masks="signed", the masks of xor keep the shapes' signs (−1, 0, 1), as in the public generator. Scored as
    ground truth, opposite signs cancel: this explains the negative scores in the paper's XOR table.
    """
    return registry.get(scenario).splits(background, seed, masks)


def _make(scenario: str, background: str, seed: int, masks: str) -> Splits:
    random = np.random.default_rng(seed)
    labels = np.arange(_IMAGES) % 2
    patterns = _PATTERNS[scenario](labels, random)
    noise = random.normal(0, 0.5, patterns.shape)
    if background == "correlated":
        noise = _SMOOTHING @ noise @ _SMOOTHING.T
    alpha = _ALPHA[scenario][BACKGROUNDS.index(background)]
    images = _mixed(patterns, noise, alpha, product=scenario == "multiplicative")
    truth = patterns.astype(np.int8) if masks == "signed" else patterns != 0
    return _splits(images, labels, truth, random)


def _smoothing(sigma: float) -> Floats:
    """Matrix (8,8) of a Gaussian filter along one side, truncated at four sigma, with mirrored edges."""
    reach = int(4 * sigma + 0.5)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    matrix = np.zeros((_SIDE, _SIDE))
    for row in range(_SIDE):
        mirrored = (row + offsets) % (2 * _SIDE)
        np.add.at(matrix[row], np.minimum(mirrored, 2 * _SIDE - 1 - mirrored), weights / weights.sum())
    return matrix


_SMOOTHING = _smoothing(sigma=3)


def _fixed(labels: NDArray[np.int64], _: np.random.Generator) -> Floats:
    """Class 0 has the T, class 1 the L, each at its fixed position."""
    return np.stack([_field(*place) for place in _PLACES])[labels]


def _moving(labels: NDArray[np.int64], random: np.random.Generator) -> Floats:
    """The class's shape, rotated by a multiple of 90°, at any position where it fits."""
    fields_by_class = [_all_fields(shape) for shape in (_T, _L)]
    turns = random.integers(0, 4, len(labels))
    positions = random.random(len(labels))
    patterns = np.empty((len(labels), _SIDE, _SIDE))
    for label in (0, 1):
        for turn in range(4):
            selected = (labels == label) & (turns == turn)
            fields = fields_by_class[label][turn]
            patterns[selected] = fields[(positions[selected] * len(fields)).astype(int)]
    return patterns


def _signed(labels: NDArray[np.int64], random: np.random.Generator) -> Floats:
    """Both shapes, each with a random sign: equal signs are class 0, unequal signs class 1."""
    first = random.choice([-1.0, 1.0], len(labels))
    second = np.where(labels == 0, first, -first)
    t, l_shape = (_field(*place) for place in _PLACES)
    return first[:, None, None] * t + second[:, None, None] * l_shape


_PATTERNS: dict[str, Callable[[NDArray[np.int64], np.random.Generator], Floats]] = {
    "linear": _fixed,
    "multiplicative": _fixed,
    "translations_rotations": _moving,
    "xor": _signed,
}


def _field(shape: Floats, row: int, column: int) -> Floats:
    """A field (8,8) with the shape at that position."""
    field = np.zeros((_SIDE, _SIDE))
    field[row : row + shape.shape[0], column : column + shape.shape[1]] = shape
    return field


def _all_fields(shape: Floats) -> list[Floats]:
    """All fields (P,8,8) with the shape, for each of its four rotations."""
    rotated = [np.rot90(shape, turn) for turn in range(4)]
    return [
        np.stack([_field(s, r, c) for r in range(_SIDE - s.shape[0] + 1) for c in range(_SIDE - s.shape[1] + 1)])
        for s in rotated
    ]


def _mixed(patterns: Floats, noise: Floats, alpha: float, product: bool) -> Floats:
    """Signal and noise, each normalised over all images, mixed, then scaled to at most 1."""
    noise = noise / np.linalg.norm(noise)
    if product:
        carrier = 1 - alpha * patterns
        images = carrier / np.linalg.norm(carrier) * noise
    else:
        images = alpha * patterns / np.linalg.norm(patterns) + (1 - alpha) * noise
    scaled: Floats = images / np.abs(images).max()
    return scaled


def _splits(images: Floats, labels: NDArray[np.int64], masks: NDArray[Any], random: np.random.Generator) -> Splits:
    """80/10/10, stratified: labels alternate, so shuffled pairs keep the classes balanced."""
    pairs = random.permutation(len(labels) // 2)
    order = np.stack([2 * pairs, 2 * pairs + 1], axis=1).reshape(-1)
    train, validation, test = (
        Split(
            torch.from_numpy(images[part]).float()[:, None],
            torch.from_numpy(labels[part]),
            torch.from_numpy(masks[part]),
        )
        for part in np.split(order, [8 * len(order) // 10, 9 * len(order) // 10])
    )
    return train, validation, test


for _name in _ALPHA:
    register(
        Scenario(
            _name,
            "xai-tris",
            partial(_make, _name),
            CNN8by8,
            layer="conv3",
            backgrounds=BACKGROUNDS,
            masks=("true", "signed"),
            classes=("equal signs", "unequal signs") if _name == "xor" else ("T", "L"),
        )
    )
