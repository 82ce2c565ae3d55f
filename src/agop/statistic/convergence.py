"""Convergence of diag(M): how close the diagonal of some batches is to that of all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Convergence:
    """Compares the sums of every other pass with those of the passes between them.

    With shuffled batches, both are the diagonal of all batches plus noise. If r is the noise's squared norm over that
    of the diagonal, the cosine between them is 1 / (1 + r), and that of their sum with the diagonal 1 / √(1 + r/2).
    """

    def __init__(self) -> None:
        self.passes = 0
        self._total = torch.zeros(())
        # Sums (C,H,W) of the latest pass and every other one before it, and of those between them.
        self._latest = self._between = torch.zeros(())

    def add(self, total: Tensor) -> None:
        """Add a pass, by the sums (C,H,W) after it. One without a gradient, as without a correct sample, is skipped."""
        total = total.cpu()
        more = total - self._total
        if bool(more.any()):
            self._latest, self._between = self._between + more, self._latest
            self._total, self.passes = total, self.passes + 1

    def cosine(self, ranks: int = 1) -> float | None:
        """Estimated cosine with diag(M) of all batches, if each of the ranks has as many passes. None before two."""
        if self.passes < 2:
            return None
        # Divided by the norms first: sums of tiny squares must not vanish.
        latest, between = (half / half.norm() for half in (self._latest, self._between))
        noise = 1 / float((latest * between).sum().clamp(1e-12, 1)) - 1
        return float((1 + noise / (2 * ranks)) ** -0.5)

    def state(self) -> dict[str, Any]:
        """What a resumed training needs besides its sums."""
        return {"passes": self.passes, "latest": self._latest.clone(), "between": self._between.clone()}

    def load(self, state: dict[str, Any] | None, total: Tensor) -> None:
        """Resume from a state and the sums (C,H,W) at that time. Without a state, only later passes are compared."""
        state = Convergence().state() if state is None else state
        self.passes, self._total = state["passes"], total.cpu()
        self._latest, self._between = state["latest"].cpu(), state["between"].cpu()
