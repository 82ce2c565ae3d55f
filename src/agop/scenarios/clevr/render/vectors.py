"""Arithmetic on rows of vectors (3,N): components first, so that NumPy runs along memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Point = tuple[float, float, float]


def dot(a: Floats, b: Floats) -> Floats:
    """The inner products (…) of vectors (3,…)."""
    # Not a matrix product: its sums may come in another order on another machine or with more threads.
    product: Floats = a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    return product


def unit(a: Floats) -> Floats:
    """The vectors (3,…) scaled to length 1."""
    scaled: Floats = a / np.sqrt(dot(a, a))
    return scaled


def facing(normals: Floats, towards: Floats) -> Floats:
    """Cosines (…) of the angles between unit vectors (3,…), 0 where they turn away."""
    return np.maximum(dot(normals, towards), 0)
