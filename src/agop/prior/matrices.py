"""Matrices in NumPy: a square root of the patch matrix, and top eigenvectors. Reports use them without torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Eigenvectors:
    """Unit vectors (K,C,H,W) with eigenvalues above 0, the largest first, and their shares (K,) of the trace."""

    vectors: Array
    shares: Array

    @property
    def percents(self) -> list[str]:
        """The shares in percent: "37 %", "5.2 %", "< 0.01 %"."""
        values = [100 * float(share) for share in self.shares]
        return ["< 0.01 %" if v < 0.01 else f"{v:.0f} %" if v >= 9.95 else f"{v:.2g} %" for v in values]


def patch_eigenvectors(patch_matrix: NDArray[Any], weight: NDArray[Any], count: int) -> Eigenvectors:
    """At most `count` top eigenvectors of WᵀSW, from S (D,D) and the weights W (D,C,kh,kw) of a convolution."""
    rows = square_root(patch_matrix) @ weight.reshape(len(weight), -1).astype(np.float64)
    return _eigenvectors(rows, weight.shape[1:], count)


def sketch_eigenvectors(sketch: NDArray[Any], samples: int, diagonal: NDArray[Any], count: int) -> Eigenvectors:
    """At most `count` top eigenvectors of BᵀB/samples, from a sketch B (ℓ,C,H,W). The trace is that of M."""
    rows = sketch.reshape(len(sketch), -1).astype(np.float64) / samples**0.5
    return _eigenvectors(rows, diagonal.shape, count, float(diagonal.sum()))


def square_root(matrix: NDArray[Any]) -> Array:
    """R (D,D) with RᵀR = S, for a patch matrix S."""
    values, vectors = np.linalg.eigh(matrix)
    # Rounding may make the smallest eigenvalues negative.
    return np.asarray(np.sqrt(values.clip(0))[:, None] * vectors.T)


def _eigenvectors(rows: Array, shape: tuple[int, ...], count: int, trace: float | None = None) -> Eigenvectors:
    """The right singular vectors of rows (R,…), as arrays of a shape (C,H,W)."""
    _, singular, vectors = np.linalg.svd(rows, full_matrices=False)
    values = np.square(singular)
    # Smaller eigenvalues are rounding errors.
    number = min(count, int((values > max(rows.shape) * np.finfo(np.float64).eps * values[0]).sum()))
    total = values.sum() if trace is None else trace
    return Eigenvectors(vectors[:number].reshape(number, *shape), values[:number] / (total or 1))
