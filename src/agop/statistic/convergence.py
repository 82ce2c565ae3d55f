"""Convergence of diag(M): how close the diagonal of some batches is to that of all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity


class Convergence:
    """Compares the sums of every other pass with those of the passes between them.

    Both are the diagonal of all batches plus noise. If r is the noise's squared norm over that of the diagonal, the
    cosine between them is 1 / (1 + r), and that of their sum with the diagonal 1 / √(1 + r/2).
    """

    def __init__(self) -> None:
        self.passes = 0
        # Sums (C,H,W) of all passes, and with alternating sign.
        self._total = self._difference = torch.zeros(())

    def add(self, total: Tensor) -> None:
        """Add a pass, by the sums (C,H,W) after it."""
        total = total.cpu()
        self._difference = (total - self._total) - self._difference
        self._total, self.passes = total, self.passes + 1

    def cosine(self, ranks: int = 1) -> float | None:
        """Estimated cosine with diag(M) of all batches, if each of the ranks has as many passes. None before two."""
        if self.passes < 2:
            return None
        halves = (self._total + self._difference).flatten(), (self._total - self._difference).flatten()
        between = float(cosine_similarity(*halves, dim=0))
        return (1 + (1 / between - 1) / (2 * ranks)) ** -0.5 if between > 0 else 0.0

    def state(self) -> dict[str, Any]:
        """What a resumed training needs besides its sums."""
        return {"passes": self.passes, "difference": self._difference.clone()}

    def load(self, state: dict[str, Any], total: Tensor) -> None:
        """Resume from a state and the sums (C,H,W) at that time."""
        self.passes, self._difference, self._total = state["passes"], state["difference"].cpu(), total.cpu()
