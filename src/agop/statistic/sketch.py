"""Sketch: Frequent Directions of gradients, a few rows B whose BᵀB approximates Σ g gᵀ from below."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from agop.errors import InputError
from agop.model.probe import at_least_float32


class Sketch:
    """At most 2ℓ rows of gradients (C,H,W), which `rows` shrinks to ℓ. Two sketches merge by adding their rows.

    For gradients A (n,C·H·W): AᵀA − BᵀB is positive semi-definite, and its largest eigenvalue is at most
    ‖A − A_k‖² / (ℓ − k) for every k < ℓ, where A_k is the best approximation of rank k, also after merging.
    """

    def __init__(self, rank: int) -> None:
        check_rank(rank)
        self.rank = rank
        self._buffer: Tensor | None = None
        self._used = 0

    def update(self, gradients: Tensor) -> None:
        """Add gradients (N,C,H,W)."""
        if not len(gradients):
            return
        buffer = self._buffer_for(gradients)
        while len(gradients):
            if self._used == len(buffer):
                buffer[: self.rank] = _shrunk(buffer, self.rank)
                self._used = self.rank
            part = gradients[: len(buffer) - self._used]
            buffer[self._used : self._used + len(part)] = part.to(buffer)
            self._used += len(part)
            gradients = gradients[len(part) :]

    def rows(self) -> Tensor:
        """B (ℓ,C,H,W), with rows of zeros if there were fewer gradients. The sketch itself doesn't change."""
        if self._buffer is None:
            raise InputError("the sketch has no gradients yet")
        if self._used > self.rank:
            return _shrunk(self._buffer[: self._used], self.rank)
        return torch.cat([self._buffer[: self._used], self._buffer.new_zeros(self.rank, *self._buffer.shape[1:])])[
            : self.rank
        ]

    def merge(self, other: Sketch) -> Sketch:
        """A new sketch of the gradients of both."""
        if self.rank != other.rank:
            raise InputError(f"can't merge sketches of rank {self.rank} and {other.rank}: use the same rank")
        merged = Sketch(self.rank)
        for part in (self, other):
            if part._buffer is not None:
                merged.update(part.rows())
        return merged

    def gathered(self, world_size: int) -> Sketch:
        """A new sketch of the gradients of all ranks, merged in their order. A collective call."""
        rows: list[Any] = [None] * world_size
        dist.all_gather_object(rows, None if self._buffer is None else self.rows().cpu())
        merged = Sketch(self.rank)
        for part in rows:
            if part is not None:
                merged.update(part)
        return merged

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and numbers only."""
        buffer = None if self._buffer is None else self._buffer[: self._used].detach().cpu().clone()
        return {"rank": self.rank, "rows": buffer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`."""
        self.rank, self._buffer, self._used = state["rank"], None, 0
        if state["rows"] is not None:
            self.update(state["rows"])

    def _buffer_for(self, gradients: Tensor) -> Tensor:
        if self._buffer is None:
            dtype = at_least_float32(gradients.dtype)
            self._buffer = torch.zeros(2 * self.rank, *gradients.shape[1:], dtype=dtype)
        self._buffer = self._buffer.to(gradients.device)
        return self._buffer


def _shrunk(rows: Tensor, rank: int) -> Tensor:
    """ℓ rows for more than ℓ: rotated, each squared norm smaller by the (ℓ+1)-th largest eigenvalue."""
    flat = rows.flatten(1)
    # The small Gram matrix, instead of a singular value decomposition of long rows. Its squares need float64.
    squares, vectors = torch.linalg.eigh(_gram(flat))
    squares, vectors = squares.flip(0), vectors.flip(1)
    kept, smallest = squares[:rank], squares[rank].clamp_min(0)
    factors = torch.where(kept > smallest, (1 - smallest / kept).clamp_min(0).sqrt(), 0.0)
    rotation: Tensor = (vectors[:, :rank] * factors).T.to(flat)
    return (rotation @ flat).reshape(rank, *rows.shape[1:])


def _gram(rows: Tensor) -> Tensor:
    """R Rᵀ in float64 on the CPU, in chunks of columns."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for part in torch.split(rows, 2**14, dim=1):
        exact = part.to(torch.float64) if part.device.type != "mps" else part.cpu().to(torch.float64)
        total += (exact @ exact.T).cpu()
    return total


def check_rank(rank: Any) -> None:
    """Raise unless the rank of a sketch is a positive integer."""
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise InputError(f"rank is {rank!r}: give a positive integer, or 0 for no sketch")
