"""Sketch: an approximation of the whole matrix M in little memory, by Frequent Directions (Liberty, 2013)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from agop.model.probe import at_least_float32


class Sketch:
    """At most 2ℓ rows of gradients (C,H,W), which `rows` shrinks to ℓ. Two sketches merge by adding their rows.

    For gradients A (n,C·H·W): AᵀA − BᵀB is positive semi-definite, and its largest eigenvalue is at most
    ‖A − A_k‖² / (ℓ − k) for every k < ℓ, where A_k is the best approximation of rank k, also after merging.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._buffer: Tensor | None = None
        self._used = 0

    @classmethod
    def of(cls, rank: int, parts: list[Tensor | None]) -> Sketch:
        """The sketch of all rows in these parts (N,C,H,W)."""
        sketch = cls(rank)
        for rows in parts:
            if rows is not None:
                sketch.update(rows)
        return sketch

    def update(self, gradients: Tensor) -> None:
        """Add gradients (N,C,H,W)."""
        if not len(gradients):
            return
        if self._buffer is None:
            dtype = at_least_float32(gradients.dtype)
            self._buffer = torch.zeros(2 * self.rank, *gradients.shape[1:], dtype=dtype)
        buffer = self._buffer = self._buffer.to(gradients.device)
        while len(gradients):
            if self._used == len(buffer):
                buffer[: self.rank] = _shrunk(buffer, self.rank)
                self._used = self.rank
            part = gradients[: len(buffer) - self._used]
            buffer[self._used : self._used + len(part)] = part.to(buffer)
            self._used += len(part)
            gradients = gradients[len(part) :]

    def rows(self) -> Tensor | None:
        """B (ℓ,C,H,W), with rows of zeros if there were fewer gradients; None if there were none. A new tensor."""
        if self._buffer is None:
            return None
        if self._used > self.rank:
            return _shrunk(self._buffer[: self._used], self.rank)
        zeros = self._buffer.new_zeros(self.rank - self._used, *self._buffer.shape[1:])
        return torch.cat([self._buffer[: self._used], zeros])

    def merge(self, other: Sketch) -> Sketch:
        """A new sketch of the gradients of both."""
        return Sketch.of(self.rank, [self.rows(), other.rows()])

    def scale(self, factor: float) -> None:
        """Multiply all rows by a factor."""
        if self._buffer is not None:
            self._buffer.mul_(factor)

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and numbers only."""
        buffer = None if self._buffer is None else self._buffer[: self._used].detach().cpu().clone()
        return {"rank": self.rank, "rows": buffer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`."""
        self._buffer, self._used = None, 0
        if state["rows"] is not None:
            self.update(state["rows"])


def _shrunk(rows: Tensor, rank: int) -> Tensor:
    """ℓ rows for more than ℓ: rotated, each squared norm smaller by the (ℓ+1)-th largest eigenvalue."""
    flat = rows.flatten(1)
    # The small Gram matrix, in chunks of columns, instead of a singular value decomposition of long rows. Its squares
    # need float64, which Apple's GPUs don't have.
    gram = torch.zeros(len(flat), len(flat), dtype=torch.float64)
    for part in torch.split(flat, 2**14, dim=1):
        exact = (part.cpu() if part.device.type == "mps" else part).to(torch.float64)
        gram += (exact @ exact.T).cpu()
    squares, vectors = torch.linalg.eigh(gram)
    squares, vectors = squares.flip(0), vectors.flip(1)
    kept, smallest = squares[:rank], squares[rank].clamp_min(0)
    factors = torch.where(kept > smallest, (1 - smallest / kept).clamp_min(0).sqrt(), 0.0)
    rotation: Tensor = (vectors[:, :rank] * factors).T.to(flat)
    return (rotation @ flat).reshape(rank, *rows.shape[1:])
