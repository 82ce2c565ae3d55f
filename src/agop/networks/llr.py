"""LLR: linear logistic regression, the linear network of XAI-TRIS."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class LLR(nn.Module):
    """One linear layer without bias: 128 parameters, logits (N,2) of images (N,1,8,8)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x.flatten(1))
        return logits

    @staticmethod
    def stacked_forward(weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Logits (S,N,2) of S networks with stacked weights (S,2,64), each on its own images (S,N,1,8,8)."""
        return torch.bmm(images.flatten(2), weights["fc.weight"].transpose(1, 2))
