"""Where the shapes are: the pattern of each image, 0 outside its shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
_T = np.array([[1, 0], [1, 1], [1, 0]], dtype=np.float32)
_L = np.array([[1, 0], [1, 0], [1, 1]], dtype=np.float32)
# Top-left corners of T and L, in blocks.
_CORNERS = ((1, 1), (4, 5))


@dataclass(frozen=True)
class Canvas:
    """Images of `side` pixels. The four blocks of a shape have `scale` pixels a side."""

    side: int
    scale: int

    def shapes(self) -> tuple[Floats, Floats]:
        """T (3·scale, 2·scale) and L, upright."""
        t, l_shape = (np.kron(shape, np.ones((self.scale, self.scale), np.float32)) for shape in (_T, _L))
        return t, l_shape

    def fields(self) -> Floats:
        """Two patterns (2,side,side): T at its place, and L at its place."""
        fields = np.zeros((2, self.side, self.side), np.float32)
        for field, shape, corner in zip(fields, self.shapes(), _CORNERS, strict=True):
            top, left = (self.scale * start for start in corner)
            field[top : top + shape.shape[0], left : left + shape.shape[1]] = shape
        return fields


def _fixed(canvas: Canvas, labels: NDArray[np.int64], _: np.random.Generator) -> Floats:
    """Class 0 has the T, class 1 the L, each at its fixed position."""
    return np.asarray(canvas.fields()[labels])


def _moving(canvas: Canvas, labels: NDArray[np.int64], random: np.random.Generator) -> Floats:
    """The class's shape, rotated by a multiple of 90°, at any position where it fits."""
    turns = random.integers(0, 4, len(labels))
    positions = random.random(len(labels))
    patterns = np.empty((len(labels), canvas.side, canvas.side), np.float32)
    for label, upright in enumerate(canvas.shapes()):
        for turn in range(4):
            selected = (labels == label) & (turns == turn)
            patterns[selected] = _placed(np.rot90(upright, turn), positions[selected], canvas.side)
    return patterns


def _placed(shape: Floats, positions: NDArray[np.float64], side: int) -> Floats:
    """Patterns (N,side,side) with the shape. Positions in 0..1 are all places where it fits, in reading order."""
    rows, columns = (side - length + 1 for length in shape.shape)
    corners = divmod((positions * rows * columns).astype(int), columns)
    # Every pixel reads its value from the shape with a margin of one pixel, which stands for all pixels outside.
    padded = np.pad(shape, 1)
    row, column = (
        np.clip(np.arange(side) - start[:, None], -1, length) + 1
        for start, length in zip(corners, shape.shape, strict=True)
    )
    return np.asarray(padded[row[:, :, None], column[:, None, :]])


def _signed(canvas: Canvas, labels: NDArray[np.int64], random: np.random.Generator) -> Floats:
    """Both shapes, each with a random sign: equal signs are class 0, unequal signs class 1."""
    first = random.choice([-1.0, 1.0], len(labels)).astype(np.float32)
    second = np.where(labels == 0, first, -first)
    t, l_shape = canvas.fields()
    return np.asarray(first[:, None, None] * t + second[:, None, None] * l_shape)


# Scenario → patterns (N,side,side) of the labels.
PATTERNS: dict[str, Callable[[Canvas, NDArray[np.int64], np.random.Generator], Floats]] = {
    "linear": _fixed,
    "multiplicative": _fixed,
    "translations_rotations": _moving,
    "xor": _signed,
}
