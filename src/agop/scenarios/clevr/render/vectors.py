"""Arithmetic on arrays of vectors (3,N). Components come first, so that NumPy's loops run along memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Point = tuple[float, float, float]


def dot(a: Floats, b: Floats) -> Floats:
    """Inner products (…) of vectors (3,…)."""
    # Not a matrix product: its order of summation depends on the machine and the number of threads.
    product: Floats = a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    return product


def unit(a: Floats) -> Floats:
    """Vectors (3,…) scaled to length 1."""
    scaled: Floats = a / np.sqrt(dot(a, a))
    return scaled


def positive_cosine(a: Floats, b: Floats) -> Floats:
    """Cosines (…) of the angles between unit vectors (3,…), 0 for angles above 90°."""
    return np.maximum(dot(a, b), 0)
